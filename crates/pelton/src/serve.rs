//! `pelton serve`

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use net::{Address, BindError, Listen, LoopConfig};
use ring::rand::{SecureRandom, SystemRandom};
use rustix::process::{Resource, getrlimit};
use rustix::thread::CpuSet;
use server::{Config, Server, StartError, Storage, TimeSource};
use service::identities::TokenKey;
use service::rights::{Grant, Rights, Scope};
use service::settings::names::Names;
use service::settings::simulate::Simulator;
use service::settings::{GuploadSettings, KvstoreSettings};
use service::{ServerInfo, ServiceSettings};

use store::backup::BackupRoot;
use store::blob::{BlobConfig, Found};
use store::durable::{FolderError, OpenError, TREES_FOLDER, TreePlace};
use store::limits::SET_ASIDE_MS;
use store::snapshot::ReadError;
use store::tree::TreeConfig;
use store::{DatabaseId, SET_ASIDE_FOLDER, Store};
use wal::{LogConfig, LogId, Recovered};

use crate::activity;
use crate::arguments::{CpuList, Driver, KindArgument, ServeArguments};
use crate::certificate::ServerCertificate;
use crate::durability::Durability;
use crate::exit::{Exit, Failure};
use crate::limits::{
    GIVE_BACK_AT_ONCE_BELOW_BYTES, HUGE_PAGES_FROM_BYTES, MEMTABLES_IN_MEMORY_LIMIT,
    METRICS_CONNECTION_MS,
};
use crate::listen::{Anonymous, ListenAddress};
use crate::log::Level;
use crate::memory::{self, Bound as MemoryBound};
use crate::metrics::{Bound, Endpoint, MetricsAddress, Sources};
use crate::notify::Notifier;
use crate::output::counted;
use crate::reload;
use crate::server_log::ServerLog;
use crate::settings::{Settings, warning_of_variables};
use crate::size::{MemoryLimit, Size};
use crate::start;
use crate::start_signals::StartSignals;
use crate::time_source::SystemTimeSource;
use crate::watchdog::{self, Watchdog};

const MS_PER_DAY: u64 = 24 * 60 * 60 * 1000;

/// The memory limit where it cannot be found out what this process may use.
const UNKNOWN_MEMORY_LIMIT_BYTES: u64 = 1 << 30;

const INFO: ServerInfo = ServerInfo {
    name: "pelton",
    version: env!("CARGO_PKG_VERSION"),
};

/// Runs a server until it is stopped. `signals` end the program until it serves.
pub fn serve(arguments: &ServeArguments, signals: StartSignals) -> Result<Exit, Failure> {
    let (settings, _) = Settings::load(arguments)?;
    check_start(&settings)?;
    let level = crate::log::start(settings.log_level, settings.log_format);
    log_settings(&settings);
    let notifier = Notifier::from_environment().map_err(|error| {
        Failure::Failed(format!(
            "cannot reach the service manager (NOTIFY_SOCKET): {error}"
        ))
    })?;
    let notifier = Arc::new(notifier);
    let memory_limit_bytes = prepare_memory(&settings)?;
    let had_folder = settings.folder().is_some_and(Path::exists);
    let metrics = settings.metrics_listen.as_ref().map(bind_metrics);
    let metrics = metrics.transpose()?;
    let certificate = ServerCertificate::load(&settings)?;
    let config = config(
        &settings,
        memory_limit_bytes,
        &notifier,
        certificate.as_ref(),
    )?;
    let starting = start::watch(settings.folder());
    let started = server::start(config);
    drop(starting);
    let server = started.map_err(|error| {
        if !had_folder {
            leave_no_empty_folder(&settings);
        }
        start_failure(&error)
    })?;
    check_open(&settings, !server.shared().identities.all().is_empty())?;
    signals.pass_on();
    let metrics_address = metrics.as_ref().map(Bound::address);
    let _metrics = metrics
        .map(|bound| serve_metrics(bound, &server, certificate.as_ref()))
        .transpose()?;
    // Who reads where the server listens may send signals.
    activity::watch(&server).map_err(|error| {
        Failure::Failed(format!(
            "a thread that watches memory cannot be had: {error}"
        ))
    })?;
    let told = (arguments, &settings, certificate.as_ref());
    let _watchdog = tell_manager(told, &server, level, notifier)?;
    announce(
        &settings,
        memory_limit_bytes,
        &server,
        metrics_address,
        certificate.as_ref(),
    );
    if settings.driver == Driver::Blocking {
        tracing::info!(
            "one thread per connection: {} calls compute at once (--threads)",
            settings.threads
        );
    }
    if let Some(recovered) = server.recovered() {
        say_recovered(recovered);
    }
    if let Some(found) = server.blobs_found() {
        say_blobs_found(found);
    }
    say_trees_set_aside(server.trees_set_aside());
    warn(&settings, server.addresses(), metrics_address);
    warn_of_kvstore_database(&settings.kvstore_database, &server.shared().store);
    run(server)
}

/// Bounds what the process takes of memory, before there are threads. Returns the limit.
fn prepare_memory(settings: &Settings) -> Result<u64, Failure> {
    memory::check_address_space(Path::new("/")).map_err(Failure::Failed)?;
    allocator::share_arena_of_c_library();
    let memory_limit_bytes = memory_limit_bytes(settings.memory_limit);
    if settings.driver == Driver::Blocking || memory_limit_bytes < HUGE_PAGES_FROM_BYTES {
        memory::forgo_huge_pages();
    }
    if memory_limit_bytes < GIVE_BACK_AT_ONCE_BELOW_BYTES {
        allocator::give_back_at_once();
    }
    Ok(memory_limit_bytes)
}

/// Serves until the server is stopped, and reports how it ended.
fn run(server: Server) -> Result<Exit, Failure> {
    let store = server.shared().store.clone();
    let ended = server
        .run()
        .map_err(|error| Failure::Failed(format!("the server stopped: {error}")))?;
    if (store.log_statistics()).is_some_and(|log| log.has_failed) {
        let why =
            "stopped with a log that had failed: writes were refused since then, as the log says";
        return Err(Failure::Failed(why.into()));
    }
    if ended.drained {
        tracing::info!("stopped; every call was answered or ended with a status");
        return Ok(Exit::Done);
    }
    let why = match ended.hurried {
        true => "stopped at once, as a second signal asked: calls that still ran were cut",
        false => "stopped before all calls had ended: they were cut when --drain-timeout was over",
    };
    Err(Failure::Failed(why.into()))
}

/// Checks what can be known before anything is begun.
fn check_start(settings: &Settings) -> Result<(), Failure> {
    check_pin(settings)?;
    match settings.folder().is_some_and(Path::exists) {
        true => Ok(()),
        // Tokens are kept there.
        false => check_open(settings, false),
    }
}

/// Checks that this process may use the CPUs of `--pin`. Where the system does not say, the loops
/// will.
fn check_pin(settings: &Settings) -> Result<(), Failure> {
    let Ok(usable) = rustix::thread::sched_getaffinity(None) else {
        return Ok(());
    };
    let is_usable = |cpu: usize| cpu < CpuSet::MAX_CPU && usable.is_set(cpu);
    let Some(cpu) = settings.pin.0.iter().copied().find(|&cpu| !is_usable(cpu)) else {
        return Ok(());
    };
    let all = CpuList((0..CpuSet::MAX_CPU).filter(|&cpu| is_usable(cpu)).collect());
    Err(Failure::Usage(format!(
        "pin names CPU {cpu}, which is not possible: this process may use {all} (see pelton serve \
         --help)"
    )))
}

/// Puts into the log what the server runs with, at level debug, and what looks like a setting and
/// is none.
fn log_settings(settings: &Settings) {
    for (name, value) in settings.lines() {
        match value {
            Some(value) => tracing::debug!("setting {name} = {value}"),
            None => tracing::debug!("setting {name} is not set"),
        }
    }
    if let Some(warning) = warning_of_variables() {
        tracing::warn!("{warning}");
    }
}

/// Tells the service manager that the server is ready, and what it wants to hear from then on.
fn tell_manager(
    (arguments, settings, certificate): (&ServeArguments, &Settings, Option<&ServerCertificate>),
    server: &Server,
    level: Level,
    notifier: Arc<Notifier>,
) -> Result<Option<Watchdog>, Failure> {
    let addresses: Vec<_> = server.addresses().iter().map(Address::to_string).collect();
    let status = format!("serving on {}", addresses.join(", "));
    let failed = |error| Failure::Failed(format!("a thread or signal cannot be had: {error}"));
    let watchdog = watchdog::start(&notifier, server.pulse()).map_err(failed)?;
    let (to_tell, to_say) = (Arc::clone(&notifier), status.clone());
    let certificate_too = certificate.cloned();
    if arguments.config.is_none() && certificate.is_none() {
        reload::stop_on_hangup(server.stop_handle()).map_err(failed)?;
    } else {
        reload::on_hangup(arguments, settings, level, to_tell, to_say, certificate_too)
            .map_err(failed)?;
    }
    certificate
        .map_or(Ok(()), ServerCertificate::watch)
        .map_err(failed)?;
    notifier.ready(&status);
    Ok(watchdog)
}

fn bind_metrics(address: &MetricsAddress) -> Result<Bound, Failure> {
    Bound::bind(address).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "another process listens there".into(),
            _ => error.to_string(),
        };
        Failure::Failed(format!(
            "cannot serve metrics on {address}: {why}; --metrics-listen says where"
        ))
    })
}

fn serve_metrics(
    bound: Bound,
    server: &Server,
    certificate: Option<&ServerCertificate>,
) -> Result<Endpoint, Failure> {
    let sources = Sources {
        shared: Arc::clone(server.shared()),
        counters: server.counters(),
        tls: certificate.map(|certificate| certificate.tls().clone()),
        start_s: SystemTimeSource.wall_ms() / 1_000,
    };
    let timeout = Duration::from_millis(METRICS_CONNECTION_MS);
    bound
        .serve(Arc::new(move || sources.page()), timeout)
        .map_err(|error| {
            Failure::Failed(format!("a thread for metrics cannot be started: {error}"))
        })
}

fn memory_limit_bytes(limit: MemoryLimit) -> u64 {
    let percent = match limit {
        MemoryLimit::Bytes(size) => {
            if let Some((allowed, bound)) = memory::allowed_bytes(Path::new("/"))
                && size.0 > allowed
            {
                tracing::warn!(
                    "--memory-limit {size} is more than {}, {bound}: the system may end the server \
                     before its own limit is reached",
                    Size::rounded(allowed)
                );
            }
            return size.0;
        }
        MemoryLimit::Percent(percent) => percent,
    };
    match memory::allowed_bytes(Path::new("/")) {
        Some((allowed, bound)) => {
            let limit = allowed / 100 * u64::from(percent);
            let (shown, of) = (Size::rounded(limit), Size::rounded(allowed));
            match bound {
                MemoryBound::Machine => {
                    tracing::debug!("memory for data: {shown}, {percent}% of {of}, {bound}")
                }
                _ => {
                    tracing::info!("memory for data: {shown}, {percent}% of {of}, which is {bound}")
                }
            }
            limit
        }
        None => {
            tracing::warn!(
                "cannot find out how much memory there is: limiting data to {}; --memory-limit \
                 says otherwise",
                Size(UNKNOWN_MEMORY_LIMIT_BYTES)
            );
            UNKNOWN_MEMORY_LIMIT_BYTES
        }
    }
}

fn config(
    settings: &Settings,
    memory_limit_bytes: u64,
    notifier: &Arc<Notifier>,
    certificate: Option<&ServerCertificate>,
) -> Result<Config, Failure> {
    let size = |size: Size| usize::try_from(size.0).expect("checked: far below what a usize holds");
    let window =
        |size: Size| u32::try_from(size.0).expect("checked: HTTP/2's windows have 31 bits");
    Ok(Config {
        loops: LoopConfig {
            listen: listeners(settings, certificate),
            driver: settings.driver.into(),
            threads: settings.threads,
            pin: settings.pin.0.clone(),
            max_connections: settings.max_connections,
            max_connections_per_address: settings.max_connections_per_address,
            limit_loopback: settings.limit_loopback,
            tcp_send_buffer: settings.tcp_send_buffer.map(size),
            tcp_receive_buffer: settings.tcp_receive_buffer.map(size),
            unix_mode: settings.unix_mode.0,
            write_stall_ms: settings.write_stall_timeout.ms,
            drain_ms: settings.drain_timeout.ms,
            handle_signals: true,
            notices: Arc::new(ServerLog(Arc::clone(notifier))),
            give_back: allocator::give_back,
            ..LoopConfig::default()
        },
        server: INFO,
        memory_limit_bytes,
        max_value_bytes: size(settings.max_value),
        max_streams: settings.max_streams,
        stream_window: settings.stream_window.map(window),
        connection_window: settings.connection_window.map(window),
        services: ServiceSettings {
            interop: settings.interop,
            kvstore: KvstoreSettings {
                database: settings.kvstore_database.as_str().into(),
                simulator: (settings.simulate)
                    .map(|setting| Simulator::new(setting.0, memory_limit_bytes)),
            },
            gupload: GuploadSettings {
                discard: settings.discard_uploads,
                names: Names::new(random()),
            },
        },
        anonymous: anonymous(settings),
        token_key: TokenKey::new(&random_bytes()?),
        hash_seed: random(),
        time: Arc::new(SystemTimeSource),
        log: Arc::new(ServerLog(Arc::clone(notifier))),
        storage: storage(settings, memory_limit_bytes)?,
        blobs: BlobConfig {
            quota_bytes: settings.blob_quota.map_or(u64::MAX, |quota| quota.0),
            abandoned_ms: settings.keep_uploads.ms,
            ..BlobConfig::default()
        },
        backup_root: backup_root(settings)?,
        time_calls: settings.metrics_listen.is_some(),
    })
}

fn listeners(settings: &Settings, certificate: Option<&ServerCertificate>) -> Vec<Listen> {
    let listen = |one: &ListenAddress| Listen {
        address: one.address.clone(),
        tls: certificate
            .filter(|_| one.has_tls(true))
            .map(|certificate| certificate.tls().clone()),
    };
    settings.addresses().iter().map(listen).collect()
}

/// What callers without a token may do, by listener. If nothing was said: everything on this
/// machine, nothing from elsewhere.
fn anonymous(settings: &Settings) -> Vec<Rights> {
    let is_of_network = |listen: &ListenAddress| is_of_network(listen, settings);
    let rights = |listen: &ListenAddress| match listen.anonymous() {
        Some(anonymous) => anonymous.rights(),
        None if is_of_network(listen) => Rights::default(),
        None => Rights::everything(),
    };
    settings.addresses().iter().map(rights).collect()
}

fn is_of_network(listen: &ListenAddress, settings: &Settings) -> bool {
    Reach::of(&listen.address, settings.unix_mode.0) == Reach::Network
}

/// Refuses to listen where everybody may come, nobody can prove who it is, and nothing was said of
/// those who cannot.
fn check_open(settings: &Settings, has_tokens: bool) -> Result<(), Failure> {
    let addresses = settings.addresses();
    let is_open = |one: &&ListenAddress| one.anonymous().is_none() && is_of_network(one, settings);
    let Some(address) = addresses.iter().find(is_open).filter(|_| !has_tokens) else {
        return Ok(());
    };
    Err(Failure::Failed(format!(
        "{address} can be reached from the network, and there is no token yet: nobody could call \
         it. Either make the first token, an administrator's:\n    \
         pelton serve --listen {address} --init-admin\n\
         or say what callers without a token may do there (none, read, write, read:DATABASE, \
         service:kvstore; see pelton serve --help):\n    \
         pelton serve --listen {address}+anonymous=write"
    )))
}

/// Random bytes for a secret.
fn random_bytes() -> Result<[u8; 32], Failure> {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Failure::Failed("the system gives no random bytes".into()))?;
    Ok(bytes)
}

/// The standard library's hasher is seeded by the system; what it makes of nothing is as random.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn storage(settings: &Settings, memory_limit_bytes: u64) -> Result<Storage, Failure> {
    let Some(folder) = settings.folder() else {
        return Ok(Storage::Volatile {
            history_id: random(),
        });
    };
    check_file_size(settings.log_segment.0)?;
    let disk = store::durable::open_folder(folder).map_err(|error| folder_failure(&error))?;
    let log_id = LogId {
        history: random(),
        secret: random(),
    };
    Ok(Storage::Folder {
        disk,
        log: LogConfig {
            segment_bytes: settings.log_segment.0,
            accept_loss: settings.accept_loss,
            progress: Some(start::progress()),
            ..LogConfig::new(log_id, SystemTimeSource.wall_ms())
        },
        trees: Some(TreePlace {
            folder: folder.join(TREES_FOLDER),
            config: TreeConfig {
                cache_bytes: settings.disk_cache.0,
                // Several of them must fit beside the databases in memory.
                memtable_bytes: TreeConfig::default()
                    .memtable_bytes
                    .min(memory_limit_bytes / MEMTABLES_IN_MEMORY_LIMIT),
                ..TreeConfig::default()
            },
        }),
        durability: match settings.durability {
            Durability::Synced => store::Durability::Synced,
            Durability::Interval(span) => store::Durability::Interval { ms: span.ms },
            Durability::Written => store::Durability::Written,
            Durability::Volatile => store::Durability::Volatile,
        },
        kind: settings.kind.map(store::Kind::from),
    })
}

fn backup_root(settings: &Settings) -> Result<Option<BackupRoot>, Failure> {
    let Some(path) = &settings.backup_root else {
        return Ok(None);
    };
    let root = BackupRoot::open(path).map_err(|error| {
        Failure::Failed(format!(
            "the folder for backups {} cannot be used: {error}; --backup-root says which folder",
            path.display()
        ))
    });
    root.map(Some)
}

/// The folder is made before it is known whether the server can start. Removes it if it is empty.
fn leave_no_empty_folder(settings: &Settings) {
    if let Some(folder) = settings.folder() {
        let _ = std::fs::remove_dir(folder);
    }
}

fn folder_failure(error: &FolderError) -> Failure {
    Failure::Failed(format!(
        "{error}; --data says which folder, --durability volatile does without one"
    ))
}

/// Says why the server did not start, and which flag helps.
fn start_failure(error: &StartError) -> Failure {
    let advice = match error {
        StartError::Bind(BindError::InUse {
            address: Address::Tcp { host, port },
        }) => format!(
            "; choose another port with --listen {}, or stop the other process (ss -ltnp 'sport = \
             :{port}' shows it)",
            Address::Tcp {
                host: host.clone(),
                port: port.wrapping_add(1).max(1024)
            }
        ),
        StartError::Bind(BindError::InUse { .. }) => {
            "; choose another path with --listen unix:/path".into()
        }
        StartError::Bind(_) => "; --listen says where to listen".into(),
        StartError::Open(OpenError::Folder(error)) => return folder_failure(error),
        StartError::Open(OpenError::Log(wal::OpenError::Damaged { .. })) => {
            "; nothing was changed. --accept-loss starts with what is whole, and gives up the rest"
                .into()
        }
        StartError::Open(OpenError::Orphans { .. }) => format!(
            "; nothing was changed. --accept-loss starts without them, and moves them into the \
             folder {SET_ASIDE_FOLDER} of the data folder"
        ),
        StartError::Open(OpenError::Database { error, .. }) if error.can_be_given_up() => format!(
            "; nothing was changed. --accept-loss starts without what is in such a database: its \
             folder alone is moved into the folder {SET_ASIDE_FOLDER} of the data folder, and it \
             begins anew with what the log still has of it"
        ),
        StartError::Open(OpenError::Snapshot(ReadError::Damaged { .. })) => {
            "; nothing was changed. Put a whole copy of the file back, or restore a backup".into()
        }
        StartError::OtherKind(kind) => {
            let wanted = match kind {
                store::Kind::Memory => KindArgument::Disk,
                _ => KindArgument::Memory,
            };
            format!(
                "; nothing was changed. Start without --kind, then `pelton database convert --kind \
                 {wanted}` converts it while the server runs"
            )
        }
        _ => String::new(),
    };
    Failure::Failed(format!("{error}{advice}"))
}

/// Says on standard output what listens where, who can reach it, and what is stored how. Scripts
/// read the lines that begin with `listening on`. That nobody reads them is no reason to stop.
fn announce(
    settings: &Settings,
    memory_limit_bytes: u64,
    server: &Server,
    metrics: Option<SocketAddr>,
    certificate: Option<&ServerCertificate>,
) {
    let mut text = format!("{} {}\n", INFO.name, INFO.version);
    for (address, listen) in server.addresses().iter().zip(&settings.addresses()) {
        let reach = Reach::of(address, settings.unix_mode.0);
        let spoken = match listen.has_tls(certificate.is_some()) {
            true => "HTTP/2 and gRPC with TLS",
            false => "plain HTTP/2 and gRPC",
        };
        let may = match (listen.anonymous(), reach) {
            (Some(anonymous), _) => format!("; without a token: {anonymous}"),
            (None, Reach::Network) => "; without a token: none".to_owned(),
            (None, _) => String::new(),
        };
        text.push_str(&format!(
            "listening on {address} ({spoken}): {reach}{may}\n"
        ));
    }
    if let Some(made) = certificate.and_then(|certificate| certificate.self_signed.as_ref()) {
        text.push_str(&format!(
            "certificate for a first try: clients trust it by {} (SHA-256 {}), such as pelton \
             status --tls-ca {}\n",
            made.authority.display(),
            made.fingerprint,
            made.authority.display()
        ));
    }
    if let Some(address) = metrics {
        text.push_str(&format!("metrics at http://{address}/metrics\n"));
    }
    let share = match settings.memory_limit {
        MemoryLimit::Percent(percent) => format!(" ({percent}% of what this process may use)"),
        MemoryLimit::Bytes(_) => String::new(),
    };
    let default_database = server.shared().store.config(DatabaseId::DEFAULT);
    let (place, of_what) = match default_database.map(|config| config.kind) {
        Some(store::Kind::Disk) => ("on disk", " of memory"),
        _ => ("in memory", ""),
    };
    text.push_str(&format!(
        "storing {place}, {}; at most {}{of_what}{share}\n",
        promise(settings),
        Size::rounded(memory_limit_bytes)
    ));
    if settings.discard_uploads {
        text.push_str("uploads of gupload are thrown away (--discard-uploads)\n");
    }
    let mut stdout = std::io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// What the default database promises, and where its log is.
fn promise(settings: &Settings) -> String {
    let words = match settings.durability {
        Durability::Synced => "a write is answered when it is on the device".into(),
        Durability::Interval(span) => {
            format!("a power loss may take the writes of the last {span}")
        }
        Durability::Written => "writes survive the end of the server, not a power loss".into(),
        Durability::Volatile => "everything is lost when the server stops".into(),
    };
    let durability = settings.durability;
    match settings.folder() {
        None => format!("{durability}: {words}"),
        Some(folder) if durability == Durability::Volatile => format!(
            "{durability}: {words}, but what is in other databases (log in {})",
            folder.display()
        ),
        Some(folder) => format!("log in {}, {durability}: {words}", folder.display()),
    }
}

/// Puts into the log what was found in the data folder.
fn say_recovered(recovered: &Recovered) {
    let Recovered {
        records,
        last_sequence,
        ..
    } = recovered;
    if let Some(loss) = &recovered.loss {
        tracing::warn!("a part of the log was given up, as --accept-loss says: {loss}");
    }
    let records = counted(*records, "record", "records");
    if recovered.created {
        tracing::info!("the data folder is new");
    } else if recovered.closed {
        tracing::info!(
            "read {records} from the log, up to sequence {last_sequence}; the last stop was clean"
        );
    } else {
        tracing::info!(
            "read {records} from the log, up to sequence {last_sequence}; the last stop was not \
             clean"
        );
    }
}

/// Puts into the log how many folders of databases on disk nothing names.
fn say_trees_set_aside(count: u64) {
    if count > 0 {
        tracing::warn!(
            "neither the log nor a snapshot names {count} folders in the folder of databases on \
             disk, or there are files of others in them: such as a crash leaves of one that was \
             being made, or of a log of which a part was given up, or copies that somebody has put \
             there; they were moved into the folder `{SET_ASIDE_FOLDER}` of the data folder, and \
             are removed after {} days",
            SET_ASIDE_MS / MS_PER_DAY
        );
    }
}

/// Puts into the log what was found in the folder of blobs.
fn say_blobs_found(found: &Found) {
    let Found {
        blobs,
        unfinished,
        set_aside,
        expired,
        missing,
        missing_names,
    } = found;
    if blobs + unfinished > 0 {
        let blobs = counted(*blobs, "blob", "blobs");
        let uploads = counted(*unfinished, "unfinished upload", "unfinished uploads");
        tracing::info!("found {blobs} and {uploads}");
    }
    if *set_aside > 0 {
        tracing::warn!(
            "nothing names {set_aside} files of the folder `blobs`: such as a crash leaves of \
             uploads that were not complete, or of blobs that were being removed; they were moved \
             into the folder `{SET_ASIDE_FOLDER}` of the data folder, and are removed after {} \
             days",
            SET_ASIDE_MS / MS_PER_DAY
        );
    }
    if *expired > 0 {
        tracing::info!("removed {expired} files or folders that had been set aside long ago");
    }
    if *missing > 0 {
        let more = match *missing > missing_names.len() as u64 {
            true => " and others",
            false => "",
        };
        tracing::error!(
            "{missing} blobs have no content: their files in the folder `blobs` of the data folder \
             are gone, removed by somebody else: {missing_names:?}{more}; reading them fails with \
             DATA_LOSS; upload them again, delete them, or restore a backup"
        );
    }
}

/// Bytes of the largest file that this process may make; `None`: any.
fn largest_file_bytes() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Fails if this process may not even make the files of the log.
fn check_file_size(segment_bytes: u64) -> Result<(), Failure> {
    match largest_file_bytes() {
        Some(bytes) if bytes < segment_bytes => Err(Failure::Failed(format!(
            "this process may make no file of more than {bytes} bytes (`ulimit -f`, `LimitFSIZE=` \
             of systemd), and a file of the log has {segment_bytes}: raise that limit, or lower \
             --log-segment"
        ))),
        _ => Ok(()),
    }
}

/// Puts into the log what an operator should know.
fn warn(settings: &Settings, addresses: &[Address], metrics: Option<SocketAddr>) {
    if settings.max_value.0 > store::limits::VALUE_BYTES as u64 {
        tracing::warn!(
            "--max-value {} is above {} bytes: clients refuse messages above 4 MiB unless they are \
             set up to receive more, so that they may not be able to read what they have stored",
            settings.max_value,
            store::limits::VALUE_BYTES
        );
    }
    if let Some(bytes) = largest_file_bytes().filter(|_| settings.folder().is_some()) {
        tracing::warn!(
            "this process may make no file of more than {bytes} bytes (`ulimit -f`, `LimitFSIZE=` \
             of systemd): larger blobs, snapshots, backups and tables of databases on disk fail"
        );
    }
    for (address, listen) in addresses.iter().zip(settings.addresses()) {
        warn_of_listener(settings, address, &listen);
    }
    if let Some(address) = metrics.filter(|address| !address.ip().is_loopback()) {
        tracing::warn!(
            "whoever can reach {address} can read the metrics, with the names of all databases: \
             there is no access control"
        );
    }
}

/// Puts into the log what the network may do through a listener without a token, and that tokens
/// could be seen on their way.
fn warn_of_listener(settings: &Settings, address: &Address, listen: &ListenAddress) {
    if Reach::of(address, settings.unix_mode.0) != Reach::Network {
        return;
    }
    let has_tls = listen.has_tls(settings.certificate().is_some());
    // Who must show a certificate of an authority that the operator has named is not everybody.
    let is_guarded = settings.client_ca.is_some() && has_tls;
    let grants = listen.anonymous().map_or(&[][..], Anonymous::grants);
    for grant in grants.iter().filter(|_| !is_guarded) {
        match grant {
            Grant::DropIn(service) => tracing::warn!(
                "whoever can reach {address} can do without a token all that the drop-in service \
                 {} does: its original clients can send none",
                service.name()
            ),
            Grant::In(right, Scope::Server) => tracing::warn!(
                "whoever can reach {address} has the right to {} everything there, without a token",
                right.name()
            ),
            Grant::In(..) => tracing::warn!(
                "whoever can reach {address} has the right `{grant}` there, without a token"
            ),
        }
    }
    if !has_tls {
        tracing::warn!(
            "what is sent to {address} goes in plain text, tokens too: --tls-cert gives it TLS"
        );
    }
}

/// Says that the calls of the key-value example will be refused until somebody makes a database.
fn warn_of_kvstore_database(name: &str, store: &Store) {
    let is_there = store.databases().iter().any(|one| one.name == name);
    if !is_there {
        tracing::warn!(
            "there is no database `{name}`, which --kvstore-database names: all calls of \
             io.grpc.KeyValueService fail until `pelton database create {name}` makes it"
        );
    }
}

/// Who can reach an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    User,
    Group,
    Machine,
    Network,
}

impl Reach {
    fn of(address: &Address, unix_mode: u32) -> Reach {
        let is_loopback = |host: &str| match host.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback(),
            // A name can stand for several addresses; all of them have to be this machine's own.
            Err(_) => (host, 0)
                .to_socket_addrs()
                .is_ok_and(|mut addresses| addresses.all(|address| address.ip().is_loopback())),
        };
        match address {
            Address::Tcp { host, .. } if is_loopback(host) => Reach::Machine,
            Address::Tcp { .. } => Reach::Network,
            Address::Unix(_) if unix_mode & 0o006 != 0 => Reach::Machine,
            Address::Unix(_) if unix_mode & 0o060 != 0 => Reach::Group,
            Address::Unix(_) => Reach::User,
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reach::User => "reachable by this user's programs on this machine",
            Reach::Group => "reachable by programs of this user and group on this machine",
            Reach::Machine => "reachable from this machine only",
            Reach::Network => "reachable by everyone on the network",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(address: &str, unix_mode: u32) -> Reach {
        Reach::of(&address.parse().expect(address), unix_mode)
    }

    #[test]
    fn who_can_reach_what() {
        for (address, expected) in [
            ("127.0.0.1:1", Reach::Machine),
            ("127.9.9.9:1", Reach::Machine),
            ("[::1]:1", Reach::Machine),
            ("0.0.0.0:1", Reach::Network),
            ("[::]:1", Reach::Network),
            ("192.0.2.1:1", Reach::Network),
            ("unix:/x", Reach::User),
        ] {
            assert_eq!(reach(address, 0o600), expected, "{address}");
        }
        assert_eq!(reach("unix:/x", 0o660), Reach::Group);
        assert_eq!(reach("unix:/x", 0o666), Reach::Machine);
    }

    #[test]
    fn a_port_in_use_names_the_port_and_the_flag() {
        let error = StartError::Bind(BindError::InUse {
            address: "127.0.0.1:1978".parse().expect("valid"),
        });
        let message = start_failure(&error).to_string();
        assert!(
            message.contains("127.0.0.1:1978") && message.contains("--listen 127.0.0.1:1979"),
            "{message}"
        );
    }
}
