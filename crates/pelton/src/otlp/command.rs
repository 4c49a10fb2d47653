//! Spans of the calls of a command: where the environment says so, as scripts have it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use client::otlp::{ExportEvent, OtlpEndpoint, SpanExporter, UnexportedReason};
use client::spans::limits::SPAN_COMMAND_STOP_TIMEOUT;
use client::spans::{TraceContext, Tracer, TracerOptions};

use super::{start_exporter, target};
use crate::arguments::OutputFormat;
use crate::exit::Failure;
use crate::randomness::random;
use crate::report;

/// The variable with the collector, which is that of `pelton serve --otlp-endpoint`.
const ENDPOINT_VARIABLE: &str = "PELTON_OTLP_ENDPOINT";

/// The variable with the file of its authorities.
const CA_VARIABLE: &str = "PELTON_OTLP_CA";

/// The variable with the name under which spans are exported.
const SERVICE_NAME_VARIABLE: &str = "PELTON_OTLP_SERVICE_NAME";

/// That name, unless one is given: not that of the server.
const SERVICE_NAME: &str = "pelton-client";

/// The variable with the span of which the calls are parts, as programs that trace their children
/// set it.
const PARENT_VARIABLE: &str = "TRACEPARENT";

/// What exports the spans of this process, and where to.
static EXPORTER: OnceLock<(SpanExporter, OtlpEndpoint)> = OnceLock::new();

/// Why spans could not be exported.
static FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// Returns what traces the calls of a connection; `None`: nothing is to be traced.
///
/// # Errors
/// If a variable has a value that cannot be used.
pub fn tracer() -> Result<Option<Tracer>, Failure> {
    let parent = std::env::var_os(PARENT_VARIABLE);
    // What is malformed counts as not there: W3C Trace Context, section 4.3.
    let parent = parent.and_then(|value| TraceContext::parse(value.as_encoded_bytes()));
    let endpoint = std::env::var_os(ENDPOINT_VARIABLE).filter(|value| !value.is_empty());
    let exporter = endpoint.map(|endpoint| exporter(&endpoint)).transpose()?;
    if parent.is_none() && exporter.is_none() {
        return Ok(None);
    }
    Ok(Some(Tracer::new(TracerOptions {
        spans: exporter.map(SpanExporter::queue),
        parent,
        seed: random(),
        unix_ns,
    })))
}

fn exporter(endpoint: &OsStr) -> Result<&'static SpanExporter, Failure> {
    if let Some((exporter, _)) = EXPORTER.get() {
        return Ok(exporter);
    }
    let endpoint: OtlpEndpoint = endpoint
        .to_string_lossy()
        .parse()
        .map_err(|error| Failure::Usage(format!("the variable {ENDPOINT_VARIABLE}: {error}")))?;
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let ca = variable(CA_VARIABLE).map(PathBuf::from);
    // Of a collector without TLS the variable may be there for others.
    let ca = ca.as_deref().filter(|_| endpoint.has_tls());
    let target = target(&endpoint, (CA_VARIABLE, ca))?;
    let name = variable(SERVICE_NAME_VARIABLE).map(|name| name.to_string_lossy().into_owned());
    let name = name.as_deref().unwrap_or(SERVICE_NAME);
    let told = endpoint.clone();
    let started = start_exporter(target, name, move |event| note(&told, event))?;
    let (exporter, _) = EXPORTER.get_or_init(|| (started, endpoint));
    Ok(exporter)
}

fn note(endpoint: &OtlpEndpoint, event: ExportEvent<'_>) {
    let failure = match event {
        ExportEvent::Failing { why } => Some(format!("cannot be exported to {endpoint}: {why}")),
        ExportEvent::Rejecting { why, .. } => Some(format!("were refused by {endpoint}: {why}")),
        ExportEvent::Recovered { .. } => None,
    };
    *FAILURE.lock().unwrap_or_else(PoisonError::into_inner) = failure;
}

/// Exports what is left when the command has ended, and warns if that was not possible.
pub fn finish(format: OutputFormat) {
    let Some((exporter, endpoint)) = EXPORTER.get() else {
        return;
    };
    // A signal ends the process by itself.
    let ended = exporter.stop(SPAN_COMMAND_STOP_TIMEOUT, || false);
    let failure = FAILURE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let counts = exporter.queue().counts();
    let unexported = ended
        .as_ref()
        .err()
        .map_or(0, |unexported| unexported.count);
    let dropped = unexported.max(counts.export_failed) + counts.queue_full + counts.rejected;
    if dropped > 0 {
        let why = match (ended.err().map(|unexported| unexported.why), failure) {
            (Some(UnexportedReason::Late(time)), _) => {
                let seconds = time.as_secs_f64();
                format!("were not taken by {endpoint} within {seconds} s of its end")
            }
            (_, Some(failure)) => failure,
            (_, None) => "were too many to wait for an export".into(),
        };
        let advice = "the command itself is not concerned; PELTON_OTLP_ENDPOINT says where a \
                      collector listens";
        report::warn(
            &format!("spans of its calls ({dropped}) {why}; {advice}"),
            format,
        );
    }
}

fn unix_ns() -> u64 {
    let since_1970 = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}
