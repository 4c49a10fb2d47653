//! Bodies that several answers hold, charged once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Account, lock};

/// A body that several answers may hold. Another one that begins at the same place, but is not as
/// long, is charged by itself, so that each gives back what was charged for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SharedBody {
    /// Its address.
    pub place: usize,
    pub bytes: usize,
}

/// Charges a shared body as long as it lives.
#[derive(Debug)]
pub(super) struct SharedCharge {
    pub account: Arc<Account>,
    pub body: SharedBody,
}

impl wire::BodyCharge for SharedCharge {}

impl Drop for SharedCharge {
    fn drop(&mut self) {
        let mut shared = lock(&self.account.shared);
        if let Some(holders) = shared.get_mut(&self.body) {
            *holders -= 1;
            if *holders == 0 {
                shared.remove(&self.body);
                (self.account.charged).fetch_sub(self.body.bytes, Ordering::Relaxed);
            }
        }
    }
}
