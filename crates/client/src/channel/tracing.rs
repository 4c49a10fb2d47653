//! Spans of the calls of a channel.

use net::Address;
use wire::grpc::{Code, Metadata};

use super::Channel;
use crate::core::CallEventKind;
use crate::spans::{ClientSpan, Tracer};

/// How the calls of a channel are traced.
#[derive(Debug)]
pub(super) struct ChannelTracing {
    tracer: Tracer,
    server: Address,
    /// That of the call that runs.
    span: Option<ClientSpan>,
}

impl ChannelTracing {
    pub(super) fn new(tracer: &Tracer, server: &Address) -> Box<ChannelTracing> {
        Box::new(ChannelTracing {
            tracer: tracer.clone(),
            server: server.clone(),
            span: None,
        })
    }
}

impl Channel {
    /// Begins the span of a call. Returns the metadata with which the server is told of it; `None`:
    /// those that were given. If they name a parent, it is that of the span.
    pub(super) fn begin_span(&mut self, path: &str, given: Option<&Metadata>) -> Option<Metadata> {
        let tracing = self.tracing.as_deref_mut()?;
        let span = tracing.tracer.begin_call(path, &tracing.server, given);
        let metadata = span.metadata(given);
        tracing.span = Some(span);
        metadata
    }

    /// The call that runs has ended, if it has not before.
    pub(crate) fn end_span(&mut self, code: Code) {
        let tracing = self.tracing.as_deref_mut();
        if let Some(span) = tracing.and_then(|tracing| tracing.span.take()) {
            span.end(code);
        }
    }

    /// Something has happened to the call that runs.
    pub(super) fn note_span(&mut self, kind: &CallEventKind) {
        if self.tracing.is_none() {
            return;
        }
        match kind {
            CallEventKind::Ended(status) => self.end_span(status.code()),
            CallEventKind::NotBegun | CallEventKind::Lost { .. } => {
                self.end_span(Code::Unavailable);
            }
            CallEventKind::AnswerTooLarge | CallEventKind::BadAnswer { .. } => {
                self.end_span(Code::Unknown);
            }
            CallEventKind::Head { .. } | CallEventKind::Message | CallEventKind::Writable => {}
        }
    }
}
