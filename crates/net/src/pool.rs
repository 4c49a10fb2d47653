//! The threads of the blocking driver, each for one connection at a time: started when a connection
//! needs one, ended when they have been idle.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fd::OwnedFd;

use crate::config::LoopConfig;
use crate::handler::Peer;
use crate::limits::{HANDSHAKES_OF_THREADS, SPARE_THREADS, THREAD_NOTICE_MS};
use crate::notice::{Notice, Notices};
use crate::permits::Permits;
use crate::reports::Reports;
use crate::spread::{LoopList, Placement};

/// The number of the loop that accepts and refuses connections, and serves none.
const DOOR: usize = 0;

/// The threads, by their slots. A slot is one of a loop: it has counters, an inbox and a waker,
/// which stay when its thread ends, for the next one.
pub(crate) struct ThreadPool {
    slots: LoopList,
    state: Mutex<PoolState>,
    /// Bounds the threads that compute at once.
    permits: Permits,
    reports: Arc<Reports>,
    max_threads: usize,
    notices: Arc<dyn Notices>,
}

#[derive(Default)]
struct PoolState {
    /// Threads without a connection, the one that has rested for the shortest time last. While
    /// there is one, no connection waits.
    resting: Vec<usize>,
    /// Connections for threads whose own has just ended, in the order of arrival.
    waiting: VecDeque<(OwnedFd, Peer)>,
    /// Slots whose thread has ended.
    free: Vec<usize>,
    /// Threads that run or are to be started.
    threads: usize,
    /// How often the server was asked to stop.
    stops: u8,
    notice_after_ns: u64,
}

impl ThreadPool {
    /// A pool without threads. The door's slot is there.
    pub(crate) fn new(slots: LoopList, reports: Arc<Reports>, config: &LoopConfig) -> ThreadPool {
        ThreadPool {
            slots,
            state: Mutex::default(),
            permits: Permits::new(config.threads),
            reports,
            max_threads: config.max_connections.max(1),
            notices: config.notices.clone(),
        }
    }

    /// Bounds the threads that compute at once.
    pub(crate) fn permits(&self) -> &Permits {
        &self.permits
    }

    /// Finds a thread for a connection; gives the connection back, to be refused, if there is none.
    fn place(&self, socket: OwnedFd, peer: Peer, now_ns: u64) -> Option<(OwnedFd, Peer)> {
        let mut state = self.lock();
        if let Some(thread) = state.resting.pop() {
            drop(state);
            self.slots.get(thread).hand_over(socket, peer);
            return None;
        }
        if state.threads >= self.max_threads {
            // Fewer connections are open than may be, so the one of some thread has just ended.
            state.waiting.push_back((socket, peer));
            return None;
        }
        match self.claim_slot(&mut state) {
            Ok(slot) => {
                state.threads += 1;
                drop(state);
                self.slots.get(slot).hand_over(socket, peer);
                self.reports.start(slot);
                None
            }
            Err(error) => {
                self.say_not_started(state, error, now_ns);
                Some((socket, refused(peer)))
            }
        }
    }

    fn claim_slot(&self, state: &mut PoolState) -> io::Result<usize> {
        match state.free.pop() {
            Some(slot) => Ok(slot),
            None => self.slots.add(state.stops),
        }
    }

    /// The thread of a slot could not be started: its connection goes to one that rests, or is
    /// refused by the door.
    pub(crate) fn not_started(&self, slot: usize, error: io::Error, now_ns: u64) {
        let mut arrivals = Vec::new();
        self.slots.get(slot).collect(&mut arrivals);
        let mut state = self.lock();
        state.threads -= 1;
        state.free.push(slot);
        // Those that wait for a thread would wait for this one, too.
        arrivals.extend(state.waiting.drain(..));
        for (socket, peer) in arrivals {
            match state.resting.pop() {
                Some(thread) => self.slots.get(thread).hand_over(socket, peer),
                None => self.slots.get(DOOR).hand_over(socket, refused(peer)),
            }
        }
        self.say_not_started(state, error, now_ns);
    }

    fn say_not_started(&self, mut state: MutexGuard<'_, PoolState>, error: io::Error, now_ns: u64) {
        let threads = state.threads;
        if now_ns >= state.notice_after_ns {
            state.notice_after_ns = now_ns + THREAD_NOTICE_MS * 1_000_000;
            drop(state);
            let notice = Notice::ThreadNotStarted { threads, error };
            self.notices.notice(&notice);
        }
    }

    /// Returns the connection that has waited longest. If there is none, the thread rests: it gets
    /// one through its inbox.
    pub(crate) fn next(&self, thread: usize) -> Option<(OwnedFd, Peer)> {
        let mut state = self.lock();
        let next = state.waiting.pop_front();
        if next.is_none() {
            debug_assert!(!state.resting.contains(&thread), "it rests once");
            state.resting.push(thread);
        }
        next
    }

    /// Lets a thread that rests end, unless it is one of the few that stay, or a connection is on
    /// its way to it.
    pub(crate) fn retire(&self, thread: usize) -> bool {
        let mut state = self.lock();
        if state.resting.len() <= SPARE_THREADS {
            return false;
        }
        let place = state.resting.iter().position(|&other| other == thread);
        place.is_some_and(|place| {
            state.resting.remove(place);
            true
        })
    }

    /// The thread of a slot has ended: another one takes its place for a connection that came
    /// meanwhile, or the slot is free.
    pub(crate) fn ended(&self, slot: usize) {
        let mut state = self.lock();
        state.resting.retain(|&other| other != slot);
        let Some((socket, peer)) = state.waiting.pop_front() else {
            state.threads -= 1;
            state.free.push(slot);
            return;
        };
        drop(state);
        self.slots.get(slot).hand_over(socket, peer);
        self.reports.start(slot);
    }

    /// Asks all threads to drain, also those that have yet to start; asked again, to end at once.
    pub(crate) fn ask_to_stop(&self) {
        let mut state = self.lock();
        state.stops = state.stops.saturating_add(1);
        // Under the lock: a slot that is added meanwhile would be asked twice.
        self.slots.ask_to_stop();
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // Nothing under this lock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(peer: Peer) -> Peer {
    Peer {
        over_limit: true,
        ..peer
    }
}

/// The accepting end of a pool. When it goes, connections that wait are closed: nothing was
/// answered, so that their peers may safely try elsewhere.
pub(crate) struct Door {
    pool: Arc<ThreadPool>,
    /// Connections that went through, in or away.
    placed: u64,
    /// Of those, closed when they were counted last.
    closed: u64,
}

impl Door {
    pub(crate) fn new(pool: Arc<ThreadPool>) -> Door {
        Door {
            pool,
            placed: 0,
            closed: 0,
        }
    }
}

impl Placement for Door {
    fn open(&mut self, limit: u64) -> u64 {
        // Thousands of threads are not counted for each connection.
        if self.placed - self.closed >= limit {
            self.closed = self.pool.slots.closed();
        }
        self.placed - self.closed
    }

    fn is_behind(&self) -> bool {
        false // each has a thread of its own
    }

    fn is_behind_with_handshakes(&self) -> bool {
        false
    }

    fn max_handshakes(&self) -> usize {
        HANDSHAKES_OF_THREADS
    }

    fn place(&mut self, socket: OwnedFd, peer: Peer, now_ns: u64) -> Option<(OwnedFd, Peer)> {
        self.placed += 1;
        if peer.over_limit {
            return Some((socket, peer)); // refusing is quick, and needs no thread
        }
        self.pool.place(socket, peer, now_ns)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.pool.lock().waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustix::io::Errno;

    use super::*;
    use crate::peer_address::PeerAddress;

    fn connection() -> (OwnedFd, Peer, UnixStream) {
        let (near, far) = UnixStream::pair().expect("there are descriptors");
        let peer = Peer {
            address: PeerAddress::Unix,
            listener: 0,
            outgoing: false,
            over_limit: false,
            place: None,
            handshake: None,
            tls: None,
            user: None,
        };
        (near.into(), peer, far)
    }

    /// How many connections lie in the inbox of a slot.
    fn arrived(pool: &ThreadPool, slot: usize) -> usize {
        let mut arrivals = Vec::new();
        pool.slots.get(slot).collect(&mut arrivals);
        arrivals.len()
    }

    fn pool(config: LoopConfig) -> Arc<ThreadPool> {
        let (reports, _control) = Reports::new().expect("there are descriptors");
        let slots = LoopList::new(1).expect("there are descriptors");
        Arc::new(ThreadPool::new(slots, reports, &config))
    }

    /// Counts notices.
    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Notices for Counted {
        fn notice(&self, _: &Notice) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection whose thread does not start goes to one that rests, or is refused by the door.
    /// That is reported once in its time.
    #[test]
    fn a_connection_whose_thread_does_not_start_is_not_forgotten() {
        let notices = Arc::new(Counted::default());
        let pool = pool(LoopConfig {
            notices: notices.clone(),
            ..LoopConfig::default()
        });
        let period_ns = THREAD_NOTICE_MS * 1_000_000;
        let mut far = Vec::new();
        let mut place = || {
            let (near, peer, end) = connection();
            far.push(end);
            assert!(pool.place(near, peer, 0).is_none(), "it is not refused");
        };
        let fail = |slot, now_ns| pool.not_started(slot, Errno::AGAIN.into(), now_ns);
        // The first thread runs, and rests; that of the second connection does not start.
        place();
        assert_eq!(arrived(&pool, 1), 1);
        place();
        assert!(pool.next(1).is_none());
        fail(2, 5);
        assert_eq!((arrived(&pool, 1), arrived(&pool, DOOR)), (1, 0));
        for (now_ns, said) in [
            (5 + period_ns - 1, 1),
            (5 + period_ns, 2),
            (5 + 2 * period_ns - 1, 2),
            (5 + 2 * period_ns, 3),
        ] {
            // Its slot is used again.
            place();
            assert_eq!(pool.lock().threads, 2);
            fail(2, now_ns);
            let mut refused = Vec::new();
            pool.slots.get(DOOR).collect(&mut refused);
            assert_eq!(refused.len(), 1);
            assert!(refused[0].1.over_limit);
            assert_eq!(notices.0.load(Ordering::Relaxed), said);
            assert_eq!(pool.lock().threads, 1);
        }
    }

    #[test]
    fn some_threads_that_rest_stay() {
        let pool = pool(LoopConfig::default());
        for slot in 1..=SPARE_THREADS {
            assert!(pool.next(slot).is_none());
        }
        assert!(!pool.retire(1), "it is one of those that stay");
        assert!(pool.next(SPARE_THREADS + 1).is_none());
        assert!(!pool.retire(SPARE_THREADS + 2), "it does not rest");
        assert!(pool.retire(1));
        assert!(!pool.retire(2));
    }

    /// Connections that have ended since they were counted last make room again, as soon as one
    /// more would be too many.
    #[test]
    fn the_door_counts_the_open_connections_anew_at_the_limit() {
        let limit = 3;
        let pool = pool(LoopConfig::default());
        let mut door = Door::new(Arc::clone(&pool));
        let mut far = Vec::new();
        for _ in 0..limit {
            let (near, peer, end) = connection();
            far.push(end);
            assert!(door.open(limit) < limit);
            assert!(door.place(near, peer, 0).is_none(), "it is not refused");
        }
        for _ in 0..2 {
            assert_eq!(door.open(limit), limit);
            pool.slots.get(1).counters().closed.add(1);
            assert_eq!(door.open(limit), limit - 1);
            let (near, peer, end) = connection();
            far.push(end);
            assert!(door.place(near, peer, 0).is_none(), "it is not refused");
        }
        // Below the limit it may be fewer.
        pool.slots.get(1).counters().closed.add(1);
        assert_eq!(door.open(limit + 1), limit);
    }

    /// All threads are there, one of them is about to end, and has not said so: whoever comes then
    /// waits for no other.
    #[test]
    fn a_connection_that_comes_while_a_thread_ends_gets_one_in_its_place() {
        let threads = SPARE_THREADS + 1;
        let pool = pool(LoopConfig {
            max_connections: threads,
            ..LoopConfig::default()
        });
        let mut far = Vec::new();
        let mut place = || {
            let (near, peer, end) = connection();
            far.push(end);
            assert!(pool.place(near, peer, 0).is_none(), "it is not refused");
        };
        (0..threads).for_each(|_| place());
        for _ in 0..3 {
            for slot in 1..=threads {
                assert_eq!(arrived(&pool, slot), 1);
                assert!(pool.next(slot).is_none());
            }
            assert!(pool.retire(1));
            (1..threads).for_each(|_| place());
            // The last of as many as there may be.
            place();
            pool.ended(1);
            assert!(pool.lock().waiting.is_empty());
        }
        assert_eq!(pool.lock().threads, threads);
        assert_eq!(arrived(&pool, 1), 1);
        // Nobody waits: its slot is free, and used again.
        assert!(pool.next(1).is_none());
        (2..=threads)
            .for_each(|slot| assert!(arrived(&pool, slot) == 1 && pool.next(slot).is_none()));
        assert!(pool.retire(1));
        pool.ended(1);
        assert_eq!(pool.lock().threads, threads - 1);
        (0..threads).for_each(|_| place());
        assert_eq!(
            (1..=threads)
                .map(|slot| arrived(&pool, slot))
                .sum::<usize>(),
            threads
        );
    }
}
