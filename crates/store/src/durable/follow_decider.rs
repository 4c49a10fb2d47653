//! Takes what a leader has decided into a group of this log.

use std::collections::BTreeSet;

use super::followed::{FollowError, FollowedEffects};
use super::group_decider::GroupDecider;
use super::pending::{PendingChange, PendingCommit, PendingView, PublishAfter};
use super::trees::TreeWriters;
use super::visible::{Visible, VisibleIndex};
use crate::blob::Description;
use crate::database::{DatabaseConfig, Kind};
use crate::database_id::DatabaseId;
use crate::decide::PendingState as _;
use crate::log::{FollowedGroup, Record, RecordKind};
use crate::memory::bytes_of;

/// Whether records of a commit change keys.
fn is_of_keys(record: &Record<'_>) -> bool {
    matches!(
        record.kind,
        RecordKind::Set | RecordKind::Delete | RecordKind::Expire
    )
}

impl GroupDecider {
    /// Adds a group of a leader. Returns whether another one may be added: not behind a change of
    /// the catalogue, since what comes after it must find it made.
    pub(super) fn follow(
        &mut self,
        group: &FollowedGroup,
        gone: &BTreeSet<u64>,
        trees: &TreeWriters,
        effects: &mut FollowedEffects,
    ) -> Result<bool, FollowError> {
        let not_followed = |what| FollowError::NotFollowed {
            sequence: group.last_sequence,
            what,
        };
        let records = group.read();
        let mut records = records.map_err(|_| not_followed("it has records of no sense"))?;
        for record in &mut records {
            take_for_removed(record, gone);
        }
        let is_alike = |one: &Record<'_>, next: &Record<'_>| {
            one.database == next.database && is_of_keys(one) && is_of_keys(next)
        };
        let mut is_complete = false;
        for run in records.chunk_by(is_alike) {
            let [first, ..] = run else { continue };
            let followed = match first.kind {
                RecordKind::Mark => {
                    self.records().push(&first.raw());
                    Ok(())
                }
                RecordKind::DatabaseCreated => {
                    is_complete = true;
                    self.follow_create(first)
                }
                RecordKind::DatabaseDropped => {
                    is_complete = true;
                    self.follow_drop(first)
                }
                RecordKind::DatabaseConverted => {
                    Err("a database has become one of another kind, which is not in the log")
                }
                RecordKind::Clear => {
                    is_complete |= trees.get(first.database).is_some();
                    self.follow_clear(first, trees)
                }
                RecordKind::Set | RecordKind::Delete | RecordKind::Expire => {
                    self.follow_run(run, trees, effects)
                }
            };
            followed.map_err(not_followed)?;
        }
        if self.records().last_sequence() < group.last_sequence {
            let mark = Record::mark(group.last_sequence);
            self.records().push(&mark.raw());
        }
        self.needs_sync_now();
        Ok(!is_complete && !self.records().is_full())
    }

    fn follow_create(&mut self, record: &Record<'_>) -> Result<(), &'static str> {
        let config = DatabaseConfig::decode_logged(record.value);
        let config = config.ok_or("it creates a database with a configuration of no sense")?;
        let name = std::str::from_utf8(record.key);
        let name = name.map_err(|_| "it creates a database with a name of no sense")?;
        let store = self.store();
        if config.kind == Kind::Disk && store.trees().is_none() {
            return Err("it creates a database on disk, for which there is no place");
        }
        let least = store.check_create(name, &config);
        if least.map_err(|_| "it creates a database that cannot be made here")? > record.database {
            return Err("it creates a database with the number of another one");
        }
        let what = PendingChange::Create {
            name: name.into(),
            config: Box::new(config),
        };
        self.push_followed(record, what, 0);
        Ok(())
    }

    fn follow_drop(&mut self, record: &Record<'_>) -> Result<(), &'static str> {
        let checked = self.store().check_drop(record.database);
        checked.map_err(|_| "it drops a database that is not there")?;
        self.push_followed(record, PendingChange::Drop, 0);
        Ok(())
    }

    fn follow_clear(
        &mut self,
        record: &Record<'_>,
        trees: &TreeWriters,
    ) -> Result<(), &'static str> {
        let id = record.database;
        let pending = self.followed_database(id)?;
        let used_bytes = {
            let state = pending.database.state.read();
            let visible = Visible::new(&state, trees.get(id));
            (visible.used_bytes()).wrapping_add_signed(pending.growth_bytes)
        };
        let growth_bytes = -(used_bytes as i64);
        pending.growth_bytes += growth_bytes;
        pending.clear();
        self.push_followed(record, PendingChange::Clear, growth_bytes);
        Ok(())
    }

    /// Adds the record of something that concerns a database as a whole.
    fn push_followed(&mut self, record: &Record<'_>, what: PendingChange, growth_bytes: i64) {
        self.records().push(&record.raw());
        self.group_mut().push(PendingCommit {
            database: record.database,
            sequence: record.sequence,
            rule: PublishAfter::Synced,
            what,
            growth_bytes,
        });
    }

    /// Adds commits that change keys of one database.
    fn follow_run(
        &mut self,
        records: &[Record<'_>],
        trees: &TreeWriters,
        effects: &mut FollowedEffects,
    ) -> Result<(), &'static str> {
        let Some(first) = records.first() else {
            return Ok(());
        };
        let id = first.database;
        effects.changes_identities |= id == DatabaseId::IDENTITIES;
        let hasher = self.store().hasher().clone();
        let (group, pending) = self.group_and_database(id)?;
        let database = pending.database.clone();
        let state = database.state.read();
        let visible = Visible::new(&state, trees.get(id));
        for commit in records.chunk_by(|one, next| one.sequence == next.sequence) {
            let mut places = 0..0;
            let mut growth_bytes = 0;
            for record in commit {
                let hash = hasher.hash(record.key);
                if let VisibleIndex::Memory(index) = visible.index() {
                    let view = PendingView {
                        overlay: &pending.overlay,
                        is_cleared: pending.is_cleared,
                        group,
                        index,
                    };
                    let older = view.find(record.key, hash);
                    growth_bytes -= older.as_ref().map_or(0, |entry| bytes_of(entry) as i64);
                    if id == DatabaseId::BLOBS
                        && let Some(older) = older
                    {
                        effects.removed.push(older.value.bytes().into());
                    }
                }
                if let Some(entry) = record.entry() {
                    growth_bytes += bytes_of(&entry) as i64;
                    if id == DatabaseId::BLOBS {
                        effects.described.push(record.value.into());
                    }
                }
                let place = group.add_record(record, hash, &mut pending.overlay);
                if places.is_empty() {
                    places = place..place;
                }
                places.end = place + 1;
            }
            pending.growth_bytes += growth_bytes;
            if let Some(record) = commit.first() {
                group.push(PendingCommit {
                    database: id,
                    sequence: record.sequence,
                    rule: PublishAfter::Synced,
                    what: PendingChange::Keys(places),
                    growth_bytes,
                });
            }
        }
        Ok(())
    }
}

/// Makes the removal of a blob of its description, if its content is gone.
fn take_for_removed(record: &mut Record<'_>, gone: &BTreeSet<u64>) {
    if gone.is_empty() || record.database != DatabaseId::BLOBS || record.kind != RecordKind::Set {
        return;
    }
    let is_gone = |description: Description<'_>| gone.contains(&description.number);
    if Description::decode(record.value).is_some_and(is_gone) {
        record.kind = RecordKind::Delete;
        record.value = &[];
        record.expires_ms = 0;
    }
}
