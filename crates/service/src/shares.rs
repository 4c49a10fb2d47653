//! Shares out what is scarce among callers: places, bytes, time.
//!
//! A connection, an address and a token may have a part of what is left. So the less there is, the
//! less one of them can take, and a few cannot use up what all share. A little a connection has in
//! any case, whoever came first.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use store::blob::UploadPeer;

use crate::identities::IdentityKey;

/// Whose call it is, as far as callers can be told from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallerId {
    /// From where its connection comes.
    pub address: UploadPeer,
    /// Names its connection among those of the server.
    pub connection: u64,
    /// Whose it is; `None`: somebody of this machine without a token, or not known.
    pub identity: Option<IdentityKey>,
}

/// How much there is, and how much of it one caller may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub max: u64,
    /// A connection may have one part in so many of what is left.
    pub connection_share: u64,
    /// The same of all connections from one address.
    pub address_share: u64,
    /// The same of all calls of one token.
    pub identity_share: u64,
    /// What a connection may have however much is left.
    pub in_any_case: u64,
}

/// What is taken, in all and by whom. Who has nothing is not kept.
#[derive(Debug, Default)]
pub(crate) struct CallerShares {
    all: u64,
    addresses: BTreeMap<UploadPeer, u64>,
    connections: BTreeMap<u64, u64>,
    identities: BTreeMap<IdentityKey, u64>,
}

/// Why a caller gets nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// What has its share: the connection, the address or the token.
    pub whose: &'static str,
    /// What that has.
    pub has: u64,
    /// What is taken in all.
    pub all: u64,
}

impl CallerShares {
    /// What is taken in all.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// Takes so much for a caller.
    pub fn take(&mut self, caller: CallerId, amount: u64, bounds: &Bounds) -> Result<(), Exceeded> {
        self.check(caller, amount, bounds)?;
        self.all += amount;
        if amount > 0 {
            *self.addresses.entry(caller.address).or_default() += amount;
            *self.connections.entry(caller.connection).or_default() += amount;
            if let Some(identity) = caller.identity {
                *self.identities.entry(identity).or_default() += amount;
            }
        }
        Ok(())
    }

    fn check(&self, caller: CallerId, amount: u64, bounds: &Bounds) -> Result<(), Exceeded> {
        let has = |found: Option<&u64>| found.copied().unwrap_or(0);
        let of_connection = has(self.connections.get(&caller.connection));
        if of_connection + amount <= bounds.in_any_case {
            return Ok(());
        }
        let left = bounds.max.saturating_sub(self.all);
        let of_address = has(self.addresses.get(&caller.address));
        let identity = caller.identity.as_ref();
        let of_identity = has(identity.and_then(|identity| self.identities.get(identity)));
        // Who is not counted takes nothing of a share.
        let identity_share = identity.map_or(1, |_| bounds.identity_share);
        for (whose, has, share) in [
            ("connection", of_connection, bounds.connection_share),
            ("address", of_address, bounds.address_share),
            ("token", of_identity, identity_share),
        ] {
            if has + amount > left / share {
                let all = self.all;
                return Err(Exceeded { whose, has, all });
            }
        }
        Ok(())
    }

    /// Gives back what a caller has taken.
    pub fn give_back(&mut self, caller: CallerId, amount: u64) {
        self.all = self.all.saturating_sub(amount);
        subtract(self.addresses.entry(caller.address), amount);
        subtract(self.connections.entry(caller.connection), amount);
        if let Some(identity) = caller.identity {
            subtract(self.identities.entry(identity), amount);
        }
    }
}

fn subtract<Key: Ord>(entry: Entry<'_, Key, u64>, amount: u64) {
    if let Entry::Occupied(mut has) = entry {
        debug_assert!(*has.get() >= amount, "what is given back was taken");
        *has.get_mut() = has.get().saturating_sub(amount);
        if *has.get() == 0 {
            has.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identities::{Identities, TokenKey};
    use crate::rights::Rights;
    use std::net::Ipv4Addr;

    const BOUNDS: Bounds = Bounds {
        max: 10_000,
        connection_share: 4,
        address_share: 2,
        identity_share: 2,
        in_any_case: 4,
    };

    fn caller(address: u32, connection: u64) -> CallerId {
        CallerId {
            address: UploadPeer::with_address(Ipv4Addr::from(address).into()),
            connection,
            identity: None,
        }
    }

    /// Takes all that a caller can get, one by one.
    fn take_all(shares: &mut CallerShares, caller: CallerId) -> (u64, Exceeded) {
        let mut taken = 0;
        loop {
            match shares.take(caller, 1, &BOUNDS) {
                Ok(()) => taken += 1,
                Err(exceeded) => return (taken, exceeded),
            }
        }
    }

    #[test]
    fn a_share_is_taken_and_given_back() {
        let mut shares = CallerShares::default();
        for _ in 0..2 {
            let (taken, exceeded) = take_all(&mut shares, caller(1, 1));
            assert_eq!(taken, 2_000, "a quarter of the 8000 that are left");
            let (whose, all) = ("connection", 2_000);
            let has = 2_000;
            assert_eq!(exceeded, Exceeded { whose, has, all });
            shares.give_back(caller(1, 1), 2_000);
            assert_eq!(shares.all(), 0);
            assert!(shares.addresses.is_empty() && shares.connections.is_empty());
        }
    }

    #[test]
    fn much_at_once_is_measured_as_a_whole() {
        let mut shares = CallerShares::default();
        assert!(shares.take(caller(1, 1), 2_501, &BOUNDS).is_err());
        assert!(shares.take(caller(1, 1), 2_500, &BOUNDS).is_ok());
        assert!(shares.take(caller(1, 2), 0, &BOUNDS).is_ok());
    }

    #[test]
    fn the_connections_of_an_address_share() {
        let mut shares = CallerShares::default();
        let taken: u64 = (0..10)
            .map(|connection| take_all(&mut shares, caller(1, connection)).0)
            .sum();
        assert!(taken < 3_400, "{taken}: a third");
        let (_, exceeded) = take_all(&mut shares, caller(1, 3));
        assert_eq!(exceeded.whose, "address");
        let (of_another, _) = take_all(&mut shares, caller(2, 99));
        assert!(of_another > 1_000, "{of_another}");
    }

    /// From however many addresses and connections.
    #[test]
    fn the_calls_of_a_token_share() {
        let mut shares = CallerShares::default();
        let table = Identities::new(TokenKey::new(&[1; 32]), vec![Rights::default(); 2]).table();
        let of = |identity: usize, number: u64| CallerId {
            identity: Some(table.of_listener(identity)),
            ..caller(number as u32, number)
        };
        for _ in 0..2 {
            let taken: Vec<u64> = (0..200)
                .map(|number| take_all(&mut shares, of(0, number)).0)
                .collect();
            let sum: u64 = taken.iter().sum();
            assert!(sum < 3_400 + 200 * BOUNDS.in_any_case, "{sum}: a third");
            assert_eq!(take_all(&mut shares, of(0, 150)).1.whose, "token");
            // Another one, and one that is not counted.
            for other in [of(1, 300), caller(301, 301)] {
                let (of_another, _) = take_all(&mut shares, other);
                assert!(of_another > 1_000, "{of_another}");
                shares.give_back(other, of_another);
            }
            for (number, taken) in taken.into_iter().enumerate() {
                shares.give_back(of(0, number as u64), taken);
            }
            assert_eq!(shares.all(), 0);
            assert!(shares.identities.is_empty() && shares.connections.is_empty());
        }
    }

    /// Whoever takes all that they can get, a new connection has some, of a new address and of
    /// theirs.
    #[test]
    fn a_new_connection_always_gets_something() {
        let mut shares = CallerShares::default();
        for connection in 0..2_000 {
            take_all(&mut shares, caller(connection as u32 / 20, connection));
        }
        assert!(shares.all() <= BOUNDS.max + 2_000 * BOUNDS.in_any_case);
        for newcomer in [caller(5_000, 5_000), caller(1, 5_001)] {
            assert!(take_all(&mut shares, newcomer).0 >= BOUNDS.in_any_case);
        }
    }
}
