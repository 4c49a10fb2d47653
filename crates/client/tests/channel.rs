//! The blocking channel against `wire`'s server role, and against servers that are none.

mod common;

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use client::{
    CallError, CallOptions, Channel, ChannelOptions, Code, Metadata, NotBegun, StreamStep,
};

use common::{BODY_PATH, by_path, listen, serve, sum};

fn within(duration: Duration) -> CallOptions<'static> {
    CallOptions {
        deadline: Some(Instant::now() + duration),
        ..CallOptions::default()
    }
}

const SOON: Duration = Duration::from_secs(20);

#[test]
fn unary_calls_of_all_sizes() {
    let (mut channel, server) = serve(by_path);
    for size in [0, 1, 1_000, 65_535, 65_536, 1 << 20, 5 << 20] {
        let request: Vec<u8> = (0..size).map(|at| at as u8).collect();
        let answer = channel
            .unary("/t.T/Echo", &request, &within(SOON))
            .expect("answered");
        assert!(answer == request, "{size} bytes come back as they were");
    }
    drop(channel);
    server.join().expect("the server ends with its client");
}

#[test]
fn the_messages_of_a_stream_come_in_order() {
    let (mut channel, _server) = serve(by_path);
    let answers = channel
        .server_streaming("/t.T/Stream", &[0; 200], &within(SOON))
        .expect("begun");
    let answers: Vec<Vec<u8>> = answers.collect::<Result<_, _>>().expect("all is well");
    assert_eq!(answers.len(), 200);
    assert!(
        answers
            .iter()
            .enumerate()
            .all(|(number, answer)| *answer == [number as u8; 1000])
    );
}

/// More than every window: the rest comes only because what was read is given back.
#[test]
fn a_dropped_stream_leaves_the_channel_usable() {
    let (mut channel, _server) = serve(by_path);
    for _ in 0..20 {
        let mut answers = channel
            .server_streaming("/t.T/Stream", &[0; 250], &within(SOON))
            .expect("begun");
        assert_eq!(
            answers
                .next_message()
                .expect("a message")
                .map(|message| message.len()),
            Some(1000)
        );
    }
    assert_eq!(
        channel
            .unary("/t.T/Echo", b"still here", &within(SOON))
            .expect("answered"),
        b"still here"
    );
}

/// Far more than all windows and buffers hold: it goes through only because answers are taken
/// meanwhile.
#[test]
fn messages_go_both_ways() {
    let (mut channel, _server) = serve(by_path);
    let mut chat = channel
        .streaming("/t.T/Chat", &CallOptions::default())
        .expect("begun");
    let message = |number: usize| vec![number as u8; 50_000];
    let (mut sent, mut received) = (0, 0);
    loop {
        if sent < 200 && chat.can_send() {
            chat.send(&message(sent));
            sent += 1;
            if sent == 200 {
                chat.close_send();
            }
        }
        let wait = if chat.can_send() && sent < 200 {
            Duration::ZERO
        } else {
            SOON
        };
        match chat.poll(wait).expect("all is well") {
            StreamStep::Message(answer) => {
                assert!(answer == message(received), "{received} comes as it went");
                received += 1;
            }
            StreamStep::Nothing => assert!(wait.is_zero() || chat.can_send()),
            StreamStep::Ended => break,
        }
    }
    assert_eq!((sent, received), (200, 200));
    drop(chat);
    let answer = channel.unary("/t.T/Echo", b"still here", &within(SOON));
    assert_eq!(answer.expect("answered"), b"still here");
}

#[test]
fn a_stream_that_was_given_up_or_failed_leaves_the_channel_usable() {
    let (mut channel, _server) = serve(by_path);
    let mut silent = channel
        .streaming("/t.T/Silent", &CallOptions::default())
        .expect("begun");
    silent.send(b"hello?");
    let step = silent.poll(Duration::from_millis(30)).expect("no error");
    assert!(matches!(step, StreamStep::Nothing), "{step:?}");
    drop(silent);
    let mut fail = channel
        .streaming("/t.T/Fail", &CallOptions::default())
        .expect("begun");
    fail.send(b"x");
    match fail.poll(SOON) {
        Err(CallError::Status(status)) => assert_eq!(status.code(), Code::ResourceExhausted),
        other => panic!("{other:?}"),
    }
    assert!(!fail.can_send(), "it is over");
    drop(fail);
    let answer = channel.unary("/t.T/Echo", b"still here", &within(SOON));
    assert_eq!(answer.expect("answered"), b"still here");
}

#[test]
fn statuses_arrive_whole() {
    let (mut channel, _server) = serve(by_path);
    match channel.unary("/t.T/Fail", b"x", &within(SOON)) {
        Err(CallError::Status(status)) => {
            assert_eq!(
                (status.code(), status.message()),
                (Code::ResourceExhausted, "größer als 5")
            );
        }
        other => panic!("{other:?}"),
    }
    match channel.unary("/t.T/NoSuchPath", b"x", &within(SOON)) {
        Err(CallError::Status(status)) => {
            assert_eq!(status.code(), Code::Unimplemented, "HTTP 404")
        }
        other => panic!("{other:?}"),
    }
    match channel.unary("/t.T/Reset", b"x", &within(SOON)) {
        Err(CallError::Status(status)) => assert_eq!(status.code(), Code::Internal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_unary_answer_has_exactly_one_message() {
    let (mut channel, _server) = serve(by_path);
    let none = channel.unary("/t.T/None", b"x", &within(SOON));
    assert!(matches!(none, Err(CallError::BadAnswer { .. })), "{none:?}");
    let two = channel.unary("/t.T/Stream", b"xx", &within(SOON));
    assert!(matches!(two, Err(CallError::BadAnswer { .. })), "{two:?}");
    assert_eq!(
        channel
            .unary("/t.T/Echo", b"fine", &within(SOON))
            .expect("answered"),
        b"fine"
    );
}

#[test]
fn a_refused_call_is_safe_to_try_again() {
    let (mut channel, _server) = serve(by_path);
    let refused = channel.unary("/t.T/Refuse", b"x", &within(SOON));
    assert!(
        matches!(refused, Err(CallError::NotBegun(NotBegun::Refused))),
        "{refused:?}"
    );
}

#[test]
fn a_deadline_ends_a_call_and_not_the_channel() {
    let (mut channel, _server) = serve(by_path);
    let begin = Instant::now();
    let silent = channel.unary("/t.T/Silent", b"x", &within(Duration::from_millis(50)));
    assert!(
        matches!(silent, Err(CallError::DeadlineExceeded)),
        "{silent:?}"
    );
    assert!(begin.elapsed() >= Duration::from_millis(50));
    assert_eq!(
        channel
            .unary("/t.T/Echo", b"next", &within(SOON))
            .expect("answered"),
        b"next"
    );
}

#[test]
fn a_draining_server_answers_and_takes_no_more() {
    let (mut channel, _server) = serve(by_path);
    assert_eq!(
        channel
            .unary("/t.T/Drain", b"x", &within(SOON))
            .expect("answered"),
        b"last"
    );
    // The GOAWAY may come a moment after the answer; what is sent before it is still served.
    let until = Instant::now() + SOON;
    let end = loop {
        assert!(Instant::now() < until, "the GOAWAY never arrived");
        match channel.unary("/t.T/Echo", b"x", &within(SOON)) {
            Ok(_) => thread::sleep(Duration::from_millis(1)),
            Err(error) => break error,
        }
    };
    let is_clear = matches!(
        end,
        CallError::NotBegun(_) | CallError::ConnectionLost { .. }
    );
    assert!(is_clear, "{end:?}");
}

#[test]
fn plain_http_is_answered() {
    let (mut channel, _server) = serve(by_path);
    let answer = channel.http_get("/", &within(SOON)).expect("answered");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"hello\n"[..]));
    let answer = channel
        .http_get("/nothing", &within(SOON))
        .expect("answered");
    assert_eq!((answer.status, &answer.body[..]), (404, &b""[..]));
}

/// In pieces of all sizes, far more than all windows and buffers hold, and twice.
#[test]
fn the_body_of_a_plain_post_arrives_as_it_was_sent() {
    let (mut channel, _server) = serve(by_path);
    let body: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    for piece_bytes in [1_000, 16_384, 70_000, 3_000_000] {
        let mut post = channel
            .http_post(BODY_PATH, &within(SOON))
            .expect("it begins");
        for piece in body.chunks(piece_bytes) {
            while !post.can_send() {
                assert!(!post.poll(SOON).expect("the server reads"), "too early");
            }
            post.send_with_others(piece);
        }
        post.close_send();
        while !post.poll(SOON).expect("the server answers") {}
        let expected = format!("3000000 bytes, sum {}", sum(&body));
        assert_eq!(post.answer().status, 200);
        assert_eq!(String::from_utf8_lossy(&post.answer().body), expected);
        assert!(!post.can_send(), "it is over");
        assert!(post.poll(SOON).expect("and stays so"));
    }
}

#[test]
fn a_plain_post_may_be_answered_before_its_end() {
    let (mut channel, _server) = serve(by_path);
    let mut post = channel.http_post("/nothing", &within(SOON)).expect("begun");
    post.send_with_others(b"a piece");
    while !post.poll(SOON).expect("the server answers") {}
    assert_eq!(post.answer().status, 404);
    post.send_with_others(b"another one goes nowhere");
    post.close_send();
    drop(post);
    let answer = channel.unary("/t.T/Echo", b"still here", &within(SOON));
    assert_eq!(answer.expect("answered"), b"still here");
}

/// Neither end waits for the other: the deadline ends it, and dropping it does.
#[test]
fn a_plain_post_that_was_given_up_leaves_the_channel_usable() {
    let (mut channel, _server) = serve(by_path);
    let soon = within(Duration::from_millis(30));
    let mut post = channel.http_post(BODY_PATH, &soon).expect("begun");
    let error = loop {
        match post.poll(SOON) {
            Ok(is_over) => assert!(!is_over, "nothing was sent"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, CallError::DeadlineExceeded), "{error:?}");
    drop(post);
    let mut post = channel.http_post(BODY_PATH, &within(SOON)).expect("begun");
    post.send_with_others(b"a piece");
    drop(post);
    let answer = channel.unary("/t.T/Echo", b"still here", &within(SOON));
    assert_eq!(answer.expect("answered"), b"still here");
}

#[test]
fn metadata_too_large_are_refused_before_they_are_sent() {
    let (mut channel, _server) = serve(by_path);
    let mut metadata = Metadata::new();
    metadata
        .push_ascii("x-large", "x".repeat(20_000))
        .expect("valid");
    let options = CallOptions {
        metadata: Some(&metadata),
        ..within(SOON)
    };
    let refused = channel.unary("/t.T/Echo", b"x", &options);
    assert!(
        matches!(refused, Err(CallError::MetadataTooLarge)),
        "{refused:?}"
    );
    assert_eq!(
        channel
            .unary("/t.T/Echo", b"x", &within(SOON))
            .expect("answered"),
        b"x"
    );
}

/// Connects to a server that answers the first bytes with `greeting` and closes.
fn call_stranger(greeting: &'static [u8]) -> CallError {
    let (address, listener) = listen();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("the client connects");
        let _ = socket.read(&mut [0; 1024]);
        socket.write_all(greeting).expect("the client reads");
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let mut channel =
        Channel::connect(&address, &ChannelOptions::default()).expect("somebody listens");
    let error = channel
        .unary("/t.T/Echo", b"x", &within(SOON))
        .expect_err("no gRPC server");
    drop(channel);
    server.join().expect("the server ends");
    error
}

#[test]
fn strangers_are_recognised() {
    for (greeting, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "HTTP/1.1"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
        (b"", "closed"),
        (b"SSH-2.0-server\r\n", "it sent text"),
        (b"-ERR unknown command 'PRI', with args\r\n", "Redis"),
        (b"-NOAUTH Authentication required.\r\n", "Redis"),
        (b"\x4a\0\0\0\x0a8.0.36\0", "does not speak HTTP/2"),
    ] {
        let error = call_stranger(greeting).to_string();
        assert!(
            error.contains(expected),
            "{expected:?} is missing in: {error}"
        );
    }
}
