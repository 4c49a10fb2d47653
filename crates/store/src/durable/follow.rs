//! Brings groups of a leader to the committer: from a thread of a server, or in a simulation.

use std::sync::mpsc::sync_channel;

use super::commit_loop::CommitLoop;
use super::committer_access::{BetweenRounds, CommitterAccess};
use super::followed::{FollowError, FollowReport, FollowedGroups};
use super::thread::Durable;
use crate::clock::Clock;

fn follow(
    access: &mut impl CommitterAccess,
    groups: FollowedGroups,
) -> Result<FollowReport, FollowError> {
    let (answer, answered) = sync_channel(1);
    access
        .between_groups(move |committer, _| committer.submit_followed(groups, answer))
        .ok_or(FollowError::Stopping)?;
    access
        .wait_for(&answered)
        .unwrap_or(Err(FollowError::Stopping))
}

impl CommitLoop {
    /// Follows groups of a leader, as [`Durable::follow`] does, on this thread, between two rounds.
    ///
    /// # Errors
    /// Why they are not there; some of the first of them may be.
    pub fn follow(
        &mut self,
        groups: FollowedGroups,
        clock: &mut dyn Clock,
    ) -> Result<FollowReport, FollowError> {
        follow(&mut BetweenRounds::new(self, clock), groups)
    }
}

impl Durable {
    /// Puts groups of a leader into the log and the indexes of this server, which follows it, and
    /// waits until that is on the device and visible. One thread calls it.
    ///
    /// # Errors
    /// Why they are not there; some of the first of them may be.
    pub fn follow(&self, groups: FollowedGroups) -> Result<FollowReport, FollowError> {
        follow(&mut self.access(), groups)
    }
}
