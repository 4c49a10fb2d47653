//! What is wrong with a content.

use std::io;

/// What is wrong with a content file.
#[derive(Debug)]
pub(crate) enum CheckError {
    /// It is not what was written.
    Damaged,
    /// The operating system refused.
    Device(io::Error),
}

impl From<io::Error> for CheckError {
    fn from(error: io::Error) -> CheckError {
        CheckError::Device(error)
    }
}
