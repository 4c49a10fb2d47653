//! What a server is started with, resolved once and shared by its loops.

use std::sync::Arc;

use service::PeerKind;
use store::snapshot::SnapshotReport;

/// Said about things worth a line in the log. The binary decides how it looks.
pub trait Log: Send + Sync {
    /// A connection was closed because its first bytes were not for this port.
    fn refused_greeting(&self, what: &'static str, peer: PeerKind);

    /// A connection was ended because the peer broke the protocol or a limit; once for each connection. There are
    /// only so many reasons.
    fn connection_error(&self, why: &'static str, peer: PeerKind);

    /// Something happened to the storage that an operator should look at.
    fn storage(&self, what: &str);

    /// A snapshot was made, as happens now and then.
    fn snapshot(&self, report: &SnapshotReport);
}

/// Says nothing.
pub struct Silent;

impl Log for Silent {
    fn refused_greeting(&self, _what: &'static str, _peer: PeerKind) {}
    fn connection_error(&self, _why: &'static str, _peer: PeerKind) {}
    fn storage(&self, _what: &str) {}
    fn snapshot(&self, _report: &SnapshotReport) {}
}

/// What all loops of a server share, and nobody changes.
pub(crate) struct Settings {
    pub http2: wire::Config,
    /// What `GET /` answers.
    pub about: String,
    pub drain_ms: u64,
    pub log: Arc<dyn Log>,
    /// Whether it is counted how long calls take.
    pub time_calls: bool,
}
