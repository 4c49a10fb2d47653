//! A replica that was promoted: what its server notes when it starts, and how the old leader hears
//! of it.

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use api::replication::{FollowRequest, RECORD_FORMAT};
use api::rpc::replication::Follow;
use server::Server;
use store::{ReplicaSet, ReplicaSetChange};
use wal::disk::RealDisk;

use super::backoff::Backoff;
use super::leader::{Leader, begin, read_until};
use super::mark::{Promotion, ReplicaMark};
use super::promise::EpochPromise;
use super::replica_id::replica_id;
use crate::exit::Failure;
use crate::limits::FOLLOW_SILENCE_MS;
use crate::randomness::random;

/// Notes in the log what a server begins with that takes writes: the epoch of a promotion, and how
/// many replicas must hold a commit. Returns how many had to before.
///
/// # Errors
/// If the log cannot take it: nothing may be written then.
pub fn note_leadership(
    server: &Server,
    folder: &Path,
    (promotion, required): (Option<&Promotion>, usize),
) -> Result<usize, Failure> {
    let store = &server.shared().store;
    if !store.has_log() || store.follows() {
        return Ok(0);
    }
    let set = store.replica_set();
    let changes = changes(&set, (promotion, required), || {
        replica_id(folder).map_err(|error| not_noted(&error.to_string()))
    })?;
    if !changes.is_empty() {
        let noted = server.change_replica_set(&changes);
        noted.map_err(|why| not_noted(&why.to_string()))?;
    }
    let Some(promotion) = promotion else {
        return Ok(set.required());
    };
    if promotion.begins_history {
        let noted = Promotion {
            begins_history: false,
            ..*promotion
        };
        let written =
            RealDisk::open(folder).and_then(|disk| ReplicaMark::Promoted(noted).write(&disk));
        written.map_err(|error| not_noted(&error.to_string()))?;
        return Ok(0);
    }
    Ok(set.required())
}

fn not_noted(why: &str) -> Failure {
    Failure::Failed(format!(
        "the epoch and the number of replicas cannot be noted in the log, without which no writes \
         are taken: {why}"
    ))
}

fn changes(
    set: &ReplicaSet,
    (promotion, required): (Option<&Promotion>, usize),
    own_id: impl FnOnce() -> Result<store::ReplicaId, Failure>,
) -> Result<Vec<ReplicaSetChange>, Failure> {
    let mut changes = Vec::new();
    if let Some(promotion) = promotion
        && promotion.epoch > set.epoch()
    {
        changes.push(ReplicaSetChange::Begin {
            epoch: promotion.epoch,
            end: promotion.end,
        });
        if !promotion.begins_history {
            changes.push(ReplicaSetChange::Remove(own_id()?));
        }
    }
    let is_anew = promotion.is_some_and(|promotion| promotion.begins_history);
    // Without a requirement nobody knows who holds what.
    if is_anew || required == 0 {
        changes.extend(set.members().copied().map(ReplicaSetChange::Remove));
    }
    if required != set.required() {
        changes.push(ReplicaSetChange::Require(required));
    }
    Ok(changes)
}

/// Starts a thread that has the old leader hear of the new epoch, whenever that runs: it takes no
/// more writes then.
pub fn tell_old_leader(old_leader: Leader, folder: &Path, promotion: &Promotion) -> io::Result<()> {
    let promise = EpochPromise::read(&RealDisk::open(folder)?)?;
    let address = promise.map_or_else(String::new, |promise| promise.address);
    let promotion = *promotion;
    let thread = thread::Builder::new().name("pelton-epoch".into());
    let run = move || {
        let mut backoff = Backoff::of_blocked();
        let mut is_told = false;
        loop {
            let heard = tell(&old_leader, &promotion, &address);
            if heard && !is_told {
                tracing::info!(
                    "the old leader {} has heard of epoch {}, and takes no more writes",
                    old_leader.address(),
                    promotion.epoch
                );
            }
            is_told |= heard;
            thread::sleep(backoff.next(random()));
        }
    };
    thread.spawn(run).map(drop)
}

/// Returns whether the old leader has heard of the epoch now. It ends the call with a status.
fn tell(old_leader: &Leader, promotion: &Promotion, address: &str) -> bool {
    let Ok(mut channel) = old_leader.connect() else {
        return false;
    };
    let request = FollowRequest {
        history_id: &api::history_id_bytes(promotion.old_history),
        sequence: 0,
        format: RECORD_FORMAT,
        epoch: promotion.epoch,
        log_epoch: promotion.epoch,
        leader: address,
    };
    let Ok(mut call) = begin::<Follow>(&mut channel, &request) else {
        return false;
    };
    let silence = Duration::from_millis(FOLLOW_SILENCE_MS);
    let told = read_until(&mut call, silence, &mut |_| Ok(None::<()>));
    told.is_err_and(|error| error.is_of_other_history())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_notes_what_is_new_and_nothing_else() {
        let set = ReplicaSet::default();
        let none = || Err(not_noted("it is not asked"));
        let of = |told| changes(&set, told, none).unwrap_or_default();
        assert_eq!(of((None, 0)), []);
        assert_eq!(of((None, 2)), [ReplicaSetChange::Require(2)]);
        let promotion = Promotion {
            epoch: 3,
            end: 70,
            begins_history: false,
            old_history: 1,
        };
        let begin = ReplicaSetChange::Begin { epoch: 3, end: 70 };
        let remove = ReplicaSetChange::Remove([5; 16]);
        let noted = changes(&set, (Some(&promotion), 1), || Ok([5; 16]));
        let expected = vec![begin, remove, ReplicaSetChange::Require(1)];
        assert_eq!(noted.unwrap_or_default(), expected);
        let forced = Promotion {
            begins_history: true,
            ..promotion
        };
        assert_eq!(of((Some(&forced), 0)), [begin]);
    }
}
