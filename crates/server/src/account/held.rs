//! What the account is told of a connection.

/// What a connection holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldBytes {
    /// Without bodies that it shares with others.
    pub charged_bytes: usize,
    /// With them, and without what is only set aside.
    pub all_bytes: usize,
    /// What of that has yet to come from the peer: charged before it does.
    pub expected_bytes: usize,
    /// What waits to be sent, or is set aside for it.
    pub unsent_bytes: usize,
    /// What has waited and was sent, ever.
    pub sent_bytes: u64,
    /// A whole request of the peer waits for memory, and the peer has taken what it was sent, but
    /// for a little.
    pub waits_for_memory: bool,
}

#[cfg(test)]
impl HeldBytes {
    /// So much waits to be sent, and nothing else is held.
    pub fn unsent(bytes: usize) -> HeldBytes {
        HeldBytes {
            charged_bytes: bytes,
            all_bytes: bytes,
            unsent_bytes: bytes,
            ..HeldBytes::default()
        }
    }
}
