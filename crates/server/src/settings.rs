//! What a server is started with, resolved once and shared by its loops.

use std::sync::Arc;

use bytes::Bytes;
use net::PeerAddress;
use service::{Code, Method};
use store::snapshot::SnapshotReport;

use crate::audit_record::AuditRecord;
use crate::slow_call_record::{SlowCall, SlowCallLog};
use crate::spans::Spans;
use crate::{ServerConfig, limits};

/// Said about things worth a line in the log. The binary decides how it looks.
pub trait Log: Send + Sync {
    /// A connection was closed because its first bytes were not for this port.
    fn refused_greeting(&self, what: &'static str, peer: &PeerAddress);

    /// A connection was ended because the peer broke the protocol or a limit; once for each
    /// connection. There are only so many reasons.
    fn connection_error(&self, why: &'static str, peer: &PeerAddress);

    /// A line of the audit trail. Texts of callers in it may have any characters:
    /// [`audit_text`](crate::audit_text) makes them what may stand in a log.
    fn audit(&self, _record: &AuditRecord<'_>) {}

    /// Something happened to the storage that an operator should look at.
    fn storage(&self, what: &str);

    /// Something that was wrong with the storage has ended.
    fn storage_recovered(&self, what: &str);

    /// A snapshot was made, as happens now and then.
    fn snapshot(&self, report: &SnapshotReport);

    /// The system has given no thread to do this, and why.
    fn no_thread(&self, what: &str, why: &std::io::Error);

    /// Returns how much is wanted of what follows. Asked often, so it must be cheap.
    fn detail(&self) -> Detail {
        Detail::Usual
    }

    /// A connection was opened, at [`Detail::Connections`].
    fn connection_opened(&self, _peer: &PeerAddress) {}

    /// A connection was closed, at [`Detail::Connections`].
    fn connection_closed(&self, _peer: &PeerAddress, _why: &str, _open_ns: u64) {}

    /// A call was refused or has failed: at [`Detail::Connections`], and always where the call
    /// itself has no other way to say so ([`Method::has_silent_callers`]).
    fn call_failed(&self, _call: &FailedCall<'_>) {}

    /// A call was slow, by the rule that the server was started with.
    fn slow_call(&self, _call: &SlowCall<'_>) {}

    /// A call has ended, however it did, at [`Detail::Calls`].
    fn call_ended(&self, _method: Method, _code: Code, _took_ns: u64, _peer: &PeerAddress) {}
}

/// A call that was refused or has failed.
#[derive(Clone, Copy, Debug)]
pub struct FailedCall<'a> {
    /// `None`: there is no such method.
    pub method: Option<Method>,
    /// What the caller asked for.
    pub path: &'a str,
    /// How it ended.
    pub code: Code,
    /// Why.
    pub message: &'a str,
    /// Who called.
    pub peer: &'a PeerAddress,
}

/// How much a log wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// What an operator must know.
    Usual,
    /// Connections too, and calls that fail.
    Connections,
    /// Each call.
    Calls,
}

/// Says nothing.
pub struct SilentLog;

impl Log for SilentLog {
    fn refused_greeting(&self, _what: &'static str, _peer: &PeerAddress) {}
    fn connection_error(&self, _why: &'static str, _peer: &PeerAddress) {}
    fn storage(&self, _what: &str) {}
    fn storage_recovered(&self, _what: &str) {}
    fn snapshot(&self, _report: &SnapshotReport) {}
    fn no_thread(&self, _what: &str, _why: &std::io::Error) {}
}

/// What all loops of a server share, and nobody changes.
pub(crate) struct LoopSettings {
    pub http2: wire::Config,
    /// What `GET /` answers.
    pub about: String,
    /// The same as the body of responses, which share it.
    pub about_body: Bytes,
    pub drain_ms: u64,
    pub log: Arc<dyn Log>,
    /// Whether it is counted how long calls take.
    pub time_calls: bool,
    /// Which calls come into the slow-call log; `None`: there is none.
    pub slow_calls: Option<SlowCallLog>,
    /// Which calls have spans; `None`: none.
    pub spans: Option<Spans>,
}

impl LoopSettings {
    /// Logs a call that is refused or fails, if that is wanted.
    #[cold]
    pub fn log_failure(&self, call: &FailedCall<'_>) {
        if self.log.detail() >= Detail::Connections
            || call.method.is_some_and(Method::has_silent_callers)
        {
            self.log.call_failed(call);
        }
    }
}

/// What a caller can do about a message beyond [`limits::request_bytes`].
const MESSAGE_TOO_LARGE_HINT: &str = "send a blob in chunks of at most 4 MiB, and a batch in \
    several; larger values need a server with --max-value";

/// What connections with HTTP/2 have.
pub(crate) fn http2(config: &ServerConfig) -> wire::Config {
    let mut http2 = wire::Config::server();
    http2.max_streams = config.max_streams;
    http2.stream_window = config.stream_window;
    http2.connection_window = config.connection_window;
    http2.max_message_bytes = limits::request_bytes(config.max_value_bytes);
    http2.too_large_hint = MESSAGE_TOO_LARGE_HINT;
    // A connection can always receive one largest request and be owed one largest answer.
    http2.max_gathered_bytes = http2.max_gathered_bytes.max(http2.max_message_bytes);
    http2.pushback_ms = limits::RETRY_PUSHBACK_MS;
    http2.max_unsent_bytes = http2.max_unsent_bytes.max(http2.max_message_bytes);
    http2
}
