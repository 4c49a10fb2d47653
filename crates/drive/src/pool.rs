//! The threads of the blocking driver, and the connections that wait for one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fd::OwnedFd;

use crate::handler::Peer;
use crate::limits::{MAX_WAITING_CONNECTIONS, WAITING_NOTICE_MS};
use crate::notice::{Notice, Notices};
use crate::spread::{LoopShared, Placement};

/// Who rests, and who waits.
pub(crate) struct Pool {
    /// The first is the door; it serves nobody.
    threads: Vec<Arc<LoopShared>>,
    queues: Mutex<Queues>,
    notices: Arc<dyn Notices>,
}

#[derive(Default)]
struct Queues {
    /// Threads without a connection. While there is one, nobody waits.
    resting: Vec<usize>,
    /// In the order of arrival.
    waiting: VecDeque<(OwnedFd, Peer)>,
    notice_after_ns: u64,
}

impl Pool {
    /// All threads rest, also those that have yet to start: what they are handed waits in their inboxes.
    pub(crate) fn new(threads: Vec<Arc<LoopShared>>, notices: Arc<dyn Notices>) -> Pool {
        let queues = Queues {
            resting: (1..threads.len()).rev().collect(),
            ..Queues::default()
        };
        Pool {
            threads,
            queues: Mutex::new(queues),
            notices,
        }
    }

    /// The connection that has waited longest. If there is none, the thread rests: it gets one through its inbox.
    pub(crate) fn next(&self, thread: usize) -> Option<(OwnedFd, Peer)> {
        let mut queues = self.lock();
        let next = queues.waiting.pop_front();
        if next.is_none() {
            debug_assert!(!queues.resting.contains(&thread), "it rests once");
            queues.resting.push(thread);
        }
        next
    }

    fn hand_in(&self, socket: OwnedFd, peer: Peer, now_ns: u64) {
        let mut queues = self.lock();
        if let Some(thread) = queues.resting.pop() {
            drop(queues);
            return self.threads[thread].hand_over(socket, peer);
        }
        queues.waiting.push_back((socket, peer));
        if now_ns < queues.notice_after_ns {
            return;
        }
        queues.notice_after_ns = now_ns + WAITING_NOTICE_MS * 1_000_000;
        let waiting = queues.waiting.len();
        drop(queues);
        let threads = self.threads.len() - 1;
        self.notices
            .notice(&Notice::WaitingForThread { threads, waiting });
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        // Nothing under this lock can panic half-way.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The accepting end of a pool. When it goes, whoever waits is let go: nothing was answered, so that they may safely
/// try elsewhere.
pub(crate) struct Door {
    pool: Arc<Pool>,
    /// Connections that went through, in or away.
    placed: u64,
}

impl Door {
    pub(crate) fn new(pool: Arc<Pool>) -> Door {
        Door { pool, placed: 0 }
    }
}

impl Placement for Door {
    fn open(&self) -> u64 {
        let closed = self.pool.threads.iter();
        self.placed
            - closed
                .map(|shared| shared.counters.closed.get())
                .sum::<u64>()
    }

    fn is_full(&self) -> bool {
        self.pool.lock().waiting.len() >= MAX_WAITING_CONNECTIONS
    }

    fn place(&mut self, socket: OwnedFd, peer: Peer, now_ns: u64) -> Option<(OwnedFd, Peer)> {
        self.placed += 1;
        if peer.over_limit {
            return Some((socket, peer)); // refusing is quick, and needs no thread
        }
        self.pool.hand_in(socket, peer, now_ns);
        None
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.pool.lock().waiting.clear();
    }
}
