//! Looking up names beside the calls that wait for them: a resolver may take as long as it likes.

use std::io;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use client::{Address, OutgoingEndpoint};
use pyo3::prelude::*;

use crate::limits;
use crate::presence::OfProcess;
use crate::sync::{lock, wait_for};

/// What the name of an address stands for, or why that is not known.
pub(crate) type LookupResult = io::Result<Vec<OutgoingEndpoint>>;

/// Something whose names are looked up.
pub(crate) trait Named: Send + Sync {
    /// Returns the names.
    fn addresses(&self) -> Arc<[Address]>;

    /// Takes what they stand for, in their order. Returns after what pause they are looked up
    /// again; `None`: not before it is asked for.
    fn take(&self, found: Vec<LookupResult>) -> Option<Duration>;
}

/// The threads of a process that look up names: none while there is nothing to look up.
pub(crate) struct Resolver {
    state: Mutex<ResolverState>,
    changed: Condvar,
    resolve: fn(&Address) -> LookupResult,
}

#[derive(Default)]
struct ResolverState {
    /// Each at most once for what it is of, which bounds them.
    lookups: Vec<Lookup>,
    threads: usize,
    /// One of them waits until something is due.
    is_waited_for: bool,
}

struct Lookup {
    due: Instant,
    of: Weak<dyn Named>,
}

impl ResolverState {
    /// Takes a lookup that is due, or returns when the next one is.
    fn next(&mut self, now: Instant) -> Result<Lookup, Option<Instant>> {
        self.lookups.retain(|lookup| lookup.of.strong_count() > 0);
        let lookups = self.lookups.iter().enumerate();
        let Some((place, first)) = lookups.min_by_key(|(_, lookup)| lookup.due) else {
            return Err(None);
        };
        match first.due <= now {
            true => Ok(self.lookups.swap_remove(place)),
            false => Err(Some(first.due)),
        }
    }
}

impl Resolver {
    fn new(resolve: fn(&Address) -> LookupResult) -> Arc<Resolver> {
        Arc::new(Resolver {
            state: Mutex::default(),
            changed: Condvar::new(),
            resolve,
        })
    }

    /// Has names looked up, not before `due`.
    ///
    /// # Errors
    /// If the system gives no thread for that. It is done nevertheless when there is one.
    pub(crate) fn submit(self: &Arc<Self>, of: Weak<dyn Named>, due: Instant) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.lookups.push(Lookup { due, of });
        self.attend(&mut state)
    }

    /// Sees to it that a thread looks after what there is to look up.
    fn attend(self: &Arc<Self>, state: &mut ResolverState) -> io::Result<()> {
        if state.is_waited_for {
            self.changed.notify_one();
            return Ok(());
        }
        if state.lookups.is_empty() || state.threads >= limits::RESOLVER_THREADS {
            return Ok(());
        }
        let own = Arc::clone(self);
        let named = thread::Builder::new().name("pelton-resolver".into());
        let started = named.spawn(move || own.run()).map(|_| state.threads += 1);
        // Those that there are do it in turn.
        started.or_else(|error| {
            if state.threads > 0 {
                Ok(())
            } else {
                Err(error)
            }
        })
    }

    fn run(self: Arc<Self>) {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            match state.next(now) {
                Ok(lookup) => {
                    // Others need not wait for this one.
                    let _ = self.attend(&mut state);
                    drop(state);
                    let again = self.look_up(&lookup);
                    state = lock(&self.state);
                    if let Some(pause) = again {
                        let due = Instant::now() + pause;
                        state.lookups.push(Lookup { due, ..lookup });
                    }
                }
                Err(Some(due)) if !state.is_waited_for => {
                    state.is_waited_for = true;
                    let wait = due.saturating_duration_since(now);
                    state = wait_for(&self.changed, state, Some(wait));
                    state.is_waited_for = false;
                }
                Err(_) => {
                    state.threads -= 1;
                    return;
                }
            }
        }
    }

    /// Looks up names; what they are of may be gone meanwhile, and is not kept.
    fn look_up(&self, lookup: &Lookup) -> Option<Duration> {
        let addresses = lookup.of.upgrade()?.addresses();
        let found = addresses.iter().map(self.resolve).collect();
        lookup.of.upgrade()?.take(found)
    }
}

/// Locked only with the lock of the interpreter, so that no fork finds it locked.
static OF_PROCESS: Mutex<Option<OfProcess<Arc<Resolver>>>> = Mutex::new(None);

/// Returns the resolver of this process.
pub(crate) fn of_process(_py: Python<'_>) -> Arc<Resolver> {
    let mut of_process = lock(&OF_PROCESS);
    if let Some(resolver) = of_process.as_ref().and_then(OfProcess::get) {
        return Arc::clone(resolver);
    }
    let resolver = Resolver::new(OutgoingEndpoint::resolve);
    *of_process = Some(OfProcess::new(Arc::clone(&resolver)));
    resolver
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Names {
        addresses: Arc<[Address]>,
        taken: Mutex<Vec<bool>>,
        told: mpsc::Sender<Instant>,
        pause: Option<Duration>,
    }

    impl Named for Names {
        fn addresses(&self) -> Arc<[Address]> {
            Arc::clone(&self.addresses)
        }

        fn take(&self, found: Vec<LookupResult>) -> Option<Duration> {
            lock(&self.taken).extend(found.iter().map(Result::is_ok));
            let _ = self.told.send(Instant::now());
            self.pause
        }
    }

    fn names(
        host: &str,
        pause: Option<Duration>,
    ) -> (Arc<Names>, Weak<dyn Named>, mpsc::Receiver<Instant>) {
        let (told, hears) = mpsc::channel();
        let names = Arc::new(Names {
            addresses: Arc::new([format!("{host}:1").parse().expect("an address")]),
            taken: Mutex::default(),
            told,
            pause,
        });
        let own: Arc<dyn Named> = Arc::<Names>::clone(&names);
        let weak = Arc::downgrade(&own);
        (names, weak, hears)
    }

    const LONG: Duration = Duration::from_secs(20);

    /// A resolver that says nothing about one name, and at once about others.
    fn resolve(address: &Address) -> LookupResult {
        if address.to_string().starts_with("slow") {
            thread::sleep(LONG);
        }
        match address.to_string().starts_with("none") {
            true => Err(io::Error::other("no such name")),
            false => Ok(Vec::new()),
        }
    }

    fn until_without_threads(resolver: &Resolver) {
        let begun = Instant::now();
        while lock(&resolver.state).threads > 0 {
            assert!(begun.elapsed() < LONG, "its threads stay");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn names_are_looked_up_when_they_are_due_and_no_thread_stays() {
        let resolver = Resolver::new(resolve);
        for _ in 0..2 {
            let (found, weak, hears) = names("found", None);
            let due = Instant::now() + Duration::from_millis(30);
            resolver.submit(weak.clone(), due).expect("a thread");
            assert!(hears.recv_timeout(LONG).expect("it is told") >= due);
            until_without_threads(&resolver);
            assert_eq!(*lock(&found.taken), [true]);
        }
    }

    #[test]
    fn what_is_to_be_looked_up_again_is_until_it_is_gone() {
        let resolver = Resolver::new(resolve);
        let (none, weak, hears) = names("none", Some(Duration::from_millis(5)));
        resolver.submit(weak, Instant::now()).expect("a thread");
        for _ in 0..3 {
            hears.recv_timeout(LONG).expect("it is told");
        }
        assert!(!lock(&none.taken).contains(&true));
        drop(none);
        until_without_threads(&resolver);
        assert!(lock(&resolver.state).lookups.is_empty());
    }

    #[test]
    fn a_name_that_takes_long_holds_up_no_other_and_threads_are_bounded() {
        let resolver = Resolver::new(resolve);
        let slow: Vec<_> = (1..limits::RESOLVER_THREADS)
            .map(|_| names("slow", None))
            .collect();
        for (_, weak, _) in &slow {
            resolver
                .submit(weak.clone(), Instant::now())
                .expect("a thread");
        }
        for _ in 0..2 {
            let (_found, weak, hears) = names("found", None);
            resolver.submit(weak, Instant::now()).expect("a thread");
            hears.recv_timeout(LONG / 2).expect("it is not held up");
            assert!(lock(&resolver.state).threads <= limits::RESOLVER_THREADS);
        }
    }
}
