//! Each mark and bound of a connection, met exactly.

use std::sync::Arc;

use super::*;
use crate::counters::CounterCells;
use crate::peer_address::PeerAddress;

#[test]
fn reads_grow_while_they_come_full_and_shrink_when_they_come_small() {
    let size = FIRST_READ_SIZE;
    let larger = next_read_size(size, 16_384, 16_384);
    assert_eq!(larger, size + 1);
    assert_eq!(
        next_read_size(larger, 10_000, 65_536),
        larger,
        "worth its buffer"
    );
    assert_eq!(next_read_size(larger, 8_000, 65_536), size);
    assert_eq!(
        next_read_size(size, 1, 16_384),
        size,
        "the smallest is for leftovers only"
    );
    assert_eq!(next_read_size(LAST_READ_SIZE, 7, 7), LAST_READ_SIZE);
}

fn buffers() -> SpareBuffers {
    SpareBuffers::new(Arc::new(CounterCells::default()))
}

fn peer(outgoing: bool) -> Peer {
    Peer {
        address: PeerAddress::Unix,
        listener: 0,
        outgoing,
        over_limit: false,
        place: None,
        handshake: None,
        tls: None,
        user: None,
    }
}

fn connection() -> TableConnection<()> {
    TableConnection::new((), None, &peer(false))
}

/// Has so many bytes arrive, as far as they are read; returns how many were.
fn arrive(connection: &mut TableConnection<()>, buffers: &mut SpareBuffers, count: usize) -> usize {
    let received = connection.receive(buffers, |(), room| match room.len().min(count) {
        0 => Err(TransferError::NotReady),
        count => Ok(count),
    });
    received.and_then(Result::ok).unwrap_or(0)
}

#[test]
fn each_list_has_a_connection_once() {
    let mut connection = connection();
    for _ in 0..2 {
        assert!(connection.enqueue() && !connection.enqueue());
        assert!(!connection.begin_turn(), "nothing was reported");
        assert!(connection.touch() && !connection.touch());
        connection.begin_settling();
        connection.note_input(Readiness {
            readable: true,
            ..Readiness::default()
        });
        assert!(connection.enqueue());
        assert!(connection.begin_turn() && !connection.begin_turn());
    }
}

#[test]
fn the_port_learns_of_an_interest_only_if_it_changes() {
    let mut connection = connection();
    for _ in 0..2 {
        let both = Interest {
            read: true,
            write: true,
        };
        assert!(!connection.change_interest(connection.wanted_interest()));
        connection.block(1);
        assert_eq!(connection.wanted_interest(), both);
        assert!(connection.change_interest(both) && !connection.change_interest(both));
        assert_eq!(connection.interest(), both);
        assert!(connection.unblock() && !connection.unblock());
        assert!(connection.change_interest(connection.wanted_interest()));
        connection.io_mut().pause_reading(true);
        assert!(connection.change_interest(connection.wanted_interest()));
        assert!(!connection.interest().read && !connection.interest().write);
        connection.io_mut().pause_reading(false);
        assert!(connection.change_interest(connection.wanted_interest()));
    }
}

#[test]
fn no_more_is_read_than_may_be_unconsumed() {
    let mut buffers = buffers();
    let mut connection = connection();
    for _ in 0..2 {
        while connection.io().input.len() < INPUT_MAX_BYTES - 1 {
            let left = INPUT_MAX_BYTES - 1 - connection.io().input.len();
            assert!(arrive(&mut connection, &mut buffers, left) > 0);
        }
        assert!(connection.may_read());
        assert_eq!(arrive(&mut connection, &mut buffers, 100), 1);
        assert!(!connection.may_read());
        let tried = connection.receive(&mut buffers, |(), _| Ok(1));
        assert!(tried.is_none(), "there is no room");
        connection.io_mut().input.consume(1);
        assert!(connection.may_read());
        connection.io_mut().input.consume(INPUT_MAX_BYTES - 1);
        connection.settle_buffers(&mut buffers);
    }
}

#[test]
fn a_connection_is_over_when_both_directions_are_dead_and_nothing_is_to_be_read() {
    let mut connection = connection();
    let dead = Readiness {
        hung_up: true,
        ..Readiness::default()
    };
    connection.io_mut().pause_reading(true);
    assert!(!connection.is_over());
    connection.note_input(dead);
    assert!(connection.is_over());
    connection.io_mut().pause_reading(false);
    assert!(!connection.is_over(), "its last input is read first");
    connection.io_mut().set_end_of_input();
    assert!(connection.is_over());
}

#[test]
fn water_marks_are_passed_to_the_byte() {
    for outgoing in [false, true] {
        let mut connection: TableConnection<()> = TableConnection::new((), None, &peer(outgoing));
        let waits = |connection: &mut TableConnection<()>, bytes: usize| {
            connection.io_mut().output.resize(bytes, 0);
            connection.begin_settling();
            let is_choked = connection.pass_water_marks();
            (is_choked, connection.take_writable_due())
        };
        let connection = &mut connection;
        for _ in 0..2 {
            assert_eq!(waits(connection, OUTPUT_LOW_WATER_BYTES), (false, false));
            assert_eq!(
                waits(connection, OUTPUT_LOW_WATER_BYTES + 1),
                (false, false)
            );
            assert_eq!(
                waits(connection, OUTPUT_HIGH_WATER_BYTES - 1),
                (false, false)
            );
            assert!(!connection.is_held_back());
            assert_eq!(
                waits(connection, OUTPUT_HIGH_WATER_BYTES),
                (!outgoing, false)
            );
            assert_eq!(connection.is_held_back(), !outgoing);
            assert_eq!(connection.may_read(), outgoing);
            assert_eq!(waits(connection, OUTPUT_HIGH_WATER_BYTES), (false, false));
            // Between the marks all stays as it is.
            assert_eq!(
                waits(connection, OUTPUT_LOW_WATER_BYTES + 1),
                (false, false)
            );
            assert_eq!(connection.is_held_back(), !outgoing);
            assert_eq!(waits(connection, OUTPUT_LOW_WATER_BYTES), (false, true));
            assert!(!connection.is_held_back() && connection.may_read());
            assert_eq!(waits(connection, 0), (false, false));
        }
    }
}

#[test]
fn a_turn_is_due_for_what_is_unfinished_or_writable_unless_it_is_held_back() {
    let mut connection = connection();
    assert!(!connection.has_turn());
    connection.io_mut().set_unfinished(true);
    assert!(connection.has_turn());
    connection.io_mut().set_unfinished(false);
    connection
        .io_mut()
        .output
        .resize(OUTPUT_LOW_WATER_BYTES + 1, 0);
    connection.begin_settling();
    connection.sent(1);
    assert!(!connection.pass_water_marks() && connection.has_turn());
    assert!(connection.take_writable_due() && !connection.has_turn());
    connection.io_mut().set_unfinished(true);
    assert!(connection.has_turn() && !connection.is_written_and_closing());
    connection.io_mut().close_when_written();
    assert!(!connection.has_turn());
    assert!(!connection.is_written_and_closing(), "output waits");
    connection.sent(OUTPUT_LOW_WATER_BYTES);
    assert!(connection.is_written_and_closing());
}

#[test]
fn a_connection_is_stalled_when_it_was_blocked_for_the_whole_limit_and_is_open() {
    let mut connection = connection();
    for begin_ns in [0, 1_000] {
        assert!(!connection.is_stalled(u64::MAX, 0), "it is not blocked");
        connection.block(begin_ns);
        assert!(!connection.has_to_write() && !connection.only_waits_for_peer());
        assert!(!connection.is_stalled(begin_ns + 49, 50));
        assert!(connection.is_stalled(begin_ns + 50, 50));
        assert!(connection.unblock());
        assert!(connection.only_waits_for_peer());
    }
    connection.begin_lingering(&mut buffers());
    connection.block(0);
    assert!(!connection.is_stalled(u64::MAX, 0), "nothing waits in it");
}

#[test]
fn a_lingering_connection_ends_with_its_peer_or_behind_the_bound() {
    let mut buffers = buffers();
    let mut connection = connection();
    assert!(
        !connection.discard_input(&mut buffers, |(), _| Ok(0)),
        "it is open"
    );
    connection.begin_lingering(&mut buffers);
    assert!(connection.is_lingering() && connection.may_read());
    for count in [LINGER_BYTES - 1, 1] {
        assert!(!connection.discard_input(&mut buffers, |(), _| Ok(count)));
    }
    assert!(!connection.discard_input(&mut buffers, |(), _| Err(TransferError::NotReady)));
    assert!(connection.discard_input(&mut buffers, |(), _| Ok(1)));
    assert!(connection.discard_input(&mut buffers, |(), _| Ok(0)));
    assert!(connection.discard_input(&mut buffers, |(), _| Err(TransferError::Broken)));
    connection.note_input(Readiness {
        hung_up: true,
        ..Readiness::default()
    });
    assert!(connection.discard_input(&mut buffers, |(), _| Err(TransferError::NotReady)));
}
