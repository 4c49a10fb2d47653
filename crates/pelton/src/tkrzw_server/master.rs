//! The thread that follows a master over Replicate: a tkrzw_server, or another `pelton
//! tkrzw-server`.
//!
//! Updates are carried out in the order in which they come, and named in the log by the server on
//! which they were made, so that a master that follows this server does not get them back. A
//! timestamp is kept only when everything up to it is on the device: what has come behind it is
//! asked for again after a crash, and done again, which changes nothing.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use api::rpc::tkrzw::TkrzwReplicate;
use api::tkrzw::{ReplicateRequest, ReplicateResponse, ReplicatedOperation};
use client::{
    Address, CallError, CallOptions, Channel, ChannelOptions, Code, ConnectError, StreamStep,
};
use protobuf::DecodeError;
use server::{BlockingApplier, Server};
use service::settings::tkrzw::database_of;
use service::tkrzw_state::{MasterOrder, MasterOrders};
use store::log::ORIGIN;
use store::{
    Condition, Durability, Expiry, Mode, Operation, PushError, Refusal, Store, WriteBatch,
};

use super::timestamp_file::TimestampFile;
use crate::follow::{Backoff, is_for_tls};
use crate::limits::{
    FOLLOW_CONNECT_MS, FOLLOW_LOOK_MS, FOLLOW_SILENCE_MS, MASTER_BATCH_BYTES, MASTER_BATCH_UPDATES,
    MASTER_MESSAGE_BYTES_BESIDE, MASTER_SAVE_MS,
};
use crate::randomness::random;

/// Codes of the original: done, and nothing has come.
const SUCCESS: i32 = 0;
const INFEASIBLE: i32 = 9;

/// How a master refuses a follower that has its number.
const SELF_SERVER: &str = "self server ID";

/// How a master is followed.
#[derive(Debug)]
pub(super) struct FollowerPlan {
    /// Whom to follow, as it may be changed.
    pub(super) orders: Arc<MasterOrders>,
    /// How the master knows this server.
    pub(super) server_id: i32,
    /// The names of the databases, by index.
    pub(super) databases: Vec<String>,
    /// After how many seconds without updates the master says so.
    pub(super) wait_s: f64,
    /// The largest value that a database takes.
    pub(super) value_bytes_max: u64,
    /// Where the timestamp is kept; `None`: what is here is gone at the end.
    pub(super) file: Option<TimestampFile>,
    /// Up to where everything is here at the start.
    pub(super) timestamp: i64,
}

/// Why a master is not followed now. It is tried again.
#[derive(Debug, thiserror::Error)]
enum MasterError {
    #[error("{0}")]
    NotConnected(ConnectError),
    #[error("{0}")]
    Call(CallError),
    #[error("{0}: nobody may follow it; --ulog_prefix in its command line lets others do so")]
    NoUpdateLog(CallError),
    #[error(
        "it speaks TLS, and masters are followed without: follow the near end of a TLS tunnel to \
         it, such as stunnel's; a replica of everything takes TLS, and a token: pelton serve \
         --follow"
    )]
    NeedsTls,
    #[error(
        "{0}: Replicate sends no token, so callers without one must be allowed to follow there; \
         --anonymous service:tkrzw of pelton tkrzw-server allows it"
    )]
    NeedsToken(CallError),
    #[error("what it has sent makes no sense: {0}")]
    Decode(DecodeError),
    #[error("{0}")]
    Address(String),
    #[error("it has ended the stream of its updates")]
    Ended,
    #[error("nothing was heard of it for {0} s")]
    Silent(u64),
    #[error("it ends with code {0}: {1}")]
    Code(i32, String),
    #[error(
        "it has the number of this server, {0}: each server that follows or is followed needs a \
         --server_id of its own"
    )]
    SameServer(i32),
    #[error(
        "it has updates of a database with index {0}, and there are {1} here: name as many \
         databases as it has"
    )]
    NoDatabase(i32, usize),
    #[error("the database {0:?} was dropped: `pelton database create` makes it")]
    Dropped(String),
    #[error("an update has no place here: {0}")]
    Push(PushError),
    #[error("an update cannot be carried out: {0}")]
    Refused(Refusal),
    #[error("the log of this server has failed, as it says itself")]
    NotSynced,
    #[error("the timestamp cannot be kept in {0}: {1}")]
    NotKept(String, io::Error),
}

/// Starts the thread.
///
/// # Errors
/// If it cannot be had.
pub(super) fn start(server: &Server, plan: FollowerPlan) -> io::Result<()> {
    let applier = server.applier();
    plan.orders.note_timestamp(plan.timestamp);
    let (logged, volatile) = (applier.store().write_batch(), applier.store().write_batch());
    let mut follower = MasterFollower {
        received: ReceivedUpdates {
            logged,
            volatile,
            bytes: 0,
            master_id: None,
            version: 0,
            timestamp: plan.timestamp,
        },
        timestamp: plan.timestamp,
        kept: plan.timestamp,
        kept_at: Instant::now(),
        backoff: Backoff::of_leader(),
        logged_words: String::new(),
        applier,
        plan,
    };
    let thread = thread::Builder::new().name("pelton-tkrzw".into());
    thread.spawn(move || follower.run()).map(drop)
}

struct MasterFollower {
    plan: FollowerPlan,
    applier: BlockingApplier,
    received: ReceivedUpdates,
    /// Everything of the master up to that is here.
    timestamp: i64,
    /// And that was kept, at that time.
    kept: i64,
    kept_at: Instant,
    backoff: Backoff,
    /// The last problem that was logged, until the master is followed again.
    logged_words: String,
}

/// Updates that have come and are not carried out.
struct ReceivedUpdates {
    /// Of databases with a log.
    logged: WriteBatch,
    /// Of the others.
    volatile: WriteBatch,
    bytes: usize,
    /// Who sends them; `None`: it has not said so yet.
    master_id: Option<i32>,
    /// Of the order that is carried out.
    version: u64,
    /// With them, everything up to that is here.
    timestamp: i64,
}

impl ReceivedUpdates {
    fn is_full(&self) -> bool {
        self.bytes >= MASTER_BATCH_BYTES
            || self.logged.len() + self.volatile.len() >= MASTER_BATCH_UPDATES
    }

    fn is_empty(&self) -> bool {
        self.logged.is_empty() && self.volatile.is_empty()
    }

    /// Takes a response of a master. Returns whether it was another one than the first, in which
    /// the master says who it is.
    fn take(
        &mut self,
        response: &ReplicateResponse<'_>,
        store: &Store,
        plan: &FollowerPlan,
    ) -> Result<bool, MasterError> {
        let status = response.status.unwrap_or_default();
        match status.code {
            SUCCESS => {}
            INFEASIBLE => {
                self.timestamp = self.timestamp.max(response.timestamp);
                return Ok(true);
            }
            code => return Err(MasterError::Code(code, status.message.to_owned())),
        }
        let Some(master_id) = self.master_id else {
            if response.server_id == plan.server_id {
                return Err(MasterError::SameServer(plan.server_id));
            }
            self.master_id = Some(response.server_id);
            plan.orders.note_connected(self.version);
            return Ok(false);
        };
        if response.server_id == plan.server_id {
            return Err(MasterError::SameServer(plan.server_id));
        }
        self.push((response, master_id), store, plan)?;
        self.timestamp = self.timestamp.max(response.timestamp);
        Ok(true)
    }

    fn push(
        &mut self,
        (response, master_id): (&ReplicateResponse<'_>, i32),
        store: &Store,
        plan: &FollowerPlan,
    ) -> Result<(), MasterError> {
        let operation = match ReplicatedOperation::from_number(response.op_type) {
            Some(ReplicatedOperation::Set) => Operation::Put {
                key: response.key,
                value: response.value,
                condition: Condition::None,
                expiry: Expiry::None,
                want_previous: false,
            },
            Some(ReplicatedOperation::Remove) => Operation::Delete {
                key: response.key,
                condition: Condition::None,
                want_previous: false,
            },
            Some(ReplicatedOperation::Clear) => Operation::Clear,
            // As the original does.
            Some(ReplicatedOperation::Noop) | None => return Ok(()),
        };
        let index = response.dbm_index;
        let name = usize::try_from(index).ok();
        let name = name.and_then(|index| plan.databases.get(index));
        let name = name.ok_or(MasterError::NoDatabase(index, plan.databases.len()))?;
        let id = database_of(name, store);
        let found = id.and_then(|id| Some((id, store.config(id)?.durability)));
        let (id, durability) = found.ok_or_else(|| MasterError::Dropped(name.clone()))?;
        let batch = match durability {
            Durability::Volatile => &mut self.volatile,
            _ => &mut self.logged,
        };
        let made_by = match response.server_id {
            1.. => response.server_id,
            _ => master_id,
        };
        batch.set_origin(u32::try_from(made_by).unwrap_or(ORIGIN));
        let mut commit = batch.begin(0, id, Mode::Atomic);
        commit.push(&operation).map_err(MasterError::Push)?;
        commit.submit();
        self.bytes += response.key.len() + response.value.len();
        Ok(())
    }
}

impl MasterFollower {
    fn run(&mut self) {
        let look = Duration::from_millis(FOLLOW_LOOK_MS);
        while !self.applier.is_stopping() {
            let order = self.plan.orders.order();
            if order.version != self.received.version {
                self.begin(&order);
            }
            if order.address.is_empty() {
                self.plan.orders.wait(order.version, look);
                continue;
            }
            if let Err(error) = self.follow(&order) {
                let words = error.to_string();
                self.plan.orders.note_problem(order.version, &words);
                self.log(&format!(
                    "the master {} cannot be followed: {words}; it is tried again",
                    order.address
                ));
                let until = Instant::now() + self.backoff.next(random());
                while Instant::now() < until && !self.is_over(&order) {
                    self.plan.orders.wait(order.version, look);
                }
            }
        }
    }

    /// Takes up an order.
    fn begin(&mut self, order: &MasterOrder) {
        self.received.version = order.version;
        self.timestamp = self.timestamp.saturating_add(order.skew_ms).max(0);
        self.plan.orders.note_timestamp(self.timestamp);
        self.backoff.reset();
        self.logged_words.clear();
        match order.address.as_str() {
            // At the start as well.
            "" if order.version == 1 => {}
            "" => tracing::info!("no master is followed any more"),
            address => tracing::info!(
                "follows the master {address} from timestamp {} on, as server {}",
                self.timestamp,
                self.plan.server_id
            ),
        }
    }

    /// Logs a problem, unless that was the last one that was logged.
    fn log(&mut self, words: &str) {
        if self.logged_words != words {
            tracing::warn!("{words}");
            words.clone_into(&mut self.logged_words);
        }
    }

    /// A master sends what can be carried out: a problem that was logged is over.
    fn note_followed(&mut self, order: &MasterOrder) {
        self.backoff.reset();
        if !self.logged_words.is_empty() {
            tracing::info!("the master {} is followed again", order.address);
            self.logged_words.clear();
        }
    }

    /// Returns why a call of the master has ended, and what to do about it.
    fn of_call(&self, error: CallError) -> MasterError {
        match &error {
            CallError::Status(status) => match (status.code(), status.message()) {
                (Code::FailedPrecondition, _) => MasterError::NoUpdateLog(error),
                (Code::InvalidArgument, SELF_SERVER) => {
                    MasterError::SameServer(self.plan.server_id)
                }
                (Code::Unauthenticated | Code::PermissionDenied, _) => {
                    MasterError::NeedsToken(error)
                }
                _ => MasterError::Call(error),
            },
            error if is_for_tls(error) => MasterError::NeedsTls,
            _ => MasterError::Call(error),
        }
    }

    /// Returns whether an order is not to be carried out any more.
    fn is_over(&self, order: &MasterOrder) -> bool {
        self.applier.is_stopping() || self.plan.orders.has_changed(order.version)
    }

    /// Follows a master until something else is wanted.
    fn follow(&mut self, order: &MasterOrder) -> Result<(), MasterError> {
        let address = order.address.parse::<Address>();
        let address = address.map_err(|error| MasterError::Address(error.to_string()))?;
        let value_bytes = usize::try_from(self.plan.value_bytes_max).unwrap_or(usize::MAX);
        let options = ChannelOptions {
            connect_timeout: Duration::from_millis(FOLLOW_CONNECT_MS),
            max_message_bytes: value_bytes.saturating_add(MASTER_MESSAGE_BYTES_BESIDE),
            ..ChannelOptions::default()
        };
        let mut channel =
            Channel::connect(&address, &options).map_err(MasterError::NotConnected)?;
        self.received.master_id = None;
        self.received.timestamp = self.timestamp;
        let read = self.read(&mut channel, order);
        // What has come before the end is as good as any.
        let carried_out = self.carry_out();
        let kept = self.keep_timestamp();
        read.and(carried_out).and(kept)
    }

    /// Reads updates, and carries them out, until the stream ends or something else is wanted.
    fn read(&mut self, channel: &mut Channel, order: &MasterOrder) -> Result<(), MasterError> {
        let call = channel.call_streaming::<TkrzwReplicate>(&CallOptions::default());
        let mut call = call.map_err(MasterError::Call)?;
        call.send(&ReplicateRequest {
            min_timestamp: self.timestamp,
            server_id: self.plan.server_id,
            wait_time: self.plan.wait_s,
        });
        call.close_send();
        let silence_s = FOLLOW_SILENCE_MS / 1_000 + self.plan.wait_s as u64;
        let store = self.applier.store().clone();
        let (mut heard, mut is_begun) = (Instant::now(), false);
        while !self.is_over(order) {
            let wait_ms = match self.received.is_empty() {
                true => FOLLOW_LOOK_MS,
                false => 0,
            };
            let (received, plan) = (&mut self.received, &self.plan);
            let step = call.poll_with(Duration::from_millis(wait_ms), |response| {
                received.take(&response.map_err(MasterError::Decode)?, &store, plan)
            });
            match step.map_err(|error| self.of_call(error))? {
                StreamStep::Message(taken) => {
                    // The first one, which everybody gets, does not show that the next one fits.
                    is_begun |= taken?;
                    heard = Instant::now();
                    // A master may say the time more often than it is looked for.
                    if !self.received.is_empty() && !self.received.is_full() {
                        continue;
                    }
                }
                StreamStep::Nothing if heard.elapsed().as_secs() >= silence_s => {
                    return Err(MasterError::Silent(silence_s));
                }
                StreamStep::Nothing => {}
                StreamStep::Ended => return Err(MasterError::Ended),
            }
            self.carry_out()?;
            if is_begun {
                self.note_followed(order);
            }
            if self.kept_at.elapsed() >= Duration::from_millis(MASTER_SAVE_MS) {
                self.keep_timestamp()?;
            }
        }
        Ok(())
    }

    /// Carries out what has come.
    fn carry_out(&mut self) -> Result<(), MasterError> {
        let received = &mut self.received;
        let mut result = Ok(());
        for batch in [&mut received.logged, &mut received.volatile] {
            if !batch.is_empty() {
                result = result.and(self.applier.apply(batch));
            }
        }
        received.bytes = 0;
        match result {
            Ok(()) => self.timestamp = self.timestamp.max(received.timestamp),
            // All of it comes again.
            Err(_) => received.timestamp = self.timestamp,
        }
        self.plan.orders.note_timestamp(self.timestamp);
        result.map_err(MasterError::Refused)
    }

    /// Keeps the timestamp, when everything up to it is on the device.
    fn keep_timestamp(&mut self) -> Result<(), MasterError> {
        self.kept_at = Instant::now();
        let Some(file) = self
            .plan
            .file
            .as_ref()
            .filter(|_| self.kept != self.timestamp)
        else {
            return Ok(());
        };
        if !self.applier.sync() {
            return Err(MasterError::NotSynced);
        }
        let kept = file.write(self.timestamp);
        kept.map_err(|error| MasterError::NotKept(file.describe(), error))?;
        self.kept = self.timestamp;
        Ok(())
    }
}
