//! `opentelemetry.proto.collector.trace.v1.TraceService`: `crates/api/proto`. A service that is
//! called, and that no Pelton serves.

crate::method::methods! {
    /// Takes spans. What is not OK may be retried if OTLP says so for its code.
    EXPORT Unary "opentelemetry.proto.collector.trace.v1.TraceService/Export";
}

protobuf::enumeration! {
    /// The enum `Span.SpanKind`.
    pub enum SpanKind = "opentelemetry.proto.trace.v1.Span.SpanKind" {
        /// Not set.
        Unspecified = 0,
        /// Within a process.
        Internal = 1,
        /// A call, as the server saw it.
        Server = 2,
        /// A call, as the client saw it.
        Client = 3,
        /// A message is sent to a queue.
        Producer = 4,
        /// A message is taken from a queue.
        Consumer = 5,
    }

    /// The enum `Status.StatusCode`.
    pub enum SpanStatusCode = "opentelemetry.proto.trace.v1.Status.StatusCode" {
        /// Nobody has said.
        Unset = 0,
        /// The application says that it went well.
        Ok = 1,
        /// It did not go well.
        Error = 2,
    }
}

protobuf::oneof! {
    /// One of the fields of `value`.
    pub enum AttributeValue<'a> {
        /// A text.
        1 Text(string_value): string,
        /// A number.
        3 Number(int_value): int64,
    }
}

protobuf::message! {
    /// The message `ExportTraceServiceRequest`.
    pub struct ExportTraceServiceRequest<'a>
        = "opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest"
    {
        /// The field `resource_spans`.
        1 resource_spans: repeated message ResourceSpans<'a>,
    }

    /// The message `ExportTraceServiceResponse`.
    pub struct ExportTraceServiceResponse<'a>
        = "opentelemetry.proto.collector.trace.v1.ExportTraceServiceResponse"
    {
        /// Set if some spans were refused, which are not to be sent again.
        1 partial_success: message ExportTracePartialSuccess<'a>,
    }

    /// The message `ExportTracePartialSuccess`.
    pub struct ExportTracePartialSuccess<'a>
        = "opentelemetry.proto.collector.trace.v1.ExportTracePartialSuccess"
    {
        /// The field `rejected_spans`.
        1 rejected_spans: int64,
        /// For people: why, or a warning about spans that were all taken.
        2 error_message: string,
    }

    /// The message `ResourceSpans`.
    pub struct ResourceSpans<'a> = "opentelemetry.proto.trace.v1.ResourceSpans" {
        /// The field `resource`.
        1 resource: message Resource<'a>,
        /// The field `scope_spans`.
        2 scope_spans: repeated message ScopeSpans<'a>,
    }

    /// The message `ScopeSpans`.
    pub struct ScopeSpans<'a> = "opentelemetry.proto.trace.v1.ScopeSpans" {
        /// The field `scope`.
        1 scope: message InstrumentationScope<'a>,
        /// The field `spans`.
        2 spans: repeated message ExportedSpan<'a>,
        /// Which semantic conventions the attributes follow.
        3 schema_url: string,
    }

    /// The message `Span`.
    pub struct ExportedSpan<'a> = "opentelemetry.proto.trace.v1.Span" {
        /// 16 bytes.
        1 trace_id: bytes,
        /// 8 bytes.
        2 span_id: bytes,
        /// The list of `tracestate` of W3C Trace Context.
        3 trace_state: string,
        /// 8 bytes; empty: it is the first span of its trace.
        4 parent_span_id: bytes,
        /// The field `name`.
        5 name: string,
        /// The field `kind`.
        6 kind: enumeration,
        /// Nanoseconds since 1970.
        7 start_time_unix_nano: fixed64,
        /// Nanoseconds since 1970.
        8 end_time_unix_nano: fixed64,
        /// The field `attributes`.
        9 attributes: repeated message Attribute<'a>,
        /// The field `status`.
        15 status: message SpanStatus<'a>,
        /// The flags of W3C Trace Context, and whether the parent is in another process: bit 8 says
        /// that this is known, bit 9 that it is so.
        16 flags: fixed32,
    }

    /// The message `Status`.
    pub struct SpanStatus<'a> = "opentelemetry.proto.trace.v1.Status" {
        /// The field `message`.
        2 message: string,
        /// The field `code`.
        3 code: enumeration,
    }

    /// The message `AnyValue`.
    pub struct AnyValue<'a> = "opentelemetry.proto.common.v1.AnyValue" {} oneofs {
        /// One of its fields.
        value: AttributeValue<'a>,
    }

    /// The message `KeyValue`.
    pub struct Attribute<'a> = "opentelemetry.proto.common.v1.KeyValue" {
        /// The field `key`.
        1 key: string,
        /// The field `value`.
        2 value: message AnyValue<'a>,
    }

    /// The message `InstrumentationScope`.
    pub struct InstrumentationScope<'a> = "opentelemetry.proto.common.v1.InstrumentationScope" {
        /// The field `name`.
        1 name: string,
        /// The field `version`.
        2 version: string,
    }

    /// The message `Resource`.
    pub struct Resource<'a> = "opentelemetry.proto.resource.v1.Resource" {
        /// The field `attributes`.
        1 attributes: repeated message Attribute<'a>,
    }
}
