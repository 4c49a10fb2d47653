//! Large messages come one after the other: who gets a window when, and that something always
//! moves.

use crate::support::*;
use std::collections::HashMap;
use wire::grpc::Status;
use wire::http2::frame::{flag, kind};
use wire::{CancelCause, Config, ErrorCode, Event, RequestHead, limits};

const FRAME: usize = limits::MAX_FRAME_BYTES;
const FIRST_WINDOW: usize = limits::STREAM_WINDOW_BYTES as usize;
const LARGE: usize = 3 << 20;

/// A peer that sends one message on each stream, as far as the windows allow.
struct Sender {
    server: Endpoint,
    window: usize,
    /// What each stream may send at first.
    first_window: usize,
    streams: HashMap<u32, Sending>,
    /// Streams that are to stand still.
    stalled: Vec<u32>,
    next_id: u32,
    /// Messages that have come whole.
    done: Vec<u32>,
}

struct Sending {
    body: Vec<u8>,
    sent: usize,
    window: usize,
}

impl Sender {
    fn new(config: &Config) -> Sender {
        Sender {
            server: Endpoint::server_with(config, &[]),
            window: limits::CONNECTION_WINDOW_BYTES as usize,
            first_window: config
                .stream_window
                .map_or(FIRST_WINDOW, |bytes| bytes as usize),
            streams: HashMap::new(),
            stalled: Vec::new(),
            next_id: 1,
            done: Vec::new(),
        }
    }

    /// Begins a call with a message of so many bytes, and returns its identifier.
    fn begin(&mut self, bytes: usize) -> u32 {
        let id = self.next_id;
        self.next_id += 2;
        self.server.feed(&call(id));
        let sending = Sending {
            body: message(&vec![id as u8; bytes]),
            sent: 0,
            window: self.first_window,
        };
        self.streams.insert(id, sending);
        id
    }

    /// Sends one frame of a stream, if the windows let it; returns whether they did.
    fn send(&mut self, id: u32, at_most: usize) -> bool {
        self.take_windows();
        let Some(sending) = self.streams.get_mut(&id) else {
            return false;
        };
        let rest = sending.body.len() - sending.sent;
        let count = rest.min(at_most).min(sending.window).min(self.window);
        if count == 0 {
            return false;
        }
        let end = count == rest;
        let frame = data(id, &sending.body[sending.sent..][..count], end);
        sending.sent += count;
        sending.window -= count;
        self.window -= count;
        let seen = self.server.feed(&frame);
        assert_eq!(self.server.connection.close_reason(), None);
        seen.iter().for_each(|seen| self.answer(seen));
        self.take_windows();
        true
    }

    fn answer(&mut self, seen: &Seen) {
        match seen.event {
            Event::Message { stream, last } => {
                assert!(last);
                let sending = self.streams.remove(&stream.id).expect("it was sent");
                assert!(seen.message == sending.body[5..], "stream {}", stream.id);
                self.done.push(stream.id);
                let out = &mut self.server.output;
                self.server.connection.finish(stream, out, &Status::OK);
            }
            other => panic!("{other:?}"),
        }
    }

    fn take_windows(&mut self) {
        for heard in self.server.frames() {
            let increment = || number(&heard.payload) as usize;
            match (heard.kind, heard.stream) {
                (kind::WINDOW_UPDATE, 0) => self.window += increment(),
                (kind::WINDOW_UPDATE, id) => {
                    if let Some(sending) = self.streams.get_mut(&id) {
                        sending.window += increment();
                    }
                }
                (kind::RST_STREAM, id) => {
                    self.streams.remove(&id);
                }
                (kind::PING, _) => {
                    let answer = frame(kind::PING, flag::ACK, 0, &heard.payload);
                    assert_eq!(self.server.feed(&answer), []);
                }
                _ => {}
            }
        }
    }

    /// Lets the streams that do not stand still send in turns, a frame each, until none may.
    fn run(&mut self) {
        let mut moved = true;
        while moved {
            let mut ids: Vec<_> = self.streams.keys().copied().collect();
            ids.sort_unstable();
            ids.retain(|id| !self.stalled.contains(id));
            moved = ids
                .into_iter()
                .fold(false, |moved, id| self.send(id, FRAME) | moved);
        }
    }

    /// What the windows still let a stream send.
    fn may_send(&mut self, id: u32) -> usize {
        self.take_windows();
        self.streams[&id].window
    }

    fn sent(&self, id: u32) -> usize {
        self.streams[&id].sent
    }

    fn pass_ms(&mut self, ms: u64) {
        self.server.advance_ms(ms);
        self.server.tick();
        self.take_windows();
    }
}

#[test]
fn a_large_message_gets_the_window_for_its_rest_at_once() {
    let mut sender = Sender::new(&Config::server());
    let id = sender.begin(LARGE);
    sender.send(id, FRAME);
    assert_eq!(sender.may_send(id), LARGE + 5 - FRAME);
    assert_eq!(sender.server.connection.buffered_bytes(), LARGE + 5);
    sender.run();
    assert_eq!(sender.done, [1]);
    assert_eq!(sender.server.connection.buffered_bytes(), 0);
}

#[test]
fn messages_that_their_windows_let_through_do_not_wait() {
    let mut sender = Sender::new(&Config::server());
    let large = sender.begin(LARGE);
    sender.send(large, FRAME);
    sender.stalled.push(large);
    for _ in 0..100 {
        sender.begin(FIRST_WINDOW - 5);
    }
    sender.run();
    assert_eq!(sender.done.len(), 100);
}

#[test]
fn the_second_message_waits_until_the_first_lacks_little() {
    let mut sender = Sender::new(&Config::server());
    let (first, second) = (sender.begin(LARGE), sender.begin(LARGE));
    for id in [first, second] {
        sender.send(id, FRAME);
    }
    while sender.sent(first) < LARGE + 5 - (1 << 20) {
        assert_eq!(sender.may_send(second), FIRST_WINDOW - FRAME);
        assert!(sender.send(first, FRAME));
    }
    sender.send(first, FRAME);
    assert_eq!(sender.may_send(second), LARGE + 5 - FRAME);
    // And again with the second and a third.
    let third = sender.begin(LARGE);
    sender.send(third, FRAME);
    assert_eq!(sender.may_send(third), FIRST_WINDOW - FRAME);
    sender.run();
    assert_eq!(sender.done, [first, second, third]);
}

#[test]
fn a_turn_lapses_when_its_message_stands_still_and_comes_again() {
    let mut sender = Sender::new(&Config::server());
    let ids: Vec<_> = (0..3).map(|_| sender.begin(LARGE)).collect();
    for &id in &ids {
        sender.send(id, FRAME);
    }
    let waits = FIRST_WINDOW - FRAME;
    sender.pass_ms(limits::TURN_LAPSE_MS - 1);
    assert_eq!(sender.may_send(ids[1]), waits);
    sender.pass_ms(1);
    assert_eq!(sender.may_send(ids[1]), LARGE + 5 - FRAME);
    assert_eq!(sender.may_send(ids[2]), waits);
    // One that brings enough keeps its turn, whatever the time.
    for _ in 0..5 {
        sender.send(ids[1], FRAME);
        sender.pass_ms(limits::TURN_LAPSE_MS);
        assert_eq!(sender.may_send(ids[2]), waits);
    }
    // A single byte is not enough, the second time either.
    sender.send(ids[1], 1);
    sender.pass_ms(limits::TURN_LAPSE_MS);
    assert_eq!(sender.may_send(ids[2]), LARGE + 5 - FRAME);
    // The first goes on with what it was allowed, and all end.
    sender.run();
    let mut done = sender.done.clone();
    done.sort_unstable();
    assert_eq!(done, ids);
    assert_eq!(sender.server.connection.buffered_bytes(), 0);
}

#[test]
fn a_message_that_stands_still_is_counted_only_until_its_turn_lapses() {
    let mut sender = Sender::new(&Config::server());
    let id = sender.begin(LARGE);
    sender.send(id, FRAME);
    assert!(sender.server.connection.buffered_bytes() >= LARGE);
    for sent in [FRAME, 2 * FRAME] {
        sender.pass_ms(limits::TURN_LAPSE_MS);
        assert!(sender.server.connection.buffered_bytes() <= sent);
        assert!(!sender.server.connection.waits_for_turn());
        sender.send(id, FRAME);
    }
    sender.run();
    assert_eq!(sender.done, [id]);
}

#[test]
fn nobody_gets_a_turn_beyond_the_allowance_but_by_force() {
    let mut sender = Sender::new(&Config::server());
    sender
        .server
        .connection
        .set_turn_allowance(LARGE - FIRST_WINDOW);
    let ids: Vec<_> = (0..2).map(|_| sender.begin(LARGE)).collect();
    sender.run();
    for &id in &ids {
        assert_eq!(sender.sent(id), FIRST_WINDOW, "its first window");
    }
    for at in [0, 1] {
        assert!(sender.server.connection.waits_for_turn());
        assert!(!sender.server.connection.has_turn());
        sender.server.connection.set_turn_allowance(0);
        sender
            .server
            .connection
            .force_turn(&mut sender.server.output);
        assert!(sender.server.connection.has_turn());
        // Not two at a time.
        sender
            .server
            .connection
            .force_turn(&mut sender.server.output);
        sender.run();
        assert_eq!(sender.done, ids[..=at]);
    }
    // An allowance that is large enough needs no force.
    let id = sender.begin(LARGE);
    sender.run();
    sender.server.connection.set_turn_allowance(LARGE);
    sender.server.feed(b"");
    sender.run();
    assert_eq!(sender.done.last(), Some(&id));
}

#[test]
fn messages_that_end_before_their_turn_leave_nothing_behind() {
    for rounds in 0..2 {
        let mut sender = Sender::new(&Config::server());
        for _ in 0..=rounds {
            let ids: Vec<_> = (0..4).map(|_| sender.begin(LARGE)).collect();
            for &id in &ids {
                sender.send(id, FRAME);
            }
            // The first has lapsed, the second has its turn, the others wait.
            sender.pass_ms(limits::TURN_LAPSE_MS);
            for &id in &[ids[2], ids[1], ids[0]] {
                let seen = sender.server.feed(&rst(id, ErrorCode::Cancel));
                let stream = stream_of(seen[0].event);
                sender.server.connection.forget(stream);
                sender.streams.remove(&id);
            }
            sender.run();
            assert_eq!(sender.done.pop(), Some(ids[3]), "the last gets its turn");
            assert_eq!(sender.server.connection.buffered_bytes(), 0);
            assert!(!sender.server.connection.has_turn());
        }
        // And with the connection.
        for _ in 0..3 {
            let id = sender.begin(LARGE);
            sender.send(id, FRAME);
        }
        sender.server.connection.peer_closed();
        assert_eq!(sender.server.connection.buffered_bytes(), 0);
    }
}

#[test]
fn a_message_whose_turn_it_is_goes_on_while_windows_are_shut() {
    let mut sender = Sender::new(&Config::server());
    let ids: Vec<_> = (0..2).map(|_| sender.begin(LARGE)).collect();
    for &id in &ids {
        sender.send(id, FRAME);
    }
    let shut = |sender: &mut Sender, shut| {
        let out = &mut sender.server.output;
        sender.server.connection.set_windows_shut(shut, out);
    };
    shut(&mut sender, true);
    sender.run();
    assert_eq!(sender.done, [ids[0]]);
    assert_eq!(sender.sent(ids[1]), FIRST_WINDOW);
    shut(&mut sender, false);
    sender.server.feed(b"");
    sender.run();
    assert_eq!(sender.done, ids);
}

/// Messages larger than a window may be, and fixed windows: in steps.
#[test]
fn very_large_messages_and_small_windows_go_on_in_steps() {
    let fixed = Config {
        stream_window: Some(FIRST_WINDOW as u32),
        ..Config::server()
    };
    for (config, bytes) in [(Config::server(), 16 << 20), (fixed, LARGE)] {
        let mut sender = Sender::new(&config);
        let ids: Vec<_> = (0..3).map(|_| sender.begin(bytes)).collect();
        let mut largest = 0;
        while sender.done.len() < 3 {
            let before = sender
                .streams
                .values()
                .map(|sending| sending.sent)
                .sum::<usize>();
            for &id in &ids {
                if sender.send(id, FRAME) && sender.streams.contains_key(&id) {
                    largest = largest.max(sender.may_send(id));
                }
            }
            let after = sender
                .streams
                .values()
                .map(|sending| sending.sent)
                .sum::<usize>();
            assert_ne!(before, after, "something always moves");
        }
        let bound = config
            .stream_window
            .unwrap_or(limits::MAX_STREAM_WINDOW_BYTES);
        assert!(largest <= bound as usize, "{largest}");
    }
}

/// Streams that stand still at random, those that go on never wait for them for long, and memory
/// has a bound.
#[test]
fn turns_never_stand_still_beside_streams_that_do() {
    const MAX: usize = 4 << 20;
    for seed in 0..rounds(60) {
        let mut random = Random::new(seed);
        let config = Config {
            max_message_bytes: 1 << 20,
            max_gathered_bytes: MAX,
            stream_window: [None, None, Some(20_000)][random.below(3)],
            ..Config::server()
        };
        let mut sender = Sender::new(&config);
        let count = 2 + random.below(40);
        let mut ids: Vec<_> = (0..count)
            .map(|_| {
                let bytes = [1_000, 100_000, 1 << 20][random.below(3)];
                sender.begin(1 + random.below(bytes))
            })
            .collect();
        for step in 0.. {
            assert!(
                step < 10_000,
                "{random:?}: {} of {count}",
                sender.done.len()
            );
            sender.stalled = ids.iter().copied().filter(|_| random.chance(30)).collect();
            for _ in 0..random.below(50) {
                let id = ids[random.below(ids.len())];
                let bytes = 1 + random.below(FRAME);
                if !sender.stalled.contains(&id) {
                    sender.send(id, bytes);
                }
                let gathered = sender.server.connection.buffered_bytes();
                assert!(gathered <= MAX + (1 << 20), "{random:?}: {gathered}");
            }
            if random.chance(5) {
                let id = ids[random.below(ids.len())];
                if sender.streams.remove(&id).is_some() {
                    for seen in sender.server.feed(&rst(id, ErrorCode::Cancel)) {
                        sender.server.connection.forget(stream_of(seen.event));
                    }
                    sender.done.push(id);
                }
            }
            let ms = [0, 1, 60, 100, 150][random.below(5)];
            sender.pass_ms(ms);
            ids.retain(|id| sender.streams.contains_key(id));
            if ids.is_empty() {
                break;
            }
        }
        assert_eq!(sender.done.len(), count, "{random:?}");
        assert_eq!(sender.server.connection.buffered_bytes(), 0, "{random:?}");
        assert_eq!(sender.server.connection.running(), 0, "{random:?}");
    }
}

/// The largest message of a pair.
const MESSAGE_BYTES: usize = 1 << 20;

/// Returns a configuration that lets some of the largest messages be gathered at a time.
fn gathering_some(config: Config, random: &mut Random) -> Config {
    Config {
        max_message_bytes: MESSAGE_BYTES,
        max_gathered_bytes: (8 + random.below(8)) << 20,
        ..config
    }
}

/// A client and a server of ours, back to back: large messages both ways, more than may be gathered
/// at a time.
#[test]
fn all_messages_of_a_pair_arrive_without_time_passing() {
    for seed in 0..rounds(40) {
        let mut random = Random::new(seed);
        let mut client = Endpoint::new(&gathering_some(Config::client(), &mut random));
        let mut server = Endpoint::new(&gathering_some(Config::server(), &mut random));
        let (mut to_open, mut open) = (1 + random.below(60), HashMap::new());
        let (mut held, mut finished, total) = (Vec::new(), 0, to_open);
        let mut idle = 0;
        while finished < total {
            idle += 1;
            assert!(
                idle < 200,
                "{random:?}: {finished} of {total}, and nothing moves"
            );
            if to_open > 0 && random.chance(60) {
                let head = RequestHead::call("here", "/large");
                let out = &mut client.output;
                let stream = client.connection.open(out, &head).expect("there is room");
                let body = vec![random.number() as u8; random.below(MESSAGE_BYTES)];
                let fill = |out: &mut Vec<u8>| out.extend_from_slice(&body);
                client.connection.send_last_message(stream, out, fill);
                open.insert(stream, body);
                to_open -= 1;
                idle = 0;
            }
            if random.chance(30) {
                // As the server does, when others have used the memory up.
                let allowance = [0, 500_000, usize::MAX][random.below(3)];
                server.connection.set_turn_allowance(allowance);
            }
            if server.connection.waits_for_turn() {
                server.connection.force_turn(&mut server.output);
            }
            for seen in transfer(&mut client, &mut server, &mut random, &mut idle) {
                if let Event::Message { stream, .. } = seen.event {
                    held.push((stream, seen.message));
                }
            }
            while !held.is_empty() && random.chance(70) {
                let (stream, body) = held.swap_remove(random.below(held.len()));
                let fill = |out: &mut Vec<u8>| out.extend_from_slice(&body);
                server.connection.respond(stream, &mut server.output, fill);
                idle = 0;
            }
            for seen in transfer(&mut server, &mut client, &mut random, &mut idle) {
                match seen.event {
                    Event::Message { stream, .. } => {
                        assert!(open[&stream] == seen.message, "{random:?}");
                        client.connection.release(stream, &mut client.output);
                    }
                    Event::Finished { stream } => {
                        client.connection.forget(stream);
                        finished += 1;
                    }
                    _ => {}
                }
            }
        }
        for side in [&client, &server] {
            assert_eq!(side.connection.close_reason(), None, "{random:?}");
            assert_eq!(side.connection.running(), 0, "{random:?}");
        }
        assert_eq!(server.connection.buffered_bytes(), 0, "{random:?}");
    }
}

/// Moves bytes from one side to the other; what the other side then reports.
fn transfer(
    from: &mut Endpoint,
    to: &mut Endpoint,
    random: &mut Random,
    idle: &mut usize,
) -> Vec<Seen> {
    let now_ns = from.now_ns;
    from.connection.transmit(&mut from.output, now_ns);
    let count = from.output.len().min(1 + random.below(200_000));
    let bytes: Vec<_> = from.output.drain(..count).collect();
    if count > 0 {
        *idle = 0;
    }
    let seen = to.feed(&bytes);
    for seen in &seen {
        if let Event::Cancelled { cause, .. } = seen.event {
            panic!("{cause:?} {random:?}");
        }
    }
    seen
}

/// Beyond the bound a call ends that has had no turn, not one that has.
#[test]
fn streams_before_their_turn_share_a_bound() {
    let config = Config {
        max_message_bytes: 1 << 20,
        max_gathered_bytes: 1 << 20,
        ..Config::server()
    };
    let mut sender = Sender::new(&config);
    let first = sender.begin((1 << 20) - 5);
    sender.send(first, FRAME);
    sender.stalled.push(first);
    let mut ended = 0;
    for _ in 0..40 {
        let id = sender.begin((1 << 20) - 5);
        sender.stalled.push(id);
        for _ in 0..3 {
            let body = sender.streams[&id].body.clone();
            let at = sender.sent(id);
            let seen = sender.server.feed(&data(id, &body[at..at + FRAME], false));
            sender.streams.get_mut(&id).expect("it is there").sent += FRAME;
            sender.window -= FRAME;
            for seen in seen {
                let cause = CancelCause::TooMuchUnfinished;
                let stream = stream_of(seen.event);
                assert_eq!(stream.id, id);
                assert_eq!(seen.event, Event::Cancelled { stream, cause });
                sender.server.connection.forget(stream);
                ended += 1;
            }
            sender.take_windows();
            if !sender.streams.contains_key(&id) {
                break;
            }
        }
    }
    assert!(ended > 10, "{ended}");
    sender.stalled.retain(|&id| id != first);
    sender.run();
    assert_eq!(sender.done, [first]);
}

/// Those who wait for their turn and need none any more, since their peer or their call has ended,
/// are passed over.
#[test]
fn who_needs_no_turn_any_more_keeps_nobody_waiting() {
    for peer_ends in [true, false] {
        let mut sender = Sender::new(&Config::server());
        // What calls answer does not go out, so that they stay.
        sender.server.feed(&settings(&[(4, 0)]));
        for _ in 0..2 {
            let first = sender.begin(LARGE);
            let seen = sender.server.feed(&call(sender.next_id));
            let idle = requests(&seen)[0];
            sender.next_id += 2;
            let third = sender.begin(LARGE);
            sender.send(first, FRAME);
            let body = message(&vec![7; LARGE]);
            sender.server.feed(&data(idle.id, &body[..FRAME], false));
            sender.window -= FRAME;
            sender.send(third, FRAME);
            sender.stalled = vec![third];
            assert_eq!(sender.may_send(third), FIRST_WINDOW - FRAME);

            let (connection, out) = (&mut sender.server.connection, &mut sender.server.output);
            if peer_ends {
                connection.hold(idle, true);
                assert_eq!(sender.server.feed(&data(idle.id, b"", true)), []);
            } else {
                connection.send_message(idle, out, |out| out.push(1));
                connection.finish(idle, out, &Status::OK);
            }
            sender.run();
            assert_eq!(sender.done.pop(), Some(first));
            assert_eq!(sender.may_send(third), LARGE + 5 - FRAME);
            sender.stalled.clear();
            sender.run();
            assert_eq!(sender.done.pop(), Some(third));

            let connection = &mut sender.server.connection;
            if peer_ends {
                connection.hold(idle, false);
                let seen = sender.server.feed(b"");
                let cause = CancelCause::BadMessage;
                let cut = Event::Cancelled {
                    stream: idle,
                    cause,
                };
                assert_eq!(seen[0].event, cut, "the message was cut");
                sender.server.connection.forget(idle);
            } else {
                sender.server.feed(&rst(idle.id, ErrorCode::Cancel));
            }
            for ended in [first, third] {
                sender.server.feed(&window_update(ended, 1_000));
            }
            assert_eq!(sender.server.connection.buffered_bytes(), 0);
            assert_eq!(sender.server.connection.running(), 0);
        }
    }
}

/// A window is opened again when half of what it may be is left, not with each frame.
#[test]
fn a_very_large_message_needs_few_updates_of_its_window() {
    const BYTES: usize = 32 << 20;
    let config = Config {
        max_message_bytes: BYTES,
        ..Config::server()
    };
    let mut sender = Sender::new(&config);
    for _ in 0..2 {
        let id = sender.begin(BYTES);
        let (mut updates, mut before) = (0, 0);
        while sender.streams.contains_key(&id) {
            let may_send = sender.may_send(id);
            updates += usize::from(may_send > before);
            assert!(sender.send(id, FRAME));
            before = may_send - FRAME.min(may_send);
        }
        let step = limits::MAX_STREAM_WINDOW_BYTES as usize;
        assert!(updates <= 3 + 2 * BYTES / step, "{updates} updates");
        assert!(updates > BYTES / step, "{updates} updates");
    }
}
