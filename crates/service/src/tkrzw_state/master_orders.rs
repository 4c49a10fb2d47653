//! Whom a server is to follow, and how far it has come: between calls of ChangeMaster and Inspect
//! and the thread that follows.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whom a server is to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasterOrder {
    /// The address of the master as it was given; empty: nobody.
    pub address: String,
    /// What is added once to the timestamp from which the server goes on.
    pub skew_ms: i64,
    /// Another one each time that the order has changed.
    pub version: u64,
}

/// How far a server has come that follows another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasterProgress {
    /// The address of the master; empty: there is none.
    pub address: String,
    /// Everything of a master up to that is here.
    pub timestamp: i64,
    /// Whether updates come.
    pub is_connected: bool,
    /// Why not; empty: nothing is known to be wrong.
    pub problem: String,
}

/// What those who want something else and the thread that follows tell each other.
#[derive(Debug, Default)]
pub struct MasterOrders {
    state: Mutex<MasterState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct MasterState {
    order: MasterOrder,
    progress: MasterProgress,
}

impl MasterOrders {
    /// Begins with a master, or none.
    pub fn new(address: &str, skew_ms: i64) -> MasterOrders {
        let orders = MasterOrders::default();
        orders.change(address, skew_ms);
        orders
    }

    fn lock(&self) -> MutexGuard<'_, MasterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has another master followed, or with an empty address none.
    pub fn change(&self, address: &str, skew_ms: i64) {
        let mut state = self.lock();
        let version = state.order.version + 1;
        state.order = MasterOrder {
            address: address.to_owned(),
            skew_ms,
            version,
        };
        state.progress.address = address.to_owned();
        state.progress.is_connected = false;
        state.progress.problem.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Returns whom to follow.
    pub fn order(&self) -> MasterOrder {
        self.lock().order.clone()
    }

    /// Returns whether the order is another one than that of a version.
    pub fn has_changed(&self, version: u64) -> bool {
        self.lock().order.version != version
    }

    /// Waits until the order is another one than that of a version, but not longer than `longest`.
    pub fn wait(&self, version: u64, longest: Duration) {
        let state = self.lock();
        let is_same = |state: &mut MasterState| state.order.version == version;
        drop(self.changed.wait_timeout_while(state, longest, is_same));
    }

    /// Returns how far the server has come.
    pub fn progress(&self) -> MasterProgress {
        self.lock().progress.clone()
    }

    /// Notes up to which timestamp everything is here.
    pub fn note_timestamp(&self, timestamp: i64) {
        self.lock().progress.timestamp = timestamp;
    }

    /// Notes that updates of the master of a version come.
    pub fn note_connected(&self, version: u64) {
        self.note(version, |progress| {
            progress.is_connected = true;
            progress.problem.clear();
        });
    }

    /// Notes why the master of a version is not followed.
    pub fn note_problem(&self, version: u64, problem: &str) {
        self.note(version, |progress| {
            progress.is_connected = false;
            problem.clone_into(&mut progress.problem);
        });
    }

    fn note(&self, version: u64, note: impl FnOnce(&mut MasterProgress)) {
        let mut state = self.lock();
        if state.order.version == version {
            note(&mut state.progress);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    #[test]
    fn what_is_noted_of_an_earlier_master_does_not_count() {
        let orders = MasterOrders::new("a:1", 5);
        let first = orders.order();
        assert_eq!((first.address.as_str(), first.skew_ms), ("a:1", 5));
        for address in ["b:2", ""] {
            let before = orders.order().version;
            orders.note_connected(before);
            assert!(orders.progress().is_connected && !orders.has_changed(before));
            orders.change(address, 0);
            assert!(orders.has_changed(before));
            orders.wait(before, Duration::from_secs(1_000));
            orders.note_problem(before, "late");
            let progress = orders.progress();
            assert_eq!(
                (progress.address.as_str(), progress.is_connected),
                (address, false)
            );
            assert_eq!(progress.problem, "");
        }
        orders.note_timestamp(7);
        assert_eq!(orders.progress().timestamp, 7);
    }

    #[test]
    fn whoever_follows_a_master_is_woken_for_another_one() {
        let orders = Arc::new(MasterOrders::new("a:1", 0));
        for address in ["b:2", ""] {
            let (woken, is_woken) = mpsc::channel();
            let (waiting, version) = (Arc::clone(&orders), orders.order().version);
            let thread = thread::spawn(move || {
                // Longer than this test may take.
                waiting.wait(version, Duration::from_secs(3_600));
                woken.send(waiting.order().address).expect("somebody looks");
            });
            // By now it waits, most likely: else it finds this without being woken.
            thread::sleep(Duration::from_millis(100));
            orders.change(address, 0);
            let found = is_woken.recv_timeout(Duration::from_secs(60));
            assert_eq!(found.as_deref(), Ok(address));
            thread.join().expect("it has ended");
        }
    }
}
