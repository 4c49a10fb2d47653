//! The negative HTTP/2 cases of `negative.rs` for `Local`, each with a server frame by
//! frame.

#[path = "common/local_client.rs"]
mod local_client;
#[path = "common/raw.rs"]
mod raw;

use std::thread::JoinHandle;

use client::{CallError, CallStart, ChannelKey, Code, NotBegun};
use wire::http2::frame::kind;

use local_client::{LocalClient, Reported, reported};
use raw::{
    ErrorCode, FIRST_WINDOW, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, RESETS_WITHOUT_A_STATUS,
    Raw, serve_raw,
};

const PATH: &str = "/t.T/M";

/// A `Local` with one connection to a server with this script.
fn connect(script: fn(&mut Raw)) -> (LocalClient, ChannelKey, JoinHandle<()>) {
    let (address, server) = serve_raw(vec![script]);
    let mut local_client = LocalClient::new(&address);
    let channel = local_client.connect();
    (local_client, channel, server)
}

fn end(local_client: LocalClient, server: JoinHandle<()>) {
    drop(local_client);
    server.join().expect("the server has seen what it expects");
}

/// How a single call with tag 1 ends before a server with this script.
fn one_call(script: fn(&mut Raw)) -> (Reported, Vec<Reported>) {
    let (mut local_client, channel, server) = connect(script);
    local_client.begin(channel, 1, PATH, b"question");
    let ended = local_client.until(is_end);
    let reported = std::mem::take(&mut local_client.reported);
    end(local_client, server);
    (ended, reported)
}

fn is_end(reported: &Reported) -> bool {
    !matches!(
        reported,
        Reported::Connected(_)
            | Reported::Disconnected(..)
            | Reported::Message(..)
            | Reported::Writable(_)
    )
}

#[test]
fn goaway_lets_what_has_begun_end_and_takes_no_more() {
    let (mut local_client, channel, server) = connect(|raw| {
        raw.settings(&[]);
        let first = raw.request();
        let second = raw.request();
        raw.goaway(first, ErrorCode::NoError);
        raw.answer(first, b"last");
        assert!(second > first);
    });
    local_client.begin(channel, 1, PATH, b"question");
    local_client.begin(channel, 2, PATH, b"question");
    local_client.until(|reported| *reported == Reported::Ok(1, 1));
    local_client.until(|reported| *reported == Reported::NotBegun(2));
    local_client.until(|reported| matches!(reported, Reported::Disconnected(..)));
    assert_eq!(local_client.local.room(channel), 0);
    let start = CallStart {
        path: PATH,
        timeout_ns: None,
        metadata: None,
    };
    let refused = local_client.local.begin(
        channel,
        3,
        &start,
        LocalClient::now_ns(),
        |_| unreachable!(),
    );
    assert!(
        matches!(refused, Err(CallError::NotBegun(NotBegun::Closing { .. }))),
        "{refused:?}"
    );
    end(local_client, server);
}

#[test]
fn goaway_with_an_error_names_it() {
    let (ended, reported) = one_call(|raw| {
        let stream = raw.begin();
        raw.goaway(stream, ErrorCode::EnhanceYourCalm);
    });
    assert_eq!(
        ended,
        Reported::Lost(1),
        "the server may have begun: {reported:?}"
    );
}

#[test]
fn a_reset_without_a_status_is_internal() {
    for (script, messages) in RESETS_WITHOUT_A_STATUS {
        let (ended, reported) = one_call(script);
        assert_eq!(ended, Reported::Failed(1, Code::Internal));
        let came = reported
            .iter()
            .filter(|reported| matches!(reported, Reported::Message(1, _)));
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
        let (mut local_client, channel, server) = connect(script);
        local_client.begin(channel, 1, PATH, b"question");
        local_client.until(|reported| matches!(reported, Reported::Disconnected(..)));
        let ended: Vec<_> = local_client
            .reported
            .iter()
            .filter(|reported| is_end(reported))
            .collect();
        assert_eq!(ended, [&Reported::Lost(1)]);
        end(local_client, server);
    }
}

/// The room of a connection is what the server allows, and follows its changes of mind.
#[test]
fn no_more_calls_than_the_server_allows() {
    let (mut local_client, channel, server) = connect(|raw| {
        raw.settings(&[(MAX_CONCURRENT_STREAMS, 2)]);
        let streams = [raw.request(), raw.request()];
        raw.settings(&[(MAX_CONCURRENT_STREAMS, 3)]);
        raw.answer(streams[0], b"one");
        let third = raw.request();
        raw.answer(streams[1], b"two");
        raw.answer(third, b"three");
    });
    assert_eq!(local_client.local.room(channel), 2);
    local_client.begin(channel, 1, PATH, b"q");
    local_client.begin(channel, 2, PATH, b"q");
    assert_eq!(local_client.local.room(channel), 0);
    let start = CallStart {
        path: PATH,
        timeout_ns: None,
        metadata: None,
    };
    let third = local_client.local.begin(
        channel,
        3,
        &start,
        LocalClient::now_ns(),
        |_| unreachable!(),
    );
    let is_full = matches!(third, Err(CallError::NotBegun(NotBegun::TooManyCalls)));
    assert!(is_full, "{third:?}");
    local_client.until(|reported| *reported == Reported::Ok(1, 1));
    assert_eq!(
        local_client.local.room(channel),
        2,
        "three, of which one runs"
    );
    local_client.begin(channel, 3, PATH, b"q");
    local_client.until(|reported| *reported == Reported::Ok(3, 1));
    local_client.until(|reported| *reported == Reported::Ok(2, 1));
    end(local_client, server);
}

/// Not a byte beyond the window of a call, and all of it when there is room.
#[test]
fn a_small_window_is_kept() {
    let (mut local_client, channel, server) = connect(|raw| {
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
    local_client.begin(channel, 1, PATH, &[1; 1_000]);
    local_client.until(|reported| *reported == Reported::Ok(1, 1));
    end(local_client, server);
}

/// A call that was given up: the server is told, what it still sends is not reported, and others go
/// on.
#[test]
fn a_cancelled_call_is_not_heard_of() {
    let (mut local_client, channel, server) = connect(|raw| {
        raw.settings(&[]);
        let (first, second) = (raw.request(), raw.request());
        let reset = raw.wait_for("RST_STREAM", |frame| frame.kind == kind::RST_STREAM);
        assert_eq!(reset.stream, first);
        assert_eq!(reset.payload, (ErrorCode::Cancel as u32).to_be_bytes());
        raw.answer(first, b"too late");
        raw.answer(second, b"in time");
    });
    let first = local_client.begin(channel, 1, PATH, b"q");
    local_client.begin(channel, 2, PATH, b"q");
    local_client.local.flush(LocalClient::now_ns());
    local_client.local.cancel(first);
    local_client.local.cancel(first);
    assert_eq!(
        local_client.local.counters(net::monotonic_ns()).ended,
        1,
        "once"
    );
    local_client.until(|reported| *reported == Reported::Ok(2, 1));
    let about_first =
        |reported: &&Reported| matches!(reported, Reported::Message(1, _) | Reported::Ok(1, _));
    assert_eq!(local_client.reported.iter().find(about_first), None);
    // Its place belongs to another call by now, or to none.
    local_client.local.cancel(first);
    assert_eq!(local_client.local.counters(net::monotonic_ns()).ended, 2);
    end(local_client, server);
}

/// A server that keeps the deadline may reset the call at it, and that may be read before the
/// deadline is looked at.
#[test]
fn a_reset_at_the_deadline_is_the_deadline() {
    const TIMEOUT_NS: u64 = 3_600_000_000_000;
    for late_ns in [0, TIMEOUT_NS] {
        let (mut local_client, channel, server) = connect(|raw| {
            let stream = raw.begin();
            raw.reset(stream, ErrorCode::Cancel);
        });
        // The acknowledgement of settings comes first, so that the next thing to read is the reset.
        local_client.turn_quiet();
        local_client.begin_within(channel, 1, PATH, b"question", Some(TIMEOUT_NS));
        while !local_client.reported.iter().any(is_end) {
            local_client.local.flush(LocalClient::now_ns());
            let now_ns = LocalClient::now_ns();
            local_client
                .local
                .wait(Some(TIMEOUT_NS), now_ns)
                .expect("waiting works");
            let all = &mut local_client.reported;
            local_client
                .local
                .receive(LocalClient::now_ns() + late_ns, &mut |happened| {
                    all.push(reported(&happened))
                });
        }
        let expected = if late_ns == 0 {
            Reported::Failed(1, Code::Cancelled)
        } else {
            Reported::DeadlineExceeded(1)
        };
        assert_eq!(
            local_client
                .reported
                .iter()
                .find(|reported| is_end(reported)),
            Some(&expected)
        );
        end(local_client, server);
    }
}

/// The output of a connection has a bound of its own: behind it the call can go on although the
/// server says nothing.
#[test]
fn a_call_hears_that_it_can_send_from_a_server_that_stays_silent() {
    let (mut local_client, channel, server) = connect(|raw| {
        raw.settings(&[(INITIAL_WINDOW_SIZE, i32::MAX as u32)]);
        raw.open_window(0, i32::MAX as u32 - 65_535);
        while raw.next().is_some() {}
    });
    local_client.turn_quiet();
    let start = CallStart {
        path: PATH,
        timeout_ns: None,
        metadata: None,
    };
    let large = vec![1; 3 << 20];
    let call = (local_client.local)
        .begin_streaming(channel, 9, &start, LocalClient::now_ns())
        .expect("there is room");
    for _ in 0..2 {
        (local_client.local).send(call, false, |out| out.extend_from_slice(&large));
        assert!(!local_client.local.can_send(call));
        local_client.until(|reported| *reported == Reported::Writable(9));
        local_client.reported.clear();
    }
    end(local_client, server);
}

/// What waits for the server's windows is counted, also before it is over.
#[test]
fn a_server_that_opens_no_window_is_waited_for() {
    let (address, server) = serve_raw(vec![|raw| {
        raw.settings(&[]);
        while raw.next().is_some() {}
    }]);
    let mut local_client = LocalClient::new(&address);
    let channel = local_client.connect();
    local_client.turn_quiet();
    let counters = local_client.local.counters(LocalClient::now_ns());
    assert_eq!((counters.window_wait_ns, counters.socket_wait_ns), (0, 0));
    local_client.begin(channel, 1, "/t.T/Echo", &vec![0; FIRST_WINDOW + 1]);
    local_client.turn_quiet();
    for _ in 0..2 {
        let before = local_client.local.counters(LocalClient::now_ns());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let after = local_client.local.counters(LocalClient::now_ns());
        assert!(after.window_wait_ns >= before.window_wait_ns + 20_000_000);
        assert_eq!(after.socket_wait_ns, 0);
    }
    drop(local_client);
    server.join().expect("it ends with the connection");
}
