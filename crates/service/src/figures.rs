//! What a server has done so far, for those who ask: counted by each of its loops for itself.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use store::durations::{self, BOUNDS, Durations};

use crate::method::Method;
use crate::status::Code;

/// The figures of all loops of one server.
#[derive(Debug)]
pub struct Figures {
    started_ns: u64,
    loops: Mutex<Vec<Arc<LoopFigures>>>,
    buffered_bytes: Arc<AtomicUsize>,
    buffered_limit_bytes: usize,
    readers: Arc<ReaderFigures>,
}

/// What is counted of the threads that read databases on disk.
#[derive(Debug, Default)]
pub struct ReaderFigures {
    /// How many there are.
    pub threads: AtomicU64,
    /// Jobs that wait for one.
    pub waiting_jobs: AtomicU64,
    /// Jobs that were begun.
    pub jobs: AtomicU64,
    /// Jobs for which there was no place.
    pub refused_jobs: AtomicU64,
}

/// The figures of one loop. Only that loop writes them, so that no two processors fight for them.
#[derive(Debug)]
pub struct LoopFigures {
    open_connections: AtomicU64,
    running_calls: AtomicU64,
    /// By method.
    started: Box<[AtomicU64]>,
    /// By method, then by code.
    ended: Box<[AtomicU64]>,
    /// By method, then by length; the last of each method is the sum in nanoseconds.
    took: Box<[AtomicU64]>,
    refused: [AtomicU64; RefusedFor::ALL.len()],
}

/// Cells of one method in [`LoopFigures::took`].
const TOOK_CELLS: usize = BOUNDS + 2;

/// Why a call was refused before it began, so that it is not counted as one that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedFor {
    /// The server stops.
    Stopping,
    /// Its connection is one too many.
    Connections,
    /// Its connection is one too many from its address.
    AddressConnections,
    /// Too many calls are running.
    RunningCalls,
    /// The memory for requests and unsent answers is used up.
    Buffers,
    /// There is no such method.
    UnknownMethod,
}

impl RefusedFor {
    /// All reasons, in the order of their numbers.
    pub const ALL: [RefusedFor; 6] = [
        RefusedFor::Stopping,
        RefusedFor::Connections,
        RefusedFor::AddressConnections,
        RefusedFor::RunningCalls,
        RefusedFor::Buffers,
        RefusedFor::UnknownMethod,
    ];
}

/// The sums over all loops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Connections now.
    pub open_connections: u64,
    /// Calls now.
    pub running_calls: u64,
    /// Calls that were begun, by method; only those of which there is one.
    pub started: Vec<(Method, u64)>,
    /// Calls that have ended, by method and code; only those of which there is one.
    pub ended: Vec<(Method, Code, u64)>,
    /// How long the calls took that have ended, by method; only those of which there is one.
    pub took: Vec<(Method, Durations)>,
    /// Calls that were refused before they began, for each reason.
    pub refused: [(u64, RefusedFor); RefusedFor::ALL.len()],
    /// Bytes buffered for the peers of all connections.
    pub buffered_bytes: u64,
    /// How many there may be.
    pub buffered_limit_bytes: u64,
}

impl Figures {
    /// Figures of a server that started at `started_ns` of its monotonic clock.
    pub fn new(started_ns: u64) -> Figures {
        Figures {
            started_ns,
            loops: Mutex::default(),
            buffered_bytes: Arc::default(),
            buffered_limit_bytes: usize::MAX,
            readers: Arc::default(),
        }
    }

    /// Where it is counted what the readers of databases on disk do.
    pub fn readers(&self) -> &Arc<ReaderFigures> {
        &self.readers
    }

    /// Says where that is counted.
    pub fn watch_readers(&mut self, readers: Arc<ReaderFigures>) {
        self.readers = readers;
    }

    /// Says where the bytes are counted that are buffered for the peers of all connections, and how many may be.
    pub fn watch_buffers(&mut self, bytes: Arc<AtomicUsize>, limit_bytes: usize) {
        self.buffered_bytes = bytes;
        self.buffered_limit_bytes = limit_bytes;
    }

    /// The figures of a further loop.
    pub fn add_loop(&self) -> Arc<LoopFigures> {
        let figures = Arc::new(LoopFigures::default());
        self.lock().push(Arc::clone(&figures));
        figures
    }

    /// For how long the server has run, in milliseconds.
    pub fn uptime_ms(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.started_ns) / 1_000_000
    }

    /// Adds up. Loops go on meanwhile, so the sums belong to no one moment.
    pub fn totals(&self) -> Totals {
        let loops = self.lock();
        let sum = |of: &dyn Fn(&LoopFigures) -> u64| loops.iter().map(|one| of(one)).sum();
        let (mut started, mut ended) = (Vec::new(), Vec::new());
        for &method in Method::ALL {
            for code in Code::ALL {
                let calls = sum(&|one| one.ended[place(method, code)].load(Ordering::Relaxed));
                if calls > 0 {
                    ended.push((method, code, calls));
                }
            }
            // Read behind those that have ended, so that it is never less.
            let calls = sum(&|one| one.started[method as usize].load(Ordering::Relaxed));
            if calls > 0 {
                started.push((method, calls));
            }
        }
        Totals {
            open_connections: sum(&|one| one.open_connections.load(Ordering::Relaxed)),
            running_calls: sum(&|one| one.running_calls.load(Ordering::Relaxed)),
            started,
            ended,
            took: took(&loops),
            refused: RefusedFor::ALL.map(|reason| {
                let calls = sum(&|one| one.refused[reason as usize].load(Ordering::Relaxed));
                (calls, reason)
            }),
            buffered_bytes: self.buffered_bytes.load(Ordering::Relaxed) as u64,
            buffered_limit_bytes: self.buffered_limit_bytes as u64,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<LoopFigures>>> {
        // A list to which only whole entries are added is sound whoever panicked.
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Durations of the calls of each method of which there is one.
fn took(loops: &[Arc<LoopFigures>]) -> Vec<(Method, Durations)> {
    let of = |method: Method| {
        let mut durations = Durations::default();
        for one in loops {
            let cells = &one.took[method as usize * TOOK_CELLS..][..TOOK_CELLS];
            let (sum, counts) = cells.split_last().expect("there are cells");
            for (count, cell) in durations.counts.iter_mut().zip(counts) {
                *count += cell.load(Ordering::Relaxed);
            }
            durations.sum_ns = durations.sum_ns.wrapping_add(sum.load(Ordering::Relaxed));
        }
        durations
    };
    let all = Method::ALL.iter().map(|&method| (method, of(method)));
    all.filter(|(_, durations)| durations.count() > 0).collect()
}

impl Default for LoopFigures {
    fn default() -> LoopFigures {
        let places = Method::ALL.len() * Code::ALL.len();
        LoopFigures {
            open_connections: AtomicU64::new(0),
            running_calls: AtomicU64::new(0),
            started: Method::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            ended: (0..places).map(|_| AtomicU64::new(0)).collect(),
            took: (0..Method::ALL.len() * TOOK_CELLS)
                .map(|_| AtomicU64::new(0))
                .collect(),
            refused: Default::default(),
        }
    }
}

impl LoopFigures {
    /// How much there is of what comes and goes. Called once in a tick.
    #[inline]
    pub fn set(&self, open_connections: usize, running_calls: usize) {
        self.open_connections
            .store(open_connections as u64, Ordering::Relaxed);
        self.running_calls
            .store(running_calls as u64, Ordering::Relaxed);
    }

    /// Counts a call that begins. Each is also counted by [`LoopFigures::ended`], once.
    #[inline]
    pub fn started(&self, method: Method) {
        add(&self.started[method as usize], 1);
    }

    /// Counts a call that has ended.
    #[inline]
    pub fn ended(&self, method: Method, code: Code) {
        add(&self.ended[place(method, code)], 1);
    }

    /// Counts how long each of some calls took that have ended, in nanoseconds.
    #[inline]
    pub fn took(&self, method: Method, duration_ns: u64, calls: u64) {
        let cells = &self.took[method as usize * TOOK_CELLS..][..TOOK_CELLS];
        add(&cells[durations::place(duration_ns)], calls);
        add(&cells[TOOK_CELLS - 1], duration_ns.wrapping_mul(calls));
    }

    /// Counts a call that was refused.
    pub fn refused(&self, reason: RefusedFor) {
        add(&self.refused[reason as usize], 1);
    }
}

/// Nobody else writes here, so that two plain steps do, which are cheaper than one indivisible.
#[inline]
fn add(counter: &AtomicU64, count: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(count);
    counter.store(sum, Ordering::Relaxed);
}

fn place(method: Method, code: Code) -> usize {
    method as usize * Code::ALL.len() + code as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_added_up() {
        let figures = Figures::new(5_000_000);
        let nothing = figures.totals();
        assert_eq!((nothing.open_connections, nothing.running_calls), (0, 0));
        assert!(nothing.started.is_empty() && nothing.ended.is_empty());
        assert!(nothing.took.is_empty());
        assert_eq!(nothing.refused, RefusedFor::ALL.map(|reason| (0, reason)));
        let (one, other) = (figures.add_loop(), figures.add_loop());
        one.set(3, 5);
        other.set(4, 6);
        for figures in [&one, &other, &one] {
            figures.started(Method::Get);
            figures.ended(Method::Get, Code::Ok);
        }
        other.started(Method::Put);
        other.ended(Method::Get, Code::Unauthenticated);
        other.ended(Method::Put, Code::Ok);
        let last = *Method::ALL.last().expect("there are methods");
        one.ended(last, Code::Unauthenticated);
        let totals = figures.totals();
        assert_eq!((totals.open_connections, totals.running_calls), (7, 11));
        let expected = [
            (Method::Get, Code::Ok, 3),
            (Method::Get, Code::Unauthenticated, 1),
            (Method::Put, Code::Ok, 1),
            (last, Code::Unauthenticated, 1),
        ];
        assert_eq!(totals.ended, expected);
        assert_eq!(totals.started, [(Method::Get, 3), (Method::Put, 1)]);
        one.set(0, 0);
        assert_eq!(figures.totals().running_calls, 6);
        assert_eq!(figures.uptime_ms(7_999_999), 2);
        assert_eq!(figures.uptime_ms(0), 0);
    }

    #[test]
    fn durations_and_refusals_of_loops_are_added_up() {
        let figures = Figures::new(0);
        let (one, other) = (figures.add_loop(), figures.add_loop());
        let last = *Method::ALL.last().expect("there are methods");
        one.took(Method::Get, 1_500, 3);
        other.took(Method::Get, 900, 1);
        other.took(last, u64::MAX, 1);
        let totals = figures.totals();
        let [(Method::Get, get), (method, longest)] = totals.took[..] else {
            panic!("{totals:?}");
        };
        assert_eq!((get.counts[0], get.counts[1], get.count()), (1, 3, 4));
        assert_eq!(get.sum_ns, 5_400);
        assert_eq!((method, longest.counts[BOUNDS]), (last, 1));
        for reason in RefusedFor::ALL {
            for _ in 0..=reason as usize {
                one.refused(reason);
            }
        }
        other.refused(RefusedFor::Stopping);
        let refused = figures.totals().refused.map(|(calls, _)| calls);
        assert_eq!(refused, [2, 2, 3, 4, 5, 6]);
    }
}
