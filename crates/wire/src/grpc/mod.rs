//! gRPC over HTTP/2: messages, status, metadata, timeouts, compression. Pure functions and small
//! state machines.

mod base64;
pub mod compression;
mod inflating;
pub mod message;
pub mod metadata;
pub mod status;
pub mod timeout;
pub mod trace_context;
pub mod trace_state;

pub use compression::{AcceptedEncodings, Deflater, Encoding, InflateError, Inflater};
pub use message::{DeframeStep, Deframer, MessageError, PREFIX_BYTES};
pub use metadata::{Metadata, MetadataError};
pub use status::{Code, Status};
pub use timeout::{BadTimeout, TimeoutValue};
pub use trace_context::{SpanId, TRACEPARENT, TraceContext, TraceId, TraceIdSource};
pub use trace_state::{TRACESTATE, TraceState};
