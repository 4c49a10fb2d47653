//! Making the keyspace ready, and looking whether it is.

use std::time::Duration;

use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use store::{CreateError, DatabaseConfig, DatabaseId};
use tokio::time::{Instant, timeout};

use crate::catalogue::{CatalogueRow, CatalogueRows, read_catalogue, shape_text};
use crate::commit::is_applied;
use crate::connect::{CassandraConfig, ConnectError, connect};
use crate::engine::{Engine, Repeatable};
use crate::failure::EngineFailure;
use crate::limits;
use crate::message_log::{MessageLog, shortened};
use crate::schema::{
    FoundColumn, SCHEMA_VERSION, SchemaDifference, TABLES, create_keyspace, create_table,
    differences,
};
use crate::statements::StatementName;

/// How the keyspace is made.
#[derive(Clone, Copy, Debug)]
pub struct InitOptions {
    /// Replicas of each row in each data center. Only for a keyspace that is not there yet: one
    /// that is keeps its replication.
    pub replicas: u8,
    /// What the default database is made with. Only if there is none yet.
    pub default_config: DatabaseConfig,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitReport {
    /// The default database was made: the keyspace was not ready before.
    pub has_made_database: bool,
}

/// Why the keyspace is not ready.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The driver cannot run here.
    #[error("the threads for the storage engine cannot be started: {0}")]
    Threads(String),
    /// The default database cannot be made so.
    #[error("the default database cannot be made so: {0}")]
    Default(#[from] CreateError),
    /// A statement failed.
    #[error("`{statement}` failed: {reason}")]
    Statement {
        /// What was to be done.
        statement: String,
        /// What the driver or the node says.
        reason: String,
    },
    /// A request failed.
    #[error(transparent)]
    Engine(#[from] EngineFailure),
    /// The tables are not those that this version needs.
    #[error(
        "the keyspace `{keyspace}` is not what this version needs: {}; make it ready with \
         `pelton store init`, or name another keyspace",
        listed(.differences)
    )]
    Schema {
        /// The keyspace.
        keyspace: String,
        /// What differs.
        differences: Vec<SchemaDifference>,
    },
    /// The tables are there, and the catalogue is not that of this version.
    #[error(
        "the keyspace `{keyspace}` has the schema version {found}, and this version of the program \
         needs {needed}; use the version of the program that made it",
        needed = SCHEMA_VERSION
    )]
    SchemaVersion {
        /// The keyspace.
        keyspace: String,
        /// What was found.
        found: i32,
    },
    /// The tables are there and empty.
    #[error(
        "the keyspace `{keyspace}` has tables and no databases; finish with `pelton store init`"
    )]
    NotFinished {
        /// The keyspace.
        keyspace: String,
    },
}

fn listed(differences: &[SchemaDifference]) -> String {
    let texts: Vec<String> = differences
        .iter()
        .map(SchemaDifference::to_string)
        .collect();
    texts.join("; ")
}

/// Makes what is missing of the keyspace, its tables and the default database. Changes nothing that
/// is there.
///
/// # Errors
///
/// If something could not be made, or is there and is not what this version needs.
pub fn init(config: &CassandraConfig, options: InitOptions) -> Result<InitReport, InitError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| InitError::Threads(error.to_string()))?;
    runtime.block_on(make_ready(config, options))
}

async fn make_ready(
    config: &CassandraConfig,
    options: InitOptions,
) -> Result<InitReport, InitError> {
    options.default_config.check_remote()?;
    let session = connect(config).await?;
    let keyspace = config.keyspace.as_str();
    make(&session, create_keyspace(keyspace, options.replicas)).await?;
    for table in &TABLES {
        make(&session, create_table(keyspace, table)).await?;
    }
    check_tables(&session, keyspace).await?;
    let log = MessageLog::new(config.log.clone());
    let time = (config.now_us.clone(), config.seed, log);
    let engine = Engine::new(session, keyspace, None, time);
    let deadline = Instant::now() + limits::START_TIMEOUT;
    let has_made_database = begin_catalogue(&engine, options, deadline).await?;
    check_catalogue(&engine, deadline).await?;
    Ok(InitReport { has_made_database })
}

/// Writes the first row of the catalogue, if there is none. Returns whether it has.
async fn begin_catalogue(
    engine: &Engine,
    options: InitOptions,
    deadline: Instant,
) -> Result<bool, EngineFailure> {
    if read_catalogue(engine, deadline).await?.is_some() {
        return Ok(false);
    }
    let config = options.default_config;
    let row = CatalogueRow {
        name: String::new(),
        id: DatabaseId::DEFAULT.number().cast_signed(),
        made: engine.version(std::iter::empty()).cast_signed(),
        config: config.encode().to_vec(),
    };
    let shape = shape_text(&config);
    let values = (SCHEMA_VERSION, 1, row.id, row.made, row.config, shape);
    let how = (None, Repeatable::No);
    let result = engine
        .execute(StatementName::BeginCatalogue, &values, how, deadline)
        .await?;
    is_applied(result)
}

async fn make(session: &Session, statement: String) -> Result<(), InitError> {
    let made = session.query_unpaged(statement.as_str(), &[]);
    let reason = match timeout(limits::SCHEMA_TIMEOUT, made).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => shortened(&error.to_string()).to_owned(),
        Err(_) => "the nodes have not agreed on it in time".to_owned(),
    };
    Err(InitError::Statement { statement, reason })
}

/// Fails if the tables are not those that this version needs.
pub(crate) async fn check_tables(session: &Session, keyspace: &str) -> Result<(), InitError> {
    let found = found_columns(session, keyspace, limits::START_TIMEOUT).await;
    let found = found.map_err(|error| InitError::Statement {
        statement: "SELECT FROM system_schema.columns".to_owned(),
        reason: error,
    })?;
    let differences = differences(&found);
    if differences.is_empty() {
        return Ok(());
    }
    Err(InitError::Schema {
        keyspace: keyspace.to_owned(),
        differences,
    })
}

async fn found_columns(
    session: &Session,
    keyspace: &str,
    limit: Duration,
) -> Result<Vec<FoundColumn>, String> {
    const TEXT: &str = "SELECT table_name, column_name, type, kind FROM system_schema.columns \
                        WHERE keyspace_name = ?";
    let query = session.query_unpaged(TEXT, (keyspace,));
    let result = timeout(limit, query)
        .await
        .map_err(|_| "no answer in time".to_owned())?;
    let result = result.map_err(|error: ExecutionError| error.to_string())?;
    let result = result
        .into_rows_result()
        .map_err(|error| error.to_string())?;
    let rows = result.rows::<(String, String, String, String)>();
    let mut found = Vec::new();
    for row in rows.map_err(|error| error.to_string())? {
        let (table, name, type_name, role) = row.map_err(|error| error.to_string())?;
        found.push(FoundColumn {
            table,
            name,
            type_name,
            role,
        });
    }
    Ok(found)
}

/// Fails if the catalogue is not there, or that of another version. Returns it.
pub(crate) async fn check_catalogue(
    engine: &Engine,
    deadline: Instant,
) -> Result<CatalogueRows, InitError> {
    let keyspace = || engine.keyspace().to_owned();
    let rows = read_catalogue(engine, deadline).await?;
    let rows = rows.ok_or_else(|| InitError::NotFinished {
        keyspace: keyspace(),
    })?;
    if rows.schema_version != SCHEMA_VERSION {
        return Err(InitError::SchemaVersion {
            keyspace: keyspace(),
            found: rows.schema_version,
        });
    }
    Ok(rows)
}
