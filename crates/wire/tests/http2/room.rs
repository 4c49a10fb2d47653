//! Send room: a call that has to fetch what it sends is told what the peer's windows would let out.

use bytes::Bytes;
use wire::grpc::Status;
use wire::{Config, ErrorCode, Event, Pause, StreamKey};

use crate::support::*;

/// A server whose peer opens windows of so many bytes for streams; that of the connection has the
/// usual 65 535.
fn server(stream_window: u32) -> Endpoint {
    Endpoint::server_with(&Config::server(), &[(4, stream_window)])
}

fn writable(seen: &[Seen]) -> Vec<StreamKey> {
    let stream = |seen: &Seen| match seen.event {
        Event::Writable { stream } => stream,
        other => panic!("{other:?}"),
    };
    seen.iter().map(stream).collect()
}

/// The next event: its call may act on it before the one behind it is asked for.
fn next(server: &mut Endpoint, input: &[u8]) -> Option<Event> {
    let (connection, out) = (&mut server.connection, &mut server.output);
    connection.poll_event(input, &mut 0, out, 0)
}

fn send(server: &mut Endpoint, stream: StreamKey, bytes: usize) {
    let body: Bytes = vec![0; bytes].into();
    let (connection, out) = (&mut server.connection, &mut server.output);
    connection.send_shared(stream, out, |_| {}, body);
    server.frames();
}

#[test]
fn a_stream_whose_window_is_shut_is_told_when_it_opens() {
    let mut server = server(0);
    let stream = requests(&server.feed(&call(1)))[0];
    for round in 0..2 {
        assert_eq!(server.connection.send_room(stream), 0);
        assert!(server.connection.can_send(stream));
        assert!(server.connection.awaits_taking(stream));
        // Room of the connection is of no use to it.
        assert_eq!(server.feed(&window_update(0, 10_000)), []);
        assert!(!server.connection.take_progress(stream));
        let seen = server.feed(&window_update(1, 1_000));
        assert_eq!(writable(&seen), [stream], "round {round}");
        assert!(
            server.connection.take_progress(stream) && !server.connection.take_progress(stream)
        );
        assert_eq!(server.connection.send_room(stream), 1_000);
        // Nobody waits any more, so nobody is told.
        assert_eq!(server.feed(&window_update(1, 5)), []);
        send(&mut server, stream, 1_000);
        assert!(server.connection.take_progress(stream));
    }
}

/// What a stream's peer has taken is not that of the next stream, which has its place.
#[test]
fn a_new_stream_has_made_no_progress() {
    let mut server = server(0);
    for number in 0..3 {
        let id = 1 + 2 * number;
        let stream = requests(&server.feed(&call(id)))[0];
        assert_eq!(stream.slot, 0, "the place is used again");
        assert!(!server.connection.take_progress(stream), "stream {id}");
        // So that there is progress which nobody asks for.
        server.feed(&window_update(id, 1_000));
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.reset(stream, out, ErrorCode::Cancel);
        connection.forget(stream);
    }
}

#[test]
fn new_settings_that_open_windows_tell_those_who_wait() {
    let mut server = server(0);
    let streams = requests(&server.feed(&[call(1), call(3)].concat()));
    assert_eq!(server.connection.send_room(streams[1]), 0);
    assert_eq!(writable(&server.feed(&settings(&[(4, 100)]))), [streams[1]]);
    assert_eq!(server.connection.send_room(streams[1]), 100);
    assert_eq!(server.feed(&settings(&[(4, 200)])), []);
}

/// What waits on a stream uses its window before what comes behind it.
#[test]
fn what_waits_is_not_room() {
    let mut server = server(1_000);
    let stream = requests(&server.feed(&call(1)))[0];
    send(&mut server, stream, 3_000);
    assert_eq!(server.connection.send_room(stream), 0);
    assert_eq!(writable(&server.feed(&window_update(1, 1_000))), [stream]);
    assert_eq!(server.connection.send_room(stream), 0);
    assert_eq!(writable(&server.feed(&window_update(1, 1_500))), [stream]);
    assert_eq!(
        server.connection.send_room(stream),
        1_000 + 1_000 + 1_500 - 3_005
    );
}

#[test]
fn the_connections_window_goes_to_one_after_the_other() {
    const CALLS: u32 = 300;
    let mut server = server(1 << 20);
    let calls: Vec<u8> = (0..CALLS).flat_map(|at| call(1 + 2 * at)).collect();
    let streams = requests(&server.feed(&calls));
    let mut told = Vec::new();
    for stream in &streams {
        if server.connection.send_room(*stream) > 0 {
            server.connection.promise_room(*stream, 65_535);
            told.push(*stream);
        }
    }
    assert_eq!(told, streams[..1], "all of the window is promised");
    for (at, &waiting) in streams.iter().enumerate().skip(1) {
        let first = told.pop().expect("one has the window");
        match at % 3 {
            // It is sent, and the peer takes it.
            0 => {
                send(&mut server, first, 65_530);
                assert!(!server.connection.has_events());
                let told = next(&mut server, &window_update(0, 65_535));
                assert_eq!(told, Some(Event::Writable { stream: waiting }));
            }
            1 => {
                server.connection.promise_room(first, 0);
                assert!(server.connection.has_events());
                let told = next(&mut server, &[]);
                assert_eq!(told, Some(Event::Writable { stream: waiting }));
            }
            _ => {
                let (connection, out) = (&mut server.connection, &mut server.output);
                connection.finish(first, out, &Status::OK);
                let told = next(&mut server, &[]);
                assert_eq!(told, Some(Event::Writable { stream: waiting }));
            }
        }
        assert_eq!(server.connection.send_room(waiting), 65_535);
        server.connection.promise_room(waiting, 65_535);
        assert!(!server.connection.has_events());
        told.push(waiting);
    }
}

/// A peer need not open a window before it has got what the window lets out: a stream with little
/// room may not wait for that, neither without capacity nor when there is some again.
#[test]
fn little_room_is_room_without_capacity() {
    const WINDOW: u32 = 3_000;
    let mut server = server(WINDOW);
    for round in 0..2 {
        let first = 1 + 4 * round;
        let streams = requests(&server.feed(&[call(first), call(first + 2)].concat()));
        let [full, little] = streams[..] else {
            panic!("two calls");
        };
        // All of the connection's window is taken, and more would go out.
        server.feed(&window_update(first, 1 << 20));
        send(&mut server, full, 100_000);
        server.connection.set_pause(Pause::All);
        assert_eq!(server.connection.send_room(little), 0);
        assert!(!server.connection.has_events());
        // That goes out, and leaves some of the connection's window.
        let told = next(&mut server, &window_update(0, 100_000));
        assert_eq!(told, Some(Event::Writable { stream: little }));
        assert_eq!(server.connection.send_room(little), WINDOW as usize);
        server.connection.promise_room(little, WINDOW as usize);
        send(&mut server, little, WINDOW as usize - 100);
        // What is left of it is room too, and the peer opens the window when that has come.
        let left = server.connection.send_room(little);
        assert!((1..100).contains(&left), "{left}");
        send(&mut server, little, left);
        assert_eq!(server.connection.send_room(little), 0);
        let told = next(&mut server, &window_update(first + 2, 3 * WINDOW));
        assert_eq!(told, Some(Event::Writable { stream: little }));
        server.connection.set_pause(Pause::No);
        let resets = [first, first + 2].map(|id| rst(id, ErrorCode::Cancel));
        server.feed(&resets.concat());
        for stream in [full, little] {
            server.connection.forget(stream);
        }
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.connection.unsent_bytes(), 0);
        assert_eq!(server.connection.running(), 0);
    }
}

/// Who waits since there was no capacity goes on when there is some, with whatever room.
#[test]
fn capacity_that_returns_wakes_streams_with_little_room() {
    let mut server = server(1_000);
    for round in 0..2 {
        let first = 1 + 4 * round;
        let streams = requests(&server.feed(&[call(first), call(first + 2)].concat()));
        let [full, little] = streams[..] else {
            panic!("two calls");
        };
        server.feed(&window_update(first, 1 << 20));
        let window = server.connection.window_room(full);
        send(&mut server, full, window + 1_000);
        server.connection.set_pause(Pause::All);
        assert_eq!(server.connection.send_room(little), 0);
        server.feed(&window_update(0, 10));
        assert!(!server.connection.has_events(), "the other one takes it");
        server.connection.set_pause(Pause::No);
        assert!(!server.connection.has_events());
        let told = next(&mut server, &window_update(0, 65_535));
        assert_eq!(told, Some(Event::Writable { stream: little }));
        assert!(server.connection.send_room(little) > 0);
        let resets = [first, first + 2].map(|id| rst(id, ErrorCode::Cancel));
        server.feed(&resets.concat());
        for stream in [full, little] {
            server.connection.forget(stream);
        }
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.connection.running(), 0);
    }
}

/// While memory is short, calls that would begin to hold something wait for those that hold
/// something already.
#[test]
fn calls_begin_to_hold_something_one_after_the_other_while_memory_is_short() {
    let mut server = server(1 << 20);
    for round in 0..2 {
        let first = 1 + 6 * round;
        let calls = [call(first), call(first + 2), call(first + 4)].concat();
        let streams = requests(&server.feed(&calls));
        let connection = &mut server.connection;
        connection.hold_ready(streams[0], 64 << 10);
        assert!(connection.can_begin(streams[1]), "there is memory");
        connection.set_pause(Pause::Large);
        assert!(connection.can_send(streams[0]), "it goes on");
        assert!(!connection.can_begin(streams[1]) && !connection.can_begin(streams[2]));
        assert!(!connection.has_events());
        // It has sent what it held, and has come to its end.
        connection.hold_ready(streams[0], (64 << 10) - 1);
        assert!(connection.has_events());
        assert_eq!(
            next(&mut server, &[]),
            Some(Event::Writable { stream: streams[1] })
        );
        let connection = &mut server.connection;
        assert!(connection.can_begin(streams[1]));
        connection.hold_ready(streams[1], 1);
        assert!(!connection.has_events());
        // There is memory again.
        connection.set_pause(Pause::No);
        assert!(connection.has_events());
        assert_eq!(
            next(&mut server, &[]),
            Some(Event::Writable { stream: streams[2] })
        );
        let resets = [first, first + 2, first + 4].map(|id| rst(id, ErrorCode::Cancel));
        server.feed(&resets.concat());
        for stream in streams {
            server.connection.forget(stream);
        }
        assert_eq!(server.connection.buffered_bytes(), 0);
    }
}

/// A shut window of the connection leaves nothing to do, however much waits behind it.
#[test]
fn nothing_is_to_be_transmitted_through_a_shut_window() {
    let mut server = server(1 << 20);
    let stream = requests(&server.feed(&call(1)))[0];
    send(&mut server, stream, 100_000);
    for round in 0..2 {
        let before = server.connection.queued_bytes();
        assert!(
            before > 0 && !server.connection.wants_transmit(),
            "round {round}"
        );
        next(&mut server, &window_update(0, 1_000));
        assert_eq!(before - server.connection.queued_bytes(), 1_000);
    }
}

/// What calls keep of their requests is counted, and they begin all the same while memory is short.
#[test]
fn what_is_kept_of_requests_keeps_nobody_from_beginning() {
    let mut server = server(1 << 20);
    for round in 0..2 {
        let first = 1 + 4 * round;
        let streams = requests(&server.feed(&[call(first), call(first + 2)].concat()));
        let connection = &mut server.connection;
        connection.set_pause(Pause::Large);
        for bytes in [100_000, 70_000] {
            for &stream in &streams {
                connection.hold_request(stream, bytes);
            }
        }
        let kept_bytes = connection.buffered_bytes();
        assert!((140_000..150_000).contains(&kept_bytes), "{kept_bytes}");
        assert!(streams.iter().all(|&stream| connection.can_begin(stream)));
        connection.hold_ready(streams[0], 64 << 10);
        assert!(!connection.can_begin(streams[1]));
        connection.set_pause(Pause::No);
        for &stream in &streams {
            let out = &mut server.output;
            server.connection.finish(stream, out, &Status::OK);
        }
        assert_eq!(server.connection.buffered_bytes(), 0);
        while next(&mut server, &[]).is_some() {}
    }
}

#[test]
fn streams_that_end_take_nothing_with_them() {
    let mut server = server(1 << 20);
    for round in 0..2 {
        let first = 1 + 6 * round;
        let calls = [call(first), call(first + 2), call(first + 4)].concat();
        let streams = requests(&server.feed(&calls));
        assert_eq!(server.connection.send_room(streams[0]), 65_535);
        server.connection.promise_room(streams[0], 65_535);
        server.connection.hold_ready(streams[0], 100_000);
        assert!(server.connection.buffered_bytes() >= 100_000);
        // What is only held ready is not unsent, and keeps nobody from sending.
        assert_eq!(server.connection.unsent_bytes(), 0);
        server.connection.reserve_send(streams[0], 100);
        assert_eq!(server.connection.unsent_bytes(), 100);
        assert_eq!(server.connection.queued_bytes(), 0);
        assert_eq!(server.connection.send_room(streams[1]), 0);
        assert_eq!(server.connection.send_room(streams[2]), 0);
        let resets = [
            rst(first + 2, ErrorCode::Cancel),
            rst(first, ErrorCode::Cancel),
        ];
        let seen = server.feed(&resets.concat());
        let events: Vec<_> = seen.iter().map(|seen| seen.event).collect();
        assert!(
            events.contains(&Event::Writable { stream: streams[2] }),
            "{events:?}"
        );
        assert!(
            !events.contains(&Event::Writable { stream: streams[1] }),
            "{events:?}"
        );
        server.connection.forget(streams[0]);
        server.connection.forget(streams[1]);
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.finish(streams[2], out, &Status::OK);
        server.feed(&rst(first + 4, ErrorCode::Cancel));
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.connection.running(), 0);
    }
}

/// The smaller of both windows, less what waits on the stream; promises to others do not count.
#[test]
fn the_room_of_a_window_is_what_is_left_of_the_smaller_one() {
    let mut server = server(1_000);
    let streams = requests(&server.feed(&[call(1), call(3)].concat()));
    let room = |server: &Endpoint| {
        streams
            .clone()
            .iter()
            .map(|&stream| server.connection.window_room(stream))
            .collect::<Vec<_>>()
    };
    assert_eq!(room(&server), [1_000, 1_000]);
    server.connection.promise_room(streams[1], 65_000);
    assert_eq!(room(&server), [1_000, 1_000]);
    send(&mut server, streams[0], 695);
    assert_eq!(room(&server), [300, 1_000]);
    send(&mut server, streams[0], 395);
    assert_eq!(room(&server), [0, 1_000]);
    assert_eq!(server.connection.sent_bytes(), 1_000);
    // A hundred bytes wait for the window, and use of it what they need.
    server.feed(&window_update(1, 99));
    assert_eq!(room(&server), [0, 1_000]);
    server.feed(&window_update(1, 100_000));
    assert_eq!(server.connection.sent_bytes(), 1_100);
    assert_eq!(room(&server), [65_535 - 1_100, 1_000]);
    send(&mut server, streams[0], 65_535 - 1_100 - 5 - 10);
    assert_eq!(room(&server), [10, 10], "of the connection");
    server.feed(&rst(1, ErrorCode::Cancel));
    server.connection.forget(streams[0]);
    assert_eq!(room(&server), [0, 10]);
}
