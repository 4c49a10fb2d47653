//! Send capacity: what a peer does not read keeps its calls from producing more, and fails none of
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use wire::grpc::Status;
use wire::{BodyCharge, Config, ErrorCode, Event, Pause, StreamKey};

use crate::support::*;

/// A server whose peer opens no stream window, and may be owed so much.
fn server(max_unsent_bytes: usize) -> Endpoint {
    let config = Config {
        max_unsent_bytes,
        ..Config::server()
    };
    Endpoint::server_with(&config, &[(4, 0)])
}

/// Answers each call whose message has come with a body, and returns those calls.
fn answer(server: &mut Endpoint, seen: &[Seen], body: &Bytes) -> Vec<StreamKey> {
    let mut answered = Vec::new();
    for seen in seen {
        if let Event::Message { stream, .. } = seen.event {
            let (connection, out) = (&mut server.connection, &mut server.output);
            connection.send_shared(stream, out, |_| {}, body.clone());
            connection.finish(stream, out, &Status::OK);
            answered.push(stream);
        }
    }
    answered
}

/// The peer takes so many bytes of each of these streams.
fn take(server: &mut Endpoint, ids: impl Iterator<Item = u32>, bytes: u32) -> Vec<Seen> {
    let mut input = Vec::new();
    for id in ids {
        input.extend(window_update(id, bytes));
        input.extend(window_update(0, bytes));
    }
    let seen = server.feed(&input);
    server.frames();
    seen
}

#[test]
fn first_messages_wait_in_order_until_the_peer_has_read_and_none_is_lost() {
    const CALLS: u32 = 40;
    let mut server = server(1 << 20);
    let body: Bytes = vec![0; 100_000].into();
    let mut answered = Vec::new();
    // The second time, everything is as it was at first.
    for round in 0..2 {
        let first = 1 + round * 2 * CALLS;
        for at in 0..CALLS {
            let seen = server.feed(&unary(first + at * 2, b"a"));
            let now = answer(&mut server, &seen, &body);
            answered.extend(now.iter().map(|stream| stream.id));
            assert_eq!(
                now.len() == 1,
                at <= 10,
                "the bound, and one message beyond it"
            );
        }
        for at in 0..CALLS {
            let seen = take(&mut server, [first + at * 2].into_iter(), 100_005);
            let now = answer(&mut server, &seen, &body);
            answered.extend(now.iter().map(|stream| stream.id));
        }
        let (connection, wanted) = (&server.connection, first + 2 * CALLS);
        assert!(
            answered.iter().copied().eq((1..wanted).step_by(2)),
            "{answered:?}"
        );
        assert_eq!((connection.running(), connection.buffered_bytes()), (0, 0));
    }
    assert!(body.is_unique());
    assert_eq!(server.error(), None);
}

#[test]
fn a_call_that_has_to_wait_gets_one_writable_when_there_is_capacity() {
    let mut server = server(100_000);
    let streams = requests(&server.feed(&[call(1), call(3), call(5)].concat()));
    let body: Bytes = vec![0; 150_000].into();
    for round in 0..2 {
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.send_shared(streams[0], out, |_| {}, body.clone());
        for _ in 0..2 {
            assert!(!connection.can_send(streams[1]) && !connection.can_send(streams[2]));
        }
        assert_eq!(
            take(&mut server, [1].into_iter(), 40_000),
            [],
            "round {round}"
        );
        let seen = take(&mut server, [1].into_iter(), 110_005);
        let events: Vec<_> = seen.iter().map(|seen| seen.event).collect();
        let writable = |stream| Event::Writable { stream };
        assert_eq!(
            events,
            [writable(streams[1]), writable(streams[2])],
            "round {round}"
        );
        assert!(!server.connection.has_events());
    }
}

#[test]
fn streams_that_end_while_they_wait_leave_nothing_behind() {
    let mut server = server(1_000);
    let body: Bytes = vec![0; 10_000].into();
    let seen = server.feed(&unary(1, b"a"));
    answer(&mut server, &seen, &body);
    let waiting = requests(&server.feed(&[call(3), unary(5, b"b")].concat()));
    assert!(!server.connection.can_send(waiting[0]));
    let resets = [rst(3, ErrorCode::Cancel), rst(5, ErrorCode::Cancel)].concat();
    for seen in server.feed(&resets) {
        if let Event::Cancelled { stream, .. } = seen.event {
            server.connection.forget(stream);
        }
    }
    assert_eq!(take(&mut server, [1].into_iter(), 10_005), []);
    assert!(!server.connection.has_events());
    assert_eq!(server.connection.buffered_bytes(), 0);
    assert_eq!(server.connection.running(), 0);
}

#[test]
fn a_reservation_counts_until_its_call_sends_or_ends() {
    let mut server = server(100_000);
    let streams = requests(&server.feed(&[call(1), call(3)].concat()));
    for _ in 0..2 {
        server.connection.reserve_send(streams[0], 60_000);
        assert!(server.connection.can_send(streams[1]));
        server.connection.reserve_send(streams[1], 60_000);
        assert!(!server.connection.has_capacity());
        assert!(server.connection.buffered_bytes() >= 120_000);
        server
            .connection
            .send_message(streams[0], &mut server.output, |out| out.push(1));
        assert!(server.connection.has_capacity());
        server.connection.reserve_send(streams[1], 0);
    }
    server.connection.reserve_send(streams[1], 70_000);
    let (connection, out) = (&mut server.connection, &mut server.output);
    connection.finish(streams[1], out, &Status::OK);
    server.feed(&rst(1, ErrorCode::Cancel));
    server.connection.forget(streams[0]);
    assert_eq!(server.connection.buffered_bytes(), 0);
}

/// What is set aside by and by is one reservation: another in its place takes all of it back, and
/// so does the end.
#[test]
fn more_may_be_set_aside_beside_a_reservation() {
    let mut server = server(100_000);
    let streams = requests(&server.feed(&[call(1), call(3)].concat()));
    for _ in 0..2 {
        server.connection.reserve_more(streams[0], 20_000);
        server.connection.reserve_more(streams[1], 7);
        server.connection.reserve_more(streams[0], 30_000);
        assert_eq!(server.connection.unsent_bytes(), 50_007);
        assert_eq!(server.connection.buffered_bytes(), 50_007);
        assert_eq!(server.connection.held_bytes(), 0, "nothing waits yet");
        server.connection.reserve_more(streams[1], 49_992);
        assert!(server.connection.has_capacity(), "a byte is left");
        server.connection.reserve_more(streams[1], 1);
        assert!(!server.connection.has_capacity());
        server.connection.reserve_send(streams[0], 5);
        assert_eq!(server.connection.unsent_bytes(), 50_005);
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.send_message(streams[1], out, |out| out.push(1));
        server.connection.reserve_send(streams[0], 0);
        assert_eq!(server.connection.unsent_bytes(), 6, "the message waits");
        take(&mut server, [3].into_iter(), 6);
    }
    server.connection.reserve_more(streams[0], 9);
    server.feed(&rst(1, ErrorCode::Cancel));
    server.connection.reserve_more(streams[0], 9);
    assert_eq!(server.connection.buffered_bytes(), 0, "it has ended");
    server.connection.forget(streams[0]);
    assert_eq!(server.connection.buffered_bytes(), 0);
}

#[test]
fn a_paused_connection_takes_no_first_message_until_it_goes_on() {
    let mut server = server(1 << 20);
    let body: Bytes = vec![0; 10].into();
    for id in [1, 5] {
        server.connection.set_pause(Pause::All);
        let seen = server.feed(&[unary(id, b"a"), unary(id + 2, b"b")].concat());
        assert_eq!(answer(&mut server, &seen, &body), []);
        assert!(!server.connection.has_events());
        server.connection.set_pause(Pause::No);
        assert!(server.connection.has_events());
        let seen = server.feed(b"");
        assert_eq!(answer(&mut server, &seen, &body).len(), 2);
        take(&mut server, [id, id + 2].into_iter(), 100);
        assert_eq!(server.connection.buffered_bytes(), 0);
    }
}

#[test]
fn a_pause_of_large_messages_lets_small_ones_go_on() {
    let mut server = server(1 << 20);
    let streams = requests(&server.feed(&[call(1), call(3)].concat()));
    for _ in 0..2 {
        server.connection.set_pause(Pause::Large);
        assert!(!server.connection.can_send_large(streams[0]));
        assert!(server.connection.can_send(streams[1]));
        assert!(!server.connection.has_events());
        server.connection.set_pause(Pause::All);
        assert!(!server.connection.can_send(streams[1]));
        assert!(!server.connection.has_events());
        server.connection.set_pause(Pause::Large);
        let seen = server.feed(b"");
        let writable = |stream| Event::Writable { stream };
        assert_eq!(seen[0].event, writable(streams[1]), "the small one");
        assert_eq!(seen.len(), 1);
        server.connection.set_pause(Pause::No);
        let seen = server.feed(b"");
        assert_eq!(seen[0].event, writable(streams[0]), "the large one");
        assert!(server.connection.can_send_large(streams[0]));
        assert!(!server.connection.has_events());
    }
}

#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn charge(count: &Arc<AtomicUsize>) -> Box<dyn BodyCharge> {
        count.fetch_add(1, Ordering::Relaxed);
        Box::new(Counted(Arc::clone(count)))
    }
}

impl BodyCharge for Counted {}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_shared_body_is_charged_until_its_last_byte_is_sent_or_dropped() {
    let count = Arc::new(AtomicUsize::new(0));
    let body: Bytes = vec![0; 10_000].into();
    let mut server = server(1 << 20);
    let streams = requests(&server.feed(&[call(1), call(3)].concat()));
    for stream in &streams {
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.send_shared(*stream, out, |_| {}, body.clone());
        connection.charge_shared(*stream, || Counted::charge(&count));
        connection.charge_shared(*stream, || panic!("it is charged already"));
    }
    assert_eq!(server.connection.buffered_bytes(), 10, "two prefixes");
    take(&mut server, [1].into_iter(), 10_004);
    assert_eq!(count.load(Ordering::Relaxed), 2, "a byte is left");
    take(&mut server, [1].into_iter(), 1);
    assert_eq!(count.load(Ordering::Relaxed), 1);
    server.connection.peer_closed();
    assert_eq!(count.load(Ordering::Relaxed), 0);
    assert_eq!(server.connection.buffered_bytes(), 0);
    // What was sent at once is not charged.
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&call(1)))[0];
    let (connection, out) = (&mut server.connection, &mut server.output);
    connection.send_shared(stream, out, |_| {}, body.clone());
    connection.charge_shared(stream, || panic!("nothing waits"));
}
