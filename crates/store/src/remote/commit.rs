//! Commits on databases on an engine elsewhere: decided here, carried out there.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::found::FoundEntries;
use super::life::RequestLife;
use super::parts::{Part, RemoteKey};
use super::room::{BUSY, RemoteRoom, RoomShare};
use super::sink::{PartEnd, PartOutcome};
use crate::database::DatabaseLimits;
use crate::database_id::DatabaseId;
use crate::decide::{Context, decide_operations};
use crate::effects::Effects;
use crate::outcome::{Decision, Outcomes};
use crate::remote_kind::{RemoteEntry, RemoteError, RemotePromise, RemoteShape};

/// A commit, or that part of an independent commit that concerns one key: what an engine carries
/// out at once. All its keys are in one bucket.
pub struct RemoteCommit {
    database: DatabaseId,
    shape: RemoteShape,
    limits: DatabaseLimits,
    life: RequestLife,
    part: Part,
    effects: Effects,
    /// Places of keys that are removed although nothing was found there.
    removed: Vec<usize>,
    outcomes: Outcomes,
    room: Arc<RemoteRoom>,
    /// For what was read for the last decision.
    read_share: Option<RoomShare>,
    /// A decision stands that writes something: what is dropped now may have been written.
    writes: bool,
    version: u64,
    end: Option<Box<dyn PartEnd>>,
}

/// What is to be done after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteStep {
    /// Nothing: no key changes.
    Nothing,
    /// The [effects](RemoteCommit::effects) are to be written.
    Write,
}

/// What a commit leaves under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteEffect<'a> {
    /// Its place among [`RemoteCommit::keys`].
    pub index: usize,
    /// The key.
    pub key: &'a [u8],
    /// What is there then.
    pub after: RemoteAfter<'a>,
}

/// What is under a key after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAfter<'a> {
    /// Nothing.
    Absent,
    /// An entry, with the version that was given to [`RemoteCommit::decide`].
    Present {
        /// Its value.
        value: &'a [u8],
        /// Milliseconds since 1970 from which on it counts as absent; 0: never.
        expires_ms: u64,
    },
}

impl RemoteCommit {
    pub(super) fn new(
        (database, shape, limits): (DatabaseId, RemoteShape, DatabaseLimits),
        life: RequestLife,
        part: Part,
        (end, room): (Box<dyn PartEnd>, &Arc<RemoteRoom>),
    ) -> RemoteCommit {
        RemoteCommit {
            database,
            shape,
            limits,
            life,
            part,
            effects: Effects::default(),
            removed: Vec::new(),
            outcomes: Outcomes::new(),
            room: Arc::clone(room),
            read_share: None,
            writes: false,
            version: 0,
            end: Some(end),
        }
    }

    /// Returns the database.
    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// Returns the shape of the database.
    pub fn shape(&self) -> RemoteShape {
        self.shape
    }

    /// Returns the bucket of all its keys.
    pub fn bucket(&self) -> u16 {
        let first = self.part.keys().next();
        first.map_or(0, |key| self.shape.bucket_of(key.key))
    }

    /// Returns within which time it is to be completed, from now on. All parts of an independent
    /// commit have one deadline.
    pub fn timeout(&self) -> Duration {
        self.life.left(Instant::now())
    }

    /// Whether its call has ended, by its deadline or otherwise: nobody waits for the outcome, and
    /// what is not written yet need not be.
    pub fn is_abandoned(&self) -> bool {
        self.life.is_abandoned()
    }

    /// Returns its keys, each once, in the order of their first operations.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = RemoteKey<'_>> {
        self.part.keys()
    }

    /// Whether some key is to be read.
    pub fn reads(&self) -> bool {
        self.keys().any(|key| key.is_read)
    }

    /// Decides it: what it answers, and what it writes. May be called again, when a condition of
    /// the batch did not hold; then nothing of the decision before counts any more.
    ///
    /// `found` has what is under each of its keys, in their order; what is there for those that
    /// are not read does not matter. `version` is larger than every version in `found` and than
    /// all that this backend has given out, and no backend ever gives it out again; `now_ms` is
    /// the time, in milliseconds since 1970.
    ///
    /// Where there is no room for what was found, nothing is to be done either, and the outcome
    /// says so.
    pub fn decide(
        &mut self,
        version: u64,
        now_ms: u64,
        found: &[Option<RemoteEntry>],
    ) -> RemoteStep {
        debug_assert_eq!(found.len(), self.keys().len(), "one for each key");
        self.outcomes.clear();
        self.version = version;
        let batch = self.part.batch();
        let record = self.part.record();
        // What was read before goes, so that one that is decided often holds one reading.
        self.read_share = None;
        let read_bytes = found.iter().flatten().map(|entry| entry.value.len()).sum();
        self.read_share = self.room.take_bytes(read_bytes);
        if self.read_share.is_none() {
            self.effects.begin();
            self.removed.clear();
            self.writes = false;
            self.outcomes.refuse(record, BUSY.into());
            return RemoteStep::Nothing;
        }
        let pending = FoundEntries::new(&self.part, found);
        let context = Context {
            sequence: version,
            now_ms,
            limits: self.limits,
        };
        let (effects, outcomes) = (&mut self.effects, &mut self.outcomes);
        let mark = outcomes.mark();
        let verdict = decide_operations(&pending, batch, record, context, effects, outcomes);
        outcomes.finish(&mark, record, version, verdict);
        self.remove_unseen();
        let writes = self.effects().next().is_some();
        self.writes = writes;
        match self.writes {
            true => RemoteStep::Write,
            false => RemoteStep::Nothing,
        }
    }

    /// Returns what the last decision writes: each key at most once.
    pub fn effects(&self) -> impl Iterator<Item = RemoteEffect<'_>> {
        let removed = self.removed.iter().filter_map(|&index| {
            let key = self.part.key_at(index)?;
            let after = RemoteAfter::Absent;
            Some(RemoteEffect { index, key, after })
        });
        self.decided_effects().chain(removed)
    }

    /// Has a Delete of a quorum database remove what a quorum has not shown: a write of unknown
    /// outcome may have reached other nodes, and would come back later.
    fn remove_unseen(&mut self) {
        self.removed.clear();
        if self.shape.promise != RemotePromise::Quorum || !self.is_applied() {
            return;
        }
        let mut is_decided = vec![false; self.part.keys().len()];
        for effect in self.decided_effects() {
            if let Some(is_decided) = is_decided.get_mut(effect.index) {
                *is_decided = true;
            }
        }
        for index in self.part.deleted() {
            if let Some(is_decided) = is_decided.get_mut(index)
                && !std::mem::replace(is_decided, true)
            {
                self.removed.push(index);
            }
        }
    }

    fn decided_effects(&self) -> impl Iterator<Item = RemoteEffect<'_>> {
        let (batch, version) = (self.part.batch(), self.version);
        self.effects.iter().filter_map(move |effect| {
            let key = effect.key(batch);
            let index = self.part.index_of(key, effect.hash())?;
            let after = match effect.entry(batch, version) {
                None => RemoteAfter::Absent,
                Some(entry) => RemoteAfter::Present {
                    value: entry.value.bytes(),
                    expires_ms: entry.expires_ms,
                },
            };
            Some(RemoteEffect { index, key, after })
        })
    }

    /// Returns the bytes of its keys and values.
    pub fn bytes(&self) -> usize {
        self.part.record().bytes
    }

    /// Ends it. `Ok`: the last decision holds; its effects are written, if it has any.
    pub fn complete(mut self, result: Result<(), RemoteError>) {
        self.end_with(result);
    }

    /// Drops it without an outcome: it was not handed over, and will not be.
    pub(super) fn discard(mut self) {
        self.end = None;
    }

    fn end_with(&mut self, result: Result<(), RemoteError>) {
        let Some(end) = self.end.take() else {
            return;
        };
        self.read_share = None;
        let mut outcomes = std::mem::take(&mut self.outcomes);
        let is_decided = !outcomes.is_empty();
        let result = match result {
            Ok(()) if !is_decided => Err(RemoteError::OutcomeUnknown),
            result => result,
        };
        let has_written = match result {
            Ok(()) => self.writes,
            Err(error) => !error.is_of_nothing_done(),
        };
        if let Err(error) = result {
            outcomes.clear();
            outcomes.refuse(self.part.record(), error.into());
        }
        end.complete(PartOutcome {
            outcomes,
            has_written,
        });
    }

    /// Whether the last decision changes something, or fails.
    pub fn is_applied(&self) -> bool {
        (self.outcomes.iter()).all(|outcome| outcome.decision == Decision::Applied)
    }
}

impl Drop for RemoteCommit {
    fn drop(&mut self) {
        let error = match self.writes {
            true => RemoteError::OutcomeUnknown,
            false => RemoteError::TimedOut,
        };
        self.end_with(Err(error));
    }
}

impl fmt::Debug for RemoteCommit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RemoteCommit")
            .field("database", &self.database)
            .field("keys", &self.keys().len())
            .finish_non_exhaustive()
    }
}
