//! How the old leader hears of a new epoch, and how an old leader becomes a replica of a new one.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use api::replication::{FollowRequest, RECORD_FORMAT};
use api::rpc::replication::Follow;
use net::StopHandle;
use server::Server;
use store::{FIRST_EPOCH, Store};
use wal::disk::{Disk, RealDisk};
use wal::{LogEnding, LogReport};

use super::backoff::Backoff;
use super::leader::{Leader, LeaderError, begin, read_until};
use super::mark::{Promotion, ReplicaMark};
use super::promise::EpochPromise;
use super::renewal::Renewal;
use crate::limits::FOLLOW_SILENCE_MS;
use crate::randomness::random;

/// What a server says of itself that is asked to be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServerEpoch {
    history_id: u64,
    epoch: u64,
}

/// Why an old leader does not become a replica.
#[derive(Debug, thiserror::Error)]
pub enum RejoinError {
    /// Its folder or its log cannot be read.
    #[error("its log cannot be read: {0}")]
    Unreadable(String),
    /// Another process uses it.
    #[error("another process uses it: stop that first")]
    Locked,
    /// The other server cannot be asked.
    #[error("{address} cannot be asked whether a replica was promoted: {why}")]
    NotAsked {
        /// Where it is.
        address: String,
        /// What is in the way.
        why: LeaderError,
    },
    /// The other server has nothing to do with it, or a new history began there.
    #[error("{0} has another history")]
    OtherHistory(String),
    /// Nobody was promoted there.
    #[error("no replica was promoted at {address}: it is in epoch {epoch}, as this folder is")]
    NoHigherEpoch {
        /// Where it is.
        address: String,
        /// Its epoch.
        epoch: u64,
    },
}

/// Has the data folder of a server that was never promoted become that of a replica, if another
/// server leads in its place: one of the same history, in a higher epoch. Then that has everything
/// that was acknowledged here, and what is here beside it is set aside when its copy comes.
///
/// # Errors
/// Why that is not so: nothing has changed.
pub fn rejoin(folder: &Path, disk: &RealDisk, leader: &Leader) -> Result<(), RejoinError> {
    let unreadable = |error: io::Error| RejoinError::Unreadable(error.to_string());
    let lock = disk.lock().map_err(unreadable)?;
    let _lock = lock.ok_or(RejoinError::Locked)?;
    let history_id = history_of(disk)?;
    let address = leader.address();
    let own = ServerEpoch {
        history_id,
        epoch: FIRST_EPOCH,
    };
    let other = ask(leader, own).map_err(|why| RejoinError::NotAsked {
        address: address.clone(),
        why,
    })?;
    if other.history_id != history_id {
        return Err(RejoinError::OtherHistory(address));
    }
    if other.epoch <= own.epoch {
        let epoch = other.epoch;
        return Err(RejoinError::NoHigherEpoch { address, epoch });
    }
    ReplicaMark::Following.write(disk).map_err(unreadable)?;
    tracing::warn!(
        "{} was the data folder of a leader, and is that of a replica from now on, since {address} \
         leads in its place, in epoch {}; what {address} does not have is set aside",
        folder.display(),
        other.epoch
    );
    Ok(())
}

/// Reads the whole log, as a start does.
fn history_of(disk: &RealDisk) -> Result<u64, RejoinError> {
    let report = wal::verify(disk, &mut |_, _| Ok(()));
    let report = report.map_err(|error| RejoinError::Unreadable(error.to_string()))?;
    match report {
        LogReport {
            ending: LogEnding::Damaged(damage),
            ..
        } => Err(RejoinError::Unreadable(damage.to_string())),
        LogReport {
            history_id: Some(history_id),
            ..
        } => Ok(history_id),
        _ => Err(RejoinError::Unreadable("there is nothing in it".into())),
    }
}

/// Asks a server for its history and its epoch: what it says first to who wants to follow it.
fn ask(leader: &Leader, own: ServerEpoch) -> Result<ServerEpoch, LeaderError> {
    let mut found = None;
    let ended = greet(leader, own, "", &mut |said| {
        found = Some(said);
        true
    });
    match (found, ended) {
        (Some(found), _) => Ok(found),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(LeaderError::Nonsense("it says nothing of itself".into())),
    }
}

/// Begins to follow a server, only to hear what it says first, until `is_enough`.
fn greet(
    leader: &Leader,
    own: ServerEpoch,
    address: &str,
    is_enough: &mut dyn FnMut(ServerEpoch) -> bool,
) -> Result<(), LeaderError> {
    let mut channel = leader.connect()?;
    let request = FollowRequest {
        history_id: &api::history_id_bytes(own.history_id),
        sequence: 0,
        format: RECORD_FORMAT,
        epoch: own.epoch,
        log_epoch: own.epoch,
        leader: address,
    };
    let mut call = begin::<Follow>(&mut channel, &request)?;
    let silence = Duration::from_millis(FOLLOW_SILENCE_MS);
    read_until(&mut call, (silence, &|| false), &mut |response| {
        let said = ServerEpoch {
            history_id: api::history_id(response.history_id),
            epoch: response.epoch,
        };
        Ok(is_enough(said).then_some(()))
    })
    .map(drop)
}

/// A server that was promoted, and whom it was set to follow.
struct PromotedServer {
    promotion: Promotion,
    old_leader: Leader,
    /// Where clients reach this server; empty: nobody has said.
    address: String,
    store: Store,
    folder: PathBuf,
    renewal: Renewal,
    stop: StopHandle,
}

/// What has come of telling the old leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OldLeaderOutcome {
    /// It has not heard.
    NotHeard,
    /// It takes no writes in an epoch that is over: it has heard now, or it knew.
    Heard,
    /// This server is itself an old leader: somebody leads there in this higher epoch.
    Superseded(u64),
}

/// Starts a thread that has the old leader hear of the new epoch, whenever that runs: it takes no
/// more writes then. Where a later leader is found in its place, this server becomes a replica of
/// that.
pub fn tell_old_leader(
    old_leader: Leader,
    (server, folder): (&Server, &Path),
    (promotion, renewal): (&Promotion, &Renewal),
) -> io::Result<()> {
    let promise = RealDisk::open(folder).and_then(|disk| EpochPromise::read(&disk));
    let promise = promise.unwrap_or_else(|error| {
        tracing::warn!("the old leader is not told where this server is: {error}");
        None
    });
    let promoted = PromotedServer {
        promotion: *promotion,
        old_leader,
        address: promise.map_or_else(String::new, |promise| promise.address),
        store: server.shared().store.clone(),
        folder: folder.to_owned(),
        renewal: renewal.clone(),
        stop: server.stop_handle(),
    };
    let thread = thread::Builder::new().name("pelton-epoch".into());
    thread.spawn(move || promoted.run()).map(drop)
}

impl PromotedServer {
    fn run(&self) {
        let mut backoff = Backoff::of_blocked();
        let mut is_told = false;
        loop {
            match self.tell() {
                OldLeaderOutcome::NotHeard => {}
                OldLeaderOutcome::Heard if is_told => {}
                OldLeaderOutcome::Heard => {
                    is_told = true;
                    tracing::info!(
                        "{}, where the old leader was, has heard of epoch {}, and takes no writes \
                         in an older one",
                        self.old_leader.address(),
                        self.promotion.epoch
                    );
                }
                OldLeaderOutcome::Superseded(epoch) => match self.follow_from_now_on(epoch) {
                    Ok(()) => return,
                    Err(why) => tracing::error!("{why}"),
                },
            }
            thread::sleep(backoff.next(random()));
        }
    }

    /// Nothing more is taken of who knows of the epoch, which may be this server itself.
    fn tell(&self) -> OldLeaderOutcome {
        let history_id = self.store.history_id();
        let own = ServerEpoch {
            history_id: self.promotion.old_history,
            epoch: self.promotion.epoch,
        };
        let mut said = None;
        let ended = greet(&self.old_leader, own, &self.address, &mut |other| {
            said = Some(other);
            other.epoch >= own.epoch || other.history_id != own.history_id
        });
        match said {
            Some(other) if other.history_id == history_id && other.epoch > self.store.epoch() => {
                OldLeaderOutcome::Superseded(other.epoch)
            }
            Some(other) if other.history_id != own.history_id => OldLeaderOutcome::NotHeard,
            Some(other) if other.epoch >= own.epoch => OldLeaderOutcome::Heard,
            // It ends the call with a status.
            Some(_) if ended.is_err_and(|error| error.is_of_other_history()) => {
                OldLeaderOutcome::Heard
            }
            _ => OldLeaderOutcome::NotHeard,
        }
    }

    /// Takes no more writes, and begins anew as a replica.
    fn follow_from_now_on(&self, epoch: u64) -> Result<(), String> {
        let address = self.old_leader.address();
        self.store.note_epoch(epoch, &address);
        let written =
            RealDisk::open(&self.folder).and_then(|disk| ReplicaMark::Following.write(&disk));
        written.map_err(|error| {
            format!(
                "{address} leads in epoch {epoch}, and this server cannot follow it, since that \
                 cannot be noted in the data folder: {error}"
            )
        })?;
        tracing::warn!(
            "{address} leads in epoch {epoch}, as a replica was promoted: this server, which led \
             before, starts anew as its replica; what {address} does not have is set aside"
        );
        self.renewal.ask();
        self.stop.stop();
        Ok(())
    }
}
