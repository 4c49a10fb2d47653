//! Groups of the log of a leader on their way into the log and the indexes of a replica.
//!
//! They go through the commit loop like the commits of event loops, but are not decided: they say
//! what has happened, as the log of this server will say it to the next start.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::blob::{BlobStore, Description};
use crate::log::FollowedGroup;
use crate::outcome::Refusal;

/// What is to be followed at once: groups of a leader, one right behind the other.
#[derive(Clone, Debug, Default)]
pub struct FollowedGroups {
    /// In their order; empty ones among them are well.
    pub groups: Vec<FollowedGroup>,
    /// Numbers of contents that are named in them, and that the leader does not have any more:
    /// their blobs are taken for removed, which a later group says or replaces.
    pub gone: BTreeSet<u64>,
}

/// What has come of groups that were followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowReport {
    /// Everything up to this sequence is in the log here, on the device and visible.
    pub sequence: u64,
    /// Something was changed about who may do what.
    pub changes_identities: bool,
}

/// Why groups were not followed. What came before them stays, and they may be brought once more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// The log of this server cannot take them now.
    #[error("{0}")]
    Refused(Refusal),
    /// The memory of this server is used up.
    #[error(
        "the entries take {used_bytes} bytes of memory, and at most {limit_bytes} are allowed: \
         give this server as much memory as its leader has (--memory-limit)"
    )]
    Memory {
        /// What they take.
        used_bytes: u64,
        /// What they may take.
        limit_bytes: u64,
    },
    /// They do not begin right behind what is there.
    #[error("what follows sequence {expected} is missing: a group begins with {found}")]
    Gap {
        /// The first sequence that is not there.
        expected: u64,
        /// What the group begins with.
        found: u64,
    },
    /// They cannot be followed, and never will: a new copy is needed.
    #[error("the group up to sequence {sequence} cannot be followed: {what}")]
    NotFollowed {
        /// The last sequence of the group.
        sequence: u64,
        /// What is in its way.
        what: &'static str,
    },
    /// The server stops.
    #[error("the server stops")]
    Stopping,
}

impl FollowError {
    /// Whether only a new copy helps.
    pub fn needs_copy(&self) -> bool {
        matches!(
            self,
            FollowError::NotFollowed { .. } | FollowError::Gap { .. }
        )
    }
}

/// What the groups of a submission have done beside their entries.
#[derive(Debug, Default)]
pub(super) struct FollowedEffects {
    pub(super) changes_identities: bool,
    /// Descriptions of blobs that were added.
    pub(super) described: Vec<Box<[u8]>>,
    /// Those that were replaced or removed.
    pub(super) removed: Vec<Box<[u8]>>,
}

impl FollowedEffects {
    /// Takes notice of contents that have come and gone, now that this is visible.
    fn settle(&mut self, blobs: &Arc<BlobStore>) {
        for value in self.described.drain(..) {
            if let Some(new) = Description::decode(&value) {
                blobs.note_described(&new);
            }
        }
        for value in self.removed.drain(..) {
            if let Some(old) = Description::decode(&value) {
                blobs.remove_described(&old);
            }
        }
    }
}

/// Adds a group to that of the committer, with the numbers of contents that are gone; returns
/// whether another one may be added.
type AddGroup<'a> = &'a mut dyn FnMut(
    &FollowedGroup,
    &BTreeSet<u64>,
    &mut FollowedEffects,
) -> Result<bool, FollowError>;

/// What a committer has to follow.
#[derive(Debug, Default)]
pub(super) struct Followed {
    submitted: Option<SubmittedGroups>,
}

#[derive(Debug)]
struct SubmittedGroups {
    waiting: VecDeque<FollowedGroup>,
    gone: BTreeSet<u64>,
    /// Up to where the group that is under way goes; 0: none is.
    under_way: u64,
    effects: FollowedEffects,
    answer: SyncSender<Result<FollowReport, FollowError>>,
}

impl Followed {
    /// Whether something waits.
    pub(super) fn is_pending(&self) -> bool {
        self.submitted.is_some()
    }

    pub(super) fn submit(
        &mut self,
        groups: FollowedGroups,
        answer: SyncSender<Result<FollowReport, FollowError>>,
    ) {
        debug_assert!(!self.is_pending(), "one thread follows");
        self.submitted = Some(SubmittedGroups {
            waiting: groups.groups.into(),
            gone: groups.gone,
            under_way: 0,
            effects: FollowedEffects::default(),
            answer,
        });
    }

    /// Has groups added by `add` as long as more may be, until none are left.
    pub(super) fn add_groups(
        &mut self,
        written_sequence: u64,
        add: AddGroup<'_>,
    ) -> Result<(), FollowError> {
        let Some(submitted) = &mut self.submitted else {
            return Ok(());
        };
        let mut last = written_sequence;
        while let Some(group) = submitted.waiting.front() {
            let expected = last + 1;
            if group.first_sequence != expected {
                let found = group.first_sequence;
                return Err(FollowError::Gap { expected, found });
            }
            let has_room = add(group, &submitted.gone, &mut submitted.effects)?;
            last = group.last_sequence;
            submitted.waiting.pop_front();
            if !has_room {
                break;
            }
        }
        submitted.under_way = last;
        Ok(())
    }

    /// What is under way is visible and on the device. Answers when that was all.
    pub(super) fn publish(&mut self, blobs: Option<&Arc<BlobStore>>) -> u64 {
        let Some(submitted) = &mut self.submitted else {
            return 0;
        };
        if let Some(blobs) = blobs {
            submitted.effects.settle(blobs);
        }
        let sequence = std::mem::take(&mut submitted.under_way);
        if submitted.waiting.is_empty()
            && let Some(submitted) = self.submitted.take()
        {
            let _ = submitted.answer.send(Ok(FollowReport {
                sequence,
                changes_identities: submitted.effects.changes_identities,
            }));
        }
        sequence
    }

    /// What was submitted is given up.
    pub(super) fn fail(&mut self, error: FollowError) {
        if let Some(submitted) = self.submitted.take() {
            // Whoever asked waits for it, or is gone.
            let _ = submitted.answer.send(Err(error));
        }
    }
}
