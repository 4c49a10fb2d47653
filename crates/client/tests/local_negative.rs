//! The negative HTTP/2 cases of `negative.rs` for the local face, each with a server frame by
//! frame.

#[path = "common/face.rs"]
mod face;
#[path = "common/raw.rs"]
mod raw;

use std::thread::JoinHandle;

use client::{CallError, CallStart, ChannelKey, Code, NotBegun};
use wire::http2::frame::kind;

use face::{Face, Heard, heard};
use raw::{
    ErrorCode, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, RESETS_WITHOUT_A_STATUS, Raw, serve_raw,
};

const PATH: &str = "/t.T/M";

/// A face with one connection to a server with this script.
fn connect(script: fn(&mut Raw)) -> (Face, ChannelKey, JoinHandle<()>) {
    let (address, server) = serve_raw(vec![script]);
    let mut face = Face::new(&address);
    let channel = face.connect();
    (face, channel, server)
}

fn end(face: Face, server: JoinHandle<()>) {
    drop(face);
    server.join().expect("the server has seen what it expects");
}

/// How a single call with tag 1 ends before a server with this script.
fn one_call(script: fn(&mut Raw)) -> (Heard, Vec<Heard>) {
    let (mut face, channel, server) = connect(script);
    face.begin(channel, 1, PATH, b"question");
    let ended = face.until(is_end);
    let heard = std::mem::take(&mut face.heard);
    end(face, server);
    (ended, heard)
}

fn is_end(heard: &Heard) -> bool {
    !matches!(
        heard,
        Heard::Connected(_) | Heard::Disconnected(..) | Heard::Message(..) | Heard::Writable(_)
    )
}

#[test]
fn goaway_lets_what_has_begun_end_and_takes_no_more() {
    let (mut face, channel, server) = connect(|raw| {
        raw.settings(&[]);
        let first = raw.request();
        let second = raw.request();
        raw.goaway(first, ErrorCode::NoError);
        raw.answer(first, b"last");
        assert!(second > first);
    });
    face.begin(channel, 1, PATH, b"question");
    face.begin(channel, 2, PATH, b"question");
    face.until(|heard| *heard == Heard::Ok(1, 1));
    face.until(|heard| *heard == Heard::NotBegun(2));
    face.until(|heard| matches!(heard, Heard::Disconnected(..)));
    assert_eq!(face.local.room(channel), 0);
    let start = CallStart {
        path: PATH,
        timeout_ns: None,
        metadata: None,
    };
    let refused = face
        .local
        .begin(channel, 3, &start, Face::now_ns(), |_| unreachable!());
    assert!(
        matches!(refused, Err(CallError::NotBegun(NotBegun::Closing { .. }))),
        "{refused:?}"
    );
    end(face, server);
}

#[test]
fn goaway_with_an_error_names_it() {
    let (ended, heard) = one_call(|raw| {
        let stream = raw.begin();
        raw.goaway(stream, ErrorCode::EnhanceYourCalm);
    });
    assert_eq!(
        ended,
        Heard::Lost(1),
        "the server may have begun: {heard:?}"
    );
}

#[test]
fn a_reset_without_a_status_is_internal() {
    for (script, messages) in RESETS_WITHOUT_A_STATUS {
        let (ended, heard) = one_call(script);
        assert_eq!(ended, Heard::Failed(1, Code::Internal));
        let came = heard
            .iter()
            .filter(|heard| matches!(heard, Heard::Message(1, _)));
        assert_eq!(came.count(), messages);
    }
}

#[test]
fn a_flood_of_pings_and_a_push_end_the_connection() {
    let flood = |raw: &mut Raw| {
        raw.begin();
        for _ in 0..100_000 {
            raw.ping([9; 8]);
        }
    };
    let push = |raw: &mut Raw| {
        let stream = raw.begin();
        raw.frame(kind::PUSH_PROMISE, 4, stream, &[0, 0, 0, 2, 0x82]);
        let goaway = raw.wait_for("GOAWAY", |frame| frame.kind == kind::GOAWAY);
        assert_eq!(
            goaway.payload[4..8],
            (ErrorCode::ProtocolError as u32).to_be_bytes()
        );
    };
    for script in [flood as fn(&mut Raw), push] {
        let (mut face, channel, server) = connect(script);
        face.begin(channel, 1, PATH, b"question");
        face.until(|heard| matches!(heard, Heard::Disconnected(..)));
        let ended: Vec<_> = face.heard.iter().filter(|heard| is_end(heard)).collect();
        assert_eq!(ended, [&Heard::Lost(1)]);
        end(face, server);
    }
}

/// The room of a connection is what the server allows, and follows its changes of mind.
#[test]
fn no_more_calls_than_the_server_allows() {
    let (mut face, channel, server) = connect(|raw| {
        raw.settings(&[(MAX_CONCURRENT_STREAMS, 2)]);
        let streams = [raw.request(), raw.request()];
        raw.settings(&[(MAX_CONCURRENT_STREAMS, 3)]);
        raw.answer(streams[0], b"one");
        let third = raw.request();
        raw.answer(streams[1], b"two");
        raw.answer(third, b"three");
    });
    assert_eq!(face.local.room(channel), 2);
    face.begin(channel, 1, PATH, b"q");
    face.begin(channel, 2, PATH, b"q");
    assert_eq!(face.local.room(channel), 0);
    let start = CallStart {
        path: PATH,
        timeout_ns: None,
        metadata: None,
    };
    let third = face
        .local
        .begin(channel, 3, &start, Face::now_ns(), |_| unreachable!());
    let is_full = matches!(third, Err(CallError::NotBegun(NotBegun::TooManyCalls)));
    assert!(is_full, "{third:?}");
    face.until(|heard| *heard == Heard::Ok(1, 1));
    assert_eq!(face.local.room(channel), 2, "three, of which one runs");
    face.begin(channel, 3, PATH, b"q");
    face.until(|heard| *heard == Heard::Ok(3, 1));
    face.until(|heard| *heard == Heard::Ok(2, 1));
    end(face, server);
}

/// Not a byte beyond the window of a call, and all of it when there is room.
#[test]
fn a_small_window_is_kept() {
    let (mut face, channel, server) = connect(|raw| {
        raw.settings(&[(INITIAL_WINDOW_SIZE, 10)]);
        let mut taken = 0;
        while taken < 1_005 {
            let frame = raw.next().expect("the client sends on");
            if frame.kind == kind::DATA {
                assert!(frame.payload.len() <= 10, "more than the window");
                taken += frame.payload.len();
                wire::http2::frame::write_window_update(&mut raw.out, frame.stream, 10);
                if frame.ends_stream() {
                    raw.answer(frame.stream, b"done");
                }
            }
        }
    });
    face.begin(channel, 1, PATH, &[1; 1_000]);
    face.until(|heard| *heard == Heard::Ok(1, 1));
    end(face, server);
}

/// A call that was given up: the server is told, what it still sends is not heard, and others go
/// on.
#[test]
fn a_cancelled_call_is_not_heard_of() {
    let (mut face, channel, server) = connect(|raw| {
        raw.settings(&[]);
        let (first, second) = (raw.request(), raw.request());
        let reset = raw.wait_for("RST_STREAM", |frame| frame.kind == kind::RST_STREAM);
        assert_eq!(reset.stream, first);
        assert_eq!(reset.payload, (ErrorCode::Cancel as u32).to_be_bytes());
        raw.answer(first, b"too late");
        raw.answer(second, b"in time");
    });
    let first = face.begin(channel, 1, PATH, b"q");
    face.begin(channel, 2, PATH, b"q");
    face.local.flush(Face::now_ns());
    face.local.cancel(first);
    face.local.cancel(first);
    assert_eq!(face.local.counters().ended, 1, "once");
    face.until(|heard| *heard == Heard::Ok(2, 1));
    let about_first = |heard: &&Heard| matches!(heard, Heard::Message(1, _) | Heard::Ok(1, _));
    assert_eq!(face.heard.iter().find(about_first), None);
    // Its place belongs to another call by now, or to none.
    face.local.cancel(first);
    assert_eq!(face.local.counters().ended, 2);
    end(face, server);
}

/// A server that keeps the deadline may reset the call at it, and that may be read before the
/// deadline is looked at.
#[test]
fn a_reset_at_the_deadline_is_the_deadline() {
    const TIMEOUT_NS: u64 = 3_600_000_000_000;
    for late_ns in [0, TIMEOUT_NS] {
        let (mut face, channel, server) = connect(|raw| {
            let stream = raw.begin();
            raw.reset(stream, ErrorCode::Cancel);
        });
        // The acknowledgement of settings comes first, so that the next thing to read is the reset.
        face.turn_quiet();
        face.begin_within(channel, 1, PATH, b"question", Some(TIMEOUT_NS));
        while !face.heard.iter().any(is_end) {
            face.local.flush(Face::now_ns());
            let now_ns = Face::now_ns();
            face.local
                .wait(Some(TIMEOUT_NS), now_ns)
                .expect("waiting works");
            let all = &mut face.heard;
            face.local
                .receive(Face::now_ns() + late_ns, &mut |happened| {
                    all.push(heard(&happened))
                });
        }
        let expected = if late_ns == 0 {
            Heard::Failed(1, Code::Cancelled)
        } else {
            Heard::DeadlineExceeded(1)
        };
        assert_eq!(
            face.heard.iter().find(|heard| is_end(heard)),
            Some(&expected)
        );
        end(face, server);
    }
}

/// The output of a connection has a bound of its own: behind it the call can go on although the
/// server says nothing.
#[test]
fn a_call_hears_that_it_can_send_from_a_server_that_stays_silent() {
    let (mut face, channel, server) = connect(|raw| {
        raw.settings(&[(INITIAL_WINDOW_SIZE, i32::MAX as u32)]);
        raw.open_window(0, i32::MAX as u32 - 65_535);
        while raw.next().is_some() {}
    });
    face.turn_quiet();
    let start = CallStart {
        path: PATH,
        timeout_ns: None,
        metadata: None,
    };
    let large = vec![1; 3 << 20];
    let call = (face.local)
        .begin_streaming(channel, 9, &start, Face::now_ns())
        .expect("there is room");
    for _ in 0..2 {
        (face.local).send(call, false, |out| out.extend_from_slice(&large));
        assert!(!face.local.can_send(call));
        face.until(|heard| *heard == Heard::Writable(9));
        face.heard.clear();
    }
    end(face, server);
}
