//! Serves `pelton.lab.v1.Agent` on the connections of an event loop.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use api::agent;
use net::{Closed, ConnectionId, Connections, Handler, Io, Peer};
use service::identities::{Token, is_same_secret};
use wire::grpc::{Code, Status};
use wire::{Config, Connection, Event, Head, StreamKey};

use super::agent_subject::AgentSubject;
use super::connection_standing::{ConnectionStanding, crowded_out};
use super::cpu_share::CpuClock;
use super::limits::{AGENT_REQUEST_BYTES, AGENT_STREAMS, AGENT_UNSENT_BYTES, AGENT_WATCHES};
use super::socket_look::SocketLook;
use super::subject_search::SubjectSearch;
use super::watch_call::{SharedLooks, WatchCall};
use crate::diagnose::SystemFolders;
use crate::process::thread_cpu_ns;

/// The agent: what an event loop drives.
pub struct AgentHandler {
    rules: AgentRules,
    looks: SharedLooks,
    connections: HashMap<ConnectionId, AgentConnection>,
    /// Connections that gave way to others, and are to be closed.
    crowded_out: Vec<ConnectionId>,
}

/// What is watched, and who may see it.
struct AgentRules {
    folders: SystemFolders,
    subject: AgentSubject,
    /// With which callers prove that they may watch; `None`: everybody may.
    token: Option<Arc<Token>>,
    is_stopping: bool,
}

/// A connection, and its calls.
struct AgentConnection {
    wire: Connection,
    calls: Vec<WatchCall>,
    standing: ConnectionStanding,
}

impl AgentHandler {
    /// An agent without connections. `token`: calls have to come with it.
    pub fn new(
        folders: SystemFolders,
        subject: AgentSubject,
        token: Option<Arc<Token>>,
    ) -> AgentHandler {
        AgentHandler::with_clock(folders, (subject, token), Rc::new(thread_cpu_ns))
    }

    /// The same with another clock of CPU time.
    fn with_clock(
        folders: SystemFolders,
        (subject, token): (AgentSubject, Option<Arc<Token>>),
        clock: CpuClock,
    ) -> AgentHandler {
        AgentHandler {
            rules: AgentRules {
                folders,
                subject,
                token,
                is_stopping: false,
            },
            looks: SharedLooks {
                clock,
                search: SubjectSearch::new(),
                sockets: SocketLook::new(),
                watches: 0,
            },
            connections: HashMap::new(),
            crowded_out: Vec::new(),
        }
    }

    /// Calls that are open.
    fn calls(&self) -> usize {
        let calls = |connection: &AgentConnection| connection.calls.len();
        self.connections.values().map(calls).sum()
    }

    /// Has a connection give way, if there are too many beside `newcomer`. Returns whether one did.
    fn make_room(&mut self, newcomer: Option<ConnectionId>, is_full: bool) -> bool {
        let standings = (self.connections.iter()).map(|(id, one)| (*id, &one.standing));
        let Some(id) = crowded_out(standings, newcomer, is_full) else {
            return false;
        };
        self.connections.remove(&id);
        self.crowded_out.push(id);
        true
    }

    fn turn(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        let room = AGENT_WATCHES.saturating_sub(self.calls());
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.turn(io, (&self.rules, room), &mut self.looks, now_ns);
    }
}

impl Handler for AgentHandler {
    fn opened(&mut self, id: ConnectionId, peer: &Peer, io: &mut Io, now_ns: u64) {
        let config = Config {
            max_streams: AGENT_STREAMS,
            max_message_bytes: AGENT_REQUEST_BYTES,
            stream_unsent_bytes: AGENT_UNSENT_BYTES,
            ..Config::server()
        };
        let mut wire = Connection::new(&config, now_ns);
        wire.start(&mut io.output);
        let connection = AgentConnection {
            wire,
            calls: Vec::new(),
            standing: ConnectionStanding::new(peer, now_ns),
        };
        self.connections.insert(id, connection);
        if peer.over_limit
            && !self.make_room(Some(id), true)
            && let Some(mut refused) = self.connections.remove(&id)
        {
            refused.wire.abort(
                "too many connections to this agent; try again later",
                &mut io.output,
            );
            io.close_when_written();
        }
    }

    fn received(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.turn(id, io, now_ns);
    }

    fn writable(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        self.turn(id, io, now_ns);
    }

    fn closed(&mut self, id: ConnectionId, _: Closed, _: u64) {
        self.connections.remove(&id);
    }

    fn tick(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        // Here what came with the newcomers has been read, so that who has the token is proven.
        while self.make_room(None, false) {}
        for id in self.crowded_out.drain(..) {
            if let Some(io) = connections.io(id) {
                io.close_now();
            }
        }
        self.looks.watches = self.calls();
        for (id, connection) in &mut self.connections {
            if connection
                .next_deadline_ns()
                .is_some_and(|due_ns| due_ns <= now_ns)
                && let Some(io) = connections.io(*id)
            {
                connection.pass_time(io, &mut self.looks, now_ns);
            }
        }
        // What has ended is closed by the loop as soon as its peer has heard of it.
        let is_open = |connection: &AgentConnection| connection.wire.close_reason().is_none();
        self.connections.retain(|_, connection| is_open(connection));
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let due = |connection: &AgentConnection| connection.next_deadline_ns();
        self.connections.values().filter_map(due).min()
    }

    fn stop(&mut self, connections: &mut dyn Connections, now_ns: u64) {
        self.rules.is_stopping = true;
        for (id, connection) in &mut self.connections {
            if let Some(io) = connections.io(*id) {
                connection.stop(io, now_ns);
            }
        }
    }

    fn is_drained(&self) -> bool {
        let mut connections = self.connections.values();
        connections.all(|connection| connection.calls.is_empty())
    }
}

impl AgentConnection {
    /// Goes on with what has come; `room`: so many calls may begin.
    fn turn(
        &mut self,
        io: &mut Io,
        (rules, mut room): (&AgentRules, usize),
        looks: &mut SharedLooks,
        now_ns: u64,
    ) {
        if io.end_of_input() {
            self.wire.peer_closed();
        }
        let mut consumed = 0;
        while let Some(event) =
            (self.wire).poll_event(io.input.bytes(), &mut consumed, &mut io.output, now_ns)
        {
            match event {
                Event::Request { stream, .. } => {
                    let is_begun = self.request(stream, io, (rules, room), now_ns);
                    room -= usize::from(is_begun);
                }
                Event::Message { stream, .. } => {
                    self.message(stream, io, (rules, looks), now_ns);
                }
                Event::HalfClosed { stream } => self.half_closed(stream, io),
                Event::Cancelled { stream, .. } => {
                    self.calls.retain(|call| call.stream() != stream);
                    self.wire.forget(stream);
                }
                _ => {}
            }
        }
        io.input.consume(consumed);
        self.settle(io, now_ns);
    }

    /// Takes the head of a request. Returns whether a call begins.
    fn request(
        &mut self,
        stream: StreamKey,
        io: &mut Io,
        (rules, room): (&AgentRules, usize),
        now_ns: u64,
    ) -> bool {
        let head = self.wire.head();
        if head.is_grpc() && is_allowed(head, rules.token.as_deref()) {
            self.standing.prove();
        }
        match check(head, rules, room) {
            Ok(timeout_ns) => {
                self.calls.push(WatchCall::new(stream, timeout_ns, now_ns));
                return true;
            }
            Err(CallRefusal::Plain(text)) => {
                let text = text.as_bytes();
                self.wire.send_plain(stream, &mut io.output, 415, &[], text);
            }
            Err(CallRefusal::Refused(status)) => {
                self.wire.finish(stream, &mut io.output, &status);
            }
        }
        false
    }

    fn message(
        &mut self,
        stream: StreamKey,
        io: &mut Io,
        (rules, looks): (&AgentRules, &mut SharedLooks),
        now_ns: u64,
    ) {
        let message = self.wire.message(io.input.bytes()).to_vec();
        self.wire.release(stream, &mut io.output);
        let call = (self.calls.iter_mut()).find(|call| call.stream() == stream);
        // A second request of a call changes nothing.
        let Some(call) = call.filter(|call| !call.is_watching()) else {
            return;
        };
        let place = (&rules.folders, rules.subject);
        if let Err(status) = call.begin(&message, place, looks, now_ns) {
            self.end(stream, io, &status);
        }
    }

    fn half_closed(&mut self, stream: StreamKey, io: &mut Io) {
        let is_waiting = |call: &WatchCall| call.stream() == stream && !call.is_watching();
        if self.calls.iter().any(is_waiting) {
            self.end(
                stream,
                io,
                &Status::invalid_argument("the call has no request"),
            );
        }
    }

    fn end(&mut self, stream: StreamKey, io: &mut Io, status: &Status) {
        self.calls.retain(|call| call.stream() != stream);
        self.wire.finish(stream, &mut io.output, status);
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let of_calls = self.calls.iter().map(WatchCall::next_deadline_ns);
        let of_connection = self.wire.next_deadline_ns().into_iter();
        let of_connection = of_connection.chain(self.standing.proof_due_ns());
        of_calls.chain(of_connection).min()
    }

    fn pass_time(&mut self, io: &mut Io, looks: &mut SharedLooks, now_ns: u64) {
        self.wire.deadline_passed(&mut io.output, now_ns);
        if (self.standing.proof_due_ns()).is_some_and(|due_ns| due_ns <= now_ns) {
            let why = "no call came in time that this agent takes";
            self.wire.abort(why, &mut io.output);
        }
        let mut ended = Vec::new();
        for call in &mut self.calls {
            if let Some(status) = call.pass_time((&mut self.wire, &mut io.output), looks, now_ns) {
                ended.push((call.stream(), status));
            }
        }
        for (stream, status) in ended {
            self.end(stream, io, &status);
        }
        self.settle(io, now_ns);
    }

    fn stop(&mut self, io: &mut Io, now_ns: u64) {
        let status = Status::new(Code::Unavailable, "the agent ends");
        for call in std::mem::take(&mut self.calls) {
            self.wire.finish(call.stream(), &mut io.output, &status);
        }
        self.wire.drain(&mut io.output, now_ns);
        self.settle(io, now_ns);
    }

    fn settle(&mut self, io: &mut Io, now_ns: u64) {
        self.standing.note_calls(!self.calls.is_empty(), now_ns);
        self.wire.transmit(&mut io.output, now_ns);
        if self.wire.close_reason().is_some() {
            io.close_when_written();
        }
    }
}

/// Why a call does not begin.
enum CallRefusal {
    /// It is no call of gRPC.
    Plain(&'static str),
    /// It ends with this status.
    Refused(Status),
}

/// Whether a call may begin; returns how long its caller waits.
fn check(head: Head<'_>, rules: &AgentRules, room: usize) -> Result<Option<u64>, CallRefusal> {
    let refused = |code, text: &'static str| Err(CallRefusal::Refused(Status::new(code, text)));
    if !head.is_grpc() {
        return Err(CallRefusal::Plain(
            "this is `pelton lab agent`, which serves pelton.lab.v1.Agent over gRPC\n",
        ));
    }
    if !is_allowed(head, rules.token.as_deref()) {
        let text = "this agent has a token, and the call came with another one, or none: \
                    `pelton lab diagnose` takes it as --agent-token-file";
        return refused(Code::Unauthenticated, text);
    }
    if head.path().strip_prefix(b"/") != Some(agent::WATCH.path.as_bytes()) {
        let text = "there is only pelton.lab.v1.Agent/Watch here";
        return refused(Code::Unimplemented, text);
    }
    if rules.is_stopping {
        return refused(Code::Unavailable, "the agent ends");
    }
    if room == 0 {
        let text = "so many others watch that there is no room; try again later";
        return refused(Code::ResourceExhausted, text);
    }
    Ok(head.timeout_ns())
}

fn is_allowed(head: Head<'_>, token: Option<&Token>) -> bool {
    let Some(token) = token else {
        return true;
    };
    let given = head.authorization().and_then(Token::of_header);
    given.is_some_and(|given| is_same_secret(given.text().as_bytes(), token.text().as_bytes()))
}

#[cfg(test)]
mod tests;
