//! The first connection, with what it needs to be allowed.

use std::fmt;
use std::sync::Arc;

use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::NewSessionError;
use scylla::frame::types::{Consistency, SerialConsistency};
use scylla::policies::retry::FallthroughRetryPolicy;
use tokio::time::timeout;

use crate::engine::WallClock;
use crate::limits;
use crate::message_log::{MessageSink, shortened};
use crate::schema::{KeyspaceNameError, check_keyspace_name};

/// How to reach the nodes.
#[derive(Clone)]
pub struct CassandraConfig {
    /// Nodes to begin with, each as `HOST` or `HOST:PORT`. The others are learned from them.
    pub contacts: Vec<String>,
    /// The keyspace of the databases.
    pub keyspace: String,
    /// The data center whose nodes are asked first; `None`: all are alike.
    pub datacenter: Option<String>,
    /// User and password; `None`: the nodes ask for none.
    pub credentials: Option<(String, String)>,
    /// TLS to all nodes; `None`: none.
    #[cfg(feature = "tls")]
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The time: microseconds since 1970.
    pub now_us: WallClock,
    /// A random number, another one for each gateway and run: versions carry a part of it.
    pub seed: u64,
    /// Where messages for the operator go.
    pub log: MessageSink,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The keyspace cannot be named so.
    #[error(transparent)]
    KeyspaceName(#[from] KeyspaceNameError),
    /// No node is named.
    #[error("no node of the storage engine is named; name one or more (--contact)")]
    NoContact,
    /// Nothing came in time.
    #[error(
        "none of {contacts} answered within {} s; look whether the nodes run, and whether these \
         are the addresses of their CQL port",
        limits::CONNECT_TIMEOUT.as_secs()
    )]
    TimedOut {
        /// The nodes that were asked.
        contacts: String,
    },
    /// The nodes cannot be reached, or refuse.
    #[error("cannot connect to the storage engine at {contacts}: {reason}")]
    Failed {
        /// The nodes that were asked.
        contacts: String,
        /// What the driver says.
        reason: String,
    },
}

/// Connects to the nodes.
pub(crate) async fn connect(config: &CassandraConfig) -> Result<Session, ConnectError> {
    check_keyspace_name(&config.keyspace)?;
    if config.contacts.is_empty() {
        return Err(ConnectError::NoContact);
    }
    let contacts = config.contacts.join(", ");
    match timeout(limits::CONNECT_TIMEOUT, build(config)).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(ConnectError::Failed {
            contacts,
            reason: shortened(&error.to_string()).to_owned(),
        }),
        Err(_) => Err(ConnectError::TimedOut { contacts }),
    }
}

async fn build(config: &CassandraConfig) -> Result<Session, NewSessionError> {
    // This crate decides what is repeated, where and for how long: nothing is left to the driver.
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .serial_consistency(Some(SerialConsistency::Serial))
        .request_timeout(None)
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&config.contacts)
        .default_execution_profile_handle(profile.into_handle())
        .connection_timeout(limits::CONNECT_TIMEOUT)
        .keepalive_interval(limits::KEEPALIVE_INTERVAL)
        .keepalive_timeout(limits::KEEPALIVE_TIMEOUT)
        .schema_agreement_timeout(limits::SCHEMA_TIMEOUT)
        .keyspaces_to_fetch([config.keyspace.as_str()]);
    if let Some(datacenter) = &config.datacenter {
        builder = builder.prefer_datacenter(datacenter.clone());
    }
    if let Some((user, password)) = &config.credentials {
        builder = builder.user(user, password);
    }
    #[cfg(feature = "tls")]
    {
        builder = builder.tls_context(config.tls.clone());
    }
    builder.build().await
}

impl fmt::Debug for CassandraConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CassandraConfig")
            .field("contacts", &self.contacts)
            .field("keyspace", &self.keyspace)
            .field("datacenter", &self.datacenter)
            .finish_non_exhaustive()
    }
}
