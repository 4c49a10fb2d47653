//! When connections look again for what they wait for: memory, or room at the committer. Whoever
//! gives some back tells nobody, so that each of them looks now and then. All of the server do so
//! one behind the other: if each kept a time of its own, thousands that wait would leave no time
//! for those that do not.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Holding;
use crate::limits;

const NS_PER_MS: u64 = 1_000_000;

/// The looks of all connections that wait.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Connections that look.
    connections: AtomicUsize,
    /// The time that was given out last, in nanoseconds.
    last_ns: AtomicU64,
}

impl Looks {
    /// Returns the latest time for a look that may come `retry_ms` from now: by then, all of those
    /// that wait have had one.
    fn latest_ns(&self, retry_ms: u64, now_ns: u64) -> u64 {
        let connections = self.connections.load(Ordering::Relaxed) as u64;
        let round_ms = connections * limits::LOOK_SPACING_MS;
        now_ns + retry_ms.max(round_ms) * NS_PER_MS
    }

    /// Returns a time behind that of the others.
    fn take(&self, retry_ms: u64, now_ns: u64) -> u64 {
        let earliest_ns = now_ns + retry_ms * NS_PER_MS;
        let latest_ns = self.latest_ns(retry_ms, now_ns);
        let behind = |last_ns: u64| {
            (last_ns + limits::LOOK_SPACING_MS * NS_PER_MS).clamp(earliest_ns, latest_ns)
        };
        let order = Ordering::Relaxed;
        let taken = (self.last_ns).fetch_update(order, order, |last_ns| Some(behind(last_ns)));
        behind(taken.unwrap_or(latest_ns))
    }
}

/// The looks of one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionLooks {
    /// The time of the next one; `None`: it does not look.
    at_ns: Option<u64>,
    /// Something is waited for since this was last asked.
    is_wanted: bool,
}

impl ConnectionLooks {
    /// Returns when the connection looks again, which waits for something: in `retry_ms`, or later
    /// where many do.
    pub fn next_ns(&mut self, all: &Looks, retry_ms: u64, now_ns: u64) -> u64 {
        self.is_wanted = true;
        if self.at_ns.is_none() {
            all.connections.fetch_add(1, Ordering::Relaxed);
        }
        let is_kept = |at_ns: &u64| *at_ns > now_ns && *at_ns <= all.latest_ns(retry_ms, now_ns);
        let at_ns = (self.at_ns.filter(is_kept)).unwrap_or_else(|| all.take(retry_ms, now_ns));
        self.at_ns = Some(at_ns);
        at_ns
    }

    /// Ends them if nothing is waited for since this was last asked.
    #[inline]
    pub fn end_unwanted(&mut self, all: &Looks) {
        if !std::mem::take(&mut self.is_wanted) {
            self.end(all);
        }
    }

    /// Ends them.
    #[inline]
    pub fn end(&mut self, all: &Looks) {
        if self.at_ns.take().is_some() {
            all.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Holding {
    /// Returns when the connection looks again, which waits for what others give back: in
    /// `retry_ms`, or later where many do.
    pub fn next_look_ns(&mut self, retry_ms: u64, now_ns: u64) -> u64 {
        self.looks.next_ns(&self.account.looks, retry_ms, now_ns)
    }

    /// Notes that the connection has been visited: it looks no more unless it was found to wait.
    #[inline]
    pub fn end_visit(&mut self) {
        self.looks.end_unwanted(&self.account.looks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY_MS: u64 = 10;

    fn ms(at_ns: u64) -> u64 {
        at_ns / NS_PER_MS
    }

    #[test]
    fn a_connection_that_waits_alone_looks_as_often_as_it_may() {
        let (all, mut one) = (Looks::default(), ConnectionLooks::default());
        let mut now_ns = 5_000 * NS_PER_MS;
        for _ in 0..3 {
            let at_ns = one.next_ns(&all, RETRY_MS, now_ns);
            assert_eq!(at_ns, now_ns + RETRY_MS * NS_PER_MS);
            // Visits in between move nothing, unless something is waited for not as long.
            now_ns += NS_PER_MS;
            assert_eq!(one.next_ns(&all, RETRY_MS, now_ns), at_ns);
            let sooner_ns = now_ns + 2 * NS_PER_MS;
            assert_eq!(one.next_ns(&all, 2, now_ns), sooner_ns);
            now_ns = sooner_ns;
            one.end_unwanted(&all);
        }
        one.end_unwanted(&all);
        assert_eq!(all.connections.load(Ordering::Relaxed), 0);
    }

    /// However many wait, so many look in a second, and each has its turn.
    #[test]
    fn connections_that_wait_look_one_behind_the_other() {
        const CONNECTIONS: usize = 500;
        let all = Looks::default();
        let mut waiting: Vec<_> = (0..CONNECTIONS)
            .map(|_| ConnectionLooks::default())
            .collect();
        let mut due: Vec<u64> = (waiting.iter_mut())
            .map(|one| one.next_ns(&all, RETRY_MS, 0))
            .collect();
        let mut looks = vec![0; CONNECTIONS];
        for now_ns in (1..=5_000).map(|now_ms| now_ms * NS_PER_MS) {
            for (at, one) in waiting.iter_mut().enumerate() {
                if due[at] <= now_ns {
                    looks[at] += 1;
                    due[at] = one.next_ns(&all, RETRY_MS, now_ns);
                }
            }
        }
        let total: u64 = looks.iter().sum();
        assert!(
            total <= 5_000 / limits::LOOK_SPACING_MS + CONNECTIONS as u64,
            "{total}"
        );
        assert!(looks.iter().all(|&looks| looks >= 9), "{looks:?}");
        // Those that go leave no times behind for which the others would wait.
        let rest = waiting.split_off(2);
        for mut gone in rest {
            gone.end(&all);
        }
        for one in &mut waiting {
            let now_ns = 10_000 * NS_PER_MS;
            assert!(ms(one.next_ns(&all, RETRY_MS, now_ns)) <= 10_000 + RETRY_MS);
        }
    }
}
