//! Spans as a request of OTLP.

use std::borrow::Cow;

use api::otlp::{
    AnyValue, Attribute, AttributeValue, ExportTraceServiceRequest, ExportedSpan,
    InstrumentationScope, Resource, ResourceSpans, ScopeSpans, SpanStatus, SpanStatusCode,
};

use crate::spans::{AttributeText, SpanRecord, TraceState};

/// The semantic conventions that attributes follow: of them that of calls over gRPC.
pub(super) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.39.0";

/// Flags of a span beside those of W3C Trace Context: it is known whether its parent is remote.
const HAS_IS_REMOTE: u32 = 0x100;

/// The parent is in another process.
const IS_REMOTE: u32 = 0x200;

/// An attribute of the process that spans come from.
pub type ResourceAttribute = (Cow<'static, str>, AttributeText);

/// What the spans of a process come from.
#[derive(Clone, Debug)]
pub(super) struct SpanSource {
    pub service_name: String,
    /// Name and version of the program.
    pub scope: (&'static str, &'static str),
    /// What else is known of the process.
    pub attributes: Vec<ResourceAttribute>,
}

/// Returns the bytes of a request with these spans.
pub(super) fn request(source: &SpanSource, spans: &[SpanRecord]) -> Vec<u8> {
    let of_resource: Vec<Attribute<'_>> = [text_attribute("service.name", &source.service_name)]
        .into_iter()
        .chain((source.attributes.iter()).map(|(key, value)| attribute(key, value)))
        .collect();
    let of_spans: Vec<Vec<Attribute<'_>>> = spans
        .iter()
        .map(|span| {
            let attributes = span.attributes.iter();
            attributes
                .map(|(key, value)| attribute(key, value))
                .collect()
        })
        .collect();
    let spans: Vec<ExportedSpan<'_>> = spans
        .iter()
        .zip(&of_spans)
        .map(|(span, attributes)| message(span, attributes))
        .collect();
    let (name, version) = source.scope;
    let scopes = [ScopeSpans {
        scope: Some(InstrumentationScope { name, version }),
        spans: spans[..].into(),
        schema_url: SCHEMA_URL,
    }];
    let resources = [ResourceSpans {
        resource: Some(Resource {
            attributes: of_resource[..].into(),
        }),
        scope_spans: scopes[..].into(),
    }];
    let request = ExportTraceServiceRequest {
        resource_spans: resources[..].into(),
    };
    let mut bytes = Vec::with_capacity(request.encoded_len());
    request.encode(&mut bytes);
    bytes
}

fn message<'a>(span: &'a SpanRecord, attributes: &'a [Attribute<'a>]) -> ExportedSpan<'a> {
    let remote = match (span.parent.is_some(), span.has_remote_parent) {
        (true, true) => HAS_IS_REMOTE | IS_REMOTE,
        (true, false) => HAS_IS_REMOTE,
        (false, _) => 0,
    };
    ExportedSpan {
        trace_id: span.context.trace.bytes(),
        span_id: span.context.span.bytes(),
        trace_state: span.trace_state.as_ref().map_or("", TraceState::as_str),
        parent_span_id: span.parent.as_ref().map_or(&[], |parent| parent.bytes()),
        name: &span.name,
        kind: span.kind.number(),
        start_time_unix_nano: span.start_unix_ns,
        end_time_unix_nano: span.end_unix_ns,
        attributes: attributes.into(),
        status: span.is_error.then_some(SpanStatus {
            message: "",
            code: SpanStatusCode::Error.number(),
        }),
        flags: u32::from(span.context.flags) | remote,
    }
}

fn attribute<'a>(key: &'a str, value: &'a AttributeText) -> Attribute<'a> {
    match value {
        AttributeText::Text(text) => text_attribute(key, text),
        AttributeText::Number(number) => Attribute {
            key,
            value: Some(AnyValue {
                value: Some(AttributeValue::Number(*number)),
            }),
        },
    }
}

fn text_attribute<'a>(key: &'a str, text: &'a str) -> Attribute<'a> {
    Attribute {
        key,
        value: Some(AnyValue {
            value: Some(AttributeValue::Text(text)),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::example_span as span;

    #[test]
    fn a_request_has_the_spans_with_their_source() {
        let source = SpanSource {
            service_name: "shop".into(),
            scope: ("pelton", "1.2.3"),
            attributes: vec![("process.pid".into(), AttributeText::Number(7))],
        };
        let mut call = span(1);
        call.add_call(wire::grpc::Code::Internal);
        let root = SpanRecord {
            parent: None,
            trace_state: TraceState::read([&b"a=1"[..]].into_iter()),
            ..span(2)
        };
        let spans = [call, root];
        let bytes = request(&source, &spans);
        let request = ExportTraceServiceRequest::decode(&bytes).expect("it is one");
        let resource = request.resource_spans.iter().next().expect("one");
        let resource = resource.expect("it is one");
        let of_resource = resource.resource.expect("it is there");
        let names: Vec<&str> = (of_resource.attributes.iter())
            .map(|attribute| attribute.expect("it is one").key)
            .collect();
        assert_eq!(names, ["service.name", "process.pid"]);
        let scope = resource.scope_spans.iter().next().expect("one");
        let scope = scope.expect("it is one");
        assert_eq!(scope.scope.map(|scope| scope.version), Some("1.2.3"));
        let found: Vec<ExportedSpan<'_>> =
            scope.spans.iter().map(|span| span.expect("one")).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].trace_id, spans[0].context.trace.bytes());
        assert_eq!(found[0].parent_span_id.len(), 8);
        assert_eq!((found[0].flags, found[0].kind), (0x301, 2));
        assert_eq!(found[0].status.map(|status| status.code), Some(2));
        assert_eq!(found[0].attributes.len(), 4);
        assert_eq!((found[1].flags, found[1].parent_span_id), (1, &[][..]));
        assert_eq!(found[1].status, None);
        assert_eq!((found[0].trace_state, found[1].trace_state), ("", "a=1"));
    }
}
