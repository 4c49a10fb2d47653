//! The thread that follows the log of the leader while the server runs.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use api::replication::{AcknowledgeRequest, FollowRequest, FollowResponse, RECORD_FORMAT};
use api::rpc::replication::{Acknowledge, Follow};
use client::StreamStep;
use client::typed::Exchange;
use net::StopHandle;
use server::{Replica, Server, TimeSource};
use service::following::Following;
use store::durable::{FollowError, FollowedGroups};
use store::log::FollowedGroup;
use store::{Refusal, ReplicaId};
use wal::disk::RealDisk;

use super::assembler::Assembler;
use super::backoff::Backoff;
use super::contents::Contents;
use super::copying::{ConfirmedEpoch, take_copy};
use super::leader::{Leader, LeaderError, begin, begin_open};
use super::mark::{OldContent, ReplicaMark};
use super::placing;
use super::promotion::EpochKeeper;
use super::renewal::Renewal;
use crate::limits::{FOLLOW_BATCH_BYTES, FOLLOW_LOOK_MS, FOLLOW_SILENCE_MS};
use crate::randomness::random;
use crate::time_source::SystemTimeSource;

/// Starts the thread. `unusable`: why a new copy that was taken could not be used.
pub fn start(
    server: &Server,
    leader: Leader,
    folder: PathBuf,
    (renewal, unusable): (Renewal, Option<String>),
) -> io::Result<()> {
    let following = server.shared().following.clone();
    let (Some(replica), Some(following)) = (server.replica(), following) else {
        return Ok(());
    };
    following.note_sequence(replica.sequence(), SystemTimeSource.monotonic_ns());
    tracing::info!(
        "a replica of {}, with everything up to sequence {}: writes are refused, and volatile \
         databases are not replicated",
        leader.address(),
        replica.sequence()
    );
    if let Err(error) = replica.store().discard_received() {
        tracing::warn!("contents of blobs that were begun cannot be removed: {error}");
    }
    if let Some(why) = &unusable {
        tracing::error!(
            "the new copy of the leader could not be used: {why}; what was there before is served \
             on, and another copy is taken later"
        );
    }
    let keeper_parts = (replica.clone(), Arc::clone(&following));
    let ends = (renewal.clone(), server.stop_handle());
    let mut follower = Follower {
        id: *following.id(),
        epochs: EpochKeeper::new(keeper_parts, folder.clone(), ends)?,
        replica,
        leader,
        following,
        folder,
        renewal,
        stop: server.stop_handle(),
        contents: Contents::default(),
        backoff: Backoff::of_leader(),
        blocked_backoff: Backoff::of_blocked(),
        is_blocked: false,
        renewal_backoff: Backoff::of_blocked(),
        unusable,
        assembler: Assembler::default(),
        groups: Vec::new(),
        group_bytes: 0,
        told: String::new(),
    };
    let thread = thread::Builder::new().name("pelton-follow".into());
    thread.spawn(move || follower.run()).map(drop)
}

struct Follower {
    /// How the leader knows it.
    id: ReplicaId,
    epochs: EpochKeeper,
    replica: Replica,
    leader: Leader,
    following: Arc<Following>,
    folder: PathBuf,
    renewal: Renewal,
    stop: StopHandle,
    contents: Contents,
    backoff: Backoff,
    blocked_backoff: Backoff,
    /// What came last could not be taken, and the leader has more than is here since then.
    is_blocked: bool,
    renewal_backoff: Backoff,
    /// Why a new copy could not be used: another one is not taken at once.
    unusable: Option<String>,
    assembler: Assembler,
    /// Groups that have come and are not in the log here.
    groups: Vec<FollowedGroup>,
    group_bytes: usize,
    /// The last problem that was logged.
    told: String,
}

/// Why the stream has ended.
enum StreamEnd {
    /// It is tried again.
    Problem(LeaderError),
    /// This server has no place for what the leader sends, which is tried again.
    Blocked(String),
    /// Only a new copy helps; what becomes of what is here.
    Renew(String, OldContent),
    /// The server stops.
    Stopping,
}

impl From<LeaderError> for StreamEnd {
    fn from(error: LeaderError) -> StreamEnd {
        match error {
            LeaderError::Local(words) => StreamEnd::Blocked(words),
            error => StreamEnd::Problem(error),
        }
    }
}

/// The call that tells the leader what is held here.
struct Acknowledging<'c> {
    call: Exchange<'c, Acknowledge>,
    /// Something was said then, and nothing has come since.
    unanswered_since: Option<Instant>,
}

impl Acknowledging<'_> {
    /// Says that everything up to a sequence is on the device here.
    fn say(&mut self, sequence: u64) {
        self.call.send(&AcknowledgeRequest {
            sequence,
            ..AcknowledgeRequest::default()
        });
        self.unanswered_since.get_or_insert_with(Instant::now);
    }

    /// Takes what has come.
    ///
    /// # Errors
    /// If the call has ended, or nothing has come for `silence` since something was said.
    fn look(&mut self, silence: Duration) -> Result<(), LeaderError> {
        loop {
            let step = self.call.poll_with(Duration::ZERO, |response| {
                response.map(drop).map_err(LeaderError::from)
            });
            match step? {
                StreamStep::Message(taken) => {
                    taken?;
                    self.unanswered_since = None;
                }
                StreamStep::Nothing => break,
                StreamStep::Ended => {
                    let why = "the leader has ended the call that tells it what is held here";
                    return Err(LeaderError::Nonsense(why.into()));
                }
            }
        }
        let is_silent = |since: Instant| since.elapsed() >= silence;
        match self.unanswered_since.is_some_and(is_silent) {
            true => Err(LeaderError::Silent(silence)),
            false => Ok(()),
        }
    }
}

impl Follower {
    fn run(&mut self) {
        loop {
            let Err(end) = self.follow();
            let wait = match end {
                StreamEnd::Problem(error) => {
                    self.following.note_problem(&error.to_string());
                    self.log(format!(
                        "the leader {} cannot be followed: {error}; it is tried again, and reads \
                         go on",
                        self.leader.address()
                    ));
                    self.backoff.next(random())
                }
                StreamEnd::Blocked(why) => {
                    self.is_blocked = true;
                    self.following.note_blocked(&why);
                    self.log(format!(
                        "this replica serves reads, but has no place for what its leader {} sends: \
                         {why}",
                        self.leader.address()
                    ));
                    self.blocked_backoff.next(random())
                }
                StreamEnd::Renew(why, old) => {
                    let unusable = self.unusable.take();
                    match self.renew(&why, (old, unusable.as_deref())) {
                        Ok(()) => return,
                        Err(error) => self.note_no_copy(&why, &error),
                    }
                    match unusable {
                        Some(_) => Backoff::of_unusable().next(random()),
                        None => self.renewal_backoff.next(random()),
                    }
                }
                StreamEnd::Stopping => return,
            };
            if self.rest(wait).is_err() {
                return;
            }
        }
    }

    /// Waits for so long, unless an operator wants something: that is done, and the wait is over.
    fn rest(&mut self, wait: Duration) -> Result<(), StreamEnd> {
        self.following.orders().wait(wait);
        self.look_for_orders()
    }

    /// Does what an operator wants, if there is something.
    fn look_for_orders(&mut self) -> Result<(), StreamEnd> {
        self.epochs.carry_out_order();
        match self.epochs.is_promoted() {
            true => Err(StreamEnd::Stopping),
            false => Ok(()),
        }
    }

    /// Logs a problem, unless that was the last one that was logged.
    fn log(&mut self, words: String) {
        if self.told != words {
            tracing::warn!("{words}");
            self.told = words;
        }
    }

    /// Takes a new copy while what is here is served, and has the server stop, and the program
    /// begin anew, when it is complete; not at once behind one that was unusable.
    ///
    /// # Errors
    /// Why there is no copy: nothing has changed, and nothing of it is left.
    fn renew(
        &mut self,
        why: &str,
        (old, unusable): (OldContent, Option<&str>),
    ) -> Result<(), LeaderError> {
        let noted = format!("a new copy is needed, and is being taken: {why}");
        self.following.note_problem(&noted);
        if let Some(unusable) = unusable {
            return Err(LeaderError::Local(format!(
                "the last one could not be used: {unusable}"
            )));
        }
        placing::check_movable(&self.folder)?;
        tracing::warn!("this replica takes a new copy of its leader: {why}; reads go on meanwhile");
        let confirmed = ConfirmedEpoch {
            history_id: self.replica.store().history_id(),
            epoch: self.epochs.epoch(),
        };
        let following = Some((&*self.following, confirmed));
        let copy = take_copy(&self.leader, &self.folder, following)?;
        ReplicaMark::Copied(copy, old).write(&RealDisk::open(&self.folder)?)?;
        if self.replica.is_stopping() {
            // Somebody has stopped it meanwhile: the next start goes on with the copy.
            return Ok(());
        }
        tracing::info!("the new copy is here: the server is started anew with it");
        self.renewal.ask();
        self.stop.stop();
        Ok(())
    }

    /// Notes that there is no new copy.
    fn note_no_copy(&mut self, why: &str, error: &LeaderError) {
        self.is_blocked = true;
        let noted = format!("a new copy is needed: {why}; there is none: {error}");
        match error {
            LeaderError::Local(_) => self.following.note_blocked(&noted),
            _ => self.following.note_problem(&noted),
        }
        self.log(format!(
            "{noted}; it is tried again, and what this replica has is served until then"
        ));
    }

    /// Follows the log until that ends.
    fn follow(&mut self) -> Result<std::convert::Infallible, StreamEnd> {
        if self.replica.has_failed_log() {
            return Err(StreamEnd::Blocked(
                FollowError::Refused(Refusal::LogFailed).to_string(),
            ));
        }
        (self.groups, self.group_bytes) = (Vec::new(), 0);
        self.assembler = Assembler::default();
        let mut channel = self.leader.connect()?;
        let history_id = api::history_id_bytes(self.replica.store().history_id());
        let request = FollowRequest {
            history_id: &history_id,
            sequence: self.replica.sequence(),
            format: RECORD_FORMAT,
            epoch: self.epochs.epoch(),
            log_epoch: self.epochs.place().epoch,
            leader: self.epochs.address(),
        };
        let mut call = begin::<Follow>(&mut channel, &request)?;
        // First whether it is to be followed at all.
        self.await_next(&mut call)?;
        // A connection of its own, as a channel has one call.
        let mut said_over = self.leader.connect()?;
        let first = AcknowledgeRequest {
            history_id: &history_id,
            replica_id: &self.id,
            sequence: self.replica.durable_sequence(),
            epoch: self.epochs.epoch(),
            log_epoch: self.epochs.place().epoch,
        };
        let mut acknowledging = Acknowledging {
            call: begin_open::<Acknowledge>(&mut said_over, &first)?,
            unanswered_since: Some(Instant::now()),
        };
        loop {
            // What has come meanwhile shares one sync.
            while self.group_bytes < FOLLOW_BATCH_BYTES
                && self.take_next(&mut call, Duration::ZERO)?
            {}
            self.apply(&mut acknowledging)?;
            acknowledging
                .look(Duration::from_millis(FOLLOW_SILENCE_MS))
                .map_err(|error| self.end_of(error))?;
            self.await_next(&mut call)?;
        }
    }

    /// Waits for the next message, and does what an operator wants meanwhile. A leader whose epoch
    /// is over by then is not followed on.
    fn await_next(&mut self, call: &mut Exchange<'_, Follow>) -> Result<(), StreamEnd> {
        let silence = Duration::from_millis(FOLLOW_SILENCE_MS);
        let heard = Instant::now();
        loop {
            let epoch = self.epochs.epoch();
            self.look_for_orders()?;
            if self.epochs.epoch() > epoch {
                let epoch = self.replica.store().epoch();
                return Err(self.older_epoch(epoch).into());
            }
            if self.take_next(call, Duration::from_millis(FOLLOW_LOOK_MS))? {
                return Ok(());
            }
            if heard.elapsed() >= silence {
                return Err(LeaderError::Silent(silence).into());
            }
        }
    }

    fn older_epoch(&self, epoch: u64) -> LeaderError {
        LeaderError::OlderEpoch {
            epoch,
            confirmed: self.epochs.epoch(),
            address: self.epochs.address().to_owned(),
        }
    }

    /// Takes the next message if there is one within `wait`; returns whether there was.
    fn take_next(
        &mut self,
        call: &mut Exchange<'_, Follow>,
        wait: Duration,
    ) -> Result<bool, StreamEnd> {
        let step = call.poll_with(wait, |response| {
            self.take(&response.map_err(LeaderError::from)?)
        });
        match step.map_err(|error| self.end_of(error.into()))? {
            StreamStep::Message(taken) => taken.map(|()| true),
            StreamStep::Nothing => Ok(false),
            StreamStep::Ended => {
                let why = "the leader has ended the stream of its log";
                Err(LeaderError::Nonsense(why.into()).into())
            }
        }
    }

    /// What the end of the stream means.
    fn end_of(&self, error: LeaderError) -> StreamEnd {
        let old = match &error {
            error if error.is_out_of_range() => OldContent::Removed,
            error if error.is_of_other_history() => OldContent::SetAside,
            _ => return error.into(),
        };
        StreamEnd::Renew(error.to_string(), old)
    }

    fn take(&mut self, response: &FollowResponse<'_>) -> Result<(), StreamEnd> {
        if response.group.is_none() {
            let ids = response.replica_ids.iter().map_while(Result::ok);
            if self.following.note_upstream(ids) {
                return Err(LeaderError::Circle.into());
            }
        }
        // First the history: what was confirmed in one says nothing of epochs of another.
        let history_id = api::history_id(response.history_id);
        if history_id != self.replica.store().history_id() {
            let why = "the leader has another history".to_owned();
            return Err(StreamEnd::Renew(why, OldContent::SetAside));
        }
        self.epochs.note_heard(response.epoch);
        if response.epoch < self.epochs.epoch() {
            return Err(self.older_epoch(response.epoch).into());
        }
        self.backoff.reset();
        // The leader is well. Whether there is place for what it has, the next group shows.
        self.is_blocked &= response.durable_sequence > self.replica.sequence();
        if !self.is_blocked {
            self.note_well();
        }
        let now_ns = SystemTimeSource.monotonic_ns();
        self.following
            .note_leader(response.durable_sequence, now_ns);
        if let Some(part) = &response.group {
            let added = self.assembler.add(part);
            let added = added.map_err(|error| LeaderError::Nonsense(error.to_string()))?;
            if let Some(group) = added {
                self.group_bytes += group.body.len() + wal::HEADER_BYTES;
                self.groups.push(group);
            }
        }
        Ok(())
    }

    /// Notes that nothing is in the way.
    fn note_well(&mut self) {
        if !self.told.is_empty() {
            tracing::info!("following {} again", self.leader.address());
            self.told.clear();
        }
        self.following.note_connected();
    }

    /// Puts the groups that have come into the log and the indexes.
    fn apply(&mut self, acknowledging: &mut Acknowledging<'_>) -> Result<(), StreamEnd> {
        if self.groups.is_empty() {
            return Ok(());
        }
        self.group_bytes = 0;
        let groups = std::mem::take(&mut self.groups);
        let at = (self.replica.store(), &self.leader);
        let orders = self.following.orders();
        let gone = (self.contents).fetch(&groups, at, &|| orders.is_waiting())?;
        match self.replica.follow(FollowedGroups { groups, gone }) {
            Ok(sequence) => {
                if std::mem::take(&mut self.is_blocked) {
                    self.blocked_backoff.reset();
                    self.note_well();
                }
                let now_ns = SystemTimeSource.monotonic_ns();
                self.following.note_sequence(sequence, now_ns);
                acknowledging.say(sequence);
                Ok(())
            }
            Err(FollowError::Stopping) => Err(StreamEnd::Stopping),
            Err(error) if error.needs_copy() => {
                Err(StreamEnd::Renew(error.to_string(), OldContent::Removed))
            }
            Err(error) => Err(StreamEnd::Blocked(error.to_string())),
        }
    }
}
