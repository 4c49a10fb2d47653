//! Replicate: what was written, update by update in the order of the log, for servers that follow
//! this one.
//!
//! A call keeps the groups of the log that were read for it and not sent, and reads on, beside the
//! loop, when its peer has taken them. Time stamps are those of the groups, which never go back: so
//! a caller that asks again from the last one that it got misses nothing.

use std::collections::VecDeque;

use api::tkrzw::{ReplicateRequest, ReplicateResponse, ReplicatedOperation};
use store::limits::FOLLOWED_READ_BYTES;
use store::log::FollowedGroup;
use store::{
    GroupReading, LogFollower, LogReadError, ReplicaPiece, ReplicaReading, Store, WatchError,
};
use wal::RecordError;

use super::decode::decode;
use super::replicated::ReplicatedDatabases;
use super::result::RequestResult;
use super::wait::stopping;
use super::{TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, ResponseMemory, Responses, SendRoom, Wakeups};
use crate::call::Shared;
use crate::limits::{
    FOLLOWERS_MAX, TKRZW_REPLICATE_STEP_UPDATES, TKRZW_REPLICATE_WAIT_MS_MIN, TKRZW_SYNC_LOOK_MS,
    TKRZW_WAIT_S_MAX, WATCH_LOG_RETRY_MS,
};
use crate::method::Method;
use crate::settings::tkrzw::TkrzwSettings;
use crate::status::{Code, Status};
use crate::waiting::WaitingPlace;

/// At most this many bytes are what a response takes beside key and value.
const UPDATE_OVERHEAD_BYTES: usize = 64;

/// A call that gets updates.
pub(super) struct Replicate {
    /// Updates that the caller has made are none for it.
    caller_id: i32,
    follower: LogFollower,
    /// `None`: groups are being read.
    reading: Option<GroupReading>,
    /// Groups that were read, of which the first has what was not sent of it.
    groups: VecDeque<FollowedGroup>,
    databases: ReplicatedDatabases,
    /// The caller has all that is older, and may ask for what is not.
    timestamp: i64,
    /// How long it waits before it hears that nothing has come; `None`: as long as it takes.
    wait_ns: Option<u64>,
    /// It was told whom it follows.
    is_greeted: bool,
    /// When it hears next that nothing has come.
    due_ns: u64,
    /// When the log may be read again, where too many others read.
    retry_ns: u64,
    /// When the call is woken next, whatever happens: not later than it must be.
    timer_ns: u64,
    /// Held as long as the call lives.
    _place: WaitingPlace,
}

/// How far sending has come.
enum SendEnd {
    /// Everything that was read is sent.
    Complete,
    /// The peer takes no more now.
    NoRoom,
    /// It was much for one step.
    StepOver,
}

impl Replicate {
    /// Takes up a request.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        let request: ReplicateRequest = decode(method, bytes)?;
        let (settings, store) = (&shared.settings.tkrzw, &shared.store);
        if !settings.has_update_log {
            return Err(no_update_log());
        }
        if request.server_id == settings.server_id {
            return Err(Status::invalid_argument("self server ID"));
        }
        if store.followers() >= FOLLOWERS_MAX {
            return Err(Status::resource_exhausted(format!(
                "{FOLLOWERS_MAX} others follow this server, and no more are allowed: follow one of \
                 them"
            )));
        }
        let place = shared.waiting.enter(actions.caller())?;
        let follower = store.follow_log().ok_or_else(no_update_log)?;
        actions.watch(follower.news());
        let since_ms = u64::try_from(request.min_timestamp).unwrap_or(0);
        let wait_ns = wait_ns(request.wait_time);
        let mut call = Replicate {
            caller_id: request.server_id,
            reading: Some(follower.read_since(since_ms)),
            follower,
            groups: VecDeque::new(),
            databases: ReplicatedDatabases::now(settings, store),
            timestamp: request.min_timestamp.max(0),
            wait_ns,
            is_greeted: false,
            due_ns: actions.now_ns().saturating_add(wait_ns.unwrap_or(0)),
            retry_ns: 0,
            timer_ns: 0,
            _place: place,
        };
        call.go_on(shared, actions);
        Ok(Some(TkrzwStep::Replicate(Box::new(call))))
    }

    /// Takes what was read.
    pub(super) fn replica_read(
        &mut self,
        reading: ReplicaReading,
        read: Result<ReplicaPiece, LogReadError>,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        if let ReplicaReading::Groups(reading) = reading {
            self.reading = Some(reading);
        }
        match read {
            Ok(ReplicaPiece::Groups(groups)) => self.groups.extend(groups),
            Ok(ReplicaPiece::File(_)) => debug_assert!(false, "a log is no file"),
            Err(LogReadError::Failed(error)) => return actions.finish(self.unread(&error)),
            Err(LogReadError::Busy | LogReadError::Needs(_)) => {
                self.retry_ns = actions.now_ns() + WATCH_LOG_RETRY_MS * 1_000_000;
            }
        }
        self.go_on(shared, actions);
    }

    /// Sends what was read as far as there is room for it, and has more read when all is sent.
    pub(super) fn go_on(
        &mut self,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        if shared.health.is_stopping() {
            // It never ends by itself, and would hold up the end of the server.
            return actions.finish(stopping());
        }
        if !self.greet(&shared.settings.tkrzw, actions) {
            return;
        }
        match self.send_some(&shared.settings.tkrzw, actions) {
            Ok(SendEnd::Complete) => {}
            Ok(SendEnd::NoRoom) => return self.hold(actions),
            Ok(SendEnd::StepOver) => {
                self.hold(actions);
                return actions.step_later();
            }
            Err(error) => {
                return actions.finish(self.unread(&WatchError::Unreadable(error.to_string())));
            }
        }
        match self.wants_read() {
            true => self.read_on(actions),
            false => self.tell_time(&shared.store, actions),
        }
        self.rest(actions);
    }

    /// Says first which server this is. Returns whether that is done.
    fn greet(
        &mut self,
        settings: &TkrzwSettings,
        actions: &mut (impl Responses + SendRoom),
    ) -> bool {
        if !self.is_greeted && actions.can_send() {
            let response = ReplicateResponse {
                server_id: settings.server_id,
                op_type: ReplicatedOperation::Noop.number(),
                ..ReplicateResponse::default()
            };
            actions.message(|out| response.encode(out));
            self.is_greeted = true;
        }
        self.is_greeted
    }

    /// Sends updates of the groups that were read.
    fn send_some(
        &mut self,
        settings: &TkrzwSettings,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + CallClock),
    ) -> Result<SendEnd, RecordError> {
        for _ in 0..TKRZW_REPLICATE_STEP_UPDATES {
            let Some(group) = self.groups.front_mut() else {
                return Ok(SendEnd::Complete);
            };
            let timestamp = i64::try_from(group.wall_ms).unwrap_or(i64::MAX);
            let Some((record, record_bytes)) = group.first()? else {
                self.timestamp = self.timestamp.max(timestamp);
                self.groups.pop_front();
                continue;
            };
            let made_by = settings.server_of(record.origin);
            let update = self.databases.update(&record, settings);
            if let Some(update) = update.filter(|_| made_by != self.caller_id) {
                let response = ReplicateResponse {
                    status: Some(RequestResult::SUCCESS.proto()),
                    timestamp,
                    server_id: made_by,
                    dbm_index: update.index,
                    op_type: update.operation.number(),
                    key: update.key,
                    value: update.value,
                };
                let bytes = UPDATE_OVERHEAD_BYTES + update.key.len() + update.value.len();
                let is_large = bytes > actions.message_bytes();
                if !actions.can_send() || (is_large && !actions.can_send_large(bytes)) {
                    return Ok(SendEnd::NoRoom);
                }
                actions.message(|out| response.encode(out));
                self.due_ns = actions
                    .now_ns()
                    .saturating_add(self.wait_ns.unwrap_or_default());
            }
            group.pass_first(record_bytes);
        }
        Ok(SendEnd::StepOver)
    }

    fn wants_read(&self) -> bool {
        let durable_sequence = self.follower.durable_sequence();
        let reading = self.reading.as_ref();
        reading.is_none_or(|reading| reading.position() < durable_sequence)
    }

    fn read_on(&mut self, actions: &mut (impl Wakeups + CallClock)) {
        if actions.now_ns() >= self.retry_ns
            && let Some(reading) = self.reading.take()
        {
            actions.read_replica(ReplicaReading::Groups(reading), FOLLOWED_READ_BYTES);
        }
    }

    /// Says that nothing has come for as long as the caller waits, and from which time on it may
    /// ask again.
    fn tell_time(
        &mut self,
        store: &Store,
        actions: &mut (impl Responses + SendRoom + Wakeups + CallClock),
    ) {
        let now_ns = actions.now_ns();
        let Some(wait_ns) = self.wait_ns.filter(|_| now_ns >= self.due_ns) else {
            return;
        };
        let log = store.log_statistics().unwrap_or_default();
        if !log.has_failed && self.follower.durable_sequence() < log.written_sequence {
            // What others can read already comes when it is on the device.
            self.due_ns = now_ns + TKRZW_SYNC_LOOK_MS * 1_000_000;
        } else if actions.can_send() {
            let response = ReplicateResponse {
                status: Some(RequestResult::INFEASIBLE.proto()),
                timestamp: self.timestamp,
                ..ReplicateResponse::default()
            };
            actions.message(|out| response.encode(out));
            let wait_ns = wait_ns.max(TKRZW_REPLICATE_WAIT_MS_MIN * 1_000_000);
            self.due_ns = now_ns.saturating_add(wait_ns);
        }
    }

    /// Counts what waits for the peer among what its connection holds.
    fn hold(&self, actions: &mut impl ResponseMemory) {
        let bytes: usize = self.groups.iter().map(|group| group.body.len()).sum();
        if bytes > 0 {
            actions.hold_ready(bytes);
        }
    }

    /// Sees to it that the call is woken when it must be. A timer that is set stays, though it may
    /// expire early.
    fn rest(&mut self, actions: &mut (impl Wakeups + CallClock)) {
        let now_ns = actions.now_ns();
        let wake_ns = match self.retry_ns > now_ns {
            true => Some(self.retry_ns),
            false => self.wait_ns.map(|_| self.due_ns),
        };
        if let Some(wake_ns) = wake_ns.filter(|&at_ns| at_ns > now_ns)
            && (self.timer_ns <= now_ns || wake_ns < self.timer_ns)
        {
            self.timer_ns = wake_ns;
            actions.wake_at_ns(wake_ns);
        }
    }

    /// Returns the status where the log cannot be read on. Where it is, and what is wrong with it,
    /// the server's own log says.
    #[cold]
    fn unread(&self, error: &WatchError) -> Status {
        match error {
            WatchError::Lost { .. } | WatchError::Ahead { .. } | WatchError::Gone => Status::new(
                Code::OutOfRange,
                format!(
                    "the updates since timestamp {} are not all there any more (--keep-log says \
                     how much is kept): the follower needs a new copy of the records, and then \
                     follows from the time at which that was begun",
                    self.timestamp
                ),
            ),
            WatchError::Elsewhere => Status::unimplemented(error.to_string()),
            WatchError::Unreadable(_) => Status::new(
                Code::Unavailable,
                "the log cannot be read on, as the log of this server says",
            ),
        }
    }
}

/// Returns how long a caller waits; `None`: as long as it takes.
fn wait_ns(seconds: f64) -> Option<u64> {
    match seconds {
        // A conversion to an integer is bounded by its type.
        0.0.. => Some((seconds.min(TKRZW_WAIT_S_MAX) * 1e9) as u64),
        _ if seconds.is_nan() => Some(0),
        _ => None,
    }
}

#[cold]
fn no_update_log() -> Status {
    Status::new(Code::FailedPrecondition, "disabled update logging")
}
