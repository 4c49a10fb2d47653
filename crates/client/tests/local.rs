//! `Local` against `wire`'s server role.

mod common;
#[path = "common/local_client.rs"]
mod local_client;

use std::net::TcpStream;
use std::time::Duration;

use client::{CallStart, Code, ConnectError, Local, LocalOptions};
use common::{by_path, listen, serve_all};
use local_client::{LocalClient, Reported};

#[test]
fn calls_of_a_turn_share_one_write() {
    let (address, server) = serve_all(by_path, 2);
    let mut local_client = LocalClient::new(&address);
    let channels = [local_client.connect(), local_client.connect()];
    local_client.turn_quiet();
    let before = local_client.local.counters(net::monotonic_ns());
    for tag in 0..200 {
        local_client.begin(
            channels[tag as usize % 2],
            tag,
            "/t.T/Echo",
            &tag.to_be_bytes(),
        );
    }
    local_client.local.flush(LocalClient::now_ns());
    let after = local_client.local.counters(net::monotonic_ns());
    assert_eq!(after.writes - before.writes, 2, "one for each connection");
    assert_eq!(after.begun - before.begun, 200);
    let mut ended = 0;
    while ended < 200 {
        local_client.turn();
        ended = local_client
            .reported
            .iter()
            .filter(|reported| matches!(reported, Reported::Ok(..)))
            .count();
    }
    for tag in 0..200_u64 {
        let message = Reported::Message(tag, tag.to_be_bytes().to_vec());
        assert_eq!(
            local_client
                .reported
                .iter()
                .filter(|reported| **reported == message)
                .count(),
            1
        );
        assert_eq!(
            local_client
                .reported
                .iter()
                .filter(|reported| **reported == Reported::Ok(tag, 1))
                .count(),
            1
        );
    }
    assert_eq!(local_client.local.counters(net::monotonic_ns()).ended, 200);
    drop(local_client);
    server.join().expect("it ends with the connections");
}

#[test]
fn every_end_is_told_once() {
    let (address, server) = serve_all(by_path, 1);
    let mut local_client = LocalClient::new(&address);
    let channel = local_client.connect();
    local_client.begin(channel, 1, "/t.T/Fail", b"");
    local_client.begin(channel, 2, "/t.T/Refuse", b"");
    local_client.begin(channel, 3, "/t.T/None", b"x");
    local_client.begin(channel, 4, "/t.T/Stream", b"123");
    local_client.begin_within(channel, 5, "/t.T/Silent", b"", Some(20_000_000));
    let cancelled = local_client.begin(channel, 6, "/t.T/Silent", b"");
    local_client.local.cancel(cancelled);
    local_client.begin(channel, 7, "/t.T/Silent", b"x");
    for expected in [
        Reported::Failed(1, Code::ResourceExhausted),
        Reported::NotBegun(2),
        Reported::Ok(3, 0),
        Reported::Ok(4, 3),
        Reported::DeadlineExceeded(5),
    ] {
        local_client.until(|reported| *reported == expected);
    }
    assert_eq!(local_client.local.counters(net::monotonic_ns()).ended, 6);
    local_client.local.close_channel(channel);
    assert_eq!(local_client.local.room(channel), 0);
    local_client.turn_quiet();
    let about = |tag: u64| {
        local_client
            .reported
            .iter()
            .filter(move |reported| match reported {
                Reported::Ok(it, _) | Reported::Failed(it, _) | Reported::Lost(it) => *it == tag,
                _ => false,
            })
            .count()
    };
    assert_eq!(about(6) + about(7), 0, "{:?}", local_client.reported);
    assert_eq!(local_client.local.counters(net::monotonic_ns()).ended, 7);
    drop(local_client);
    server.join().expect("it ends with the connection");
}

#[test]
fn streams_go_both_ways() {
    let (address, server) = serve_all(by_path, 1);
    let mut local_client = LocalClient::new(&address);
    let channel = local_client.connect();
    let start = CallStart {
        path: "/t.T/Chat",
        timeout_ns: None,
        metadata: None,
    };
    let call = local_client
        .local
        .begin_streaming(channel, 9, &start, LocalClient::now_ns())
        .expect("there is room");
    for number in 0..3_u8 {
        assert!(local_client.local.can_send(call));
        local_client.local.send(call, false, |out| out.push(number));
        local_client.until(|reported| *reported == Reported::Message(9, vec![number]));
    }
    // More than the server's window takes: it is told when there is room again.
    let large = vec![1; 3 << 20];
    local_client
        .local
        .send(call, false, |out| out.extend_from_slice(&large));
    assert!(!local_client.local.can_send(call));
    local_client.until(|reported| *reported == Reported::Writable(9));
    local_client.local.send(call, true, |out| out.push(9));
    local_client.until(|reported| *reported == Reported::Ok(9, 5));
    drop(local_client);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_connection_that_ends_takes_its_calls_with_it() {
    let (address, listener) = listen();
    let mut local_client = LocalClient::new(&address);
    let channel = local_client
        .local
        .open_channel(LocalClient::now_ns())
        .expect("there is room");
    let (peer, _) = listener.accept().expect("it connects");
    // Empty SETTINGS of a server that then says no more.
    std::io::Write::write_all(&mut &peer, &[0, 0, 0, 4, 0, 0, 0, 0, 0]).expect("connected");
    local_client.until(|reported| *reported == Reported::Connected(channel));
    local_client.begin(channel, 1, "/t.T/Echo", b"x");
    local_client.turn_quiet();
    drop(peer);
    local_client.until(|reported| *reported == Reported::Lost(1));
    local_client
        .until(|reported| matches!(reported, Reported::Disconnected(it, _) if *it == channel));
    let lost = local_client
        .reported
        .iter()
        .position(|reported| *reported == Reported::Lost(1))
        .expect("reported");
    let gone = local_client
        .reported
        .iter()
        .position(|reported| matches!(reported, Reported::Disconnected(..)))
        .expect("reported");
    assert!(lost < gone, "first the calls: {:?}", local_client.reported);
    let again = local_client
        .local
        .open_channel(LocalClient::now_ns())
        .expect("there is room");
    assert_eq!(again.slot, channel.slot);
    assert_ne!(again, channel, "the name is not given again");
}

#[test]
fn failures_to_connect_are_told() {
    let (address, listener) = listen();
    drop(listener);
    let mut local_client = LocalClient::new(&address);
    let channel = local_client
        .local
        .open_channel(LocalClient::now_ns())
        .expect("room");
    let told = local_client
        .until(|reported| matches!(reported, Reported::Disconnected(it, _) if *it == channel));
    assert!(format!("{told:?}").contains("nobody listens"), "{told:?}");

    let mut local_client =
        LocalClient::new(&"unix:/nowhere/at/all.sock".parse().expect("an address"));
    let channel = local_client
        .local
        .open_channel(LocalClient::now_ns())
        .expect("room");
    let told = local_client
        .until(|reported| matches!(reported, Reported::Disconnected(it, _) if *it == channel));
    assert!(format!("{told:?}").contains("nobody listens"), "{told:?}");

    let unknown = "no-such-host.invalid:1".parse().expect("an address");
    let error = Local::new(&unknown, LocalOptions::default()).expect_err("nobody has this name");
    assert!(
        matches!(error, ConnectError::UnknownHost { .. }),
        "{error:?}"
    );
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let (address, _listener) = listen();
    let options = LocalOptions {
        connect_timeout_ns: 50_000_000,
        ..LocalOptions::default()
    };
    let mut local_client = LocalClient {
        local: Local::new(&address, options).expect("the address is known"),
        reported: Vec::new(),
    };
    let channel = local_client
        .local
        .open_channel(LocalClient::now_ns())
        .expect("room");
    let told = local_client
        .until(|reported| matches!(reported, Reported::Disconnected(it, _) if *it == channel));
    assert!(
        format!("{told:?}").contains("no answer in time"),
        "{told:?}"
    );
}

#[test]
fn another_protocol_is_named() {
    let (address, listener) = listen();
    let mut local_client = LocalClient::new(&address);
    let channel = local_client
        .local
        .open_channel(LocalClient::now_ns())
        .expect("room");
    let (peer, _): (TcpStream, _) = listener.accept().expect("it connects");
    peer.set_write_timeout(Some(Duration::from_secs(5)))
        .expect("a socket");
    std::io::Write::write_all(&mut &peer, b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("connected");
    let told = local_client
        .until(|reported| matches!(reported, Reported::Disconnected(it, _) if *it == channel));
    assert!(format!("{told:?}").contains("HTTP/1.1"), "{told:?}");
}

#[test]
fn connections_are_bounded() {
    let (address, _listener) = listen();
    let options = LocalOptions {
        max_channels: 2,
        ..LocalOptions::default()
    };
    let mut local = Local::new(&address, options).expect("the address is known");
    let first = local.open_channel(0).expect("room");
    local.open_channel(0).expect("room");
    assert!(local.open_channel(0).is_err());
    local.close_channel(first);
    local.open_channel(0).expect("room again");
}
