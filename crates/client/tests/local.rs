//! The local face against `wire`'s server role.

mod common;
#[path = "common/face.rs"]
mod face;

use std::net::TcpStream;
use std::time::Duration;

use client::{CallStart, Code, ConnectError, Local, LocalOptions};
use common::{by_path, listen, serve_all};
use face::{Face, Heard};

#[test]
fn calls_of_a_turn_share_one_write() {
    let (address, server) = serve_all(by_path, 2);
    let mut face = Face::new(&address);
    let channels = [face.connect(), face.connect()];
    face.turn_quiet();
    let before = face.local.counters();
    for tag in 0..200 {
        face.begin(
            channels[tag as usize % 2],
            tag,
            "/t.T/Echo",
            &tag.to_be_bytes(),
        );
    }
    face.local.flush(Face::now_ns());
    let after = face.local.counters();
    assert_eq!(after.writes - before.writes, 2, "one for each connection");
    assert_eq!(after.begun - before.begun, 200);
    let mut ended = 0;
    while ended < 200 {
        face.turn();
        ended = face
            .heard
            .iter()
            .filter(|heard| matches!(heard, Heard::Ok(..)))
            .count();
    }
    for tag in 0..200_u64 {
        let message = Heard::Message(tag, tag.to_be_bytes().to_vec());
        assert_eq!(
            face.heard.iter().filter(|heard| **heard == message).count(),
            1
        );
        assert_eq!(
            face.heard
                .iter()
                .filter(|heard| **heard == Heard::Ok(tag, 1))
                .count(),
            1
        );
    }
    assert_eq!(face.local.counters().ended, 200);
    drop(face);
    server.join().expect("it ends with the connections");
}

#[test]
fn every_end_is_told_once() {
    let (address, server) = serve_all(by_path, 1);
    let mut face = Face::new(&address);
    let channel = face.connect();
    face.begin(channel, 1, "/t.T/Fail", b"");
    face.begin(channel, 2, "/t.T/Refuse", b"");
    face.begin(channel, 3, "/t.T/None", b"x");
    face.begin(channel, 4, "/t.T/Stream", b"123");
    face.begin_within(channel, 5, "/t.T/Silent", b"", Some(20_000_000));
    let cancelled = face.begin(channel, 6, "/t.T/Silent", b"");
    face.local.cancel(cancelled);
    face.begin(channel, 7, "/t.T/Silent", b"x");
    for expected in [
        Heard::Failed(1, Code::ResourceExhausted),
        Heard::NotBegun(2),
        Heard::Ok(3, 0),
        Heard::Ok(4, 3),
        Heard::DeadlineExceeded(5),
    ] {
        face.until(|heard| *heard == expected);
    }
    assert_eq!(face.local.counters().ended, 6);
    face.local.close_channel(channel);
    assert_eq!(face.local.room(channel), 0);
    face.turn_quiet();
    let about = |tag: u64| {
        face.heard
            .iter()
            .filter(move |heard| match heard {
                Heard::Ok(it, _) | Heard::Failed(it, _) | Heard::Lost(it) => *it == tag,
                _ => false,
            })
            .count()
    };
    assert_eq!(about(6) + about(7), 0, "{:?}", face.heard);
    assert_eq!(face.local.counters().ended, 7);
    drop(face);
    server.join().expect("it ends with the connection");
}

#[test]
fn streams_go_both_ways() {
    let (address, server) = serve_all(by_path, 1);
    let mut face = Face::new(&address);
    let channel = face.connect();
    let start = CallStart {
        path: "/t.T/Chat",
        timeout_ns: None,
        metadata: None,
    };
    let call = face
        .local
        .begin_streaming(channel, 9, &start, Face::now_ns())
        .expect("there is room");
    for number in 0..3_u8 {
        assert!(face.local.can_send(call));
        face.local.send(call, false, |out| out.push(number));
        face.until(|heard| *heard == Heard::Message(9, vec![number]));
    }
    // More than the server's window takes: it is told when there is room again.
    let large = vec![1; 3 << 20];
    face.local
        .send(call, false, |out| out.extend_from_slice(&large));
    assert!(!face.local.can_send(call));
    face.until(|heard| *heard == Heard::Writable(9));
    face.local.send(call, true, |out| out.push(9));
    face.until(|heard| *heard == Heard::Ok(9, 5));
    drop(face);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_connection_that_ends_takes_its_calls_with_it() {
    let (address, listener) = listen();
    let mut face = Face::new(&address);
    let channel = face
        .local
        .open_channel(Face::now_ns())
        .expect("there is room");
    let (peer, _) = listener.accept().expect("it connects");
    // Empty SETTINGS of a server that then says no more.
    std::io::Write::write_all(&mut &peer, &[0, 0, 0, 4, 0, 0, 0, 0, 0]).expect("connected");
    face.until(|heard| *heard == Heard::Connected(channel));
    face.begin(channel, 1, "/t.T/Echo", b"x");
    face.turn_quiet();
    drop(peer);
    face.until(|heard| *heard == Heard::Lost(1));
    face.until(|heard| matches!(heard, Heard::Disconnected(it, _) if *it == channel));
    let lost = face
        .heard
        .iter()
        .position(|heard| *heard == Heard::Lost(1))
        .expect("heard");
    let gone = face
        .heard
        .iter()
        .position(|heard| matches!(heard, Heard::Disconnected(..)))
        .expect("heard");
    assert!(lost < gone, "first the calls: {:?}", face.heard);
    let again = face
        .local
        .open_channel(Face::now_ns())
        .expect("there is room");
    assert_eq!(again.slot, channel.slot);
    assert_ne!(again, channel, "the name is not given again");
}

#[test]
fn failures_to_connect_are_told() {
    let (address, listener) = listen();
    drop(listener);
    let mut face = Face::new(&address);
    let channel = face.local.open_channel(Face::now_ns()).expect("room");
    let told = face.until(|heard| matches!(heard, Heard::Disconnected(it, _) if *it == channel));
    assert!(format!("{told:?}").contains("nobody listens"), "{told:?}");

    let mut face = Face::new(&"unix:/nowhere/at/all.sock".parse().expect("an address"));
    let channel = face.local.open_channel(Face::now_ns()).expect("room");
    let told = face.until(|heard| matches!(heard, Heard::Disconnected(it, _) if *it == channel));
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
    let mut face = Face {
        local: Local::new(&address, options).expect("the address is known"),
        heard: Vec::new(),
    };
    let channel = face.local.open_channel(Face::now_ns()).expect("room");
    let told = face.until(|heard| matches!(heard, Heard::Disconnected(it, _) if *it == channel));
    assert!(
        format!("{told:?}").contains("no answer in time"),
        "{told:?}"
    );
}

#[test]
fn another_protocol_is_named() {
    let (address, listener) = listen();
    let mut face = Face::new(&address);
    let channel = face.local.open_channel(Face::now_ns()).expect("room");
    let (peer, _): (TcpStream, _) = listener.accept().expect("it connects");
    peer.set_write_timeout(Some(Duration::from_secs(5)))
        .expect("a socket");
    std::io::Write::write_all(&mut &peer, b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("connected");
    let told = face.until(|heard| matches!(heard, Heard::Disconnected(it, _) if *it == channel));
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
