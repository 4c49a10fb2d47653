//! Keys of the ordered index.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;

/// Keys up to this length are stored in place; the whole then takes 24 bytes.
const INLINE_BYTES: usize = 22;

/// An owned key. Compares as its bytes do.
#[derive(Clone)]
pub(crate) struct EntryKey(Form);

#[derive(Clone)]
enum Form {
    /// Padded with zeros.
    Inline(u8, [u8; INLINE_BYTES]),
    Boxed(Box<[u8]>),
}

impl EntryKey {
    pub(crate) fn new(bytes: &[u8]) -> EntryKey {
        if bytes.len() > INLINE_BYTES {
            return EntryKey(Form::Boxed(bytes.into()));
        }
        let mut padded = [0; INLINE_BYTES];
        padded[..bytes.len()].copy_from_slice(bytes);
        EntryKey(Form::Inline(bytes.len() as u8, padded))
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Inline(len, padded) => &padded[..usize::from(*len)],
            Form::Boxed(bytes) => bytes,
        }
    }

    /// Bytes of memory beside the 24 in place.
    pub(crate) fn heap_bytes(key_len: usize) -> usize {
        if key_len > INLINE_BYTES {
            super::allocation_bytes(key_len)
        } else {
            0
        }
    }
}

impl Borrow<[u8]> for EntryKey {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

impl Ord for EntryKey {
    #[inline]
    fn cmp(&self, other: &EntryKey) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl PartialOrd for EntryKey {
    #[inline]
    fn partial_cmp(&self, other: &EntryKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for EntryKey {
    fn eq(&self, other: &EntryKey) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for EntryKey {}

impl fmt::Debug for EntryKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{}\"", self.bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_compare_as_their_bytes() {
        let long = [b'k'; 40];
        let samples: [&[u8]; 9] = [
            b"",
            b"\0",
            b"\0\0",
            b"a",
            b"a\0",
            b"b",
            &long[..22],
            &long[..23],
            &long,
        ];
        for one in samples {
            assert_eq!(EntryKey::new(one).bytes(), one);
            for two in samples {
                assert_eq!(
                    EntryKey::new(one).cmp(&EntryKey::new(two)),
                    one.cmp(two),
                    "{one:?} {two:?}"
                );
            }
        }
    }

    #[test]
    fn a_key_takes_24_bytes() {
        assert_eq!(size_of::<EntryKey>(), 24);
    }
}
