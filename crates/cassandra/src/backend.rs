//! The store's contract on the engine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use store::remote::{
    RemoteBackend, RemoteCatalogue, RemoteChange, RemoteChangeError, RemoteCommit, RemoteError,
    RemoteHealth, RemoteNode, RemoteRead,
};
use tokio::runtime::{Handle, Runtime};
use tokio::time::Instant;

use crate::caller_error::BUSY;
use crate::catalogue::{CatalogueCopy, carry_out_change, keep_catalogue, name_left_out};
use crate::commit::carry_out_commit;
use crate::connect::{CassandraConfig, connect};
use crate::engine::Engine;
use crate::health::{EngineHealth, keep_health};
use crate::init::{InitError, check_catalogue, check_tables};
use crate::limits;
use crate::message_log::MessageLog;
use crate::read::carry_out_read;

/// Databases on Apache Cassandra or ScyllaDB.
pub struct Cassandra {
    description: String,
    engine: Arc<Engine>,
    catalogue: Arc<CatalogueCopy>,
    health: Arc<EngineHealth>,
    handle: Handle,
    /// Taken by the stop.
    runtime: Mutex<Option<Runtime>>,
    under_way: Arc<AtomicUsize>,
    is_stopping: AtomicBool,
}

/// A request that is under way.
struct UnderWay(Arc<AtomicUsize>);

impl Cassandra {
    /// Connects, looks whether the keyspace is ready, and reads the catalogue. Waits for that: for
    /// the start of a server.
    ///
    /// # Errors
    ///
    /// If no node answers, or the keyspace is not what this version needs. Nothing is changed.
    pub fn start(config: &CassandraConfig) -> Result<Cassandra, InitError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(limits::THREADS)
            .thread_name("pelton-engine")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| InitError::Threads(error.to_string()))?;
        let catalogue = Arc::new(CatalogueCopy::default());
        let engine = runtime.block_on(open(config, &catalogue))?;
        let health = Arc::new(EngineHealth::serving());
        runtime.spawn(keep_catalogue(Arc::clone(&engine), Arc::clone(&catalogue)));
        runtime.spawn(keep_health(Arc::clone(&engine), Arc::clone(&health)));
        let contacts = config.contacts.join(", ");
        Ok(Cassandra {
            description: format!("CQL at {contacts}, keyspace {}", config.keyspace),
            engine,
            catalogue,
            health,
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            under_way: Arc::default(),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Returns how many requests are under way.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Counts a request, unless there are too many.
    fn begin(&self) -> Result<UnderWay, RemoteError> {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        let request = UnderWay(Arc::clone(&self.under_way));
        if before >= limits::REQUESTS || self.is_stopping.load(Ordering::Relaxed) {
            return Err(BUSY);
        }
        Ok(request)
    }

    /// The same for a request on a database, which must be there.
    fn begin_on(&self, database: store::DatabaseId) -> Result<UnderWay, RemoteError> {
        if !self.catalogue.has(database) {
            return Err(RemoteError::UnknownDatabase);
        }
        if self.catalogue.is_stale() {
            return Err(RemoteError::NoQuorum);
        }
        self.begin()
    }
}

async fn open(
    config: &CassandraConfig,
    catalogue: &CatalogueCopy,
) -> Result<Arc<Engine>, InitError> {
    let session = connect(config).await?;
    check_tables(&session, &config.keyspace).await?;
    let log = MessageLog::new(config.log.clone());
    let time = (config.now_us.clone(), config.seed, log);
    let engine = Engine::new(session, &config.keyspace, config.datacenter.clone(), time);
    let deadline = Instant::now() + limits::START_TIMEOUT;
    let rows = check_catalogue(&engine, deadline).await?;
    engine.prepare_all(deadline).await?;
    catalogue.set(&rows);
    name_left_out(&engine, catalogue, &rows);
    Ok(Arc::new(engine))
}

impl RemoteBackend for Cassandra {
    fn description(&self) -> String {
        self.description.clone()
    }

    fn catalogue(&self) -> Arc<RemoteCatalogue> {
        self.catalogue.get()
    }

    fn change(&self, change: RemoteChange) {
        let request = match self.begin() {
            Ok(request) => request,
            Err(error) => return change.complete(Err(RemoteChangeError::Remote(error))),
        };
        let deadline = Instant::now() + change.timeout();
        let (engine, catalogue) = (Arc::clone(&self.engine), Arc::clone(&self.catalogue));
        self.handle.spawn(async move {
            carry_out_change(&engine, &catalogue, change, deadline).await;
            drop(request);
        });
    }

    fn read(&self, read: RemoteRead) {
        let request = match self.begin_on(read.database()) {
            Ok(request) => request,
            Err(error) => return read.complete(Err(error)),
        };
        let deadline = Instant::now() + read.timeout();
        let engine = Arc::clone(&self.engine);
        self.handle.spawn(async move {
            carry_out_read(&engine, read, deadline).await;
            drop(request);
        });
    }

    fn commit(&self, commit: RemoteCommit) {
        let request = match self.begin_on(commit.database()) {
            Ok(request) => request,
            Err(error) => return commit.complete(Err(error)),
        };
        let deadline = Instant::now() + commit.timeout();
        let engine = Arc::clone(&self.engine);
        self.handle.spawn(async move {
            carry_out_commit(&engine, commit, deadline).await;
            drop(request);
        });
    }

    fn health(&self) -> RemoteHealth {
        self.health.get()
    }

    fn nodes(&self) -> Vec<RemoteNode> {
        self.engine.nodes()
    }

    fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let Some(runtime) = self.runtime.lock().take() else {
            return;
        };
        let under_way = Arc::clone(&self.under_way);
        let stop = thread::Builder::new().name("pelton-engine-stop".to_owned());
        // Without a thread to wait in, the closure is dropped, and the runtime with it: what is
        // under way ends there.
        let _ = stop.spawn(move || {
            wait_for_end(&under_way);
            runtime.shutdown_background();
        });
    }
}

fn wait_for_end(under_way: &AtomicUsize) {
    let step = Duration::from_millis(5);
    let mut waited = Duration::ZERO;
    while under_way.load(Ordering::Relaxed) > 0 && waited < limits::STOP_TIMEOUT {
        thread::sleep(step);
        waited += step;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Cassandra {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Cassandra {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Cassandra")
            .field("description", &self.description)
            .field("under_way", &self.under_way())
            .finish_non_exhaustive()
    }
}
