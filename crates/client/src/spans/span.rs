//! A span that waits to be exported.

use std::borrow::Cow;

use api::otlp::SpanKind;
use wire::grpc::{Code, SpanId, TraceContext, TraceState};

/// What an attribute says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeText {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

/// An attribute of a span.
pub type SpanAttribute = (&'static str, AttributeText);

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanRecord {
    /// The trace, and the span itself.
    pub context: TraceContext,
    /// What tracing systems say of the trace to each other.
    pub trace_state: Option<TraceState>,
    /// The span of which it is a part; `None`: the trace begins here.
    pub parent: Option<SpanId>,
    /// Whether the parent is in another process; of a span without one it says nothing.
    pub has_remote_parent: bool,
    /// Whose view of a call it is.
    pub kind: SpanKind,
    /// `package.Service/Method`.
    pub name: Cow<'static, str>,
    /// When it began, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// When it ended, in nanoseconds since 1970.
    pub end_unix_ns: u64,
    /// What is known of it.
    pub attributes: Vec<SpanAttribute>,
    /// Whether its status is ERROR.
    pub is_error: bool,
}

impl SpanRecord {
    /// Returns the memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let text = |text: &Cow<'static, str>| match text {
            Cow::Borrowed(_) => 0,
            Cow::Owned(text) => text.capacity(),
        };
        let of_values = self.attributes.iter().map(|(_, value)| match value {
            AttributeText::Text(value) => text(value),
            AttributeText::Number(_) => 0,
        });
        size_of::<SpanRecord>()
            + text(&self.name)
            + (self.trace_state.as_ref()).map_or(0, |state| state.as_str().len())
            + self.attributes.capacity() * size_of::<SpanAttribute>()
            + of_values.sum::<usize>()
    }

    /// Adds what is said of each call of gRPC: the system, the method, and how it ended (semantic
    /// conventions for gRPC, version 1.39).
    pub fn add_call(&mut self, code: Code) {
        let text = |text: &'static str| AttributeText::Text(text.into());
        self.attributes.extend([
            ("rpc.system.name", text("grpc")),
            ("rpc.method", AttributeText::Text(self.name.clone())),
            ("rpc.response.status_code", text(code.name())),
        ]);
        self.set_code(code);
    }

    /// Says how it ended.
    pub fn set_code(&mut self, code: Code) {
        self.is_error = match self.kind {
            SpanKind::Server => is_server_error(code),
            _ => code != Code::Ok,
        };
        if self.is_error {
            self.attributes
                .push(("error.type", AttributeText::Text(code.name().into())));
        }
    }
}

/// Returns whether a code means that the server has failed, and not its caller.
fn is_server_error(code: Code) -> bool {
    match code {
        Code::Unknown
        | Code::DeadlineExceeded
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => true,
        Code::Ok
        | Code::Cancelled
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unauthenticated => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use wire::grpc::TraceIdSource;

    use super::*;

    /// A span with a name of its own.
    pub fn span(number: u64) -> SpanRecord {
        let mut ids = TraceIdSource::new(number);
        SpanRecord {
            context: TraceContext::sampled(ids.next_trace(), ids.next_span()),
            trace_state: None,
            parent: Some(ids.next_span()),
            has_remote_parent: true,
            kind: SpanKind::Server,
            name: format!("a.B/C{number}").into(),
            start_unix_ns: 1_000 + number,
            end_unix_ns: 2_000 + number,
            attributes: Vec::new(),
            is_error: false,
        }
    }

    #[test]
    fn a_servers_span_is_an_error_if_the_server_has_failed() {
        let errors = |kind| {
            let is_error = |code: &&Code| {
                let mut span = SpanRecord { kind, ..span(1) };
                span.add_call(**code);
                let has_type = span
                    .attributes
                    .iter()
                    .any(|(name, _)| *name == "error.type");
                assert_eq!(span.is_error, has_type);
                span.is_error
            };
            let codes = Code::ALL.iter().filter(is_error);
            codes.map(|code| code.name()).collect::<Vec<_>>()
        };
        let of_server = [
            "UNKNOWN",
            "DEADLINE_EXCEEDED",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
        ];
        assert_eq!(errors(SpanKind::Server), of_server);
        assert_eq!(errors(SpanKind::Client).len(), Code::ALL.len() - 1);
    }

    #[test]
    fn the_memory_of_a_span_has_that_of_its_texts() {
        let mut span = span(1);
        let before = span.memory_bytes();
        let text = "d".repeat(1_000);
        (span.attributes).push(("pelton.database", AttributeText::Text(text.into())));
        assert!(span.memory_bytes() >= before + 1_000 + size_of::<SpanAttribute>());
        let before = span.memory_bytes();
        span.trace_state = TraceState::read([&b"a=1"[..]].into_iter());
        assert_eq!(span.memory_bytes(), before + 3);
    }
}
