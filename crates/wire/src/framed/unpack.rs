//! Compressed messages: gzip and snappy, at once or in steps.

use super::baidu_std::compress;
use super::snappy::{self, Unsnapping};
use crate::grpc::InflateError;
use crate::grpc::compression::{self, Unzipping};

/// A message that is decompressed in steps.
#[derive(Debug)]
pub(crate) enum Unpacking {
    Gzip(Unzipping),
    Snappy(Unsnapping),
}

impl Unpacking {
    /// Returns a message that has not begun.
    ///
    /// # Errors
    /// If what it announces cannot be.
    pub(crate) fn new(compress_type: i32, packed: &[u8]) -> Result<Unpacking, InflateError> {
        match compress_type {
            compress::GZIP => {
                let announced_bytes = compression::announced_bytes(packed)?;
                Ok(Unpacking::Gzip(Unzipping::new(announced_bytes)))
            }
            _ => Ok(Unpacking::Snappy(Unsnapping::new(snappy::announced(
                packed,
            )?))),
        }
    }

    /// Returns what it becomes, in bytes.
    pub(crate) fn announced_bytes(&self) -> usize {
        match self {
            Unpacking::Gzip(unzipping) => unzipping.announced_bytes(),
            Unpacking::Snappy(unsnapping) => unsnapping.announced_bytes(),
        }
    }

    /// Returns the memory that it takes when it is under way, in bytes, beside what came.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Unpacking::Gzip(unzipping) => unzipping.announced_bytes() + Unzipping::STATE_BYTES,
            Unpacking::Snappy(unsnapping) => unsnapping.announced_bytes(),
        }
    }

    /// Goes on for about `most_bytes` of output, and returns whether it has ended.
    ///
    /// # Errors
    /// If it is damaged, or becomes more than it announced.
    pub(crate) fn step(&mut self, packed: &[u8], most_bytes: usize) -> Result<bool, InflateError> {
        match self {
            Unpacking::Gzip(unzipping) => {
                unzipping.step(packed, most_bytes)?;
                Ok(unzipping.has_ended())
            }
            Unpacking::Snappy(unsnapping) => unsnapping.step(packed, most_bytes),
        }
    }

    /// Decompresses all at once. What is small is.
    pub(crate) fn all(self, packed: &[u8]) -> Result<Vec<u8>, InflateError> {
        let announced_bytes = self.announced_bytes();
        match self {
            Unpacking::Gzip(_) => {
                let mut out = Vec::new();
                compression::gunzip(packed, announced_bytes, &mut out)?;
                Ok(out)
            }
            Unpacking::Snappy(mut unsnapping) => {
                // One more, so that the end is seen behind the last byte.
                let most_bytes = announced_bytes + 1;
                match unsnapping.step(packed, most_bytes)? {
                    true => Ok(unsnapping.into_bytes()),
                    false => Err(InflateError::Damaged),
                }
            }
        }
    }

    /// Returns what it has become.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self {
            Unpacking::Gzip(unzipping) => unzipping.into_bytes(),
            Unpacking::Snappy(unsnapping) => unsnapping.into_bytes(),
        }
    }
}
