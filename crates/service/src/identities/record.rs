//! How identities stand in the store: an entry for each in the hidden index
//! [`DatabaseId::IDENTITIES`], under its name.

use std::sync::Arc;

use store::{Condition, Expiry, Operation};
#[cfg(doc)]
use {
    crate::identities::{Identities, TokenKey},
    store::DatabaseId,
};

use super::binding::Binding;
use super::identity::Identity;
use super::record_reader::{RecordReader, push_text};
use super::revoked::RevokedTokens;
use super::role::RoleRecord;
#[cfg(doc)]
use crate::limits::{IDENTITIES_MAX, ROLES_MAX};
use crate::rights::Rights;

/// The key of the entry that each change of an identity writes too, so that of two at the same time
/// one finds another version than it has seen. Its value tells under which key tokens are hashed
/// ([`TokenKey::check_value`]). No identity has this name.
pub(crate) const CHANGES_KEY: &[u8] = b"";

/// The write of an entry of identities, or of [`CHANGES_KEY`].
pub(crate) fn put_entry<'a>(
    key: &'a [u8],
    value: &'a [u8],
    condition: Condition<'a>,
) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition,
        expiry: Expiry::None,
        want_previous: false,
    }
}

/// The first byte of a value: which form the rest has. This one has tokens.
const FORMAT_TOKENS: u8 = 1;

/// The same, with a binding in the place of the tokens. Versions that do not know it let nobody in.
const FORMAT_BOUND: u8 = 2;

/// An identity as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRecord {
    /// Who it is. Looks at the store share it as long as its entry is the same.
    pub identity: Arc<Identity>,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
}

impl IdentityRecord {
    /// Returns the value of its entry.
    pub fn encode(&self) -> Vec<u8> {
        let identity = &self.identity;
        let format = match identity.binding() {
            None => FORMAT_TOKENS,
            Some(_) => FORMAT_BOUND,
        };
        let mut value = vec![format];
        value.extend(self.created_ms.to_le_bytes());
        value.extend(identity.expires_ms().to_le_bytes());
        match identity.binding() {
            Some(binding) => push_text(&mut value, &binding.to_string()),
            None => value.push(identity.tokens().len() as u8),
        }
        for token in identity.tokens() {
            value.extend(token.hash.as_bytes());
            value.extend(token.expires_ms.to_le_bytes());
        }
        let grants = identity.granted().grants();
        value.push(grants.len() as u8);
        for grant in grants {
            push_text(&mut value, &grant.to_string());
        }
        value
    }

    /// Reads the entry of a name; `None`: it makes no sense.
    pub fn decode(name: &[u8], value: &[u8]) -> Option<IdentityRecord> {
        let mut reader = RecordReader::new(value);
        let format = reader.byte()?;
        let (created_ms, expires_ms) = (reader.number()?, reader.number()?);
        let proof = match format {
            FORMAT_TOKENS => Err(reader.tokens()?),
            FORMAT_BOUND => {
                let text = reader.text()?;
                let binding: Option<Binding> = text.parse().ok();
                // There is one way to write each.
                Ok(binding.filter(|binding| binding.to_string() == text)?)
            }
            _ => return None,
        };
        let grants = reader.grants()?;
        let name = std::str::from_utf8(name).ok()?;
        let rights = Rights::new(grants);
        let identity = match proof {
            Ok(binding) => Identity::bound(name, rights, expires_ms, binding),
            Err(tokens) => Identity::new(name, rights, expires_ms, tokens),
        };
        let identity = Arc::new(identity.ok()?);
        reader.is_at_end().then_some(IdentityRecord {
            identity,
            created_ms,
        })
    }
}

/// All identities that a store has.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredIdentities {
    /// In the order of their names; at most [`IDENTITIES_MAX`].
    pub(crate) records: Vec<IdentityRecord>,
    /// In the order of their names; at most [`ROLES_MAX`].
    pub(crate) roles: Vec<RoleRecord>,
    /// The version of the entry that each change writes; 0: there was none.
    pub(crate) changes_version: u64,
    /// The check value of the key under which their tokens are hashed; empty: it is not known.
    pub(crate) key_check: Box<[u8]>,
    /// Tokens of the first administrator that no start makes anew.
    pub(crate) revoked: RevokedTokens,
    /// Entries that make no sense. Nobody is let in for them.
    pub(crate) unreadable: usize,
}

impl StoredIdentities {
    /// Has a role in the place of the one with its name, or beside the others, and gives those what
    /// it grants who have it.
    pub(crate) fn set_role(&mut self, role: RoleRecord) {
        let name = role.name.clone();
        match self.role_place(&name) {
            Ok(at) => self.roles[at] = role,
            Err(at) => self.roles.insert(at, role),
        }
        let mut records = std::mem::take(&mut self.records);
        let has_it = |identity: &Identity| identity.granted().roles().any(|one| one == &*name);
        let identities = records.iter_mut().map(|record| &mut record.identity);
        for identity in identities.filter(|identity| has_it(identity)) {
            self.apply_roles_to(Arc::make_mut(identity));
        }
        self.records = records;
    }

    /// Gives an identity what its roles grant.
    pub(crate) fn apply_roles_to(&self, identity: &mut Identity) {
        identity.apply_roles(|name| self.find_role(name).map(|role| &role.rights));
    }

    /// Returns how many bytes the rights of all identities have in text, those of roles wherever
    /// they are used.
    pub(crate) fn text_bytes(&self) -> usize {
        let bytes = |record: &IdentityRecord| record.identity.text_bytes();
        self.records.iter().map(bytes).sum()
    }

    /// Returns the role of a name.
    pub(crate) fn find_role(&self, name: &str) -> Option<&RoleRecord> {
        let at = self.role_place(name).ok()?;
        self.roles.get(at)
    }

    /// Returns where the role of a name is, or would be.
    pub(super) fn role_place(&self, name: &str) -> Result<usize, usize> {
        self.roles.binary_search_by(|role| (*role.name).cmp(name))
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
    use crate::identities::{IssuedToken, NEVER_MS, TokenHash};
    use crate::limits::GRANTS_MAX;
    use crate::rights::Grant;

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
            identity: Arc::new(identity.expect("a sound identity")),
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

    fn bound(binding: &str) -> IdentityRecord {
        let grants: Vec<Grant> = vec!["read:orders".parse().expect("a right")];
        let binding = binding.parse().expect("a binding");
        let identity = Identity::bound("ci.main", Rights::new(grants), 5_000, binding);
        IdentityRecord {
            identity: Arc::new(identity.expect("a sound identity")),
            created_ms: 77,
        }
    }

    #[test]
    fn a_bound_record_is_read_as_it_was_written() {
        let hex = format!("sha256:{}", "0f".repeat(32));
        for binding in ["san:dns:worker.example", "uid:1000", &hex] {
            let record = bound(binding);
            let value = record.encode();
            let read = IdentityRecord::decode(b"ci.main", &value).expect("it is read");
            assert_eq!(read, record);
            let shown = read.identity.binding().map(ToString::to_string);
            assert_eq!(shown.as_deref(), Some(binding));
            assert!(read.identity.tokens().is_empty() && !read.identity.is_anonymous());
            for at in 0..value.len() {
                let cut = IdentityRecord::decode(b"ci.main", &value[..at]);
                assert_eq!(cut, None, "cut at {at}");
            }
        }
    }

    /// Whatever stands there: it is read or not, and never with more rights than were written.
    #[test]
    fn a_changed_record_is_another_or_none() {
        for whole in [
            record(2, &["read:orders", "write:default/images/"]),
            bound("san:dns:worker.example"),
            bound("san:email:a@worker.example"),
        ] {
            change_each_bit(&whole);
        }
    }

    fn change_each_bit(whole: &IdentityRecord) {
        let value = whole.encode();
        for at in 0..value.len() {
            for bit in 0..8 {
                let mut changed = value.clone();
                changed[at] ^= 1 << bit;
                let read = IdentityRecord::decode(b"ci.main", &changed);
                assert_ne!(read.as_ref(), Some(whole), "bit {bit} at {at}");
                if let Some(read) = read {
                    assert_eq!(read.encode(), changed, "bit {bit} at {at}");
                }
            }
        }
    }
}
