//! A share of a bound.

use std::fmt;

/// Something that was taken of a bound; it is given back when this is dropped.
pub struct Permit(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Permit {
    /// What is given back by `release`.
    pub fn new(release: impl FnOnce() + Send + Sync + 'static) -> Permit {
        Permit(Some(Box::new(release)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            release();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Permit")
    }
}
