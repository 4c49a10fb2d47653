//! What the hash tables hold: an entry, as compactly as safe code allows.

use crate::limits::{DEFRAGMENT_VALUE_BYTES, SHARED_VALUE_BYTES, WARMED_BYTES};
use crate::value::{Entry, Value};
use bytes::Bytes;

/// Version, expiry, length of the key; then the key, then the value.
const HEADER_BYTES: usize = 18;

/// A line of memory, on most processors.
const LINE_BYTES: usize = 64;

/// One entry: 24 bytes in the table. The hash stays beside it so that a table can grow without
/// touching the entries, and a look-up follows a pointer only where the whole hash agrees.
#[derive(Debug)]
pub(super) struct IndexSlot {
    pub(super) hash: u64,
    body: EntryBody,
}

#[derive(Debug)]
enum EntryBody {
    /// Header, key and value in one piece: one allocation, and one place in memory to go to.
    Small(Box<[u8]>),
    /// The value is counted by itself.
    Large(Box<Large>),
}

#[derive(Debug)]
struct Large {
    key: Box<[u8]>,
    value: Bytes,
    version: u64,
    expires_ms: u64,
}

impl IndexSlot {
    pub(super) fn new(hash: u64, entry: &Entry<'_>) -> IndexSlot {
        IndexSlot {
            hash,
            body: EntryBody::new(entry),
        }
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        match &self.body {
            EntryBody::Small(bytes) => {
                let key_len = usize::from(u16::from_le_bytes(field(bytes, 16)));
                &bytes[HEADER_BYTES..HEADER_BYTES + key_len]
            }
            EntryBody::Large(large) => &large.key,
        }
    }

    #[inline]
    pub(super) fn entry(&self) -> Entry<'_> {
        match &self.body {
            EntryBody::Small(bytes) => {
                let key_len = usize::from(u16::from_le_bytes(field(bytes, 16)));
                let (key, value) = bytes[HEADER_BYTES..].split_at(key_len);
                Entry {
                    key,
                    value: Value::Inline(value),
                    version: u64::from_le_bytes(field(bytes, 0)),
                    expires_ms: u64::from_le_bytes(field(bytes, 8)),
                }
            }
            EntryBody::Large(large) => Entry {
                key: &large.key,
                value: Value::Shared(&large.value),
                version: large.version,
                expires_ms: large.expires_ms,
            },
        }
    }

    /// Reads a byte of each line of memory that the slot points to, or of the first ones.
    #[inline]
    pub(super) fn touch(&self) -> u8 {
        match &self.body {
            EntryBody::Small(bytes) => {
                let first = &bytes[..bytes.len().min(WARMED_BYTES)];
                let lines = first.iter().step_by(LINE_BYTES);
                lines.fold(bytes[first.len() - 1], |all, byte| all ^ byte)
            }
            EntryBody::Large(large) => large.version as u8,
        }
    }

    /// Puts another entry of the same key in place. A large old value is returned: to free it takes
    /// time.
    pub(super) fn replace(&mut self, entry: &Entry<'_>) -> Option<Bytes> {
        debug_assert_eq!(self.key(), entry.key);
        if let EntryBody::Small(bytes) = &mut self.body
            && bytes.len() == HEADER_BYTES + entry.key.len() + entry.value.len()
            && entry.value.len() < SHARED_VALUE_BYTES
        {
            bytes[0..8].copy_from_slice(&entry.version.to_le_bytes());
            bytes[8..16].copy_from_slice(&entry.expires_ms.to_le_bytes());
            bytes[HEADER_BYTES + entry.key.len()..].copy_from_slice(&entry.value);
            return None;
        }
        std::mem::replace(&mut self.body, EntryBody::new(entry)).into_large_value()
    }

    /// Has the allocator find new places for what the slot points to; returns how many bytes were
    /// copied. A value stays if it is so large that it has a page of its own, or if a reader holds
    /// it, who would keep the old place as well.
    #[expect(clippy::replace_box, reason = "to allocate anew is what it is for")]
    pub(super) fn move_content(&mut self) -> usize {
        match &mut self.body {
            EntryBody::Small(bytes) => {
                *bytes = bytes.clone();
                bytes.len()
            }
            EntryBody::Large(large) => {
                let is_moved =
                    large.value.len() <= DEFRAGMENT_VALUE_BYTES && large.value.is_unique();
                let value = match is_moved {
                    true => Bytes::copy_from_slice(&large.value),
                    false => large.value.clone(),
                };
                *large = Box::new(Large {
                    key: large.key.clone(),
                    value,
                    version: large.version,
                    expires_ms: large.expires_ms,
                });
                large.key.len() + if is_moved { large.value.len() } else { 0 }
            }
        }
    }

    /// The value, if it is large.
    pub(super) fn into_large_value(self) -> Option<Bytes> {
        self.body.into_large_value()
    }
}

impl EntryBody {
    fn new(entry: &Entry<'_>) -> EntryBody {
        let &Entry {
            key,
            value,
            version,
            expires_ms,
        } = entry;
        if value.len() >= SHARED_VALUE_BYTES {
            return EntryBody::Large(Box::new(Large {
                key: key.into(),
                value: value.to_shared(),
                version,
                expires_ms,
            }));
        }
        let mut bytes = Vec::with_capacity(HEADER_BYTES + key.len() + value.len());
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&expires_ms.to_le_bytes());
        // Keys have at most 65 535 bytes: checked where they came in.
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&value);
        EntryBody::Small(bytes.into_boxed_slice())
    }

    fn into_large_value(self) -> Option<Bytes> {
        match self {
            EntryBody::Small(_) => None,
            EntryBody::Large(large) => Some(large.value),
        }
    }
}

#[inline]
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("the slice has just this length")
}

/// Bytes of memory that an entry takes outside the tables and the ordered index.
pub(super) fn heap_bytes(key_len: usize, value_len: usize) -> usize {
    if value_len >= SHARED_VALUE_BYTES {
        // Bytes that are shared count their holders in an allocation of three words.
        super::allocation_bytes(size_of::<Large>())
            + super::allocation_bytes(3 * size_of::<usize>())
            + super::allocation_bytes(key_len)
            + super::allocation_bytes(value_len)
    } else {
        super::allocation_bytes(HEADER_BYTES + key_len + value_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_takes_24_bytes() {
        assert_eq!(size_of::<IndexSlot>(), 24);
    }

    #[test]
    fn entries_survive_all_changes_of_size() {
        let sizes = [
            0,
            1,
            100,
            SHARED_VALUE_BYTES - 1,
            SHARED_VALUE_BYTES,
            SHARED_VALUE_BYTES + 1,
            100,
            100,
        ];
        let value = vec![7; SHARED_VALUE_BYTES + 1];
        let entry = |size: usize, version| Entry {
            key: b"key",
            value: Value::Inline(&value[..size]),
            version,
            expires_ms: version * 3,
        };
        let mut slot = IndexSlot::new(9, &entry(5, 1));
        for (size, version) in sizes.into_iter().zip(2..) {
            let was_large = matches!(slot.body, EntryBody::Large(_));
            assert_eq!(slot.replace(&entry(size, version)).is_some(), was_large);
            assert_eq!(slot.entry(), entry(size, version));
            assert_eq!(slot.key(), b"key");
            assert_eq!(
                matches!(slot.entry().value, Value::Shared(_)),
                size >= SHARED_VALUE_BYTES
            );
        }
    }
}
