//! Calls over baidu_std and SRPC.

use service::identities::{TOKEN_BYTES, Token};
use service::rights::Rights;
use testkit::frames::framed;
use wire::framed::baidu_std::{RpcMeta, RpcRequestMeta};
use wire::framed::{FramedProtocol, srpc};

use crate::pair::Pair;
use crate::settings::Detail;

const ECHO: (&str, &str) = ("pelton.v1.Echo", "Unary");

/// What a client sends.
struct Call<'a> {
    names: (&'a str, &'a str),
    id: i64,
    message: &'a [u8],
    authentication: Option<&'a [u8]>,
}

impl<'a> Call<'a> {
    fn new(names: (&'a str, &'a str), id: i64, message: &'a [u8]) -> Call<'a> {
        Call {
            names,
            id,
            message,
            authentication: None,
        }
    }

    fn baidu_std(&self) -> Vec<u8> {
        let (service_name, method_name) = self.names;
        let request = RpcRequestMeta {
            service_name,
            method_name,
            ..Default::default()
        };
        let meta = RpcMeta {
            request: Some(request),
            correlation_id: Some(self.id),
            authentication_data: self.authentication,
            ..Default::default()
        };
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        framed(FramedProtocol::BaiduStd, &bytes, self.message)
    }

    fn srpc(&self) -> Vec<u8> {
        let (service_name, method_name) = self.names;
        let request = srpc::RpcRequestMeta {
            service_name,
            method_name,
            log_id: None,
        };
        let meta = srpc::RpcMeta {
            request: Some(request),
            ..Default::default()
        };
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        framed(FramedProtocol::Srpc, &bytes, self.message)
    }
}

/// A response: id or 0, code or status, text, and message.
type Answer = (i64, i32, String, Vec<u8>);

/// Takes the responses out of what the server has written.
fn answers(pair: &mut Pair, protocol: FramedProtocol) -> Vec<Answer> {
    let output = std::mem::take(&mut pair.io.output);
    let mut rest = &output[..];
    let mut answers = Vec::new();
    while !rest.is_empty() {
        let header = protocol.read_header(rest).expect("a header");
        let (meta, after) = rest[protocol.header_bytes()..].split_at(header.meta_bytes);
        let (body, after) = after.split_at(header.body_bytes);
        rest = after;
        let (id, code, text) = match protocol {
            FramedProtocol::BaiduStd => {
                let meta = RpcMeta::decode(meta).expect("metadata");
                let response = meta.response.expect("a response");
                let text = response.error_text.unwrap_or_default().to_owned();
                (meta.correlation_id, response.error_code, text)
            }
            FramedProtocol::Srpc => {
                let meta = srpc::RpcMeta::decode(meta).expect("metadata");
                let response = meta.response.expect("a response");
                (None, response.status_code, String::new())
            }
        };
        answers.push((id.unwrap_or(0), code.unwrap_or(0), text, body.to_vec()));
    }
    answers
}

/// Sends bytes, and returns what is answered within some ticks.
fn talk(pair: &mut Pair, protocol: FramedProtocol, bytes: &[u8]) -> Vec<Answer> {
    pair.receive(bytes);
    for _ in 0..4 {
        pair.tick_without_input();
    }
    answers(pair, protocol)
}

fn echo(payload: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    protobuf::writer::bytes(&mut message, 1, payload);
    message
}

/// An echo that is answered a second later.
fn late_echo() -> Vec<u8> {
    [&echo(b"late")[..], &[0x18, 0xe8, 7]].concat()
}

fn ok(id: i64, message: &[u8]) -> Answer {
    (id, 0, String::new(), message.to_vec())
}

#[test]
fn calls_are_served_by_full_and_short_names_whatever_the_pieces() {
    let put = [&echo(b"")[..], b"\x12\x01k\x1a\x01v"].concat();
    for piece in [1, 7, usize::MAX] {
        let mut pair = Pair::accepted(false);
        let calls = [
            Call::new(ECHO, 1, &echo(b"one")).baidu_std(),
            Call::new(("Echo", "Unary"), 2, &echo(b"two")).baidu_std(),
            Call::new(("KeyValue", "Put"), 3, &put).baidu_std(),
            Call::new(("Health", "Check"), 4, b"").baidu_std(),
        ];
        for part in calls.concat().chunks(piece.min(10_000)) {
            pair.receive(part);
        }
        for _ in 0..4 {
            pair.tick_without_input();
        }
        let mut found = answers(&mut pair, FramedProtocol::BaiduStd);
        found.sort();
        assert_eq!(found.len(), 4);
        assert_eq!(found[..2], [ok(1, &echo(b"one")), ok(2, &echo(b"two"))]);
        assert_eq!((found[2].0, found[2].1), (3, 0));
        assert_eq!(found[3], ok(4, b"\x08\x01"));
        let get = Call::new(("pelton.v1.KeyValue", "Get"), 5, b"\x12\x01k").baidu_std();
        let found = talk(&mut pair, FramedProtocol::BaiduStd, &get);
        assert!(
            found.len() == 1 && found[0].3.ends_with(b"\x12\x01v"),
            "{found:?}"
        );
        assert_eq!(pair.handler.running(), 0);
    }
}

#[test]
fn what_is_not_there_or_has_streams_is_refused_in_the_words_of_the_protocol() {
    let cases = [
        (
            ("example.No", "Echo"),
            "Fail to find method=example.No/Echo",
            2,
        ),
        (("Echo", "No"), "Fail to find method=Echo/No", 3),
        (("KeyValue", "Pipe"), "has streams", 3),
        (("http.Blob", "PUT"), "Fail to find method=http.Blob/PUT", 2),
    ];
    for (names, text, status) in cases {
        let mut pair = Pair::accepted(false);
        let call = Call::new(names, 9, b"x");
        let found = talk(&mut pair, FramedProtocol::BaiduStd, &call.baidu_std());
        let [(9, 1002, shown, body)] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(shown.starts_with("[E1002]") && shown.contains(text) && body.is_empty());
        let mut pair = Pair::accepted(false);
        let found = talk(&mut pair, FramedProtocol::Srpc, &call.srpc());
        assert_eq!(found, [(0, status, String::new(), Vec::new())]);
    }
}

#[test]
fn a_name_that_is_not_there_is_repeated_in_part_and_in_one_line() {
    let long = format!("a\nb\0{}", "x".repeat(10_000));
    let mut pair = Pair::accepted(false);
    let call = Call::new((&long, "Echo"), 9, b"x");
    let found = talk(&mut pair, FramedProtocol::BaiduStd, &call.baidu_std());
    let [(9, 1002, shown, _)] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(
        shown.contains("Fail to find method=a\u{fffd}b\u{fffd}xx"),
        "{shown}"
    );
    assert!(
        shown.len() < 300 && !shown.contains(char::is_control),
        "{shown}"
    );
}

/// Whoever may call nothing hears no more of a method with streams than of any other.
#[test]
fn a_caller_without_rights_is_not_told_which_methods_have_streams() {
    let mut pair = Pair::of(Rights::default());
    for method in ["Get", "Pipe", "Scan"] {
        let call = Call::new(("pelton.v1.KeyValue", method), 3, b"x");
        pair.accept(false);
        let found = talk(&mut pair, FramedProtocol::BaiduStd, &call.baidu_std());
        let [(3, 1004, text, body)] = &found[..] else {
            panic!("{method}: {found:?}");
        };
        assert!(!text.contains("streams") && body.is_empty(), "{text}");
        pair.accept(false);
        let found = talk(&mut pair, FramedProtocol::Srpc, &call.srpc());
        assert_eq!(found, [(0, 100, String::new(), Vec::new())], "{method}");
    }
}

#[test]
fn authentication_data_prove_who_calls_on_the_connection() {
    let mut pair = Pair::accepted(false);
    let unknown = Token::new([1; TOKEN_BYTES]).text().to_string();
    let mut call = Call::new(ECHO, 1, b"");
    call.authentication = Some(unknown.as_bytes());
    for _ in 0..2 {
        let found = talk(&mut pair, FramedProtocol::BaiduStd, &call.baidu_std());
        assert_eq!((found.len(), found[0].1), (1, 1004), "{found:?}");
        // It stands for those that follow.
        call.authentication = None;
    }
    assert_eq!(pair.handler.running(), 0);
}

#[test]
fn calls_of_a_connection_that_goes_are_gone() {
    for _ in 0..2 {
        let mut pair = Pair::accepted(false);
        let call = Call::new(ECHO, 1, &late_echo()).baidu_std();
        assert_eq!(talk(&mut pair, FramedProtocol::BaiduStd, &call), []);
        assert_eq!(pair.handler.running(), 1);
        pair.close();
        assert_eq!(pair.handler.running(), 0);
    }
}

#[test]
fn a_stopping_server_ends_calls_with_logoff_and_then_the_connection() {
    let mut pair = Pair::accepted(false);
    let call = Call::new(ECHO, 1, &late_echo()).baidu_std();
    assert_eq!(talk(&mut pair, FramedProtocol::BaiduStd, &call), []);
    pair.stop();
    let late = Call::new(ECHO, 2, &echo(b"x")).baidu_std();
    let found = talk(&mut pair, FramedProtocol::BaiduStd, &late);
    assert_eq!((found[0].0, found[0].1), (2, 2003));
    assert!(!pair.io.is_closing());
    while pair.io.output.is_empty() {
        assert!(!pair.io.is_closing());
        pair.now_ns += 100_000_000;
        pair.tick_without_input();
    }
    let found = answers(&mut pair, FramedProtocol::BaiduStd);
    assert_eq!(found, [ok(1, &echo(b"late"))]);
    // Nothing need come from its peer.
    assert!(pair.io.is_closing());
}

#[test]
fn a_request_before_the_response_ends_a_connection_of_srpc_and_is_logged_once() {
    let mut pair = Pair::accepted(false);
    let call = Call::new(ECHO, 0, &late_echo()).srpc();
    assert_eq!(talk(&mut pair, FramedProtocol::Srpc, &call), []);
    pair.receive(&call);
    pair.receive(&call);
    pair.tick_without_input();
    assert!(pair.io.is_closing() && pair.io.output.is_empty());
    assert_eq!(pair.handler.running(), 0);
    let said = pair.said.lock().expect("one thread").clone();
    assert_eq!(
        said,
        ["a request came before the response to the one before"]
    );
}

/// What a client has left behind it holds nothing, also where it waits for memory.
#[test]
fn the_calls_of_a_client_that_has_ended_its_side_end_with_it() {
    let mut pair = Pair::accepted(false);
    pair.receive(&Call::new(ECHO, 7, &late_echo()).baidu_std());
    pair.io.set_end_of_input();
    pair.receive(&[]);
    pair.tick_without_input();
    assert!(pair.io.is_closing());
}

const IDLE_NS: u64 = crate::limits::FRAMED_IDLE_MS * 1_000_000;

/// Lets somebody come who finds no place.
fn newcomer(pair: &mut Pair) {
    let peer = net::Peer {
        address: net::PeerAddress::Simulated(2),
        listener: 0,
        outgoing: false,
        over_limit: true,
        place: None,
        handshake: None,
        tls: None,
        user: None,
    };
    let id = net::ConnectionId {
        slot: 1,
        generation: 0,
    };
    let mut io = net::Io::new();
    net::Handler::opened(&mut pair.handler, id, &peer, &mut io, pair.now_ns);
    for _ in 0..3 {
        pair.tick_without_input();
    }
    net::Handler::closed(&mut pair.handler, id, net::Closed::ByPeer, pair.now_ns);
}

/// Whoever finds no place, however busy the others are.
#[test]
fn an_idle_connection_makes_room_for_a_newcomer() {
    let mut pair = Pair::accepted(false);
    pair.now_ns = 1;
    let short = Call::new(ECHO, 1, &echo(b"x")).baidu_std();
    for _ in 0..2 {
        assert_eq!(talk(&mut pair, FramedProtocol::BaiduStd, &short).len(), 1);
        pair.now_ns += IDLE_NS - 1;
        newcomer(&mut pair);
        assert!(!pair.io.is_closing(), "it is not idle for long enough");
    }
    // A call runs, or some of one has come.
    let long = Call::new(ECHO, 1, &late_echo()).baidu_std();
    assert_eq!(talk(&mut pair, FramedProtocol::BaiduStd, &long), []);
    pair.now_ns += 2 * IDLE_NS;
    let waits = talk(&mut pair, FramedProtocol::BaiduStd, &short[..20]);
    assert_eq!(waits, [ok(1, &echo(b"late"))]);
    newcomer(&mut pair);
    assert!(!pair.io.is_closing(), "it is in use");
    assert_eq!(
        talk(&mut pair, FramedProtocol::BaiduStd, &short[20..]).len(),
        1
    );
    pair.now_ns += IDLE_NS;
    newcomer(&mut pair);
    assert!(pair.io.is_closing() && pair.io.output.is_empty());
}

#[test]
fn a_connection_that_made_room_is_logged_with_that_reason() {
    const ID: net::ConnectionId = net::ConnectionId {
        slot: 0,
        generation: 0,
    };
    let mut pair = Pair::accepted(false);
    pair.log_detail(Detail::Connections);
    pair.now_ns = 1;
    let short = Call::new(ECHO, 1, &echo(b"x")).baidu_std();
    assert_eq!(talk(&mut pair, FramedProtocol::BaiduStd, &short).len(), 1);
    pair.now_ns += IDLE_NS;
    newcomer(&mut pair);
    pair.said.lock().expect("one thread").clear();
    net::Handler::closed(&mut pair.handler, ID, net::Closed::ByHandler, pair.now_ns);
    let said = pair.said.lock().expect("one thread").concat();
    assert!(said.ends_with("another needed its place"), "{said}");
}

/// The response came between two visits; and as long as it is being read, its reader stays.
#[test]
fn a_connection_is_idle_also_when_its_last_response_came_by_itself() {
    let mut pair = Pair::accepted(false);
    pair.now_ns = 1;
    let long = Call::new(ECHO, 1, &late_echo()).baidu_std();
    for _ in 0..2 {
        assert_eq!(talk(&mut pair, FramedProtocol::BaiduStd, &long), []);
        pair.now_ns += 1_000_000_000;
        (0..4).for_each(|_| pair.tick_without_input());
        assert!(!pair.io.output.is_empty());
        for _ in 0..2 {
            pair.now_ns += IDLE_NS;
            newcomer(&mut pair);
            assert!(!pair.io.is_closing(), "its response is not read yet");
        }
        assert_eq!(
            answers(&mut pair, FramedProtocol::BaiduStd),
            [ok(1, &echo(b"late"))]
        );
    }
    pair.now_ns += IDLE_NS;
    newcomer(&mut pair);
    assert!(pair.io.is_closing());
}

/// One message of the server may always come, and what came of it lies in the input.
#[test]
fn a_large_message_gets_its_turn_also_while_others_hold_the_memory() {
    let mut pair = Pair::accepted(false);
    let payload = vec![b'x'; 300_000];
    let call = Call::new(ECHO, 1, &echo(&payload)).baidu_std();
    for _ in 0..2 {
        let others = pair.fill_account();
        assert_eq!(
            talk(&mut pair, FramedProtocol::BaiduStd, &call[..60_000]),
            []
        );
        assert!(pair.io.input.is_empty());
        let connection = &pair.handler.rpc().connection;
        assert!(connection.has_turn() && connection.held_bytes() >= 300_000);
        drop(others);
        let mut written = Vec::new();
        for part in call[60_000..].chunks(60_000) {
            pair.receive(part);
            pair.tick_without_input();
        }
        for _ in 0..20 {
            pair.now_ns += 100_000_000;
            pair.receive(&[]);
            pair.tick_without_input();
            written.append(&mut pair.io.output);
        }
        pair.io.output = written;
        assert_eq!(
            answers(&mut pair, FramedProtocol::BaiduStd),
            [ok(1, &echo(&payload))]
        );
        assert_eq!(pair.handler.running(), 0);
    }
}
