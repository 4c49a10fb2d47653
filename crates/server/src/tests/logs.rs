//! What comes into the log of connections and calls, by how much is wanted of it.

use net::{Closed, ConnectionId, Handler};
use wire::Event;

use crate::pair::Pair;
use crate::settings::Detail;

/// A call of Echo that takes 10 ms, one that fails, one of a method that there is not, and the end
/// of the connection.
fn lines(detail: Detail) -> Vec<String> {
    let mut pair = Pair::accepted(false);
    pair.log_detail(detail);
    pair.accept(false);
    pair.greet();
    let slow = pair.call("/pelton.v1.Echo/Unary", &[0x18, 10]);
    pair.turn();
    for (path, message) in [
        ("/pelton.v1.KeyValue/Get", &[0xff][..]),
        ("/pelton.v1.KeyValue/Got", &[]),
    ] {
        let stream = pair.call(path, message);
        assert!(pair.turn().contains(&Event::Finished { stream }));
        pair.client.forget(stream);
    }
    pair.now_ns += 10_000_000;
    let events = [pair.turn(), pair.turn()].concat();
    assert!(events.contains(&Event::Finished { stream: slow }));
    pair.close();
    let said = pair.said.lock().expect("one thread");
    said.clone()
}

#[test]
fn connections_and_calls_come_into_the_log_as_far_as_they_are_wanted() {
    assert_eq!(lines(Detail::Usual), [""; 0]);
    let connections = lines(Detail::Connections);
    let begins = |lines: &[String], expected: &[&str]| {
        let pairs = lines.iter().zip(expected);
        let alike = pairs.filter(|(line, begin)| line.starts_with(**begin));
        assert_eq!(alike.count(), expected.len(), "{lines:?}");
        assert_eq!(lines.len(), expected.len(), "{lines:?}");
    };
    let failed = "pelton.v1.KeyValue/Get failed, InvalidArgument: ";
    let unknown = "/pelton.v1.KeyValue/Got failed, Unimplemented: there is no such method";
    let closed = "closed after 10000000 ns: the peer reset the connection";
    begins(&connections, &["opened", failed, unknown, closed]);
    begins(
        &lines(Detail::Calls),
        &[
            "opened",
            failed,
            "Get ended after 0 ns: InvalidArgument",
            unknown,
            "EchoUnary ended after 10000000 ns: Ok",
            closed,
        ],
    );
}

/// Refusals are failures, too; they are none of a call that ended.
#[test]
fn a_call_that_is_refused_comes_into_the_log() {
    let mut pair = Pair::open();
    pair.log_detail(Detail::Calls);
    // They are on their way when the server stops.
    for _ in 0..2 {
        pair.call("/pelton.v1.Echo/Unary", b"");
    }
    pair.stop();
    pair.turn();
    let said = pair.said.lock().expect("one thread");
    let line = "pelton.v1.Echo/Unary failed, Unavailable: the server is stopping";
    assert_eq!(said[..], [line; 2]);
}

/// Clients of gupload print a message of their own, so that the reason is in the log in any case.
#[test]
fn uploads_of_gupload_that_fail_always_come_into_the_log() {
    let mut pair = Pair::open();
    for (path, is_logged) in [
        ("/messaging.GuploadService/Upload", true),
        ("/pelton.v1.Echo/Unary", false),
    ] {
        pair.said.lock().expect("one thread").clear();
        let stream = pair.call(path, &[0xff]);
        assert!(pair.turn().contains(&Event::Finished { stream }));
        assert!(!pair.client.status().is_ok());
        pair.client.forget(stream);
        let said = pair.said.lock().expect("one thread");
        assert_eq!(!said.is_empty(), is_logged, "{said:?}");
    }
}

/// How far a connection has come before it ends.
type Begin<'a> = &'a dyn Fn(&mut Pair);

#[test]
fn the_end_of_a_connection_is_logged_with_its_reason() {
    const ID: ConnectionId = ConnectionId {
        slot: 0,
        generation: 0,
    };
    let line = |why: Closed, begin: Begin<'_>| {
        let mut pair = Pair::accepted(false);
        pair.log_detail(Detail::Connections);
        begin(&mut pair);
        pair.now_ns += 7;
        pair.turn();
        pair.said.lock().expect("one thread").clear();
        pair.handler.closed(ID, why, pair.now_ns);
        let said = pair.said.lock().expect("one thread");
        said.concat()
    };
    let silent = |_: &mut Pair| ();
    let speaks = |pair: &mut Pair| pair.greet();
    let refused = |pair: &mut Pair| {
        pair.accept(true);
        pair.greet();
    };
    let garbage = |pair: &mut Pair| pair.receive(b"\x00\x01\x02\x03");
    let wrong = |pair: &mut Pair| {
        pair.greet();
        pair.receive(b"\x00\x00\x01\x06\x00\x00\x00\x00\x00x");
    };
    let handler = Closed::ByHandler;
    let cases: [(Closed, Begin<'_>, &str); 8] = [
        (Closed::Stalled, &speaks, "the peer took nothing of what"),
        (Closed::Stopped, &speaks, "the server stops"),
        (Closed::ByPeer, &speaks, "the peer reset the connection"),
        (handler, &speaks, "the peer closed the connection"),
        (handler, &silent, "the peer closed it before it had said"),
        (handler, &garbage, "it was refused"),
        (handler, &refused, "there are as many connections as"),
        (handler, &wrong, "the length of PING is not 8"),
    ];
    for (why, begin, expected) in cases {
        let line = line(why, begin);
        assert!(line.starts_with("closed after 7 ns: "), "{line}");
        assert!(line.contains(expected), "{why:?}: {line}");
    }
}
