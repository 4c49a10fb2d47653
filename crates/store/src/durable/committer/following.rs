//! What a committer does in a replica.

use std::sync::mpsc::SyncSender;

use super::DurableCommitter;
use crate::durable::followed::{FollowError, FollowReport, FollowedGroups};
use crate::durable::pending::PublishAfter;
use crate::outcome::Refusal;

impl DurableCommitter {
    /// Takes over what a leader has decided: the groups go into the log and the indexes of this
    /// replica.
    pub(in crate::durable) fn submit_followed(
        &mut self,
        groups: FollowedGroups,
        answer: SyncSender<Result<FollowReport, FollowError>>,
    ) {
        self.followed.submit(groups, answer);
    }

    /// Adds what is to be followed to the group.
    pub(super) fn decide_followed(&mut self) {
        if !self.followed.is_pending() {
            return;
        }
        let (used_bytes, limit_bytes) =
            (self.store.memory_bytes(), self.store.memory_limit_bytes());
        if self.failed {
            self.followed.fail(FollowError::Refused(Refusal::LogFailed));
        } else if used_bytes > limit_bytes {
            self.followed.fail(FollowError::Memory {
                used_bytes,
                limit_bytes,
            });
        }
        let written_sequence = self.log().written().sequence;
        let (groups, trees, store) = (&mut self.groups, &self.trees, &self.store);
        let added = (self.followed).add_groups(written_sequence, &mut |group, gone, effects| {
            store.clock_ms(group.wall_ms);
            groups.follow(group, gone, trees, effects)
        });
        if let Err(error) = added {
            self.followed.fail(error);
            self.groups
                .refuse(Refusal::Replica, Refusal::Replica, &PublishAfter::ALL);
        }
    }

    /// Takes notice that what was followed is visible: contents of blobs that it has replaced go.
    pub(super) fn publish_followed(&mut self) {
        let sequence = self.followed.publish(self.store.blobs());
        self.store.skip_sequences(sequence);
    }
}
