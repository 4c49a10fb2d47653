//! The protocol of the shared pool with real threads.

#[path = "../src/shared_pool/protocol.rs"]
#[allow(dead_code, reason = "a part of it is of interest")]
mod protocol;

#[path = "../src/shared_pool/sync.rs"]
mod sync;

use std::sync::{Arc, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use protocol::{CallFollower, CallPhase, Combiner, Leadership};

struct Waiting {
    phase: CallPhase,
    thread: Thread,
}

impl CallFollower for Waiting {
    fn phase(&self) -> &CallPhase {
        &self.phase
    }

    fn unpark(&self) {
        self.thread.unpark();
    }
}

#[test]
fn who_has_waited_longest_leads_next() {
    let leadership = Arc::new(Leadership::new());
    for _ in 0..2 {
        assert!(leadership.try_acquire());
        let (order, led) = mpsc::channel();
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let (leadership, order) = (Arc::clone(&leadership), order.clone());
                let (parking, parked) = mpsc::channel();
                let thread = thread::spawn(move || {
                    let own = Arc::new(Waiting {
                        phase: CallPhase::new(),
                        thread: thread::current(),
                    });
                    let leads = leadership.acquire_or_park(&own, || {
                        let _ = parking.send(());
                        thread::park_timeout(Duration::from_secs(10));
                        true
                    });
                    assert!(leads);
                    order.send(number).expect("somebody looks");
                    leadership.release();
                });
                parked.recv().expect("it parks");
                thread
            })
            .collect();
        leadership.release();
        for thread in threads {
            thread.join().expect("no panic");
        }
        drop(order);
        assert_eq!(led.iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}

#[test]
fn submissions_are_taken_after_a_panic() {
    let combiner = Combiner::new(0, 4);
    let panicked = std::thread::scope(|scope| {
        let failing = scope.spawn(|| combiner.submit(1, |_, _| panic!("by intention")));
        failing.join()
    });
    assert!(panicked.is_err());
    let mut taken = 0;
    for _ in 0..2 {
        combiner.submit(1, |_: &mut u32, queue| {
            while queue.pop().is_some() {
                taken += 1;
            }
        });
    }
    assert_eq!(taken, 3);
}
