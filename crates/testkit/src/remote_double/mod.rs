//! An engine behind a network, in memory and in one thread: a double of whatever has databases
//! elsewhere, with its faults.
//!
//! Requests wait until [`RemoteDouble::step`] carries a random one of them a step further, so that
//! commits overtake each other between their reads and their writes; or, from
//! [`RemoteDouble::answering_at_once`], each is carried out as it is handed over.

mod data;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use store::remote::{
    RemoteAnswer, RemoteBackend, RemoteCatalogue, RemoteChange, RemoteChangeError, RemoteCommit,
    RemoteEntry, RemoteError, RemoteHealth, RemoteRead, RemoteStep,
};
use store::{DatabaseConfig, DatabaseId};

use crate::Random;
use data::{DoubleData, DoubleWrite};

/// How often a commit begins anew when others came first.
const TRIES: u32 = 20;

/// What goes wrong, each once in so many times; 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoteFaults {
    /// A write is answered as one of unknown outcome; half of these have taken effect.
    pub unknown: u64,
    /// A write is answered as one of unknown outcome, and is on its way until
    /// [`RemoteDouble::deliver_late`].
    pub late: u64,
    /// A request is not answered in time before anything was sent.
    pub timed_out: u64,
    /// A request is refused at once, as too much is under way.
    pub busy: u64,
    /// A request is dropped without a word.
    pub dropped: u64,
    /// Nothing is answered but that too few nodes answer.
    pub has_no_quorum: bool,
    /// What is handed over waits, and is not carried out by any step.
    pub is_frozen: bool,
}

/// How often what was simulated has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteDoubleCounts {
    /// Writes of unknown outcome that have taken effect.
    pub unknown_applied: u64,
    /// Writes of unknown outcome that have not.
    pub unknown_lost: u64,
    /// Commits that began anew.
    pub lost_races: u64,
    /// Other faults.
    pub other_faults: u64,
}

/// See the module.
pub struct RemoteDouble {
    answers_at_once: bool,
    state: Mutex<DoubleState>,
}

struct DoubleState {
    data: DoubleData,
    random: Random,
    faults: RemoteFaults,
    counts: RemoteDoubleCounts,
    waiting: Vec<DoubleRequest>,
    /// Writes that are on their way.
    late: Vec<DoubleWrite>,
    is_stopped: bool,
}

/// A request under way.
enum DoubleRequest {
    Read(RemoteRead),
    Change(RemoteChange),
    Commit {
        commit: Box<RemoteCommit>,
        /// What was read for it.
        found: Option<Vec<Option<RemoteEntry>>>,
        tries: u32,
    },
}

/// What is done with a request without the lock: its answer may hand over another one.
enum DoubleEnd {
    Read(RemoteRead, Result<RemoteAnswer, RemoteError>),
    Change(RemoteChange, Result<DatabaseId, RemoteChangeError>),
    Commit(Box<RemoteCommit>, Result<(), RemoteError>),
    Dropped(DoubleRequest),
    /// It goes on with a later step.
    None,
}

impl DoubleEnd {
    fn end(self) {
        match self {
            DoubleEnd::Read(read, result) => read.complete(result),
            DoubleEnd::Change(change, result) => change.complete(result),
            DoubleEnd::Commit(commit, result) => commit.complete(result),
            DoubleEnd::Dropped(waiting) => drop(waiting),
            DoubleEnd::None => {}
        }
    }
}

impl RemoteDouble {
    /// An engine with an empty default database, whose requests wait for steps.
    pub fn new(seed: u64, default_database: DatabaseConfig) -> Arc<RemoteDouble> {
        RemoteDouble::with(seed, default_database, false)
    }

    /// The same, whose requests are carried out at once.
    pub fn answering_at_once(seed: u64, default_database: DatabaseConfig) -> Arc<RemoteDouble> {
        RemoteDouble::with(seed, default_database, true)
    }

    fn with(seed: u64, config: DatabaseConfig, answers_at_once: bool) -> Arc<RemoteDouble> {
        let state = DoubleState {
            data: DoubleData::new(config),
            random: Random::new(seed),
            faults: RemoteFaults::default(),
            counts: RemoteDoubleCounts::default(),
            waiting: Vec::new(),
            late: Vec::new(),
            is_stopped: false,
        };
        Arc::new(RemoteDouble {
            answers_at_once,
            state: Mutex::new(state),
        })
    }

    /// Sets what goes wrong from now on.
    pub fn set_faults(&self, faults: RemoteFaults) {
        self.lock().faults = faults;
    }

    /// Sets the time of the engine, in milliseconds since 1970.
    pub fn set_now_ms(&self, now_ms: u64) {
        self.lock().data.now_ms = now_ms;
    }

    /// Returns how often what was simulated has happened.
    pub fn counts(&self) -> RemoteDoubleCounts {
        self.lock().counts
    }

    /// Returns how many requests wait.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Returns all entries of a database, expired ones too, by their keys.
    pub fn entries(&self, id: DatabaseId) -> Vec<(Vec<u8>, RemoteEntry)> {
        self.lock().data.entries(id)
    }

    /// Another server writes a key.
    pub fn put_by_another(&self, id: DatabaseId, key: &[u8], value: &[u8]) {
        self.lock().data.put(id, key, value);
    }

    /// Another server makes a database.
    ///
    /// # Panics
    /// If there is one of this name.
    pub fn create_by_another(&self, name: &str, config: DatabaseConfig) -> DatabaseId {
        let created = self.lock().data.create(name, config);
        created.expect("there is none of this name")
    }

    /// Writes that were on their way arrive. Returns how many took effect.
    pub fn deliver_late(&self) -> usize {
        let mut state = self.lock();
        let late = std::mem::take(&mut state.late);
        let mut arrived = 0;
        for write in late {
            arrived += usize::from(state.data.write(&write) == Ok(true));
        }
        arrived
    }

    /// Carries a random request a step further. Returns whether one waited.
    pub fn step(&self) -> bool {
        let ending = {
            let mut state = self.lock();
            if state.waiting.is_empty() || state.faults.is_frozen {
                return false;
            }
            let count = state.waiting.len();
            let place = state.random.below(count);
            let waiting = state.waiting.swap_remove(place);
            state.advance(waiting)
        };
        ending.end();
        true
    }

    /// Carries out all that waits, and what is handed over meanwhile.
    pub fn run(&self) {
        while self.step() {}
    }

    fn hand_over(&self, waiting: DoubleRequest) {
        let refused = {
            let mut state = self.lock();
            match state.is_stopped {
                true => Some(waiting),
                false => {
                    state.waiting.push(waiting);
                    None
                }
            }
        };
        drop(refused);
        if self.answers_at_once {
            self.run();
        }
    }

    fn lock(&self) -> MutexGuard<'_, DoubleState> {
        self.state
            .lock()
            .expect("no test goes on after a panic here")
    }
}

impl DoubleState {
    fn advance(&mut self, waiting: DoubleRequest) -> DoubleEnd {
        if let Some(error) = self.fault() {
            self.counts.other_faults += 1;
            return match waiting {
                DoubleRequest::Read(read) => DoubleEnd::Read(read, Err(error)),
                DoubleRequest::Change(change) => DoubleEnd::Change(change, Err(error.into())),
                DoubleRequest::Commit { commit, .. } => DoubleEnd::Commit(commit, Err(error)),
            };
        }
        if happens(&mut self.random, self.faults.dropped) {
            self.counts.other_faults += 1;
            return DoubleEnd::Dropped(waiting);
        }
        match waiting {
            DoubleRequest::Read(read) => {
                let answer = self.data.read(&read);
                DoubleEnd::Read(read, answer)
            }
            DoubleRequest::Change(change) => {
                let result = self.data.change(change.what());
                DoubleEnd::Change(change, result)
            }
            DoubleRequest::Commit {
                commit,
                found: None,
                tries,
            } => self.read_for(commit, tries),
            DoubleRequest::Commit {
                commit,
                found: Some(found),
                tries,
            } => self.decide(commit, &found, tries),
        }
    }

    /// Why a request comes to nothing before anything is sent.
    fn fault(&mut self) -> Option<RemoteError> {
        let RemoteFaults {
            timed_out,
            busy,
            has_no_quorum,
            ..
        } = self.faults;
        let random = &mut self.random;
        if has_no_quorum {
            return Some(RemoteError::NoQuorum);
        }
        if happens(random, timed_out) {
            return Some(RemoteError::TimedOut);
        }
        happens(random, busy).then_some(RemoteError::Busy { retry_ms: 10 })
    }

    fn read_for(&mut self, commit: Box<RemoteCommit>, tries: u32) -> DoubleEnd {
        let keys = commit.keys();
        let found = keys.map(|key| match key.is_read {
            true => self.data.find(commit.database(), key.key),
            false => Ok(None),
        });
        match found.collect() {
            Ok(found) => {
                self.waiting.push(DoubleRequest::Commit {
                    commit,
                    found: Some(found),
                    tries,
                });
                DoubleEnd::None
            }
            Err(error) => DoubleEnd::Commit(commit, Err(error)),
        }
    }

    fn decide(
        &mut self,
        mut commit: Box<RemoteCommit>,
        found: &[Option<RemoteEntry>],
        tries: u32,
    ) -> DoubleEnd {
        let version = self.data.next_version();
        if commit.decide(version, self.data.now_ms, found) == RemoteStep::Nothing {
            return DoubleEnd::Commit(commit, Ok(()));
        }
        let write = DoubleWrite::new(&commit, version, found);
        if happens(&mut self.random, self.faults.late) {
            self.late.push(write);
            return DoubleEnd::Commit(commit, Err(RemoteError::OutcomeUnknown));
        }
        let is_unknown = happens(&mut self.random, self.faults.unknown);
        if is_unknown && self.random.once_in(2) {
            self.counts.unknown_lost += 1;
            return DoubleEnd::Commit(commit, Err(RemoteError::OutcomeUnknown));
        }
        match self.data.write(&write) {
            Err(error) => DoubleEnd::Commit(commit, Err(error)),
            Ok(true) if is_unknown => {
                self.counts.unknown_applied += 1;
                DoubleEnd::Commit(commit, Err(RemoteError::OutcomeUnknown))
            }
            Ok(true) => DoubleEnd::Commit(commit, Ok(())),
            Ok(false) if tries >= TRIES => DoubleEnd::Commit(commit, Err(RemoteError::Contended)),
            Ok(false) => {
                self.counts.lost_races += 1;
                self.read_for(commit, tries + 1)
            }
        }
    }
}

fn happens(random: &mut Random, once_in: u64) -> bool {
    once_in != 0 && random.once_in(once_in)
}

impl RemoteBackend for RemoteDouble {
    fn description(&self) -> String {
        "a double in memory".into()
    }

    fn catalogue(&self) -> Arc<RemoteCatalogue> {
        Arc::new(self.lock().data.catalogue())
    }

    fn change(&self, change: RemoteChange) {
        self.hand_over(DoubleRequest::Change(change));
    }

    fn read(&self, read: RemoteRead) {
        self.hand_over(DoubleRequest::Read(read));
    }

    fn commit(&self, commit: RemoteCommit) {
        self.hand_over(DoubleRequest::Commit {
            commit: Box::new(commit),
            found: None,
            tries: 0,
        });
    }

    fn health(&self) -> RemoteHealth {
        match self.lock().faults.has_no_quorum {
            true => RemoteHealth::NoQuorum("a fault of the double".into()),
            false => RemoteHealth::Serving,
        }
    }

    fn stop(&self) {
        let waiting = {
            let mut state = self.lock();
            state.is_stopped = true;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
    }
}

impl fmt::Debug for RemoteDouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RemoteDouble")
            .field("answers_at_once", &self.answers_at_once)
            .finish_non_exhaustive()
    }
}
