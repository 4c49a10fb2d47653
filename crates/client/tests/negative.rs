//! The negative HTTP/2 cases for clients of the gRPC project, each with a server frame by frame:
//! <https://github.com/grpc/grpc/blob/master/doc/negative-http2-interop-test-descriptions.md>, and
//! some more of their kind.

#[path = "common/raw.rs"]
mod raw;

use std::time::{Duration, Instant};

use client::{CallError, CallEventKind, CallOptions, Channel, Code, NotBegun, StreamStep};
use testkit::frames::{self, message};
use wire::http2::frame::{flag, kind};

use raw::{
    ErrorCode, FIRST_WINDOW, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, Raw, connect, serve_raw,
};

const PATH: &str = "/grpc.testing.TestService/UnaryCall";
const REQUEST: client::CallRequest<'static> = client::CallRequest {
    path: PATH,
    authority: "here",
    timeout_ns: None,
    metadata: None,
    gzip: false,
    accepts_gzip: true,
};
const LARGE: usize = 314_159;
const LARGE_WINDOW: u32 = 2 << 20;

fn soon() -> CallOptions<'static> {
    CallOptions {
        deadline: Some(Instant::now() + Duration::from_secs(20)),
        ..CallOptions::default()
    }
}

fn call(channel: &mut Channel) -> Result<Vec<u8>, CallError> {
    channel.unary(PATH, b"question", &soon())
}

/// Runs a single call against a server with this script.
fn one_call(script: fn(&mut Raw)) -> Result<Vec<u8>, CallError> {
    let (address, server) = serve_raw(vec![script]);
    let mut channel = connect(&address);
    let answer = call(&mut channel);
    drop(channel);
    server.join().expect("the server has seen what it expects");
    answer
}

/// Both windows of a call are large before its request is out, so that no answer waits for them to
/// grow.
#[test]
fn windows_are_large_from_the_beginning() {
    let answer = one_call(|raw| {
        let stream = raw.begin();
        let large = client::limits::WINDOW_BYTES;
        let of_streams = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &large.to_be_bytes()].concat();
        assert!(raw.seen.iter().any(|frame| frame.kind == kind::SETTINGS
            && frame.payload.chunks(6).any(|entry| entry == of_streams)));
        let more = (large - FIRST_WINDOW as u32).to_be_bytes();
        assert!(
            raw.seen
                .iter()
                .any(|frame| frame.kind == kind::WINDOW_UPDATE
                    && frame.stream == 0
                    && frame.payload == more)
        );
        raw.answer(stream, b"answer");
    });
    assert_eq!(answer.expect("answered"), b"answer");
}

/// What waits goes out by a WINDOW_UPDATE alone, and whoever waits for room hears of it, although
/// nothing else comes.
#[test]
fn a_window_update_alone_makes_a_call_writable() {
    let (address, server) = serve_raw(vec![|raw: &mut Raw| {
        raw.settings(&[]);
        let mut bytes = 0;
        while bytes < FIRST_WINDOW {
            let data = raw.wait_for("all that the window takes", |frame| {
                frame.kind == kind::DATA
            });
            bytes += data.payload.len();
        }
        raw.open_window(0, LARGE_WINDOW);
        raw.open_window(1, LARGE_WINDOW);
        // The client ends its side once it knows; nobody says more to it before.
        let stream = raw.request();
        raw.answer(stream, b"answer");
    }]);
    let mut channel = connect(&address);
    let mut streaming = channel.streaming(PATH, &soon()).expect("begun");
    streaming.send(&vec![7; LARGE_WINDOW as usize / 2]);
    assert!(!streaming.can_send(), "most of it waits for the window");
    let step = streaming.poll(Duration::from_secs(60));
    assert!(matches!(step, Ok(StreamStep::Nothing)), "{step:?}");
    assert!(streaming.can_send(), "all of it is on its way");
    streaming.close_send();
    loop {
        match streaming.poll(Duration::from_secs(20)).expect("answered") {
            StreamStep::Message(message) => assert_eq!(message, b"answer"),
            StreamStep::Nothing => {}
            StreamStep::Ended => break,
        }
    }
    drop(streaming);
    drop(channel);
    server.join().expect("the server has seen what it expects");
}

/// goaway: a call on a connection that is going away does not begin there, and succeeds on a new
/// one.
#[test]
fn goaway() {
    let going_away = |raw: &mut Raw| {
        let stream = raw.begin();
        // In one go: whoever has the answer knows.
        raw.goaway(stream, ErrorCode::NoError);
        raw.answer(stream, b"last");
    };
    let staying = |raw: &mut Raw| {
        let stream = raw.begin();
        raw.answer(stream, b"first");
    };
    let (address, server) = serve_raw(vec![going_away, staying]);
    let mut channel = connect(&address);
    assert_eq!(call(&mut channel).expect("answered"), b"last");
    let refused = call(&mut channel);
    let Err(CallError::NotBegun(NotBegun::Closing { .. })) = refused else {
        panic!("not begun, hence safe to try elsewhere: {refused:?}");
    };
    drop(channel);
    let mut channel = connect(&address);
    assert_eq!(call(&mut channel).expect("answered"), b"first");
    drop(channel);
    server.join().expect("the server has seen what it expects");
}

/// The server says which calls it has not begun with; a call that it has begun with goes on.
#[test]
fn goaway_before_the_call_was_looked_at() {
    let result = one_call(|raw| {
        raw.begin();
        raw.goaway(0, ErrorCode::NoError);
    });
    let Err(CallError::NotBegun(_)) = result else {
        panic!("safe to try again: {result:?}");
    };
}

#[test]
fn goaway_with_an_error_names_it() {
    let error = one_call(|raw| {
        let stream = raw.begin();
        raw.goaway(stream, ErrorCode::EnhanceYourCalm);
    });
    let error = error.expect_err("no answer came");
    let is_lost = matches!(error, CallError::ConnectionLost { .. });
    assert!(is_lost, "the server may have begun: {error:?}");
}

#[test]
fn rst_after_header() {
    let result = one_call(|raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.reset(stream, ErrorCode::NoError);
    });
    let Err(CallError::Status(status)) = result else {
        panic!("{result:?}");
    };
    assert_eq!(status.code(), Code::Internal);
}

#[test]
fn rst_during_data() {
    let result = one_call(|raw| {
        let stream = raw.begin();
        raw.headers(stream);
        let whole = message(&[7; 1_000]);
        raw.frame(kind::DATA, 0, stream, &whole[..500]);
        raw.reset(stream, ErrorCode::NoError);
    });
    let Err(CallError::Status(status)) = result else {
        panic!("{result:?}");
    };
    assert_eq!(status.code(), Code::Internal);
}

fn reset_after_data(raw: &mut Raw) {
    let stream = raw.begin();
    raw.headers(stream);
    raw.message(stream, b"whole", None, 16_384);
    raw.reset(stream, ErrorCode::NoError);
}

/// rst_after_data: the message is whole, and yet nobody said that the call went well. A stream
/// shows it, a unary call has failed.
#[test]
fn rst_after_data() {
    let result = one_call(reset_after_data);
    let Err(CallError::Status(status)) = result else {
        panic!("{result:?}");
    };
    assert_eq!(status.code(), Code::Internal);

    let (address, server) = serve_raw(vec![reset_after_data]);
    let mut channel = connect(&address);
    let mut answers = channel
        .server_streaming(PATH, b"question", &soon())
        .expect("begun");
    let first = answers.next_message().expect("a message");
    assert_eq!(first.as_deref(), Some(&b"whole"[..]));
    assert!(answers.next_message().is_err());
    drop(answers);
    drop(channel);
    server.join().expect("the server has seen what it expects");
}

/// ping: before the head, between the frames of the answer, and after it; each is answered once,
/// with what it carried.
#[test]
fn ping() {
    let (address, server) = serve_raw(vec![|raw| {
        let stream = raw.begin();
        raw.ping([1; 8]);
        raw.headers(stream);
        raw.ping([2; 8]);
        let whole = message(b"answer");
        raw.frame(kind::DATA, 0, stream, &whole[..4]);
        raw.ping([3; 8]);
        raw.frame(kind::DATA, 0, stream, &whole[4..]);
        for number in 1..=3 {
            let ack = raw.wait_for("a PING", |frame| frame.kind == kind::PING);
            assert_eq!((ack.flags, &ack.payload[..]), (flag::ACK, &[number; 8][..]));
        }
        raw.trailers(stream);
    }]);
    let mut channel = connect(&address);
    assert_eq!(call(&mut channel).expect("answered"), b"answer");
    drop(channel);
    server.join().expect("the server has seen what it expects");
}

/// A flood of pings is not answered without bound: the client gives the server up.
#[test]
fn ping_flood() {
    let error = one_call(|raw| {
        raw.begin();
        for _ in 0..100_000 {
            raw.ping([9; 8]);
        }
    });
    let error = error.expect_err("no answer came");
    assert!(
        matches!(error, CallError::ConnectionLost { .. }),
        "{error:?}"
    );
}

/// Over TLS an answer and the server's last word come in one read: it is an answer all the same,
/// and only what has none is lost. The end comes a second time, and changes nothing.
#[test]
fn an_answer_that_comes_with_the_end_of_the_connection() {
    let mut core = client::Core::new(&wire::Config::client(), 0);
    let mut server = Script::default();
    server.settings(&[]);
    server.reach(&mut core);
    let mut begin = || {
        let call = core.open(&REQUEST).expect("there is room");
        core.send(call, b"question", true);
        call
    };
    let (answered, lost) = (begin(), begin());
    let head = [(":status", "200"), ("content-type", "application/grpc")];
    server.0.extend(frames::headers(1, &head, false));
    server
        .0
        .extend(frames::frame(kind::DATA, 0, 1, &message(b"answer")));
    server
        .0
        .extend(frames::headers(1, &[("grpc-status", "0")], true));
    core.received(&server.0);
    core.disconnected();
    assert!(core.has_events());
    let mut answer = Vec::new();
    let mut ends = Vec::new();
    for _ in 0..2 {
        while let Some(event) = core.poll(0) {
            match event.kind {
                CallEventKind::Message => answer.extend_from_slice(core.message()),
                CallEventKind::Ended(status) => ends.push((event.call, Some(status.code()))),
                CallEventKind::Lost { .. } => ends.push((event.call, None)),
                _ => {}
            }
        }
        assert!(!core.has_events());
        core.disconnected();
    }
    assert_eq!(answer, b"answer");
    assert_eq!(ends, [(answered, Some(Code::Ok)), (lost, None)]);
}

/// max_streams: no call above what the server allows is begun, and the caller learns so at once.
/// `Core`, since a `Channel` has one call at a time.
#[test]
fn max_streams() {
    let mut core = client::Core::new(&wire::Config::client(), 0);
    let mut server = Script::default();
    server.settings(&[(MAX_CONCURRENT_STREAMS, 2)]);
    server.reach(&mut core);
    let first = core.open(&REQUEST).expect("one");
    core.open(&REQUEST).expect("two");
    let third = core.open(&REQUEST);
    assert!(
        matches!(third, Err(CallError::NotBegun(NotBegun::TooManyCalls))),
        "{third:?}"
    );
    assert_eq!(core.calls_left(), 0);
    // A call that was given up is over for the server too.
    core.cancel(first);
    assert_eq!(core.calls_left(), 1);
    core.open(&REQUEST).expect("in the place of the first");
    // The server changes its mind: those that are open stay, none is added.
    server.settings(&[(MAX_CONCURRENT_STREAMS, 1)]);
    server.reach(&mut core);
    assert!(core.open(&REQUEST).is_err());
    server.settings(&[(MAX_CONCURRENT_STREAMS, 10)]);
    server.reach(&mut core);
    assert_eq!(core.calls_left(), 8);
}

/// The bytes of a server for a core without a socket.
#[derive(Default)]
struct Script(Vec<u8>);

impl Script {
    fn settings(&mut self, entries: &[(u16, u32)]) {
        wire::http2::frame::write_settings(&mut self.0, entries);
    }

    fn reach(&mut self, core: &mut client::Core) {
        core.received(&std::mem::take(&mut self.0));
        assert_eq!(core.poll(0), None);
    }
}

/// data_frame_padding: a byte of data in each frame, and as much padding as there can be. What
/// padding takes of the windows is given back, or the answer would stop half-way: it takes twenty
/// times the first window of a stream.
#[test]
fn data_frame_padding() {
    let (address, server) = serve_raw(vec![|raw| padded_answer(raw, Some(255), 5_000)]);
    let mut channel = connect(&address);
    let answer = call(&mut channel).expect("answered");
    assert!(answer == vec![5; 5_000]);
    drop(channel);
    server.join().expect("the server has seen what it expects");
}

/// no_df_padding_sanity_test: the same without padding.
#[test]
fn no_df_padding_sanity_test() {
    let (address, server) = serve_raw(vec![|raw| padded_answer(raw, None, LARGE)]);
    let mut channel = connect(&address);
    let answer = call(&mut channel).expect("answered");
    assert!(answer == vec![5; LARGE]);
    drop(channel);
    server.join().expect("the server has seen what it expects");
}

/// Answers within the windows that the client gives, and no byte beyond.
fn padded_answer(raw: &mut Raw, padding: Option<u8>, size: usize) {
    raw.settings(&[]);
    let stream = raw.request();
    let initial = initial_window(raw);
    let mut windows = Windows {
        connection: FIRST_WINDOW as i64,
        stream: i64::from(initial),
        id: stream,
    };
    for frame in std::mem::take(&mut raw.seen) {
        windows.grow(&frame);
    }
    raw.headers(stream);
    let whole = message(&vec![5; size]);
    let piece = if padding.is_some() { 1 } else { 1_000 };
    for piece in whole.chunks(piece) {
        let cost = (piece.len() + padding.map_or(0, |padding| 1 + usize::from(padding))) as i64;
        while windows.connection < cost || windows.stream < cost {
            let more = raw.wait_for("room in the windows", |frame| {
                frame.kind == kind::WINDOW_UPDATE
            });
            windows.grow(&more);
        }
        windows.connection -= cost;
        windows.stream -= cost;
        let mut payload = Vec::new();
        if let Some(padding) = padding {
            payload.push(padding);
        }
        payload.extend_from_slice(piece);
        payload.extend(std::iter::repeat_n(0, padding.unwrap_or(0).into()));
        let flags = padding.map_or(0, |_| flag::PADDED);
        raw.frame(kind::DATA, flags, stream, &payload);
    }
    raw.trailers(stream);
}

/// What the client's SETTINGS say of new streams.
fn initial_window(raw: &Raw) -> u32 {
    let settings = raw.seen.iter().find(|frame| frame.kind == kind::SETTINGS);
    let entries = settings
        .expect("the client sends settings first")
        .payload
        .chunks(6);
    let mut sizes = entries.filter_map(|entry| {
        let identifier = u16::from_be_bytes([entry[0], entry[1]]);
        let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
        (identifier == INITIAL_WINDOW_SIZE).then_some(value)
    });
    sizes.next().unwrap_or(FIRST_WINDOW as u32)
}

struct Windows {
    connection: i64,
    stream: i64,
    id: u32,
}

impl Windows {
    fn grow(&mut self, frame: &raw::Frame) {
        if frame.kind != kind::WINDOW_UPDATE {
            return;
        }
        let bytes = frame.payload[..4].try_into().expect("four bytes");
        let increment = i64::from(u32::from_be_bytes(bytes));
        match frame.stream {
            0 => self.connection += increment,
            id if id == self.id => self.stream += increment,
            _ => {}
        }
    }
}

/// Nobody asked for it, and it was not allowed: RFC 9113 section 8.4.
#[test]
fn a_push_ends_the_connection() {
    let error = one_call(|raw| {
        let stream = raw.begin();
        raw.frame(
            kind::PUSH_PROMISE,
            flag::END_HEADERS,
            stream,
            &[0, 0, 0, 2, 0x82],
        );
        let goaway = raw.wait_for("GOAWAY", |frame| frame.kind == kind::GOAWAY);
        assert_eq!(
            goaway.payload[4..8],
            (ErrorCode::ProtocolError as u32).to_be_bytes()
        );
    });
    let error = error.expect_err("no answer came");
    assert!(
        matches!(error, CallError::ConnectionLost { .. }),
        "{error:?}"
    );
}

/// A server that says at once how the call ended, without having taken the request: it is told that
/// no more follows.
#[test]
fn an_early_end_stops_a_request_that_has_no_room() {
    let (address, server) = serve_raw(vec![|raw| {
        raw.settings(&[(INITIAL_WINDOW_SIZE, 10)]);
        let stream = raw
            .wait_for("a head", |frame| frame.kind == kind::HEADERS)
            .stream;
        let fields = [
            (":status", "200"),
            ("content-type", "application/grpc"),
            ("grpc-status", "8"),
        ];
        raw.block(stream, &fields, true);
        let reset = raw.wait_for("RST_STREAM", |frame| frame.kind == kind::RST_STREAM);
        assert_eq!(reset.stream, stream);
        let second = raw.wait_for("a head", |frame| frame.kind == kind::HEADERS);
        raw.block(second.stream, &fields, true);
    }]);
    let mut channel = connect(&address);
    let large = vec![1; LARGE];
    for _ in 0..2 {
        match channel.unary(PATH, &large, &soon()) {
            Err(CallError::Status(status)) => assert_eq!(status.code(), Code::ResourceExhausted),
            other => panic!("{other:?}"),
        }
    }
    drop(channel);
    server.join().expect("the server has seen what it expects");
}

/// A window that shrinks below zero by new settings, and grows again: not a byte more is sent than
/// there is room for.
#[test]
fn a_window_that_becomes_negative_is_waited_out() {
    let (address, server) = serve_raw(vec![|raw| {
        raw.settings(&[(INITIAL_WINDOW_SIZE, 1_000)]);
        let first = raw.request();
        raw.answer(first, b"now you know");
        let mut taken = 0;
        let mut stream = 0;
        let mut take = |raw: &mut Raw, until: usize| {
            while taken < until {
                let frame = raw.next().expect("the client sends on");
                stream = stream.max(frame.stream);
                if frame.kind == kind::DATA {
                    taken += frame.payload.len();
                    assert!(taken <= until, "more than the window");
                }
            }
            stream
        };
        let stream = take(raw, 1_000);
        raw.settings(&[(INITIAL_WINDOW_SIZE, 0)]);
        let _ = raw.wait_for("the settings to be known", |frame| {
            frame.kind == kind::SETTINGS && frame.flags == flag::ACK
        });
        // 1 000 below zero: so much is not room yet.
        wire::http2::frame::write_window_update(&mut raw.out, stream, 1_000);
        raw.ping([4; 8]);
        let _ = raw.wait_for("a PING", |frame| frame.kind == kind::PING);
        let sent = raw.seen.iter().filter(|frame| frame.kind == kind::DATA);
        assert_eq!(sent.count(), 0, "there is no room");
        wire::http2::frame::write_window_update(&mut raw.out, stream, 4_005);
        take(raw, 5_005);
        raw.answer(stream, b"done");
    }]);
    let mut channel = connect(&address);
    call(&mut channel).expect("answered");
    let answer = channel.unary(PATH, &[1; 5_000], &soon());
    assert_eq!(answer.expect("answered"), b"done");
    drop(channel);
    server.join().expect("the server has seen what it expects");
}

/// A deadline of a streaming call holds, whatever the server does; the server is told that nobody
/// waits any more.
#[test]
fn a_stream_ends_at_its_deadline() {
    let (address, server) = serve_raw(vec![|raw| {
        raw.settings(&[]);
        let head = raw.wait_for("a head", |frame| frame.kind == kind::HEADERS);
        raw.headers(head.stream);
        let reset = raw.wait_for("RST_STREAM", |frame| frame.kind == kind::RST_STREAM);
        assert_eq!(reset.payload, (ErrorCode::Cancel as u32).to_be_bytes());
    }]);
    let mut channel = connect(&address);
    let options = CallOptions {
        deadline: Some(Instant::now() + Duration::from_millis(50)),
        ..CallOptions::default()
    };
    let mut stream = channel.streaming(PATH, &options).expect("begun");
    loop {
        match stream.poll(Duration::from_secs(20)) {
            Ok(StreamStep::Nothing) => {}
            Err(CallError::DeadlineExceeded) => break,
            other => panic!("{other:?}"),
        }
    }
    let after = stream.poll(Duration::ZERO).expect("it is over");
    assert!(matches!(after, StreamStep::Ended), "{after:?}");
    drop(stream);
    drop(channel);
    server.join().expect("the server has seen what it expects");
}

/// A server that keeps the deadline may reset the call at it. Whoever looks later still learns that
/// it was the deadline.
#[test]
fn a_reset_at_the_deadline_is_the_deadline() {
    let reset_at_once = |raw: &mut Raw| {
        raw.settings(&[]);
        let head = raw.wait_for("a head", |frame| frame.kind == kind::HEADERS);
        raw.reset(head.stream, ErrorCode::Cancel);
    };
    let (address, server) = serve_raw(vec![reset_at_once, reset_at_once]);
    let options = CallOptions {
        deadline: Some(Instant::now() + Duration::from_millis(40)),
        ..CallOptions::default()
    };
    let mut channel = connect(&address);
    let mut stream = channel.streaming(PATH, &options).expect("begun");
    stream.send(b"question");
    std::thread::sleep(Duration::from_millis(80));
    let late = stream.poll(Duration::from_secs(20));
    assert!(matches!(late, Err(CallError::DeadlineExceeded)), "{late:?}");
    drop(stream);
    drop(channel);
    let mut channel = connect(&address);
    match call(&mut channel) {
        Err(CallError::Status(status)) => assert_eq!(status.code(), Code::Cancelled, "in time"),
        other => panic!("{other:?}"),
    }
    drop(channel);
    server.join().expect("the server has seen what it expects");
}
