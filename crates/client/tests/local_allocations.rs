//! A unary call of a `Local` allocates nothing once its connection has warmed up.

mod common;

use allocation_counter::measure;
use client::{CallStart, Ending, Happened, Local, LocalOptions};
use common::{by_path, serve_all};

const CALLS: u64 = 100;

/// One turn after the other until `CALLS` calls have succeeded.
fn calls(local: &mut Local, channel: client::ChannelKey) {
    let start = CallStart {
        path: "/t.T/Echo",
        timeout_ns: Some(60_000_000_000),
        metadata: None,
    };
    let now_ns = net::monotonic_ns();
    for tag in 0..CALLS {
        let begun = local.begin(channel, tag, &start, now_ns, |out| {
            out.extend_from_slice(&[7; 24]);
        });
        assert!(begun.is_ok());
    }
    let mut succeeded = 0;
    while succeeded < CALLS {
        turn(local, &mut |happened| {
            if let Happened::Ended { ending, .. } = happened {
                let is_good = |ending: &Ending<'_>| match ending {
                    Ending::Status { status, messages } => *messages == 1 && status.is_ok(),
                    _ => false,
                };
                assert!(is_good(ending));
                succeeded += 1;
            }
        });
    }
}

fn turn(local: &mut Local, on: &mut dyn FnMut(&Happened<'_>)) {
    local.flush(net::monotonic_ns());
    local
        .wait(Some(20_000_000_000), net::monotonic_ns())
        .expect("waiting works");
    local.receive(net::monotonic_ns(), &mut |happened| on(&happened));
}

#[test]
fn calls_allocate_nothing() {
    let (address, server) = serve_all(by_path, 1);
    let mut local = Local::new(&address, LocalOptions::default()).expect("the address is known");
    let channel = local
        .open_channel(net::monotonic_ns())
        .expect("there is room");
    let mut is_connected = false;
    while !is_connected {
        turn(&mut local, &mut |happened| {
            is_connected |= matches!(happened, Happened::Connected { .. });
        });
    }
    for _ in 0..20 {
        calls(&mut local, channel);
    }
    let allocated = measure(|| calls(&mut local, channel));
    assert_eq!(allocated.count_total, 0, "in {CALLS} calls");
    drop(local);
    server.join().expect("it ends with the connection");
}
