//! The export of spans by OTLP over gRPC (<https://opentelemetry.io/docs/specs/otlp/>).
//!
//! A [`SpanExporter`] is a thread behind a [`SpanQueue`](crate::spans::SpanQueue), which is
//! bounded: recording a span never waits for an export.

mod encode;
mod endpoint;
mod export;
mod exporter;
mod fault;
mod headers;
mod retry;

pub use encode::ResourceAttribute;
pub use endpoint::{EndpointError, OtlpEndpoint};
pub use export::OtlpTarget;
pub use exporter::{ExportEvent, ExporterOptions, SpanExporter, UnexportedReason, UnexportedSpans};
pub use fault::ExportFault;
pub use headers::{OtlpHeaderError, OtlpHeaders};
