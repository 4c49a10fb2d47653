//! Flights of a handshake in virtual time: which of them give the peer its time anew.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::scripted::{MS, Pair, Scripted};
use common::tls::Authority;
use net::limits::{HANDSHAKE_MS, LINGER_MS};
use net::sim::{Faults, Network};

/// Bytes before the random number of a client hello: the headers of its record and of its message,
/// and a version. RFC 8446 sections 4, 4.1.2 and 5.1.
const BEFORE_RANDOM: usize = 5 + 4 + 2;
const RANDOM_BYTES: usize = 32;
const KEY_SHARE: [u8; 2] = [0, 51];

fn number(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .fold(0, |sum, &byte| 256 * sum + usize::from(byte))
}

fn put_number(bytes: &mut [u8], number: usize) {
    let all = number.to_be_bytes();
    bytes.copy_from_slice(&all[all.len() - bytes.len()..]);
}

/// The same hello with no key in it, which a server answers with HelloRetryRequest: RFC 8446
/// section 4.2.8.
fn without_key(hello: &[u8]) -> Vec<u8> {
    let mut at = BEFORE_RANDOM + RANDOM_BYTES;
    // The id of a session, the cipher suites, and the methods of compression.
    for length_bytes in [1, 2, 1] {
        at += length_bytes + number(&hello[at..at + length_bytes]);
    }
    let extensions_at = at;
    at += 2;
    while hello[at..at + 2] != KEY_SHARE {
        at += 4 + number(&hello[at + 2..at + 4]);
    }
    let bytes = number(&hello[at + 2..at + 4]);
    let mut without = hello.to_vec();
    without.splice(at + 2..at + 4 + bytes, [0, 2, 0, 0]);
    let less = bytes - 2;
    for (at, length_bytes) in [(3, 2), (6, 3), (extensions_at, 2)] {
        let length = number(&without[at..at + length_bytes]) - less;
        put_number(&mut without[at..at + length_bytes], length);
    }
    without
}

/// What a peer sends behind the first flight gives it its time anew if it brings a second one, and
/// not if it brings the handshake no further.
#[test]
fn a_second_flight_and_no_other_bytes_give_the_peer_its_time_anew() {
    let authority = Authority::new();
    let address = "localhost:1".parse().expect("valid");
    let session = authority.client().connect(&address).expect("a name");
    let hello = session.output();
    for (second, renews) in [(hello, true), (&hello[..7], false)] {
        let mut network = Network::new(1, Faults::none());
        let at_server = Rc::new(RefCell::new(Scripted::default()));
        let at_client = Rc::new(RefCell::new(Scripted {
            greeting: without_key(hello),
            ..Scripted::default()
        }));
        let accept = Some(authority.server());
        let server = network.add_secure_node(Box::new(at_server.clone()), accept, None);
        let client = network.add_node(Box::new(at_client.clone()));
        let mut pair = Pair {
            network,
            server,
            client,
            at_server,
            at_client,
        };
        for round in 1..=2 {
            pair.network.connect(pair.client, pair.server);
            pair.network.run_for((HANDSHAKE_MS - 100) * MS);
            let first = pair.counted();
            assert_eq!((first.connections, first.failed_timed_out), (1, round - 1));
            pair.send(second.to_vec());
            pair.network.run_for(200 * MS);
            let counted = pair.counted();
            let flights = counted.writes - first.writes;
            assert_eq!(
                (counted.connections, flights),
                (u64::from(renews), u64::from(renews))
            );
            if renews {
                pair.network.run_for((HANDSHAKE_MS - 300) * MS);
                assert_eq!(pair.counted().connections, 1);
                pair.network.run_for(200 * MS);
            }
            let counted = pair.counted();
            assert_eq!((counted.connections, counted.failed_timed_out), (0, round));
            pair.network.run_for(2 * LINGER_MS * MS);
        }
    }
}
