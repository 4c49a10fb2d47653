//! Spans of calls: what one says, where they wait to be exported, and how those of a client's calls
//! are made.
//!
//! A [`Tracer`] makes the spans of calls as their client sees them, and the metadata `traceparent`
//! by which the server's become parts of them: given to a
//! [`ChannelOptions`](crate::ChannelOptions) for all calls of a channel, or by hand for one call
//! over something else. What exports them is a [`SpanExporter`](crate::otlp::SpanExporter).

pub mod limits;
mod queue;
mod span;
mod tracer;

pub use api::otlp::SpanKind;
pub(crate) use queue::{BrokenOff, SpanBatch};
pub use queue::{SpanCounts, SpanQueue};
#[cfg(test)]
pub(crate) use span::tests::span as example_span;
pub use span::{AttributeText, SpanAttribute, SpanRecord};
pub use tracer::{ClientSpan, Tracer, TracerOptions};
pub use wire::grpc::{
    SpanId, TRACEPARENT, TRACESTATE, TraceContext, TraceId, TraceIdSource, TraceState,
};
