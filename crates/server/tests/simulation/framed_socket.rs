//! One connection of a client that speaks baidu_std or SRPC: unary calls alone.

use net::{ConnectionId, Io};
use wire::framed::{
    BeginError, FramedCallEnd, FramedCallEvent, FramedCallHead, FramedClientConnection,
    FramedStatus,
};
use wire::framed::{FramedProtocol, StatusMeaning};
use wire::grpc::{Code, Status};
use wire::{Config, StreamKey};

use super::call::Call;
use super::databases;
use super::history::{Asked, Outcome};
use super::messages;
use super::reading_pause::ReadingPause;
use super::world::{Begun, Manners, World};

const MILLISECOND_NS: u64 = 1_000_000;

pub struct FramedSocket {
    pub id: ConnectionId,
    /// To which life of the server it leads.
    life: usize,
    connection: FramedClientConnection,
    /// What came of a response that is not there as a whole: it may be larger than the input.
    input: Vec<u8>,
    calls: Vec<Call>,
    /// How many calls are in flight at most.
    in_flight: usize,
    pause: ReadingPause,
}

impl FramedSocket {
    pub fn new(id: ConnectionId, world: &mut World) -> FramedSocket {
        let protocol = match world.random.below(3) {
            0 => FramedProtocol::Srpc,
            _ => FramedProtocol::BaiduStd,
        };
        FramedSocket {
            id,
            life: world.life,
            connection: FramedClientConnection::new(protocol, &Config::client()),
            input: Vec::new(),
            calls: Vec::new(),
            in_flight: match protocol {
                FramedProtocol::Srpc => 1,
                FramedProtocol::BaiduStd => 1 + world.random.below(12) as usize,
            },
            pause: ReadingPause::default(),
        }
    }

    pub fn receive(&mut self, world: &mut World, io: &mut Io) {
        self.input.extend_from_slice(io.input.bytes());
        io.input.consume(io.input.bytes().len());
        self.poll(world);
        if io.end_of_input() {
            self.connection.peer_closed();
            self.poll(world);
        }
        let is_over = match self.connection.close_reason() {
            Some(wire::CloseReason::Error { code, why }) => {
                panic!("a peer broke the protocol: {why} ({code:?})")
            }
            Some(_) => true,
            // What was given up has taken all places, and a response may never come.
            None => !self.connection.takes_calls() && self.calls.is_empty(),
        };
        if is_over {
            io.close_when_written();
        }
    }

    fn poll(&mut self, world: &mut World) {
        let mut consumed = 0;
        while let Some(event) = self.connection.poll_event(&self.input, &mut consumed) {
            let FramedCallEvent { call, end, .. } = event;
            let mut call = self.take(call);
            match end {
                FramedCallEnd::Response => {
                    let message = self.connection.message(&self.input).to_vec();
                    world.counts.framed += 1;
                    call.receive(world, message);
                    call.finish(world, &Status::new(Code::Ok, ""));
                }
                FramedCallEnd::Error { status, text } => {
                    match code_of(status, &text, call.asked(world)) {
                        Some(code) => call.finish(world, &Status::new(code, text)),
                        None => call.end(world, &Outcome::Unknown),
                    }
                }
                FramedCallEnd::BadResponse(why) => panic!("a response cannot be used: {why}"),
                FramedCallEnd::Lost => lose(call, world),
            }
        }
        self.input.drain(..consumed);
    }

    fn take(&mut self, key: StreamKey) -> Call {
        let at = self.calls.iter().position(|call| call.stream == key);
        self.calls.swap_remove(at.expect("a call ends once"))
    }

    /// The connection is gone.
    pub fn lose(self, world: &mut World) {
        self.calls.into_iter().for_each(|call| lose(call, world));
    }

    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.pause.next_deadline_ns()
    }

    /// What a client does by itself.
    pub fn act(&mut self, world: &mut World, io: &mut Io, now_ns: u64) {
        self.pause.end_if_due(io, now_ns);
        if io.is_closing() {
            return;
        }
        self.misbehave(world, io, now_ns);
        if self.calls.len() <= self.in_flight / 2 {
            while self.calls.len() < self.in_flight
                && self.connection.takes_calls()
                && !io.output_is_full()
            {
                if !self.begin(world, io) {
                    break;
                }
            }
        }
    }

    /// Does not read for a while, gives a call up, or goes without a word.
    fn misbehave(&mut self, world: &mut World, io: &mut Io, now_ns: u64) {
        if world.left == 0 || !world.script.is_empty() {
            return;
        }
        self.pause.begin_by_chance(world, io, now_ns);
        if world.random.chance(10_000) && !self.calls.is_empty() {
            let which = world.random.below(self.calls.len() as u64) as usize;
            if world.manners == Manners::Rude || !self.calls[which].is_commit(world) {
                let call = self.calls.swap_remove(which);
                self.connection.cancel(call.stream);
                world.counts.cancelled += 1;
                call.end(world, &Outcome::Unknown);
            }
        }
        if world.manners == Manners::Rude && !world.stopping && world.random.chance(6_000) {
            io.close_now();
        }
    }

    /// Begins a call; false: there is none, or none can begin.
    fn begin(&mut self, world: &mut World, io: &mut Io) -> bool {
        let Some(by) = world.begin_unary(self.life) else {
            return false;
        };
        let record = &world.history[by as usize];
        let (asked, database) = (record.asked.clone(), databases::name(record.database));
        let path = messages::path(&asked);
        let (service, method) = path[1..].split_once('/').expect("of a service");
        let timeout_ms = timeout_ms(world, &asked);
        let head = FramedCallHead {
            service,
            method,
            timeout_ns: timeout_ms.map(|timeout_ms| timeout_ms * MILLISECOND_NS),
            gzip: world.random.below(8) == 0,
            ..FramedCallHead::default()
        };
        let encode = |out: &mut Vec<u8>| messages::encode(&asked, &database, by, out);
        let stream = match self.connection.begin(&mut io.output, &head, encode) {
            Ok(stream) => stream,
            // Places of calls that were given up.
            Err(BeginError::TooManyCalls) => {
                world.end(by, Outcome::Refused);
                return false;
            }
            Err(error) => panic!("{asked:?} cannot begin: {error}"),
        };
        let mut call = Call::new(stream, Begun::One(by));
        if let Asked::Echo { delay_ms, .. } = asked
            && self.connection.protocol() == FramedProtocol::BaiduStd
        {
            let delay_ms = u64::from(delay_ms);
            call.must_expire = timeout_ms.is_some_and(|timeout_ms| timeout_ms < delay_ms);
        }
        self.calls.push(call);
        true
    }
}

/// Neither protocol can announce an end: what was sent when a server stops may be lost with the
/// connection.
fn lose(call: Call, world: &mut World) {
    match world.stopping {
        true => world.counts.framed_lost += 1,
        false => world.counts.lost += 1,
    }
    call.end(world, &Outcome::Unknown);
}

/// The code of gRPC that became this, as far as it can be told; `None`: it was one of several.
fn code_of(status: FramedStatus, text: &str, asked: &Asked) -> Option<Code> {
    match status.meaning() {
        StatusMeaning::Stopping | StatusMeaning::Overloaded => Some(Code::Unavailable),
        StatusMeaning::UnknownService | StatusMeaning::UnknownMethod => Some(Code::Unimplemented),
        StatusMeaning::TimedOut => Some(Code::DeadlineExceeded),
        StatusMeaning::Internal if asked.is_about_keys() && text.contains("no database") => {
            Some(Code::NotFound)
        }
        // SRPC has one number for nearly everything.
        StatusMeaning::Internal => None,
        _ => panic!("{asked:?} ended with {status} {text:?}"),
    }
}

/// As over HTTP/2, in the unit of the protocol.
fn timeout_ms(world: &mut World, asked: &Asked) -> Option<u64> {
    let short = world.manners == Manners::Rude || !asked.is_commit();
    let is_delayed = matches!(asked, Asked::Echo { delay_ms: 1.., .. });
    match world.random.below(if is_delayed { 4 } else { 40 }) {
        0 if short && !world.stopping => Some(1 + world.random.below(8)),
        1..5 => Some(3_600_000),
        _ => None,
    }
}
