//! What the server is started with, by the settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use net::{Listen, LoopConfig};
use rustix::process::{Resource, getrlimit};
use server::{ServerConfig, SlowCallKeys, SlowCallRule, Storage, TimeSource};
use service::ServiceSettings;
use service::settings::names::NameGenerator;
use service::settings::simulate::Simulator;
use service::settings::tkrzw::TkrzwSettings;
use service::settings::{GuploadSettings, KvstoreSettings};
use store::KeepLog;
use store::backup::BackupRoot;
use store::blob::BlobConfig;
use store::blob::limits::FREE_SEGMENTS;
use store::durable::{TREES_FOLDER, TreePlace};
use store::tree::TreeConfig;
use wal::{LogConfig, LogId};

use super::INFO;
use super::anonymous::{anonymous, usable_bindings};
use super::failure::folder_failure;
use crate::arguments::SlowCallKeysArgument;
use crate::certificate::ServerCertificate;
use crate::durability::DurabilityArgument;
use crate::exit::Failure;
use crate::limits::MEMTABLES_IN_MEMORY_LIMIT;
use crate::listen::ListenAddress;
use crate::notify::Notifier;
use crate::randomness::random;
use crate::secrets;
use crate::server_log::ServerLog;
use crate::settings::Settings;
use crate::size::{KeptAmount, Size};
use crate::start;
use crate::storage_engine;
use crate::time_source::SystemTimeSource;
use crate::tkrzw_server::TkrzwPlan;

/// Returns what the server is started with.
///
/// # Errors
/// If a folder cannot be used, or this process may not make the files of the log.
pub(super) fn config(
    (settings, certificate): (&Settings, Option<&ServerCertificate>),
    memory_limit_bytes: u64,
    notifier: &Arc<Notifier>,
    tkrzw: Option<&TkrzwPlan>,
) -> Result<ServerConfig, Failure> {
    let size = |size: Size| usize::try_from(size.0).expect("checked: far below what a usize holds");
    let window =
        |size: Size| u32::try_from(size.0).expect("checked: HTTP/2's windows have 31 bits");
    Ok(ServerConfig {
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
            give_back: allocator::give_back_all,
            ..LoopConfig::default()
        },
        server: INFO,
        memory_limit_bytes,
        max_value_bytes: size(settings.max_value),
        max_streams: settings.max_streams,
        stream_window: settings.stream_window.map(window),
        connection_window: settings.connection_window.map(window),
        services: services(settings, memory_limit_bytes, tkrzw),
        anonymous: anonymous(settings),
        secret: secrets::folder_secret()?,
        draw_token: Box::new(secrets::draw_token),
        first_admin: None,
        bindings: usable_bindings(settings),
        hash_seed: random(),
        time: Arc::new(SystemTimeSource),
        log: Arc::new(ServerLog(Arc::clone(notifier))),
        storage: storage(settings, memory_limit_bytes)?,
        blobs: BlobConfig {
            quota_bytes: settings.blob_quota.map_or(u64::MAX, |quota| quota.0),
            abandoned_ms: settings.keep_uploads.ms,
            free_bytes: settings.log_segment.0.saturating_mul(FREE_SEGMENTS),
            ..BlobConfig::default()
        },
        backup_root: backup_root(settings)?,
        following: None,
        data: settings.folder().map(Path::to_owned),
        time_calls: settings.metrics_listen.is_some(),
        slow_calls: slow_calls(settings),
        spans: None,
    })
}

fn slow_calls(settings: &Settings) -> Option<SlowCallRule> {
    let keys = match settings.slow_call_keys {
        SlowCallKeysArgument::Off => SlowCallKeys::Off,
        SlowCallKeysArgument::Length => SlowCallKeys::Length,
        SlowCallKeysArgument::Prefix => SlowCallKeys::Prefix,
    };
    settings.slow_call.map(|threshold| SlowCallRule {
        threshold_ns: threshold.ms.saturating_mul(1_000_000),
        keys,
    })
}

fn services(
    settings: &Settings,
    memory_limit_bytes: u64,
    tkrzw: Option<&TkrzwPlan>,
) -> ServiceSettings {
    let of_default_database = || TkrzwSettings {
        start_us: SystemTimeSource.wall_ms() * 1_000,
        ..TkrzwSettings::default()
    };
    ServiceSettings {
        interop: settings.interop,
        kvstore: KvstoreSettings {
            database: settings.kvstore_database.as_str().into(),
            simulator: (settings.simulate)
                .map(|setting| Simulator::new(setting.0, memory_limit_bytes)),
        },
        gupload: GuploadSettings {
            discard: settings.discard_uploads,
            names: NameGenerator::new(random()),
        },
        tkrzw: tkrzw.map_or_else(of_default_database, TkrzwPlan::settings),
    }
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

fn storage(settings: &Settings, memory_limit_bytes: u64) -> Result<Storage, Failure> {
    if settings.engine.store.is_some() {
        return storage_engine::open(settings);
    }
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
            largest_file_bytes: largest_file_bytes(),
            follows: settings.follow.is_some(),
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
            DurabilityArgument::Synced => store::Durability::Synced,
            DurabilityArgument::Interval(span) => store::Durability::Interval { ms: span.ms },
            DurabilityArgument::Written => store::Durability::Written,
            DurabilityArgument::Volatile => store::Durability::Volatile,
        },
        kind: settings.kind.map(store::Kind::from),
        keep_log: match settings.keep_log {
            KeptAmount::Size(size) => KeepLog {
                bytes: size.0,
                age_ms: None,
            },
            KeptAmount::Age(age) => KeepLog {
                bytes: u64::MAX,
                age_ms: Some(age.ms),
            },
        },
    })
}

fn backup_root(settings: &Settings) -> Result<Option<BackupRoot>, Failure> {
    let Some(path) = &settings.backup_root else {
        return Ok(None);
    };
    if let Some(data) = settings.folder()
        && let (Some(data), Some(root)) = (resolved(data), resolved(path))
        && root.starts_with(&data)
    {
        return Err(Failure::Failed(format!(
            "backup-root {} leads to {}, which is the data folder or in it, and nothing but data \
             may be there: name another folder",
            path.display(),
            root.display()
        )));
    }
    let root = BackupRoot::open(path).map_err(|error| {
        Failure::Failed(format!(
            "the folder for backups {} cannot be used: {error}; --backup-root says which folder",
            path.display()
        ))
    });
    root.map(Some)
}

/// Returns a path without links; of what is not there yet, that of its parent with its name.
fn resolved(path: &Path) -> Option<PathBuf> {
    let there = path.canonicalize().ok();
    there.or_else(|| {
        let parent = match path.parent()? {
            parent if parent.as_os_str().is_empty() => Path::new("."),
            parent => parent,
        };
        Some(parent.canonicalize().ok()?.join(path.file_name()?))
    })
}

/// Bytes of the largest file that this process may make; `None`: any.
pub(super) fn largest_file_bytes() -> Option<u64> {
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
