//! Watch: a stream of what is committed in a range of keys.
//!
//! A watcher keeps the point up to which it has been told everything, and nothing of what it will
//! be told: a caller that does not read holds no memory, and has lost its place when the feed has
//! gone on too far. It is woken when its database has changed. What memory does not have any more
//! is read from the log, a piece at a time, when the peer can take it; what the peer then does not
//! take is read again.

use std::sync::Arc;

use api::keyvalue::{
    Change as ChangeMessage, ChangeKind as Kind, Commit as CommitMessage, Entry as EntryMessage,
    ResumePoint, WatchResponse,
};
use protobuf::writer;
use store::remote::Lack;
use store::{
    ChangeKind, Entry, FeedChange, FeedCommit, LogReadError, LogReading, NextCommits, WatchError,
    Watcher,
};

use super::messages::{HistoryPoint, decode_watch};
use super::range::Rest;
use super::refuse;
use crate::actions::{CallClock, Permissions, ResponseMemory, Responses, SendRoom, Wakeups};
use crate::call::Shared;
use crate::limits::{
    WATCH_HEARTBEAT_MS, WATCH_LOG_BYTES, WATCH_LOG_RETRY_MS, WATCH_MESSAGE_BYTES,
    WATCH_STEP_CHANGES,
};
use crate::method::Method;
use crate::rights::Right;
use crate::status::{Code, Status};
use crate::waiting::WaitingPlace;

/// At most this many bytes are what a change takes beside keys and values: its kind, the heads of
/// two entries with their versions and expiries, and of itself.
const CHANGE_OVERHEAD_BYTES: usize = 96;

/// The same of a commit, and of a response.
const COMMIT_OVERHEAD_BYTES: usize = 64;

/// A call that watches.
pub(super) struct Watch {
    watcher: Watcher,
    log: WatchLog,
    keys: Rest,
    keys_only: bool,
    with_previous: bool,
    /// What a response may have at most, in bytes.
    max_bytes: usize,
    /// So many changes of the next commit were sent: it comes in parts.
    sent_changes: usize,
    /// When the caller is told at the latest where it stands; 0: it has not been told anything.
    heartbeat_ns: u64,
    /// When it is woken next, whatever happens: not later than that.
    timer_ns: u64,
    /// Held as long as the call lives.
    _place: WaitingPlace,
}

/// Where a watcher is in the log.
#[derive(Default)]
enum WatchLog {
    /// Nowhere: memory has had all that it wanted.
    #[default]
    Unused,
    /// The log is read for it.
    UnderWay,
    /// Where it was read last.
    Between(Box<LogReading>),
}

/// How a commit is told so that it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CommitForm {
    /// Values of so many bytes or more are left out.
    left_out_from: usize,
    with_previous: bool,
}

/// What of a commit goes into a response.
struct Told<'a> {
    commit: &'a FeedCommit,
    /// The places of its changes.
    places: Vec<usize>,
    form: CommitForm,
    /// More of it follows.
    is_continued: bool,
    /// What follows is here, and had no room.
    is_full: bool,
    /// What it takes at most.
    bytes: usize,
}

impl Told<'_> {
    /// Returns how many changes of the commit are told with it and before.
    fn end(&self) -> usize {
        let here = match (self.is_full, self.places.last()) {
            (true, Some(last)) => last + 1,
            _ => self.commit.len(),
        };
        self.commit.passed_changes() + here
    }
}

/// What one response tells.
#[derive(Default)]
struct NextResponse<'a> {
    told: Vec<Told<'a>>,
    bytes: usize,
    /// Everything up to this commit is told then.
    through: u64,
    /// Changes of the commit behind that which are told as well.
    sent_changes: usize,
}

impl Watch {
    /// Takes up a request.
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl Permissions + Wakeups),
    ) -> Result<Box<Watch>, Status> {
        let decoded = decode_watch(bytes);
        let (request, max_bytes) =
            decoded.map_err(|invalid| refuse::invalid(Method::Watch, invalid))?;
        let database = refuse::find_database(Right::Read, request.database, shared, actions)?;
        let place = shared.waiting.enter(actions.caller())?;
        if let Some(resume) = request.resume {
            check_history(resume.history_id, shared)?;
        }
        let resume = request.resume.map(|resume| resume.sequence);
        let max_bytes = max_bytes.min(shared.answer_bytes_max);
        let watcher = (shared.store)
            .watch(database, resume, request.with_previous)
            .map_err(refusal)?;
        let keys = Rest::new(request.keys);
        actions.watch(watcher.news());
        Ok(Box::new(Watch {
            watcher,
            log: WatchLog::Unused,
            keys,
            keys_only: request.keys_only,
            with_previous: request.with_previous,
            max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
            sent_changes: 0,
            heartbeat_ns: 0,
            timer_ns: 0,
            _place: place,
        }))
    }

    /// Tells what there is to tell, if there is room for it.
    pub(super) fn go_on(
        &mut self,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        if shared.health.is_stopping() {
            // It never ends by itself, and would hold up the end of the server.
            return actions.finish(Status::new(Code::Unavailable, "the server is stopping"));
        }
        let is_due = actions.now_ns() >= self.heartbeat_ns;
        if !(is_due || self.watcher.has_news() || self.sent_changes > 0) {
            return self.rest(actions);
        }
        let room_bytes = actions.send_room();
        if room_bytes == 0 {
            return;
        }
        match self.next() {
            Ok(next) => self.tell(&next, shared, actions),
            Err(error @ WatchError::Lost { .. }) => match self.read_log(room_bytes, actions) {
                true if is_due => self.tell(&self.nothing(), shared, actions),
                true => self.rest(actions),
                false => actions.finish(refusal(error)),
            },
            Err(error) => actions.finish(refusal(error)),
        }
    }

    /// Has the log read on, if it has what memory does not have any more.
    fn read_log(&mut self, room_bytes: usize, actions: &mut impl Wakeups) -> bool {
        let before = match std::mem::take(&mut self.log) {
            WatchLog::UnderWay => {
                self.log = WatchLog::UnderWay;
                return true;
            }
            WatchLog::Between(reading) => Some(*reading),
            WatchLog::Unused => None,
        };
        let Some(reading) = self.watcher.read_log(before, self.sent_changes) else {
            return false;
        };
        actions.read_log(reading, room_bytes.min(WATCH_LOG_BYTES));
        self.log = WatchLog::UnderWay;
        true
    }

    /// Tells what was read from the log.
    pub(super) fn log_read(
        &mut self,
        reading: LogReading,
        read: Result<NextCommits, LogReadError>,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        self.log = WatchLog::Between(Box::new(reading));
        match read {
            Ok(read) => self.tell_all(read, shared, actions),
            Err(LogReadError::Failed(error)) => actions.finish(refusal(error)),
            Err(LogReadError::Busy | LogReadError::Needs(_)) => {
                self.timer_ns = actions.now_ns() + WATCH_LOG_RETRY_MS * 1_000_000;
                actions.wake_at_ns(self.timer_ns);
            }
        }
    }

    /// Tells what comes next in one response, if there is room for it.
    fn tell(
        &mut self,
        next: &NextCommits,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        if self.respond(next, shared, actions).is_some() {
            self.go_further(actions);
        }
    }

    /// Tells as much of what was read as there is room for, as the rest would have to be read
    /// again.
    fn tell_all(
        &mut self,
        mut read: NextCommits,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        let mut told_bytes = 0;
        loop {
            let Some(bytes) = self.respond(&read, shared, actions) else {
                // It goes on when the peer takes some more.
                return;
            };
            told_bytes += bytes;
            let (position, sent) = (self.watcher.position(), self.sent_changes);
            let is_left = |commit: &Arc<FeedCommit>| {
                let end = commit.passed_changes() + commit.len();
                commit.sequence() > position && !(commit.is_cut() && sent >= end)
            };
            read.commits.retain(is_left);
            if read.commits.is_empty() || told_bytes > WATCH_LOG_BYTES {
                return self.go_further(actions);
            }
        }
    }

    fn go_further(&mut self, actions: &mut (impl Wakeups + CallClock)) {
        let is_being_read = matches!(self.log, WatchLog::UnderWay);
        match !is_being_read && (self.watcher.has_news() || self.sent_changes > 0) {
            true => actions.step_later(),
            false => self.rest(actions),
        }
    }

    /// Sends a response, if there is something to tell, and returns what it took at most; `None`:
    /// there is no room for it.
    fn respond(
        &mut self,
        next: &NextCommits,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + CallClock),
    ) -> Option<usize> {
        // What the peer's windows do not let out would wait, and hold up other calls of its
        // connection.
        let room_bytes = actions.send_room();
        if room_bytes == 0 {
            return None;
        }
        let usual_bytes = actions.message_bytes();
        let response = self.respond_to(next, usual_bytes.min(room_bytes));
        let bytes = response.bytes;
        if (bytes > room_bytes && !actions.can_send())
            || (bytes > usual_bytes && !actions.can_send_large(bytes))
        {
            return None;
        }
        let is_due = actions.now_ns() >= self.heartbeat_ns;
        if is_due || !response.told.is_empty() {
            actions.message(|out| {
                let start = out.len();
                self.encode(&response, shared, out);
                debug_assert!(
                    out.len() - start <= response.bytes,
                    "what is claimed is enough"
                );
            });
            self.heartbeat_ns = actions.now_ns() + WATCH_HEARTBEAT_MS * 1_000_000;
        }
        self.watcher.pass(response.through);
        self.sent_changes = response.sent_changes;
        Some(bytes)
    }

    /// Sees to it that there is a heartbeat. A timer that is set stays, though it may expire early.
    fn rest(&mut self, actions: &mut (impl Wakeups + CallClock)) {
        if self.timer_ns <= actions.now_ns() {
            self.timer_ns = self.heartbeat_ns;
            actions.wake_at_ns(self.timer_ns);
        }
    }

    /// Returns what comes next: at first nothing but where the watcher begins.
    fn next(&self) -> Result<NextCommits, WatchError> {
        match self.heartbeat_ns {
            0 => Ok(self.nothing()),
            _ => self.watcher.next(WATCH_STEP_CHANGES),
        }
    }

    /// Nothing but where the watcher stands.
    fn nothing(&self) -> NextCommits {
        NextCommits {
            commits: Vec::new(),
            through: self.watcher.position(),
        }
    }

    /// Puts together what comes next: as many commits as fit into `usual_bytes`, or one that does
    /// not.
    fn respond_to<'a>(&self, next: &'a NextCommits, usual_bytes: usize) -> NextResponse<'a> {
        let usual_bytes = usual_bytes.min(WATCH_MESSAGE_BYTES).min(self.max_bytes);
        let mut response = NextResponse {
            through: self.watcher.position(),
            // As long as there is nothing new.
            sent_changes: self.sent_changes,
            bytes: COMMIT_OVERHEAD_BYTES,
            ..NextResponse::default()
        };
        for commit in &next.commits {
            let told = match std::mem::take(&mut response.sent_changes) {
                0 => self.fit(commit),
                sent => {
                    let told = self.fit_rest(commit, sent.saturating_sub(commit.passed_changes()));
                    if told.places.is_empty() && told.is_continued {
                        response.sent_changes = told.end();
                        return response;
                    }
                    // Without a change as well: that it was the last part is not known yet.
                    Some(told)
                }
            };
            if let Some(told) = told {
                if !response.told.is_empty() && response.bytes + told.bytes > usual_bytes {
                    return response;
                }
                response.bytes += told.bytes;
                let (is_continued, end) = (told.is_continued, told.end());
                response.told.push(told);
                if is_continued {
                    response.sent_changes = end;
                    return response;
                }
            }
            response.through = commit.sequence();
        }
        response.through = next.through;
        response
    }

    /// Returns the changes of a commit that are wanted, from a place on, each with its place.
    fn wanted<'a>(
        &'a self,
        commit: &'a FeedCommit,
        from: usize,
    ) -> impl Iterator<Item = (usize, FeedChange<'a>)> {
        let range = self.keys.range();
        let is_wanted = move |change: &FeedChange<'_>| {
            change.kind == ChangeKind::Clear || range.contains(change.key)
        };
        (commit.changes_from(from)).filter(move |(_, change)| is_wanted(change))
    }

    /// Finds a form of a commit in which it fits into a response: with all of it, without what was
    /// there before, without its largest values, without any; and else a part of that. `None`: none
    /// of its changes is wanted.
    fn fit<'a>(&self, commit: &'a FeedCommit) -> Option<Told<'a>> {
        let places: Vec<usize> = self.wanted(commit, 0).map(|(place, _)| place).collect();
        if places.is_empty() {
            return None;
        }
        let room_bytes = self.room_bytes();
        let mut form = CommitForm {
            left_out_from: usize::MAX,
            with_previous: self.with_previous,
        };
        let bytes_of = |place: usize, form: CommitForm| {
            commit
                .change(place)
                .map_or(0, |change| self.bytes_of(&change, form))
        };
        let all_of = |form: CommitForm| places.iter().map(|&place| bytes_of(place, form)).sum();
        let mut bytes: usize = all_of(form);
        if bytes > room_bytes {
            form.with_previous = false;
            bytes = all_of(form);
        }
        if bytes > room_bytes && !self.keys_only {
            let changes = places.iter().filter_map(|&place| commit.change(place));
            let mut values: Vec<usize> = changes.map(|change| value_bytes(&change)).collect();
            values.sort_unstable();
            while bytes > room_bytes
                && let Some(largest) = values.pop().filter(|&bytes| bytes > 0)
            {
                form.left_out_from = largest;
                bytes -= largest;
            }
            // With all that are as large.
            bytes = all_of(form);
        }
        if bytes > room_bytes {
            return Some(self.part(commit, 0, form));
        }
        Some(Told {
            commit,
            places,
            form,
            is_continued: false,
            is_full: false,
            bytes: bytes + COMMIT_OVERHEAD_BYTES,
        })
    }

    /// Returns the next part of a commit that comes in parts, in the form of the first of them. No
    /// more of it is looked at than goes into the part.
    fn fit_rest<'a>(&self, commit: &'a FeedCommit, from: usize) -> Told<'a> {
        let form = CommitForm {
            left_out_from: 1,
            with_previous: false,
        };
        self.part(commit, from, form)
    }

    fn part<'a>(&self, commit: &'a FeedCommit, from: usize, form: CommitForm) -> Told<'a> {
        let room_bytes = self.room_bytes();
        let mut told = Told {
            commit,
            places: Vec::new(),
            form,
            is_continued: commit.is_cut(),
            is_full: false,
            bytes: COMMIT_OVERHEAD_BYTES,
        };
        let mut part_bytes = 0;
        for (place, change) in self.wanted(commit, from) {
            part_bytes += self.bytes_of(&change, form);
            // One always does: a key is at most half as long.
            if part_bytes > room_bytes && !told.places.is_empty() {
                told.is_full = true;
                told.is_continued = true;
                told.bytes = room_bytes + COMMIT_OVERHEAD_BYTES;
                return told;
            }
            told.places.push(place);
        }
        told.bytes += part_bytes;
        told
    }

    fn room_bytes(&self) -> usize {
        self.max_bytes - 2 * COMMIT_OVERHEAD_BYTES
    }

    /// Returns what a change takes at most in a response.
    fn bytes_of(&self, change: &FeedChange<'_>, form: CommitForm) -> usize {
        let with_value = |bytes: usize| match self.keys_only {
            true => 0,
            false => bytes,
        };
        let value = Some(value_bytes(change)).filter(|&bytes| bytes < form.left_out_from);
        let previous = change.previous.as_ref().filter(|_| form.with_previous);
        CHANGE_OVERHEAD_BYTES
            + change.key.len()
            + with_value(value.unwrap_or(0))
            + with_value(previous.map_or(0, |entry| entry.value.len()))
    }

    fn encode(&self, response: &NextResponse<'_>, shared: &Shared, out: &mut Vec<u8>) {
        for told in &response.told {
            writer::message(out, WatchResponse::NUMBERS.commits, |out| {
                self.encode_commit(told, out);
            });
        }
        // Within a commit that comes in parts: that before it.
        let point = HistoryPoint::new(shared.store.history_id(), response.through);
        let resume = ResumePoint {
            history_id: point.history_id(),
            sequence: point.sequence(),
        };
        writer::message(out, WatchResponse::NUMBERS.resume, |out| resume.encode(out));
    }

    fn encode_commit(&self, told: &Told<'_>, out: &mut Vec<u8>) {
        CommitMessage {
            sequence: told.commit.sequence(),
            at_ms: told.commit.at_ms(),
            continued: told.is_continued,
            ..CommitMessage::default()
        }
        .encode(out);
        let changes = told.places.iter();
        for change in changes.filter_map(|&place| told.commit.change(place)) {
            writer::message(out, CommitMessage::NUMBERS.changes, |out| {
                self.change_message(&change, told.form).encode(out);
            });
        }
    }

    fn change_message<'a>(&self, change: &FeedChange<'a>, form: CommitForm) -> ChangeMessage<'a> {
        let is_left_out = !self.keys_only && value_bytes(change) >= form.left_out_from;
        let entry = match &change.entry {
            Some(entry) => Some(self.entry_message(entry, !is_left_out)),
            None if change.kind == ChangeKind::Clear => None,
            None => Some(EntryMessage {
                key: change.key,
                ..EntryMessage::default()
            }),
        };
        let previous = change.previous.as_ref().filter(|_| form.with_previous);
        ChangeMessage {
            kind: kind(change.kind) as i32,
            entry,
            previous: previous.map(|entry| EntryMessage {
                key: &[],
                ..self.entry_message(entry, true)
            }),
            value_left_out: is_left_out,
        }
    }

    fn entry_message<'a>(&self, entry: &Entry<'a>, with_value: bool) -> EntryMessage<'a> {
        EntryMessage {
            key: entry.key,
            value: match with_value && !self.keys_only {
                true => entry.value.bytes(),
                false => &[],
            },
            version: entry.version,
            expires_at_ms: entry.expires_ms,
        }
    }
}

fn value_bytes(change: &FeedChange<'_>) -> usize {
    change.entry.as_ref().map_or(0, |entry| entry.value.len())
}

fn kind(kind: ChangeKind) -> Kind {
    match kind {
        ChangeKind::Set => Kind::Set,
        ChangeKind::Delete => Kind::Delete,
        ChangeKind::Expire => Kind::Expire,
        ChangeKind::Clear => Kind::Clear,
    }
}

/// A point of another history means nothing here; one without is one of this.
fn check_history(history_id: &[u8], shared: &Shared) -> Result<(), Status> {
    let own = HistoryPoint::new(shared.store.history_id(), 0);
    if history_id.is_empty() || history_id == own.history_id() {
        return Ok(());
    }
    Err(Status::new(
        Code::OutOfRange,
        "WatchRequest.resume belongs to another history than this server has: read the range \
         anew, and watch from the sequence of that read",
    ))
}

#[cold]
fn refusal(error: WatchError) -> Status {
    match error {
        WatchError::Gone => refuse::database_gone(),
        WatchError::Elsewhere => refuse::lack(Lack::Watch),
        WatchError::Lost { .. } | WatchError::Ahead { .. } => {
            Status::new(Code::OutOfRange, format!("{error}"))
        }
        // Where it is, and what is wrong with it, the server's own log says.
        WatchError::Unreadable(_) => Status::new(
            Code::OutOfRange,
            "the changes behind WatchRequest.resume cannot be read any more: read the range anew, \
             and watch from the sequence of that read",
        ),
    }
}
