//! The token of the first administrator, which a server makes before it serves.

use store::{Condition, DatabaseId, Mode, Store, WriteBatch};

use super::Identities;
use super::binding::UsableBindings;
use super::identity::{Identity, IdentityError, IssuedToken, NEVER_MS};
use super::record::{CHANGES_KEY, IdentityRecord, put_entry};
use super::token::Token;
use crate::limits::IDENTITIES_MAX;
use crate::rights::Rights;

/// The name of the first administrator.
pub const FIRST_ADMIN: &str = "admin";

impl Identities {
    /// Returns whether somebody can call who has the right admin on the whole server: with a token
    /// that is good, or with one of these bindings.
    pub fn has_admin(&self, bindings: UsableBindings, now_ms: u64) -> bool {
        self.has_provable(bindings, |identity| identity.is_admin(now_ms))
    }

    /// Returns whether anybody can prove who it is: with a token that is good, or with one of these
    /// bindings.
    pub fn has_usable(&self, bindings: UsableBindings, now_ms: u64) -> bool {
        self.has_provable(bindings, |identity| identity.is_usable(now_ms))
    }

    fn has_provable(&self, bindings: UsableBindings, is: impl Fn(&Identity) -> bool) -> bool {
        let all = self.all();
        let mut provable = (all.iter()).filter(|identity| identity.is_provable(bindings));
        provable.any(|identity| is(identity))
    }

    /// Returns whether [`FIRST_ADMIN`] can be made, or made anew.
    pub fn has_room_for_first_admin(&self) -> bool {
        let all = self.all();
        all.len() < IDENTITIES_MAX || all.iter().any(|identity| identity.name() == FIRST_ADMIN)
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

    /// Returns whether this token was that of [`FIRST_ADMIN`], and was revoked or rotated away.
    pub fn was_revoked(&self, store: &Store, token: &Token) -> bool {
        let hash = self.key().hash(token);
        self.stored(store).revoked.contains(&hash)
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
            identity: Identity::new(FIRST_ADMIN, rights, NEVER_MS, vec![issued])?.into(),
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
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use store::{Clock, Operation, Outcomes};

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

    /// What is wrong with the entries is news once, until something else is.
    #[test]
    fn what_came_of_a_load_is_told_when_it_was_something_else_before() {
        let shared = shared();
        let (store, identities) = (&shared.store, &shared.identities);
        assert_eq!(identities.load_news(store, 0), None);
        for key in [&b"one"[..], b"two"] {
            let made = key == b"one";
            write(store, key, Some(b"of no sense"));
            let unreadable = if made { 1 } else { 2 };
            assert_eq!(identities.load_news(store, 0), Some(Ok(unreadable)));
            for _ in 0..2 {
                assert_eq!(identities.load_news(store, 0), None);
            }
        }
        write(store, b"one", None);
        assert_eq!(identities.load_news(store, 0), Some(Ok(1)));
        write(store, b"two", None);
        assert_eq!(identities.load_news(store, 0), Some(Ok(0)));
        assert_eq!(identities.load_news(store, 0), None);
    }

    /// Whoever makes a table last has seen all changes: the store is looked at when it is his turn.
    #[test]
    fn a_load_that_waits_for_another_one_sees_what_was_changed_meanwhile() {
        let shared = shared();
        let (store, identities) = (&shared.store, &shared.identities);
        for round in 0..20 {
            let turn = identities.lock_loading();
            let begun = Barrier::new(2);
            thread::scope(|scope| {
                let loads = scope.spawn(|| {
                    begun.wait();
                    identities.load(store, 1_000)
                });
                begun.wait();
                // It has the time to look at the store too early.
                for _ in 0..100 {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(1));
                let token = Token::new([round; 32]);
                let batch = identities.first_admin(store, &token, 1_000);
                run(store, &mut batch.expect("it is sound"));
                drop(turn);
                assert_eq!(loads.join().expect("it does not panic"), Ok(0));
                assert_eq!(identities.name_of(&token).as_deref(), Some(FIRST_ADMIN));
            });
        }
    }

    fn run(store: &Store, batch: &mut WriteBatch) {
        let mut committer = store.committer();
        drop(committer.run(batch, &mut Now(1), &mut Outcomes::new()));
    }

    fn write(store: &Store, key: &[u8], value: Option<&[u8]>) {
        let mut batch = store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::IDENTITIES, Mode::Atomic);
        let condition = Condition::None;
        let operation = match value {
            Some(value) => put_entry(key, value, condition),
            None => Operation::Delete {
                key,
                condition,
                want_previous: false,
            },
        };
        commit.push(&operation).expect("it fits");
        commit.submit();
        run(store, &mut batch);
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
            assert!(
                identities.has_admin(UsableBindings::ALL, 1_000)
                    && identities.has_admin(UsableBindings::ALL, NEVER_MS - 1)
            );
            assert!(
                !identities.has_admin(UsableBindings::ALL, NEVER_MS),
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

    /// Who is bound to what nobody can show here is nobody who could administrate.
    #[test]
    fn who_cannot_prove_a_binding_here_is_no_administrator() {
        let shared = shared();
        let identities = &shared.identities;
        let nothing = UsableBindings {
            certificates: false,
            users: false,
        };
        for (binding, enough) in [
            (
                "uid:0",
                UsableBindings {
                    users: true,
                    ..nothing
                },
            ),
            (
                "san:dns:a.example",
                UsableBindings {
                    certificates: true,
                    ..nothing
                },
            ),
            (
                "san:uri:a:b",
                UsableBindings {
                    certificates: true,
                    ..nothing
                },
            ),
            (
                "san:email:a@b",
                UsableBindings {
                    certificates: true,
                    ..nothing
                },
            ),
            (
                &format!("sha256:{}", "07".repeat(32)),
                UsableBindings {
                    certificates: true,
                    ..nothing
                },
            ),
        ] {
            for _ in 0..2 {
                let binding = binding.parse().expect("a binding");
                let bound = Identity::bound("ops", Rights::everything(), 50, binding);
                let bound = vec![bound.expect("sound")];
                identities.replace(bound, 0).expect("one");
                let other = UsableBindings {
                    certificates: !enough.certificates,
                    users: !enough.users,
                };
                for (bindings, now_ms, expected) in [
                    (UsableBindings::ALL, 0, true),
                    (enough, 49, true),
                    (enough, 50, false),
                    (other, 0, false),
                    (nothing, 0, false),
                ] {
                    assert_eq!(identities.has_admin(bindings, now_ms), expected);
                    assert_eq!(identities.has_usable(bindings, now_ms), expected);
                }
                identities.replace(Vec::new(), 0).expect("none");
                assert!(!identities.has_usable(UsableBindings::ALL, 0));
            }
        }
    }

    #[test]
    fn the_first_administrator_takes_the_place_of_nobody_else() {
        let shared = shared();
        let identities = &shared.identities;
        let one = |number: usize| {
            let binding = format!("uid:{number}").parse().expect("a user");
            let name = format!("n{number}");
            Identity::bound(&name, Rights::default(), NEVER_MS, binding).expect("sound")
        };
        for _ in 0..2 {
            let mut all: Vec<Identity> = (1..IDENTITIES_MAX).map(one).collect();
            identities.replace(all.clone(), 0).expect("there is room");
            assert!(identities.has_room_for_first_admin());
            all.push(one(IDENTITIES_MAX));
            identities.replace(all.clone(), 0).expect("there is room");
            assert!(!identities.has_room_for_first_admin());
            let user = "uid:0".parse().expect("a user");
            let named = Identity::bound(FIRST_ADMIN, Rights::default(), 1, user);
            all[0] = named.expect("sound");
            identities.replace(all, 0).expect("there is room");
            assert!(identities.has_room_for_first_admin());
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
        assert!(identities.all().is_empty() && !identities.has_admin(UsableBindings::ALL, 1_000));
    }
}
