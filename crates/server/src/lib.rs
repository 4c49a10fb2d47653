//! Puts protocol, driver, services and store together: a server.
//!
//! [`start`] binds the listeners and makes the store; [`Server::run`] serves until a signal or a
//! [`StopHandle`] stops it. [`simulated`] makes a server without sockets and
//! threads, for simulations.

// What ships does not panic: docs/internals/panics.md.
#![cfg_attr(
    not(test),
    warn(
        clippy::disallowed_methods,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented,
        clippy::unwrap_used
    )
)]

mod account;
mod actions;
mod admission;
mod applier;
mod audit;
mod audit_record;
mod authorization;
mod batch;
mod blobs;
mod call_id;
mod calls;
mod clock;
mod connection;
mod deferred_drop;
mod disk_write_queue;
mod disk_writes;
mod drain;
mod durations;
mod event_loop;
mod fair_queue;
mod first_admin;
mod inbox;
mod large_message_queue;
pub mod limits;
mod long_requests;
mod metadata;
mod pace;
#[cfg(test)]
mod pair;
mod peer_identity;
mod plain;
mod pulse;
mod readers;
mod remote_requests;
mod replica;
mod rpc_connection;
mod settings;
mod slow_call_record;
mod slow_calls;
mod spans;
mod storage;
mod stored_identities;
mod stream;
mod tasks;
#[cfg(test)]
mod tests;
mod threads;
mod timers;
pub mod tls;
mod unpack_queue;
mod unsent_answers;
mod waiting_request;
mod watchers;
mod write_path;
mod wrong_tokens;

use std::path::PathBuf;
use std::sync::Arc;

use net::{
    Address, BindError, CountersReader, LoopConfig, LoopStart, Loops, RunEnd, RunError, StopHandle,
    THREAD_LIMITS,
};
use service::following::Following;
use service::identities::{DrawToken, UsableBindings};
use service::limits::{ANSWER_BYTES, ANSWER_BYTES_MAX};
use service::rights::Rights;
use service::services::greeting;
use service::serving::Registry;
use service::waiting::WaitingCalls;
use service::{Figures, ServerInfo, ServiceSettings, Shared};
use store::backup::BackupRoot;
use store::blob::BlobConfig;
use store::descriptors::DescriptorPlan;
use store::durable::{CommitLoop, CommitWaker, ConvertError, Durable, Mailbox, OpenError};
use store::remote::{RemoteOpenError, RemoteStore};
use store::{CreateError, FolderSecret, Kind, Refusal, Store};
use wal::{Recovered, WriteError};

use crate::account::Account;
use crate::admission::Admission;
pub use crate::applier::BlockingApplier;
use crate::audit::AuditTrail;
pub use crate::audit_record::{AuditCaller, AuditEvent, AuditRecord, audit_text};
use crate::blobs::{BlobLog, BlobThreads, LoopBlobs, Threads};
pub use crate::clock::TimeSource;
use crate::clock::{LoopClock, SteadyTime};
use crate::deferred_drop::DeferredDrop;
use crate::event_loop::{LoopHandler, LoopParts, LoopRole, LoopState};
pub use crate::first_admin::{AskForToken, FirstAdmin, FirstAdminError};
use crate::long_requests::LongRequests;
pub use crate::pulse::{LoopTurns, Pulse};
use crate::readers::{LoopReaders, Pool, Readers};
use crate::remote_requests::RemoteRequests;
pub use crate::replica::Replica;
use crate::settings::LoopSettings;
pub use crate::settings::{Detail, FailedCall, Log, SilentLog};
pub use crate::slow_call_record::{PhaseTimes, SlowCall, SlowCallKeys, SlowCallRule};
pub use crate::spans::{CallSpan, SampledShare, SpanMethod, SpanRule, SpanSink};
use crate::storage::OpenStorage;
pub use crate::storage::Storage;
use crate::stored_identities::{identities, load_identities};
use crate::tasks::{LoopTasks, StorageJobs, Tasks};
use crate::wrong_tokens::WrongTokens;

/// How a server is to be.
pub struct ServerConfig {
    /// Sockets, threads, signals.
    pub loops: LoopConfig,
    /// Name and version, as greetings say it.
    pub server: ServerInfo,
    /// Bytes that data may take. Buffers may take a share more: [`limits::BUFFERED_BYTES_SHARE`].
    pub memory_limit_bytes: u64,
    /// The largest value that can be stored, in bytes.
    pub max_value_bytes: usize,
    /// Streams that one connection may have open at once.
    pub max_streams: u32,
    /// The receive window of each stream, fixed, in bytes; `None`: it grows with the
    /// bandwidth-delay product.
    pub stream_window: Option<u32>,
    /// The receive window of each connection, fixed, in bytes; `None`: it grows.
    pub connection_window: Option<u32>,
    /// How the services are to be.
    pub services: ServiceSettings,
    /// What callers without a token may do, by the listener through which they come.
    pub anonymous: Vec<Rights>,
    /// The secret of a data folder that has none yet, or of a server without one: drawn at random.
    pub secret: FolderSecret,
    /// Makes tokens of random bytes.
    pub draw_token: Box<DrawToken>,
    /// Gives the token of the first administrator if there is none; `None`: there need be none.
    pub first_admin: Option<Box<AskForToken>>,
    /// Which bindings can be proved where it listens: others make nobody an administrator.
    pub bindings: UsableBindings,
    /// Secret seed of the hash of keys, so that nobody can choose keys that collide.
    pub hash_seed: u64,
    /// Where time comes from.
    pub time: Arc<dyn TimeSource>,
    /// Receives what is worth a line in the log.
    pub log: Arc<dyn Log>,
    /// Where data are kept.
    pub storage: Storage,
    /// The bounds of blobs.
    pub blobs: BlobConfig,
    /// Where backups are made; `None`: nowhere, they are refused.
    pub backup_root: Option<BackupRoot>,
    /// Of a replica: whom it follows. Then [`Server::replica`] is what brings its commits.
    pub following: Option<Arc<Following>>,
    /// The data folder on the file system, in which copies for servers are made that follow this
    /// one; `None`: they are refused.
    pub data: Option<PathBuf>,
    /// Whether it is counted how long calls take ([`service::figures::Totals::took`]): a reading of
    /// the clock for each tick.
    pub time_calls: bool,
    /// Which calls come into the slow-call log; `None`: there is none. It costs two readings of
    /// the clock for each step of a call.
    pub slow_calls: Option<SlowCallRule>,
    /// Which calls have spans, and where these go; `None`: none has. A call without one costs a
    /// look for `traceparent` then.
    pub spans: Option<SpanRule>,
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A listener could not be bound; says which and why.
    #[error("{0}")]
    Bind(BindError),
    /// The limits of the default database make no sense together.
    #[error("the default database cannot be made: {0}")]
    Database(CreateError),
    /// The databases on an engine elsewhere cannot be used.
    #[error("{0}")]
    Remote(RemoteOpenError),
    /// The data folder cannot be used, or its log cannot be read.
    #[error("{0}")]
    Open(OpenError),
    /// The default database is of this kind, not of the one that is asked for, and something is in
    /// it.
    #[error("the default database in this data folder is {}, and is not empty", place(*.0))]
    OtherKind(Kind),
    /// The default database, in which nothing is, could not be made one of the kind that is asked
    /// for.
    #[error("the default database cannot be made one of this kind: {0}")]
    NotConverted(ConvertError),
    /// Tokens are hashed under another secret than that of the data folder.
    #[error(
        "the file `pelton-data` of the data folder is that of another one, or an older one: its \
         secret is not that under which the {0} tokens in its log were hashed, and so none of \
         them is good"
    )]
    OtherSecret(usize),
    /// The same, and they could not be noted as invalid.
    #[error("tokens of another secret could not be noted as invalid: {0}")]
    NotInvalidated(Refusal),
    /// There is to be an administrator's token, and there is none.
    #[error("{0}")]
    FirstAdmin(FirstAdminError),
    /// A thread could not be started.
    #[error("a thread cannot be started: {0}; what limits threads: {THREAD_LIMITS}")]
    Thread(std::io::Error),
    /// No handlers for the signals could be installed.
    #[error("signals cannot be handled: {0}")]
    Signals(std::io::Error),
}

fn place(kind: Kind) -> &'static str {
    match kind {
        Kind::Memory => "in memory",
        Kind::Remote(_) => "on a storage engine",
        _ => "on disk",
    }
}

/// A server whose listeners are bound: connections are already waiting.
pub struct Server {
    loops: Loops,
    parts: ServerParts,
    recovered: Option<Recovered>,
    blobs_found: Option<store::blob::FoundBlobs>,
    trees_set_aside: u64,
    first_admin: FirstAdmin,
    pulse: Pulse,
    blob_threads: Arc<BlobThreads>,
}

/// What the loops of a server share.
#[derive(Clone)]
struct ServerParts {
    settings: Arc<LoopSettings>,
    shared: Arc<Shared>,
    account: Arc<Account>,
    wrong_tokens: Arc<WrongTokens>,
    long_requests: Arc<LongRequests>,
    audit: Arc<AuditTrail>,
    time: Arc<dyn TimeSource>,
    deferred_drop: DeferredDrop,
    /// Who reads databases on disk for event loops.
    readers: Readers,
    /// Behind the durable databases.
    durable: Option<Arc<Durable>>,
    /// The way to the databases, if they are elsewhere.
    remote: Option<Arc<RemoteStore>>,
    tasks: Arc<Tasks>,
}

/// Binds the listeners, opens the store, and last takes over the signals: from then on they stop
/// the server as they do while it runs, so that it can be announced. Before, while a long log is
/// read, they are the caller's.
///
/// # Errors
/// If an address cannot be bound, the data folder cannot be used, or the limits make no sense
/// together.
pub fn start(mut config: ServerConfig) -> Result<Server, StartError> {
    share_descriptors(&mut config);
    let mut loops = Loops::bind(config.loops.clone()).map_err(StartError::Bind)?;
    let deferred_drop = DeferredDrop::start(Arc::clone(&config.log)).map_err(StartError::Thread)?;
    let OpenStorage {
        store,
        remote,
        committer,
        recovered,
        blobs: blobs_found,
        trees_set_aside,
    } = storage::open(&config)?;
    keep_time_steady(&mut config, &store);
    let account = Account::new(account_bytes(&config));
    let blob_threads = Arc::new(BlobThreads::new(
        Arc::clone(&account),
        Arc::clone(&config.log),
    ));
    if let Some(blobs) = store.blobs() {
        blobs.set_runner(Arc::new(Threads(Arc::clone(&blob_threads))));
        blobs.set_observer(Arc::new(BlobLog(Arc::clone(&config.log))));
    }
    let durable = committer.map(|committer| storage::start(committer, &config));
    let durable = durable.transpose()?.map(Arc::new);
    if let Some(durable) = &durable {
        storage::settle_kind(&config, &store, durable).inspect_err(|_| {
            // What keeps it from starting is the better message, also if the log cannot be closed.
            let _ = durable.stop();
        })?;
    }
    let result_limit_bytes = limits::READ_RESULT_BYTES.min(account_bytes(&config) / 2);
    let readers = Readers::Pool(Pool::new(
        store.clone(),
        result_limit_bytes,
        Arc::clone(&config.log),
    ));
    let (ask, bindings) = (config.first_admin.take(), config.bindings);
    let accepts_loss = config.storage.accepts_loss();
    let (time, log) = (Arc::clone(&config.time), Arc::clone(&config.log));
    let stores = (store, durable, remote);
    let parts = ServerParts::new(config, account, deferred_drop, readers, stores);
    loops.handle_signals().map_err(StartError::Signals)?;
    // Last of all: whoever has the token finds the server started.
    let (shared, durable) = (&parts.shared, parts.durable.as_deref());
    let checked = first_admin::check_key(accepts_loss, shared, durable, &time, &*log);
    let made = checked.and_then(|()| {
        let made = first_admin::make(ask, shared, (durable, bindings), &time, &*log);
        made.map_err(StartError::FirstAdmin)
    });
    let first_admin = made.inspect_err(|_| {
        if let Some(durable) = &parts.durable {
            let _ = durable.stop();
        }
    })?;
    Ok(Server {
        pulse: Pulse::new(loops.counters()),
        loops,
        parts,
        recovered,
        blobs_found,
        trees_set_aside,
        first_admin,
        blob_threads,
    })
}

/// From now on the server's time goes on from that of its store, whatever the clock of the machine
/// does, or that of a leader.
fn keep_time_steady(config: &mut ServerConfig, store: &Store) {
    let (source, log) = (Arc::clone(&config.time), Arc::clone(&config.log));
    config.time = Arc::new(SteadyTime::new(source, store.clone(), log));
}

/// Bounds what may be open by what this process may open, each part by itself, so that the log
/// always has descriptors.
fn share_descriptors(config: &mut ServerConfig) {
    let plan = DescriptorPlan::of_process();
    config.loops.bound_connections(plan.connections);
    let blobs = &mut config.blobs;
    blobs.open_uploads = blobs.open_uploads.min(plan.uploads);
    blobs.open_contents = blobs.open_contents.min(plan.contents);
    if let Storage::Folder {
        trees: Some(trees), ..
    } = &mut config.storage
    {
        plan.bound_tables(&mut trees.config);
    }
}

impl Server {
    /// Where it listens, in the order of the configuration, with the ports that the system chose.
    pub fn addresses(&self) -> &[Address] {
        self.loops.addresses()
    }

    /// Reads what its loops count of sockets and buffers, from any thread.
    pub fn counters(&self) -> CountersReader {
        self.loops.counters()
    }

    /// Asks its loops for a sign of life, from any thread.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Stops it from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.loops.stop_handle()
    }

    /// What all its calls share: the store, the health of the services.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.parts.shared
    }

    /// Returns the way to the databases, if they are elsewhere.
    pub fn remote(&self) -> Option<&Arc<RemoteStore>> {
        self.parts.remote.as_ref()
    }

    /// What the log in the data folder held, if there is one.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// What its folder of blobs held, if there is one.
    pub fn blobs_found(&self) -> Option<&store::blob::FoundBlobs> {
        self.blobs_found.as_ref()
    }

    /// How many folders of databases on disk nothing named, which were set aside.
    pub fn trees_set_aside(&self) -> u64 {
        self.trees_set_aside
    }

    /// Returns whether the first administrator's token was made.
    pub fn first_admin(&self) -> &FirstAdmin {
        &self.first_admin
    }

    /// Serves until it is stopped, and leaves the log closed. Returns whether everything that ran
    /// had ended by itself.
    ///
    /// # Errors
    /// If threads or signal handlers could not be had, or the log could not be closed.
    pub fn run(self) -> Result<RunEnd, ServeError> {
        let parts = self.parts;
        let (durable, tasks) = (parts.durable.clone(), Arc::clone(&parts.tasks));
        let (readers, remote) = (parts.readers.clone(), parts.remote.clone());
        let (pulse, of_loops) = (self.pulse.clone(), self.pulse);
        let ended = self.loops.run(move |start| {
            of_loops.begin(start);
            let waker = Arc::clone(&start.waker);
            Box::new(parts.loop_handler(Box::new(move || waker.wake()), role(start)))
        });
        pulse.end();
        readers.stop();
        if let Some(remote) = remote {
            remote.backend().stop();
        }
        // What the ends of uploads have left to do.
        self.blob_threads.stop();
        // What is large takes minutes, and the log is all that a start needs.
        if let Some(durable) = &durable {
            durable.end_snapshots();
        }
        // The call that asked for it has ended with its loop. It needs the log until then.
        tasks.stop();
        if let Some(durable) = durable {
            durable.stop().map_err(ServeError::Log)?;
        }
        ended.map_err(ServeError::Loops)
    }
}

/// Why a server stopped serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Threads or signal handlers could not be had.
    #[error("{0}")]
    Loops(RunError),
    /// The last of the log could not be written.
    #[error("the log could not be closed: {0}")]
    Log(WriteError),
}

/// A server without sockets and threads, for simulations: the part of one loop, and what stands
/// behind it.
pub struct Simulated<H> {
    /// The part of the loop.
    pub handler: H,
    /// What the committer's thread would do, for whoever runs the simulation to call. `None`: all
    /// is volatile.
    pub commit_loop: Option<CommitLoop>,
    /// What its calls share: the store, the identities.
    pub shared: Arc<Shared>,
    /// What the log held, if there is one.
    pub recovered: Option<Recovered>,
}

/// A server without sockets and threads. `waker` is called when the commit loop has left outcomes
/// for the handler, which then needs a tick.
///
/// # Errors
/// If the data folder cannot be used, or the limits of the default database make no sense together.
pub fn simulated(
    mut config: ServerConfig,
    waker: CommitWaker,
) -> Result<Simulated<impl net::Handler>, StartError> {
    let OpenStorage {
        store,
        remote,
        committer,
        recovered,
        blobs: _,
        trees_set_aside: _,
    } = storage::open(&config)?;
    keep_time_steady(&mut config, &store);
    let waker: SharedWaker = waker.into();
    let for_mail = Arc::clone(&waker);
    let commit_loop = committer.map(CommitLoop::new);
    let register = |commit_loop: &CommitLoop| commit_loop.register(Box::new(move || for_mail()));
    let mailbox = commit_loop.as_ref().map(register);
    let readers = Readers::Inline(store.clone());
    let account = Account::new(account_bytes(&config));
    let stores = (store, None, remote);
    let parts = ServerParts::new(config, account, DeferredDrop::Inline, readers, stores);
    Ok(Simulated {
        shared: Arc::clone(&parts.shared),
        handler: parts.loop_handler_with(mailbox, waker, LoopRole::Connections),
        commit_loop,
        recovered,
    })
}

/// Asks a loop for a tick, from any thread.
type SharedWaker = Arc<dyn Fn() + Send + Sync>;

impl ServerParts {
    fn new(
        config: ServerConfig,
        account: Arc<Account>,
        deferred_drop: DeferredDrop,
        readers: Readers,
        (store, durable, remote): (Store, Option<Arc<Durable>>, Option<Arc<RemoteStore>>),
    ) -> ServerParts {
        let http2 = settings::http2(&config);
        let buffered_limit = account_bytes(&config);
        let mut figures = Figures::new(config.time.monotonic_ns());
        figures.watch_buffers(account.counter(), buffered_limit);
        figures.watch_evictions(account.evicted());
        if let Readers::Pool(pool) = &readers {
            figures.watch_readers(pool.figures());
        }
        let shared = Shared {
            identities: identities(&store, &config),
            store,
            server: config.server,
            health: Registry::of_served(&config.services),
            draw_token: config.draw_token,
            waiting: WaitingCalls::new(service::limits::WAITING_CALLS_MAX),
            figures,
            answer_bytes_max: answer_bytes_max(account.limit_bytes()),
            settings: config.services,
            following: config.following,
        };
        let jobs = StorageJobs {
            store: shared.store.clone(),
            durable: durable.clone(),
            root: config.backup_root,
            data: config.data,
            time: Arc::clone(&config.time),
            server: format!("{} {}", config.server.name, config.server.version),
            log: Arc::clone(&config.log),
        };
        ServerParts {
            tasks: Tasks::new(
                Box::new(jobs),
                Arc::clone(&config.time),
                Arc::clone(&config.log),
            ),
            settings: Arc::new(LoopSettings {
                http2,
                about_body: greeting(&config.server, &shared.settings).into(),
                about: greeting(&config.server, &shared.settings),
                drain_ms: config.loops.drain_ms,
                log: config.log,
                time_calls: config.time_calls,
                slow_calls: config.slow_calls.map(slow_call_record::SlowCallLog::new),
                spans: config.spans.map(spans::Spans::new),
            }),
            shared: Arc::new(shared),
            account,
            wrong_tokens: Arc::default(),
            long_requests: Arc::default(),
            audit: Arc::default(),
            time: config.time,
            deferred_drop,
            readers,
            durable,
            remote,
        }
    }

    /// A loop's part; `waker` asks the loop for a tick, from any thread.
    fn loop_handler(&self, waker: CommitWaker, role: LoopRole) -> LoopHandler {
        let waker: SharedWaker = waker.into();
        let for_mail = Arc::clone(&waker);
        let register = |durable: &Arc<Durable>| durable.register(Box::new(move || for_mail()));
        let mailbox = self.durable.as_ref().map(register);
        self.loop_handler_with(mailbox, waker, role)
    }

    /// A loop's part, with its mailbox to and from the committer of the durable databases, if
    /// there is one.
    fn loop_handler_with(
        &self,
        mailbox: Option<Mailbox>,
        waker: SharedWaker,
        role: LoopRole,
    ) -> LoopHandler {
        let remote = self.remote.as_ref().map(|remote| {
            let looks = role != LoopRole::OneConnection;
            let requests = RemoteRequests::new(Arc::clone(remote), Arc::clone(&waker), looks);
            Box::new(requests)
        });
        let parts = LoopParts {
            readers: LoopReaders::new(self.readers.clone(), Arc::clone(&waker)),
            deferred_drop: self.deferred_drop.clone(),
            mailbox,
            remote,
            blobs: LoopBlobs::new(self.shared.store.blobs().cloned(), Arc::clone(&waker)),
            tasks: LoopTasks::new(Arc::clone(&self.tasks), Arc::clone(&waker)),
            waker,
            wrong_tokens: Arc::clone(&self.wrong_tokens),
            long_requests: Arc::clone(&self.long_requests),
            audit: Arc::clone(&self.audit),
        };
        let admission = Admission::new(Arc::clone(&self.account));
        LoopHandler::new(LoopState::new(
            Arc::clone(&self.settings),
            Arc::clone(&self.shared),
            LoopClock::new(Arc::clone(&self.time), self.shared.store.clone()),
            admission,
            parts,
            role,
        ))
    }
}

/// What a loop is there for.
fn role(start: &LoopStart) -> LoopRole {
    match start {
        LoopStart { is_door: true, .. } => LoopRole::Door,
        LoopStart {
            one_connection: true,
            ..
        } => LoopRole::OneConnection,
        _ => LoopRole::Connections,
    }
}

/// What all peers may make the server hold.
fn account_bytes(config: &ServerConfig) -> usize {
    let bytes = config.memory_limit_bytes / limits::BUFFERED_BYTES_SHARE;
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// What one answer may take of the account: others' calls go on beside it.
fn answer_bytes_max(account_bytes: usize) -> u64 {
    (account_bytes as u64 / limits::ANSWER_SHARE).clamp(ANSWER_BYTES, ANSWER_BYTES_MAX)
}

#[cfg(test)]
#[test]
fn an_answer_has_a_share_of_the_account() {
    for (account_bytes, expected) in [
        (0, 4 << 20),
        (8 << 20, 4 << 20),
        (32 << 20, 16 << 20),
        (128 << 20, 64 << 20),
        (usize::MAX, 64 << 20),
    ] {
        assert_eq!(answer_bytes_max(account_bytes), expected, "{account_bytes}");
    }
}
