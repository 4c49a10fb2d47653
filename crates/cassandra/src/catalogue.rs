//! The databases of a keyspace: one partition, read serially and changed by conditional batches.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::{Mutex, RwLock};
use scylla::serialize::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;
use store::remote::{
    RemoteCatalogue, RemoteChange, RemoteChangeError, RemoteDatabase, RemoteError, WhatChanges,
};
use store::{CreateError, DatabaseConfig, DatabaseId, DropError, Range};
use tokio::sync;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::caller_error::{error_of_read, error_of_write};
use crate::commit::is_applied;
use crate::engine::{Engine, Repeatable};
use crate::failure::EngineFailure;
use crate::limits;
use crate::partition::{BucketPartition, DatabasePlace};
use crate::read::{count, count_bucket, remote_error};
use crate::rows::{rows_of, unreadable};
use crate::schema::SCHEMA_VERSION;
use crate::scope::{ReadScope, RowsError};
use crate::statements::StatementName;

/// What the catalogue holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogueRows {
    pub(crate) databases: Vec<CatalogueRow>,
    pub(crate) next_id: i32,
    pub(crate) schema_version: i32,
}

/// A database of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogueRow {
    pub(crate) name: String,
    pub(crate) id: i32,
    /// The version of the write that made it: unique, so that a gateway recognises its own.
    pub(crate) made: i64,
    pub(crate) config: Vec<u8>,
}

impl CatalogueRow {
    fn database(&self) -> Option<RemoteDatabase> {
        Some(RemoteDatabase {
            id: DatabaseId::of_number(u32::try_from(self.id).ok()?)?,
            name: self.name.clone(),
            config: DatabaseConfig::decode(&self.config)?,
            entries: None,
            disk_bytes: None,
        })
    }
}

/// The catalogue as it was last read.
#[derive(Debug)]
pub(crate) struct CatalogueCopy {
    shown: RwLock<Arc<RemoteCatalogue>>,
    /// Held while it is read: what an earlier read found must not replace what a later one has.
    reading: sync::Mutex<()>,
    /// When it was last read.
    read_at: Mutex<Instant>,
    /// Rows that this version cannot read, as they were last named.
    left_out: Mutex<Vec<String>>,
}

impl Default for CatalogueCopy {
    fn default() -> CatalogueCopy {
        CatalogueCopy {
            shown: RwLock::default(),
            reading: sync::Mutex::default(),
            read_at: Mutex::new(Instant::now()),
            left_out: Mutex::default(),
        }
    }
}

impl CatalogueCopy {
    pub(crate) fn get(&self) -> Arc<RemoteCatalogue> {
        Arc::clone(&self.shown.read())
    }

    /// Returns whether there is such a database, as far as this gateway knows.
    pub(crate) fn has(&self, id: DatabaseId) -> bool {
        let catalogue = self.get();
        let place = catalogue
            .databases
            .binary_search_by_key(&id, |database| database.id);
        place.is_ok()
    }

    /// Whether it is so old that databases which are in it may have been dropped long ago.
    pub(crate) fn is_stale(&self) -> bool {
        self.read_at.lock().elapsed() > limits::CATALOGUE_STALE
    }

    /// Takes what a read returns, one read after the other.
    async fn read_by<E>(
        &self,
        read: impl Future<Output = Result<Option<CatalogueRows>, E>>,
    ) -> Result<Option<CatalogueRows>, E> {
        let _turn = self.reading.lock().await;
        let begin = Instant::now();
        let rows = read.await?;
        if let Some(rows) = &rows {
            self.set(rows);
            *self.read_at.lock() = begin;
        }
        Ok(rows)
    }

    /// Returns the rows that this version cannot read, if they are not those that were named last.
    pub(crate) fn take_left_out(&self, rows: &CatalogueRows) -> Vec<String> {
        let is_left_out = |row: &&CatalogueRow| row.database().is_none();
        let names = rows.databases.iter().filter(is_left_out);
        let names: Vec<String> = names.map(|row| row.name.clone()).collect();
        let mut named = self.left_out.lock();
        match *named == names {
            true => Vec::new(),
            false => {
                named.clone_from(&names);
                names
            }
        }
    }

    /// Takes what this gateway has just changed, until it is read.
    fn change(&self, change: impl FnOnce(&mut Vec<RemoteDatabase>)) {
        let mut shown = self.shown.write();
        let mut databases = shown.databases.clone();
        change(&mut databases);
        databases.sort_by_key(|database| database.id);
        *shown = Arc::new(RemoteCatalogue {
            generation: shown.generation.wrapping_add(1),
            databases,
        });
    }

    /// Shows a database that was made, also if the catalogue could not be read since.
    fn insert(&self, made: &CatalogueRow) {
        if let Some(database) = made.database()
            && !self.has(database.id)
        {
            self.change(|databases| databases.push(database));
        }
    }

    /// Shows a database no more that was dropped, also if the catalogue could not be read since.
    fn remove(&self, id: DatabaseId) {
        if self.has(id) {
            self.change(|databases| databases.retain(|database| database.id != id));
        }
    }

    /// Takes what was read. A row that this version cannot read is left out.
    pub(crate) fn set(&self, rows: &CatalogueRows) {
        let mut databases: Vec<RemoteDatabase> = rows
            .databases
            .iter()
            .filter_map(CatalogueRow::database)
            .collect();
        databases.sort_by_key(|database| database.id);
        let mut shown = self.shown.write();
        if shown.generation == 0 || shown.databases != databases {
            let generation = shown.generation.wrapping_add(1);
            *shown = Arc::new(RemoteCatalogue {
                generation,
                databases,
            });
        }
    }
}

/// Reads the catalogue. `None`: the keyspace was never made ready.
pub(crate) async fn read_catalogue(
    engine: &Engine,
    deadline: Instant,
) -> Result<Option<CatalogueRows>, EngineFailure> {
    type Row = (
        Option<String>,
        Option<i32>,
        Option<i64>,
        Option<Vec<u8>>,
        Option<i32>,
        Option<i32>,
    );
    let how = (None, Repeatable::Yes);
    let result = engine
        .execute(StatementName::ReadCatalogue, &(), how, deadline)
        .await?;
    let result = rows_of(result)?;
    let mut rows: Option<CatalogueRows> = None;
    for row in result.rows::<Row>().map_err(unreadable)? {
        let (name, id, made, config, next_id, schema_version) = row.map_err(unreadable)?;
        let rows = rows.get_or_insert(CatalogueRows {
            databases: Vec::new(),
            next_id: next_id.unwrap_or(0),
            schema_version: schema_version.unwrap_or(0),
        });
        if let (Some(name), Some(id)) = (name, id) {
            rows.databases.push(CatalogueRow {
                name,
                id,
                made: made.unwrap_or(0),
                config: config.unwrap_or_default(),
            });
        }
    }
    Ok(rows)
}

/// Reads the catalogue again and again.
pub(crate) async fn keep_catalogue(engine: Arc<Engine>, copy: Arc<CatalogueCopy>) {
    loop {
        sleep(limits::CATALOGUE_INTERVAL).await;
        let deadline = Instant::now() + limits::START_TIMEOUT;
        // A failure was written to the log, and health sees it too.
        if let Ok(Some(rows)) = copy.read_by(read_catalogue(&engine, deadline)).await {
            name_left_out(&engine, &copy, &rows);
        }
    }
}

/// Writes to the log which databases this version cannot read, when they are others than before.
pub(crate) fn name_left_out(engine: &Engine, copy: &CatalogueCopy, rows: &CatalogueRows) {
    let names = copy.take_left_out(rows);
    if !names.is_empty() {
        engine.log().note(&format!(
            "databases in the storage engine that were made by a later version are left out: {}",
            names.join(", ")
        ));
    }
}

/// Carries out a change of the catalogue and ends it. Rows of a database that was dropped are
/// removed then.
pub(crate) async fn carry_out_change(
    engine: &Engine,
    copy: &CatalogueCopy,
    change: RemoteChange,
    deadline: Instant,
) {
    match change.what().clone() {
        WhatChanges::Create { name, config } => {
            change.complete(create(engine, copy, (&name, config), deadline).await);
        }
        WhatChanges::Drop { id, only_empty } => {
            let dropped = drop_database(engine, copy, (id, only_empty), deadline).await;
            change.complete(dropped.map(|_| id));
            if let Ok(Some(place)) = dropped {
                remove_rows(engine, place).await;
            }
        }
    }
}

/// What is read before a change.
async fn current(
    engine: &Engine,
    copy: &CatalogueCopy,
    deadline: Instant,
) -> Result<CatalogueRows, RemoteError> {
    let read = copy.read_by(read_catalogue(engine, deadline));
    let rows = timeout_at(deadline, read)
        .await
        .map_err(|_| RemoteError::TimedOut)?;
    let rows = rows.map_err(|failure| error_of_read(&failure))?;
    let rows = rows.ok_or(RemoteError::Refused)?;
    if rows.schema_version != SCHEMA_VERSION {
        return Err(RemoteError::Refused);
    }
    Ok(rows)
}

async fn create(
    engine: &Engine,
    copy: &CatalogueCopy,
    (name, config): (&str, DatabaseConfig),
    deadline: Instant,
) -> Result<DatabaseId, RemoteChangeError> {
    config.check_remote()?;
    for round in 0..limits::CHANGE_ROUNDS {
        let rows = current(engine, copy, deadline).await?;
        if rows.databases.iter().any(|row| row.name == name) {
            return Err(CreateError::Exists.into());
        }
        if rows.databases.len() >= limits::DATABASES {
            return Err(CreateError::TooMany.into());
        }
        let row = CatalogueRow {
            name: name.to_owned(),
            id: rows.next_id,
            made: engine.version(std::iter::empty()).cast_signed(),
            config: config.encode().to_vec(),
        };
        let added = add(engine, &row, &config, deadline).await;
        if matches!(&added, Err(failure) if !failure.may_have_happened) {
            return Err(added
                .err()
                .map_or(RemoteError::Refused, |one| error_of_write(&one))
                .into());
        }
        // Also after a batch that was not answered: what is there says what became of it.
        let after = current(engine, copy, deadline).await;
        let is_there = after.is_ok_and(|rows| rows.databases.contains(&row));
        match added {
            Ok(true) => {
                copy.insert(&row);
                return id_of(&row);
            }
            Err(_) if is_there => return id_of(&row),
            Err(_) => return Err(RemoteError::OutcomeUnknown.into()),
            Ok(false) => sleep(engine.pause(round)).await,
        }
    }
    Err(RemoteError::Contended.into())
}

fn id_of(row: &CatalogueRow) -> Result<DatabaseId, RemoteChangeError> {
    let number = u32::try_from(row.id).ok().and_then(DatabaseId::of_number);
    number.ok_or(RemoteError::Damaged.into())
}

/// Returns the shape of a database, for people.
pub(crate) fn shape_text(config: &DatabaseConfig) -> String {
    config.kind.remote().map_or_else(String::new, |shape| {
        format!(
            "{}, {} order, {} buckets",
            shape.promise, shape.order, shape.buckets
        )
    })
}

/// Adds a database and takes its number. Returns whether both were free.
pub(crate) async fn add(
    engine: &Engine,
    row: &CatalogueRow,
    config: &DatabaseConfig,
    deadline: Instant,
) -> Result<bool, EngineFailure> {
    let shape = shape_text(config);
    let names = [StatementName::TakeDatabaseId, StatementName::AddDatabase];
    let rows = [
        CatalogueValues::TakeId(row.id),
        CatalogueValues::Add(row, &shape),
    ];
    let how = (None, Repeatable::No);
    let result = engine.execute_batch((&names, &rows), how, deadline).await?;
    is_applied(result)
}

/// Drops a database. Returns where its rows are, unless this version does not know.
async fn drop_database(
    engine: &Engine,
    copy: &CatalogueCopy,
    (id, only_empty): (DatabaseId, bool),
    deadline: Instant,
) -> Result<Option<DatabasePlace>, RemoteChangeError> {
    if id == DatabaseId::DEFAULT {
        return Err(DropError::IsDefault.into());
    }
    let rows = current(engine, copy, deadline).await?;
    let number = id.number().cast_signed();
    let row = rows.databases.into_iter().find(|row| row.id == number);
    let row = row.ok_or(DropError::Unknown)?;
    let shape = row
        .database()
        .and_then(|database| database.config.kind.remote());
    let place = shape.map(|shape| DatabasePlace {
        database: id,
        shape,
    });
    if only_empty && let Some(place) = place {
        let scope = ReadScope {
            engine,
            deadline,
            caller: None,
        };
        refuse_if_not_empty(scope, place).await?;
    }
    let how = (None, Repeatable::No);
    let values = (row.name.as_str(), number);
    let removed = engine
        .execute(StatementName::RemoveDatabase, &values, how, deadline)
        .await;
    let removed = removed.and_then(is_applied);
    if let Err(failure) = &removed
        && !failure.may_have_happened
    {
        return Err(error_of_write(failure).into());
    }
    // For this gateway at once; others see it within some seconds. And after a removal that was not
    // answered it says what became of it: the number is never used again.
    let after = current(engine, copy, deadline).await;
    let is_gone = after.is_ok_and(|rows| rows.databases.iter().all(|row| row.id != number));
    match removed {
        Ok(false) => return Err(DropError::Unknown.into()),
        Ok(true) => copy.remove(id),
        Err(_) if is_gone => {}
        Err(_) => return Err(RemoteError::OutcomeUnknown.into()),
    }
    Ok(place)
}

/// Fails if a database has an entry. What another gateway puts there afterwards goes with it.
async fn refuse_if_not_empty(
    scope: ReadScope<'_>,
    place: DatabasePlace,
) -> Result<(), RemoteChangeError> {
    let looks = (0..place.shape.buckets).map(|bucket| has_entry(scope, place.partition(bucket)));
    let mut looks = stream::iter(looks).buffer_unordered(limits::BUCKETS_AT_ONCE);
    let mut is_empty = true;
    while is_empty
        && let Some(has_entry) = looks
            .try_next()
            .await
            .map_err(|error| remote_error(scope.engine, &error))?
    {
        is_empty = !has_entry;
    }
    drop(looks);
    if is_empty {
        return Ok(());
    }
    let error = DropError::NotEmpty {
        entries: about_entries(scope, place).await,
        blobs: 0,
        blob_bytes: 0,
    };
    Err(error.into())
}

/// Whether a bucket has an entry that a reader sees. Rows that have expired stay for a while, so
/// that it is not enough to look at the first ones.
async fn has_entry(scope: ReadScope<'_>, partition: BucketPartition) -> Result<bool, RowsError> {
    let count = count_bucket(scope, partition, (Range::ALL, 1)).await?;
    Ok(count > 0)
}

/// Returns about how many entries a database has that is not empty, for people: an estimate where
/// that is quicker, and 1 if even that takes long.
async fn about_entries(scope: ReadScope<'_>, place: DatabasePlace) -> u64 {
    let is_estimate = place.shape.buckets > limits::SAMPLED_BUCKETS;
    let counting = count(scope, place, (Range::ALL, is_estimate));
    match timeout(limits::NOT_EMPTY_TIMEOUT, counting).await {
        Ok(Ok(entries)) => entries.max(1),
        _ => 1,
    }
}

/// Removes the rows of a database that was dropped, bucket by bucket, and tries those again that
/// fail. Its number is never used again, so what is left behind takes room and is seen by nobody.
async fn remove_rows(engine: &Engine, place: DatabasePlace) {
    let mut left: Vec<u16> = (0..place.shape.buckets).collect();
    for round in 0..limits::REMOVAL_ROUNDS {
        if round > 0 {
            sleep(limits::REMOVAL_PAUSE).await;
        }
        let mut failed = Vec::new();
        for bucket in left {
            if !remove_bucket(engine, place.partition(bucket)).await {
                failed.push(bucket);
            }
        }
        left = failed;
        if left.is_empty() {
            return;
        }
    }
    engine.log().note(&format!(
        "rows of a database that was dropped were not all removed: number {}, {} of its buckets; \
         they take room and nothing else",
        place.database,
        left.len()
    ));
}

/// Returns whether it was done.
async fn remove_bucket(engine: &Engine, partition: BucketPartition) -> bool {
    let deadline = Instant::now() + limits::BUCKET_REMOVAL_TIMEOUT;
    let name = StatementName::RemoveBucket(partition.table);
    let how = (Some(partition), Repeatable::Yes);
    let values = partition.key();
    let removal = engine.execute(name, &values, how, deadline);
    matches!(timeout_at(deadline, removal).await, Ok(Ok(_)))
}

/// Values of one statement that changes the catalogue.
enum CatalogueValues<'a> {
    TakeId(i32),
    Add(&'a CatalogueRow, &'a str),
}

impl SerializeRow for CatalogueValues<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        match self {
            CatalogueValues::TakeId(id) => (id.saturating_add(1), id).serialize(context, writer),
            CatalogueValues::Add(row, shape) => {
                (&row.name, row.id, row.made, &row.config, shape).serialize(context, writer)
            }
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use store::Kind;
    use store::remote::{RemoteOrder, RemotePromise, RemoteShape};

    use super::*;
    use crate::paused_time::run;

    fn row(name: &str, id: i32) -> CatalogueRow {
        let shape = RemoteShape::new(RemotePromise::Linearizable, RemoteOrder::Hash);
        let config = DatabaseConfig::default().of_kind(Kind::Remote(shape));
        CatalogueRow {
            name: name.to_owned(),
            id,
            made: 1,
            config: config.encode().to_vec(),
        }
    }

    fn rows(databases: Vec<CatalogueRow>) -> CatalogueRows {
        CatalogueRows {
            databases,
            next_id: 9,
            schema_version: SCHEMA_VERSION,
        }
    }

    #[test]
    fn the_generation_grows_only_with_a_change() {
        let copy = CatalogueCopy::default();
        copy.set(&rows(vec![row("b", 2), row("", 0)]));
        let first = copy.get();
        assert_eq!(first.generation, 1);
        assert_eq!(first.databases[0].id, DatabaseId::DEFAULT);
        copy.set(&rows(vec![row("", 0), row("b", 2)]));
        assert_eq!(copy.get().generation, 1);
        copy.set(&rows(vec![row("", 0)]));
        assert_eq!(copy.get().generation, 2);
        assert!(copy.has(DatabaseId::DEFAULT));
        assert!(!copy.has(DatabaseId::of_number(2).unwrap()));
    }

    #[test]
    fn a_row_of_a_later_version_is_left_out_and_named() {
        let copy = CatalogueCopy::default();
        let mut later = row("later", 3);
        later.config = vec![99];
        let negative = row("negative", -4);
        let found = rows(vec![row("", 0), later, negative]);
        copy.set(&found);
        assert_eq!(copy.take_left_out(&found), ["later", "negative"]);
        assert!(copy.take_left_out(&found).is_empty(), "named once");
        assert_eq!(copy.get().databases.len(), 1);
    }

    #[test]
    fn a_late_read_does_not_replace_what_a_later_one_has_found() {
        run(async {
            let copy = CatalogueCopy::default();
            let read = |rows, ms| async move {
                sleep(std::time::Duration::from_millis(ms)).await;
                Ok::<_, ()>(Some(rows))
            };
            let late = copy.read_by(read(rows(vec![row("", 0)]), 100));
            let later = async {
                sleep(std::time::Duration::from_millis(1)).await;
                copy.read_by(read(rows(vec![row("", 0), row("new", 2)]), 1))
                    .await
            };
            let (late, later) = tokio::join!(late, later);
            assert!(late.is_ok() && later.is_ok());
            assert_eq!(copy.get().databases.len(), 2);
        });
    }

    #[test]
    fn what_this_gateway_has_changed_is_shown_without_another_read() {
        let copy = CatalogueCopy::default();
        copy.set(&rows(vec![row("", 0)]));
        let id = DatabaseId::of_number(2).unwrap();
        for _ in 0..2 {
            copy.insert(&row("new", 2));
        }
        assert!(copy.has(id));
        assert_eq!(copy.get().generation, 2);
        for _ in 0..2 {
            copy.remove(id);
        }
        assert!(!copy.has(id));
        assert_eq!(copy.get().generation, 3);
    }

    #[test]
    fn a_catalogue_that_cannot_be_read_for_minutes_is_stale() {
        run(async {
            let copy = CatalogueCopy::default();
            sleep(limits::CATALOGUE_STALE).await;
            assert!(!copy.is_stale());
            let failed = copy.read_by(std::future::ready(Err(()))).await;
            sleep(limits::CATALOGUE_INTERVAL).await;
            assert!(failed.is_err() && copy.is_stale());
            let found = rows(vec![row("", 0)]);
            let read = copy
                .read_by(std::future::ready(Ok::<_, ()>(Some(found))))
                .await;
            assert!(read.is_ok() && !copy.is_stale());
        });
    }
}
