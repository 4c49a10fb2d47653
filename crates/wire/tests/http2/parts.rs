//! Messages that come in parts: whatever is cut, held or wanted as a whole, each byte comes once
//! and in order.

use wire::http2::frame::kind;
use wire::{CancelCause, Config, ErrorCode, Event, StreamKey, TakenMessage};

use crate::support::*;

/// Small, so that they are used up again and again.
const WINDOW: u32 = 65_535;

fn server() -> Endpoint {
    let config = Config {
        stream_window: Some(WINDOW),
        ..Config::server()
    };
    Endpoint::server_with(&config, &[])
}

/// A call that takes parts.
fn begin(server: &mut Endpoint, id: u32) -> StreamKey {
    let [stream] = requests(&server.feed(&call(id)))[..] else {
        panic!("one request");
    };
    server.connection.take_parts(stream);
    stream
}

/// What a call has seen.
#[derive(Default)]
struct Taken {
    messages: Vec<Vec<u8>>,
    /// What has come of the message that is coming, and what is to come.
    open: Option<(Vec<u8>, u32)>,
    parts: usize,
    gathered: usize,
    has_ended: bool,
}

impl Taken {
    /// Takes an event. `wants_whole`: a message of which this is the first part is wanted as a
    /// whole.
    fn take(
        &mut self,
        connection: &mut wire::Connection,
        seen: &Seen,
        wants_whole: bool,
        out: &mut Vec<u8>,
    ) {
        match seen.event {
            Event::Message { stream, last } => {
                assert_eq!(self.open, None);
                self.messages.push(seen.message.clone());
                self.has_ended = last;
                connection.release(stream, out);
            }
            Event::Part { stream, left, last } => {
                if self.open.is_none() && left > 0 && wants_whole {
                    self.gathered += 1;
                    drop(connection.take_message());
                    let part = TakenMessage::Owned(seen.message.clone());
                    return connection.gather_message(stream, part, &[], out);
                }
                self.parts += 1;
                assert!(!seen.message.is_empty());
                let (mut found, expected) = self.open.take().unwrap_or_default();
                let is_first = found.is_empty();
                assert!(is_first || expected as usize == left as usize + seen.message.len());
                found.extend_from_slice(&seen.message);
                match left {
                    0 => self.messages.push(found),
                    _ => self.open = Some((found, left)),
                }
                assert!(!last || left == 0);
                self.has_ended = last;
                connection.release(stream, out);
            }
            Event::HalfClosed { .. } => self.has_ended = true,
            event => panic!("{event:?}: {:?}", connection.close_reason()),
        }
    }
}

#[test]
fn what_is_cut_held_or_wanted_whole_comes_once_and_in_order() {
    for seed in 0..rounds(60) {
        let mut random = Random::new(0x9a27 + seed);
        let mut server = server();
        for id in [1, 3] {
            let stream = begin(&mut server, id);
            server.output.clear();
            let sent: Vec<Vec<u8>> = (0..1 + random.below(6))
                .map(|_| {
                    let most = [6, 300, 20_000, 300_000][random.below(4)];
                    let bytes = random.below(most);
                    (0..bytes).map(|_| random.number() as u8).collect()
                })
                .collect();
            let bytes: Vec<u8> = sent.iter().flat_map(|one| message(one)).collect();
            let taken = send_all(&mut server, stream, id, &bytes, &mut random);
            assert!(taken.has_ended, "seed {seed}");
            assert!(taken.messages == sent, "seed {seed}");
            let (connection, out) = (&mut server.connection, &mut server.output);
            connection.finish(stream, out, &wire::grpc::Status::OK);
            assert_eq!(server.connection.buffered_bytes(), 0, "seed {seed}");
            assert_eq!(server.connection.running(), 0, "seed {seed}");
        }
    }
}

/// Sends the bytes in frames of any length, as far as the window lets them through, and ends the
/// stream.
fn send_all(
    server: &mut Endpoint,
    stream: StreamKey,
    id: u32,
    bytes: &[u8],
    random: &mut Random,
) -> Taken {
    let (mut taken, mut at, mut window, mut has_ended, mut is_held) =
        (Taken::default(), 0, WINDOW as usize, false, false);
    let most = [1, 10, 1_000, 16_384][random.below(4)].max(bytes.len() / 100);
    let whole_percent = [0, 30, 100][random.below(3)];
    let mut stood_still = 0;
    while !taken.has_ended {
        let count = (1 + random.below(most)).min(window).min(bytes.len() - at);
        let is_last = at + count == bytes.len() && !has_ended && random.chance(50);
        let is_end = is_last || (at == bytes.len() && !has_ended);
        let piece = match count > 0 || is_end {
            true => data(id, &bytes[at..at + count], is_end),
            false => Vec::new(),
        };
        (at, window, has_ended) = (at + count, window - count, has_ended || is_end);
        let wants_whole = random.chance(whole_percent);
        // Small frames of a message that is gathered are a flood if they come at once.
        server.advance_ms(10);
        server.feed_with(&piece, |connection, seen, out| {
            taken.take(connection, seen, wants_whole, out);
        });
        // Held again and again, and let go where nothing else can happen.
        is_held = !is_held && window > 0 && at < bytes.len() && random.chance(20);
        server.connection.hold(stream, is_held);
        for update in server.frames_of_kind(kind::WINDOW_UPDATE) {
            if update.stream == id {
                window += number(&update.payload) as usize;
            }
        }
        stood_still = if count == 0 { stood_still + 1 } else { 0 };
        assert!(
            stood_still < 10,
            "at {at} of {}, window {window}",
            bytes.len()
        );
    }
    taken
}

#[test]
fn nothing_of_a_message_in_parts_is_kept_and_its_window_is_given_back() {
    let mut server = server();
    let stream = begin(&mut server, 1);
    server.output.clear();
    let body = vec![7; 3 << 20];
    let bytes = message(&body);
    let (mut window, mut taken, mut at) = (WINDOW as usize, Taken::default(), 0);
    while at < bytes.len() {
        let count = window.min(16_384).min(bytes.len() - at);
        assert!(count > 0, "the window is shut at {at}");
        server.feed_with(
            &data(1, &bytes[at..at + count], false),
            |connection, seen, out| {
                taken.take(connection, seen, false, out);
            },
        );
        assert_eq!(server.connection.buffered_bytes(), 0);
        (at, window) = (at + count, window - count);
        let updates = server.frames_of_kind(kind::WINDOW_UPDATE);
        let updates = updates.iter().filter(|update| update.stream == 1);
        window += updates
            .map(|update| number(&update.payload) as usize)
            .sum::<usize>();
    }
    assert!(taken.messages == [body], "it is what was sent");
    assert!(taken.parts > 100 && !server.connection.has_turn());
    assert!(server.connection.running() == 1 && server.connection.token(stream) == 0);
}

/// In the same place, too.
#[test]
fn the_next_stream_takes_parts_only_if_it_says_so() {
    let mut server = server();
    for id in [1, 5, 9] {
        let stream = begin(&mut server, id);
        let bytes = message(&[7; 1_000]);
        let [first, rest] = [&bytes[..500], &bytes[500..]];
        let seen = server.feed(&data(id, first, false));
        assert!(matches!(seen[0].event, Event::Part { left: 505, .. }));
        if id > 1 {
            // The first time it ends in the midst of a message.
            server.feed(&data(id, rest, true));
        }
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.finish(stream, out, &wire::grpc::Status::OK);

        let next = id + 2;
        let [after] = requests(&server.feed(&call(next)))[..] else {
            panic!("one request");
        };
        assert_eq!(after.slot, stream.slot, "it is in its place");
        assert_eq!(server.feed(&data(next, first, false)), []);
        let seen = server.feed(&data(next, rest, true));
        assert_eq!(messages(&seen), [[7; 1_000]]);
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.finish(after, out, &wire::grpc::Status::OK);
        assert_eq!(server.connection.buffered_bytes(), 0);
    }
}

#[test]
fn a_message_that_is_cut_off_is_refused_also_if_parts_were_taken() {
    for in_backlog in [false, true] {
        for empty_end in [false, true] {
            let mut server = server();
            let stream = begin(&mut server, 1);
            let bytes = message(&[7; 1_000]);
            let mut taken = Taken::default();
            server.feed_with(&data(1, &bytes[..400], false), |connection, seen, out| {
                taken.take(connection, seen, false, out);
            });
            assert_eq!(
                taken
                    .open
                    .as_ref()
                    .map(|(found, left)| (found.len(), *left)),
                Some((395, 605))
            );
            server.connection.hold(stream, in_backlog);
            let rest = match empty_end {
                true => [data(1, &bytes[400..900], false), data(1, b"", true)].concat(),
                false => data(1, &bytes[400..900], true),
            };
            let mut seen = server.feed(&rest);
            server.connection.hold(stream, false);
            seen.extend(server.feed(b""));
            let last = seen.last().map(|seen| seen.event);
            let cause = CancelCause::BadMessage;
            assert_eq!(last, Some(Event::Cancelled { stream, cause }));
            server.connection.forget(stream);
            assert_eq!(server.connection.buffered_bytes(), 0);
            assert_eq!(server.connection.running(), 0);
        }
    }
}

#[test]
fn a_message_that_is_too_large_is_refused_before_any_part_of_it() {
    let config = Config {
        max_message_bytes: 1_000,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    for (id, bytes) in [(1, 1_001_u32), (3, 1_000), (5, u32::MAX)] {
        let stream = begin(&mut server, id);
        let prefix = [&[0][..], &bytes.to_be_bytes(), b"abc"].concat();
        let seen = server.feed(&data(id, &prefix, false));
        let [Seen { event, .. }] = &seen[..] else {
            panic!("one event: {seen:?}");
        };
        match bytes {
            1_000 => assert_eq!(
                *event,
                Event::Part {
                    stream,
                    left: 997,
                    last: false
                }
            ),
            _ => assert_eq!(
                *event,
                Event::Cancelled {
                    stream,
                    cause: CancelCause::MessageTooLarge
                }
            ),
        }
        for seen in server.feed(&rst(id, ErrorCode::Cancel)) {
            assert_eq!(stream_of(seen.event), stream);
        }
        server.connection.forget(stream);
        assert_eq!(server.connection.running(), 0);
    }
}
