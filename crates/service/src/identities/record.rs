//! How identities stand in the store: an entry for each in the hidden index
//! [`DatabaseId::IDENTITIES`], under its name.

use std::ops::ControlFlow;

use store::{Direction, Range, ReadView};
#[cfg(doc)]
use {crate::identities::Identities, store::DatabaseId};

use super::identity::{Identity, IssuedToken};
use super::token::TokenHash;
use crate::limits::{GRANTS_MAX, IDENTITIES_MAX};
use crate::rights::{Grant, Rights};

/// The key of the entry that each change of an identity writes too, so that of two at the same time
/// one finds another version than it has seen. No identity has this name.
pub(crate) const CHANGES_KEY: &[u8] = b"";

/// The first byte of a value: which form the rest has.
const FORMAT: u8 = 1;

/// An identity as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRecord {
    /// Who it is.
    pub identity: Identity,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
}

impl IdentityRecord {
    /// Returns the value of its entry.
    pub fn encode(&self) -> Vec<u8> {
        let identity = &self.identity;
        let mut value = vec![FORMAT];
        value.extend(self.created_ms.to_le_bytes());
        value.extend(identity.expires_ms().to_le_bytes());
        value.push(identity.tokens().len() as u8);
        for token in identity.tokens() {
            value.extend(token.hash.as_bytes());
            value.extend(token.expires_ms.to_le_bytes());
        }
        let grants = identity.rights().grants();
        value.push(grants.len() as u8);
        for grant in grants {
            let text = grant.to_string();
            value.extend((text.len() as u16).to_le_bytes());
            value.extend(text.as_bytes());
        }
        value
    }

    /// Reads the entry of a name; `None`: it makes no sense.
    pub fn decode(name: &[u8], value: &[u8]) -> Option<IdentityRecord> {
        let mut reader = RecordReader(value);
        if reader.byte()? != FORMAT {
            return None;
        }
        let (created_ms, expires_ms) = (reader.number()?, reader.number()?);
        let mut tokens = Vec::new();
        for _ in 0..reader.byte()? {
            let hash = TokenHash::from_bytes(reader.array()?);
            let expires_ms = reader.number()?;
            tokens.push(IssuedToken { hash, expires_ms });
        }
        let count = usize::from(reader.byte()?);
        if count > GRANTS_MAX {
            return None;
        }
        let mut grants = Vec::with_capacity(count);
        for _ in 0..count {
            let text = reader.text()?;
            grants.push(text.parse::<Grant>().ok()?);
        }
        let name = std::str::from_utf8(name).ok()?;
        let identity = Identity::new(name, Rights::new(grants), expires_ms, tokens).ok()?;
        reader.0.is_empty().then_some(IdentityRecord {
            identity,
            created_ms,
        })
    }
}

/// Reads values, as far as they are there.
struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let count = u16::from_le_bytes(self.array()?);
        std::str::from_utf8(self.take(usize::from(count))?).ok()
    }
}

/// All identities that a store has.
#[derive(Debug, Default)]
pub(crate) struct StoredIdentities {
    /// In the order of their names; at most [`IDENTITIES_MAX`].
    pub(crate) records: Vec<IdentityRecord>,
    /// The version of the entry that each change writes; 0: there was none.
    pub(crate) changes_version: u64,
    /// Entries that make no sense. Nobody is let in for them.
    pub(crate) unreadable: usize,
}

impl StoredIdentities {
    /// Reads the index.
    pub(crate) fn read(view: &ReadView<'_>) -> StoredIdentities {
        let mut stored = StoredIdentities::default();
        // They are kept in memory, so that nothing need be fetched, and never expire as entries.
        let _ = view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
            if entry.key == CHANGES_KEY {
                stored.changes_version = entry.version;
                return ControlFlow::Continue(());
            }
            match IdentityRecord::decode(entry.key, entry.value.bytes()) {
                Some(record) if stored.records.len() < IDENTITIES_MAX => {
                    stored.records.push(record)
                }
                _ => stored.unreadable += 1,
            }
            ControlFlow::Continue(())
        });
        stored
    }

    /// Returns that of a name.
    pub(crate) fn find(&self, name: &str) -> Option<&IdentityRecord> {
        let mut records = self.records.iter();
        records.find(|record| record.identity.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identities::NEVER_MS;

    fn record(tokens: u8, rights: &[&str]) -> IdentityRecord {
        let grants = rights.iter().map(|text| text.parse().expect("a right"));
        let rights = Rights::new(grants.collect::<Vec<Grant>>());
        let token = |number: u8| IssuedToken {
            hash: TokenHash::from_bytes([number; 32]),
            expires_ms: match number {
                0 => NEVER_MS,
                number => 1000 + u64::from(number),
            },
        };
        let tokens = (0..tokens).map(token).collect();
        let identity = Identity::new("ci.main", rights, 5_000, tokens);
        IdentityRecord {
            identity: identity.expect("a sound identity"),
            created_ms: 77,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let many: Vec<String> = (0..GRANTS_MAX).map(|at| format!("read:d{at}/x")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for rights in [
            &["admin"][..],
            &["read:orders", "write:default/images/", "service:kvstore"],
            &many,
        ] {
            for tokens in 1..=2 {
                let record = record(tokens, rights);
                let value = record.encode();
                assert_eq!(
                    IdentityRecord::decode(b"ci.main", &value),
                    Some(record.clone())
                );
                for at in 0..value.len() {
                    let cut = IdentityRecord::decode(b"ci.main", &value[..at]);
                    assert_eq!(cut, None, "cut at {at}");
                }
                let longer = [&value[..], &[0]].concat();
                assert_eq!(IdentityRecord::decode(b"ci.main", &longer), None);
                for name in [&b""[..], b"a b", b"\xff"] {
                    assert_eq!(IdentityRecord::decode(name, &value), None, "{name:?}");
                }
            }
        }
    }

    /// Whatever stands there: it is read or not, and never with more rights than were written.
    #[test]
    fn a_changed_record_is_another_or_none() {
        let whole = record(2, &["read:orders", "write:default/images/"]);
        let value = whole.encode();
        for at in 0..value.len() {
            for bit in 0..8 {
                let mut changed = value.clone();
                changed[at] ^= 1 << bit;
                let read = IdentityRecord::decode(b"ci.main", &changed);
                assert_ne!(read.as_ref(), Some(&whole), "bit {bit} at {at}");
                if let Some(read) = read {
                    assert_eq!(read.encode(), changed, "bit {bit} at {at}");
                }
            }
        }
    }
}
