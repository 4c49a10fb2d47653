//! Who may take the place of the leader: the epochs of a history, and the replicas that count.
//!
//! It is in a hidden index, and so in the log, in snapshots and in the copies of replicas: each
//! replica knows it as its log has it. Design: docs/internals/replicas.md.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::{EPOCHS_KEPT_MAX, REPLICA_SET_MAX};
use crate::push_error::PushError;

/// Names a replica for as long as its folder lives, whatever its connections.
pub type ReplicaId = [u8; REPLICA_ID_BYTES];

/// Bytes of a [`ReplicaId`].
pub const REPLICA_ID_BYTES: usize = 16;

/// The epoch of a history in which nobody was promoted.
pub const FIRST_EPOCH: u64 = 1;

/// What keys of the hidden index begin with.
const EPOCH_KEY: u8 = b'e';
const MEMBER_KEY: u8 = b'm';
const REQUIRED_KEY: u8 = b'k';
const UNSETTLED_KEY: u8 = b'u';

/// The epochs of a history, the replicas that count, and how many of them must hold a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaSet {
    /// Each epoch behind the first one, with the last sequence of the log before it.
    epochs: BTreeMap<u64, u64>,
    /// So many must hold a commit, as the log has it; 0: none.
    required: usize,
    members: BTreeSet<ReplicaId>,
    /// The last change of the members, as long as the log does not say that it was acknowledged.
    unsettled: Option<UnsettledChange>,
}

/// A change of the members of which a start does not know whether it was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnsettledChange {
    Added(ReplicaId),
    Removed(ReplicaId),
}

impl UnsettledChange {
    fn value(self) -> [u8; 1 + REPLICA_ID_BYTES] {
        let (kind, id) = match self {
            UnsettledChange::Added(id) => (b'+', id),
            UnsettledChange::Removed(id) => (b'-', id),
        };
        let mut value = [kind; 1 + REPLICA_ID_BYTES];
        value[1..].copy_from_slice(&id);
        value
    }

    fn of_value(value: &[u8]) -> Option<UnsettledChange> {
        let (kind, id) = value.split_first()?;
        let id = ReplicaId::try_from(id).ok()?;
        match kind {
            b'+' => Some(UnsettledChange::Added(id)),
            b'-' => Some(UnsettledChange::Removed(id)),
            _ => None,
        }
    }
}

/// Where a log ends: of two, the higher one has all that was acknowledged in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpochPlace {
    /// The epoch of the last group.
    pub epoch: u64,
    /// The last sequence.
    pub sequence: u64,
}

/// Why a log does not go on where another one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It knows nothing of the epoch.
    #[error(
        "sequence {sequence} was written in epoch {epoch}, of which this server has nothing: a new \
         copy is needed"
    )]
    UnknownEpoch {
        /// The epoch.
        epoch: u64,
        /// The last sequence.
        sequence: u64,
    },
    /// Another leader took over before.
    #[error(
        "sequence {sequence} was written in epoch {epoch}, which ended at sequence {end} when a \
         replica was promoted: a new copy is needed"
    )]
    Abandoned {
        /// The epoch.
        epoch: u64,
        /// The last sequence.
        sequence: u64,
        /// The last sequence of that epoch that counts.
        end: u64,
    },
}

/// Why a replica cannot take the place of its leader without the loss of what was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuorumError {
    /// No replica had to hold what the leader answered.
    #[error(
        "the leader answers writes before a replica has them (it has no --replicas-acked), so \
         nobody knows what is missing here"
    )]
    NoneRequired,
    /// The leader does not count this one.
    #[error(
        "this replica is none of those that the leader counts: it follows another replica, or has \
         never held a write that the leader waited for"
    )]
    NotMember,
    /// Too few have confirmed.
    #[error(
        "{confirmed} of the {members} replicas that the leader counts have confirmed the epoch, \
         and {needed} must, so that it can gather --replicas-acked {required} no more: name the \
         others with --confirm"
    )]
    TooFew {
        /// So many have, the one that is promoted among them.
        confirmed: usize,
        /// So many must.
        needed: usize,
        /// So many count.
        members: usize,
        /// So many must hold a commit.
        required: usize,
    },
}

impl ReplicaSet {
    /// Returns the epoch at the end of the log.
    pub fn epoch(&self) -> u64 {
        self.epochs
            .last_key_value()
            .map_or(FIRST_EPOCH, |(&epoch, _)| epoch)
    }

    /// Returns how many replicas must hold a commit, as the log has it; 0: none.
    pub fn required(&self) -> usize {
        self.required
    }

    /// Returns the replicas that count.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &ReplicaId> {
        self.members.iter()
    }

    pub(crate) fn has_member(&self, replica: &ReplicaId) -> bool {
        self.members.contains(replica)
    }

    /// Returns whether the log does not say that the last change of the members was acknowledged.
    pub fn is_unsettled(&self) -> bool {
        self.unsettled.is_some()
    }

    /// Returns the set before a change that is not known to be acknowledged: whoever lacks that
    /// change asks these.
    pub(crate) fn before_unsettled(&self) -> Option<ReplicaSet> {
        let mut before = self.clone();
        match before.unsettled.take()? {
            UnsettledChange::Added(id) => before.members.remove(&id),
            UnsettledChange::Removed(id) => before.members.insert(id),
        };
        Some(before)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.members.len() < REPLICA_SET_MAX
    }

    /// Checks that everything in a log that ends at `place` is in this one too, if it is long
    /// enough.
    ///
    /// # Errors
    /// If another leader took over before.
    pub fn check_place(&self, place: EpochPlace) -> Result<(), PlaceError> {
        let EpochPlace { epoch, sequence } = place;
        // Behind so many epochs it is not known any more where the first one ended.
        let is_first = epoch == FIRST_EPOCH && self.epochs.len() < EPOCHS_KEPT_MAX;
        if !is_first && !self.epochs.contains_key(&epoch) {
            return Err(PlaceError::UnknownEpoch { epoch, sequence });
        }
        let next = self.epochs.range(epoch.saturating_add(1)..).next();
        match next {
            Some((_, &end)) if sequence > end => Err(PlaceError::Abandoned {
                epoch,
                sequence,
                end,
            }),
            _ => Ok(()),
        }
    }

    /// Checks that the leader can acknowledge nothing more, and that all it has acknowledged is at
    /// one of `confirmed`, which acknowledge nothing more to it: `candidate` is one of them.
    ///
    /// # Errors
    /// Why that is not so.
    pub fn check_quorum(
        &self,
        candidate: &ReplicaId,
        confirmed: &BTreeSet<ReplicaId>,
    ) -> Result<(), QuorumError> {
        if self.required == 0 {
            return Err(QuorumError::NoneRequired);
        }
        if !self.has_member(candidate) {
            return Err(QuorumError::NotMember);
        }
        let members = self.members.len();
        let count = self.members.intersection(confirmed).count();
        // Fewer than it needs are left to it, and no two candidates have it for one epoch.
        let needed = (members + 1)
            .saturating_sub(self.required)
            .max(members / 2 + 1);
        match count >= needed {
            true => Ok(()),
            false => Err(QuorumError::TooFew {
                confirmed: count,
                needed,
                members,
                required: self.required,
            }),
        }
    }

    /// Adds an entry of the hidden index.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        let number = |bytes: &[u8], order: fn([u8; 8]) -> u64| bytes.try_into().map(order).ok();
        match key.split_first() {
            Some((&EPOCH_KEY, epoch)) => {
                let epoch = number(epoch, u64::from_be_bytes);
                let end = number(value, u64::from_le_bytes);
                self.epochs.extend(epoch.zip(end));
            }
            Some((&MEMBER_KEY, id)) => self.members.extend(ReplicaId::try_from(id)),
            Some((&REQUIRED_KEY, [])) => {
                let required = number(value, u64::from_le_bytes).unwrap_or(0);
                self.required = usize::try_from(required).unwrap_or(usize::MAX);
            }
            Some((&UNSETTLED_KEY, [])) => self.unsettled = UnsettledChange::of_value(value),
            _ => {}
        }
    }
}

/// A change of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaSetChange {
    /// A replica counts from now on. To be followed by `Settle`.
    Add(ReplicaId),
    /// A replica does not count any more, as an operator wants it. To be followed by `Settle`.
    Forget(ReplicaId),
    /// A replica does not count any more: the leader itself, or all of them.
    Remove(ReplicaId),
    /// The last `Add` or `Forget` was acknowledged, or matters no more.
    Settle,
    /// So many must hold a commit from now on.
    Require(usize),
    /// A new epoch begins, behind a sequence.
    Begin {
        /// The epoch.
        epoch: u64,
        /// The last sequence of the log before it.
        end: u64,
    },
}

impl ReplicaSetChange {
    /// Hands the entries of the hidden index that it sets or removes to `push`.
    pub(crate) fn push(self, set: &ReplicaSet, push: &mut PushChange<'_>) -> Result<(), PushError> {
        match self {
            ReplicaSetChange::Add(id) => {
                push(&member_key(&id), Some(&[]))?;
                let change = UnsettledChange::Added(id);
                push(&[UNSETTLED_KEY], Some(&change.value()))
            }
            ReplicaSetChange::Forget(id) => {
                push(&member_key(&id), None)?;
                let change = UnsettledChange::Removed(id);
                push(&[UNSETTLED_KEY], Some(&change.value()))
            }
            ReplicaSetChange::Remove(id) => push(&member_key(&id), None),
            ReplicaSetChange::Settle => push(&[UNSETTLED_KEY], None),
            ReplicaSetChange::Require(replicas) => {
                push(&[REQUIRED_KEY], Some(&(replicas as u64).to_le_bytes()))
            }
            ReplicaSetChange::Begin { epoch, end } => {
                let surplus = (set.epochs.len() + 1).saturating_sub(EPOCHS_KEPT_MAX);
                for &old in set.epochs.keys().take(surplus) {
                    push(&epoch_key(old), None)?;
                }
                push(&epoch_key(epoch), Some(&end.to_le_bytes()))
            }
        }
    }
}

/// Sets a key, or removes it.
pub(crate) type PushChange<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<(), PushError> + 'a;

fn epoch_key(epoch: u64) -> Vec<u8> {
    let mut key = vec![EPOCH_KEY];
    key.extend(epoch.to_be_bytes());
    key
}

fn member_key(id: &ReplicaId) -> [u8; 1 + REPLICA_ID_BYTES] {
    let mut key = [MEMBER_KEY; 1 + REPLICA_ID_BYTES];
    key[1..].copy_from_slice(id);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [ReplicaId; 5] = [[1; 16], [2; 16], [3; 16], [4; 16], [5; 16]];

    fn set(required: usize, members: usize) -> ReplicaSet {
        let mut set = ReplicaSet::default();
        set.add(&[REQUIRED_KEY], &(required as u64).to_le_bytes());
        for id in &IDS[..members] {
            set.add(&member_key(id), &[]);
        }
        set
    }

    /// Whoever confirms acknowledges nothing more. So a quorum must have somebody of each so many
    /// that can have held a commit, and somebody of each other quorum.
    #[test]
    fn a_quorum_has_one_of_all_that_can_acknowledge_and_one_of_each_other_quorum() {
        for members in 1..=IDS.len() {
            for required in 1..=members {
                let set = set(required, members);
                let is_quorum = |bits: u32| {
                    let ids = (0..members).filter(|at| bits & (1 << at) != 0);
                    let ids: BTreeSet<_> = ids.map(|at| IDS[at]).collect();
                    let first = ids.first().copied().unwrap_or(IDS[0]);
                    set.check_quorum(&first, &ids).is_ok()
                };
                let all = (1u32 << members) - 1;
                assert!(is_quorum(all));
                for bits in 0..=all {
                    let left = members - bits.count_ones() as usize;
                    if is_quorum(bits) {
                        assert!(left < required, "{members} {required} {bits:b}");
                        assert!((0..=all).all(|other| other & bits != 0 || !is_quorum(other)));
                    } else {
                        let is_minority = 2 * bits.count_ones() as usize <= members;
                        assert!(left >= required || is_minority);
                    }
                }
            }
        }
    }

    /// What each change leaves in the index, twice.
    #[test]
    fn a_change_of_the_members_is_unsettled_until_the_log_says_more() {
        let mut index: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut change = |change: ReplicaSetChange| {
            let pushed = change.push(&ReplicaSet::default(), &mut |key, value| {
                match value {
                    Some(value) => index.insert(key.to_vec(), value.to_vec()),
                    None => index.remove(key),
                };
                Ok(())
            });
            assert_eq!(pushed, Ok(()));
            let mut set = ReplicaSet::default();
            index.iter().for_each(|(key, value)| set.add(key, value));
            set
        };
        let ids = |set: &ReplicaSet| set.members().copied().collect::<Vec<_>>();
        for _ in 0..2 {
            let set = change(ReplicaSetChange::Add(IDS[0]));
            let before = set.before_unsettled().expect("nobody has acknowledged it");
            assert_eq!((ids(&set), ids(&before)), (vec![IDS[0]], vec![]));
            assert!(set.is_unsettled() && !before.is_unsettled());
            let set = change(ReplicaSetChange::Settle);
            assert_eq!((ids(&set), set.before_unsettled()), (vec![IDS[0]], None));
            let set = change(ReplicaSetChange::Forget(IDS[0]));
            let before = set.before_unsettled().expect("nobody has acknowledged it");
            assert_eq!((ids(&set), ids(&before)), (vec![], vec![IDS[0]]));
            change(ReplicaSetChange::Settle);
            change(ReplicaSetChange::Add(IDS[1]));
            let set = change(ReplicaSetChange::Settle);
            assert!(!set.is_unsettled());
            let set = change(ReplicaSetChange::Remove(IDS[1]));
            assert_eq!((ids(&set), set.before_unsettled()), (vec![], None));
        }
    }

    #[test]
    fn who_is_not_counted_is_of_no_use() {
        let two = set(1, 2);
        let strangers = BTreeSet::from([IDS[0], IDS[3], IDS[4]]);
        let expected = QuorumError::TooFew {
            confirmed: 1,
            needed: 2,
            members: 2,
            required: 1,
        };
        assert_eq!(two.check_quorum(&IDS[0], &strangers), Err(expected));
        let refused = two.check_quorum(&IDS[3], &strangers);
        assert_eq!(refused, Err(QuorumError::NotMember));
        let refused = set(0, 2).check_quorum(&IDS[0], &strangers);
        assert_eq!(refused, Err(QuorumError::NoneRequired));
    }

    #[test]
    fn a_place_is_good_up_to_where_its_epoch_was_left() {
        let mut set = ReplicaSet::default();
        assert_eq!(set.epoch(), FIRST_EPOCH);
        let place = |epoch, sequence| EpochPlace { epoch, sequence };
        assert_eq!(set.check_place(place(1, u64::MAX)), Ok(()));
        set.add(&epoch_key(2), &10u64.to_le_bytes());
        set.add(&epoch_key(4), &20u64.to_le_bytes());
        assert_eq!(set.epoch(), 4);
        for (epoch, end) in [(1, 10), (2, 20), (4, u64::MAX)] {
            assert_eq!(set.check_place(place(epoch, end)), Ok(()));
            if end < u64::MAX {
                let sequence = end + 1;
                let expected = PlaceError::Abandoned {
                    epoch,
                    sequence,
                    end,
                };
                assert_eq!(set.check_place(place(epoch, sequence)), Err(expected));
            }
        }
        for epoch in [0, 3, 5, u64::MAX] {
            let expected = PlaceError::UnknownEpoch { epoch, sequence: 1 };
            assert_eq!(set.check_place(place(epoch, 1)), Err(expected));
        }
        assert!(place(2, 1) > place(1, 9) && place(1, 9) > place(1, 8));
    }

    #[test]
    fn where_an_epoch_ended_that_is_kept_no_more_is_not_taken_from_a_later_one() {
        let mut set = ReplicaSet::default();
        for epoch in 2..=EPOCHS_KEPT_MAX as u64 + 1 {
            set.add(&epoch_key(epoch), &(100 * epoch).to_le_bytes());
        }
        let epoch = set.epoch() + 1;
        let mut removed = Vec::new();
        let begin = ReplicaSetChange::Begin { epoch, end: 1 };
        let pushed = begin.push(&set, &mut |key, value| {
            removed.extend(value.is_none().then(|| key.to_vec()));
            Ok(())
        });
        assert_eq!((pushed, removed), (Ok(()), vec![epoch_key(2)]));
        set.epochs.remove(&2);
        set.add(&epoch_key(epoch), &1u64.to_le_bytes());
        for epoch in [FIRST_EPOCH, 2] {
            let place = EpochPlace { epoch, sequence: 1 };
            let expected = PlaceError::UnknownEpoch { epoch, sequence: 1 };
            assert_eq!(set.check_place(place), Err(expected));
        }
    }
}
