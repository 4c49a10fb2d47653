//! The databases of a keyspace: one partition, read serially and changed by conditional batches.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::RwLock;
use scylla::serialize::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;
use store::remote::{
    RemoteCatalogue, RemoteChange, RemoteChangeError, RemoteDatabase, RemoteError, WhatChanges,
};
use store::{CreateError, DatabaseConfig, DatabaseId, Direction, DropError, Range};
use tokio::time::{Instant, sleep, timeout_at};

use crate::caller_error::{error_of_read, error_of_write};
use crate::commit::is_applied;
use crate::engine::{Engine, Repeatable};
use crate::failure::EngineFailure;
use crate::limits;
use crate::partition::DatabasePlace;
use crate::read::remote_error;
use crate::rows::{read_heads, rows_of, unreadable};
use crate::schema::SCHEMA_VERSION;
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
#[derive(Debug, Default)]
pub(crate) struct CatalogueCopy {
    shown: RwLock<Arc<RemoteCatalogue>>,
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

    /// Takes what was read. A row that this version cannot read is left out, and returned.
    pub(crate) fn set(&self, rows: &CatalogueRows) -> Vec<String> {
        let mut unreadable = Vec::new();
        let mut databases = Vec::with_capacity(rows.databases.len());
        for row in &rows.databases {
            match row.database() {
                Some(database) => databases.push(database),
                None => unreadable.push(row.name.clone()),
            }
        }
        databases.sort_by_key(|database| database.id);
        let mut shown = self.shown.write();
        if shown.generation == 0 || shown.databases != databases {
            let generation = shown.generation.wrapping_add(1);
            *shown = Arc::new(RemoteCatalogue {
                generation,
                databases,
            });
        }
        unreadable
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
        if let Ok(Some(rows)) = read_catalogue(&engine, deadline).await {
            for name in copy.set(&rows) {
                engine.log().note(&format!(
                    "database `{name}` in the storage engine was made by a later version, and is \
                     left out"
                ));
            }
        }
    }
}

/// Carries out a change of the catalogue and ends it.
pub(crate) async fn carry_out_change(
    engine: Arc<Engine>,
    copy: Arc<CatalogueCopy>,
    change: RemoteChange,
    deadline: Instant,
) {
    let result = match change.what().clone() {
        WhatChanges::Create { name, config } => {
            create(&engine, &copy, (&name, config), deadline).await
        }
        WhatChanges::Drop { id, only_empty } => {
            drop_database(&engine, &copy, (id, only_empty), deadline).await
        }
    };
    change.complete(result);
}

/// What is read before a change.
async fn current(
    engine: &Engine,
    copy: &CatalogueCopy,
    deadline: Instant,
) -> Result<CatalogueRows, RemoteError> {
    let rows = read_catalogue(engine, deadline).await;
    let rows = rows.map_err(|failure| error_of_read(&failure))?;
    let rows = rows.ok_or(RemoteError::Refused)?;
    if rows.schema_version != SCHEMA_VERSION {
        return Err(RemoteError::Refused);
    }
    copy.set(&rows);
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
            Ok(true) => return id_of(&row),
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

async fn drop_database(
    engine: &Arc<Engine>,
    copy: &CatalogueCopy,
    (id, only_empty): (DatabaseId, bool),
    deadline: Instant,
) -> Result<DatabaseId, RemoteChangeError> {
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
        refuse_if_not_empty(engine, place, deadline).await?;
    }
    let how = (None, Repeatable::No);
    let values = (row.name.as_str(), number);
    let removed = engine
        .execute(StatementName::RemoveDatabase, &values, how, deadline)
        .await;
    let removed = removed
        .and_then(is_applied)
        .map_err(|failure| error_of_write(&failure))?;
    // For this gateway at once; others see it within some seconds.
    current(engine, copy, deadline).await.ok();
    if !removed {
        return Err(DropError::Unknown.into());
    }
    if let Some(place) = place {
        tokio::spawn(remove_rows(Arc::clone(engine), place));
    }
    Ok(id)
}

async fn refuse_if_not_empty(
    engine: &Engine,
    place: DatabasePlace,
    deadline: Instant,
) -> Result<(), RemoteChangeError> {
    let heads = (0..place.shape.buckets).map(|bucket| {
        let walk = (Range::ALL, Direction::Forward);
        read_heads(
            engine,
            place.partition(bucket),
            walk,
            limits::BUCKET_ROWS,
            deadline,
        )
    });
    let mut heads = stream::iter(heads).buffer_unordered(limits::BUCKETS_AT_ONCE);
    while let Some(page) = heads
        .try_next()
        .await
        .map_err(|error| remote_error(engine, &error))?
    {
        let now_ms = engine.now_ms();
        let visible = page
            .rows
            .iter()
            .filter(|row| row.head.is_visible(now_ms))
            .count();
        if visible > 0 {
            let entries = visible as u64;
            return Err(DropError::NotEmpty {
                entries,
                blobs: 0,
                blob_bytes: 0,
            }
            .into());
        }
    }
    Ok(())
}

/// Removes the rows of a database that was dropped, bucket by bucket. Its number is never used
/// again, so what a failure leaves behind takes room and is seen by nobody.
async fn remove_rows(engine: Arc<Engine>, place: DatabasePlace) {
    for bucket in 0..place.shape.buckets {
        let partition = place.partition(bucket);
        let deadline = Instant::now() + limits::BUCKET_REMOVAL_TIMEOUT;
        let name = StatementName::RemoveBucket(partition.table);
        let how = (Some(partition), Repeatable::Yes);
        let values = partition.key();
        let removal = engine.execute(name, &values, how, deadline);
        if !matches!(timeout_at(deadline, removal).await, Ok(Ok(_))) {
            engine.log().note(&format!(
                "rows of a database that was dropped were not all removed: number {}, bucket \
                 {bucket}; they take room and nothing else",
                place.database
            ));
        }
    }
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
        assert!(copy.set(&rows(vec![row("b", 2), row("", 0)])).is_empty());
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
        let named = copy.set(&rows(vec![row("", 0), later, negative]));
        assert_eq!(named, ["later", "negative"]);
        assert_eq!(copy.get().databases.len(), 1);
    }
}
