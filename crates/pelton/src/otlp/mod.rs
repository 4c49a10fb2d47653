//! Spans of calls, exported by OTLP: of a server by its settings, of a command by its environment.

mod advice;
mod command;
mod header_file;
mod resource;
mod sink;

pub use command::{finish, tracer};

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::otlp::{
    ExportEvent, ExporterOptions, OtlpEndpoint, OtlpHeaders, OtlpTarget, SpanExporter,
    UnexportedSpans,
};
use client::spans::SpanQueue;
use client::spans::limits::SPANS_QUEUED;
use client::tls::{ClientTls, ClientTlsOptions, Trust};
use net::THREAD_LIMITS;
use server::SpanRule;

use crate::exit::Failure;
use crate::randomness::random;
use crate::settings::{OWN_CA_NAME, OtlpSettings, Settings};
use advice::{OF_SERVER, advice};
use sink::SpanForwarder;

/// What exports the spans of a server.
pub struct ServerSpans {
    exporter: SpanExporter,
    /// Where spans go, and why.
    start_line: String,
}

impl ServerSpans {
    /// Starts the export that the settings ask for, and has the server make spans for it; `None`:
    /// they ask for none.
    pub fn start(
        settings: &Settings,
        config: &mut server::ServerConfig,
    ) -> Result<Option<ServerSpans>, Failure> {
        let Some(endpoint) = &settings.otlp.endpoint else {
            return Ok(None);
        };
        let otlp = &settings.otlp;
        let target = match server_target(otlp, endpoint) {
            // The variable may be meant for other programs.
            Err(error) if otlp.ca_name != OWN_CA_NAME => {
                tracing::warn!("no spans are exported: {error}");
                return Ok(None);
            }
            target => target?,
        };
        let has_headers = !target.headers.is_empty();
        let process = (&*otlp.service_name, &otlp.attributes[..]);
        let to = endpoint.clone();
        let exporter = start_exporter(target, process, move |event| log_event(&to, event))?;
        config.spans = Some(SpanRule {
            sink: Arc::new(SpanForwarder(exporter.queue())),
            share: settings.otlp.sample.share(),
            seed: random(),
        });
        let start_line = start_line(otlp, endpoint, has_headers);
        Ok(Some(ServerSpans {
            exporter,
            start_line,
        }))
    }

    /// Logs where spans go.
    pub fn log_start(&self) {
        tracing::info!("{}", self.start_line);
    }

    /// Returns where spans wait.
    pub fn queue(&self) -> SpanQueue {
        self.exporter.queue()
    }

    /// Exports what is left, as far as it can be done in that time, or until `is_cut`.
    pub fn stop(&self, time: Duration, is_cut: impl Fn() -> bool) {
        if let Err(UnexportedSpans { count, why }) = self.exporter.stop(time, is_cut) {
            tracing::warn!("{count} spans were dropped at the end: {why}");
        }
    }
}

/// Checks the files that say how spans are exported.
pub fn check(settings: &Settings) -> Result<(), Failure> {
    let otlp = &settings.otlp;
    let target = otlp.endpoint.as_ref().map(|to| server_target(otlp, to));
    target.transpose().map(|_| ())
}

/// Returns how a server reaches its collector.
fn server_target(otlp: &OtlpSettings, endpoint: &OtlpEndpoint) -> Result<OtlpTarget, Failure> {
    let mut target = target(endpoint, (otlp.ca_name, otlp.ca.as_deref()))?;
    target.headers = otlp.headers.clone();
    if let Some(path) = &otlp.header_file
        && header_file::add_headers(&mut target.headers, ("--otlp-header-file", path))?
    {
        tracing::warn!(
            "all users of this machine can read {}, and the headers in it: chmod 600 {0}",
            path.display()
        );
    }
    Ok(target)
}

/// Returns how a collector is reached. `ca`: the file with the authorities that it is believed by,
/// and what names it.
fn target(
    endpoint: &OtlpEndpoint,
    (named_by, ca): (&str, Option<&Path>),
) -> Result<OtlpTarget, Failure> {
    let tls = match (endpoint.has_tls(), ca) {
        (false, None) => None,
        (false, Some(path)) => {
            return Err(Failure::Usage(format!(
                "{named_by} names {}, and the collector {endpoint} is reached without TLS: write \
                 https:// in front of it, or leave {named_by} out",
                path.display()
            )));
        }
        (true, ca) => Some(tls(named_by, ca)?),
    };
    Ok(OtlpTarget {
        endpoint: endpoint.clone(),
        tls,
        headers: OtlpHeaders::default(),
    })
}

fn tls(named_by: &str, ca: Option<&Path>) -> Result<ClientTls, Failure> {
    let read = ca.map(|path| {
        let unread = |error| format!("{named_by}: cannot read {}: {error}", path.display());
        fs::read(path).map_err(|error| Failure::Failed(unread(error)))
    });
    let authorities = read.transpose()?;
    let options = ClientTlsOptions {
        trust: match &authorities {
            Some(text) => Trust::Authorities(text),
            None => Trust::System,
        },
        identity: None,
        server_name: None,
        applications: &[client::APPLICATION],
    };
    ClientTls::new(&options).map_err(|error| {
        let file = ca.map_or(String::new(), |path| format!(" {}", path.display()));
        Failure::Failed(format!("{named_by}{file}: {error}"))
    })
}

/// Returns what is said at the start of a server that exports spans. It shows no headers.
fn start_line(otlp: &OtlpSettings, endpoint: &OtlpEndpoint, has_headers: bool) -> String {
    let others = match otlp.sample.is_none() {
        true => "and of no others (--otlp-sample)".to_owned(),
        false => format!("and of this share of the others: {}", otlp.sample),
    };
    let headers = match has_headers {
        true => ", with headers of its own",
        false => "",
    };
    format!(
        "spans of calls are exported to {endpoint}{headers}, as {} says, under the name {}: of \
         calls whose callers trace them, {others}",
        otlp.source,
        otlp.service_name.escape_debug()
    )
}

fn start_exporter(
    target: OtlpTarget,
    (service_name, attributes): (&str, &[(String, String)]),
    observe: impl Fn(ExportEvent<'_>) + Send + 'static,
) -> Result<SpanExporter, Failure> {
    let options = ExporterOptions {
        target,
        service_name: service_name.to_owned(),
        scope: ("pelton", env!("CARGO_PKG_VERSION")),
        attributes: resource::attributes(attributes),
        seed: random(),
    };
    SpanExporter::start(options, observe).map_err(|error| {
        Failure::Failed(format!(
            "a thread that exports spans cannot be started: {error}; what limits threads: \
             {THREAD_LIMITS}"
        ))
    })
}

/// Logs what happens to exports.
fn log_event(endpoint: &OtlpEndpoint, event: ExportEvent<'_>) {
    match event {
        ExportEvent::Failing { why, fault } => tracing::warn!(
            "spans cannot be exported to {endpoint}: {why}; {}; calls go on, and of their spans \
             {SPANS_QUEUED} wait at most, others are dropped",
            advice(fault, endpoint, &OF_SERVER)
        ),
        ExportEvent::Recovered { dropped } => tracing::info!(
            "spans are exported to {endpoint} again; {dropped} were dropped meanwhile"
        ),
        ExportEvent::Rejecting { spans, why } => tracing::warn!(
            "the collector {endpoint} refuses {spans} spans of an export: {why}; further ones are \
             counted in pelton_spans_dropped_total alone"
        ),
    }
}
