//! How an answer counts.

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it should.
    Good,
    /// It did: there was no such key.
    Miss,
    /// It did not take effect.
    NoEffect,
    /// It brought another value than it should.
    Wrong,
    /// It is no answer to this request.
    Unreadable,
}
