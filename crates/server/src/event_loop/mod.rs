//! One event loop's share of the server: its connections, its calls, and what it does in a tick.

mod handler;
mod logging;
mod long_requests;
#[cfg(test)]
mod probes;
mod reading;
mod requests;
mod steps;
mod stopping;
mod ticking;
mod trust;
mod visits;

use std::collections::BTreeSet;
use std::sync::Arc;

use net::{Closed, ConnectionId, Io};
use service::Shared;
use store::durable::Mailbox;
use wire::Event;
use wire::framed::FramedProtocol;

use crate::SharedWaker;
use crate::actions::StepContext;
use crate::admission::Admission;
use crate::audit::AuditTrail;
use crate::batch::TickBatch;
use crate::blobs::LoopBlobs;
use crate::calls::CallTable;
use crate::clock::LoopClock;
use crate::connection::{ConnectionState, Link, OpeningBytes, RpcState, open};
use crate::deferred_drop::DeferredDrop;
use crate::drain::Drain;
use crate::large_message_queue::LargeMessageQueue;
use crate::limits;
use crate::long_requests::{LongRequests, LoopLongRequests};
use crate::readers::LoopReaders;
use crate::remote_requests::RemoteRequests;
use crate::rpc_connection::RpcConnection;
use crate::settings::{Detail, LoopSettings};
use crate::tasks::LoopTasks;
use crate::timers::Timers;
use crate::unpack_queue::UnpackQueue;
use crate::watchers::Watchers;
use crate::write_path::WritePath;
use crate::wrong_tokens::WrongTokens;

pub(crate) use handler::LoopHandler;
#[cfg(test)]
pub(crate) use visits::{held, large_output_bytes};

/// What a loop is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopRole {
    /// Many connections at once.
    Connections,
    /// One connection at a time, and one request of it after the other.
    OneConnection,
    /// Refusing connections, beside loops of one: it does what else has to be done now and then.
    Door,
}

/// All of an event loop but its connections.
pub(crate) struct LoopState {
    shared: Arc<Shared>,
    /// What the steps of calls work with.
    context: StepContext,
    calls: CallTable,
    timers: Timers,
    writes: WritePath,
    readers: LoopReaders,
    /// When it was last said that a database on disk could not be read.
    damage_told_ns: Option<u64>,
    role: LoopRole,
    /// Open connections of this loop.
    connections: usize,
    /// Connections that have something to say although nothing came in.
    revisit: Vec<ConnectionId>,
    /// Connections of which nothing is taken until less waits for the committer.
    held_back: BTreeSet<ConnectionId>,
    /// Those of them whose token has its share of that, while others go on.
    held_back_by_share: BTreeSet<ConnectionId>,
    /// What refusals of unknown methods count as in the turn that is under way, in events.
    unknown_events: usize,
    /// Connections that wait for memory for their next large message.
    large_message_queue: LargeMessageQueue,
    /// Verdicts of the account by which connections of this loop were looked for.
    verdicts_seen: u64,
    /// Connections that have a compressed message under way.
    unpack_queue: UnpackQueue,
    drain: Option<Drain>,
    health_version: u64,
    /// The table of identities is another one than in the last tick.
    has_other_identities: bool,
    /// Asks this loop for a tick, from any thread.
    waker: SharedWaker,
}

/// What works for a loop beside it.
pub(crate) struct LoopParts {
    pub deferred_drop: DeferredDrop,
    pub readers: LoopReaders,
    /// To the committer of the durable databases, if there are any.
    pub mailbox: Option<Mailbox>,
    /// To the engine that has the databases of the server, if that is elsewhere.
    pub remote: Option<Box<RemoteRequests>>,
    pub tasks: LoopTasks,
    pub blobs: LoopBlobs,
    pub wrong_tokens: Arc<WrongTokens>,
    pub long_requests: Arc<LongRequests>,
    pub audit: Arc<AuditTrail>,
    pub waker: SharedWaker,
}

impl LoopState {
    pub fn new(
        settings: Arc<LoopSettings>,
        shared: Arc<Shared>,
        clock: LoopClock,
        admission: Admission,
        parts: LoopParts,
        role: LoopRole,
    ) -> LoopState {
        let figures = match role {
            LoopRole::OneConnection => shared.figures.add_thread(),
            LoopRole::Connections | LoopRole::Door => shared.figures.add_loop(),
        };
        let store = &shared.store;
        shared.identities.wake_on_change(&parts.waker);
        let long_requests = LoopLongRequests::new(parts.long_requests, Arc::clone(&parts.waker));
        LoopState {
            calls: CallTable::new(figures, &settings, long_requests),
            timers: Timers::default(),
            writes: WritePath::new(store, parts.deferred_drop, (parts.mailbox, parts.remote)),
            readers: parts.readers,
            damage_told_ns: None,
            role,
            connections: 0,
            revisit: Vec::new(),
            held_back: BTreeSet::new(),
            held_back_by_share: BTreeSet::new(),
            unknown_events: 0,
            large_message_queue: LargeMessageQueue::default(),
            verdicts_seen: 0,
            unpack_queue: UnpackQueue::default(),
            drain: None,
            health_version: shared.health.version(),
            has_other_identities: false,
            waker: parts.waker,
            context: StepContext {
                settings,
                clock,
                identities: shared.identities.table(),
                batch: TickBatch::new(store.write_batch(), store.write_batch()),
                admission,
                tasks: parts.tasks,
                blobs: parts.blobs,
                wrong_tokens: parts.wrong_tokens,
                watchers: Watchers::default(),
                audit: parts.audit,
            },
            shared,
        }
    }

    fn connection_opened(&mut self, link: &mut Link, now_ns: u64) {
        self.connections += 1;
        let log = &self.context.settings.log;
        if log.detail() >= Detail::Connections {
            log.connection_opened(&link.address);
        }
        let life_ms = if link.refused.is_some() {
            limits::REFUSED_CONNECTION_LIFE_MS
        } else {
            limits::FIRST_BYTES_MS
        };
        self.arm(link, now_ns + life_ms * 1_000_000);
    }

    /// Looks at the first bytes of a connection. Returns whether it carries calls now.
    fn decide(&mut self, slot: &mut Option<ConnectionState>, io: &mut Io, now_ns: u64) -> bool {
        let Some(ConnectionState::Undecided(link)) = slot else {
            return false;
        };
        let opened = match open(io, &self.context.settings.about, link.without_http2) {
            OpeningBytes::Wait => return false,
            OpeningBytes::Gone => {
                io.close_when_written();
                return false;
            }
            OpeningBytes::Http2 => Ok(None),
            OpeningBytes::Framed(protocol) => Ok(Some(protocol)),
            OpeningBytes::Refuse(what) => Err(what),
        };
        if let Some(ConnectionState::Undecided(link)) = slot.take() {
            *slot = Some(match opened {
                Ok(protocol) => self.start(link, protocol, io, now_ns),
                Err(what) => self.refuse(link, io, what),
            });
        }
        opened.is_ok()
    }

    /// Begins with a protocol that carries calls: HTTP/2 if it is no other.
    fn start(
        &mut self,
        link: Box<Link>,
        protocol: Option<FramedProtocol>,
        io: &mut Io,
        now_ns: u64,
    ) -> ConnectionState {
        let (mut link, config) = (link, &self.context.settings.http2);
        let mut connection = match protocol {
            None => RpcConnection::http2(config, &mut io.output, now_ns),
            Some(protocol) => {
                let address = link.address;
                link.holding.allow_making_room(&address);
                RpcConnection::framed(protocol, config, now_ns)
            }
        };
        if link.refused.is_some() || self.drain.is_some() {
            connection.drain(&mut io.output, now_ns);
        }
        ConnectionState::Rpc(Box::new(RpcState::new(*link, connection)))
    }

    /// Closes a connection that speaks no protocol of the server. Said once for each, as a rule to
    /// find a client that was pointed at the wrong port.
    fn refuse(&mut self, link: Box<Link>, io: &mut Io, what: &'static str) -> ConnectionState {
        (self.context.settings.log).refused_greeting(what, &link.address);
        consume_all(io);
        io.close_when_written();
        ConnectionState::Over(link)
    }

    /// The connection is gone, and so are the calls that ran on it.
    fn connection_closed(&mut self, mut state: ConnectionState, why: Closed) {
        if let Some(rpc) = state.rpc() {
            self.log_error(rpc);
        }
        if self.context.settings.log.detail() >= Detail::Connections {
            self.log_end(&state, why);
        }
        self.connections -= 1;
        let Some(rpc) = state.rpc() else {
            return;
        };
        self.large_message_queue
            .leave(rpc, &self.context.admission.account);
        self.unpack_queue.leave(rpc);
        rpc.connection.peer_closed();
        let mut nowhere = Vec::new();
        let now_ns = self.context.clock.tick_ns();
        while let Some(event) = rpc.connection.poll_event(&[], &mut 0, &mut nowhere, now_ns) {
            if let Event::Cancelled { stream, cause } = event {
                (self.calls).cancel(&self.context, rpc, stream, cause);
            }
        }
        self.calls.forget_unsent(rpc);
        self.calls.settle_slow(&self.context, rpc, true);
        self.context.audit.close(&mut rpc.denials, now_ns);
        debug_assert_eq!(
            rpc.running_calls(),
            0,
            "every call of a connection ends with it"
        );
    }

    /// The timer of a connection has expired.
    fn connection_timer(
        &mut self,
        mut state: ConnectionState,
        io: &mut Io,
        now_ns: u64,
    ) -> ConnectionState {
        state.link_mut().armed_ns = u64::MAX;
        let mut rpc = match state {
            ConnectionState::Undecided(link) => {
                return self.refuse(link, io, "no first bytes in time");
            }
            ConnectionState::Over(_) => return state,
            ConnectionState::Rpc(rpc) => rpc,
        };
        if rpc.link.refused.is_some() {
            io.close_when_written();
        } else {
            // A turn that lapses lets the next one begin: by what is left now.
            self.large_message_queue
                .allow(&mut rpc, &self.context.admission.account);
            let connection = &mut rpc.connection;
            let is_due = |at_ns| at_ns <= now_ns;
            if connection.next_deadline_ns().is_some_and(is_due) {
                connection.deadline_passed(&mut io.output, now_ns);
            }
            self.walk(&mut rpc, io, now_ns);
        }
        ConnectionState::Rpc(rpc)
    }
}

/// Throws away what has come in.
fn consume_all(io: &mut Io) {
    let unread = io.input.len();
    io.input.consume(unread);
}
