//! Large compressed messages: decompressed in steps when there is memory, in order, and nothing
//! stays of those that end.

use std::collections::BTreeMap;

use crate::support::*;
use wire::grpc::{Deflater, Status};
use wire::{CancelCause, Config, ErrorCode, Event, limits};

const LARGE: usize = 1 << 20;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Deflater::new().gzip(bytes, &mut out);
    out
}

fn gzip_call(id: u32) -> Vec<u8> {
    headers(
        id,
        &[&CALL[..], &[("grpc-encoding", "gzip")]].concat(),
        false,
    )
}

/// Text that deflate makes some thirty times smaller.
fn text(bytes: usize, salt: u8) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at % 61) as u8 ^ salt ^ (at >> 12) as u8)
        .collect()
}

fn ask(server: &mut Endpoint, allowance: usize) -> Vec<Seen> {
    server.connection.set_unpack_allowance(allowance);
    server.feed(b"")
}

fn end(server: &mut Endpoint, seen: &Seen) {
    let (stream, out) = (stream_of(seen.event), &mut server.output);
    server.connection.finish(stream, out, &Status::OK);
}

#[test]
fn a_large_message_is_made_in_steps_while_others_are_served() {
    let mut server = Endpoint::server();
    for id in [1, 5] {
        let expected = text(LARGE + 1_000, id as u8);
        let body = [prefixed(1, &gzip(&expected)), message(b"behind")].concat();
        server.connection.set_unpack_allowance(0);
        assert_eq!(server.feed(&gzip_call(id)).len(), 1);
        for piece in body.chunks(10_000) {
            assert_eq!(server.feed(&data(id, piece, false)), []);
        }
        assert_eq!(server.feed(&data(id, b"", true)), []);
        assert!(server.connection.waits_to_unpack());
        let steps = LARGE / limits::UNPACK_STEP_BYTES;
        for step in 0..steps {
            assert_eq!(ask(&mut server, limits::UNPACK_STEP_BYTES), [], "{step}");
            assert_eq!(server.connection.unpack_allowance(), 0);
            let other = server.feed(&unary(id + 2 + 100 * step as u32, b"small"));
            assert_eq!(other.len(), 2, "the other stream is served at once");
            end(&mut server, &other[1]);
        }
        let seen = ask(&mut server, limits::UNPACK_STEP_BYTES);
        assert_eq!(messages(&seen), [expected, b"behind".to_vec()]);
        assert!(matches!(seen[0].event, Event::Message { last: false, .. }));
        assert!(matches!(seen[1].event, Event::Message { last: true, .. }));
        assert!(!server.connection.waits_to_unpack());
        end(&mut server, &seen[1]);
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.connection.running(), 0);
        // The next round has higher identifiers.
        if id == 1 {
            assert!(steps < 10);
            let far = server.feed(&unary(2_001, b""));
            end(&mut server, &far[1]);
            return second_round(server);
        }
    }
}

/// As if it became as much as its blocks count, though it becomes nothing, and is small.
#[test]
fn a_message_of_empty_blocks_is_made_in_steps_while_others_are_served() {
    const BLOCKS: usize = 1_000;
    let mut server = Endpoint::server();
    for round in 0..2 {
        let id = 1 + 100 * round;
        server.connection.set_unpack_allowance(0);
        server.feed(&gzip_call(id));
        let packed = testkit::gzip_of_empty_blocks(BLOCKS);
        let body = prefixed(1, &packed);
        assert!(body.len() < 2_000);
        assert_eq!(server.feed(&data(id, &body, true)), []);
        assert!(server.connection.waits_to_unpack());
        let steps = BLOCKS * limits::DEFLATE_BLOCK_WORK_BYTES / limits::UNPACK_STEP_BYTES;
        assert!(steps > 10);
        for step in 0..steps as u32 {
            assert_eq!(ask(&mut server, limits::UNPACK_STEP_BYTES), [], "{step}");
            assert_eq!(server.connection.unpack_allowance(), 0);
            let other = server.feed(&unary(id + 2 + 2 * step, b"small"));
            assert_eq!(other.len(), 2, "the other stream is served at once");
            end(&mut server, &other[1]);
        }
        let seen = ask(&mut server, limits::UNPACK_STEP_BYTES);
        assert_eq!(messages(&seen), [b""]);
        end(&mut server, &seen[0]);
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.connection.running(), 0);
    }
}

/// The same on the same connection, with the end of the stream in the frame of the message.
fn second_round(mut server: Endpoint) {
    let expected = text(LARGE, 9);
    server.connection.set_unpack_allowance(0);
    let body = prefixed(1, &gzip(&expected));
    let mut bytes = gzip_call(2_003);
    let pieces: Vec<_> = body.chunks(10_000).collect();
    for (at, piece) in pieces.iter().enumerate() {
        bytes.extend(data(2_003, piece, at + 1 == pieces.len()));
    }
    assert_eq!(server.feed(&bytes).len(), 1);
    let seen = ask(&mut server, usize::MAX);
    assert_eq!(messages(&seen), [expected]);
    assert!(matches!(seen[0].event, Event::Message { last: true, .. }));
    assert_eq!(seen.len(), 1, "the end comes once");
    end(&mut server, &seen[0]);
    assert_eq!(server.connection.buffered_bytes(), 0);
    assert_eq!(server.connection.running(), 0);
}

#[test]
fn nothing_is_made_until_there_is_memory_for_all_of_it() {
    let mut server = Endpoint::server();
    let expected = text(LARGE, 0);
    let packed = gzip(&expected);
    let mut next = 1;
    for force in [true, false, true] {
        server.connection.set_turn_allowance(LARGE);
        let mut streams = Vec::new();
        for _ in 0..2 {
            let mut bytes = gzip_call(next);
            for piece in prefixed(1, &packed).chunks(10_000) {
                bytes.extend(data(next, piece, false));
            }
            let seen = server.feed(&bytes);
            assert_eq!(seen.len(), 1);
            streams.push(seen[0].clone());
            next += 2;
        }
        let connection = &server.connection;
        assert!(connection.waits_for_turn() && !connection.has_turn());
        let needs = connection.next_turn_bytes();
        assert!(needs > LARGE && needs < LARGE + (64 << 10), "{needs}");
        assert!(connection.buffered_bytes() <= 2 * packed.len() + 20_000);
        assert!(connection.buffered_bytes() >= 2 * packed.len());
        server.connection.set_unpack_allowance(0);
        if force {
            server.connection.force_turn(&mut server.output);
        } else {
            server.connection.set_turn_allowance(needs);
            assert_eq!(server.feed(b""), []);
        }
        assert!(server.connection.has_turn() && !server.connection.waits_for_turn());
        assert!(server.connection.buffered_bytes() >= needs + 2 * packed.len());
        let seen = ask(&mut server, usize::MAX);
        assert_eq!(messages(&seen), std::slice::from_ref(&expected));
        // The second has had none yet: what there was is used up.
        assert!(server.connection.waits_for_turn(), "one at a time");
        assert!(server.connection.buffered_bytes() < needs);
        server.connection.set_turn_allowance(needs);
        let seen = ask(&mut server, usize::MAX);
        assert_eq!(messages(&seen), std::slice::from_ref(&expected));
        for stream in &streams {
            end(&mut server, stream);
        }
        assert!(!server.connection.has_turn() && !server.connection.waits_for_turn());
        assert_eq!(server.connection.next_turn_bytes(), 0);
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.connection.running(), 0);
        server.output.clear();
    }
}

/// Whoever ends a call, its message is forgotten wherever it stands, and the next goes on.
#[test]
fn the_end_of_a_stream_takes_along_what_is_decompressed() {
    let mut server = Endpoint::server();
    let packed = prefixed(1, &gzip(&text(300_000, 3)));
    let mut next = 1;
    for (which, is_under_way, by_peer) in [
        (0, false, false),
        (0, true, true),
        (1, false, true),
        (1, true, false),
        (0, true, false),
        (0, false, true),
    ] {
        server.connection.set_unpack_allowance(0);
        let mut streams = Vec::new();
        for _ in 0..3 {
            let seen = server.feed(&[gzip_call(next), data(next, &packed, true)].concat());
            streams.push(seen[0].clone());
            next += 2;
        }
        if is_under_way {
            assert_eq!(ask(&mut server, limits::UNPACK_STEP_BYTES), []);
        }
        if by_peer {
            let id = stream_of(streams[which].event).id;
            let seen = server.feed(&rst(id, ErrorCode::Cancel));
            server.connection.forget(stream_of(seen[0].event));
        } else {
            end(&mut server, &streams[which]);
        }
        let seen = ask(&mut server, usize::MAX);
        assert_eq!(seen.len(), 2, "the two others");
        for one in &seen {
            assert_eq!(one.message.len(), 300_000);
            end(&mut server, one);
        }
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.connection.running(), 0);
        server.output.clear();
    }
    let seen = server.feed(&[gzip_call(next), data(next, &packed, true)].concat());
    assert_eq!(seen.len(), 2);
    server.connection.set_unpack_allowance(0);
    server.feed(&[gzip_call(next + 2), data(next + 2, &packed, true)].concat());
    server.connection.peer_closed();
    assert_eq!(server.feed(b"").len(), 2, "both are told");
    assert!(!server.connection.waits_to_unpack());
}

#[test]
fn a_message_that_is_not_what_it_announced_ends_its_call_alone() {
    let content = text(200_000, 1);
    let with_size = |bytes: u32| {
        let mut packed = gzip(&content);
        let at = packed.len() - 4;
        packed[at..].copy_from_slice(&bytes.to_le_bytes());
        packed
    };
    let mut cut = gzip(&content);
    cut.drain(2_000..2_100);
    let mut wrong_sum = gzip(&content);
    let at = wrong_sum.len() - 8;
    wrong_sum[at] ^= 1;
    let config = Config {
        max_message_bytes: 1 << 20,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    let mut id = 1;
    for (packed, cause) in [
        (with_size(199_999), CancelCause::BadMessage),
        (with_size(200_001), CancelCause::BadMessage),
        (with_size(100), CancelCause::BadMessage),
        (with_size(1 << 20), CancelCause::BadMessage),
        (with_size(u32::MAX), CancelCause::BadMessage),
        (cut, CancelCause::BadMessage),
        (wrong_sum, CancelCause::BadMessage),
        (gzip(&vec![0; (1 << 20) + 1]), CancelCause::MessageTooLarge),
    ] {
        let mut bytes = gzip_call(id);
        for piece in prefixed(1, &packed).chunks(10_000) {
            bytes.extend(data(id, piece, false));
        }
        let seen = server.feed(&bytes);
        let stream = requests(&seen)[0];
        assert_eq!(seen[1..].len(), 1, "{cause:?}");
        assert!(server.error().is_none(), "{:?}", server.error());
        assert_eq!(seen[1].event, Event::Cancelled { stream, cause });
        server.connection.forget(stream);
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert!(server.error().is_none());
        id += 2;
    }
    let seen =
        server.feed(&[gzip_call(id), data(id, &prefixed(1, &gzip(&content)), true)].concat());
    assert_eq!(messages(&seen), [content]);
}

/// The layer above may stop a stream while its next message is decompressed.
#[test]
fn a_stream_that_is_held_meanwhile_gets_its_message_when_it_goes_on() {
    let mut server = Endpoint::server();
    let content = text(200_000, 4);
    let body = [message(b"first"), prefixed(1, &gzip(&content))].concat();
    for id in [1, 3] {
        server.connection.set_unpack_allowance(0);
        let seen = server.feed(&[gzip_call(id), data(id, &body, id == 1)].concat());
        assert_eq!(messages(&seen), [b"first".to_vec()]);
        let stream = stream_of(seen[0].event);
        server.connection.hold(stream, true);
        assert_eq!(ask(&mut server, usize::MAX), []);
        assert!(!server.connection.waits_to_unpack(), "it is ready");
        if id == 3 {
            assert_eq!(server.feed(&data(id, b"", true)), []);
        }
        server.connection.hold(stream, false);
        let seen = server.feed(b"");
        assert_eq!(messages(&seen), std::slice::from_ref(&content));
        assert!(matches!(seen[0].event, Event::Message { last: true, .. }));
        end(&mut server, &seen[0]);
        assert_eq!(server.connection.buffered_bytes(), 0);
        assert_eq!(server.connection.running(), 0);
    }
}

#[test]
fn packed_messages_that_wait_are_bounded_together() {
    let config = Config {
        max_gathered_bytes: 200_000,
        ..Config::server()
    };
    let mut server = Endpoint::server_with(&config, &[]);
    // Half of it becomes hardly smaller.
    let mut random = Random::new(7);
    let mut noise = vec![0; 100_000];
    noise[..50_000].fill_with(|| random.number() as u8);
    let packed = prefixed(1, &gzip(&noise));
    let mut first = 1;
    for _ in 0..2 {
        server.connection.set_turn_allowance(0);
        let (mut refused, mut streams) = (0, Vec::new());
        for _ in 0..6 {
            let mut bytes = gzip_call(first);
            for piece in packed.chunks(10_000) {
                bytes.extend(data(first, piece, false));
            }
            let seen = server.feed(&bytes);
            assert!(server.connection.waits_for_turn());
            refused += seen[1..]
                .iter()
                .filter(|one| {
                    let cause = CancelCause::TooMuchUnfinished;
                    matches!(one.event, Event::Cancelled { cause: c, .. } if c == cause)
                })
                .count();
            streams.push(seen[0].clone());
            first += 2;
        }
        assert_eq!(refused, 3, "of six");
        for one in &streams {
            let stream = stream_of(one.event);
            server
                .connection
                .reset(stream, &mut server.output, ErrorCode::Cancel);
        }
        assert_eq!(server.connection.buffered_bytes(), 0);
        server.output.clear();
    }
}

/// Returns a body of some messages, compressed or not, and what is in them.
fn random_body(random: &mut Random) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut body, mut contents) = (Vec::new(), Vec::new());
    for _ in 0..1 + random.below(5) {
        let largest = [500, 60_000, 400_000][random.below(3)];
        let content = text(random.below(largest), random.number() as u8);
        let is_packed = random.chance(70) || content.len() > 20_000;
        body.extend(match is_packed {
            true => prefixed(1, &gzip(&content)),
            false => message(&content),
        });
        contents.push(content);
    }
    (body, contents)
}

/// Streams of small and large messages, compressed or not, with any allowance: all come whole and
/// in order, and the connection holds nothing in the end.
#[test]
fn whatever_is_allowed_all_messages_come_once_and_in_order() {
    for seed in 0..rounds(40) {
        let mut random = Random::new(seed);
        let mut server = Endpoint::server();
        let mut bodies: BTreeMap<u32, (Vec<u8>, usize)> = BTreeMap::new();
        let mut expected: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
        for id in [1, 3, 5, 7] {
            server.feed(&gzip_call(id));
            let (body, contents) = random_body(&mut random);
            bodies.insert(id, (body, 0));
            expected.insert(id, contents);
        }
        let mut came: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
        let mut held = None;
        for _ in 0..100_000 {
            let allowance = [0, 1, 5_000, 200_000][random.below(4)];
            server.connection.set_unpack_allowance(allowance);
            server
                .connection
                .set_turn_allowance([0, 100_000, usize::MAX][random.below(3)]);
            if let Some(stream) = held.take() {
                server.connection.hold(stream, false);
            }
            let id = [1, 3, 5, 7][random.below(4)];
            let (body, sent) = bodies.get_mut(&id).expect("begun");
            let count = (body.len() - *sent)
                .min(1 + random.below(16_000))
                .min(15_000);
            let piece = match count > 0 {
                true => data(id, &body[*sent..*sent + count], *sent + count == body.len()),
                false => Vec::new(),
            };
            *sent += count;
            let mut released = Vec::new();
            let seen = server.feed_with(&piece, |connection, seen, out| {
                if let Event::Message { stream, last } = seen.event {
                    came.entry(stream.id)
                        .or_default()
                        .push(seen.message.clone());
                    connection.release(stream, out);
                    if last {
                        released.push(stream);
                    }
                }
            });
            assert!(server.error().is_none(), "{random:?}: {:?}", server.error());
            if let Some(Seen { event, .. }) = seen.first()
                && random.chance(30)
                && !released.contains(&stream_of(*event))
            {
                server.connection.hold(stream_of(*event), true);
                held = Some(stream_of(*event));
            }
            for stream in released {
                let out = &mut server.output;
                server.connection.finish(stream, out, &Status::OK);
            }
            server.output.clear();
            if server.connection.running() == 0 {
                break;
            }
        }
        assert_eq!(came, expected, "{random:?}");
        assert_eq!(server.connection.buffered_bytes(), 0, "{random:?}");
        assert!(!server.connection.has_turn() && !server.connection.waits_for_turn());
    }
}

/// Few blocks are done at once, and told of as the work that they are.
#[test]
fn blocks_count_in_what_is_told_of_a_small_message() {
    let mut server = Endpoint::server();
    let stream = requests(&server.feed(&gzip_call(1)))[0];
    for blocks in [0, 1, 20] {
        let packed = data(
            1,
            &prefixed(1, &testkit::gzip_of_empty_blocks(blocks)),
            false,
        );
        let mut told = Vec::new();
        server.feed_with(&packed, |connection, seen, _| {
            told.push((connection.unpacked_bytes(), seen.message.len()));
        });
        assert_eq!(told, [(blocks * limits::DEFLATE_BLOCK_WORK_BYTES, 0)]);
        let plain = data(1, &message(b"plain"), false);
        server.feed_with(&plain, |connection, _, _| {
            assert_eq!(connection.unpacked_bytes(), 0)
        });
        // Out of a backlog, it has been done already.
        server.connection.hold(stream, true);
        assert_eq!(server.feed(&packed), []);
        server.connection.hold(stream, false);
        assert_eq!(messages(&server.feed(b"")), [b""]);
    }
}

/// What the last message became, however it was decompressed; nothing for one that came as it is.
#[test]
fn what_a_message_became_is_told_of_compressed_ones_alone() {
    let mut server = Endpoint::server();
    let contents = [text(1_000, 1), text(200_000, 2)];
    for id in [1, 3] {
        let stream = requests(&server.feed(&gzip_call(id)))[0];
        let became = |server: &mut Endpoint, bytes: &[u8]| {
            let mut became = Vec::new();
            server.feed_with(bytes, |connection, seen, _| {
                became.push((connection.unpacked_bytes(), seen.message.len()));
            });
            became
        };
        for content in &contents {
            let packed = data(id, &prefixed(1, &gzip(content)), false);
            let bytes = content.len();
            assert_eq!(became(&mut server, &packed), [(bytes, bytes)]);
            let plain = data(id, &message(&content[..1_000]), false);
            assert_eq!(became(&mut server, &plain), [(0, 1_000)]);
            // Out of a backlog.
            for (sent, expected) in [(plain, (0, 1_000)), (packed, (bytes, bytes))] {
                server.connection.hold(stream, true);
                assert_eq!(became(&mut server, &sent), []);
                server.connection.hold(stream, false);
                assert_eq!(became(&mut server, b""), [expected]);
            }
        }
        server.feed(&rst(id, ErrorCode::Cancel));
        server.connection.forget(stream);
        assert_eq!(server.connection.buffered_bytes(), 0);
    }
}
