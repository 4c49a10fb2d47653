//! An agent and its callers, without sockets, and with a time that the test says. What it looks at
//! is the process of the test.

use net::PeerAddress;
use wire::RequestHead;
use wire::grpc::Metadata;

use super::*;
use crate::agent::limits::AGENT_LONGEST;
use api::agent::{AgentReport, AgentWatchRequest};

const WATCH: &str = "/pelton.lab.v1.Agent/Watch";
const SECOND_NS: u64 = 1_000_000_000;

struct Caller {
    id: ConnectionId,
    wire: Connection,
    io: Io,
    output: Vec<u8>,
    reports: Vec<u64>,
    ends: Vec<Status>,
}

/// The connection that a tick may touch.
struct One<'a>(ConnectionId, &'a mut Io);

impl Connections for One<'_> {
    fn io(&mut self, id: ConnectionId) -> Option<&mut Io> {
        (id == self.0).then_some(&mut *self.1)
    }
}

struct Bench {
    agent: AgentHandler,
    now_ns: u64,
    next_slot: u32,
}

impl Bench {
    fn new(token: Option<Arc<Token>>) -> Bench {
        let own = AgentSubject::Process(std::process::id());
        Bench {
            agent: AgentHandler::new(SystemFolders::default(), own, token),
            now_ns: 1,
            next_slot: 0,
        }
    }

    fn connect(&mut self, over_limit: bool) -> Caller {
        let id = ConnectionId {
            slot: self.next_slot,
            generation: 0,
        };
        self.next_slot += 1;
        let mut caller = Caller {
            id,
            wire: Connection::new(&Config::client(), self.now_ns),
            io: Io::new(),
            output: Vec::new(),
            reports: Vec::new(),
            ends: Vec::new(),
        };
        caller.wire.start(&mut caller.output);
        let peer = Peer {
            address: PeerAddress::Unix,
            listener: 0,
            outgoing: false,
            over_limit,
            place: None,
            handshake: None,
            tls: None,
            user: None,
        };
        self.agent.opened(id, &peer, &mut caller.io, self.now_ns);
        caller
    }

    /// Both sides go on until nothing moves.
    fn exchange(&mut self, caller: &mut Caller) {
        for _ in 0..6 {
            caller.wire.transmit(&mut caller.output, self.now_ns);
            caller.io.input.push(&std::mem::take(&mut caller.output));
            self.agent.received(caller.id, &mut caller.io, self.now_ns);
            caller.take(self.now_ns);
        }
    }

    /// Time passes, and what is due is done.
    fn wait(&mut self, caller: &mut Caller, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        while let Some(due_ns) = self.agent.next_deadline_ns().filter(|due| *due <= end_ns) {
            self.now_ns = due_ns.max(self.now_ns + 1);
            self.agent
                .tick(&mut One(caller.id, &mut caller.io), self.now_ns);
            self.exchange(caller);
        }
        self.now_ns = end_ns;
    }
}

impl Caller {
    fn call(&mut self, head: &RequestHead<'_>, request: &AgentWatchRequest) -> StreamKey {
        let stream = (self.wire.open(&mut self.output, head)).expect("there is room");
        let encode = |out: &mut Vec<u8>| request.encode(out);
        self.wire
            .send_last_message(stream, &mut self.output, encode);
        stream
    }

    fn watch(&mut self, interval_ms: u32) -> StreamKey {
        let cumulative = true;
        let request = AgentWatchRequest {
            interval_ms,
            cumulative,
        };
        self.call(&RequestHead::call("agent", WATCH), &request)
    }

    fn take(&mut self, now_ns: u64) {
        let input = std::mem::take(&mut self.io.output);
        let mut consumed = 0;
        while let Some(event) =
            (self.wire).poll_event(&input, &mut consumed, &mut self.output, now_ns)
        {
            match event {
                Event::Message { stream, .. } => {
                    let report = AgentReport::decode(self.wire.message(&input));
                    self.reports
                        .push(report.expect("it is a report").elapsed_ns);
                    self.wire.release(stream, &mut self.output);
                }
                Event::Finished { stream } => {
                    self.ends.push(self.wire.status().clone());
                    self.wire.forget(stream);
                }
                Event::Cancelled { stream, .. } => self.wire.forget(stream),
                _ => {}
            }
        }
        self.io.output = input[consumed..].to_vec();
    }

    fn codes(&mut self) -> Vec<Code> {
        self.ends.drain(..).map(|end| end.code()).collect()
    }
}

#[test]
fn reports_come_in_each_interval_about_the_time_since_the_call_or_the_last_one() {
    let mut bench = Bench::new(None);
    for round in 0..2 {
        let mut caller = bench.connect(false);
        let stream = caller.watch(100);
        bench.exchange(&mut caller);
        bench.wait(&mut caller, 350_000_000);
        let tenth_ns = 100_000_000;
        let nearly = |reports: &[u64]| -> Vec<u64> {
            reports
                .iter()
                .map(|ns| (ns + tenth_ns / 2) / tenth_ns)
                .collect()
        };
        assert_eq!(nearly(&caller.reports), [1, 2, 3], "round {round}");
        caller
            .wire
            .reset(stream, &mut caller.output, wire::ErrorCode::Cancel);
        bench.exchange(&mut caller);
        bench.wait(&mut caller, SECOND_NS);
        assert_eq!(caller.reports.len(), 3, "it was cancelled");
        caller.reports.clear();
        let request = AgentWatchRequest {
            interval_ms: 0,
            cumulative: false,
        };
        caller.call(&RequestHead::call("agent", WATCH), &request);
        bench.exchange(&mut caller);
        bench.wait(&mut caller, 2 * SECOND_NS + tenth_ns);
        assert_eq!(nearly(&caller.reports), [10, 10]);
        bench.agent.closed(caller.id, Closed::ByPeer, bench.now_ns);
        assert!(bench.agent.is_drained(), "nothing is left of it");
        assert_eq!(bench.agent.next_deadline_ns(), None);
    }
}

#[test]
fn a_call_that_is_not_allowed_or_makes_no_sense_is_refused() {
    let token = Token::new([7; 32]);
    let text = token.text();
    let mut bench = Bench::new(Some(Arc::new(token)));
    let mut caller = bench.connect(false);
    let plain = AgentWatchRequest::default();
    caller.call(&RequestHead::call("agent", WATCH), &plain);
    let with_token = |text: &str| {
        let mut metadata = Metadata::new();
        let pushed = metadata.push_ascii("authorization", format!("Bearer {text}"));
        pushed.expect("it can be sent");
        metadata
    };
    let other = with_token(&Token::new([8; 32]).text());
    let mut head = RequestHead::call("agent", WATCH);
    head.metadata = Some(&other);
    caller.call(&head, &plain);
    bench.exchange(&mut caller);
    assert_eq!(caller.codes(), [Code::Unauthenticated; 2]);
    let right = with_token(&text);
    head.metadata = Some(&right);
    for interval_ms in [1, 49, 60_001] {
        let cumulative = true;
        caller.call(
            &head,
            &AgentWatchRequest {
                interval_ms,
                cumulative,
            },
        );
    }
    head.path = "/pelton.lab.v1.Agent/Stop";
    caller.call(&head, &plain);
    bench.exchange(&mut caller);
    let mut codes = caller.codes();
    codes.sort_unstable_by_key(|code| *code as u32);
    let invalid = [Code::InvalidArgument; 3];
    assert_eq!(codes, [&invalid[..], &[Code::Unimplemented]].concat());
    // Without a request at all, and one that is no call.
    head.path = WATCH;
    let empty = (caller.wire.open(&mut caller.output, &head)).expect("there is room");
    caller.wire.close_send(empty, &mut caller.output);
    head.is_grpc = false;
    let page = (caller.wire.open(&mut caller.output, &head)).expect("there is room");
    caller.wire.close_send(page, &mut caller.output);
    bench.exchange(&mut caller);
    assert_eq!(
        caller.ends.first().map(Status::code),
        Some(Code::InvalidArgument)
    );
    assert!(bench.agent.is_drained(), "no call is left");
    // And after all that it watches.
    head.is_grpc = true;
    caller.call(&head, &plain);
    bench.exchange(&mut caller);
    bench.wait(&mut caller, SECOND_NS + 1);
    assert_eq!(caller.reports.len(), 1);
}

#[test]
fn a_fifth_watch_is_refused_until_there_is_room() {
    let mut bench = Bench::new(None);
    let mut first = bench.connect(false);
    let streams: Vec<_> = (0..AGENT_WATCHES).map(|_| first.watch(0)).collect();
    bench.exchange(&mut first);
    let mut second = bench.connect(false);
    for _ in 0..2 {
        second.watch(0);
        bench.exchange(&mut second);
        assert_eq!(second.codes(), [Code::ResourceExhausted]);
    }
    first
        .wire
        .reset(streams[0], &mut first.output, wire::ErrorCode::Cancel);
    bench.exchange(&mut first);
    second.watch(0);
    bench.exchange(&mut second);
    assert!(second.codes().is_empty());
    let mut third = bench.connect(true);
    assert!(third.io.is_closing(), "there are too many connections");
    third.watch(0);
    bench.exchange(&mut third);
    assert!(third.reports.is_empty());
}

#[test]
fn a_watch_ends_by_its_deadline_after_an_hour_and_with_the_agent() {
    let mut bench = Bench::new(None);
    let mut caller = bench.connect(false);
    let mut head = RequestHead::call("agent", WATCH);
    head.timeout_ns = Some(SECOND_NS / 2);
    caller.call(&head, &AgentWatchRequest::default());
    bench.exchange(&mut caller);
    bench.wait(&mut caller, SECOND_NS);
    assert_eq!(caller.codes(), [Code::DeadlineExceeded]);
    caller.watch(60_000);
    bench.exchange(&mut caller);
    bench.now_ns += AGENT_LONGEST.as_nanos() as u64;
    bench
        .agent
        .tick(&mut One(caller.id, &mut caller.io), bench.now_ns);
    bench.exchange(&mut caller);
    assert_eq!(caller.codes(), [Code::Ok]);
    let mut caller = bench.connect(false);
    caller.watch(0);
    bench.exchange(&mut caller);
    assert!(!bench.agent.is_drained());
    bench
        .agent
        .stop(&mut One(caller.id, &mut caller.io), bench.now_ns);
    bench.exchange(&mut caller);
    assert_eq!(caller.codes(), [Code::Unavailable]);
    assert!(bench.agent.is_drained());
}

#[test]
fn what_is_no_http2_ends_the_connection() {
    let mut bench = Bench::new(None);
    let mut caller = bench.connect(false);
    caller
        .io
        .input
        .push(b"GET / HTTP/1.1\r\nHost: agent\r\n\r\n");
    bench
        .agent
        .received(caller.id, &mut caller.io, bench.now_ns);
    assert!(caller.io.is_closing());
    let mut gone = bench.connect(false);
    gone.watch(0);
    bench.exchange(&mut gone);
    gone.io.set_end_of_input();
    bench.agent.received(gone.id, &mut gone.io, bench.now_ns);
    assert!(gone.io.is_closing());
    assert!(bench.agent.is_drained());
}
