//! What a loop has to say to the log about its connections and calls.

use net::Closed;
use service::identities::IdentityKey;
use service::{Code, Method, Status};
use wire::CloseReason;

use super::LoopState;
use crate::audit::EndedCall;
use crate::audit_record::AuditCaller;
use crate::connection::{ConnectionState, Link, RpcState};
use crate::settings::FailedCall;

impl LoopState {
    /// Logs once for each connection that its peer broke the protocol or a limit.
    pub(super) fn log_error(&self, rpc: &mut RpcState) {
        if let Some((why, address)) = rpc.take_error() {
            (self.context.settings.log).connection_error(why, address);
        }
    }

    #[cold]
    pub(super) fn log_end(&self, state: &ConnectionState, why: Closed) {
        let link = state.link();
        let by_protocol = match state {
            ConnectionState::Rpc(rpc) => {
                (rpc.connection.close_reason()).map(CloseReason::to_string)
            }
            ConnectionState::Undecided(_) | ConnectionState::Over(_) => None,
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
            (Closed::ByHandler, None) => match state {
                _ if link.refused.is_some() => {
                    "there are as many connections as there may be".to_owned()
                }
                _ if link.holding.makes_room() => {
                    "it was idle, and another needed its place".into()
                }
                ConnectionState::Rpc(_) => "the peer closed the connection".into(),
                ConnectionState::Undecided(_) => {
                    "the peer closed it before it had said anything".into()
                }
                ConnectionState::Over(_) => "it was refused".into(),
            },
        };
        let open_ns = (self.context.clock.tick_ns()).saturating_sub(link.opened_ns);
        (self.context.settings.log).connection_closed(&link.address, &reason, open_ns);
    }

    /// Notes in the audit trail that a call was refused before it began.
    #[cold]
    pub(super) fn audit_refusal(
        &self,
        rpc: &mut RpcState,
        method: Method,
        key: Option<IdentityKey>,
        (code, detail): (Code, &str),
    ) {
        let context = &self.context;
        let identity = key.and_then(|key| context.identities.get(key));
        let caller = AuditCaller::of(identity);
        let ended = EndedCall {
            method,
            code,
            may_have_changed: false,
            key: identity.and(key),
            caller,
            subject: "",
            detail,
        };
        let RpcState { link, denials, .. } = rpc;
        let now_ns = context.clock.tick_ns();
        let (log, peer) = (&*context.settings.log, (&link.address, link.caller.address));
        (context.audit).note(log, peer, denials, &ended, now_ns);
    }

    #[cold]
    pub(super) fn log_refusal(&self, link: &Link, method: Method, status: &Status) {
        self.context.settings.log_failure(&FailedCall {
            method: Some(method),
            path: method.label(),
            code: status.code(),
            message: status.message(),
            peer: &link.address,
        });
    }
}
