//! Compressed messages: gzip and snappy, at once or in steps.

use super::baidu_std::compress;
use super::snappy::{self, Unsnapping};
use crate::grpc::InflateError;
use crate::grpc::compression::{self, Unzipping};

/// How a message is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FramedCompression {
    /// The raw format of snappy.
    Snappy,
    /// gzip (RFC 1952).
    Gzip,
}

/// A `compress_type` that is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownCompression(pub(crate) i32);

impl FramedCompression {
    /// Returns what a `compress_type` stands for; `None`: the message is not compressed.
    ///
    /// # Errors
    /// If it is not supported.
    pub(crate) fn of(
        compress_type: Option<i32>,
    ) -> Result<Option<FramedCompression>, UnknownCompression> {
        match compress_type.unwrap_or(compress::NONE) {
            compress::NONE => Ok(None),
            compress::SNAPPY => Ok(Some(FramedCompression::Snappy)),
            compress::GZIP => Ok(Some(FramedCompression::Gzip)),
            other => Err(UnknownCompression(other)),
        }
    }
}

/// A message that is decompressed in steps.
#[derive(Debug)]
pub(crate) enum FramedUnpacking {
    Gzip(Unzipping),
    Snappy(Unsnapping),
}

impl FramedUnpacking {
    /// Returns a message that has not begun.
    ///
    /// # Errors
    /// If what it announces cannot be.
    pub(crate) fn new(
        compression: FramedCompression,
        packed: &[u8],
    ) -> Result<FramedUnpacking, InflateError> {
        match compression {
            FramedCompression::Snappy => {
                let announced_bytes = snappy::announced(packed)?;
                Ok(FramedUnpacking::Snappy(Unsnapping::new(announced_bytes)))
            }
            FramedCompression::Gzip => {
                let announced_bytes = compression::announced_bytes(packed)?;
                Ok(FramedUnpacking::Gzip(Unzipping::new(announced_bytes)))
            }
        }
    }

    /// Returns what it becomes, in bytes.
    pub(crate) fn announced_bytes(&self) -> usize {
        match self {
            FramedUnpacking::Gzip(unzipping) => unzipping.announced_bytes(),
            FramedUnpacking::Snappy(unsnapping) => unsnapping.announced_bytes(),
        }
    }

    /// Returns the memory that it takes when it is under way, in bytes, beside what came.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            FramedUnpacking::Gzip(unzipping) => {
                unzipping.announced_bytes() + Unzipping::STATE_BYTES
            }
            FramedUnpacking::Snappy(unsnapping) => unsnapping.announced_bytes(),
        }
    }

    /// Goes on for about `most_bytes` of work, and returns whether it has ended.
    ///
    /// # Errors
    /// If it is damaged, or becomes more than it announced.
    pub(crate) fn step(&mut self, packed: &[u8], most_bytes: usize) -> Result<bool, InflateError> {
        match self {
            FramedUnpacking::Gzip(unzipping) => {
                unzipping.step(packed, most_bytes)?;
                Ok(unzipping.has_ended())
            }
            FramedUnpacking::Snappy(unsnapping) => unsnapping.step(packed, most_bytes),
        }
    }

    /// Decompresses all at once, with at most so much work, and returns what it becomes, and the
    /// work. `None`: that was not enough, and nothing was done.
    ///
    /// # Errors
    /// If it is damaged, or becomes more than it announced.
    pub(crate) fn all(
        &mut self,
        packed: &[u8],
        most_work_bytes: usize,
    ) -> Result<Option<(Vec<u8>, usize)>, InflateError> {
        let announced_bytes = self.announced_bytes();
        match self {
            _ if announced_bytes > most_work_bytes => Ok(None),
            FramedUnpacking::Gzip(_) => {
                let mut out = Vec::new();
                let worked =
                    compression::gunzip(packed, announced_bytes, most_work_bytes, &mut out)?;
                Ok(worked.map(|work_bytes| (out, work_bytes)))
            }
            FramedUnpacking::Snappy(unsnapping) => {
                match unsnapping.step(packed, announced_bytes)? {
                    true => Ok(Some((unsnapping.take_bytes(), announced_bytes))),
                    false => Err(InflateError::Damaged),
                }
            }
        }
    }

    /// Returns what it has become.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self {
            FramedUnpacking::Gzip(unzipping) => unzipping.into_bytes(),
            FramedUnpacking::Snappy(mut unsnapping) => unsnapping.take_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Here and in `FramedUnpacking::new` each has its arm, so that a further one cannot be taken
    /// for another.
    #[test]
    fn a_message_is_only_decompressed_as_its_compress_type_says() {
        for absent in [None, Some(0)] {
            assert_eq!(FramedCompression::of(absent), Ok(None));
        }
        for (compress_type, compression) in
            [(1, FramedCompression::Snappy), (2, FramedCompression::Gzip)]
        {
            let found = FramedCompression::of(Some(compress_type));
            assert_eq!(found, Ok(Some(compression)));
        }
        for other in (3..=10).chain([-1, i32::MIN, i32::MAX]) {
            let found = FramedCompression::of(Some(other));
            assert_eq!(found, Err(UnknownCompression(other)));
        }
    }
}
