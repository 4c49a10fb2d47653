//! Streams of operations.

use api::tkrzw::*;
use api::tkrzw_before;

use super::*;

use Method as M;
use StreamedRequest as R;

fn message(request: R<'_>, omit_response: bool) -> Vec<u8> {
    encoded(&StreamRequest {
        omit_response,
        request_oneof: Some(request),
    })
}

fn set(key: &'static [u8], value: &'static [u8], overwrite: bool) -> R<'static> {
    R::Set(SetRequest {
        dbm_index: 0,
        key,
        value,
        overwrite,
    })
}

fn get(key: &'static [u8]) -> R<'static> {
    R::Get(GetRequest {
        key,
        ..GetRequest::default()
    })
}

/// The kinds of responses, and their codes.
fn kinds(messages: &[Vec<u8>]) -> Vec<(&'static str, i32)> {
    let kind = |message: &Vec<u8>| {
        use StreamedResponse as R;
        let response = StreamResponse::decode(message).expect("it is sound");
        let (kind, status) = match response.response_oneof.expect("there is one") {
            R::Echo(one) => ("echo", one.status),
            R::Get(one) => ("get", one.status),
            R::Set(one) => ("set", one.status),
            R::Remove(one) => ("remove", one.status),
            R::Append(one) => ("append", one.status),
            R::CompareExchange(one) => ("exchange", one.status),
            R::Increment(one) => ("increment", one.status),
        };
        (kind, status.expect("there is one").code)
    };
    messages.iter().map(kind).collect()
}

fn all_kinds() -> Vec<(R<'static>, (&'static str, i32))> {
    let key = &b"k"[..];
    vec![
        (R::Echo(EchoRequest { message: "hello" }), ("echo", 0)),
        (get(b"k"), ("get", 7)),
        (set(b"k", b"1", false), ("set", 0)),
        (set(b"k", b"2", false), ("set", 10)),
        (
            R::Append(AppendRequest {
                key,
                value: b"3",
                delim: b",",
                ..AppendRequest::default()
            }),
            ("append", 0),
        ),
        (get(b"k"), ("get", 0)),
        (
            R::CompareExchange(CompareExchangeRequest {
                key,
                expected_existence: true,
                expected_value: b"other",
                // Neither waits nor tells in a stream.
                retry_wait: 1_000.0,
                notify: true,
                get_actual: true,
                ..CompareExchangeRequest::default()
            }),
            ("exchange", 9),
        ),
        (
            R::Remove(RemoveRequest {
                key,
                ..RemoveRequest::default()
            }),
            ("remove", 0),
        ),
        (
            R::Remove(RemoveRequest {
                key,
                ..RemoveRequest::default()
            }),
            ("remove", 7),
        ),
        (
            R::Increment(IncrementRequest {
                key,
                increment: 2,
                initial: 1,
                ..IncrementRequest::default()
            }),
            ("increment", 0),
        ),
    ]
}

#[test]
fn each_request_of_a_stream_has_its_response_in_order() {
    let mut bench = bench();
    let all = all_kinds();
    let messages = all.iter().map(|&(request, _)| message(request, false));
    let ended = bench.talk(M::TkrzwStream, messages.collect());
    assert_eq!(ended.status, Status::OK);
    let expected: Vec<_> = all.iter().map(|&(_, expected)| expected).collect();
    assert_eq!(kinds(&ended.messages), expected);
    let value = |at: usize| match StreamResponse::decode(&ended.messages[at]) {
        Ok(StreamResponse {
            response_oneof: Some(StreamedResponse::Get(one)),
        }) => one.value.to_vec(),
        Ok(StreamResponse {
            response_oneof: Some(StreamedResponse::CompareExchange(one)),
        }) => one.actual.to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!((value(5), value(6)), (b"1,3".to_vec(), b"1,3".to_vec()));
    assert_eq!(bench.value(b"k"), Some(3_i64.to_be_bytes().to_vec()));
}

/// Not even an error is said then.
#[test]
fn a_request_may_want_no_response() {
    let mut bench = bench();
    let all = all_kinds();
    let messages = all.iter().map(|&(request, _)| message(request, true));
    let mut messages: Vec<_> = messages.collect();
    messages.push(message(get(b"k"), false));
    let ended = bench.talk(M::TkrzwStream, messages);
    assert_eq!(kinds(&ended.messages), [("get", 0)]);
    assert_eq!(ended.status, Status::OK);
}

#[test]
fn a_stream_ends_with_an_error_of_the_call_behind_what_was_before() {
    let mut bench = bench();
    let wrong_index = R::Get(GetRequest {
        dbm_index: 9,
        ..GetRequest::default()
    });
    let long = vec![0; store::limits::KEY_BYTES + 1];
    let too_long = R::Get(GetRequest {
        key: &long,
        ..GetRequest::default()
    });
    for (wrong, code) in [
        (message(wrong_index, false), Code::InvalidArgument),
        (message(wrong_index, true), Code::InvalidArgument),
        (message(too_long, false), Code::ResourceExhausted),
        (encoded(&StreamRequest::default()), Code::InvalidArgument),
        (vec![0x0a, 9], Code::InvalidArgument),
    ] {
        let first = message(set(b"k", b"v", true), false);
        let never = message(set(b"never", b"", true), false);
        let ended = bench.talk(M::TkrzwStream, vec![first, wrong, never]);
        assert_eq!(kinds(&ended.messages), [("set", 0)]);
        assert_eq!(ended.status.code(), code);
        assert_eq!(bench.value(b"never"), None);
    }
}

#[test]
fn a_stream_of_the_older_package_has_its_own_exchange() {
    let mut bench = bench();
    let exchange = tkrzw_before::CompareExchangeRequest {
        key: b"k",
        desired_existence: true,
        desired_value: b"new",
        ..tkrzw_before::CompareExchangeRequest::default()
    };
    let message = |request| {
        encoded(&tkrzw_before::StreamRequest {
            omit_response: false,
            request_oneof: Some(request),
        })
    };
    let messages = vec![
        message(tkrzw_before::StreamedRequest::CompareExchange(exchange)),
        message(tkrzw_before::StreamedRequest::Echo(EchoRequest {
            message: "hello",
        })),
    ];
    let ended = bench.talk(M::TkrzwBeforeStream, messages);
    let responses: Vec<_> = (ended.messages.iter())
        .map(|one| tkrzw_before::StreamResponse::decode(one).expect("it is sound"))
        .map(|one| one.response_oneof.expect("there is one"))
        .collect();
    let [
        tkrzw_before::StreamedResponse::CompareExchange(exchanged),
        tkrzw_before::StreamedResponse::Echo(echoed),
    ] = responses[..]
    else {
        panic!("{responses:?}")
    };
    assert_eq!(
        (exchanged.status.expect("one").code, echoed.echo),
        (0, "hello")
    );
    assert_eq!(bench.value(b"k"), Some(b"new".to_vec()));
}

/// Outcomes of a database without a log come before those of one with a log that were asked for
/// earlier.
#[test]
fn an_outcome_of_one_database_is_not_that_of_an_earlier_request_to_another() {
    let mut bench = bench();
    let of = |dbm_index, key: &'static [u8]| R::Remove(RemoveRequest { dbm_index, key });
    let to = |dbm_index, value: &'static [u8]| {
        R::Set(SetRequest {
            dbm_index,
            key: b"k",
            value,
            overwrite: false,
        })
    };
    let messages = [
        message(to(0, b"logged"), false),
        message(of(UNORDERED, b"missing"), false),
        message(to(0, b"again"), false),
        message(to(UNORDERED, b"volatile"), true),
        message(of(UNORDERED, b"k"), false),
        message(get(b"k"), false),
    ];
    let ended = bench.steps(M::TkrzwStream, |_, _, room| {
        room.default_is_last = true;
        room.send_in_turn(messages);
    });
    let expected = [
        ("set", 0),
        ("remove", 7),
        ("set", 10),
        ("remove", 0),
        ("get", 0),
    ];
    assert_eq!(kinds(&ended.messages), expected);
    assert_eq!(bench.value(b"k"), Some(b"logged".to_vec()));
}

/// Room for one response replaces that for those before, and each response that is sent gives all
/// of it back.
#[test]
fn memory_for_each_response_of_a_stream_is_set_aside_until_it_is_sent() {
    let mut bench = bench();
    let database = |name: &str| TkrzwDatabase {
        name: name.into(),
        path: "".into(),
        class: DatabaseClass::Baby,
    };
    bench.shared.settings.tkrzw.databases = Box::new([database("small")]);
    let value_bytes = 100;
    let request = message(get(b"k"), false);
    let under_way = |count: usize| count * (value_bytes + request.len());
    let ended = bench.talk(M::TkrzwStream, vec![request.clone(); 3]);
    assert_eq!(kinds(&ended.messages), [("get", 7); 3]);
    let expected = [
        under_way(1),
        under_way(2),
        under_way(3),
        // What is sent gives back all.
        0,
        under_way(2),
        0,
        under_way(1),
        0,
    ];
    assert_eq!(ended.reserved(), expected);
}

/// More messages than may be under way: the caller is held, and goes on.
#[test]
fn a_long_stream_is_held_and_goes_on() {
    let mut bench = bench();
    let messages = (0..2_000).map(|_| {
        message(
            R::Increment(IncrementRequest {
                key: b"n",
                increment: 1,
                ..IncrementRequest::default()
            }),
            false,
        )
    });
    let ended = bench.talk(M::TkrzwStream, messages.collect());
    assert_eq!(ended.messages.len(), 2_000);
    assert_eq!(bench.value(b"n"), Some(2_000_i64.to_be_bytes().to_vec()));
}
