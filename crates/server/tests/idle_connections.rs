//! What an idle connection holds in the server, beside its socket.

mod common;

use allocation_counter::measure;
use common::{Caller, Host, Options};
use net::ConnectionId;
use store::Operation;
use testkit::keyvalue::OperationRequest;

/// Connections that are there before those that are counted, so that what grows by doubling has
/// grown.
const BEFORE: usize = 1_024;
const COUNTED: i64 = 1_024;

/// What each may hold: it is 4 336, in 11 allocations (56 of them for the log of slow calls), and
/// was more by a half when the first stream and the first head made room for four, and each place
/// in the table for an undecided connection.
const MOST_BYTES: i64 = 4_350;
const MOST_ALLOCATIONS: i64 = 11;

/// What a client sends for its first calls, one after the other: the second has a head that comes
/// again, which is remembered.
fn calls_of_a_client(host: &mut Host) -> Vec<Vec<u8>> {
    let mut caller = Caller::silent(host, false);
    let mut message = Vec::new();
    let operation = Operation::Get { key: b"key" };
    OperationRequest {
        database: "",
        operation,
    }
    .encode(&mut message);
    let mut call = |_| {
        caller.call("/pelton.v1.KeyValue/Get", &message);
        std::mem::take(&mut caller.out)
    };
    (0..3).map(&mut call).collect()
}

/// Opens a connection that makes calls, and returns it with the bytes and allocations that stay.
fn connect(host: &mut Host, calls: &[Vec<u8>]) -> (ConnectionId, i64, i64) {
    let mut opened = None;
    let at_open = measure(|| opened = Some(host.connect(false)));
    let id = opened.expect("it was accepted");
    let (mut bytes, mut allocations) = (at_open.bytes_current, at_open.count_current);
    for sent in calls {
        host.push(id, sent);
        let at_call = measure(|| host.serve(id));
        bytes += at_call.bytes_current;
        allocations += at_call.count_current;
        assert!(!host.take_output(id).is_empty() && host.is_open(id));
    }
    (id, bytes, allocations)
}

/// Each time as little, and when they have gone, it is given back.
#[test]
fn an_idle_connection_that_has_made_calls_holds_little() {
    let mut host = Host::new(&Options::default());
    let calls = calls_of_a_client(&mut host);
    for _ in 0..BEFORE {
        connect(&mut host, &calls);
    }
    for _ in 0..2 {
        let (mut ids, mut bytes, mut allocations) = (Vec::new(), 0, 0);
        for _ in 0..COUNTED {
            let (id, more_bytes, more) = connect(&mut host, &calls);
            ids.push(id);
            bytes += more_bytes;
            allocations += more;
        }
        let each = bytes / COUNTED;
        println!("{each} bytes in {} allocations", allocations / COUNTED);
        assert!((1_000..=MOST_BYTES).contains(&each), "{each} bytes each");
        assert!(allocations <= MOST_ALLOCATIONS * COUNTED, "{allocations}");
        let mut left_bytes = bytes;
        for id in ids {
            left_bytes += measure(|| host.close(id)).bytes_current;
        }
        // Places in tables stay for those to come.
        assert!(left_bytes / COUNTED <= 300, "{left_bytes} bytes are left");
    }
}
