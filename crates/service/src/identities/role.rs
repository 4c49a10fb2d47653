//! A role: a named set of grants, and how it stands in the store beside the identities.

use crate::limits::{GRANTS_MAX, ROLES_MAX};
use crate::rights::{Grant, Rights, is_identity_name};

use super::record_reader::{RecordReader, push_text};

/// What the key of a role begins with. No name of an identity has a colon.
const KEY_PREFIX: &[u8] = b"role:";

/// The first byte of a value.
const FORMAT: u8 = 1;

/// A role as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleRecord {
    /// Its name.
    pub(crate) name: Box<str>,
    /// What it grants: no roles.
    pub(crate) rights: Rights,
    /// When it was made, in milliseconds since 1970.
    pub(crate) created_ms: u64,
}

impl RoleRecord {
    /// Returns the key of the entry of a role.
    pub(crate) fn key(name: &str) -> Vec<u8> {
        [KEY_PREFIX, name.as_bytes()].concat()
    }

    /// Returns whether the entry of a key is that of a role.
    pub(crate) fn is_key(key: &[u8]) -> bool {
        key.starts_with(KEY_PREFIX)
    }

    /// Returns the name of the role in the key of its entry.
    pub(super) fn name_in(key: &[u8]) -> Option<&[u8]> {
        key.strip_prefix(KEY_PREFIX)
    }

    /// Returns the value of its entry.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = vec![FORMAT];
        value.extend(self.created_ms.to_le_bytes());
        let grants = self.rights.grants();
        value.push(grants.len() as u8);
        for grant in grants {
            push_text(&mut value, &grant.to_string());
        }
        value
    }

    /// Reads an entry; `None`: it makes no sense.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<RoleRecord> {
        let name = std::str::from_utf8(RoleRecord::name_in(key)?).ok()?;
        let mut reader = RecordReader::new(value);
        if !is_identity_name(name) || reader.byte()? != FORMAT {
            return None;
        }
        let created_ms = reader.number()?;
        let grants = reader.grants()?;
        let is_plain = |grant: &Grant| !matches!(grant, Grant::Role(_));
        (reader.is_at_end() && grants.iter().all(is_plain)).then(|| RoleRecord {
            name: name.into(),
            rights: Rights::new(grants),
            created_ms,
        })
    }
}

const _: () = assert!(GRANTS_MAX <= u8::MAX as usize && ROLES_MAX > 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_read_as_it_was_written_and_nothing_else_is_one() {
        let grants = ["read:orders", "write:default/images/", "service:kvstore"];
        let grants: Vec<Grant> = grants.map(|text| text.parse().expect("a right")).into();
        let role = RoleRecord {
            name: "reader".into(),
            rights: Rights::new(grants),
            created_ms: 5,
        };
        let (key, value) = (RoleRecord::key("reader"), role.encode());
        assert!(RoleRecord::is_key(&key) && !RoleRecord::is_key(b"role"));
        assert_eq!(RoleRecord::decode(&key, &value), Some(role.clone()));
        for at in 0..value.len() {
            assert_eq!(RoleRecord::decode(&key, &value[..at]), None, "cut at {at}");
            for bit in 0..8 {
                let mut changed = value.clone();
                changed[at] ^= 1 << bit;
                let read = RoleRecord::decode(&key, &changed);
                assert_ne!(read.as_ref(), Some(&role), "bit {bit} at {at}");
            }
        }
        for key in [&b"reader"[..], b"role:", b"role:a b", b"role:\xff"] {
            assert_eq!(RoleRecord::decode(key, &value), None);
        }
        let nested = RoleRecord {
            rights: Rights::new(vec!["role:other".parse::<Grant>().expect("a right")]),
            ..role
        };
        assert_eq!(RoleRecord::decode(&key, &nested.encode()), None);
    }
}
