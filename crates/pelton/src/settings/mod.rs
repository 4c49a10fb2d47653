//! The settings that a server runs with: flags over environment over file over defaults, checked as
//! a whole.

mod check;
mod environment;
mod error;
mod file;
mod otel_variables;
mod print;
mod spans;
mod storage_engine;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use net::Address;

use crate::arguments::{
    ClientAuth, CpuList, DriverChoice, FollowAddress, KindArgument, LogFormat, LogLevel,
    ServeArguments, SlowCallKeysArgument, UnixMode,
};
use crate::durability::DurabilityArgument;
use crate::limits::{KEEP_LOG_BYTES, REPLICAS_ACKED_TIMEOUT_MS};
use crate::listen::{ListenAddress, ListenAddresses, OriginalPorts};
use crate::metrics::MetricsAddress;
use crate::simulation::Simulation;
use crate::size::{KeptAmount, MemoryLimit, Size, Span};
pub use environment::{
    ADMIN_TOKEN_VARIABLE, PROFILES_VARIABLE, TOKEN_VARIABLE, warning_of_misspelt_variables,
    warning_of_variables,
};
pub use error::SettingsError;
pub use file::SettingsFile;
pub use otel_variables::OtelVariables;
pub use spans::{OWN_CA_NAME, OtlpSettings};
pub use storage_engine::StorageEngineSettings;

/// The port that Pelton listens on unless told otherwise: the year in which Pelton wheels had been
/// around for a century.
pub const DEFAULT_PORT: u16 = 1978;

/// The data folder unless told otherwise, in the folder in which the server is started.
pub const DEFAULT_FOLDER: &str = "pelton-data";

/// The file by which a data folder is known.
pub const FORMAT_FILE: &str = "pelton-data";

/// Share of the memory this process may use that keys and values may take by default, in percent.
/// The rest is for connections, for the allocator's slack, and for whatever else runs there.
const MEMORY_SHARE_PERCENT: u8 = 70;

/// How long a write waits for replicas by default.
const ACKED_TIMEOUT: Span = Span {
    ms: REPLICAS_ACKED_TIMEOUT_MS,
};

/// How long an upload that nobody continues is kept by default.
const ABANDONED: Span = Span {
    ms: store::blob::limits::ABANDONED_MS,
};

/// What a server runs with. Every value is checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Without those of `original_ports`.
    pub listen: Vec<ListenAddress>,
    pub original_ports: Option<OriginalPorts>,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    /// `None`: clients need no certificate.
    pub client_ca: Option<PathBuf>,
    pub client_auth: ClientAuth,
    pub tls_self_signed: Option<PathBuf>,
    /// `None`: no folder was named.
    pub init_admin: bool,
    pub init_admin_file: Option<PathBuf>,
    pub admin_token_file: Option<PathBuf>,
    pub data: Option<PathBuf>,
    pub durability: DurabilityArgument,
    /// Of the default database; `None`: what it is.
    pub kind: Option<KindArgument>,
    pub log_segment: Size,
    pub keep_log: KeptAmount,
    pub replicas_acked: usize,
    pub replicas_acked_timeout: Span,
    pub disk_cache: Size,
    /// Of the leader; `None`: this server follows nobody.
    pub follow: Option<FollowAddress>,
    /// `None`: health stays SERVING however far behind it is.
    pub max_lag: Option<Span>,
    pub follow_token_file: Option<PathBuf>,
    pub follow_tls: bool,
    pub follow_tls_ca: Option<PathBuf>,
    pub follow_tls_cert: Option<PathBuf>,
    pub follow_tls_key: Option<PathBuf>,
    pub follow_tls_server_name: Option<String>,
    /// `None`: backups are refused.
    pub backup_root: Option<PathBuf>,
    /// `None`: as the disk has room.
    pub blob_quota: Option<Size>,
    pub keep_uploads: Span,
    pub accept_loss: bool,
    pub engine: StorageEngineSettings,
    pub driver: DriverChoice,
    pub threads: usize,
    pub pin: CpuList,
    pub memory_limit: MemoryLimit,
    pub max_value: Size,
    pub max_streams: u32,
    pub max_connections: usize,
    /// 0: as many as `max_connections`.
    pub max_connections_per_address: usize,
    /// Loopback addresses are bounded, too.
    pub limit_loopback: bool,
    pub tcp_send_buffer: Option<Size>,
    pub tcp_receive_buffer: Option<Size>,
    pub stream_window: Option<Size>,
    pub connection_window: Option<Size>,
    pub drain_timeout: Span,
    pub write_stall_timeout: Span,
    pub unix_mode: UnixMode,
    pub interop: bool,
    /// Of io.grpc.KeyValueService; empty: the default database.
    pub kvstore_database: String,
    /// `None`: nothing is simulated.
    pub simulate: Option<Simulation>,
    /// Uploads of gupload are not kept.
    pub discard_uploads: bool,
    /// `None`: no metrics are served.
    pub metrics_listen: Option<MetricsAddress>,
    /// `None`: slow calls are not logged.
    pub slow_call: Option<Span>,
    pub slow_call_keys: SlowCallKeysArgument,
    pub otlp: OtlpSettings,
    pub log_format: LogFormat,
    pub log_level: LogLevel,
}

/// Where the certificate of a server comes from.
#[derive(Clone, Copy, Debug)]
pub enum CertificateSource<'a> {
    Files {
        certificate: &'a Path,
        key: &'a Path,
    },
    /// Made, in this folder.
    SelfSigned(&'a Path),
}

/// Where a server listens if nobody says it.
fn default_listen() -> Vec<ListenAddress> {
    let address = Address::Tcp {
        host: "127.0.0.1".into(),
        port: DEFAULT_PORT,
    };
    vec![ListenAddress::from(address)]
}

/// The same error, with the place in the file if that is where the value comes from: then it is
/// wrong without flags and variables, too.
fn in_file(error: SettingsError, file: &SettingsFile) -> SettingsError {
    let SettingsError::OutOfRange { name, value, .. } = &error else {
        return error;
    };
    let alone = Settings::resolve(&ServeArguments::default(), file).err();
    let is_same = matches!(&alone, Some(SettingsError::OutOfRange { name: other, value: its, .. })
        if other == name && its == value);
    match file.place_of(name) {
        Some(place) if is_same => SettingsError::InFile {
            place,
            error: Box::new(error),
        },
        _ => error,
    }
}

fn span(ms: u64) -> Span {
    Span { ms }
}

/// How many threads there are unless told otherwise.
fn default_threads(driver: DriverChoice, loops: &net::LoopConfig) -> usize {
    match driver {
        DriverChoice::EventLoop => loops.threads,
        DriverChoice::Blocking => net::limits::BLOCKING_CALLS,
    }
}

impl Settings {
    /// The settings that the arguments and the file they name make together, and that file.
    pub fn load(arguments: &ServeArguments) -> Result<(Settings, SettingsFile), SettingsError> {
        let file = SettingsFile::read(arguments)?;
        let variables = OtelVariables::of_process();
        match Settings::resolve_with(arguments, &file, &variables) {
            Ok(settings) => Ok((settings, file)),
            Err(error) => Err(in_file(error, &file)),
        }
    }

    /// Flags and environment (which clap has put in order) over the file over the defaults.
    fn resolve(strong: &ServeArguments, file: &SettingsFile) -> Result<Settings, SettingsError> {
        Settings::resolve_with(strong, file, &OtelVariables::default())
    }

    /// The same, with the variables of OpenTelemetry.
    fn resolve_with(
        strong: &ServeArguments,
        file: &SettingsFile,
        variables: &OtelVariables,
    ) -> Result<Settings, SettingsError> {
        let otlp = OtlpSettings::resolve(strong, &file.arguments, variables)?;
        let settings = Settings::unchecked(strong, file, otlp);
        settings.check().map(|()| settings)
    }

    fn unchecked(strong: &ServeArguments, file: &SettingsFile, otlp: OtlpSettings) -> Settings {
        let given = &file.arguments;
        macro_rules! pick {
            ($name:ident) => {
                strong.$name.clone().or_else(|| given.$name.clone())
            };
        }
        let loops = net::LoopConfig::default();
        let driver = pick!(driver).unwrap_or(DriverChoice::EventLoop);
        Settings {
            listen: pick!(listen).map_or_else(default_listen, ListenAddresses::all),
            original_ports: pick!(original_ports),
            tls_cert: pick!(tls_cert),
            tls_key: pick!(tls_key),
            client_ca: pick!(client_ca),
            client_auth: pick!(client_auth).unwrap_or(ClientAuth::Required),
            tls_self_signed: pick!(tls_self_signed),
            init_admin: pick!(init_admin).unwrap_or(false),
            init_admin_file: pick!(init_admin_file),
            admin_token_file: pick!(admin_token_file),
            data: pick!(data),
            durability: pick!(durability).unwrap_or(DurabilityArgument::Synced),
            kind: pick!(kind),
            log_segment: pick!(log_segment).unwrap_or(Size(wal::limits::SEGMENT_BYTES)),
            keep_log: pick!(keep_log).unwrap_or(KeptAmount::Size(Size(KEEP_LOG_BYTES))),
            replicas_acked: pick!(replicas_acked).unwrap_or(0),
            replicas_acked_timeout: pick!(replicas_acked_timeout).unwrap_or(ACKED_TIMEOUT),
            disk_cache: pick!(disk_cache).unwrap_or(Size(store::tree::limits::CACHE_BYTES)),
            follow: pick!(follow),
            max_lag: pick!(max_lag),
            follow_token_file: pick!(follow_token_file),
            follow_tls: pick!(follow_tls).unwrap_or(false),
            follow_tls_ca: pick!(follow_tls_ca),
            follow_tls_cert: pick!(follow_tls_cert),
            follow_tls_key: pick!(follow_tls_key),
            follow_tls_server_name: pick!(follow_tls_server_name),
            backup_root: pick!(backup_root),
            blob_quota: pick!(blob_quota),
            keep_uploads: pick!(keep_uploads).unwrap_or(ABANDONED),
            accept_loss: strong.accept_loss,
            engine: StorageEngineSettings::resolve(strong, given),
            driver,
            threads: pick!(threads).unwrap_or(default_threads(driver, &loops)),
            pin: pick!(pin).unwrap_or_default(),
            memory_limit: pick!(memory_limit).unwrap_or(MemoryLimit::Percent(MEMORY_SHARE_PERCENT)),
            max_value: pick!(max_value).unwrap_or(Size(store::limits::VALUE_BYTES as u64)),
            max_streams: pick!(max_streams).unwrap_or(wire::limits::MAX_STREAMS),
            max_connections: pick!(max_connections).unwrap_or(loops.max_connections),
            max_connections_per_address: pick!(max_connections_per_address)
                .unwrap_or(loops.max_connections_per_address),
            limit_loopback: pick!(limit_loopback).unwrap_or(loops.limit_loopback),
            tcp_send_buffer: pick!(tcp_send_buffer),
            tcp_receive_buffer: pick!(tcp_receive_buffer),
            stream_window: pick!(stream_window),
            connection_window: pick!(connection_window),
            drain_timeout: pick!(drain_timeout).unwrap_or(Span { ms: loops.drain_ms }),
            write_stall_timeout: pick!(write_stall_timeout).unwrap_or(span(loops.write_stall_ms)),
            unix_mode: pick!(unix_mode).unwrap_or(UnixMode(loops.unix_mode)),
            interop: pick!(interop).unwrap_or(false),
            kvstore_database: pick!(kvstore_database).unwrap_or_default(),
            simulate: pick!(simulate),
            discard_uploads: pick!(discard_uploads).unwrap_or(false),
            metrics_listen: pick!(metrics_listen),
            slow_call: pick!(slow_call),
            slow_call_keys: pick!(slow_call_keys).unwrap_or(SlowCallKeysArgument::Length),
            otlp,
            log_format: pick!(log_format).unwrap_or(LogFormat::Text),
            log_level: pick!(log_level).unwrap_or(LogLevel::Info),
        }
    }

    /// The folder for what lasts; `None`: nothing does here.
    pub fn folder(&self) -> Option<&Path> {
        if self.engine.store.is_some() {
            return None;
        }
        match &self.data {
            Some(folder) => Some(folder),
            None if self.durability == DurabilityArgument::Volatile => None,
            None => Some(Path::new(DEFAULT_FOLDER)),
        }
    }

    /// Where the server's certificate comes from; `None`: it has none.
    pub fn certificate(&self) -> Option<CertificateSource<'_>> {
        match (&self.tls_cert, &self.tls_key, &self.tls_self_signed) {
            (Some(certificate), Some(key), _) => {
                Some(CertificateSource::Files { certificate, key })
            }
            (_, _, Some(folder)) => Some(CertificateSource::SelfSigned(folder)),
            _ => None,
        }
    }

    /// All addresses.
    pub fn addresses(&self) -> Vec<ListenAddress> {
        let original = self.original_ports.iter();
        let original = original.flat_map(OriginalPorts::addresses);
        self.listen.iter().cloned().chain(original).collect()
    }

    /// The hosts of all addresses.
    pub fn hosts(&self) -> Vec<String> {
        let host = |listen: &ListenAddress| match &listen.address {
            Address::Tcp { host, .. } => Some(host.clone()),
            Address::Unix(_) => None,
        };
        self.addresses().iter().filter_map(host).collect()
    }
}
