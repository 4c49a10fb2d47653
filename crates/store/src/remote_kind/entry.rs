//! Entries as an engine returns them, and what a store knows of a database there.

use bytes::Bytes;

use super::shape::RemoteShape;

/// What an engine has under a key. It may have expired: whoever looks at it compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteEntry {
    /// The value; empty where only keys were asked for.
    pub value: Bytes,
    /// The version that the write gave it. Never 0.
    pub version: u64,
    /// Milliseconds since 1970 from which on it counts as absent; 0: never.
    pub expires_ms: u64,
}

/// What a store knows of a database on an engine elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteIndex {
    pub(crate) shape: RemoteShape,
    /// How many entries it has, by estimate.
    pub(crate) entries: Option<u64>,
    /// Bytes that it takes there, by estimate.
    pub(crate) disk_bytes: Option<u64>,
}
