//! Apache Cassandra or ScyllaDB, by the crate `cassandra`.

use std::sync::Arc;
use std::time::Duration;

use cassandra::{
    Cassandra, CassandraConfig, InitError, InitOptions, MessageSink, WallClock, check_keyspace_name,
};
use server::{Storage, TimeSource};
use store::{DatabaseConfig, Durability, Kind};

use super::{EngineAccess, EngineInit, tls};
use crate::credentials::password;
use crate::exit::Failure;
use crate::output::note;
use crate::randomness::random;
use crate::settings::Settings;
use crate::time_source::SystemTimeSource;

/// Opens the keyspace that the settings name: waits until the nodes have answered.
///
/// # Errors
/// If they do not, or the keyspace is not ready.
pub fn open(settings: &Settings) -> Result<Storage, Failure> {
    let access = EngineAccess::of_settings(&settings.engine);
    let log: MessageSink = Arc::new(|message| tracing::warn!("{message}"));
    let config = config(&access, log)?;
    let backend = Cassandra::start(&config).map_err(|error| failure(&error))?;
    Ok(Storage::Remote {
        backend: Arc::new(backend),
        timeout: Duration::from_millis(settings.engine.timeout.ms),
    })
}

/// Checks what the settings say of an engine, as far as that needs no node.
pub fn check(settings: &Settings) -> Result<(), Failure> {
    if settings.engine.store.is_none() {
        return Ok(());
    }
    let access = EngineAccess::of_settings(&settings.engine);
    config(&access, Arc::new(|_| {})).map(|_| ())
}

/// Makes a keyspace ready. Returns whether it was not before.
///
/// # Errors
/// If it cannot be made, or is one of another kind.
pub fn init(access: &EngineAccess, wanted: EngineInit) -> Result<bool, Failure> {
    let config = config(
        access,
        Arc::new(|message| note(format_args!("pelton: {message}"))),
    )?;
    let database = DatabaseConfig {
        durability: Durability::Synced,
        ..DatabaseConfig::default()
    };
    let options = InitOptions {
        replicas: wanted.replicas,
        default_config: database.of_kind(Kind::Remote(wanted.shape)),
    };
    let report = cassandra::init(&config, options).map_err(|error| failure(&error))?;
    Ok(report.has_made_database)
}

fn config(access: &EngineAccess, log: MessageSink) -> Result<CassandraConfig, Failure> {
    check_keyspace_name(&access.keyspace)
        .map_err(|error| Failure::Usage(format!("keyspace `{}`: {error}", access.keyspace)))?;
    let credentials = match (&access.user, &access.password_file) {
        (Some(user), Some(path)) => {
            let password = password("--store-password-file", path)?;
            Some((user.clone(), password.as_str().to_owned()))
        }
        _ => None,
    };
    let now_us: WallClock = Arc::new(|| SystemTimeSource.wall_us());
    let config = CassandraConfig {
        contacts: access.contacts.clone(),
        keyspace: access.keyspace.clone(),
        datacenter: access.datacenter.clone(),
        credentials,
        #[cfg(feature = "cassandra-tls")]
        tls: None,
        now_us,
        seed: random(),
        log,
    };
    tls::set_up(config, access.ca.as_deref())
}

fn failure(error: &InitError) -> Failure {
    Failure::Failed(error.to_string())
}
