//! Backups of a store that is in use: what the thread that makes one does, and a simulation without
//! threads.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use wal::LogEnd;
use wal::disk::Disk;

use super::error::BackupError;
use super::making::{
    BackupBase, BackupMaking, BackupProgress, BackupReport, CopyPurpose, MakingStep,
};
use crate::clock::Clock;
use crate::durable::{CommitLoop, CommitterAccess, Durable, DurableCommitter, Holds, LogHold};
use crate::snapshot::limits;
use crate::store::Store;

/// Whoever wants a backup: told how far it has come after each step, and may give it up.
pub type BackupWatch<'a> = &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>;

/// A backup in the making. It is over with an error or a report.
#[derive(Debug)]
pub struct BackupJob {
    making: BackupMaking,
}

/// What a step of a backup has come to.
#[derive(Debug)]
#[must_use]
pub enum BackupStep {
    /// Something was copied, and there is more to do.
    Worked(BackupJob),
    /// The log was synced: the backup shows what is visible now. There is more to do.
    Synced(BackupJob),
    /// It is complete and on the device.
    Complete(BackupReport),
}

impl BackupJob {
    /// Begins a backup in an empty folder, from what the committer has given between two groups.
    /// `server` is the name and version that stand in the copy.
    fn begin(
        store: &Store,
        base: BackupBase,
        target: Arc<dyn Disk>,
        server: (&str, CopyPurpose),
    ) -> Result<BackupJob, BackupError> {
        let making = BackupMaking::new(store, base, target, server)?;
        Ok(BackupJob { making })
    }

    /// Puts fewer entries into a page of the snapshot: tests want many pages.
    pub fn set_slice_rows(&mut self, rows: u32) {
        self.making.set_slice_rows(rows);
    }

    /// Begins a new file of log after fewer bytes than
    /// [`LOG_FILE_BYTES`](super::limits::LOG_FILE_BYTES): tests want many files.
    pub fn set_log_file_bytes(&mut self, bytes: u64) {
        self.making.set_log_file_bytes(bytes);
    }

    /// How far it has come.
    pub fn progress(&self) -> BackupProgress {
        self.making.progress()
    }

    /// Does a little of it. `sync` syncs the log, and returns where it ends. After an error nothing
    /// of it is left.
    fn step(
        mut self,
        clock: &mut dyn Clock,
        sync: impl FnOnce() -> Result<LogEnd, BackupError>,
    ) -> Result<BackupStep, BackupError> {
        let synced = match self.making.step(clock) {
            Ok(MakingStep::More) => return Ok(BackupStep::Worked(self)),
            Ok(MakingStep::Complete(report)) => return Ok(BackupStep::Complete(report)),
            Ok(MakingStep::SyncLog) => sync(),
            Err(error) => Err(error),
        };
        match synced {
            Ok(end) => {
                self.making.log_synced(end);
                Ok(BackupStep::Synced(self))
            }
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    /// Gives it up, and removes what was written.
    pub fn discard(self) {
        self.making.discard();
    }
}

/// From what a backup begins that begins now, between two groups.
fn base(
    holds: &Arc<Holds>,
    committer: &DurableCommitter,
    clock: &mut dyn Clock,
) -> Result<BackupBase, BackupError> {
    if committer.is_converting() {
        return Err(BackupError::Converting);
    }
    let header = committer.base_header(clock).ok_or(BackupError::LogFailed)?;
    let hold = holds.hold(header.replay_sequence);
    Ok(BackupBase {
        header,
        hold: hold.ok_or(BackupError::TooMany)?,
        source: committer.folder().clone(),
        trees: committer.tree_indexes(),
    })
}

/// Syncs the log and returns where it ends, between two groups; while a group waits for followers,
/// where it ends before that.
fn sync(committer: &mut DurableCommitter) -> Result<LogEnd, BackupError> {
    committer.sync();
    let end = committer.log().synced_end();
    let end = end.map(|end| committer.visible_end().unwrap_or(end));
    end.ok_or(BackupError::LogFailed)
}

impl CommitLoop {
    /// Begins a backup in an empty folder, as [`Durable::backup`] does. Call it between two rounds.
    pub fn begin_backup(
        &mut self,
        target: Arc<dyn Disk>,
        server: &str,
        clock: &mut dyn Clock,
    ) -> Result<BackupJob, BackupError> {
        let holds = self.holds().clone();
        let committer = self.committer();
        let base = base(&holds, committer, clock)?;
        BackupJob::begin(
            committer.store(),
            base,
            target,
            (server, CopyPurpose::Backup),
        )
    }

    /// Does a little of a backup. After an error nothing of it is left. Call it between two rounds.
    pub fn step_backup(
        &mut self,
        job: BackupJob,
        clock: &mut dyn Clock,
    ) -> Result<BackupStep, BackupError> {
        job.step(clock, || sync(self.committer()))
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
        let made = self.make(target, (server, CopyPurpose::Backup), clock, watch);
        made.map(|(report, _)| report)
    }

    /// Does the same for a server that follows this one. Returns what keeps the log behind it, too.
    pub(super) fn make_copy(
        &self,
        target: Arc<dyn Disk>,
        server: &str,
        clock: &mut dyn Clock,
        watch: BackupWatch<'_>,
    ) -> Result<(BackupReport, Arc<LogHold>), BackupError> {
        self.make(target, (server, CopyPurpose::Replica), clock, watch)
    }

    fn make(
        &self,
        target: Arc<dyn Disk>,
        server: (&str, CopyPurpose),
        clock: &mut dyn Clock,
        watch: BackupWatch<'_>,
    ) -> Result<(BackupReport, Arc<LogHold>), BackupError> {
        let mut access = self.access();
        let holds = access.holds().clone();
        let base = access
            .while_awaiting(move |committer, clock| base(&holds, committer, clock))
            .ok_or(BackupError::Stopping)??;
        let mut job = BackupJob::begin(self.store(), base, target, server)?;
        let hold = job.making.hold();
        loop {
            let begin_ns = clock.now_ns();
            let step = job.step(clock, || {
                let end = access.while_awaiting(|committer, _| sync(committer));
                end.ok_or(BackupError::Stopping)?
            });
            job = match step? {
                BackupStep::Worked(job) | BackupStep::Synced(job) => job,
                BackupStep::Complete(report) => return Ok((report, hold)),
            };
            if watch(job.progress()).is_break() {
                job.discard();
                return Err(BackupError::Cancelled);
            }
            rest(begin_ns, clock);
        }
    }
}

/// Rests in proportion to the time that was spent since `begin_ns`, as a snapshot does.
fn rest(begin_ns: u64, clock: &mut dyn Clock) {
    let took_ns = clock.now_ns().saturating_sub(begin_ns);
    let rest_ns = (took_ns * limits::REST_SHARE / 100).min(limits::REST_NS_MAX);
    thread::sleep(Duration::from_nanos(rest_ns));
}
