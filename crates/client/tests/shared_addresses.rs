//! A shared pool whose callers look up where its servers are.

mod common;
#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/raw.rs"]
mod raw;
#[path = "common/sharing.rs"]
mod sharing;

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use client::{
    Address, CallError, LocalPoolOptions, NotBegun, OutgoingEndpoint, PoolCall, PoolStage,
    SharedPool,
};
use common::{by_path, listen, serve_on};
use sharing::{assert_nothing_left, call};

const ECHO: &str = "/t.T/Echo";

fn unresolved() -> SharedPool {
    let address: Address = "db.invalid:1".parse().expect("an address");
    SharedPool::unresolved(&[address], LocalPoolOptions::default(), 7).expect("a thread")
}

fn at(address: &Address) -> OutgoingEndpoint {
    OutgoingEndpoint::resolve(address).expect("no name")[0].clone()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn patient(path: &str) -> PoolCall<'_> {
    PoolCall {
        waits_for_ready: true,
        ..call(path)
    }
}

#[test]
fn calls_wait_until_it_is_known_where_their_server_is() {
    let (address, listener) = listen();
    let server = serve_on(listener, by_path, 1);
    let pool = unresolved();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let pool = pool.clone();
            thread::spawn(move || pool.unary(&call(ECHO), b"x"))
        })
        .collect();
    let future = pool.unary_future(&call(ECHO), b"y");
    let stream = pool.server_stream(&call(ECHO), b"z").expect("it is small");
    until("they wait", || {
        pool.statistics().waiting_for_connection == 5
    });
    let short = PoolCall {
        timeout_ns: Some(10_000_000),
        ..call(ECHO)
    };
    let late = pool.unary(&short, b"");
    let has_waited = matches!(
        late,
        Err(CallError::NotBegun(NotBegun::WaitedTooLong { .. }))
    );
    assert!(has_waited, "{late:?}");
    pool.set_endpoints(0, Ok(vec![at(&address)]));
    for thread in waiting {
        assert_eq!(thread.join().expect("no panic").expect("it ends"), b"x");
    }
    assert_eq!(pollster::block_on(future).expect("it ends"), b"y");
    assert_eq!(stream.into_answer().expect("it ends"), b"z");
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn calls_to_a_name_that_is_not_known_fail_unless_they_wait_for_it() {
    let (address, listener) = listen();
    let server = serve_on(listener, by_path, 1);
    let pool = unresolved();
    for _ in 0..2 {
        let impatient = pool.unary_future(&call(ECHO), b"x");
        let waits = pool.unary_future(&patient(ECHO), b"y");
        pool.set_endpoints(0, Err("no such name".into()));
        for ended in [pollster::block_on(impatient), pool.unary(&call(ECHO), b"x")] {
            let is_named = matches!(
                &ended,
                Err(CallError::NotBegun(NotBegun::Unreachable { reason }))
                    if reason == "no such name"
            );
            assert!(is_named, "{ended:?}");
        }
        assert_eq!(pool.statistics().waiting_for_connection, 1);
        drop(waits);
    }
    let waits = pool.unary_future(&patient(ECHO), b"y");
    // A name that stands for nothing is not known either.
    pool.set_endpoints(0, Ok(Vec::new()));
    pool.set_endpoints(0, Ok(vec![at(&address)]));
    assert_eq!(pollster::block_on(waits).expect("it ends"), b"y");
    // What was known is kept.
    pool.set_endpoints(0, Err("no such name".into()));
    assert_eq!(pool.unary(&call(ECHO), b"x").expect("it ends"), b"x");
    // An address that there is none of.
    pool.set_endpoints(9, Err("none".into()));
    pool.set_endpoints(9, Ok(vec![at(&address)]));
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn calls_go_where_the_name_leads_now_and_those_that_run_go_on() {
    let (first, first_listener) = listen();
    let (second, second_listener) = listen();
    let first_server = serve_on(first_listener, by_path, 2);
    let second_server = serve_on(second_listener, by_path, 1);
    let pool = unresolved();
    pool.set_endpoints(0, Ok(vec![at(&first)]));
    let mut running = pool.stream(&call("/t.T/Chat"));
    running.send(b"one").expect("it goes on");
    assert_eq!(
        running.receive().expect("a message").as_deref(),
        Some(&b"one"[..])
    );
    let stages = || -> Vec<PoolStage> {
        let connections = pool.statistics().connections;
        connections.iter().map(|each| each.stage).collect()
    };
    assert_eq!(stages(), [PoolStage::Open]);
    for _ in 0..2 {
        pool.set_endpoints(0, Ok(vec![at(&first)]));
        assert_eq!(stages(), [PoolStage::Open], "nothing has changed");
    }
    pool.set_endpoints(0, Ok(vec![at(&second)]));
    assert_eq!(pool.unary(&call(ECHO), b"x").expect("it ends"), b"x");
    until("the other one is open", || {
        let mut stages = stages();
        stages.sort_by_key(|stage| *stage as u8);
        stages == [PoolStage::Open, PoolStage::Draining]
    });
    running.send(b"two").expect("it goes on");
    assert_eq!(
        running.receive().expect("a message").as_deref(),
        Some(&b"two"[..])
    );
    running.finish();
    assert_eq!(running.receive().expect("the end"), None);
    drop(running);
    until("the first is closed", || stages() == [PoolStage::Open]);
    // And back.
    pool.set_endpoints(0, Ok(vec![at(&first)]));
    until("the first is open again", || {
        pool.unary(&call(ECHO), b"x").expect("it ends");
        stages() == [PoolStage::Open]
    });
    assert_nothing_left(&pool);
    drop(pool);
    first_server.join().expect("it ends with the connections");
    second_server.join().expect("it ends with the connection");
}

/// The kernel accepts for it, or drops what would connect; nobody ever speaks.
#[test]
fn an_attempt_that_gets_nowhere_is_left_for_where_the_name_leads_now() {
    let (good, listener) = listen();
    let server = serve_on(listener, by_path, 1);
    let full = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at_full = full.local_addr().expect("it is bound");
    // Connections that nobody accepts, until the kernel takes no more.
    let filling: Vec<_> = (0..400)
        .map_while(|_| TcpStream::connect_timeout(&at_full, Duration::from_millis(200)).ok())
        .collect();
    let pool = unresolved();
    pool.set_endpoints(0, Ok(vec![OutgoingEndpoint::Tcp(at_full)]));
    let waits = pool.unary_future(&call(ECHO), b"x");
    until("it dials", || pool.statistics().counters.dials == 1);
    pool.set_endpoints(0, Ok(vec![at(&good)]));
    assert_eq!(pollster::block_on(waits).expect("it ends"), b"x");
    drop((pool, filling));
    server.join().expect("it ends with the connection");
}

struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn failures_of_connections_are_reported() {
    let (address, listener) = listen();
    let pool = unresolved();
    let counted = Arc::new(Counted(AtomicUsize::new(0)));
    let count = || counted.0.load(Ordering::SeqCst);
    pool.notify_failures(Waker::from(Arc::clone(&counted)));
    let server = serve_on(listener, by_path, 1);
    pool.set_endpoints(0, Ok(vec![at(&address)]));
    assert_eq!(pool.unary(&call(ECHO), b"x").expect("it ends"), b"x");
    assert_eq!(count(), 0);
    // The server goes, and nobody listens any more: each attempt fails.
    let drained = pool.unary(&call("/t.T/Drain"), b"");
    server.join().expect("it ends with the connection");
    until("two attempts are reported", || count() >= 2);
    drop(drained);
    // The next endpoint of a name is tried at once, and that it had to be is reported.
    let (other, listener) = listen();
    let server = serve_on(listener, by_path, 1);
    let before = count();
    pool.set_endpoints(0, Ok(vec![at(&address), at(&other)]));
    assert_eq!(pool.unary(&patient(ECHO), b"x").expect("it ends"), b"x");
    assert!(count() > before);
    drop(pool);
    server.join().expect("it ends with the connection");
}
