//! What a server that takes writes notes in its log when it starts.

use std::path::Path;

use server::Server;
use store::{ReplicaSet, ReplicaSetChange};
use wal::disk::RealDisk;

use super::mark::{Promotion, ReplicaMark};
use super::replica_id::replica_id;
use crate::exit::Failure;

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
        changes.extend(set.is_unsettled().then_some(ReplicaSetChange::Settle));
    }
    // A lower number is noted later, when so many as before hold what is there: until then a
    // further start must wait for them too.
    if required > set.required() || (required < set.required() && (is_anew || required == 0)) {
        changes.push(ReplicaSetChange::Require(required));
    }
    Ok(changes)
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
