//! The token of the first administrator, which a server makes before it serves.

use store::{Condition, DatabaseId, Mode, Store, WriteBatch};

use super::Identities;
use super::identity::{Identity, IdentityError, IssuedToken, NEVER_MS};
use super::record::{CHANGES_KEY, IdentityRecord, put_entry};
use super::token::Token;
use crate::rights::Rights;

/// The name of the first administrator.
pub const FIRST_ADMIN: &str = "admin";

impl Identities {
    /// Returns whether somebody with a token that is good has the right admin on the whole server.
    pub fn has_admin(&self, now_ms: u64) -> bool {
        self.all().iter().any(|identity| identity.is_admin(now_ms))
    }

    /// Returns whether somebody with other rights has the name of the first administrator, and
    /// calls with it.
    pub fn is_first_admin_taken(&self, now_ms: u64) -> bool {
        let all = self.all();
        let mut named = all.iter().filter(|identity| identity.name() == FIRST_ADMIN);
        named.any(|identity| identity.is_usable(now_ms) && !identity.is_admin(now_ms))
    }

    /// Returns the name of whose token this is, good or not.
    pub fn name_of(&self, token: &Token) -> Option<String> {
        let hash = self.key().hash(token);
        let all = self.all();
        let is_it = |issued: &IssuedToken| issued.hash == hash;
        let found = all
            .iter()
            .find(|identity| identity.tokens().iter().any(is_it));
        found.map(|identity| identity.name().to_owned())
    }

    /// Returns the commit that makes [`FIRST_ADMIN`] an administrator with this token, whatever it
    /// was before: to be called where nobody is one, and nobody else has the name.
    ///
    /// # Errors
    /// None that can happen: the name and the right are sound.
    pub fn first_admin(
        &self,
        store: &Store,
        token: &Token,
        now_ms: u64,
    ) -> Result<WriteBatch, IdentityError> {
        let issued = IssuedToken {
            hash: self.key().hash(token),
            expires_ms: NEVER_MS,
        };
        let rights = Rights::everything();
        let record = IdentityRecord {
            identity: Identity::new(FIRST_ADMIN, rights, NEVER_MS, vec![issued])?,
            created_ms: now_ms,
        };
        let mut batch = store.write_batch();
        let mut commit = batch.begin(0, DatabaseId::IDENTITIES, Mode::Atomic);
        for (key, value) in [
            (CHANGES_KEY, self.key().check_value().to_vec()),
            (FIRST_ADMIN.as_bytes(), record.encode()),
        ] {
            let pushed = commit.push(&put_entry(key, &value, Condition::None));
            debug_assert_eq!(pushed, Ok(()), "a name and a right fit");
        }
        commit.submit();
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use store::{Clock, Outcomes};

    use super::*;
    use crate::fake::shared;
    use crate::identities::Unauthenticated;

    struct Now(u64);

    impl Clock for Now {
        fn now_ns(&mut self) -> u64 {
            0
        }

        fn now_ms(&mut self) -> u64 {
            self.0
        }
    }

    /// Also where somebody has had the name and is an administrator no more.
    #[test]
    fn the_first_administrator_takes_the_place_of_what_had_its_name() {
        let shared = shared();
        let (store, identities) = (&shared.store, &shared.identities);
        for round in 1..4 {
            let token = Token::new([round; 32]);
            assert_eq!(identities.name_of(&token), None);
            let batch = identities.first_admin(store, &token, 1_000);
            let (mut batch, mut outcomes) = (batch.expect("it is sound"), Outcomes::new());
            drop(
                store
                    .committer()
                    .run(&mut batch, &mut Now(1_000), &mut outcomes),
            );
            assert_eq!(identities.load(store, 1_000), Ok(0));
            assert!(identities.has_admin(1_000) && identities.has_admin(NEVER_MS - 1));
            assert!(
                !identities.has_admin(NEVER_MS),
                "one that has expired is none"
            );
            assert_eq!(identities.name_of(&token).as_deref(), Some(FIRST_ADMIN));
            assert_eq!(identities.all().len(), 1);
            let header = format!("Bearer {}", *token.text());
            let table = identities.table();
            let key = table.resolve(header.as_bytes(), 1_000).expect("it is good");
            let rights = table.get(key).expect("it is there").rights().clone();
            assert_eq!(rights, Rights::everything());
            let before = format!("Bearer {}", *Token::new([round - 1; 32]).text());
            let found = table.resolve(before.as_bytes(), 1_000);
            assert_eq!(found, Err(Unauthenticated::Unknown));
        }
    }

    /// An entry that makes no sense lets nobody in, and is told.
    #[test]
    fn entries_that_make_no_sense_let_nobody_in() {
        let shared = shared();
        let (store, identities) = (&shared.store, &shared.identities);
        let token = Token::new([1; 32]);
        let batch = identities.first_admin(store, &token, 1_000);
        let mut batch = batch.expect("it is sound");
        let mut commit = batch.begin(1, DatabaseId::IDENTITIES, Mode::Atomic);
        let put = |key| put_entry(key, b"\x01 of no sense", Condition::None);
        commit.push(&put(FIRST_ADMIN.as_bytes())).expect("it fits");
        commit.push(&put(b"other")).expect("it fits");
        commit.submit();
        drop(
            store
                .committer()
                .run(&mut batch, &mut Now(1), &mut Outcomes::new()),
        );
        assert_eq!(identities.load(store, 1_000), Ok(2));
        assert!(identities.all().is_empty() && !identities.has_admin(1_000));
    }
}
