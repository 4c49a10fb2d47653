//! Entries as a reader sees them.

use std::ops::Deref;

use bytes::Bytes;
/// The bytes of a value: in place, or reference-counted from
/// [`SHARED_VALUE_BYTES`](crate::limits::SHARED_VALUE_BYTES) on.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Bytes to be copied by whoever wants to keep them.
    Inline(&'a [u8]),
    /// Bytes that can be kept by a clone of the reference.
    Shared(&'a Bytes),
}

impl<'a> Value<'a> {
    /// The bytes, for as long as the entry lives.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        match *self {
            Value::Inline(bytes) => bytes,
            Value::Shared(bytes) => bytes,
        }
    }

    /// The bytes to be kept: copied only if they are not shared yet.
    pub(crate) fn to_shared(self) -> Bytes {
        match self {
            Value::Inline(bytes) => Bytes::copy_from_slice(bytes),
            Value::Shared(bytes) => bytes.clone(),
        }
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Value<'_> {}

/// A key with all that is stored under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: Value<'a>,
    /// The sequence of the commit that last wrote this entry. Never 0.
    pub version: u64,
    /// Milliseconds since 1970 from which on the entry counts as absent; 0: never.
    pub expires_ms: u64,
}

impl Entry<'_> {
    /// Whether the entry's time has come.
    #[inline]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        is_expired(self.expires_ms, now_ms)
    }
}

/// Whether an expiry (0: none) has come. From that millisecond on the entry counts as absent.
#[inline]
pub(crate) fn is_expired(expires_ms: u64, now_ms: u64) -> bool {
    expires_ms != 0 && now_ms >= expires_ms
}
