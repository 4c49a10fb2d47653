//! Spans of the calls of a command: where the environment says so, as scripts have it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use client::otlp::{ExportEvent, OtlpEndpoint, OtlpHeaders, SpanExporter, UnexportedReason};
use client::spans::limits::SPAN_COMMAND_STOP_TIMEOUT;
use client::spans::{TraceContext, TraceState, Tracer, TracerOptions};

use super::advice::{OF_COMMAND, advice};
use super::header_file::add_headers;
use super::{start_exporter, target};
use crate::arguments::{OtlpResourceAttribute, OutputFormat};
use crate::exit::Failure;
use crate::randomness::random;
use crate::report;
use crate::settings::OtelVariables;

/// The variable with the collector, which is that of `pelton serve --otlp-endpoint`.
const ENDPOINT_VARIABLE: &str = "PELTON_OTLP_ENDPOINT";

/// The variable with the file of its authorities.
const CA_VARIABLE: &str = "PELTON_OTLP_CA";

/// The variable with the name under which spans are exported.
const SERVICE_NAME_VARIABLE: &str = "PELTON_OTLP_SERVICE_NAME";

/// The variable with a header that goes with each export.
const HEADER_VARIABLE: &str = "PELTON_OTLP_HEADER";

/// The variable with the file of further ones.
const HEADER_FILE_VARIABLE: &str = "PELTON_OTLP_HEADER_FILE";

/// The variable with something that is said of the process.
const ATTRIBUTE_VARIABLE: &str = "PELTON_OTLP_RESOURCE_ATTRIBUTE";

/// That name, unless one is given: not that of the server.
const SERVICE_NAME: &str = "pelton-client";

/// The variable with the span of which the calls are parts, as programs that trace their children
/// set it.
const PARENT_VARIABLE: &str = "TRACEPARENT";

/// The variable with what tracing systems say of that span's trace.
const PARENT_STATE_VARIABLE: &str = "TRACESTATE";

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
    let state = std::env::var_os(PARENT_STATE_VARIABLE);
    let endpoint = std::env::var_os(ENDPOINT_VARIABLE).filter(|value| !value.is_empty());
    let exporter = endpoint.map(|endpoint| exporter(&endpoint)).transpose()?;
    if parent.is_none() && exporter.is_none() {
        return Ok(None);
    }
    Ok(Some(Tracer::new(TracerOptions {
        spans: exporter.map(SpanExporter::queue),
        parent,
        parent_state: state
            .and_then(|value| TraceState::read([value.as_encoded_bytes()].into_iter())),
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
    let ca = variable(CA_VARIABLE).map(PathBuf::from);
    // Of a collector without TLS the variable may be there for others.
    let ca = ca.as_deref().filter(|_| endpoint.has_tls());
    // What these leave open, the variables of OpenTelemetry say, without a word if they cannot be
    // read: they may be meant for other programs.
    let standard = OtelVariables::of_process().read();
    let standard_ca = standard.ca.filter(|_| ca.is_none() && endpoint.has_tls());
    let by_standard =
        standard_ca.and_then(|(path, name)| target(&endpoint, (name, Some(&path))).ok());
    let mut target = match by_standard {
        Some(target) => target,
        None => target(&endpoint, (CA_VARIABLE, ca))?,
    };
    target.headers = own_headers()?.unwrap_or(standard.headers);
    let name = variable(SERVICE_NAME_VARIABLE).map(|name| name.to_string_lossy().into_owned());
    let name = name.or(standard.service_name.map(|(name, _)| name));
    let name = name.as_deref().unwrap_or(SERVICE_NAME);
    let mut attributes = standard.attributes;
    if let Some(text) = variable(ATTRIBUTE_VARIABLE) {
        let wrong = |error| Failure::Usage(format!("the variable {ATTRIBUTE_VARIABLE}: {error}"));
        let own: OtlpResourceAttribute = text.to_string_lossy().parse().map_err(wrong)?;
        attributes.retain(|(key, _)| *key != own.key);
        attributes.push((own.key, own.value));
    }
    let told = endpoint.clone();
    let process = (name, &attributes[..]);
    let started = start_exporter(target, process, move |event| note(&told, event))?;
    let (exporter, _) = EXPORTER.get_or_init(|| (started, endpoint));
    Ok(exporter)
}

/// Returns what a variable says; `None`: nothing, also if it is empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the headers of the variables of Pelton; `None`: they say nothing.
fn own_headers() -> Result<Option<OtlpHeaders>, Failure> {
    let mut headers = OtlpHeaders::default();
    let (text, file) = (variable(HEADER_VARIABLE), variable(HEADER_FILE_VARIABLE));
    if text.is_none() && file.is_none() {
        return Ok(None);
    }
    if let Some(text) = text {
        let wrong = |why: &str| Failure::Usage(format!("the variable {HEADER_VARIABLE}: {why}"));
        let text = text.to_str().unwrap_or_default();
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| wrong("it is no NAME=VALUE"))?;
        let pushed = headers.push(name, value);
        pushed.map_err(|error| wrong(&error.to_string()))?;
    }
    if let Some(path) = file {
        add_headers(&mut headers, (HEADER_FILE_VARIABLE, Path::new(&path)))?;
    }
    Ok(Some(headers))
}

fn note(endpoint: &OtlpEndpoint, event: ExportEvent<'_>) {
    let failure = match event {
        ExportEvent::Failing { why, fault } => {
            let advice = advice(fault, endpoint, &OF_COMMAND);
            Some(format!("cannot be exported to {endpoint}: {why}; {advice}"))
        }
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
        let advice = "the command itself is not concerned; PELTON_OTLP_ENDPOINT has had them \
                      exported";
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
