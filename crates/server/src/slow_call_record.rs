//! What a line of the slow-call log says, and what bounds the lines.

use std::sync::{Mutex, PoisonError};

use net::PeerAddress;
use service::{Code, Method};
use wire::grpc::TraceContext;

use crate::audit_record::AuditCaller;
use crate::limits;
use crate::pace::{PaceEntry, Rate};

/// What of the keys of slow calls comes into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowCallKeys {
    /// Nothing.
    Off,
    /// How long a key is, since keys may be personal.
    Length,
    /// The length and the first bytes.
    Prefix,
}

/// Which calls come into the slow-call log, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowCallRule {
    /// From how long on, in nanoseconds.
    pub threshold_ns: u64,
    /// What of their keys.
    pub keys: SlowCallKeys,
}

/// What a call has waited for, in nanoseconds each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes {
    /// From the last byte of its request to its first step.
    pub queue_ns: u64,
    /// For reads of databases on disk.
    pub read_ns: u64,
    /// For the committer, the write of the log included, and what it reads before it decides.
    pub commit_ns: u64,
    /// For the sync of its commit.
    pub sync_ns: u64,
    /// For its peer to take the answer.
    pub send_ns: u64,
}

/// A line of the slow-call log.
#[derive(Debug)]
pub struct SlowCall<'a> {
    /// The method.
    pub method: Method,
    /// The name of its database with escapes, empty for the default one; `None`: it names none.
    pub database: Option<&'a str>,
    /// Bytes of its key; `None`: it has none, or that is not wanted.
    pub key_bytes: Option<usize>,
    /// The first bytes of the key with escapes, if they are wanted.
    pub key_prefix: Option<&'a str>,
    /// Whose call it was.
    pub caller: AuditCaller<'a>,
    /// From where it came.
    pub peer: &'a PeerAddress,
    /// How it ended.
    pub code: Code,
    /// The trace, and the span of the call, or that of its caller if the server makes none; `None`:
    /// it is not traced.
    pub traced: Option<TraceContext>,
    /// From the last byte of its request to when its answer was handed to the socket.
    pub took_ns: u64,
    /// What of that it waited for.
    pub phases: PhaseTimes,
    /// Lines that were left out since the last one.
    pub suppressed: u64,
}

/// The rule, and what bounds the lines of all loops together.
#[derive(Debug)]
pub(crate) struct SlowCallLog {
    pub rule: SlowCallRule,
    pace: Mutex<PaceEntry>,
}

impl SlowCallLog {
    const RATE: Rate = Rate {
        burst: limits::SLOW_CALLS_BURST,
        interval_ms: limits::SLOW_CALL_INTERVAL_MS,
    };

    pub fn new(rule: SlowCallRule) -> SlowCallLog {
        SlowCallLog {
            rule,
            pace: Mutex::default(),
        }
    }

    /// Returns how many lines were left out, if one more may be logged now.
    pub fn allow(&self, now_ns: u64) -> Option<u64> {
        let mut entry = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        if !entry.pace.may(SlowCallLog::RATE, now_ns) {
            entry.missed = entry.missed.saturating_add(1);
            return None;
        }
        entry.pace.push(SlowCallLog::RATE, now_ns);
        Some(std::mem::take(&mut entry.missed))
    }
}
