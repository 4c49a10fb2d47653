//! Spans of calls, exported by OTLP: of a server by its settings, of a command by its environment.

mod command;
mod sink;

pub use command::{finish, tracer};

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::otlp::{
    ExportEvent, ExporterOptions, OtlpEndpoint, OtlpTarget, SpanExporter, UnexportedSpans,
};
use client::spans::limits::SPANS_QUEUED;
use client::spans::{AttributeText, SpanQueue};
use client::tls::{ClientTls, ClientTlsOptions, Trust};
use net::THREAD_LIMITS;
use server::SpanRule;

use crate::exit::Failure;
use crate::randomness::random;
use crate::settings::Settings;
use sink::SpanForwarder;

/// What exports the spans of a server.
pub struct ServerSpans {
    exporter: SpanExporter,
}

impl ServerSpans {
    /// Starts the export that the settings ask for, and has the server make spans for it; `None`:
    /// they ask for none.
    pub fn start(
        settings: &Settings,
        config: &mut server::Config,
    ) -> Result<Option<ServerSpans>, Failure> {
        let Some(endpoint) = &settings.otlp.endpoint else {
            return Ok(None);
        };
        let target = target(endpoint, ("--otlp-ca", settings.otlp.ca.as_deref()))?;
        let shown = endpoint.to_string();
        let exporter = start_exporter(target, &settings.otlp.service_name, move |event| {
            log_event(&shown, event);
        })?;
        config.spans = Some(SpanRule {
            sink: Arc::new(SpanForwarder(exporter.queue())),
            share: settings.otlp.sample.share(),
            seed: random(),
        });
        Ok(Some(ServerSpans { exporter }))
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

fn start_exporter(
    target: OtlpTarget,
    service_name: &str,
    observe: impl Fn(ExportEvent<'_>) + Send + 'static,
) -> Result<SpanExporter, Failure> {
    let pid = AttributeText::Number(std::process::id().into());
    let version = AttributeText::Text(env!("CARGO_PKG_VERSION").into());
    let options = ExporterOptions {
        target,
        service_name: service_name.to_owned(),
        scope: ("pelton", env!("CARGO_PKG_VERSION")),
        attributes: vec![("service.version", version), ("process.pid", pid)],
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
fn log_event(endpoint: &str, event: ExportEvent<'_>) {
    match event {
        ExportEvent::Failing { why } => tracing::warn!(
            "spans cannot be exported to {endpoint}: {why}; calls go on, and of their spans \
             {SPANS_QUEUED} wait at most, others are dropped: see that a collector takes OTLP over \
             gRPC there (--otlp-endpoint)"
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
