//! Looks at the identities that the store has. A look decodes only what has changed since the one
//! before: there may be a thousand identities, and each change of one is followed by a look on
//! behalf of all.

use std::ops::ControlFlow;
use std::sync::Arc;

use store::{Direction, Range, ReadView};

use super::identity::Identity;
use super::record::{CHANGES_KEY, IdentityRecord, StoredIdentities};
use super::revoked::{REVOKED_KEY, RevokedTokens};
use super::role::RoleRecord;
use crate::limits::{IDENTITIES_MAX, ROLES_MAX};

/// The identities that a look at the store has found.
#[derive(Debug, Default)]
pub(crate) struct IdentitySnapshot {
    stored: StoredIdentities,
    /// The versions of the entries of its identities. An entry that has the same one is the same.
    record_versions: Vec<u64>,
    /// The same of its roles.
    role_versions: Vec<u64>,
    /// How many entries were decoded for it.
    decoded: usize,
}

impl IdentitySnapshot {
    /// Reads the index, after an earlier look.
    pub(super) fn read_after(earlier: &IdentitySnapshot, view: &ReadView<'_>) -> IdentitySnapshot {
        let mut read = IdentitySnapshot::default();
        // They are kept in memory, so that nothing need be fetched, and never expire as entries.
        let _ = view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
            if entry.key == CHANGES_KEY {
                read.stored.changes_version = entry.version;
                read.stored.key_check = entry.value.bytes().into();
            } else if entry.key == REVOKED_KEY {
                match RevokedTokens::decode(entry.value.bytes()) {
                    Some(revoked) => read.stored.revoked = revoked,
                    None => read.stored.unreadable += 1,
                }
            } else if !read.add(earlier, entry.key, entry.version, entry.value.bytes()) {
                read.stored.unreadable += 1;
            }
            ControlFlow::Continue(())
        });
        read.apply_roles(earlier);
        read
    }

    /// Returns what was found.
    pub(crate) fn stored(&self) -> &StoredIdentities {
        &self.stored
    }

    /// Adds the entry of an identity or a role. Returns false if it makes no sense.
    fn add(&mut self, earlier: &IdentitySnapshot, key: &[u8], version: u64, value: &[u8]) -> bool {
        let is_role = RoleRecord::is_key(key);
        if is_role && self.stored.roles.len() < ROLES_MAX {
            let known = earlier.role(key, version).cloned();
            self.decoded += usize::from(known.is_none());
            let role = known.or_else(|| RoleRecord::decode(key, value));
            self.role_versions.extend(role.as_ref().map(|_| version));
            return role.map(|role| self.stored.roles.push(role)).is_some();
        }
        if !is_role && self.stored.records.len() < IDENTITIES_MAX {
            let known = earlier.record(key, version).cloned();
            self.decoded += usize::from(known.is_none());
            let record = known.or_else(|| IdentityRecord::decode(key, value));
            (self.record_versions).extend(record.as_ref().map(|_| version));
            return record
                .map(|record| self.stored.records.push(record))
                .is_some();
        }
        false
    }

    /// Returns the identity of an entry, if its version is this one.
    fn record(&self, key: &[u8], version: u64) -> Option<&IdentityRecord> {
        let records = &self.stored.records;
        let at = records.binary_search_by(|record| record.identity.name().as_bytes().cmp(key));
        let at = at.ok()?;
        let is_same = self.record_versions.get(at) == Some(&version);
        records.get(at).filter(|_| is_same)
    }

    /// Returns the role of an entry, if its version is this one.
    fn role(&self, key: &[u8], version: u64) -> Option<&RoleRecord> {
        let name = std::str::from_utf8(RoleRecord::name_in(key)?).ok()?;
        (self.role_version(name) == Some(version)).then(|| self.stored.find_role(name))?
    }

    fn role_version(&self, name: &str) -> Option<u64> {
        let at = self.stored.role_place(name).ok()?;
        self.role_versions.get(at).copied()
    }

    /// Gives each identity what its roles grant, unless it has that from the earlier look.
    fn apply_roles(&mut self, earlier: &IdentitySnapshot) {
        let mut records = std::mem::take(&mut self.stored.records);
        for (record, &version) in records.iter_mut().zip(&self.record_versions) {
            let identity = &mut record.identity;
            let is_applied = earlier
                .record(identity.name().as_bytes(), version)
                .is_some()
                && self.has_same_roles(earlier, identity);
            if !is_applied && identity.granted().roles().next().is_some() {
                self.stored.apply_roles_to(Arc::make_mut(identity));
            }
        }
        self.stored.records = records;
    }

    /// Returns whether the roles of an identity are those of the earlier look.
    fn has_same_roles(&self, earlier: &IdentitySnapshot, identity: &Identity) -> bool {
        let mut roles = identity.granted().roles();
        roles.all(|name| self.role_version(name) == earlier.role_version(name))
    }
}

#[cfg(test)]
mod tests {
    use store::{Clock, Condition, DatabaseId, Mode, Operation, Outcomes, Store};
    use testkit::Random;

    use super::*;
    use crate::fake::shared;
    use crate::identities::record::put_entry;
    use crate::identities::{IssuedToken, NEVER_MS, TokenHash};
    use crate::rights::{Grant, Rights};

    /// A clock that stands.
    struct Unmoved;

    impl Clock for Unmoved {
        fn now_ns(&mut self) -> u64 {
            0
        }

        fn now_ms(&mut self) -> u64 {
            1
        }
    }

    /// Writes an entry of the index, or removes it.
    fn write(store: &Store, key: &[u8], value: Option<&[u8]>) {
        let mut batch = store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::IDENTITIES, Mode::Atomic);
        let condition = Condition::None;
        let operation = value.map_or(
            Operation::Delete {
                key,
                condition,
                want_previous: false,
            },
            |value| put_entry(key, value, condition),
        );
        commit.push(&operation).expect("it fits");
        commit.submit();
        let mut outcomes = Outcomes::new();
        drop((store.committer()).run(&mut batch, &mut Unmoved, &mut outcomes));
    }

    fn look(store: &Store, earlier: &IdentitySnapshot) -> IdentitySnapshot {
        let view = store.view(DatabaseId::IDENTITIES).expect("it is there");
        IdentitySnapshot::read_after(earlier, &ReadView::memory(&view))
    }

    fn rights(texts: &[String]) -> Rights {
        let grants = texts.iter().map(|text| text.parse().expect("a right"));
        Rights::new(grants.collect::<Vec<Grant>>())
    }

    fn put_identity(store: &Store, number: u8, texts: &[String]) {
        let name = format!("token-{number}");
        let issued = IssuedToken {
            hash: TokenHash::from_bytes([number; 32]),
            expires_ms: NEVER_MS,
        };
        let identity = Identity::new(&name, rights(texts), NEVER_MS, vec![issued]);
        let record = IdentityRecord {
            identity: Arc::new(identity.expect("a sound identity")),
            created_ms: 1,
        };
        write(store, name.as_bytes(), Some(&record.encode()));
    }

    fn put_role(store: &Store, number: u8, texts: &[String]) {
        let role = RoleRecord {
            name: format!("role-{number}").into(),
            rights: rights(texts),
            created_ms: 1,
        };
        write(store, &RoleRecord::key(&role.name), Some(&role.encode()));
    }

    #[test]
    fn a_look_decodes_what_has_changed_since_the_one_before_and_nothing_else() {
        let shared = shared();
        let store = &shared.store;
        let text = str::to_owned;
        put_role(store, 0, &[text("read:a")]);
        for number in 0..20 {
            let granted = if number < 10 { "role:role-0" } else { "read:b" };
            put_identity(store, number, &[text(granted)]);
        }
        let first = look(store, &IdentitySnapshot::default());
        assert_eq!(first.decoded, 21);
        let second = look(store, &first);
        assert_eq!(second.decoded, 0);
        put_identity(store, 15, &[text("read:c")]);
        let third = look(store, &second);
        assert_eq!(third.decoded, 1);
        for round in 0..2 {
            put_role(store, 0, &[format!("write:{round}")]);
            let before = look(store, &third);
            assert_eq!(before.decoded, 1, "the role alone");
            let shared = (third.stored().records.iter().zip(&before.stored().records))
                .filter(|(one, two)| Arc::ptr_eq(&one.identity, &two.identity));
            assert_eq!(shared.count(), 10, "those without the role");
        }
    }

    /// Whatever was changed between two looks, the second one finds what a first look would find.
    #[test]
    fn a_look_after_another_finds_the_same_as_a_first_look() {
        let mut random = Random::new(20_261_127);
        println!("{random:?}");
        let shared = shared();
        let store = &shared.store;
        let mut last = IdentitySnapshot::default();
        for round in 0..400 {
            for _ in 0..=random.below(3) {
                change(store, &mut random);
            }
            let found = look(store, &last);
            let first = look(store, &IdentitySnapshot::default());
            let (found_stored, first_stored) = (found.stored(), first.stored());
            assert_eq!(found_stored.records, first_stored.records, "round {round}");
            assert_eq!(found_stored.roles, first_stored.roles, "round {round}");
            assert_eq!(found_stored.unreadable, first_stored.unreadable);
            assert!(found.decoded <= first.decoded);
            // A look may also be later than one that is finished after it.
            if !random.once_in(4) {
                last = found;
            }
        }
    }

    fn change(store: &Store, random: &mut Random) {
        let number = random.below(6) as u8;
        let texts: Vec<String> = (0..random.below(3))
            .map(|_| match random.below(2) {
                0 => format!("role:role-{}", random.below(6)),
                _ => format!("read:d{}", random.below(3)),
            })
            .collect();
        let plain = [format!("write:d{}", random.below(3))];
        match random.below(6) {
            0 => write(store, format!("token-{number}").as_bytes(), None),
            1 => write(store, &RoleRecord::key(&format!("role-{number}")), None),
            2 => write(
                store,
                format!("token-{number}").as_bytes(),
                Some(b"of no sense"),
            ),
            3 | 4 => put_identity(store, number, &texts),
            _ => put_role(store, number, &plain),
        }
    }
}
