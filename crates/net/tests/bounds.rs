//! Bounds and deadlines to the byte and to the nanosecond, in virtual time: with real sockets they
//! can only be tested from far away.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::scripted::{BUFFER_BYTES, MS, Pair, Scripted, joined, linked_with, pair};
use net::limits::{
    DRAIN_MS, HANDSHAKE_BYTES, HANDSHAKE_MS, HANDSHAKE_STEPS_PER_TICK, HANDSHAKES_PER_LOOP,
    INPUT_BUFFER_BYTES, LINGER_MS, OUTPUT_HIGH_WATER_BYTES, OUTPUT_LOW_WATER_BYTES, STOP_FLUSH_MS,
    STOP_STALL_MS, TICK_INPUT_BYTES, WRITE_STALL_MS,
};
use net::sim::{Faults, Network, Timing};
use net::{Closed, Io};

/// The server greets with so many bytes more than the network takes; nobody reads them.
fn waiting(waiting_bytes: usize) -> Pair {
    let greeting = vec![1; BUFFER_BYTES + waiting_bytes];
    let server = Scripted {
        greeting,
        ..Scripted::default()
    };
    let client = Scripted {
        paused: true,
        greeting: b"a request".to_vec(),
        ..Scripted::default()
    };
    let mut pair = pair(BUFFER_BYTES, server, client);
    pair.network.run_for(10 * MS);
    pair
}

#[test]
fn reading_stops_at_the_high_water_mark_and_not_a_byte_below() {
    let below = waiting(OUTPUT_HIGH_WATER_BYTES - 1);
    assert_eq!(below.network.counters(below.server).chokes, 0);
    let at = waiting(OUTPUT_HIGH_WATER_BYTES);
    assert_eq!(at.network.counters(at.server).chokes, 1);
}

#[test]
fn reading_goes_on_when_the_peer_takes_bytes_again() {
    for round in 0..2 {
        let mut pair = waiting(OUTPUT_HIGH_WATER_BYTES + round);
        let before = pair.at_server.borrow().received.len();
        // What is sent while the server does not read.
        assert_eq!(pair.at_server.borrow().writable, 0);
        pair.at_client.borrow_mut().paused = false;
        pair.network.wake(pair.client);
        pair.network.run_for(1_000 * MS);
        assert_eq!(
            pair.at_server.borrow().writable,
            1,
            "told once, at the low-water mark"
        );
        let sent = BUFFER_BYTES + OUTPUT_HIGH_WATER_BYTES + round;
        assert_eq!(pair.at_client.borrow().received.len(), sent);
        assert!(pair.at_server.borrow().received.len() >= before);
    }
    // What never rose above the low-water mark is nothing to be told of, and a byte more is.
    for (bytes, told) in [(OUTPUT_LOW_WATER_BYTES, 0), (OUTPUT_LOW_WATER_BYTES + 1, 1)] {
        let mut low = waiting(bytes - BUFFER_BYTES);
        low.at_client.borrow_mut().paused = false;
        low.network.wake(low.client);
        low.network.run_for(1_000 * MS);
        assert_eq!(low.at_client.borrow().received.len(), bytes);
        assert_eq!(low.at_server.borrow().writable, told, "{bytes}");
    }
}

#[test]
fn a_connection_that_is_closed_now_sends_nothing_and_leaves_nothing() {
    for _ in 0..2 {
        let server = Scripted {
            close_now: true,
            ..Scripted::default()
        };
        let client = Scripted {
            greeting: b"a request".to_vec(),
            ..Scripted::default()
        };
        let mut pair = pair(BUFFER_BYTES, server, client);
        pair.network.run_for(10 * MS);
        assert_eq!(pair.at_server.borrow().closed, [Closed::ByHandler]);
        assert_eq!(pair.at_client.borrow().received, b"");
        let counters = pair.network.counters(pair.server);
        assert_eq!((counters.connections, counters.bytes_out), (0, 0));
        assert_eq!(
            (counters.input_buffers_lent, counters.output_buffers_lent),
            (0, 0)
        );
    }
}

/// The time begins when something waits, and again when something else does.
#[test]
fn a_peer_to_which_nothing_was_sent_for_long_has_its_whole_time() {
    let mut pair = pair(BUFFER_BYTES, Scripted::default(), Scripted::default());
    for round in 1..=3 {
        pair.network.run_for(2 * WRITE_STALL_MS * MS);
        pair.at_client.borrow_mut().paused = true;
        pair.network.wake(pair.client);
        pair.network.run_for(10 * MS);
        pair.at_server.borrow_mut().later = vec![1; BUFFER_BYTES + 1];
        pair.network.wake(pair.server);
        pair.network.run_for((WRITE_STALL_MS - 20) * MS);
        assert_eq!(pair.network.counters(pair.server).connections, 1, "{round}");
        pair.at_client.borrow_mut().paused = false;
        pair.network.wake(pair.client);
        pair.network.run_for(10 * MS);
        let received = pair.at_client.borrow().received.len();
        assert_eq!(received, round * (BUFFER_BYTES + 1));
        assert_eq!(pair.network.counters(pair.server).stalled, 0);
    }
}

/// A simulation chooses the times of its nodes, and with a longer tick it has fewer of them.
#[test]
fn a_simulation_keeps_the_times_that_it_was_given() {
    let run = |timing: Timing| {
        let client = Scripted {
            paused: true,
            ..Scripted::default()
        };
        let server = Scripted {
            greeting: vec![1; BUFFER_BYTES + 1],
            busy: true,
            ..Scripted::default()
        };
        let mut pair = joined(linked_with(BUFFER_BYTES, timing), server, client);
        pair.network.run_for((timing.write_stall_ms - 1) * MS);
        assert_eq!((pair.counted().connections, pair.counted().stalled), (1, 0));
        pair.network.run_for(2 * MS);
        assert_eq!((pair.counted().connections, pair.counted().stalled), (0, 1));
        pair.network.stop(pair.server);
        pair.network.run_for((timing.drain_ms - 1) * MS);
        assert!(!pair.network.has_ended(pair.server));
        pair.network.run_for(2 * MS);
        assert!(pair.network.has_ended(pair.server));
        pair.counted().ticks
    };
    let timing = Timing {
        tick_ns: 1_000,
        write_stall_ms: 300,
        drain_ms: 70,
    };
    let ticks = run(timing);
    assert_eq!(run(timing), ticks);
    run(Timing {
        write_stall_ms: 20,
        drain_ms: 3_000,
        ..timing
    });
    assert!(
        run(Timing {
            tick_ns: 0,
            ..timing
        }) >= ticks
    );
}

#[test]
fn a_stop_ends_with_the_last_connection_and_does_not_wait_for_its_deadline() {
    let client = Scripted {
        greeting: b"a request".to_vec(),
        ..Scripted::default()
    };
    let mut pair = pair(
        BUFFER_BYTES,
        Scripted {
            busy: true,
            ..Scripted::default()
        },
        client,
    );
    pair.network.run_for(10 * MS);
    pair.network.stop(pair.server);
    pair.network.run_for(500 * MS);
    assert!(!pair.network.has_ended(pair.server), "its work is not done");
    pair.at_server.borrow_mut().busy = false;
    pair.network.wake(pair.server);
    pair.network.run_for(10 * MS);
    assert_eq!(
        pair.at_client.borrow().ends,
        1,
        "the end of output reaches the peer at once"
    );
    pair.network.stop_now(pair.client);
    pair.network.run_for(10 * MS);
    assert!(
        pair.network.has_ended(pair.server),
        "long before {STOP_FLUSH_MS} ms"
    );
}

/// Whoever asks for a stop waits for the drain, and hardly for peers that read nothing.
#[test]
fn peers_that_read_nothing_do_not_hold_a_stop_beyond_the_drain() {
    for (works_for_ms, drained_after_ms) in [
        (0, 0),
        (DRAIN_MS / 2, DRAIN_MS / 2),
        (DRAIN_MS - 50, DRAIN_MS - 50),
        (2 * DRAIN_MS, DRAIN_MS),
    ] {
        let mut pair = waiting(1);
        pair.at_server.borrow_mut().busy = works_for_ms > 0;
        pair.network.stop(pair.server);
        if works_for_ms > 0 {
            pair.network.run_for((drained_after_ms - 20) * MS);
            assert!(!pair.network.has_ended(pair.server), "{works_for_ms}");
            pair.network.run_for(20 * MS);
        }
        pair.at_server.borrow_mut().busy = works_for_ms > drained_after_ms;
        pair.network.wake(pair.server);
        pair.network.run_for((STOP_STALL_MS + 40) * MS);
        assert!(pair.network.has_ended(pair.server), "{works_for_ms}");
    }
}

#[test]
fn a_stop_without_connections_ends_in_the_next_tick() {
    let mut network = Network::new(1, Faults::none());
    let server = network.add_node(Box::new(Scripted::default()));
    network.run_for(MS);
    network.stop(server);
    network.run_for(MS);
    assert!(network.has_ended(server));
}

/// A server with TLS, and a client that knows nothing of it and only says `greeting`.
fn plain_to_secure(greeting: &[u8]) -> Pair {
    let mut network = Network::new(1, Faults::none());
    let at_server = Rc::new(RefCell::new(Scripted::default()));
    let at_client = Rc::new(RefCell::new(Scripted {
        greeting: greeting.to_vec(),
        ..Scripted::default()
    }));
    let accept = Some(common::tls::Authority::new().server());
    let server = network.add_secure_node(Box::new(at_server.clone()), accept, None);
    let client = network.add_node(Box::new(at_client.clone()));
    Pair {
        network,
        server,
        client,
        at_server,
        at_client,
    }
}

#[test]
fn a_handshake_has_its_whole_time_and_no_more() {
    let mut pair = plain_to_secure(b"");
    for round in 1..=2 {
        pair.network.connect(pair.client, pair.server);
        pair.network.run_for(HANDSHAKE_MS * MS - 1);
        let counters = pair.network.counters(pair.server);
        assert_eq!(
            (counters.connections, counters.failed_timed_out),
            (1, round - 1)
        );
        pair.network.run_for(1);
        let counters = pair.network.counters(pair.server);
        assert_eq!(
            (counters.connections, counters.failed_timed_out),
            (0, round),
            "closed at once"
        );
        assert_eq!(counters.writes, 0, "there is nothing to say");
        assert_eq!(
            counters.input_buffers_lent + counters.output_buffers_lent,
            0
        );
        // The client hears of the end, and its side ends too.
        pair.network.run_for(10 * MS);
        assert_eq!(pair.at_client.borrow().ends as u64, round);
        pair.network.run_for(2 * LINGER_MS * MS);
    }
    let at_server = pair.at_server.borrow();
    assert!(at_server.open.is_empty() && at_server.closed.is_empty());
}

/// Records of a client hello that says that it is nearly 64 KB long: RFC 8446 sections 4 and 5.1.
fn long_hello(bytes: usize) -> Vec<u8> {
    let mut hello = vec![1, 0, 0xff, 0x00];
    hello.resize(0xff04, 0);
    let record = |piece: &[u8]| {
        let length = (piece.len() as u16).to_be_bytes();
        [&[22, 3, 1], &length[..], piece].concat()
    };
    let mut records: Vec<u8> = hello.chunks(0x4000).flat_map(record).collect();
    records.truncate(bytes);
    records
}

#[test]
fn a_handshake_may_have_as_many_bytes_as_its_bound_and_no_more() {
    for (bytes, fails) in [(HANDSHAKE_BYTES, 0), (HANDSHAKE_BYTES + 1, 1)] {
        let mut pair = plain_to_secure(&long_hello(bytes));
        for round in 1..=2 {
            pair.network.connect(pair.client, pair.server);
            pair.network.run_for(1_000 * MS);
            let counters = pair.network.counters(pair.server);
            assert_eq!(counters.failed_too_large, fails * round, "{bytes}");
            assert_eq!(counters.failed_broken + counters.failed_not_tls, 0);
            pair.network.run_for((HANDSHAKE_MS + LINGER_MS) * MS);
            let counters = pair.network.counters(pair.server);
            assert_eq!(counters.failed_timed_out, (1 - fails) * round, "{bytes}");
            assert_eq!(counters.connections, 0);
            assert_eq!(counters.input_buffers_lent, 0);
        }
    }
}

/// Connections that are agreed on leave no deadline behind: nothing ever happens by itself.
#[test]
fn when_handshakes_are_done_nothing_is_waited_for() {
    let authority = common::tls::Authority::new();
    let mut network = Network::new(1, Faults::none());
    let at_server = Rc::new(RefCell::new(Scripted::default()));
    let greeting = b"a request".to_vec();
    let at_client = Scripted {
        greeting,
        ..Scripted::default()
    };
    let address = "localhost:1".parse().expect("valid");
    let connect = Some((authority.client(), address));
    let accept = Some(authority.server());
    let server = network.add_secure_node(Box::new(at_server.clone()), accept, None);
    let client = network.add_secure_node(Box::new(at_client), None, connect);
    for round in 1..=2 {
        for _ in 0..3 {
            network.connect(client, server);
        }
        let is_idle = !network.run_until(100_000, |network| network.now_ns() >= HANDSHAKE_MS * MS);
        assert!(is_idle, "round {round}: it ended before any deadline");
        for node in [server, client] {
            let counters = network.counters(node);
            assert_eq!(counters.handshakes, 3 * round);
            assert_eq!(counters.connections, 3 * round);
            assert_eq!(
                counters.input_buffers_lent + counters.output_buffers_lent,
                0
            );
        }
        let received = at_server.borrow().received.len();
        assert_eq!(received as u64, 9 * 3 * round);
    }
    network.stop_now(client);
    network.run_for(10 * MS);
    assert_eq!(at_server.borrow().ends, 6, "each hears of its end");
}

/// By who has opened the connection, whatever else the node can do.
#[test]
fn a_node_that_accepts_and_connects_is_on_the_right_side_of_tls() {
    let authority = common::tls::Authority::new();
    let mut network = Network::new(1, Faults::none());
    let mut node = || {
        let address = "localhost:1".parse().expect("valid");
        let connect = Some((authority.client(), address));
        let handler = Box::new(Scripted {
            greeting: b"hello".to_vec(),
            ..Scripted::default()
        });
        network.add_secure_node(handler, Some(authority.server()), connect)
    };
    let (one, other) = (node(), node());
    for round in 1..=2 {
        network.connect(one, other);
        network.connect(other, one);
        network.run_for(10 * MS);
        for node in [one, other] {
            let counters = network.counters(node);
            assert_eq!(
                (counters.handshakes, counters.connections),
                (2 * round, 2 * round)
            );
        }
    }
}

/// A connection that was touched and has nothing to say is not written to.
#[test]
fn nothing_is_written_where_nothing_waits() {
    let client = Scripted {
        greeting: b"a request".to_vec(),
        ..Scripted::default()
    };
    let mut pair = pair(BUFFER_BYTES, Scripted::default(), client);
    pair.network.run_for(10 * MS);
    assert_eq!(pair.at_server.borrow().received, b"a request");
    for _ in 0..3 {
        // Its tick looks at every connection.
        pair.network.wake(pair.server);
        pair.network.wake(pair.client);
        pair.network.run_for(10 * MS);
    }
    assert_eq!(pair.network.counters(pair.server).writes, 0);
    assert_eq!(pair.network.counters(pair.client).writes, 1);
}

#[test]
fn as_many_handshakes_as_their_bound_go_on_and_each_more_ends_the_oldest() {
    let mut pair = plain_to_secure(b"");
    for round in 0..2 {
        let before = pair.network.counters(pair.server);
        for _ in 0..HANDSHAKES_PER_LOOP {
            pair.network.connect(pair.client, pair.server);
        }
        let counters = pair.network.counters(pair.server);
        assert_eq!(counters.failed_crowded_out, before.failed_crowded_out);
        for more in 1..=3 {
            pair.network.connect(pair.client, pair.server);
            let crowded_out = pair.network.counters(pair.server).failed_crowded_out;
            assert_eq!(crowded_out, before.failed_crowded_out + more, "{round}");
        }
        pair.network.run_for(HANDSHAKE_MS * MS + 1);
        let counters = pair.network.counters(pair.server);
        let timed_out = counters.failed_timed_out - before.failed_timed_out;
        assert_eq!(timed_out, HANDSHAKES_PER_LOOP as u64);
        assert_eq!(counters.connections, 0);
        pair.network.run_for(2 * LINGER_MS * MS);
    }
}

/// Steps until so many reads were made, and returns how many each tick has made.
fn reads_by_tick(pair: &mut Pair, count: u64) -> Vec<u64> {
    let (mut by_tick, before) = (Vec::new(), pair.counted().reads);
    while pair.counted().reads < before + count {
        let reads = pair.counted().reads;
        assert!(pair.network.step(), "{by_tick:?}");
        by_tick.extend(Some(pair.counted().reads - reads).filter(|&reads| reads > 0));
    }
    by_tick
}

#[test]
fn a_tick_takes_as_much_input_as_its_bound_and_leaves_the_rest_to_the_next() {
    let piece_bytes = INPUT_BUFFER_BYTES[1];
    let per_tick = (TICK_INPUT_BYTES / piece_bytes) as u64;
    let client = Scripted {
        greeting: vec![1; piece_bytes],
        ..Scripted::default()
    };
    let mut pair = pair(piece_bytes, Scripted::default(), client);
    for _ in 1..2 * per_tick + 3 {
        pair.network.connect(pair.client, pair.server);
    }
    // What is left tells the acceptor to take fewer newcomers.
    let by_tick = reads_by_tick(&mut pair, per_tick);
    assert_eq!(
        (by_tick, pair.counted().turns_left),
        (vec![per_tick], per_tick + 3)
    );
    let by_tick = reads_by_tick(&mut pair, per_tick + 3);
    assert_eq!(by_tick, [per_tick, 3]);
    assert_eq!(pair.counted().turns_left, 0);
}

/// A server whose turns take as long as `turns_per_tick` in a tick, and one connection that needs
/// `turns` of them.
fn with_long_turns(turns_per_tick: usize, turns: usize) -> Pair {
    const TURN_BYTES: usize = 10;
    let server = Scripted {
        turn_bytes: TURN_BYTES,
        turn_cost_bytes: TICK_INPUT_BYTES / turns_per_tick,
        ..Scripted::default()
    };
    let client = Scripted {
        greeting: vec![1; turns * TURN_BYTES],
        ..Scripted::default()
    };
    pair(BUFFER_BYTES, server, client)
}

#[test]
fn a_tick_takes_as_many_turns_as_they_cost() {
    const CONNECTIONS: usize = 10;
    for turns_per_tick in [1, 4] {
        let mut pair = with_long_turns(turns_per_tick, 1);
        for _ in 1..CONNECTIONS {
            pair.network.connect(pair.client, pair.server);
        }
        let by_tick = reads_by_tick(&mut pair, CONNECTIONS as u64);
        let mut expected = vec![turns_per_tick as u64; CONNECTIONS / turns_per_tick];
        let rest = CONNECTIONS % turns_per_tick;
        expected.extend((rest > 0).then_some(rest as u64));
        assert_eq!(by_tick, expected);
    }
}

/// Who brings more than a turn's work at once does not keep those waiting who bring little, however
/// many there are of the first; and is not kept waiting for ever by the second.
#[test]
fn who_goes_on_has_a_turn_behind_those_who_begin() {
    const MANY: usize = 10;
    const FEW: usize = 3;
    let mut pair = with_long_turns(1, 20 * MANY);
    for _ in 1..MANY {
        pair.network.connect(pair.client, pair.server);
    }
    pair.run_until("all of them go on", |pair| {
        let server = pair.at_server.borrow();
        server.open.len() == MANY && server.open.iter().all(|id| server.turns.contains(id))
    });
    let going_on = pair.at_server.borrow().open.clone();
    pair.at_client.borrow_mut().greeting.clear();
    for _ in 0..FEW {
        pair.network.connect(pair.client, pair.server);
    }
    pair.run_until("they are connected", |pair| {
        pair.at_server.borrow().open.len() == MANY + FEW
    });
    for _ in 0..2 {
        pair.at_server.borrow_mut().turns.clear();
        pair.at_client.borrow_mut().later = vec![1];
        pair.network.wake(pair.client);
        let begin = |pair: &Pair| -> Vec<bool> {
            let server = pair.at_server.borrow();
            let turns = server.turns.iter().map(|id| !going_on.contains(id));
            turns.skip_while(|begins| !begins).collect()
        };
        pair.run_until("all had a turn", |pair| begin(pair).len() >= 2 * FEW);
        // Each tick has one of both, in this order, while there are both.
        assert_eq!(begin(&pair)[..2 * FEW], [true, false].repeat(FEW));
    }
}

#[test]
fn a_tick_takes_as_many_steps_of_handshakes_as_their_bound() {
    let mut pair = plain_to_secure(&long_hello(100));
    for _ in 0..2 {
        for _ in 0..4 * HANDSHAKE_STEPS_PER_TICK {
            pair.network.connect(pair.client, pair.server);
        }
        let by_tick = reads_by_tick(&mut pair, 4 * HANDSHAKE_STEPS_PER_TICK as u64);
        assert_eq!(by_tick, [HANDSHAKE_STEPS_PER_TICK as u64; 4]);
    }
}

/// First messages of handshakes, the same again and again, are answered one by one; what comes over
/// an open connection meanwhile is handled in the next tick.
#[test]
fn an_open_connection_does_not_wait_for_handshakes() {
    const FLOOD: u64 = 100;
    let mut network = Network::new(1, Faults::none());
    let authority = common::tls::Authority::new();
    let address: net::Address = "localhost:1".parse().expect("valid");
    let hello = authority.client().connect(&address).expect("a name");
    let flood = Scripted {
        greeting: hello.output().to_vec(),
        ..Scripted::default()
    };
    let at_server = Rc::new(RefCell::new(Scripted::default()));
    let at_client = Rc::new(RefCell::new(Scripted::default()));
    let accept = Some(authority.server());
    let server = network.add_secure_node(Box::new(at_server.clone()), accept, None);
    let connect = Some((authority.client(), address));
    let client = network.add_secure_node(Box::new(at_client.clone()), None, connect);
    let attacker = network.add_node(Box::new(flood));
    network.connect(client, server);
    network.run_for(100 * MS);
    for round in 1..=2 {
        assert_eq!(network.counters(server).handshakes, 1);
        (0..FLOOD).for_each(|_| network.connect(attacker, server));
        while network.counters(server).handshakes_due < FLOOD - 1 {
            assert!(network.step(), "the flood arrives");
        }
        at_client.borrow_mut().later = b"call".to_vec();
        network.wake(client);
        let ticks = network.counters(server).ticks;
        while at_server.borrow().received.len() < 4 * round {
            assert!(network.step(), "the call arrives");
        }
        let (after, now) = (
            network.counters(server).ticks - ticks,
            network.counters(server),
        );
        assert!(now.handshakes_due > FLOOD / 2, "{after} ticks: {now:?}");
        // The attacker never answers. Its time begins again with this side's flight.
        network.run_for(2 * HANDSHAKE_MS * MS);
        let now = network.counters(server);
        assert_eq!(now.failed_timed_out, FLOOD * round as u64);
        assert_eq!((now.handshakes_due, now.connections), (0, 1));
    }
}

#[test]
fn output_is_full_from_the_high_water_mark_on() {
    let mut io = Io::new();
    for _ in 0..2 {
        io.output.resize(OUTPUT_HIGH_WATER_BYTES - 1, 0);
        assert!(!io.output_is_full());
        io.output.push(0);
        assert!(io.output_is_full());
        io.output.clear();
        assert!(!io.output_is_full());
    }
}
