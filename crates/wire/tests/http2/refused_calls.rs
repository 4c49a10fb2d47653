//! Calls that are refused, by the thousand: an honest client keeps its connection.

use crate::support::*;
use wire::grpc::{Code, Status};
use wire::http2::frame::{flag, kind};
use wire::{CancelCause, Config, ErrorCode, Event, limits};

/// Far more than any burst of the budgets that end connections.
const CALLS: u32 = 5_000;

/// The message of a call, as the client cuts it into frames, of a stream that ends with it or not.
type Rest = fn(u32) -> Vec<u8>;

/// What is on its way when the client hears that its call was refused.
const RESTS: [(&str, Rest); 6] = [
    ("unary", |id| data(id, &message(b"abc"), true)),
    ("an end by itself", |id| {
        [data(id, &message(b"abc"), false), data(id, b"", true)].concat()
    }),
    ("a stream of small messages", |id| {
        let messages = data(id, &message(b"abc"), false).repeat(20);
        [messages, data(id, b"", true)].concat()
    }),
    ("a reset", |id| {
        [
            data(id, &message(b"abc"), false),
            rst(id, ErrorCode::NoError),
        ]
        .concat()
    }),
    ("nothing but a reset", |id| rst(id, ErrorCode::Cancel)),
    ("trailers", |id| headers(id, &[("a", "b")], true)),
];

fn refuse(server: &mut Endpoint, id: u32) {
    let stream = requests(&server.feed(&call(id)))[0];
    let status = Status::new(Code::Unavailable, "too many calls are running");
    server
        .connection
        .finish(stream, &mut server.output, &status);
    server.output.clear();
}

#[test]
fn calls_refused_by_the_layer_above_keep_their_connection() {
    for (name, rest) in RESTS {
        let mut server = Endpoint::server();
        for round in 0..2 * CALLS {
            let id = round * 2 + 1;
            refuse(&mut server, id);
            server.feed(&rest(id));
            assert_eq!(server.error(), None, "{name}, round {round}");
        }
        server.feed(&unary(4 * CALLS + 1, b"a"));
        assert_eq!(server.connection.running(), 1, "{name}");
    }
}

/// All of them on their way before the first refusal arrives, again and again.
#[test]
fn calls_refused_in_a_row_keep_their_connection() {
    for (name, rest) in RESTS {
        let mut server = Endpoint::server();
        for round in 0..10 {
            let ids = (0..1_000).map(|at| (round * 1_000 + at) * 2 + 1);
            ids.clone().for_each(|id| refuse(&mut server, id));
            ids.for_each(|id| drop(server.feed(&rest(id))));
            assert_eq!(server.error(), None, "{name}, round {round}");
        }
    }
}

/// What the protocol itself refuses for its size.
#[test]
fn messages_above_the_limit_keep_their_connection() {
    let config = Config {
        max_message_bytes: 100,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    for round in 0..2 * CALLS {
        let id = round * 2 + 1;
        let seen = server.feed(&[call(id), data(id, &message(&[1; 101]), true)].concat());
        let Some(Event::Cancelled { stream, cause }) = seen.last().map(|seen| seen.event) else {
            panic!("it is not cancelled: {seen:?}");
        };
        assert_eq!(cause, CancelCause::MessageTooLarge);
        server.connection.forget(stream);
        server.output.clear();
        assert_eq!(server.error(), None, "round {round}");
    }
    assert_eq!(server.connection.running(), 0);
}

/// The client keeps the limit, and the work of calls that it gave up takes the places.
#[test]
fn calls_refused_for_work_that_runs_on_keep_their_connection() {
    let config = Config {
        max_streams: 100,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    for round in 0..100 {
        server.feed(&[call(round * 2 + 1), rst(round * 2 + 1, ErrorCode::Cancel)].concat());
    }
    for round in 100..100 + CALLS {
        let id = round * 2 + 1;
        server.feed(&unary(id, b"a"));
        server.assert_reset(id, ErrorCode::RefusedStream);
        assert_eq!(server.error(), None, "round {round}");
    }
}

#[test]
fn a_client_beyond_the_limit_pays_for_each_refusal() {
    let config = Config {
        max_streams: 100,
        ..Config::server()
    };
    // Also when the places were taken by others that are over for it, before.
    for given_up in [0, 50] {
        let mut server = Endpoint::server_with(&config, &[]);
        for at in 0..given_up {
            let seen =
                server.feed(&[call(at * 2 + 1), rst(at * 2 + 1, ErrorCode::Cancel)].concat());
            server.connection.forget(requests(&seen)[0]);
        }
        let refusals = (given_up..5_000)
            .take_while(|at| {
                server.feed(&call(at * 2 + 1));
                server.output.clear();
                server.error().is_none()
            })
            .count() as u32;
        assert_eq!(refusals, 100 + limits::RESET_BURST - given_up);
    }
}

/// Frames of a call that has ended are free as long as they may have been under way.
#[test]
fn a_flood_of_late_frames_ends_its_connection() {
    let mut server = Endpoint::server();
    refuse(&mut server, 1);
    let frames = (0..10_000)
        .take_while(|_| {
            server.feed(&frame(kind::DATA, 0, 1, b"a"));
            server.error().is_none()
        })
        .count() as u32;
    let paid = limits::SMALL_DATA_BUDGET / (limits::SMALL_DATA_BYTES - 1);
    assert_eq!(frames, u32::from(limits::MAX_LATE_FRAMES) + paid);
    server.assert_closed(ErrorCode::EnhanceYourCalm);

    // An end comes once, and behind it nothing is free.
    let mut server = Endpoint::server();
    refuse(&mut server, 1);
    server.feed(&frame(kind::DATA, flag::END_STREAM, 1, b"a"));
    let behind = (0..10_000)
        .take_while(|_| {
            server.feed(&frame(kind::DATA, flag::END_STREAM, 1, b"a"));
            server.error().is_none()
        })
        .count() as u32;
    assert_eq!(behind, paid);
}
