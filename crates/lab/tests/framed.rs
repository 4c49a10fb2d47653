//! Whole runs over baidu_std and SRPC in this process, against a server that does what a test says.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use client::{FramedProtocol, FramedStatus};
use common::{Server, plan};
use lab::{
    ConnectionMode, FailureKind, Length, LoadOutcome, LoadPlan, LoadRunError, Report, SameRequest,
    run,
};
use wire::framed::FramedServerConnection;
use wire::grpc::{Code, Status};
use wire::{Config, Event};

const BOTH: [FramedProtocol; 2] = [FramedProtocol::BaiduStd, FramedProtocol::Srpc];

/// What becomes of a call.
#[derive(Clone, Copy)]
enum Reply {
    Echo,
    Status(Code),
    /// Nothing, until the next call of the connection is answered.
    Nothing,
    /// These bytes, and the end of the connection.
    Bytes(&'static [u8]),
}

/// A server of one of the protocols. It ends with the test's process.
struct Framed {
    address: client::Address,
    connections: Arc<AtomicU64>,
    paths: Arc<Mutex<Vec<String>>>,
}

/// Decides by the number of the call, of all connections.
type Decide = fn(u64) -> Reply;

impl Framed {
    fn new(protocol: FramedProtocol, decide: Decide) -> Framed {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let server = Framed {
            address: address.parse().expect("an address of the system is valid"),
            connections: Arc::default(),
            paths: Arc::default(),
        };
        let calls = Arc::new(AtomicU64::new(0));
        let (connections, paths) = (server.connections.clone(), server.paths.clone());
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                connections.fetch_add(1, SeqCst);
                let (calls, paths) = (calls.clone(), paths.clone());
                thread::spawn(move || serve(socket, protocol, decide, &calls, &paths));
            }
        });
        server
    }

    fn plan(&self, protocol: FramedProtocol, calls: u64) -> LoadPlan {
        let unused = Server::echo();
        let mut plan = plan(&unused, Length::Calls(calls));
        plan.address = self.address.clone();
        plan.framed = Some(protocol);
        if protocol == FramedProtocol::Srpc {
            plan.worker.mode = ConnectionMode::Exclusive;
        }
        plan
    }
}

fn serve(
    mut socket: TcpStream,
    protocol: FramedProtocol,
    decide: Decide,
    calls: &AtomicU64,
    paths: &Mutex<Vec<String>>,
) {
    socket.set_nodelay(true).expect("connected");
    let mut connection = FramedServerConnection::new(protocol, &Config::server(), 0);
    let (mut input, mut out, mut buffer) = (Vec::new(), Vec::new(), [0; 16 << 10]);
    loop {
        let mut consumed = 0;
        while let Some(event) = connection.poll_event(&input, &mut consumed, &mut out, 0) {
            match event {
                Event::Request { .. } => {
                    let path = String::from_utf8_lossy(connection.head().path()).into_owned();
                    paths.lock().expect("nobody panics with it").push(path);
                }
                Event::Message { stream, .. } => {
                    let message = connection.take_message();
                    let bytes = message.bytes(&input).to_vec();
                    connection.give_back(message);
                    match decide(calls.fetch_add(1, SeqCst)) {
                        Reply::Echo => {
                            connection.respond(stream, &mut out, |out| out.extend(&bytes));
                        }
                        Reply::Status(code) => {
                            connection.finish(stream, &mut out, &Status::new(code, "as asked"));
                        }
                        Reply::Nothing => {}
                        Reply::Bytes(bytes) => {
                            let _ = socket.write_all(bytes);
                            return;
                        }
                    }
                }
                Event::Cancelled { stream, .. } => connection.forget(stream),
                _ => {}
            }
        }
        input.drain(..consumed);
        if socket.write_all(&out).is_err() || connection.close_reason().is_some() {
            return;
        }
        out.clear();
        match socket.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => input.extend_from_slice(&buffer[..count]),
        }
    }
}

fn echo() -> SameRequest {
    SameRequest::new("/t.T/Echo".into(), b"ping".to_vec()).answered_by(b"ping".to_vec())
}

fn outcome(plan: &LoadPlan) -> LoadOutcome {
    run(plan, |_| echo(), &mut |_| true).expect("the server is there")
}

#[test]
fn a_run_of_so_many_calls_makes_and_counts_each() {
    for protocol in BOTH {
        let server = Framed::new(protocol, |_| Reply::Echo);
        let mut plan = server.plan(protocol, 1_000);
        plan.connections = 3;
        if protocol == FramedProtocol::BaiduStd {
            plan.worker.in_flight = 50;
        }
        let outcome = outcome(&plan);
        let tally = &outcome.tally;
        assert_eq!(
            (tally.succeeded, tally.failures(), tally.unfinished),
            (1_000, 0, 0)
        );
        assert_eq!(
            (outcome.counters.begun, outcome.counters.ended),
            (1_000, 1_000)
        );
        assert_eq!(server.connections.load(SeqCst), 3);
        let paths = server.paths.lock().expect("nobody panics with it");
        assert!(paths.len() == 1_000 && paths.iter().all(|path| path == "/t.T/Echo"));
        drop(paths);
        let report = Report::new("echo".into(), &plan, outcome, 1);
        let (name, fields) = (report.text(), report.fields());
        let over = match protocol {
            FramedProtocol::BaiduStd => "baidu_std",
            FramedProtocol::Srpc => "srpc",
        };
        assert!(name.contains(&format!(" over {over}: ")), "{name}");
        assert_eq!(fields["protocol"], over);
        assert!(fields["mean_us"].as_f64() > Some(0.0));
    }
}

#[test]
fn a_short_connection_has_one_call() {
    for protocol in BOTH {
        let server = Framed::new(protocol, |_| Reply::Echo);
        let mut plan = server.plan(protocol, 20);
        plan.worker.mode = ConnectionMode::Short;
        plan.connections = 2;
        assert_eq!(outcome(&plan).tally.succeeded, 20);
        assert_eq!(server.connections.load(SeqCst), 20);
    }
}

#[test]
fn errors_are_counted_by_their_codes_and_the_connection_goes_on() {
    for protocol in BOTH {
        let decide = |number| match number % 4 {
            0 => Reply::Status(Code::Unimplemented),
            1 => Reply::Status(Code::InvalidArgument),
            _ => Reply::Echo,
        };
        let server = Framed::new(protocol, decide);
        let tally = outcome(&server.plan(protocol, 40)).tally;
        let kinds = match protocol {
            FramedProtocol::BaiduStd => [1002, 1003].map(FramedStatus::baidu_std),
            FramedProtocol::Srpc => [3, 12].map(FramedStatus::srpc),
        };
        let failed = kinds.map(|status| (FailureKind::FramedError(status), 10));
        assert_eq!((tally.succeeded, &tally.failed[..]), (20, &failed[..]));
        let first = match protocol {
            FramedProtocol::BaiduStd => {
                "ENOMETHOD (1002), the method does not exist over this protocol: [E1002]as asked"
            }
            FramedProtocol::Srpc => {
                "METHOD_NOT_FOUND (3): the method does not exist over this protocol"
            }
        };
        assert_eq!(tally.first_failure.as_deref(), Some(first));
        assert_eq!((tally.reconnects, server.connections.load(SeqCst)), (0, 1));
    }
}

/// Where one call at a time goes over a connection, one that was given up ends it; where several
/// do, the others go on.
#[test]
fn a_call_whose_deadline_passes_ends_once() {
    for (protocol, mode) in [
        (FramedProtocol::BaiduStd, ConnectionMode::Multiplexed),
        (FramedProtocol::BaiduStd, ConnectionMode::Exclusive),
        (FramedProtocol::Srpc, ConnectionMode::Exclusive),
    ] {
        let decide = |number| match number {
            3 => Reply::Nothing,
            _ => Reply::Echo,
        };
        let server = Framed::new(protocol, decide);
        let mut plan = server.plan(protocol, 10);
        plan.worker.mode = mode;
        plan.worker.deadline_ns = Some(200_000_000);
        let tally = outcome(&plan).tally;
        assert_eq!((tally.succeeded, tally.unfinished), (9, 0));
        assert_eq!(tally.failed, [(FailureKind::DeadlineExceeded, 1)]);
        let is_alone = mode == ConnectionMode::Exclusive;
        assert_eq!(server.connections.load(SeqCst), 1 + u64::from(is_alone));
    }
}

/// Each call that was under way is counted once, with what is known of the reason.
#[test]
fn a_connection_that_ends_fails_its_calls_once_and_is_made_again() {
    const CUT: &[u8] = b"";
    // The correlation id of no call.
    const FOREIGN: &[u8] = b"PRPC\0\0\0\x06\0\0\0\x06\x12\x02\x08\0\x20\x09";
    let cases: [(Decide, &str); 2] = [
        (
            |number| {
                if number == 0 {
                    Reply::Bytes(CUT)
                } else {
                    Reply::Echo
                }
            },
            "the server closed",
        ),
        (
            |number| {
                if number == 0 {
                    Reply::Bytes(FOREIGN)
                } else {
                    Reply::Echo
                }
            },
            "correlation id of no call",
        ),
    ];
    for (decide, says) in cases {
        let server = Framed::new(FramedProtocol::BaiduStd, decide);
        let mut plan = server.plan(FramedProtocol::BaiduStd, 30);
        plan.worker.in_flight = 5;
        let tally = outcome(&plan).tally;
        assert_eq!((tally.succeeded, tally.unfinished), (25, 0), "{says}");
        assert_eq!(tally.failed, [(FailureKind::ConnectionLost, 5)]);
        let first = tally.first_failure.unwrap_or_default();
        assert!(first.contains(says), "{first}");
        assert_eq!(server.connections.load(SeqCst), 2);
    }
}

const HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";
// RFC 8446 section 6: a fatal alert, unexpected_message.
const TLS_ALERT: &[u8] = b"\x15\x03\x03\0\x02\x02\x0a";

/// Neither protocol has a greeting: what the server speaks is seen by its first response, when the
/// load has begun.
#[test]
fn a_server_of_another_protocol_ends_the_run_at_its_first_response() {
    use ConnectionMode::{Exclusive, Multiplexed, Short};
    use FramedProtocol::{BaiduStd, Srpc};
    let cases: [(Decide, &str); 2] = [
        (|_| Reply::Bytes(HTTP), "the server speaks HTTP/1.1"),
        (|_| Reply::Bytes(TLS_ALERT), client::SERVER_SPEAKS_TLS),
    ];
    let modes = [
        (BaiduStd, Multiplexed),
        (BaiduStd, Exclusive),
        (BaiduStd, Short),
        (Srpc, Exclusive),
        (Srpc, Short),
    ];
    for (decide, says) in cases {
        for (protocol, mode) in modes {
            for length in [Length::Calls(1), Length::Duration(Duration::from_secs(600))] {
                let server = Framed::new(protocol, decide);
                let mut plan = server.plan(protocol, 1);
                plan.length = length;
                plan.worker.mode = mode;
                plan.connections = 3;
                let error = run(&plan, |_| echo(), &mut |_| true).expect_err(says);
                let text = error.to_string();
                assert!(
                    matches!(error, LoadRunError::Connect(_)),
                    "{mode:?}: {text}"
                );
                let is_named = text.ends_with(says) || text.contains(&format!("{says}, "));
                assert!(is_named, "{mode:?}: {text}");
                assert!(server.connections.load(SeqCst) <= 3, "none is made again");
            }
        }
    }
}

/// What was measured before is worth more than the end of the run.
#[test]
fn another_protocol_fails_a_call_only_where_calls_have_succeeded() {
    let decide = |number| match number {
        1 => Reply::Bytes(b""),
        2 => Reply::Bytes(HTTP),
        _ => Reply::Echo,
    };
    let server = Framed::new(FramedProtocol::BaiduStd, decide);
    let mut plan = server.plan(FramedProtocol::BaiduStd, 10);
    plan.worker.in_flight = 1;
    let tally = outcome(&plan).tally;
    assert_eq!((tally.succeeded, tally.unfinished), (8, 0));
    assert_eq!(tally.failed, [(FailureKind::ConnectionLost, 2)]);
    assert_eq!(server.connections.load(SeqCst), 3);
}

#[test]
fn an_answer_of_another_kind_is_a_failure() {
    let server = Framed::new(FramedProtocol::BaiduStd, |_| Reply::Echo);
    let plan = server.plan(FramedProtocol::BaiduStd, 5);
    let other = || echo().answered_by(b"pong".to_vec());
    let tally = run(&plan, |_| other(), &mut |_| true)
        .expect("it runs")
        .tally;
    assert_eq!(tally.failed, [(FailureKind::WrongValue, 5)]);
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = port.local_addr().expect("it is bound").to_string();
    drop(port);
    let server = Framed::new(FramedProtocol::Srpc, |_| Reply::Echo);
    let mut plan = server.plan(FramedProtocol::Srpc, 1);
    plan.address = address.parse().expect("an address of the system is valid");
    plan.connect_timeout = Duration::from_secs(5);
    let error = run(&plan, |_| echo(), &mut |_| true).expect_err("nobody listens");
    assert!(matches!(error, LoadRunError::Connect(_)), "{error}");
}
