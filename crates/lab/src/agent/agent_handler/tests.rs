//! An agent and its callers, without sockets, and with a time that the test says. What it looks at
//! is the process of the test.

use net::PeerAddress;
use wire::RequestHead;
use wire::grpc::Metadata;

use super::*;
use crate::agent::limits::{
    AGENT_CONNECTIONS, AGENT_LONGEST, AGENT_LOOK_PERCENT, AGENT_NEWCOMERS, AGENT_PROOF_TIME,
    AGENT_REPORT_DELAY_MAX, AGENT_REPORT_PERCENT,
};
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

/// Those that it may touch, where there are several.
struct Several<'a>(HashMap<ConnectionId, &'a mut Io>);

impl Connections for Several<'_> {
    fn io(&mut self, id: ConnectionId) -> Option<&mut Io> {
        self.0.get_mut(&id).map(|io| &mut **io)
    }
}

struct Bench {
    agent: AgentHandler,
    now_ns: u64,
    next_slot: u32,
}

impl Bench {
    fn new(token: Option<Arc<Token>>) -> Bench {
        Bench::with_clock(token, Rc::new(thread_cpu_ns))
    }

    fn with_clock(token: Option<Arc<Token>>, clock: CpuClock) -> Bench {
        let own = AgentSubject::Process(std::process::id());
        Bench {
            agent: AgentHandler::with_clock(SystemFolders::default(), (own, token), clock),
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
            address: PeerAddress::Simulated(0),
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

    /// A turn of the loop in which these connections are there.
    fn tick(&mut self, callers: &mut [&mut Caller]) {
        let mut all = Several(
            callers
                .iter_mut()
                .map(|one| (one.id, &mut one.io))
                .collect(),
        );
        self.agent.tick(&mut all, self.now_ns);
    }

    /// So many connections are made on which nothing comes but what HTTP/2 wants.
    fn flood(&mut self, number: usize, held: &mut Vec<Caller>) {
        for _ in 0..number {
            let mut caller = self.connect(false);
            self.exchange(&mut caller);
            held.push(caller);
            self.now_ns += 1;
            self.tick(&mut held.iter_mut().collect::<Vec<_>>());
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
    let right = bearer(&token);
    let mut bench = Bench::new(Some(Arc::new(token)));
    let mut caller = bench.connect(false);
    let plain = AgentWatchRequest::default();
    caller.call(&RequestHead::call("agent", WATCH), &plain);
    let other = bearer(&Token::new([8; 32]));
    let mut head = RequestHead::call("agent", WATCH);
    head.metadata = Some(&other);
    caller.call(&head, &plain);
    bench.exchange(&mut caller);
    assert_eq!(caller.codes(), [Code::Unauthenticated; 2]);
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
    assert!(third.io.is_closing(), "all others are in use");
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

fn bearer(token: &Token) -> Metadata {
    let mut metadata = Metadata::new();
    let pushed = metadata.push_ascii("authorization", format!("Bearer {}", &*token.text()));
    pushed.expect("it can be sent");
    metadata
}

#[test]
fn a_connection_without_a_valid_token_is_closed_in_time() {
    let token = Token::new([7; 32]);
    let (right, wrong) = (bearer(&token), bearer(&Token::new([8; 32])));
    let mut bench = Bench::new(Some(Arc::new(token)));
    let plain = AgentWatchRequest::default();
    let mut head = RequestHead::call("agent", WATCH);
    let proof_ns = AGENT_PROOF_TIME.as_nanos() as u64;
    for metadata in [None, Some(&wrong)] {
        let mut caller = bench.connect(false);
        head.metadata = metadata;
        for part in 1..=4 {
            // Whoever goes on to send gets no more time for that.
            assert!(!caller.io.is_closing(), "part {part}");
            caller.call(&head, &plain);
            bench.exchange(&mut caller);
            bench.wait(&mut caller, proof_ns / 4);
        }
        bench.wait(&mut caller, 1);
        assert!(caller.io.is_closing());
        assert_eq!(bench.agent.next_deadline_ns(), None, "it is forgotten");
    }
    let mut owner = bench.connect(false);
    head.metadata = Some(&right);
    let stream = owner.call(&head, &plain);
    bench.exchange(&mut owner);
    owner
        .wire
        .reset(stream, &mut owner.output, wire::ErrorCode::Cancel);
    bench.exchange(&mut owner);
    bench.wait(&mut owner, 10 * proof_ns);
    assert!(!owner.io.is_closing(), "it has shown its token");
}

#[test]
fn callers_without_a_token_do_not_keep_its_holder_out() {
    let token = Token::new([7; 32]);
    let right = bearer(&token);
    let mut bench = Bench::new(Some(Arc::new(token)));
    let mut held = Vec::new();
    bench.flood(2 * AGENT_NEWCOMERS, &mut held);
    let is_closing = |caller: &&Caller| caller.io.is_closing();
    assert_eq!(held.iter().filter(is_closing).count(), AGENT_NEWCOMERS);
    let mut owner = bench.connect(false);
    let mut head = RequestHead::call("agent", WATCH);
    head.metadata = Some(&right);
    owner.call(&head, &AgentWatchRequest::default());
    // As many as there may be come after it, before what it sends is read.
    held.extend((0..AGENT_NEWCOMERS).map(|_| bench.connect(false)));
    bench.exchange(&mut owner);
    // They go on while it watches.
    bench.flood(2 * AGENT_NEWCOMERS, &mut held);
    bench.now_ns += SECOND_NS;
    bench.tick(&mut [&mut owner]);
    bench.exchange(&mut owner);
    assert_eq!(owner.reports.len(), 1, "{:?}", owner.ends);
    assert!(!owner.io.is_closing());
}

/// Where the system allows fewer connections than the agent would keep.
#[test]
fn a_newcomer_gives_way_where_the_system_is_full() {
    let mut bench = Bench::new(None);
    let mut idle = bench.connect(false);
    let mut owner = bench.connect(true);
    assert!(!owner.io.is_closing());
    owner.watch(0);
    bench.exchange(&mut owner);
    bench.tick(&mut [&mut idle, &mut owner]);
    assert!(idle.io.is_closing());
    bench.wait(&mut owner, SECOND_NS);
    assert_eq!(owner.reports.len(), 1);
}

#[test]
fn of_too_many_proven_connections_an_idle_one_is_closed() {
    let mut bench = Bench::new(None);
    let mut all: Vec<Caller> = Vec::new();
    for number in 0..=AGENT_CONNECTIONS {
        let mut caller = bench.connect(false);
        let stream = caller.watch(0);
        bench.exchange(&mut caller);
        if number > 0 {
            let cancel = wire::ErrorCode::Cancel;
            caller.wire.reset(stream, &mut caller.output, cancel);
            bench.exchange(&mut caller);
        }
        all.push(caller);
        bench.now_ns += 1;
    }
    bench.tick(&mut all.iter_mut().collect::<Vec<_>>());
    let closed: Vec<u32> = (all.iter().filter(|one| one.io.is_closing()))
        .map(|one| one.id.slot)
        .collect();
    assert_eq!(closed, [1], "the first one watches");
}

/// A process with many threads: each look and each report costs so much.
#[test]
fn looks_and_reports_take_their_share_of_a_cpu() {
    const COST_NS: u64 = 10_000_000;
    let used_ns = Rc::new(std::cell::Cell::new(0_u64));
    let clock: CpuClock = {
        let used_ns = used_ns.clone();
        // It is asked before and after.
        Rc::new(move || {
            used_ns.set(used_ns.get() + COST_NS);
            used_ns.get()
        })
    };
    let mut bench = Bench::with_clock(None, clock);
    let mut caller = bench.connect(false);
    for _ in 0..AGENT_WATCHES {
        caller.watch(50);
    }
    bench.exchange(&mut caller);
    bench.wait(&mut caller, 20 * SECOND_NS);
    let shares = u64::from(AGENT_LOOK_PERCENT + AGENT_REPORT_PERCENT);
    let spent_ns = used_ns.get() / 2;
    let first_ns = 2 * AGENT_WATCHES as u64 * COST_NS;
    assert!(
        spent_ns <= 20 * SECOND_NS * shares / 100 + first_ns,
        "{spent_ns}"
    );
    // 5 % of 20 seconds.
    let reports = caller.reports.len();
    assert!((90..=104).contains(&reports), "{reports}");
    assert!(caller.ends.is_empty());
}

/// Whoever waits for a report does not take the agent for gone.
#[test]
fn a_report_is_late_by_a_second_at_most() {
    let used_ns = Rc::new(std::cell::Cell::new(0_u64));
    let clock: CpuClock = {
        let used_ns = used_ns.clone();
        Rc::new(move || {
            used_ns.set(used_ns.get() + 10 * SECOND_NS);
            used_ns.get()
        })
    };
    let mut bench = Bench::with_clock(None, clock);
    let mut caller = bench.connect(false);
    caller.watch(50);
    bench.exchange(&mut caller);
    bench.wait(&mut caller, 10 * SECOND_NS);
    let most_ns = AGENT_REPORT_DELAY_MAX.as_nanos() as u64;
    let is_near = |pair: &[u64]| pair[1] - pair[0] <= most_ns + 1_000_000;
    assert!(caller.reports.len() >= 9, "{:?}", caller.reports);
    assert!(
        caller.reports.windows(2).all(is_near),
        "{:?}",
        caller.reports
    );
}
