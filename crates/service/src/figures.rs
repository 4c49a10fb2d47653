//! What a server has done so far, for those who ask: counted by each of its loops for itself.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use store::durations::{self, BOUNDS, Durations};

use crate::identities::Unauthenticated;
use crate::limits::SHARED_FIGURES;
use crate::method::Method;
use crate::status::Code;

/// The figures of all loops of one server.
#[derive(Debug)]
pub struct Figures {
    started_ns: u64,
    loops: Mutex<FiguresOfLoops>,
    buffered_bytes: Arc<AtomicUsize>,
    buffered_limit_bytes: usize,
    evicted_connections: Arc<AtomicU64>,
    readers: Arc<ReaderFigures>,
}

/// What loops write.
#[derive(Debug, Default)]
struct FiguresOfLoops {
    all: Vec<Arc<Cells>>,
    /// Of those, what threads share that begin and end.
    shared: Vec<Arc<Cells>>,
    /// Threads that have shared them so far.
    sharers: usize,
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

/// The figures of one loop, as that loop writes them. What it has now is gone when this is dropped;
/// what it has counted stays.
#[derive(Debug)]
pub struct LoopFigures {
    cells: Arc<Cells>,
    /// Others write there, too.
    is_shared: bool,
    /// Connections and calls that it shows.
    shown: Cell<(u64, u64)>,
}

/// Where figures are written. Of an event loop only that loop writes them, so that no two
/// processors fight for them.
#[derive(Debug)]
struct Cells {
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

/// Cells of one method in [`Cells::took`].
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
    /// What came is a frame of baidu_std or SRPC, and no call: it names no method, cannot be
    /// decoded, or asks for what the server has not.
    NoCall,
    /// It needs a token and has none.
    TokenMissing,
    /// What it has is no token, or one that is not known: any more, or here.
    TokenWrong,
    /// Its token has expired.
    TokenExpired,
    /// The certificate or the user of its connection proves nobody any more, or several.
    PeerIdentity,
    /// Its caller has not the right that its method or its request needs. The latter is known after
    /// the call has begun.
    PermissionDenied,
}

impl RefusedFor {
    /// All reasons, in the order of their numbers.
    pub const ALL: [RefusedFor; 12] = [
        RefusedFor::Stopping,
        RefusedFor::Connections,
        RefusedFor::AddressConnections,
        RefusedFor::RunningCalls,
        RefusedFor::Buffers,
        RefusedFor::UnknownMethod,
        RefusedFor::NoCall,
        RefusedFor::TokenMissing,
        RefusedFor::TokenWrong,
        RefusedFor::TokenExpired,
        RefusedFor::PeerIdentity,
        RefusedFor::PermissionDenied,
    ];
}

impl From<Unauthenticated> for RefusedFor {
    fn from(why: Unauthenticated) -> RefusedFor {
        match why {
            Unauthenticated::Missing => RefusedFor::TokenMissing,
            Unauthenticated::Expired => RefusedFor::TokenExpired,
            Unauthenticated::NoToken | Unauthenticated::Unknown | Unauthenticated::Ended => {
                RefusedFor::TokenWrong
            }
            Unauthenticated::RightsChanged => RefusedFor::PermissionDenied,
            Unauthenticated::Ambiguous
            | Unauthenticated::BindingExpired
            | Unauthenticated::CertificateExpired
            | Unauthenticated::CertificateNotTrusted => RefusedFor::PeerIdentity,
        }
    }
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
    /// Connections that were closed since they held most of these bytes and did not move.
    pub evicted_connections: u64,
}

impl Figures {
    /// Figures of a server that started at `started_ns` of its monotonic clock.
    pub fn new(started_ns: u64) -> Figures {
        Figures {
            started_ns,
            loops: Mutex::default(),
            buffered_bytes: Arc::default(),
            buffered_limit_bytes: usize::MAX,
            evicted_connections: Arc::default(),
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

    /// Says where the bytes are counted that are buffered for the peers of all connections, and how
    /// many may be.
    pub fn watch_buffers(&mut self, bytes: Arc<AtomicUsize>, limit_bytes: usize) {
        self.buffered_bytes = bytes;
        self.buffered_limit_bytes = limit_bytes;
    }

    /// Says where the connections are counted that were closed to make room for what others buffer.
    pub fn watch_evictions(&mut self, connections: Arc<AtomicU64>) {
        self.evicted_connections = connections;
    }

    /// Returns the figures of a further loop, which nobody else writes.
    pub fn add_loop(&self) -> LoopFigures {
        let cells = Arc::<Cells>::default();
        self.lock().all.push(Arc::clone(&cells));
        LoopFigures {
            cells,
            is_shared: false,
            shown: Cell::default(),
        }
    }

    /// Returns the figures of a thread that may end before the server does, one of thousands: it
    /// shares them with others, so that they take no memory of their own and do not become more.
    pub fn add_thread(&self) -> LoopFigures {
        let mut loops = self.lock();
        let place = loops.sharers % SHARED_FIGURES;
        loops.sharers += 1;
        if place == loops.shared.len() {
            let cells = Arc::<Cells>::default();
            loops.all.push(Arc::clone(&cells));
            loops.shared.push(cells);
        }
        LoopFigures {
            cells: Arc::clone(&loops.shared[place]),
            is_shared: true,
            shown: Cell::default(),
        }
    }

    /// For how long the server has run, in milliseconds.
    pub fn uptime_ms(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.started_ns) / 1_000_000
    }

    /// Adds up. Loops go on meanwhile, so the sums belong to no one moment.
    pub fn totals(&self) -> Totals {
        let loops = &self.lock().all;
        let sum = |of: &dyn Fn(&Cells) -> u64| loops.iter().map(|one| of(one)).sum();
        let (mut started, mut ended) = (Vec::new(), Vec::new());
        for &method in Method::ALL {
            for &code in Code::ALL {
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
            took: took(loops),
            refused: RefusedFor::ALL.map(|reason| {
                let calls = sum(&|one| one.refused[reason as usize].load(Ordering::Relaxed));
                (calls, reason)
            }),
            buffered_bytes: self.buffered_bytes.load(Ordering::Relaxed) as u64,
            buffered_limit_bytes: self.buffered_limit_bytes as u64,
            evicted_connections: self.evicted_connections.load(Ordering::Relaxed),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FiguresOfLoops> {
        // A list to which only whole entries are added is sound whoever panicked.
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Durations of the calls of each method of which there is one.
fn took(loops: &[Arc<Cells>]) -> Vec<(Method, Durations)> {
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

impl Default for Cells {
    fn default() -> Cells {
        let places = Method::ALL.len() * Code::ALL.len();
        Cells {
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
    /// Shows how much there is of what comes and goes. Called once in a tick.
    #[inline]
    pub fn set(&self, open_connections: usize, running_calls: usize) {
        let now = (open_connections as u64, running_calls as u64);
        let before = self.shown.replace(now);
        if now != before {
            let cells = &self.cells;
            self.add(&cells.open_connections, now.0.wrapping_sub(before.0));
            self.add(&cells.running_calls, now.1.wrapping_sub(before.1));
        }
    }

    /// Counts a call that begins. Each is also counted by [`LoopFigures::ended`], once.
    #[inline]
    pub fn started(&self, method: Method) {
        self.add(&self.cells.started[method as usize], 1);
    }

    /// Counts a call that has ended.
    #[inline]
    pub fn ended(&self, method: Method, code: Code) {
        self.add(&self.cells.ended[place(method, code)], 1);
    }

    /// Counts how long each of some calls took that have ended, in nanoseconds.
    #[inline]
    pub fn took(&self, method: Method, duration_ns: u64, calls: u64) {
        let cells = &self.cells.took[method as usize * TOOK_CELLS..][..TOOK_CELLS];
        self.add(&cells[durations::place(duration_ns)], calls);
        self.add(&cells[TOOK_CELLS - 1], duration_ns.wrapping_mul(calls));
    }

    /// Counts a call that was refused.
    pub fn refused(&self, reason: RefusedFor) {
        self.add(&self.cells.refused[reason as usize], 1);
    }

    /// Where nobody else writes two plain steps do, which are cheaper than one indivisible. Wraps
    /// around, so that a count may become less.
    #[inline]
    fn add(&self, counter: &AtomicU64, count: u64) {
        if self.is_shared {
            counter.fetch_add(count, Ordering::Relaxed);
            return;
        }
        let sum = counter.load(Ordering::Relaxed).wrapping_add(count);
        counter.store(sum, Ordering::Relaxed);
    }
}

impl Drop for LoopFigures {
    fn drop(&mut self) {
        self.set(0, 0);
    }
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
    fn threads_that_begin_and_end_share_figures() {
        let figures = Figures::new(0);
        let loop_ = figures.add_loop();
        loop_.set(1, 1);
        for round in 1..=2 {
            let threads: Vec<LoopFigures> = (0..3 * SHARED_FIGURES)
                .map(|_| figures.add_thread())
                .collect();
            std::thread::scope(|scope| {
                for thread in threads {
                    scope.spawn(move || {
                        for connections in [3, 0, 1, 2] {
                            thread.set(connections, 2 * connections);
                            thread.started(Method::Get);
                            thread.ended(Method::Get, Code::Ok);
                        }
                    });
                }
            });
            let totals = figures.totals();
            assert_eq!((totals.open_connections, totals.running_calls), (1, 1));
            let calls = round * 12 * SHARED_FIGURES as u64;
            assert_eq!(totals.started, [(Method::Get, calls)]);
            assert_eq!(totals.ended, [(Method::Get, Code::Ok, calls)]);
            assert_eq!(figures.lock().all.len(), 1 + SHARED_FIGURES);
        }
        let one = figures.add_thread();
        one.set(5, 7);
        assert_eq!(figures.totals().open_connections, 6);
        drop(one);
        assert_eq!(figures.totals().running_calls, 1);
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
        assert_eq!(refused, [2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }
}
