//! The storage engine that has the databases of a server: what reaches it, if this build can.

#[cfg(not(feature = "cassandra"))]
mod absent;
#[cfg(feature = "cassandra")]
mod present;
#[cfg(feature = "cassandra")]
mod tls;

#[cfg(not(feature = "cassandra"))]
pub use absent::{check, init, open};
#[cfg(feature = "cassandra")]
pub use present::{check, init, open};

use std::path::PathBuf;

use store::remote::RemoteShape;

use crate::arguments::{ContactAddresses, StoreAccessArguments};
use crate::settings::StorageEngineSettings;

/// How an engine is reached.
#[cfg_attr(
    not(feature = "cassandra"),
    allow(dead_code, reason = "read by the engine, which this build has not")
)]
#[derive(Clone, Debug)]
pub struct EngineAccess {
    /// Each as `HOST:PORT`.
    pub contacts: Vec<String>,
    pub keyspace: String,
    pub datacenter: Option<String>,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    pub ca: Option<PathBuf>,
}

/// How a keyspace is made ready.
#[cfg_attr(
    not(feature = "cassandra"),
    allow(dead_code, reason = "read by the engine, which this build has not")
)]
#[derive(Clone, Copy, Debug)]
pub struct EngineInit {
    /// Replicas of each row in each data center.
    pub replicas: u8,
    /// That of the default database.
    pub shape: RemoteShape,
}

impl EngineAccess {
    /// Returns how the settings of a server say that it is reached.
    fn of_settings(engine: &StorageEngineSettings) -> EngineAccess {
        EngineAccess {
            contacts: engine.contacts.clone(),
            keyspace: engine.keyspace.clone().unwrap_or_default(),
            datacenter: engine.datacenter.clone(),
            user: engine.user.clone(),
            password_file: engine.password_file.clone(),
            ca: engine.ca.clone(),
        }
    }
}

impl From<&StoreAccessArguments> for EngineAccess {
    fn from(arguments: &StoreAccessArguments) -> EngineAccess {
        EngineAccess {
            contacts: ContactAddresses::all(arguments.contact.clone()),
            keyspace: arguments.keyspace.clone(),
            datacenter: arguments.datacenter.clone(),
            user: arguments.store_user.clone(),
            password_file: arguments.store_password_file.clone(),
            ca: arguments.store_ca.clone(),
        }
    }
}
