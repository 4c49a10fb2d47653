//! What drivers and server have to say, as lines of the log.

use std::sync::Arc;
use std::time::Duration;

use net::{Notice, Notices, PeerAddress};
use server::{AuditEvent, AuditRecord, Detail, FailedCall, SlowCall, audit_text};
use service::redact::without_tokens;
use service::{Code, Method};
use store::snapshot::SnapshotReport;
use tracing::level_filters::LevelFilter;

use crate::log::{AUDIT_TARGET, SLOW_CALL_TARGET};
use crate::notify::Notifier;

/// Brings it into the log, and what the service manager should know to it.
pub struct ServerLog(pub Arc<Notifier>);

impl Notices for ServerLog {
    fn notice(&self, notice: &Notice) {
        match notice {
            Notice::Stopping { .. } => {
                self.0.stopping("stopping: waiting for running calls");
                tracing::info!("{notice}");
            }
            Notice::AcceptWorks { .. } => tracing::info!("{notice}"),
            _ => tracing::warn!("{notice}"),
        }
    }
}

impl server::Log for ServerLog {
    fn refused_greeting(&self, what: &'static str, peer: &PeerAddress) {
        tracing::warn!(
            "refused a connection from {peer}: {what}; this port speaks gRPC, HTTP/2, baidu_std \
             and SRPC"
        );
    }

    fn connection_error(&self, why: &'static str, peer: &PeerAddress) {
        tracing::warn!(
            "ended a connection from {peer}, whose peer broke a rule or a limit of its protocol: \
             {why}"
        );
    }

    fn audit(&self, record: &AuditRecord<'_>) {
        let text = |text: &str| (!text.is_empty()).then(|| audit_text(text));
        let (on, detail) = (text(record.subject), text(record.detail));
        let peer = record.peer.map(ToString::to_string);
        let suppressed = (record.suppressed > 0).then_some(record.suppressed);
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: AUDIT_TARGET,
                    event = record.event.name(),
                    method = record.method,
                    on,
                    detail,
                    identity = record.caller.name(),
                    peer,
                    outcome = record.code.name(),
                    suppressed,
                    "audit"
                )
            };
        }
        match record.event {
            AuditEvent::Administration | AuditEvent::Token => line!(info),
            AuditEvent::Denial => line!(warn),
        }
    }

    fn storage(&self, what: &str) {
        tracing::error!("{what}");
    }

    fn storage_recovered(&self, what: &str) {
        tracing::info!("{what}");
    }

    fn no_thread(&self, what: &str, why: &std::io::Error) {
        tracing::warn!(
            "the system gives no thread for {what}: {why}; what limits threads: {}",
            net::THREAD_LIMITS
        );
    }

    fn snapshot(&self, report: &SnapshotReport) {
        let SnapshotReport {
            file,
            sequence,
            entries,
            file_bytes,
            ..
        } = report;
        tracing::info!(
            "made a snapshot of {entries} entries and blobs, {file_bytes} bytes, up to sequence \
             {sequence}: {file}"
        );
    }

    fn slow_call(&self, call: &SlowCall<'_>) {
        let us = |ns: u64| ns / 1_000;
        let suppressed = (call.suppressed > 0).then_some(call.suppressed);
        tracing::info!(
            target: SLOW_CALL_TARGET,
            method = call.method.label(),
            database = call.database,
            key_bytes = call.key_bytes,
            key_prefix = call.key_prefix,
            identity = call.caller.name(),
            peer = call.peer.to_string(),
            status = call.code.name(),
            trace_id = call.traced.map(|traced| traced.trace.to_string()),
            span_id = call.traced.map(|traced| traced.span.to_string()),
            took_us = us(call.took_ns),
            queue_us = us(call.phases.queue_ns),
            read_us = us(call.phases.read_ns),
            commit_us = us(call.phases.commit_ns),
            sync_us = us(call.phases.sync_ns),
            send_us = us(call.phases.send_ns),
            suppressed,
            "slow call"
        );
    }

    fn detail(&self) -> Detail {
        // Levels that say less are greater.
        let level = LevelFilter::current();
        if level >= LevelFilter::TRACE {
            Detail::Calls
        } else if level >= LevelFilter::DEBUG {
            Detail::Connections
        } else {
            Detail::Usual
        }
    }

    fn connection_opened(&self, peer: &PeerAddress) {
        tracing::debug!("opened a connection from {peer}");
    }

    fn connection_closed(&self, peer: &PeerAddress, why: &str, open_ns: u64) {
        let open = Duration::from_millis(open_ns / 1_000_000);
        tracing::debug!("closed a connection from {peer} after {open:?}: {why}");
    }

    fn call_failed(&self, call: &FailedCall<'_>) {
        let FailedCall {
            method,
            path,
            code,
            message,
            peer,
        } = *call;
        let code = code.name();
        // Paths and some messages have what the peer sent: with escapes, it stays one line.
        let path = without_tokens(path.strip_prefix('/').unwrap_or(path));
        let message = without_tokens(message);
        let (path, message) = (path.escape_debug(), message.escape_debug());
        match method.is_some_and(Method::has_silent_callers) {
            true => tracing::warn!("refused {path} from {peer} with {code}: {message}"),
            false => tracing::debug!("refused {path} from {peer} with {code}: {message}"),
        }
    }

    fn call_ended(&self, method: Method, code: Code, took_ns: u64, peer: &PeerAddress) {
        let took = Duration::from_nanos(took_ns);
        let code = code.name();
        tracing::trace!(
            "{} from {peer} ended with {code} after {took:?}",
            method.label()
        );
    }
}
