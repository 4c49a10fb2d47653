//! The method of `opentelemetry.proto.collector.trace.v1.TraceService`.

use super::may_repeat;
use crate::otlp::{ExportTraceServiceRequest, ExportTraceServiceResponse};

super::rpcs! {
    Export<'a> crate::otlp::EXPORT:
        ExportTraceServiceRequest<'a> => ExportTraceServiceResponse<'a>, may_repeat;
}
