//! How much one connection, and one kind of work, may take of a tick before others have their turn.

use api::keyvalue::CountRequest;
use service::Method;
use wire::{Event, RequestHead, StreamKey};

use super::path;
use crate::limits::{
    EVENT_COST_BYTES, EVENTS_PER_TURN, LONG_READS_PER_TICK_US, UNKNOWN_METHOD_EVENTS,
    UNPACKED_BYTES_PER_EVENT,
};
use crate::pair::Pair;

/// Opens a stream of Echo.
fn open_echo(pair: &mut Pair, gzip: bool) -> StreamKey {
    let path = path(Method::EchoStream);
    let head = RequestHead {
        gzip,
        ..RequestHead::call("test", &path)
    };
    let Pair { client, sent, .. } = pair;
    client.open(sent, &head).expect("a stream is free")
}

/// How many messages of the stream are answered in a turn.
fn answered(pair: &mut Pair) -> usize {
    pair.turn();
    pair.messages.drain(..).count()
}

/// Each begins and ends in one event, and counts as more.
#[test]
fn methods_that_there_are_not_count_as_what_they_cost() {
    const CALLS: usize = 20;
    let mut pair = Pair::open();
    for _ in 0..2 {
        for _ in 0..CALLS {
            let head = RequestHead::call("test", "/pelton.v1.Echo/Nothing");
            let opened = pair.client.open(&mut pair.sent, &head);
            let stream = opened.expect("a stream is free");
            pair.client
                .send_last_message(stream, &mut pair.sent, |_| {});
        }
        pair.turn();
        let events = pair.io.take_turn_cost() / EVENT_COST_BYTES;
        let least = CALLS * (1 + UNKNOWN_METHOD_EVENTS);
        assert!((least..2 * least).contains(&events), "{events} events");
        assert!(!pair.io.is_unfinished());
    }
}

#[test]
fn a_connection_brings_so_many_events_in_a_tick_and_the_rest_in_the_next() {
    for has_ended in [false, true] {
        let mut pair = Pair::open();
        let stream = open_echo(&mut pair, false);
        for _ in 0..2 * EVENTS_PER_TURN {
            (pair.client).send_message(stream, &mut pair.sent, |_| {});
        }
        if has_ended {
            pair.io.set_end_of_input();
        }
        // The begin of the call is an event, too.
        assert_eq!(answered(&mut pair), EVENTS_PER_TURN - 1);
        assert!(pair.io.is_unfinished() && !pair.io.is_closing());
        assert_eq!(answered(&mut pair), EVENTS_PER_TURN);
        assert!(pair.io.is_unfinished() && !pair.io.is_closing());
        assert_eq!(answered(&mut pair), 1);
        assert!(!pair.io.is_unfinished());
        // A peer that sends nothing more is done with when what it has sent is.
        assert_eq!(pair.io.is_closing(), has_ended);
    }
}

/// Messages of five bytes are little input and much work.
#[test]
fn a_turn_costs_by_its_events() {
    let mut pair = Pair::open();
    let stream = open_echo(&mut pair, false);
    pair.turn();
    assert_eq!(pair.io.take_turn_cost(), EVENT_COST_BYTES, "the head");
    for _ in 0..2 {
        for _ in 0..EVENTS_PER_TURN + 3 {
            (pair.client).send_message(stream, &mut pair.sent, |_| {});
        }
        for events in [EVENTS_PER_TURN, 3] {
            assert_eq!(answered(&mut pair), events);
            assert_eq!(pair.io.take_turn_cost(), events * EVENT_COST_BYTES);
        }
    }
}

/// A question of a few bytes can have a response of many, which takes its time to make.
#[test]
fn what_is_made_in_a_turn_counts_as_what_is_brought() {
    const EVENTS: usize = 10;
    let config = wire::Config {
        stream_window: Some(4 << 20),
        connection_window: Some(4 << 20),
        ..wire::Config::client()
    };
    let mut pair = Pair::accepted(false);
    pair.client = wire::Connection::new(&config, 0);
    pair.greet();
    let stream = open_echo(&mut pair, false);
    pair.turn();
    for _ in 0..2 {
        let messages = EVENTS_PER_TURN;
        for _ in 0..messages {
            pair.client.send_message(stream, &mut pair.sent, |out| {
                // EchoRequest: answer_bytes.
                protobuf::writer::uint64(out, 2, (EVENTS * EVENT_COST_BYTES) as u64);
            });
        }
        let mut left = messages;
        while left > 0 {
            let count = answered(&mut pair);
            assert_eq!(count, left.min(EVENTS_PER_TURN.div_ceil(1 + EVENTS)));
            left -= count;
        }
    }
}

/// The rest of an answer follows as soon as the socket has taken what was written before.
#[test]
fn what_waits_for_room_in_the_output_goes_on_when_there_is_some() {
    let config = wire::Config {
        stream_window: Some(4 << 20),
        connection_window: Some(4 << 20),
        ..wire::Config::client()
    };
    let mut pair = Pair::accepted(false);
    pair.client = wire::Connection::new(&config, 0);
    pair.greet();
    // EchoRequest: answer_bytes 1 000 000.
    pair.call(&path(Method::EchoUnary), &[0x10, 0xc0, 0x84, 0x3d]);
    pair.serve();
    let id = pair.handler.rpc().link.id;
    let mut written = 0;
    while !pair.io.output.is_empty() {
        assert!(pair.io.output.len() < 500_000, "not all at once");
        written += pair.io.output.len();
        pair.io.output.clear();
        net::Handler::writable(&mut pair.handler, id, &mut pair.io, pair.now_ns);
    }
    assert!(written > 1_000_000, "{written}");
}

/// What is decompressed takes the time of so many events.
#[test]
fn a_message_that_is_decompressed_counts_by_what_it_becomes() {
    const EVENTS: usize = 100;
    let mut pair = Pair::open();
    let stream = open_echo(&mut pair, true);
    pair.client.set_compress(stream, true);
    let message = vec![0; EVENTS * UNPACKED_BYTES_PER_EVENT];
    for round in 0..2 {
        // An EchoRequest of a field that there is not, so that the answer is empty.
        pair.client.send_message(stream, &mut pair.sent, |out| {
            protobuf::writer::bytes(out, 15, &message);
        });
        pair.client.set_compress(stream, false);
        for _ in 0..EVENTS_PER_TURN {
            (pair.client).send_message(stream, &mut pair.sent, |_| {});
        }
        let begins = usize::from(round == 0);
        let first = answered(&mut pair);
        assert_eq!(first, EVENTS_PER_TURN - begins - EVENTS, "{round}");
        assert_eq!(answered(&mut pair), EVENTS_PER_TURN + 1 - first);
        pair.client.set_compress(stream, true);
    }
}

/// Slices of long reads, until so much time is over.
#[test]
fn long_reads_have_a_share_of_each_tick() {
    const COUNTS: usize = 10;
    let half_us = LONG_READS_PER_TICK_US / 2;
    for (slice_us, slices) in [
        (0, COUNTS),
        (half_us - 1, 3),
        (half_us, 2),
        (half_us + 1, 2),
        (2 * half_us, 1),
    ] {
        let mut pair = Pair::open();
        // Not at the beginning of time, where everything would be over.
        pair.now_ns = 1_000_000_000;
        pair.take_time(slice_us * 1_000);
        for _ in 0..2 {
            for _ in 0..COUNTS {
                let mut message = Vec::new();
                CountRequest::default().encode(&mut message);
                pair.call(&path(Method::Count), &message);
            }
            let mut left = COUNTS;
            while left > 0 {
                let running = pair.handler.running();
                pair.serve();
                // In the first turn the calls begin.
                let begun = if running == 0 { COUNTS } else { running };
                assert_eq!(begun - pair.handler.running(), slices.min(left));
                left -= slices.min(left);
            }
            while !pair.io.output.is_empty() {
                for event in pair.take() {
                    if let Event::Finished { stream } = event {
                        pair.client.forget(stream);
                    }
                }
            }
        }
    }
}
