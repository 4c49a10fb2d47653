//! Places in the log.

use std::fmt;

use super::segment::segment_name;

/// Where something stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The segment; [`segment_name`] is its file.
    pub segment: u64,
    /// Bytes from the beginning of the file.
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = segment_name(self.segment);
        write!(formatter, "{name} at byte {}", self.offset)
    }
}
