//! What once went wrong with a shared pool, or a channel.

mod common;
#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/sharing.rs"]
mod sharing;

use std::cell::RefCell;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{CallOptions, Channel, ChannelOptions, SharedPool};
use common::{by_path, serve_all};
use pooled::of;
use sharing::call;

#[test]
fn the_permit_of_a_dropped_future_goes_to_the_next_call_at_once() {
    let (address, _server) = serve_all(by_path, 1);
    let mut options = of(1);
    options.pool.max_in_flight = 1;
    let pool = SharedPool::new(&[address], options, 7).expect("the address is known");
    pool.unary(&call("/t.T/Echo"), b"x").expect("answered");
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        let silent = pool.unary_future(&call("/t.T/Silent"), b"x");
        let echo = pool.unary_future(&call("/t.T/Echo"), b"x");
        thread::sleep(Duration::from_millis(30));
        drop(silent);
        let begun = Instant::now();
        pollster::block_on(echo).expect("answered");
        longest = longest.max(begun.elapsed());
    }
    assert!(longest < Duration::from_millis(100), "{longest:?}");
}

thread_local! {
    static OWN: RefCell<Option<SharedPool>> = const { RefCell::new(None) };
}

/// In a process of its own, since it would end this one.
#[test]
fn a_pool_may_be_owned_by_a_thread_local() {
    if std::env::var_os("OWNED").is_some() {
        let (address, _server) = serve_all(by_path, 1);
        let used = thread::spawn(move || {
            let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
            OWN.with(|own| *own.borrow_mut() = Some(pool));
            OWN.with(|own| {
                let pool = own.borrow();
                let pool = pool.as_ref().expect("it was put there");
                pool.unary(&call("/t.T/Echo"), b"x").expect("answered");
            });
        });
        used.join().expect("no panic");
        return;
    }
    let own = std::env::current_exe().expect("it runs");
    let output = Command::new(own)
        .args([
            "--exact",
            "a_pool_may_be_owned_by_a_thread_local",
            "--nocapture",
        ])
        .env("OWNED", "1")
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
}

static SEEN: AtomicU32 = AtomicU32::new(0);

#[test]
fn a_channel_sends_nothing_of_a_call_whose_deadline_has_passed() {
    let (address, _server) = serve_all(
        |connection, stream, out, path, message| {
            SEEN.fetch_add(1, Ordering::SeqCst);
            by_path(connection, stream, out, path, message);
        },
        1,
    );
    let mut channel = Channel::connect(&address, &ChannelOptions::default()).expect("it listens");
    let past = CallOptions {
        deadline: Some(Instant::now() - Duration::from_secs(1)),
        ..CallOptions::default()
    };
    let ended = channel.unary("/t.T/Echo", b"x", &past);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(SEEN.load(Ordering::SeqCst), 0, "{ended:?}");
}
