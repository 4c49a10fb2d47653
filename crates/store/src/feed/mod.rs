//! The change feed: the last commits of a database that somebody watches, kept in memory.
//!
//! Whoever publishes commits asks whether the feed of their database is open, and if it is, records
//! in a [`FeedCommit`] what each of them changes. A [`Watcher`] takes the commits behind the point
//! up to which it has seen them. A feed opens with the first watcher; when the last one has left it
//! stays open for [`FEED_KEPT_MS`](limits::FEED_KEPT_MS), so that one that was cut off can go on.
//!
//! Nothing is kept for a watcher beside its point: one that does not take what there is holds
//! nothing, and has lost its place when the feed has dropped the oldest commits for new ones. All
//! feeds together have a bound, of which each that holds something may have an equal part.
//!
//! What memory does not have any more is read from the log, if the database has one and that
//! reaches back so far ([`LogReading`]).
//!
//! A feed opens under the write lock of its database, which publishing holds as well: so between
//! what a reader has seen and the first commit that is recorded there is none.

mod commit;
mod group_reading;
mod hub;
mod log_reading;
mod signal;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::database_id::DatabaseId;
use crate::limits;
use crate::remote_kind::Lack;
use crate::value::Entry;
use commit::Recorder;
pub use commit::{ChangeKind, FeedChange, FeedCommit};
pub use group_reading::{FollowRefusal, GroupReading, LogFollower};
pub(crate) use hub::Feeds;
pub use hub::{ChangeWaker, Watched};
pub(crate) use log_reading::LogTail;
pub use log_reading::{LogReadError, LogReading};
pub use signal::ChangeSignal;

/// Why a database cannot be watched from a point on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// There is no such database (any more).
    #[error("there is no such database")]
    Gone,
    /// Some of the changes since then are not there any more.
    #[error(
        "the changes behind sequence {asked} are not all there any more: read the range anew, and \
         watch from the sequence of that read, {present} or later"
    )]
    Lost {
        /// Behind which commit changes were wanted.
        asked: u64,
        /// The last commit that readers see.
        present: u64,
    },
    /// No reader has seen such a commit yet: the point is one of another history, or of a part of
    /// this one that a crash has taken back.
    #[error(
        "sequence {asked} is ahead of the last commit of the database, {present}: it belongs to \
         another history, or to commits that a crash took back; read the range anew, and watch \
         from the sequence of that read"
    )]
    Ahead {
        /// Behind which commit changes were wanted.
        asked: u64,
        /// The last commit that readers see.
        present: u64,
    },
    /// The database is on an engine elsewhere, where others change it too.
    #[error("{}", Lack::Watch)]
    Elsewhere,
    /// The log, in which the changes are, cannot be read.
    #[error("the changes cannot be read from the log: {0}")]
    Unreadable(String),
}

/// The feed of one database.
#[derive(Debug)]
pub(crate) struct Feed {
    feeds: Arc<Feeds>,
    is_open: AtomicBool,
    /// The last commit that was recorded, or that readers had seen when it opened.
    last: AtomicU64,
    /// How often it was changed.
    changes: AtomicU64,
    /// Watchers that also want to know what was there before.
    wanting_previous: AtomicUsize,
    state: Mutex<FeedState>,
}

#[derive(Debug, Default)]
struct FeedState {
    commits: VecDeque<Arc<FeedCommit>>,
    bytes: usize,
    /// All that came behind this commit is here.
    behind: u64,
    watchers: usize,
    /// When the last watcher left, by the clock of the store.
    left_ms: u64,
    /// The database is gone.
    is_over: bool,
}

impl Feed {
    pub(crate) fn new(feeds: &Arc<Feeds>) -> Arc<Feed> {
        Arc::new(Feed {
            feeds: Arc::clone(feeds),
            is_open: AtomicBool::new(false),
            last: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            wanting_previous: AtomicUsize::new(0),
            state: Mutex::default(),
        })
    }

    /// Whether commits are to be recorded. Asked under the lock of the database.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Begins to record a commit.
    fn record(&self, sequence: u64, at_ms: u64) -> Recorder {
        let wants_previous = self.wanting_previous.load(Ordering::Relaxed) > 0;
        Recorder::new(sequence, at_ms, wants_previous)
    }

    /// Adds a commit that readers see now. Those who watch are told by [`Feeds::announce`].
    fn add(&self, recorded: Recorder) {
        let commit = recorded.finish();
        let (sequence, at_ms) = (commit.sequence(), commit.at_ms());
        let mut state = self.state.lock();
        // It may have been closed since it was asked.
        if !self.is_open() {
            return;
        }
        if state.is_left(at_ms) {
            return self.close(&mut state);
        }
        if !commit.is_empty() {
            let bytes = state.bytes + commit.held_bytes();
            state.set_bytes(bytes, &self.feeds);
            state.commits.push_back(Arc::new(commit));
            state.shrink(&self.feeds, &mut drop);
        }
        self.last.store(sequence, Ordering::Release);
        drop(state);
        self.note_change();
    }

    /// Readers see another commit, which has changed nothing: the database was converted.
    pub(crate) fn pass(&self, sequence: u64) {
        let state = self.state.lock();
        if self.is_open() {
            self.last.fetch_max(sequence, Ordering::Release);
        }
        drop(state);
        self.note_change();
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.feeds.note_change();
    }

    /// Opens the feed for one more watcher, under the write lock of the database, whose last commit
    /// that readers see is `present`. The watcher begins behind that, or behind the commit
    /// `resume`. `log` is what has the commits that are not in memory, if anything has.
    pub(crate) fn enter(
        self: &Arc<Feed>,
        resume: Option<u64>,
        present: u64,
        with_previous: bool,
        log: Option<DatabaseLog>,
    ) -> Result<Watcher, WatchError> {
        let asked = resume.unwrap_or(present);
        if asked > present {
            return Err(WatchError::Ahead { asked, present });
        }
        let mut state = self.state.lock();
        let is_open = self.is_open();
        let behind = if is_open { state.behind } else { present };
        let reaches_back = |log: &DatabaseLog| log.tail.reaches_back_to(asked);
        if asked < behind && !log.as_ref().is_some_and(reaches_back) {
            return Err(WatchError::Lost { asked, present });
        }
        if !is_open {
            debug_assert!(state.commits.is_empty(), "a closed feed has none");
            state.behind = present;
            self.last.store(present, Ordering::Release);
            self.is_open.store(true, Ordering::Relaxed);
            self.feeds.open(self);
        }
        state.watchers += 1;
        drop(state);
        (self.wanting_previous).fetch_add(usize::from(with_previous), Ordering::Relaxed);
        Ok(Watcher {
            feed: Arc::clone(self),
            position: asked,
            with_previous,
            log,
            wanted: Arc::new(()),
        })
    }

    /// What it holds is freed later, some at a time: it may be much.
    fn close(&self, state: &mut FeedState) {
        self.feeds.discard(std::mem::take(&mut state.commits));
        state.set_bytes(0, &self.feeds);
        state.behind = 0;
        if self.is_open.swap(false, Ordering::Relaxed) {
            self.feeds.close();
        }
    }

    /// The database is gone: so is what is kept, and those who watch hear of it.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        self.close(&mut state);
        drop(state);
        self.note_change();
    }

    /// Drops what is beyond a bound that has become less, or what nobody has watched for long.
    fn trim(&self, now_ms: u64) {
        let mut state = self.state.lock();
        if state.is_left(now_ms) {
            return self.close(&mut state);
        }
        let mut dropped = VecDeque::new();
        state.shrink(&self.feeds, &mut |commit| dropped.push_back(commit));
        drop(state);
        self.feeds.discard(dropped);
    }

    #[cfg(test)]
    fn held_bytes(&self) -> usize {
        self.state.lock().bytes
    }
}

impl FeedState {
    /// Whether nobody has watched for so long that nobody comes back.
    fn is_left(&self, now_ms: u64) -> bool {
        self.watchers == 0 && now_ms.saturating_sub(self.left_ms) >= limits::FEED_KEPT_MS
    }

    fn set_bytes(&mut self, bytes: usize, feeds: &Feeds) {
        feeds.note_held(self.bytes, bytes);
        self.bytes = bytes;
    }

    /// Drops the oldest commits until the rest has room. The newest stays as long as all feeds
    /// together have room: who keeps up is told of it, however large it is.
    fn shrink(&mut self, feeds: &Feeds, drop: &mut dyn FnMut(Arc<FeedCommit>)) {
        while self.bytes > feeds.bound_bytes()
            && (self.commits.len() > 1 || feeds.are_full())
            && let Some(oldest) = self.commits.pop_front()
        {
            self.set_bytes(self.bytes - oldest.held_bytes(), feeds);
            self.behind = self.behind.max(oldest.sequence());
            drop(oldest);
        }
    }
}

/// A commit that is being published, and recorded if its database has an open feed.
#[derive(Debug, Default)]
pub(crate) struct Recording<'a>(Option<Box<Recorded<'a>>>);

/// Where a commit is recorded, and what of it was so far. Apart: most commits have none.
#[derive(Debug)]
struct Recorded<'a> {
    feed: &'a Feed,
    recorder: Recorder,
}

impl<'a> Recording<'a> {
    /// Begins a commit, under the lock of its database. `at_ms` is the clock of the store.
    #[inline]
    pub(crate) fn begin(
        feed: Option<&'a Feed>,
        sequence: u64,
        at_ms: impl FnOnce() -> u64,
    ) -> Recording<'a> {
        Recording(feed.map(|feed| {
            Box::new(Recorded {
                feed,
                recorder: feed.record(sequence, at_ms()),
            })
        }))
    }

    /// Whether somebody wants to know what was there before.
    #[inline]
    pub(crate) fn wants_previous(&self) -> bool {
        (self.0.as_ref()).is_some_and(|recorded| recorded.recorder.wants_previous())
    }

    /// Records what becomes of a key: see [`Recorder::change`].
    #[inline]
    pub(crate) fn change(
        &mut self,
        key: &[u8],
        entry: Option<&Entry<'_>>,
        is_expiry: bool,
        previous: Option<Entry<'_>>,
    ) {
        if let Some(recorded) = &mut self.0 {
            (recorded.recorder).change(key, entry, is_expiry, previous);
        }
    }

    /// Records that all keys are removed.
    pub(crate) fn clear(&mut self) {
        if let Some(recorded) = &mut self.0 {
            recorded.recorder.clear();
        }
    }

    /// Readers see the commit when the lock is open.
    #[inline]
    pub(crate) fn end(self) {
        if let Some(recorded) = self.0 {
            recorded.feed.add(recorded.recorder);
        }
    }
}

/// The log, as far as it is that of one database.
#[derive(Debug)]
pub(crate) struct DatabaseLog {
    pub(crate) tail: Arc<LogTail>,
    pub(crate) database: DatabaseId,
}

/// Takes the changes of a database one after the other.
#[derive(Debug)]
pub struct Watcher {
    feed: Arc<Feed>,
    /// Everything up to this commit was taken.
    position: u64,
    with_previous: bool,
    /// What has the commits that are not in memory any more.
    log: Option<DatabaseLog>,
    /// Whoever reads that for it sees that it is still there.
    wanted: Arc<()>,
}

impl Watcher {
    /// Returns what shows somebody else whether there may be something to take.
    pub fn news(&self) -> ChangeNews {
        ChangeNews(NewsSource::Feed(Arc::clone(&self.feed)))
    }

    /// Returns up to which commit all was taken.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether [`Watcher::next`] may have something to say.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.feed.last.load(Ordering::Acquire) != self.position || !self.feed.is_open()
    }

    /// Returns the next commits, oldest first: at least one if there is one, and then as many as
    /// have so many changes together. Those that changed nothing are left out. They stay where they
    /// are until [`Watcher::pass`].
    ///
    /// # Errors
    /// [`WatchError::Lost`] if they were dropped meanwhile, [`WatchError::Gone`] if the database is
    /// gone.
    pub fn next(&self, changes: usize) -> Result<NextCommits, WatchError> {
        let state = self.feed.state.lock();
        if state.is_over {
            return Err(WatchError::Gone);
        }
        let last = self.feed.last.load(Ordering::Acquire);
        if self.position < state.behind {
            return Err(WatchError::Lost {
                asked: self.position,
                present: last,
            });
        }
        let rest = &state.commits;
        let first = rest.partition_point(|commit| commit.sequence() <= self.position);
        let mut left = changes;
        let mut commits: Vec<Arc<FeedCommit>> = Vec::new();
        let mut through = last.max(self.position);
        for commit in rest.range(first..) {
            if left == 0
                && let Some(taken) = commits.last()
            {
                through = taken.sequence();
                break;
            }
            left = left.saturating_sub(commit.len());
            commits.push(Arc::clone(commit));
        }
        Ok(NextCommits { commits, through })
    }

    /// Has the log read on where memory has no more, which [`Watcher::next`] says as
    /// [`WatchError::Lost`]: with what has read it before, if something has. So many changes of the
    /// next commit were taken already. `None`: the log does not have it either.
    pub fn read_log(&self, before: Option<LogReading>, taken_changes: usize) -> Option<LogReading> {
        let log = self.log.as_ref()?;
        if !log.tail.reaches_back_to(self.position) {
            return None;
        }
        let wanted = || Arc::downgrade(&self.wanted);
        let begin = || LogReading::new(&log.tail, log.database, self.position, wanted());
        let mut reading = before.unwrap_or_else(begin);
        let taken = (self.position, taken_changes);
        reading.aim(taken, self.feed.last.load(Ordering::Acquire));
        Some(reading)
    }

    /// Everything up to a commit was taken.
    pub fn pass(&mut self, sequence: u64) {
        debug_assert!(sequence >= self.position, "it goes forward");
        self.position = sequence;
    }
}

/// Shows somebody else whether a database that is watched has changed.
#[derive(Clone, Debug)]
pub struct ChangeNews(NewsSource);

#[derive(Clone, Debug)]
enum NewsSource {
    Feed(Arc<Feed>),
    /// What of the log is on the device.
    Log(Arc<LogTail>),
}

impl ChangeNews {
    /// Returns how often it has changed.
    #[inline]
    pub fn changes(&self) -> u64 {
        match &self.0 {
            NewsSource::Feed(feed) => feed.changes.load(Ordering::Acquire),
            NewsSource::Log(tail) => tail.durable_changes(),
        }
    }
}

/// What comes next for a watcher.
#[derive(Debug)]
pub struct NextCommits {
    /// The commits that have changed something.
    pub commits: Vec<Arc<FeedCommit>>,
    /// With these, everything up to this commit is taken.
    pub through: u64,
}

impl NextCommits {
    /// Returns what they take of memory, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.commits.iter().map(|commit| commit.held_bytes()).sum()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut state = self.feed.state.lock();
        state.watchers -= 1;
        state.left_ms = self.feed.feeds.now_ms();
        drop(state);
        let previous = usize::from(self.with_previous);
        (self.feed.wanting_previous).fetch_sub(previous, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
