//! A caller of a shared pool that is interrupted while it waits, and what is asked of a stream from
//! beside it.

mod common;
#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/sharing.rs"]
mod sharing;

use std::sync::mpsc;
use std::task::{Wake, Waker};
use std::thread;

use client::{CallError, CallInfo, Code, PoolCall};
use sharing::{assert_nothing_left, call, pool};

fn is_cancelled<T>(result: &Result<T, CallError>) -> bool {
    matches!(result, Err(CallError::Status(status)) if status.code() == Code::Cancelled)
}

#[test]
fn a_call_whose_thread_is_interrupted_ends_with_cancelled() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        let mut looks = 0;
        let mut is_interrupted = || {
            looks += 1;
            // It may make calls itself.
            let answer = pool.unary(&call("/t.T/Echo"), b"between");
            assert_eq!(answer.expect("it is answered"), b"between");
            looks == 2
        };
        let result = pool.unary_with_info(
            &call("/t.T/Silent"),
            b"x",
            &mut CallInfo::default(),
            Some(&mut is_interrupted),
        );
        assert!(is_cancelled(&result), "{result:?}");
        assert_eq!(looks, 2);
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

/// The one that leads, and those that are parked.
#[test]
fn each_of_several_threads_is_interrupted_by_itself() {
    let (pool, server) = pool(1);
    thread::scope(|scope| {
        for number in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                let mut looks = 0;
                let mut is_interrupted = || {
                    looks += 1;
                    looks > number
                };
                let info = &mut CallInfo::default();
                let silent = call("/t.T/Silent");
                let result = pool.unary_with_info(&silent, b"x", info, Some(&mut is_interrupted));
                assert!(is_cancelled(&result), "{result:?}");
                assert_eq!(looks, number + 1);
            });
        }
    });
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

#[test]
fn a_stream_whose_receiver_is_interrupted_is_cancelled() {
    let (pool, server) = pool(1);
    let silent = call("/t.T/Silent");
    for _ in 0..2 {
        let mut stream = pool.stream(&silent);
        let received = stream
            .receiver()
            .receive_unless(&mut Vec::new(), Some(&mut || true));
        assert!(is_cancelled(&received), "{received:?}");
        let mut stream = pool.stream(&PoolCall {
            wants_head: true,
            ..silent
        });
        let receiver = stream.receiver();
        let head = receiver.receive_initial_metadata_unless(Some(&mut || true));
        assert!(is_cancelled(&head), "{head:?}");
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}

struct Told(mpsc::Sender<()>);

impl Wake for Told {
    fn wake(self: std::sync::Arc<Self>) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_stream_is_cancelled_from_beside_and_its_end_is_told() {
    let (pool, server) = pool(1);
    for _ in 0..2 {
        let stream = pool.stream(&call("/t.T/Silent"));
        let control = stream.control();
        let (telling, told) = mpsc::channel();
        control.notify_end(Waker::from(std::sync::Arc::new(Told(telling.clone()))));
        assert!(control.end().is_none() && told.try_recv().is_err());
        let (_sender, mut receiver) = stream.split();
        let receiving = thread::spawn(move || receiver.receive());
        control.cancel();
        let received = receiving.join().expect("no panic");
        assert!(is_cancelled(&received), "{received:?}");
        told.recv().expect("it is told");
        let end = control.end().expect("it has ended");
        assert!(is_cancelled(&end), "{end:?}");
        // And again behind the end.
        control.notify_end(Waker::from(std::sync::Arc::new(Told(telling))));
        told.recv().expect("it is told");
    }
    assert_nothing_left(&pool);
    drop(pool);
    server.join().expect("it ends with the connection");
}
