//! A server of the simulation: `wire`'s server role without a socket, which answers by path
//! and misbehaves by chance.

use std::collections::HashMap;

use client::{Code, Metadata, Status};
use testkit::Random;
use wire::http2::frame;
use wire::{Connection, ErrorCode, Event, StreamKey};

/// How a server behaves. Chances are once in so many requests; 0: never.
#[derive(Clone, Debug, Default)]
pub struct ServerBehavior {
    pub max_streams: Option<u32>,
    /// How long an answer takes, at most.
    pub latency_ns: u64,
    /// The same for one request in so many, which is slow.
    pub slow: (u64, u64),
    pub refuse: u64,
    /// Takes so many calls at once, and counts one for so long after its end; 0: all.
    pub lingering: (usize, u64),
    pub drain: u64,
    /// GOAWAY that names an earlier stream than the last one that came.
    pub cut_off: u64,
    /// UNAVAILABLE with a pushback.
    pub push_back: u64,
    /// How long the pushback is; 0: 20 ms.
    pub push_back_ms: u64,
    /// UNAVAILABLE after the request was done.
    pub unavailable: u64,
    /// What `Health` says; `None`: it is not implemented.
    pub is_serving: Option<bool>,
    /// How long an answer of `Health` takes.
    pub health_latency_ns: u64,
    /// `Health` says nothing.
    pub is_health_silent: bool,
    /// Never sends anything.
    pub is_mute: bool,
}

/// What servers did, to all requests together.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerCounts {
    pub requests: u64,
    pub refused: u64,
    pub drained: u64,
    pub cut_off: u64,
    pub pushed_back: u64,
    pub unavailable: u64,
    pub slow: u64,
    pub cancelled: u64,
}

/// What a server works with, and what comes of it.
pub struct ServerContext<'a> {
    pub behavior: &'a ServerBehavior,
    pub server_counts: &'a mut ServerCounts,
    pub random: &'a mut Random,
    pub now_ns: u64,
    /// The messages of requests that were looked at.
    pub done: Vec<Vec<u8>>,
    /// Answers, and when they are due.
    pub due: Vec<(u64, Due)>,
}

impl ServerContext<'_> {
    fn latency_ns(&mut self) -> u64 {
        let (once_in, slow_ns) = self.behavior.slow;
        if chance(self.random, once_in) {
            self.server_counts.slow += 1;
            return slow_ns;
        }
        self.random.below(self.behavior.latency_ns.max(1))
    }

    fn answer_at(&mut self, at_ns: u64, stream: StreamKey, answer: AnswerKind, payload: Vec<u8>) {
        let due = Due {
            stream,
            payload,
            answer,
        };
        self.due.push((at_ns, due));
    }
}

/// An answer that is due later.
#[derive(Debug)]
pub struct Due {
    pub stream: StreamKey,
    pub payload: Vec<u8>,
    pub answer: AnswerKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// One message, and OK.
    Unary,
    /// One message of several.
    Chat,
    /// OK alone.
    End,
    /// The first message of several of `Health`.
    Watch,
    Unavailable,
}

pub struct Server {
    connection: Connection,
    input: Vec<u8>,
    pub output: Vec<u8>,
    paths: HashMap<u32, String>,
    /// When calls have ended that still count.
    ended_ns: Vec<u64>,
    /// No stream above it is looked at.
    last_stream: u32,
    highest: u32,
    watchers: Vec<StreamKey>,
}

impl Server {
    pub fn new(behavior: &ServerBehavior, now_ns: u64) -> Server {
        let config = wire::Config {
            max_streams: behavior.max_streams.unwrap_or(4096),
            ..wire::Config::server()
        };
        let mut connection = Connection::new(&config, now_ns);
        let mut output = Vec::new();
        connection.start(&mut output);
        Server {
            connection,
            input: Vec::new(),
            output,
            paths: HashMap::new(),
            ended_ns: Vec::new(),
            last_stream: u32::MAX,
            highest: 0,
            watchers: Vec::new(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.connection.close_reason().is_some()
    }

    /// Takes bytes.
    pub fn receive(&mut self, bytes: &[u8], around: &mut ServerContext<'_>) {
        self.input.extend_from_slice(bytes);
        let (mut consumed, now_ns) = (0, around.now_ns);
        loop {
            let event =
                self.connection
                    .poll_event(&self.input, &mut consumed, &mut self.output, now_ns);
            let Some(event) = event else {
                break;
            };
            match event {
                Event::Request { stream, end } => {
                    assert!(!end, "gRPC requests have messages here");
                    around.server_counts.requests += 1;
                    self.request(stream, around);
                }
                Event::Message { stream, last } => {
                    let payload = self.connection.message(&self.input).to_vec();
                    self.connection.release(stream, &mut self.output);
                    self.message(stream, last, payload, around);
                }
                Event::HalfClosed { stream } => {
                    let at_ns = now_ns + around.behavior.latency_ns;
                    around.answer_at(at_ns, stream, AnswerKind::End, Vec::new());
                }
                Event::Cancelled { stream, .. } => {
                    around.server_counts.cancelled += 1;
                    self.paths.remove(&stream.id);
                    self.connection.forget(stream);
                }
                _ => {}
            }
        }
        self.input.drain(..consumed);
        self.transmit(now_ns);
    }

    fn request(&mut self, stream: StreamKey, around: &mut ServerContext<'_>) {
        let path = String::from_utf8_lossy(self.connection.head().path()).into_owned();
        let is_health = path.starts_with("/grpc.health");
        if stream.id > self.last_stream {
            return self.ignore(stream);
        }
        if !is_health && (self.has_enough(around) || chance(around.random, around.behavior.refuse))
        {
            around.server_counts.refused += 1;
            self.connection
                .reset(stream, &mut self.output, ErrorCode::RefusedStream);
            return;
        }
        if !is_health && chance(around.random, around.behavior.cut_off) {
            around.server_counts.cut_off += 1;
            self.last_stream = self.highest;
            frame::write_goaway(&mut self.output, self.highest, ErrorCode::NoError, "");
            return self.ignore(stream);
        }
        self.highest = stream.id;
        if chance(around.random, around.behavior.drain) {
            around.server_counts.drained += 1;
            self.connection.drain(&mut self.output, around.now_ns);
        }
        self.paths.insert(stream.id, path);
    }

    fn has_enough(&mut self, around: &ServerContext<'_>) -> bool {
        let (at_once, lingers_ns) = around.behavior.lingering;
        self.ended_ns
            .retain(|&ended_ns| ended_ns + lingers_ns > around.now_ns);
        at_once > 0 && self.paths.len() + self.ended_ns.len() >= at_once
    }

    /// Does nothing about a stream, and does not say so.
    fn ignore(&mut self, stream: StreamKey) {
        self.connection
            .reset(stream, &mut Vec::new(), ErrorCode::NoError);
    }

    fn message(
        &mut self,
        stream: StreamKey,
        last: bool,
        payload: Vec<u8>,
        around: &mut ServerContext<'_>,
    ) {
        let Some(path) = self.paths.get(&stream.id) else {
            return;
        };
        if path.starts_with("/grpc.health") {
            let is_watch = path.ends_with("Watch");
            return self.answer_health(stream, is_watch, around);
        }
        let (is_chat, is_silent) = (path == "/t.T/Chat", path == "/t.T/Silent");
        let is_head = path == "/t.T/Head";
        if !is_chat && chance(around.random, around.behavior.push_back) {
            around.server_counts.pushed_back += 1;
            let ms = match around.behavior.push_back_ms {
                0 => 20,
                ms => ms,
            };
            return self.push_back(stream, ms);
        }
        around.done.push(payload.clone());
        if is_silent {
            return;
        }
        if is_head {
            return write_head(&mut self.output, stream);
        }
        if is_chat {
            // The answers of a chat keep their order.
            let at_ns = around.now_ns + around.behavior.latency_ns;
            around.answer_at(at_ns, stream, AnswerKind::Chat, payload);
            if last {
                around.answer_at(at_ns, stream, AnswerKind::End, Vec::new());
            }
            return;
        }
        let mut answer = AnswerKind::Unary;
        if chance(around.random, around.behavior.unavailable) {
            around.server_counts.unavailable += 1;
            answer = AnswerKind::Unavailable;
        }
        let at_ns = around.now_ns + around.latency_ns();
        around.answer_at(at_ns, stream, answer, payload);
    }

    fn push_back(&mut self, stream: StreamKey, ms: u64) {
        let mut metadata = Metadata::new();
        let pushed = metadata.push_received(b"grpc-retry-pushback-ms", ms.to_string().as_bytes());
        pushed.expect("it is metadata");
        let status = Status::new(Code::Unavailable, "not now").with_metadata(metadata);
        self.connection.finish(stream, &mut self.output, &status);
        self.paths.remove(&stream.id);
    }

    fn answer_health(&mut self, stream: StreamKey, is_watch: bool, around: &mut ServerContext<'_>) {
        if around.behavior.is_health_silent {
            return;
        }
        let Some(is_serving) = around.behavior.is_serving else {
            let status = Status::unimplemented("no health here");
            return self.connection.finish(stream, &mut self.output, &status);
        };
        let message = vec![8, if is_serving { 1 } else { 2 }];
        let kind = match is_watch {
            true => AnswerKind::Watch,
            false => AnswerKind::Unary,
        };
        let at_ns = around.now_ns + around.behavior.health_latency_ns;
        around.answer_at(at_ns, stream, kind, message);
    }

    /// Tells those that watch.
    pub fn set_serving(&mut self, is_serving: bool) {
        let message = [8, if is_serving { 1 } else { 2 }];
        for stream in self.watchers.clone() {
            self.connection
                .send_message(stream, &mut self.output, |out| {
                    out.extend_from_slice(&message);
                });
        }
    }

    /// Sends an answer that is due.
    pub fn answer(&mut self, due: &Due, now_ns: u64) {
        let (stream, out) = (due.stream, &mut self.output);
        match due.answer {
            AnswerKind::Unary => self
                .connection
                .respond(stream, out, |out| out.extend_from_slice(&due.payload)),
            AnswerKind::Chat => self
                .connection
                .send_message(stream, out, |out| out.extend_from_slice(&due.payload)),
            AnswerKind::Watch => {
                self.connection
                    .send_message(stream, out, |out| out.extend_from_slice(&due.payload));
                self.watchers.push(stream);
            }
            AnswerKind::End => self.connection.finish(stream, out, &Status::OK),
            AnswerKind::Unavailable => {
                let status = Status::new(Code::Unavailable, "it broke");
                self.connection.finish(stream, out, &status);
            }
        }
        if !matches!(due.answer, AnswerKind::Chat | AnswerKind::Watch) {
            self.paths.remove(&stream.id);
            self.ended_ns.push(now_ns);
        }
        self.transmit(now_ns);
    }

    /// Begins a graceful end.
    pub fn drain(&mut self, now_ns: u64) {
        self.connection.drain(&mut self.output, now_ns);
    }

    pub fn transmit(&mut self, now_ns: u64) {
        self.connection.transmit(&mut self.output, now_ns);
    }
}

/// The head of a gRPC response alone: no server of ours sends it before a message.
fn write_head(out: &mut Vec<u8>, stream: StreamKey) {
    // `:status: 200` by its index, `content-type` by that of its name (RFC 7541, 6.1 and 6.2.2).
    let block = b"\x88\x0f\x10\x10application/grpc";
    // Length, HEADERS, END_HEADERS, stream (RFC 9113, 4.1 and 6.2).
    out.extend_from_slice(&[0, 0, block.len() as u8, 1, 4]);
    out.extend_from_slice(&stream.id.to_be_bytes());
    out.extend_from_slice(block);
}

pub fn chance(random: &mut Random, once_in: u64) -> bool {
    once_in > 0 && random.once_in(once_in)
}
