//! Follow: the log behind a sequence, group by group, as far as it is on the device.

use std::collections::VecDeque;

use api::replication::{FollowRequest, FollowResponse, LogGroup, RECORD_FORMAT};
use store::limits::FOLLOWED_READ_BYTES;
use store::log::FollowedGroup;
use store::{
    EpochPlace, FIRST_EPOCH, FollowRefusal, GroupReading, LogFollower, LogReadError, ReplicaPiece,
    ReplicaReading, WatchError,
};

use super::{is_behind, is_superseded, keeps_nothing, malformed, replica_ids, superseded};
use crate::actions::{CallClock, ResponseMemory, Responses, SendRoom, Wakeups};
use crate::call::Shared;
use crate::limits::{
    FOLLOW_HEARTBEAT_MS, FOLLOWERS_MAX, REPLICATION_PART_BYTES, WATCH_LOG_RETRY_MS,
};
use crate::method::Method;
use crate::status::{Code, Status};
use crate::waiting::WaitingPlace;

/// A call that follows the log.
pub struct FollowCall {
    follower: LogFollower,
    /// `None`: groups are being read.
    reading: Option<GroupReading>,
    /// Groups that were read, with how much of the first was sent.
    groups: VecDeque<FollowedGroup>,
    sent_bytes: usize,
    /// The checksum of the first.
    crc32c: u32,
    /// When the caller is told at the latest where this server stands; 0: it was not told anything.
    heartbeat_ns: u64,
    /// When it is woken next, whatever happens: not later than that.
    timer_ns: u64,
    /// When it may read again, where too many others read.
    retry_ns: u64,
    /// Held as long as the call lives.
    _place: WaitingPlace,
}

impl FollowCall {
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl Responses + Wakeups + CallClock),
    ) -> Result<Box<FollowCall>, Status> {
        let request = FollowRequest::decode(bytes);
        let request = request.map_err(|error| malformed(Method::ReplicationFollow, &error))?;
        if request.format != RECORD_FORMAT {
            return Err(Status::invalid_argument(format!(
                "FollowRequest.format is {}, and this server writes {RECORD_FORMAT}: use the same \
                 version of pelton for both servers",
                request.format
            )));
        }
        let store = &shared.store;
        if is_superseded((request.history_id, request.epoch), request.leader, shared) {
            respond((0, None), shared, actions);
            return Err(superseded(request.epoch, shared));
        }
        if request.history_id != api::history_id_bytes(store.history_id()) {
            // Who follows in a circle is to know that before it takes a copy.
            respond((0, None), shared, actions);
            return Err(Status::new(
                Code::FailedPrecondition,
                "this server has another history: a new copy is needed",
            ));
        }
        if store.followers() >= FOLLOWERS_MAX {
            return Err(Status::resource_exhausted(format!(
                "{FOLLOWERS_MAX} others follow this server, and no more are allowed: follow one of \
                 them"
            )));
        }
        let place = EpochPlace {
            epoch: request.log_epoch.max(FIRST_EPOCH),
            sequence: request.sequence,
        };
        if let Err(error) = store.replica_set().check_place(place) {
            respond((store.followable_sequence(), None), shared, actions);
            return Err(Status::new(Code::FailedPrecondition, error.to_string()));
        }
        let place = shared.waiting.enter(actions.caller())?;
        let follower = store.follow_log().ok_or_else(|| keeps_nothing(store))?;
        let reading = follower.read_behind(request.sequence);
        let reading = reading.map_err(|why| {
            let code = match why {
                FollowRefusal::Lost { .. } => Code::OutOfRange,
                FollowRefusal::Ahead { present, .. } if shared.following.is_some() => {
                    return is_behind(request.sequence, present);
                }
                FollowRefusal::Ahead { .. } => Code::FailedPrecondition,
            };
            respond((follower.durable_sequence(), None), shared, actions);
            Status::new(code, why.to_string())
        })?;
        actions.watch(follower.news());
        Ok(Box::new(FollowCall {
            follower,
            reading: Some(reading),
            groups: VecDeque::new(),
            sent_bytes: 0,
            crc32c: 0,
            heartbeat_ns: 0,
            timer_ns: 0,
            retry_ns: 0,
            _place: place,
        }))
    }

    /// Takes what was read.
    pub(super) fn read(
        &mut self,
        reading: GroupReading,
        read: Result<ReplicaPiece, LogReadError>,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        self.reading = Some(reading);
        match read {
            Ok(ReplicaPiece::Groups(groups)) => self.groups.extend(groups),
            Ok(ReplicaPiece::File(_)) => debug_assert!(false, "a log is no file"),
            Err(LogReadError::Failed(error)) => return actions.finish(unread(&error)),
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
            return actions.finish(Status::new(Code::Unavailable, "the server is stopping"));
        }
        let is_due = actions.now_ns() >= self.heartbeat_ns;
        if !(is_due || self.has_work()) {
            return self.rest(actions);
        }
        if !actions.can_send() {
            return self.hold(actions);
        }
        if is_due {
            self.respond(None, shared, actions);
        }
        while let Some(group) = self.groups.pop_front() {
            if !actions.can_send() {
                self.groups.push_front(group);
                return self.hold(actions);
            }
            if self.sent_bytes == 0 {
                self.crc32c = store::blob::crc32c(&group.body);
            }
            let end = group
                .body
                .len()
                .min(self.sent_bytes + REPLICATION_PART_BYTES);
            let data = group.body.get(self.sent_bytes..end).unwrap_or_default();
            let message = LogGroup {
                first_sequence: group.first_sequence,
                last_sequence: group.last_sequence,
                wall_ms: group.wall_ms,
                records: group.records,
                body_bytes: group.body.len() as u64,
                crc32c: self.crc32c,
                data,
            };
            self.respond(Some(message), shared, actions);
            self.sent_bytes = end;
            match end < group.body.len() {
                true => self.groups.push_front(group),
                false => self.sent_bytes = 0,
            }
        }
        self.read_on(actions);
        self.rest(actions);
    }

    /// Whether there is something to send or to read.
    fn has_work(&self) -> bool {
        !self.groups.is_empty() || self.wants_read()
    }

    fn wants_read(&self) -> bool {
        let durable_sequence = self.follower.durable_sequence();
        (self.reading.as_ref()).is_some_and(|reading| reading.position() < durable_sequence)
    }

    fn read_on(&mut self, actions: &mut (impl Wakeups + CallClock)) {
        if self.wants_read()
            && actions.now_ns() >= self.retry_ns
            && let Some(reading) = self.reading.take()
        {
            actions.read_replica(ReplicaReading::Groups(reading), FOLLOWED_READ_BYTES);
        }
    }

    /// Counts what waits for the peer among what its connection holds.
    fn hold(&self, actions: &mut impl ResponseMemory) {
        let bytes: usize = self.groups.iter().map(|group| group.body.len()).sum();
        if bytes > 0 {
            actions.hold_ready(bytes);
        }
    }

    /// Sees to it that there is a heartbeat. A timer that is set stays, though it may expire early.
    fn rest(&mut self, actions: &mut (impl Wakeups + CallClock)) {
        let now_ns = actions.now_ns();
        let due_ns = match self.retry_ns > now_ns {
            true => self.retry_ns,
            false => self.heartbeat_ns,
        };
        if self.timer_ns <= now_ns || due_ns < self.timer_ns {
            self.timer_ns = due_ns;
            actions.wake_at_ns(self.timer_ns);
        }
    }

    fn respond(
        &mut self,
        group: Option<LogGroup<'_>>,
        shared: &Shared,
        actions: &mut (impl Responses + CallClock),
    ) {
        respond((self.follower.durable_sequence(), group), shared, actions);
        self.heartbeat_ns = actions.now_ns() + FOLLOW_HEARTBEAT_MS * 1_000_000;
    }
}

/// Sends where this server stands, with a group if there is one.
fn respond(
    (durable_sequence, group): (u64, Option<LogGroup<'_>>),
    shared: &Shared,
    actions: &mut (impl Responses + CallClock),
) {
    let history_id = api::history_id_bytes(shared.store.history_id());
    let ids = match group {
        None => replica_ids(shared),
        Some(_) => Vec::new(),
    };
    let ids: Vec<&[u8]> = ids.iter().map(|id| &id[..]).collect();
    let response = FollowResponse {
        history_id: &history_id,
        durable_sequence,
        wall_ms: actions.now_ms(),
        group,
        epoch: shared.store.epoch(),
        replica_ids: (&ids[..]).into(),
    };
    actions.message(|out| response.encode(out));
}

/// The status where the log cannot be read on. Where it is, and what is wrong with it, the server's
/// own log says.
#[cold]
fn unread(error: &WatchError) -> Status {
    match error {
        WatchError::Lost { .. } | WatchError::Ahead { .. } | WatchError::Gone => Status::new(
            Code::OutOfRange,
            "what comes next is not in the log of this server any more: a new copy is needed",
        ),
        WatchError::Elsewhere => Status::unimplemented(error.to_string()),
        WatchError::Unreadable(_) => Status::new(
            Code::Unavailable,
            "the log cannot be read on, as the log of this server says",
        ),
    }
}
