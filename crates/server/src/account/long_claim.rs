//! Memory that is claimed for longer than a step: for what a reader brings later.

use std::sync::Arc;

use super::Account;

/// Memory for what is being read for a call, given back when this is dropped: once the call holds
/// what was read, and that is charged.
#[derive(Debug)]
pub(crate) struct LongClaim {
    account: Arc<Account>,
    bytes: usize,
}

impl Account {
    /// [`Account::claim`] for what comes later.
    pub fn claim_long(self: &Arc<Account>, bytes: usize) -> Option<LongClaim> {
        let bytes = self.claim(bytes)?;
        Some(self.long(bytes))
    }

    /// [`Account::claim_little`] for what comes later.
    pub fn claim_little_long(self: &Arc<Account>, bytes: usize) -> LongClaim {
        self.claim_little(bytes);
        self.long(bytes)
    }

    fn long(self: &Arc<Account>, bytes: usize) -> LongClaim {
        LongClaim {
            account: Arc::clone(self),
            bytes,
        }
    }
}

impl LongClaim {
    /// Returns how much may be read, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Claims so many bytes instead, if there are so many; else it is left as it is.
    #[must_use]
    pub fn change_to(&mut self, bytes: usize) -> bool {
        // Not both at once: then nobody could have most of the account.
        self.account.end_claim(self.bytes);
        let changed = self.account.claim(bytes);
        match changed {
            Some(bytes) => self.bytes = bytes,
            None => self.account.claim_little(self.bytes),
        }
        changed.is_some()
    }
}

impl Drop for LongClaim {
    fn drop(&mut self) {
        self.account.end_claim(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    #[test]
    fn what_is_claimed_for_later_is_given_back_whatever_becomes_of_it() {
        let account = Account::new(8 * MB);
        for _ in 0..2 {
            let mut first = account.claim_long(3 * MB).expect("all is free");
            let second = account.claim_long(4 * MB).expect("7 of 8 MB");
            assert!(account.claim_long(2 * MB).is_none());
            let little = account.claim_little_long(2 * MB);
            assert_eq!(account.claimed_bytes(), 9 * MB);
            drop(little);
            assert!(!first.change_to(5 * MB), "the other one has the rest");
            assert_eq!((first.bytes(), account.claimed_bytes()), (3 * MB, 7 * MB));
            assert!(first.change_to(4 * MB));
            assert_eq!((first.bytes(), account.claimed_bytes()), (4 * MB, 8 * MB));
            drop(second);
            assert!(first.change_to(64 * MB), "one alone may have more");
            assert!(account.claim_long(1).is_none());
            drop(first);
            assert_eq!(account.claimed_bytes(), 0);
        }
    }
}
