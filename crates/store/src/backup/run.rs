//! Backups of a store that is in use.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use wal::LogEnd;
use wal::disk::Disk;

use super::error::BackupError;
use super::making::{BackupReport, Base, Making, Progress, Step};
use crate::clock::Clock;
use crate::durable::{CommitLoop, CommitterAccess, Durable, DurableCommitter, Holds};
use crate::snapshot::limits;

/// Whoever wants a backup: told how far it has come after each step, and may give it up.
pub type BackupWatch<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// From what a backup begins that begins now, between two groups.
fn base(
    holds: &Arc<Holds>,
    committer: &DurableCommitter,
    clock: &mut dyn Clock,
) -> Result<Base, BackupError> {
    if committer.is_converting() {
        return Err(BackupError::Converting);
    }
    let header = committer.base_header(clock).ok_or(BackupError::LogFailed)?;
    let hold = holds.hold(header.replay_sequence);
    Ok(Base {
        header,
        hold: hold.ok_or(BackupError::TooMany)?,
        source: committer.folder().clone(),
        trees: committer.tree_indexes(),
    })
}

/// Syncs the log and says where it ends, between two groups.
fn sync(committer: &mut DurableCommitter) -> Result<LogEnd, BackupError> {
    committer.sync();
    committer.log().synced_end().ok_or(BackupError::LogFailed)
}

impl CommitLoop {
    /// From what a [`backup`](crate::backup::Making) begins that begins now. Call it between two
    /// rounds.
    pub fn backup_base(&mut self, clock: &mut dyn Clock) -> Result<Base, BackupError> {
        let holds = self.holds().clone();
        base(&holds, self.committer(), clock)
    }

    /// Syncs the log and says where it ends, for a backup that asks for it. Call it between two
    /// rounds.
    pub fn backup_sync(&mut self) -> Result<LogEnd, BackupError> {
        sync(self.committer())
    }
}

impl Durable {
    /// Copies everything into an empty folder, as it is at one commit, while everything goes on.
    /// `server` is the name and version that stand in the copy. Takes as long as it takes, on the
    /// thread that calls; if it fails, what it made is removed.
    pub fn backup(
        &self,
        target: Arc<dyn Disk>,
        server: &str,
        clock: &mut dyn Clock,
        watch: BackupWatch<'_>,
    ) -> Result<BackupReport, BackupError> {
        let mut access = self.access();
        let holds = access.holds().clone();
        let base = access
            .between_groups(move |committer, clock| base(&holds, committer, clock))
            .ok_or(BackupError::Stopping)??;
        let mut making = Making::new(self.store(), base, target, server)?;
        let made = make(&mut making, &mut access, clock, watch);
        if made.is_err() {
            making.discard();
        }
        made
    }
}

fn make(
    making: &mut Making,
    access: &mut impl CommitterAccess,
    clock: &mut dyn Clock,
    watch: BackupWatch<'_>,
) -> Result<BackupReport, BackupError> {
    loop {
        let begin_ns = clock.now_ns();
        match making.step(clock)? {
            Step::More => {}
            Step::SyncLog => {
                let end = access.between_groups(|committer, _| sync(committer));
                making.log_synced(end.ok_or(BackupError::Stopping)??);
            }
            Step::Complete(report) => return Ok(report),
        }
        if watch(making.progress()).is_break() {
            return Err(BackupError::Cancelled);
        }
        rest(begin_ns, clock);
    }
}

/// Rests in proportion to the time that was spent since `begin_ns`, as a snapshot does.
fn rest(begin_ns: u64, clock: &mut dyn Clock) {
    let took_ns = clock.now_ns().saturating_sub(begin_ns);
    let rest_ns = (took_ns * limits::REST_SHARE / 100).min(limits::REST_NS_MAX);
    thread::sleep(Duration::from_nanos(rest_ns));
}
