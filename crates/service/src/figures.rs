//! What a server has done so far, for those who ask: counted by each of its loops for itself.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::method::Method;
use crate::status::Code;

/// The figures of all loops of one server.
#[derive(Debug)]
pub struct Figures {
    started_ns: u64,
    loops: Mutex<Vec<Arc<LoopFigures>>>,
    buffered_bytes: Arc<AtomicUsize>,
    buffered_limit_bytes: usize,
}

/// The figures of one loop. Only that loop writes them, so that no two processors fight for them.
#[derive(Debug)]
pub struct LoopFigures {
    open_connections: AtomicU64,
    running_calls: AtomicU64,
    /// By method, then by code.
    ended: Box<[AtomicU64]>,
}

/// The sums over all loops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections now.
    pub open_connections: u64,
    /// Calls now.
    pub running_calls: u64,
    /// Calls that have ended, by method and code; only those of which there is one.
    pub ended: Vec<(Method, Code, u64)>,
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
        }
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
        let mut ended = Vec::new();
        for &method in Method::ALL {
            for code in Code::ALL {
                let calls = sum(&|one| one.ended[place(method, code)].load(Ordering::Relaxed));
                if calls > 0 {
                    ended.push((method, code, calls));
                }
            }
        }
        Totals {
            open_connections: sum(&|one| one.open_connections.load(Ordering::Relaxed)),
            running_calls: sum(&|one| one.running_calls.load(Ordering::Relaxed)),
            ended,
            buffered_bytes: self.buffered_bytes.load(Ordering::Relaxed) as u64,
            buffered_limit_bytes: self.buffered_limit_bytes as u64,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<LoopFigures>>> {
        // A list to which only whole entries are added is sound whoever panicked.
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for LoopFigures {
    fn default() -> LoopFigures {
        let places = Method::ALL.len() * Code::ALL.len();
        LoopFigures {
            open_connections: AtomicU64::new(0),
            running_calls: AtomicU64::new(0),
            ended: (0..places).map(|_| AtomicU64::new(0)).collect(),
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

    /// Counts a call that has ended.
    #[inline]
    pub fn ended(&self, method: Method, code: Code) {
        // Nobody else writes here, so that two plain steps do, which are cheaper than one indivisible.
        let counter = &self.ended[place(method, code)];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
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
        let nothing = Totals {
            buffered_limit_bytes: u64::MAX,
            ..Totals::default()
        };
        assert_eq!(figures.totals(), nothing);
        let (one, other) = (figures.add_loop(), figures.add_loop());
        one.set(3, 5);
        other.set(4, 6);
        for figures in [&one, &other, &one] {
            figures.ended(Method::Get, Code::Ok);
        }
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
        one.set(0, 0);
        assert_eq!(figures.totals().running_calls, 6);
        assert_eq!(figures.uptime_ms(7_999_999), 2);
        assert_eq!(figures.uptime_ms(0), 0);
    }
}
