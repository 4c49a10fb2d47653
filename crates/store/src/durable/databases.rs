//! Decides commits that create and drop databases.

use super::decider::{Answers, ORIGIN, Work};
use super::pending::{PendingCommit, Rule, What};
use crate::batch::WriteBatch;
use crate::catalogue::{CreateError, DatabaseConfig};
use crate::log::{Record, RecordKind};
use crate::outcome::{Decision, Refusal};
use crate::record::{CommitRecord, Whole};

impl Work {
    /// Decides a commit that creates or drops a database. It completes the group if it takes effect, so that what
    /// comes behind it finds the catalogue changed. Answers whether it was decided.
    pub(super) fn change_catalogue(
        &mut self,
        batch: &WriteBatch,
        commit: &CommitRecord,
        answers: &mut Answers,
    ) -> bool {
        let outcomes = &mut answers.synced;
        let mark = outcomes.mark();
        let mut commit = *commit;
        let what = match self.plan_catalogue(batch, &mut commit) {
            Ok(what) => what,
            Err(refusal) => {
                outcomes.finish(&mark, &commit, 0, Decision::Refused(refusal).into());
                return true;
            }
        };
        let Some(sequence) = self.next_sequence() else {
            return false;
        };
        let name = self.database_name(&commit, &what);
        let config;
        let (kind, value) = match &what {
            What::Create { config: made, .. } => {
                config = made.encode();
                (RecordKind::DatabaseCreated, &config[..])
            }
            _ => (RecordKind::DatabaseDropped, &[][..]),
        };
        self.records.push(&Record {
            value,
            ..Record::of_key(kind, sequence, commit.database, ORIGIN, name.as_bytes())
        });
        self.group.push(PendingCommit {
            database: commit.database,
            sequence,
            rule: Rule::Synced,
            what,
            growth_bytes: 0,
        });
        self.needs_sync = true;
        self.is_complete = true;
        outcomes.finish(&mark, &commit, sequence, Decision::Applied.into());
        true
    }

    /// What a change of the catalogue will do, if it is allowed. Gives the commit the id of a new database.
    fn plan_catalogue(
        &self,
        batch: &WriteBatch,
        commit: &mut CommitRecord,
    ) -> Result<What, Refusal> {
        if commit.whole == Some(Whole::Drop) {
            let checked = self.store.check_drop(commit.database);
            return checked.map(|()| What::Drop).map_err(Refusal::NotDropped);
        }
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let operation = batch.operation(commit.first);
        let config = DatabaseConfig::decode(batch.value(operation))
            .ok_or(Refusal::NotCreated(CreateError::BadConfig))?;
        let name = std::str::from_utf8(batch.key(operation))
            .map_err(|_| Refusal::NotCreated(CreateError::BadName))?;
        let checked = self.store.check_create(name, &config);
        commit.database = checked.map_err(Refusal::NotCreated)?;
        Ok(What::Create {
            name: name.into(),
            config: Box::new(config),
        })
    }

    fn database_name(&self, commit: &CommitRecord, what: &What) -> Box<str> {
        match what {
            What::Create { name, .. } => name.clone(),
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
