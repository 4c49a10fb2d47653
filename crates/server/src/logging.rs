//! What a loop has to say to the log about its connections and calls.

use net::Closed;
use service::{Method, Status};
use wire::{CloseReason, ErrorCode};

use crate::connection::{ConnectionState, Protocol};
use crate::loop_state::LoopState;
use crate::settings::FailedCall;

impl LoopState {
    /// Says once for each connection that its peer broke the protocol or a limit. That a peer fell
    /// silent is no error.
    pub(crate) fn log_error(&self, channel: &mut ConnectionState) {
        let Protocol::Http2(connection) = &channel.protocol else {
            return;
        };
        if let Some(CloseReason::Error { code, why }) = connection.close_reason()
            && *code != ErrorCode::NoError
            && !channel.error_logged
        {
            channel.error_logged = true;
            self.settings.log.connection_error(why, &channel.address);
        }
    }

    #[cold]
    pub(crate) fn log_end(&self, channel: &ConnectionState, why: Closed) {
        let by_protocol = match &channel.protocol {
            Protocol::Http2(connection) => connection.close_reason().map(CloseReason::to_string),
            Protocol::Undecided | Protocol::Over => None,
        };
        let reason = match (why, by_protocol) {
            (Closed::Stalled, _) => {
                "the peer took nothing of what waits for it for too long".into()
            }
            (Closed::Stopped, _) => "the server stops".into(),
            (_, Some(reason)) => reason,
            (Closed::ByPeer, None) => {
                "the peer reset the connection, or went before it had taken all".into()
            }
            // The end of the peer's side is why a handler closes a connection with which nothing is
            // wrong.
            (Closed::ByHandler, None) => match &channel.protocol {
                _ if channel.refused.is_some() => {
                    "there are as many connections as there may be".to_owned()
                }
                Protocol::Http2(_) => "the peer closed the connection".into(),
                Protocol::Undecided => "the peer closed it before it had said anything".into(),
                Protocol::Over => "it was refused".into(),
            },
        };
        let open_ns = self.clock.tick_ns().saturating_sub(channel.opened_ns);
        (self.settings.log).connection_closed(&channel.address, &reason, open_ns);
    }

    #[cold]
    pub(crate) fn log_refusal(&self, channel: &ConnectionState, method: Method, status: &Status) {
        self.settings.log_failure(&FailedCall {
            method: Some(method),
            path: method.label(),
            code: status.code,
            message: &status.message,
            peer: &channel.address,
        });
    }
}
