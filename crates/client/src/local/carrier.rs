//! What a connection of a `Local` carries: HTTP/2, or baidu_std or SRPC.

use net::tls::TlsPipe;
use wire::framed::FramedProtocol;
use wire::grpc::Status;
use wire::{SharedBytes, StreamKey};

use super::framed::{FramedCore, foreign_greeting};
use crate::core::{CallRequest, Core, describe};
use crate::error::CallError;
use crate::sealed::{SocketEnd, open, receive};

/// A connection of either kind, without its socket.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the larger one is that of nearly all connections: none gets an indirection"
)]
pub(super) enum Carrier {
    Http2(Core),
    Framed(FramedCore),
}

impl Carrier {
    pub(super) fn new(
        framed: Option<FramedProtocol>,
        config: &wire::Config,
        now_ns: u64,
    ) -> Carrier {
        match framed {
            None => Carrier::Http2(Core::new(config, now_ns)),
            Some(protocol) => Carrier::Framed(FramedCore::new(protocol, config)),
        }
    }

    /// Begins a unary call.
    #[inline]
    pub(super) fn begin(
        &mut self,
        request: &CallRequest<'_>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<StreamKey, CallError> {
        match self {
            Carrier::Http2(core) => {
                let call = core.open(request)?;
                core.send_with(call, true, encode);
                Ok(call)
            }
            Carrier::Framed(framed) => framed.begin(request, encode),
        }
    }

    /// Begins a unary call whose request others hold a part of.
    pub(super) fn begin_shared(
        &mut self,
        request: &CallRequest<'_>,
        head: &[u8],
        body: Option<SharedBytes>,
    ) -> Result<StreamKey, CallError> {
        match self {
            Carrier::Http2(core) => {
                let call = core.open(request)?;
                send_shared(core, call, true, head, body);
                Ok(call)
            }
            Carrier::Framed(framed) => framed.begin(request, |out| {
                out.extend_from_slice(head);
                out.extend_from_slice(body.as_deref().unwrap_or_default());
            }),
        }
    }

    /// Begins a call to which messages go by [`Carrier::http2`].
    pub(super) fn open(&mut self, request: &CallRequest<'_>) -> Result<StreamKey, CallError> {
        match self {
            Carrier::Http2(core) => core.open(request),
            Carrier::Framed(_) => Err(CallError::BadRequest {
                reason: "baidu_std and SRPC have no calls of several messages".into(),
            }),
        }
    }

    /// Returns the connection if it is one of HTTP/2, which alone has calls of several messages.
    pub(super) fn http2(&mut self) -> Option<&mut Core> {
        match self {
            Carrier::Http2(core) => Some(core),
            Carrier::Framed(_) => None,
        }
    }

    #[inline]
    pub(super) fn set_token(&mut self, call: StreamKey, token: u32) {
        match self {
            Carrier::Http2(core) => core.set_token(call, token),
            Carrier::Framed(framed) => framed.set_token(call, token),
        }
    }

    pub(super) fn token(&self, call: StreamKey) -> u32 {
        match self {
            Carrier::Http2(core) => core.token(call),
            Carrier::Framed(framed) => framed.token(call),
        }
    }

    #[inline]
    pub(super) fn calls_left(&self) -> usize {
        match self {
            Carrier::Http2(core) => core.calls_left(),
            Carrier::Framed(framed) => framed.calls_left(),
        }
    }

    pub(super) fn cancel(&mut self, call: StreamKey) {
        match self {
            Carrier::Http2(core) => core.cancel(call),
            Carrier::Framed(framed) => framed.cancel(call),
        }
    }

    /// Returns whether calls may begin. baidu_std and SRPC have no greeting.
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Carrier::Http2(core) => core.is_ready(),
            Carrier::Framed(_) => true,
        }
    }

    /// Returns what the first bytes of a server say if it speaks another protocol.
    pub(super) fn foreign_greeting(&self, bytes: &[u8]) -> Option<&'static str> {
        match self {
            Carrier::Http2(_) => crate::channel::foreign_greeting(bytes),
            Carrier::Framed(framed) => foreign_greeting(framed.protocol(), bytes),
        }
    }

    /// Takes what came through TLS, and opens it.
    pub(super) fn open_sealed(
        &mut self,
        bytes: &[u8],
        pipe: &mut TlsPipe,
    ) -> Result<(), SocketEnd> {
        match self {
            Carrier::Http2(core) => open(bytes, pipe, &mut |plain| core.received(plain)),
            Carrier::Framed(framed) => receive(bytes, pipe, &mut |plain| framed.received(plain)),
        }
    }

    #[inline]
    pub(super) fn received(&mut self, bytes: &[u8]) {
        match self {
            Carrier::Http2(core) => core.received(bytes),
            Carrier::Framed(framed) => framed.received(bytes),
        }
    }

    pub(super) fn disconnected(&mut self) {
        match self {
            Carrier::Http2(core) => core.disconnected(),
            Carrier::Framed(framed) => framed.disconnected(),
        }
    }

    #[inline]
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        match self {
            Carrier::Http2(core) => core.output(),
            Carrier::Framed(framed) => framed.output(),
        }
    }

    pub(super) fn transmit(&mut self, now_ns: u64) {
        match self {
            Carrier::Http2(core) => core.transmit(now_ns),
            Carrier::Framed(framed) => framed.transmit(),
        }
    }

    #[inline]
    pub(super) fn wants_transmit(&self) -> bool {
        match self {
            Carrier::Http2(core) => core.wants_transmit(),
            Carrier::Framed(framed) => framed.wants_transmit(),
        }
    }

    /// Returns whether messages wait for the server's windows.
    pub(super) fn has_unsent(&self) -> bool {
        matches!(self, Carrier::Http2(core) if core.has_unsent())
    }

    pub(super) fn has_events(&self) -> bool {
        matches!(self, Carrier::Http2(core) if core.has_events())
    }

    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        match self {
            Carrier::Http2(core) => core.next_deadline_ns(),
            Carrier::Framed(_) => None,
        }
    }

    pub(super) fn deadline_passed(&mut self, now_ns: u64) {
        if let Carrier::Http2(core) = self {
            core.deadline_passed(now_ns);
        }
    }

    /// Returns why the connection has ended, once it has.
    pub(super) fn close_reason(&self) -> Option<String> {
        match self {
            Carrier::Http2(core) => core.close_reason().map(describe),
            Carrier::Framed(framed) => framed.close_reason(),
        }
    }

    /// Returns what the server said when it ended the connection for an error.
    pub(super) fn server_reason(&self) -> Option<String> {
        match self {
            Carrier::Http2(core) => core.server_reason(),
            Carrier::Framed(_) => None,
        }
    }
}

/// Sends a message of which others hold a part.
pub(super) fn send_shared(
    core: &mut Core,
    call: StreamKey,
    last: bool,
    head: &[u8],
    body: Option<SharedBytes>,
) {
    match body {
        Some(body) => core.send_shared(call, last, head, body),
        None => core.send(call, head, last),
    }
}

/// The status of a call that ended with its response.
pub(super) static OK: Status = Status::OK;
