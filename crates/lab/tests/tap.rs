//! The tap between real sockets: bytes go through unchanged, and what is waited for is named.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use common::{Reply, RunningTap, Server, TIMEOUT, plan};
use lab::tap::{Bottleneck, Conditions, TapSummary, TimeUse, judge};
use lab::{Length, SameRequest};
use net::Address;

fn connect(address: &Address) -> TcpStream {
    let stream = TcpStream::connect(address.to_string()).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream
}

/// Bytes that are the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Writes in pieces of many sizes, then ends the own side, and returns what came.
fn converse(mut stream: TcpStream, sent: Vec<u8>, seed: usize) -> Vec<u8> {
    let mut writing = stream.try_clone().expect("a socket");
    let writer = thread::spawn(move || {
        let mut rest = sent.as_slice();
        let mut size = seed % 7 + 1;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(size.min(rest.len()));
            writing.write_all(piece).expect("the tap takes it");
            rest = after;
            size = size * 5 % 90_001 + 1;
        }
        writing.shutdown(Shutdown::Write).expect("it is connected");
    });
    let mut came = Vec::new();
    stream.read_to_end(&mut came).expect("all of it comes");
    writer.join().expect("it does not panic");
    came
}

#[test]
fn bytes_of_any_protocol_go_through_unchanged_in_both_directions() {
    let conditions = [
        Conditions::default(),
        Conditions {
            delay_ns: 3_000_000,
            ..Conditions::default()
        },
        Conditions {
            bandwidth: Some(40_000_000),
            packets_per_second: Some(100_000),
            ..Conditions::default()
        },
        // It would change SETTINGS of HTTP/2, and this is none.
        Conditions {
            stream_limit: Some(3),
            ..Conditions::default()
        },
    ];
    for (round, conditions) in conditions.into_iter().enumerate() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("bound").to_string();
        let target = address.parse().expect("an address");
        let accepting = thread::spawn(move || {
            // The tap itself looks whether somebody is there.
            let (probe, _) = listener.accept().expect("it listens");
            drop(probe);
            let serve = |connection: usize| {
                let (stream, _) = listener.accept().expect("it listens");
                thread::spawn(move || converse(stream, noise(99, 700_001), connection))
            };
            let threads: Vec<_> = (0..3).map(serve).collect();
            let came = threads.into_iter().map(|one| one.join().expect("no panic"));
            came.collect::<Vec<_>>()
        });
        let tap = RunningTap::before(&target, conditions);
        let clients: Vec<_> = (0..3)
            .map(|number| {
                let stream = connect(&tap.address);
                thread::spawn(move || converse(stream, noise(7, 900_003), number + 3))
            })
            .collect();
        for client in clients {
            let came = client.join().expect("no panic");
            assert_eq!(came.len(), 700_001, "round {round}");
            assert!(came == noise(99, 700_001), "round {round}");
        }
        for came in accepting.join().expect("no panic") {
            assert!(came == noise(7, 900_003), "round {round}");
        }
        let summary = tap.end();
        assert_eq!(summary.others.connections, 3, "round {round}");
        assert_eq!(summary.others.bytes_to_server, 3 * 900_003);
        assert_eq!(summary.others.bytes_to_client, 3 * 700_001);
        assert!(summary.others.unreadable.is_some());
        assert_eq!(
            summary.failed.values().sum::<u64>(),
            0,
            "{:?}",
            summary.failed
        );
    }
}

#[test]
fn a_client_that_goes_leaves_nothing_behind_and_a_server_that_is_gone_is_told() {
    let server = Server::echo();
    let tap = RunningTap::before(&server.address, Conditions::default());
    for _ in 0..2 {
        let stream = connect(&tap.address);
        drop(stream);
    }
    load(&server, &tap, 1, 100);
    let address = server.address.clone();
    drop(server);
    // What listened has gone: the next one is refused, and the client sees the end.
    let mut late = connect(&tap.address);
    assert_eq!(late.read(&mut [0; 8]).unwrap_or(0), 0);
    let summary = tap.end();
    assert_eq!(summary.totals.begun, 100);
    assert_eq!(
        (summary.totals.ended, summary.figures().most_open),
        (100, 1)
    );
    // What is written to somebody who has gone may be an error, too.
    let is_refusal = |reason: &&String| reason.contains("refused");
    let refusals: Vec<_> = summary.failed.keys().filter(is_refusal).collect();
    assert_eq!(refusals.len(), 1, "{:?} at {address}", summary.failed);
    assert_eq!(summary.failed[refusals[0]], 1, "{:?}", summary.failed);
}

/// Sends calls through the tap, one connection with so many in flight.
fn load(server: &Server, tap: &RunningTap, in_flight: usize, calls: u64) {
    let mut plan = plan(server, Length::Calls(calls));
    plan.address = tap.address.clone();
    plan.worker.in_flight = in_flight;
    let make = |_| SameRequest::new("/t.T/Echo".into(), b"hello".to_vec());
    let outcome = lab::run(&plan, make, &mut |_| true).expect("it connects");
    assert_eq!(outcome.tally.succeeded, calls);
}

fn bottleneck(summary: &TapSummary) -> Bottleneck {
    judge(summary).bottleneck
}

#[test]
fn a_slow_server_is_named_and_calls_behind_it_are_counted() {
    let server = Server::new(|asked| {
        thread::sleep(Duration::from_millis(5));
        Reply::Answer(asked.message.to_vec())
    });
    let tap = RunningTap::before(&server.address, Conditions::default());
    load(&server, &tap, 4, 60);
    let summary = tap.end();
    assert_eq!(
        bottleneck(&summary),
        Bottleneck::Server,
        "{:?}",
        judge(&summary)
    );
    assert_eq!(summary.totals.ended, 60);
    assert_eq!(summary.figures().most_open, 4);
    assert!(summary.figures().mean_open() > 2.0);
}

#[test]
fn a_client_that_thinks_between_its_calls_is_named() {
    let server = Server::echo();
    let tap = RunningTap::before(&server.address, Conditions::default());
    let options = client::ChannelOptions::default();
    let mut channel = client::Channel::connect(&tap.address, &options).expect("it listens");
    for _ in 0..30 {
        thread::sleep(Duration::from_millis(4));
        let called = channel.unary("/t.T/Echo", b"hello", &client::CallOptions::default());
        called.expect("it is served");
    }
    let summary = tap.end();
    assert_eq!(
        bottleneck(&summary),
        Bottleneck::Client,
        "{:?}",
        judge(&summary)
    );
    let gaps = summary
        .totals
        .gaps(TimeUse::NoCall)
        .expect("every use has gaps");
    assert!(
        gaps.value_at_quantile(0.5) >= 4_000_000 * 98 / 100,
        "{gaps:?}"
    );
}

#[test]
fn a_delay_of_the_tap_is_the_networks_and_a_limit_is_kept_by_the_client() {
    let server = Server::echo();
    let conditions = Conditions {
        delay_ns: 10_000_000,
        stream_limit: Some(2),
        ..Conditions::default()
    };
    let tap = RunningTap::before(&server.address, conditions);
    load(&server, &tap, 8, 40);
    let summary = tap.end();
    assert_eq!(
        bottleneck(&summary),
        Bottleneck::Network,
        "{:?}",
        judge(&summary)
    );
    let figures = summary.figures();
    assert_eq!((figures.limit, figures.most_open), (Some(2), 2));
    let server_ns = summary.totals.server_ns.value_at_quantile(0.5);
    assert!((9_900_000..60_000_000).contains(&server_ns), "{server_ns}");
}
