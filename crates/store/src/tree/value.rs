//! How values are stored: a byte that says what follows, the version, the expiry if there is one,
//! the value.
//!
//! The low four bits of the first byte are the number of bytes of the version (little-endian,
//! without leading zeros); the topmost bit says that eight bytes of expiry follow.

use std::fmt;

use lsm_tree::Slice;

use super::limits::DETACHED_BYTES;
use crate::value::{Entry, Value};

/// What is stored under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeValue<'a> {
    pub(super) version: u64,
    /// 0: none.
    pub(super) expires_ms: u64,
    pub(super) value: &'a [u8],
}

const EXPIRES: u8 = 0x80;

/// What is stored under a key, owned: the bytes are shared with the memtable or block that they are
/// in.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnedValue(Slice);

impl OwnedValue {
    /// `None`: this was not encoded here.
    pub(super) fn new(bytes: Slice) -> Option<OwnedValue> {
        TreeValue::decode(&bytes)?;
        Some(OwnedValue(bytes))
    }

    /// As an entry of its key.
    pub fn entry<'a>(&'a self, key: &'a [u8]) -> Entry<'a> {
        let stored = TreeValue::decode(&self.0).expect("it was looked at when it was made");
        Entry {
            key,
            value: Value::Inline(stored.value),
            version: stored.version,
            expires_ms: stored.expires_ms,
        }
    }

    /// The same value, to be kept for a while: a small one without the block or memtable that it is
    /// a part of, so that no more is kept than is counted.
    pub fn detached(self) -> OwnedValue {
        match self.0.len() {
            0..DETACHED_BYTES => OwnedValue(Slice::from(&self.0[..])),
            _ => self,
        }
    }

    /// Bytes that it takes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: there is at least a version.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for OwnedValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entry(&[]).fmt(formatter)
    }
}

impl<'a> TreeValue<'a> {
    /// Puts it into an empty buffer.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        let version = self.version.to_le_bytes();
        let version_len = 8 - self.version.leading_zeros() as usize / 8;
        let flags = if self.expires_ms == 0 { 0 } else { EXPIRES };
        out.reserve(1 + version_len + 8 + self.value.len());
        out.push(version_len as u8 | flags);
        out.extend_from_slice(&version[..version_len]);
        if self.expires_ms != 0 {
            out.extend_from_slice(&self.expires_ms.to_le_bytes());
        }
        out.extend_from_slice(self.value);
    }

    /// `None`: this was not encoded here.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<TreeValue<'a>> {
        let (&first, rest) = bytes.split_first()?;
        let version_len = usize::from(first & 0x0f);
        if first & !(EXPIRES | 0x0f) != 0 || version_len > 8 {
            return None;
        }
        let (encoded, rest) = rest.split_at_checked(version_len)?;
        let mut version = [0; 8];
        version[..version_len].copy_from_slice(encoded);
        let (expires_ms, value) = if first & EXPIRES == 0 {
            (0, rest)
        } else {
            let (expiry, rest) = rest.split_first_chunk::<8>()?;
            (u64::from_le_bytes(*expiry), rest)
        };
        Some(TreeValue {
            version: u64::from_le_bytes(version),
            expires_ms,
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of a small value is that value alone; a large one is shared, each time.
    #[test]
    fn small_values_are_kept_without_their_block() {
        let mut bytes = Vec::new();
        for (len, is_copied) in [
            (100, true),
            (DETACHED_BYTES - 3, true),
            (DETACHED_BYTES, false),
        ] {
            let value = vec![7; len];
            let stored = TreeValue {
                version: 1,
                expires_ms: 0,
                value: &value,
            };
            stored.encode(&mut bytes);
            let block = Slice::from(&bytes[..]);
            for _ in 0..2 {
                let shared = OwnedValue::new(block.clone()).expect("it was encoded here");
                assert_eq!(shared.0.as_ptr(), block.as_ptr());
                let kept = shared.clone().detached();
                assert_eq!(kept, shared);
                assert_eq!(kept.0.as_ptr() != block.as_ptr(), is_copied, "{len}");
            }
        }
    }

    #[test]
    fn what_is_stored_comes_back() {
        let mut bytes = Vec::new();
        for shift in 0..64 {
            for expires_ms in [0, 1, 1_800_000_000_000, u64::MAX] {
                for value in [&b""[..], b"value"] {
                    let stored = TreeValue {
                        version: 1 << shift,
                        expires_ms,
                        value,
                    };
                    stored.encode(&mut bytes);
                    assert_eq!(TreeValue::decode(&bytes), Some(stored));
                    let head = bytes.len() - value.len();
                    for cut in 0..head {
                        assert_eq!(TreeValue::decode(&bytes[..cut]), None);
                    }
                }
            }
        }
        assert_eq!(TreeValue::decode(&[0x09; 20]), None);
        assert_eq!(TreeValue::decode(&[0x11; 20]), None);
    }
}
