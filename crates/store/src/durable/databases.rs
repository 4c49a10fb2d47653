//! Decides commits that create and drop databases.

use super::group_decider::{Answers, GroupWork};
use super::pending::{PendingChange, PendingCommit, PublishAfter};
use super::trees::TreeWriters;
use crate::batch::WriteBatch;
use crate::blob::BlobUse;
use crate::database::{DropError, Kind};
use crate::database_id::DatabaseId;
use crate::log::{ORIGIN, Record, RecordKind};
use crate::outcome::{Decision, Refusal};
use crate::record::{CommitRecord, Whole};
use crate::tree::TreeWriter;

impl GroupWork {
    /// Decides a commit that creates or drops a database. It completes the group if it takes
    /// effect, so that what comes behind it finds the catalogue changed. `growth_entries` is by how
    /// much the group has changed the number of entries in the database. Returns whether it was
    /// decided.
    pub(super) fn change_catalogue(
        &mut self,
        batch: &WriteBatch,
        commit: &CommitRecord,
        growth_entries: i64,
        trees: &TreeWriters,
        answers: &mut Answers,
    ) -> bool {
        let outcomes = &mut answers.synced;
        let mark = outcomes.mark();
        let mut commit = *commit;
        let what = match self.plan_catalogue(batch, &mut commit, growth_entries, trees) {
            Ok(what) => what,
            Err(refusal) => {
                outcomes.refuse(&commit, refusal);
                return true;
            }
        };
        let Some(sequence) = self.next_sequence() else {
            return false;
        };
        if let PendingChange::Create { config, .. } = &what
            && config.kind == Kind::Disk
            && trees.cannot_be_made()
        {
            outcomes.refuse(&commit, Refusal::NoFolder);
            return true;
        }
        let name = self.database_name(&commit, &what);
        let config;
        let (kind, value) = match &what {
            PendingChange::Create { config: made, .. } => {
                config = made.encode();
                (RecordKind::DatabaseCreated, &config[..])
            }
            _ => (RecordKind::DatabaseDropped, &[][..]),
        };
        let record = Record {
            value,
            ..Record::of_key(kind, sequence, commit.database, ORIGIN, name.as_bytes())
        };
        self.group.records_mut().push(&record.raw());
        self.group.push(PendingCommit {
            database: commit.database,
            sequence,
            rule: PublishAfter::Synced,
            what,
            growth_bytes: 0,
        });
        self.needs_sync = true;
        self.is_complete = true;
        outcomes.finish(&mark, &commit, sequence, Decision::Applied.into());
        true
    }

    /// What a change of the catalogue will do, if it is allowed. Gives the commit the id of a new
    /// database.
    fn plan_catalogue(
        &self,
        batch: &WriteBatch,
        commit: &mut CommitRecord,
        growth_entries: i64,
        trees: &TreeWriters,
    ) -> Result<PendingChange, Refusal> {
        if let Some(whole) = commit.whole.filter(|whole| whole.is_drop()) {
            if self.is_frozen(commit.database) {
                return Err(Refusal::Converting);
            }
            if let Some(tree) = trees.get(commit.database) {
                return self.plan_tree_drop(batch, commit.database, whole, tree);
            }
            let checked = self.check_drop(commit.database, whole, growth_entries);
            return checked
                .map(|()| PendingChange::Drop)
                .map_err(Refusal::NotDropped);
        }
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let (name, config) = batch
            .database_to_create(commit)
            .map_err(Refusal::NotCreated)?;
        let checked = self.store.check_create(name, &config);
        commit.database = checked.map_err(Refusal::NotCreated)?;
        Ok(PendingChange::Create {
            name: name.into(),
            config: Box::new(config),
        })
    }

    /// The same for a database on disk. Whether it is empty was read ahead; what has changed since
    /// is taken for an entry.
    fn plan_tree_drop(
        &self,
        batch: &WriteBatch,
        id: DatabaseId,
        whole: Whole,
        tree: &TreeWriter,
    ) -> Result<PendingChange, Refusal> {
        self.store.check_drop(id).map_err(Refusal::NotDropped)?;
        if whole == Whole::DropEmpty {
            let index = tree.index();
            let last_change = self.group.last_change(id).max(tree.last_change());
            let is_empty = batch.before().is_empty(index, last_change);
            let is_empty = is_empty.ok_or(Refusal::NotReadAhead)?;
            let blobs = self.store.blob_use(id);
            if !is_empty || blobs != BlobUse::default() {
                // How many there are is not known; of none, it is.
                let entries = match is_empty {
                    true => 0,
                    false => index.statistics().entries.max(1),
                };
                return Err(Refusal::NotDropped(DropError::not_empty(entries, blobs)));
            }
        }
        Ok(PendingChange::Drop)
    }

    fn check_drop(
        &self,
        id: DatabaseId,
        whole: Whole,
        growth_entries: i64,
    ) -> Result<(), DropError> {
        self.store.check_drop(id)?;
        let database = self.store.find(id).ok_or(DropError::Unknown)?;
        let entries = (database.state.read().index.entries()).saturating_add_signed(growth_entries);
        let blobs = self.store.blob_use(id);
        if whole == Whole::DropEmpty && (entries > 0 || blobs != BlobUse::default()) {
            return Err(DropError::not_empty(entries, blobs));
        }
        Ok(())
    }

    fn database_name(&self, commit: &CommitRecord, what: &PendingChange) -> Box<str> {
        match what {
            PendingChange::Create { name, .. } => name.clone(),
            _ => {
                let database = self.store.find(commit.database);
                database
                    .expect("it was just checked, and nobody else drops")
                    .name
                    .clone()
            }
        }
    }
}
