//! Entries as an engine returns them.

use bytes::Bytes;

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
