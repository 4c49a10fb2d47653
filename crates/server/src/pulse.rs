//! Whether all loops of a server still turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use net::{CountersReader, LoopStart, Waker};

/// Asks loops for a sign of life, from any thread. One that is caught in something gives none.
#[derive(Clone)]
pub struct Pulse {
    counters: CountersReader,
    /// Those that run.
    loops: Arc<Mutex<Vec<Beating>>>,
}

/// A loop that runs.
struct Beating {
    index: usize,
    waker: Arc<dyn Waker>,
}

/// The turns of each loop at a moment.
#[derive(Debug)]
pub struct LoopTurns(Vec<(usize, u64)>);

impl Pulse {
    pub(crate) fn new(counters: CountersReader) -> Pulse {
        Pulse {
            counters,
            loops: Arc::default(),
        }
    }

    /// A loop begins. Threads for single connections are left out: they may wait for their peer, or
    /// rest.
    pub(crate) fn begin(&self, start: &LoopStart) {
        if !start.one_connection {
            self.lock().push(Beating {
                index: start.index,
                waker: start.waker.clone(),
            });
        }
    }

    /// The loops have ended.
    pub(crate) fn end(&self) {
        self.lock().clear();
    }

    /// Asks every loop that runs for a turn, and says how many each has had before.
    pub fn ask(&self) -> LoopTurns {
        let loops = self.lock();
        let counters = self.counters.read();
        let turns = loops.iter().map(|one| {
            one.waker.wake();
            (one.index, counters[one.index].ticks)
        });
        LoopTurns(turns.collect())
    }

    /// Whether each loop that was asked has had a turn since, or has ended.
    pub fn is_answered(&self, asked: &LoopTurns) -> bool {
        if self.lock().is_empty() {
            return true;
        }
        let counters = self.counters.read();
        asked
            .0
            .iter()
            .all(|(index, turns)| counters[*index].ticks > *turns)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Beating>> {
        // Whole entries come and go: sound whoever panicked.
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use net::{Address, Closed, ConnectionId, Connections, Handler, Io, Listen};
    use net::{LoopConfig, Loops, Peer};

    use super::*;

    /// Says that it ticks, and is caught in it until the test lets it go on.
    struct Caught {
        ticks: Sender<()>,
        go_on: Receiver<()>,
    }

    impl Handler for Caught {
        fn opened(&mut self, _: ConnectionId, _: &Peer, _: &mut Io, _: u64) {}
        fn received(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}
        fn writable(&mut self, _: ConnectionId, _: &mut Io, _: u64) {}
        fn closed(&mut self, _: ConnectionId, _: Closed, _: u64) {}

        fn tick(&mut self, _: &mut dyn Connections, _: u64) {
            // When the test has ended there is nobody to wait for.
            let _ = self.ticks.send(());
            let _ = self.go_on.recv();
        }

        fn next_deadline_ns(&self) -> Option<u64> {
            None
        }

        fn stop(&mut self, _: &mut dyn Connections, _: u64) {}

        fn is_drained(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_loop_that_is_caught_in_a_tick_gives_no_sign_of_life_until_it_has_another() {
        let address = Address::Tcp {
            host: "127.0.0.1".into(),
            port: 0,
        };
        let loops = Loops::bind(LoopConfig {
            listen: vec![Listen { address, tls: None }],
            threads: 2,
            handle_signals: false,
            ..LoopConfig::default()
        });
        let loops = loops.expect("a port is free");
        let (pulse, stop) = (Pulse::new(loops.counters()), loops.stop_handle());
        assert!(pulse.is_answered(&pulse.ask()), "nothing runs");
        let (begun, begins) = channel();
        let running = pulse.clone();
        let thread = thread::spawn(move || {
            loops.run(move |start| {
                let (ticks, ticked) = channel();
                let (go_on, waits) = channel();
                running.begin(start);
                running.begin(&LoopStart {
                    index: start.index,
                    is_door: false,
                    one_connection: true,
                    waker: Arc::clone(&start.waker),
                    counters: start.counters.clone(),
                    now_ns: start.now_ns,
                });
                let sent = begun.send((ticked, go_on));
                sent.expect("the test waits for it");
                Box::new(Caught {
                    ticks,
                    go_on: waits,
                })
            })
        });
        let handles = [(); 2].map(|()| begins.recv().expect("two loops begin"));
        // Threads for single connections are left out.
        assert_eq!(pulse.lock().len(), 2);
        for _ in 0..2 {
            pulse.ask();
            for (ticked, _) in &handles {
                ticked.recv().expect("it was woken");
            }
            // Both are caught in a tick that began before this.
            let asked = pulse.ask();
            assert!(!pulse.is_answered(&asked));
            let [(first_ticked, first), (ticked, second)] = &handles;
            first.send(()).expect("it waits");
            first_ticked.recv().expect("it was woken once more");
            assert!(!pulse.is_answered(&asked), "the other is still caught");
            second.send(()).expect("it waits");
            ticked.recv().expect("it was woken once more");
            assert!(pulse.is_answered(&asked));
            for (_, go_on) in &handles {
                go_on.send(()).expect("it waits");
            }
        }
        let asked = pulse.ask();
        pulse.end();
        assert!(pulse.is_answered(&asked), "they have ended");
        stop.stop();
        drop(handles);
        let ended = thread.join().expect("no panic");
        ended.expect("there were threads");
    }
}
