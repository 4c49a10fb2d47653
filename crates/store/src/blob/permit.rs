//! A share of a bound.

use std::fmt;

/// Something that was taken of a bound; it is given back when this is dropped.
pub struct BlobPermit(Option<Box<dyn FnOnce() + Send + Sync>>);

impl BlobPermit {
    /// What is given back by `release`.
    pub fn new(release: impl FnOnce() + Send + Sync + 'static) -> BlobPermit {
        BlobPermit(Some(Box::new(release)))
    }
}

impl Drop for BlobPermit {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            release();
        }
    }
}

impl fmt::Debug for BlobPermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Permit")
    }
}
