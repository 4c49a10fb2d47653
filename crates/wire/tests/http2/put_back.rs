//! Messages that the layer above cannot take yet come once more, and nothing is lost, doubled or
//! overtaken.

use std::collections::{BTreeMap, VecDeque};

use wire::http2::frame::{flag, kind};
use wire::{CancelCause, Config, Event, Pause, StreamKey, TakenMessage};

use crate::support::*;

/// Puts a message back as it came.
fn put_back(server: &mut Endpoint, seen: &Seen) {
    let Event::Message { stream, last } = seen.event else {
        panic!("no message: {seen:?}");
    };
    let message = TakenMessage::Owned(seen.message.clone());
    drop(server.connection.take_message());
    let (connection, out) = (&mut server.connection, &mut server.output);
    connection.put_back(stream, message, &[], last, out);
}

fn end(server: &mut Endpoint, stream: StreamKey) {
    let (connection, out) = (&mut server.connection, &mut server.output);
    connection.finish(stream, out, &wire::grpc::Status::OK);
}

#[test]
fn a_message_that_was_put_back_comes_again_when_large_messages_may_be_sent() {
    let mut server = Endpoint::server();
    for id in [1, 3] {
        let mut seen = server.feed(&unary(id, b"abc"));
        assert_eq!(seen.len(), 2);
        let first = seen.remove(1);
        let mut again = first.clone();
        for _ in 0..3 {
            server.connection.set_pause(Pause::Large);
            put_back(&mut server, &again);
            assert!(!server.connection.has_events() && server.feed(b"").is_empty());
            assert_eq!(server.connection.buffered_bytes(), 8, "it is charged");
            assert!(server.connection.has_put_back());
            assert_eq!(
                server.connection.queued_bytes(),
                0,
                "nothing is for the peer"
            );
            server.connection.set_pause(Pause::No);
            assert!(server.connection.has_events());
            let mut seen = server.feed(b"");
            assert_eq!((seen.len(), &seen[0]), (1, &first));
            again = seen.remove(0);
            assert!(!server.connection.has_events() && !server.connection.has_put_back());
        }
        end(&mut server, stream_of(first.event));
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.connection.running(), 0);
    }
}

/// The frames of a call whose message comes in pieces.
fn in_pieces(id: u32, body: &[u8]) -> Vec<u8> {
    let bytes = message(body);
    let (first, rest) = bytes.split_at(16_000);
    let frames = rest.chunks(16_000).map(|piece| data(id, piece, false));
    let rest: Vec<_> = frames.chain([data(id, b"", true)]).flatten().collect();
    [call(id), data(id, first, false), rest].concat()
}

#[test]
fn a_large_message_may_be_kept_and_put_back_all_the_same() {
    let mut server = Endpoint::server();
    let body: Vec<_> = (0..40_000).map(|at| at as u8).collect();
    for (id, is_kept) in [(1, false), (3, true), (5, false), (7, true)] {
        let mut found = None;
        server.feed_with(&in_pieces(id, &body), |connection, seen, _| {
            if let Event::Message { stream, last } = seen.event {
                found = Some((stream, last, connection.take_message()));
            }
        });
        let (stream, last, taken) = found.expect("a message");
        let shared = taken.shared().expect("it is large").clone();
        assert_eq!((&shared[..], taken.bytes(&[])), (&body[..], &body[..]));
        let kept = is_kept.then_some(shared);

        server.connection.set_pause(Pause::Large);
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.put_back(stream, taken, &[], last, out);
        server.connection.set_pause(Pause::No);
        let again = messages(&server.feed(b""));
        assert_eq!(again, [&body[..]]);
        assert!(kept.is_none_or(|kept| kept.is_unique() && kept == body));

        end(&mut server, stream);
        assert_eq!(server.connection.running(), 0);
    }
}

#[test]
fn the_end_of_a_stream_takes_along_what_was_put_back() {
    let mut server = Endpoint::server();
    for (id, ends_itself) in [(1, true), (201, false), (401, true), (601, false)] {
        let seen = server.feed(&unary(id, &[7; 1000]));
        server.connection.set_pause(Pause::Large);
        put_back(&mut server, &seen[1]);
        if ends_itself {
            end(&mut server, stream_of(seen[1].event));
        } else {
            for seen in server.feed(&rst(id, wire::ErrorCode::Cancel)) {
                server.connection.forget(stream_of(seen.event));
            }
        }
        assert!(!server.connection.has_put_back());
        // The next stream has its place, and its message is put back and comes again all the same.
        let seen = server.feed(&unary(id + 100, b"next"));
        put_back(&mut server, &seen[1]);
        assert!(server.connection.has_put_back());
        server.connection.set_pause(Pause::No);
        let again = server.feed(b"");
        assert_eq!((again.len(), &again[0]), (1, &seen[1]));
        end(&mut server, stream_of(seen[1].event));
        assert!(!server.connection.has_events());
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.connection.running(), 0);
    }
}

/// Streams of messages of all sizes, in frames of all sizes, of which some are put back and some
/// streams are held.
#[test]
fn whatever_is_put_back_all_messages_come_once_and_windows_are_given_back() {
    for seed in 0..rounds(60) {
        let mut random = Random::new(seed);
        let mut server = Endpoint::server();
        let mut peer = Peer::default();
        for number in 0..4 {
            let id = 1 + 2 * number;
            peer.begin(id, &mut random);
            server.feed(&call(id));
        }
        let mut put_back = 0;
        for _ in 0..20_000 {
            let pause = [Pause::No, Pause::No, Pause::Large][random.below(3)];
            server.connection.set_pause(pause);
            let bytes = peer.send(&mut server, &mut random);
            server.feed_with(&bytes, |connection, seen, out| {
                let Event::Message { stream, last } = seen.event else {
                    return;
                };
                drop(connection.take_message());
                if random.chance(40) {
                    // Without room, as else nothing is put back.
                    connection.set_pause(Pause::Large);
                    let again = TakenMessage::Owned(seen.message.clone());
                    connection.put_back(stream, again, &[], last, out);
                    put_back += 1;
                    return;
                }
                peer.delivered(stream.id, &seen.message, last);
                connection.release(stream, out);
                if random.chance(10) {
                    connection.hold(stream, true);
                    peer.held.push(stream);
                }
            });
            while !peer.held.is_empty() && random.chance(50) {
                let stream = peer.held.swap_remove(random.below(peer.held.len()));
                server.connection.hold(stream, false);
            }
            if peer.is_done() {
                break;
            }
        }
        assert!(peer.is_done(), "{random:?}: {} put back", put_back);
        assert!(put_back > 10, "{random:?}");
        assert_eq!(server.connection.buffered_bytes(), 0, "{random:?}");
        assert_eq!(server.error(), None);
    }
}

/// The acknowledgement of a PING.
fn frame_of_ping(payload: &[u8]) -> Vec<u8> {
    frame(kind::PING, flag::ACK, 0, payload)
}

/// What the peer of a server has to send, and what it may.
#[derive(Default)]
struct Peer {
    streams: BTreeMap<u32, Sending>,
    held: Vec<StreamKey>,
    connection_window: i64,
}

struct Sending {
    body: Vec<u8>,
    sent: usize,
    window: i64,
    expected: VecDeque<Vec<u8>>,
    has_ended: bool,
}

impl Peer {
    fn begin(&mut self, id: u32, random: &mut Random) {
        self.connection_window = 1 << 20;
        let expected: VecDeque<_> = (0..10 + random.below(10))
            .map(|number| {
                let longest = [10, 2_000, 150_000][random.below(3)];
                vec![number as u8; random.below(longest)]
            })
            .collect();
        let body = expected.iter().flat_map(|one| message(one)).collect();
        let window = 65_535;
        let sending = Sending {
            body,
            sent: 0,
            window,
            expected,
            has_ended: false,
        };
        self.streams.insert(id, sending);
    }

    /// The next frame of some stream, as far as its window goes.
    fn send(&mut self, server: &mut Endpoint, random: &mut Random) -> Vec<u8> {
        let mut answers = Vec::new();
        for frame in server.frames() {
            match (frame.kind, frame.stream) {
                (kind::WINDOW_UPDATE, 0) => {
                    self.connection_window += i64::from(number(&frame.payload))
                }
                (kind::WINDOW_UPDATE, id) => {
                    let stream = self.streams.get_mut(&id).expect("a stream of ours");
                    stream.window += i64::from(number(&frame.payload));
                }
                (kind::PING, _) => answers.extend(frame_of_ping(&frame.payload)),
                _ => {}
            }
        }
        let ids: Vec<u32> = self.streams.keys().copied().collect();
        let id = ids[random.below(ids.len())];
        let stream = self.streams.get_mut(&id).expect("it is there");
        let left = stream.body.len() - stream.sent;
        let may = stream.window.min(self.connection_window).max(0) as usize;
        let bytes = left.min(may).min(1 + random.below(16_384));
        if bytes > 0 {
            let piece = &stream.body[stream.sent..stream.sent + bytes];
            let ends = bytes == left && random.chance(50);
            answers.extend(data(id, piece, ends));
            stream.has_ended |= ends;
            stream.sent += bytes;
            stream.window -= bytes as i64;
            self.connection_window -= bytes as i64;
        } else if left == 0 && !stream.has_ended {
            answers.extend(data(id, b"", true));
            stream.has_ended = true;
        }
        answers
    }

    fn delivered(&mut self, id: u32, message: &[u8], last: bool) {
        let stream = self.streams.get_mut(&id).expect("a stream of ours");
        let expected = stream.expected.pop_front().expect("no more were sent");
        assert!(expected == message, "stream {id}: {} bytes", message.len());
        assert!(!last || stream.expected.is_empty());
    }

    fn is_done(&self) -> bool {
        (self.streams.values()).all(|stream| stream.expected.is_empty() && stream.has_ended)
    }
}

/// A stream of which the layer above bounds the window may fill it also while there is no memory
/// for more: that was given.
#[test]
fn without_memory_a_bounded_window_may_be_filled() {
    let mut server = Endpoint::server();
    for id in [1, 3] {
        let stream = requests(&server.feed(&call(id)))[0];
        let out = &mut server.output;
        server.connection.limit_window(stream, 256 << 10, out);
        server.connection.hold(stream, true);
        server.connection.set_gather_bound(10_000);
        let sent = message(&[7; 50_000]);
        for chunk in sent.chunks(10_000) {
            assert_eq!(server.feed(&data(id, chunk, false)), []);
        }
        assert!(server.connection.buffered_bytes() > 50_000);
        server.connection.hold(stream, false);
        let seen = server.feed(&[]);
        assert!(seen[0].message == [7; 50_000], "what was sent is whole");
        server.connection.release(stream, &mut server.output);
        end(&mut server, stream);
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.error(), None);
    }
}

#[test]
fn without_memory_a_call_that_sends_more_may_be_tried_again() {
    let config = Config {
        pushback_ms: 70,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    for id in [1, 5] {
        let long = [&prefixed(0, &[7; 16_000])[..9_005]].concat();
        let opened = [call(id), data(id, &long, false), call(id + 2)].concat();
        let streams = requests(&server.feed(&opened));
        server.connection.set_gather_bound(10_000);
        assert_eq!(server.feed(&data(id, &[7; 500], false)), []);
        server.frames();
        let seen = server.feed(&data(id + 2, &long, false));
        let (stream, cause) = (streams[1], CancelCause::NoMemory);
        assert_eq!(seen[0].event, Event::Cancelled { stream, cause });
        let ends = server.frames_of_kind(kind::HEADERS);
        let fields = server.decode(&ends[0]);
        for (name, value) in [("grpc-status", "14"), ("grpc-retry-pushback-ms", "70")] {
            assert!(fields.contains(&(name.into(), value.into())), "{fields:?}");
        }
        server.connection.forget(stream);
        // The other one goes on, and ends well when there is memory again.
        server.connection.set_gather_bound(usize::MAX);
        let seen = server.feed(&data(id, &[7; 6_500], true));
        assert!(seen[0].message == [7; 16_000]);
        end(&mut server, streams[0]);
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.error(), None);
    }
}

/// Neither holding a stream nor letting it go on brings its message sooner than it may come.
#[test]
fn a_stream_that_is_held_and_let_go_on_waits_all_the_same() {
    let mut server = Endpoint::server();
    for id in [1, 3] {
        let seen = server.feed(&unary(id, b"abc"));
        let stream = stream_of(seen[1].event);
        server.connection.set_pause(Pause::Large);
        put_back(&mut server, &seen[1]);
        for hold in [true, false, true, false] {
            server.connection.hold(stream, hold);
            assert!(!server.connection.has_events());
            assert_eq!(server.feed(b""), []);
        }
        server.connection.set_pause(Pause::No);
        assert_eq!(server.feed(b""), [seen[1].clone()]);
        end(&mut server, stream);
    }
    // Held when its turn comes, it goes on once it is let go on.
    for id in [7, 9] {
        let seen = server.feed(&unary(id, b"abc"));
        let stream = stream_of(seen[1].event);
        server.connection.set_pause(Pause::Large);
        put_back(&mut server, &seen[1]);
        server.connection.hold(stream, true);
        server.connection.set_pause(Pause::No);
        assert_eq!(server.feed(b""), []);
        server.connection.hold(stream, false);
        assert_eq!(server.feed(b""), [seen[1].clone()]);
        end(&mut server, stream);
    }
    // One that keeps nothing back has nothing to say when it goes on, and one that does says it
    // once.
    let stream = requests(&server.feed(&call(11)))[0];
    for _ in 0..2 {
        for hold in [true, true, false, false] {
            server.connection.hold(stream, hold);
            assert!(!server.connection.has_events());
        }
        server.connection.hold(stream, true);
        assert_eq!(server.feed(&data(11, &message(b"kept"), false)), []);
        assert!(!server.connection.has_events());
        for hold in [false, true, false] {
            server.connection.hold(stream, hold);
        }
        assert!(server.connection.has_events());
        assert_eq!(messages(&server.feed(b"")), [b"kept"]);
        assert!(!server.connection.has_events());
    }
}

/// The end of a stream comes behind what is kept of it, and while it is held not at all, however it
/// was sent.
#[test]
fn the_end_waits_behind_what_is_kept() {
    let ends = |id: u32| [data(id, b"", true), headers(id, &[("a", "b")], true)];
    let mut server = Endpoint::server();
    for (round, id) in [(0, 1), (1, 201)] {
        let stream = requests(&server.feed(&call(id)))[0];
        server.connection.hold(stream, true);
        assert_eq!(
            server.feed(&ends(id)[round]),
            [],
            "nothing is kept but the end"
        );
        server.connection.hold(stream, false);
        let seen = server.feed(b"");
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].event, Event::HalfClosed { stream });
        end(&mut server, stream);

        let id = id + 100;
        let seen = server.feed(&[call(id), data(id, &message(b"abc"), false)].concat());
        let stream = stream_of(seen[1].event);
        server.connection.set_pause(Pause::Large);
        put_back(&mut server, &seen[1]);
        assert_eq!(server.feed(&ends(id)[round]), []);
        server.connection.set_pause(Pause::No);
        let again = server.feed(b"");
        assert_eq!(messages(&again), [b"abc"]);
        let ends: Vec<_> = (again.iter())
            .filter(|seen| {
                let is_last = matches!(seen.event, Event::Message { last: true, .. });
                is_last || seen.event == Event::HalfClosed { stream }
            })
            .collect();
        assert_eq!(ends.len(), 1, "{again:?}");
        end(&mut server, stream);
        assert_eq!(server.connection.running(), 0);
    }
}
