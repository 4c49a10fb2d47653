//! The settings of `pelton serve`: one table for flags, environment and file.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use client::otlp::OtlpEndpoint;
use net::Address;
use serde::{Deserialize, Deserializer};
use service::limits::FOLLOWERS_MAX;

use super::client_auth::ClientAuth;
use super::database::KindArgument;
use super::number;
use super::otlp::{OtlpHeaderText, OtlpResourceAttribute};
use super::server_address::server_address;
use super::storage_engine::{ContactAddresses, StoreArgument};
use crate::durability::DurabilityArgument;
use crate::listen::{ListenAddresses, OriginalPorts};
use crate::metrics::MetricsAddress;
use crate::otlp_sample::OtlpSample;
use crate::simulation::Simulation;
use crate::size::{KeptAmount, MemoryLimit, Size, Span};

/// All settings of a server, each `None` where it was not given. The same fields are read from
/// flags and environment (by clap) and from the file (by serde), so the three cannot differ.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServeArguments {
    /// TOML file with settings
    #[arg(long, value_name = "FILE", env = "PELTON_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// Where to listen: host:port, [ipv6]:port or unix:/path; may be repeated, or several separated
    /// by commas
    ///
    /// With a certificate (--tls-cert, --tls-self-signed) TLS is spoken there, but for UNIX
    /// sockets. In front of an address, `plain:` means without TLS and `tls:` with it:
    /// `--listen tls:0.0.0.0:1978 --listen plain:127.0.0.1:1979`. Behind an address,
    /// `+anonymous=RIGHT[,RIGHT…]` says what callers without a token may do there: `none`, `read`,
    /// `write`, `admin`, each with `:DATABASE` or `:DATABASE/BLOBS…` behind it if not for all, or
    /// `service:NAME` for one drop-in service (kvstore, gupload, ydb-ping, brpc-echo,
    /// srpc-benchmark, tkrzw). Without it that is everything on loopback addresses and UNIX
    /// sockets, and nothing elsewhere. Port 0 lets the system choose one; the line `listening on …`
    /// says which.
    /// [default: 127.0.0.1:1978]
    #[arg(long, value_name = "ADDRESS", env = "PELTON_LISTEN")]
    #[serde(default, deserialize_with = "from_texts")]
    pub listen: Option<Vec<ListenAddresses>>,

    /// Also listen on the ports that clients of drop-in services know: 1313 (gupload) and 2137 (YDB
    /// ping), on the host given
    ///
    /// With `=` only: --original-ports=HOST, or HOST+anonymous=RIGHT as with --listen.
    /// TLS is spoken on that of gupload if there is a
    /// certificate, on that of YDB ping never. The key-value example of the gRPC project has no
    /// port of its own. [without a value: 127.0.0.1]
    #[arg(
        long,
        value_name = "HOST",
        env = "PELTON_ORIGINAL_PORTS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "127.0.0.1"
    )]
    #[serde(default, deserialize_with = "from_text")]
    pub original_ports: Option<OriginalPorts>,

    /// Certificate of the server in PEM, followed by those between it and the root; needs --tls-key
    ///
    /// Read anew when the file changes, and on SIGHUP; what does not fit is said in the log, and
    /// the old one stays in use.
    #[arg(long, value_name = "FILE", env = "PELTON_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", env = "PELTON_TLS_KEY")]
    pub tls_key: Option<PathBuf>,

    /// Only clients with a certificate that is one of these (PEM), or signed by one, may connect
    /// with TLS
    ///
    /// `pelton token create --certificate` says who they are. Read anew like --tls-cert.
    /// [default: clients need no certificate]
    #[arg(long, value_name = "FILE", env = "PELTON_CLIENT_CA")]
    pub client_ca: Option<PathBuf>,

    /// With --client-ca: whether each client needs a certificate, or may have one
    ///
    /// With `optional`, those without one get what `+anonymous=` of --listen says; one that is not
    /// good is refused all the same. [default: required]
    #[arg(long, value_name = "WHO", env = "PELTON_CLIENT_AUTH")]
    pub client_auth: Option<ClientAuth>,

    /// TLS for a first try: make a certificate for this machine in a folder, or use the one that is
    /// there
    ///
    /// Clients trust it by DIR/ca.pem. With `=` only: --tls-self-signed=DIR. [without a value:
    /// pelton-tls]
    #[arg(
        long,
        value_name = "DIR",
        env = "PELTON_TLS_SELF_SIGNED",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "pelton-tls"
    )]
    pub tls_self_signed: Option<PathBuf>,

    /// Make the token of the first administrator, `admin`, if no token has the right admin yet
    ///
    /// Without --init-admin-file it goes to standard output, where it is shown this once: to a
    /// terminal or a pipe, but to no file or log. A value goes with `=` only. [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        env = "PELTON_INIT_ADMIN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub init_admin: Option<bool>,

    /// Make that token and write it into this new file, which only its owner can read
    ///
    /// The file is made together with the token; later starts need it no more.
    #[arg(long, value_name = "FILE", env = "PELTON_INIT_ADMIN_FILE")]
    pub init_admin_file: Option<PathBuf>,

    /// File with the token that becomes the first administrator's, as a secret manager gives it
    /// [default: the token in PELTON_ADMIN_TOKEN, if there is one]
    ///
    /// It is taken if no token has the right admin yet. `pelton_` and 32 random bytes in base64url:
    /// `echo pelton_$(openssl rand 32 | basenc --base64url | tr -d =)` makes one.
    #[arg(long, value_name = "FILE", env = "PELTON_ADMIN_TOKEN_FILE")]
    pub admin_token_file: Option<PathBuf>,

    /// Folder for the log of all durable databases; made if there is none
    ///
    /// With --durability volatile and without this flag no folder is used: then no database of the
    /// server can last. [default: pelton-data]
    #[arg(long, value_name = "DIR", env = "PELTON_DATA")]
    pub data: Option<PathBuf>,

    /// When a write to the default database is answered: synced, interval=TIME, written or volatile
    ///
    /// synced: it is on the device; interval=100ms: written at once, and on the device within this
    /// time; written: written at once, on the device when the system likes; volatile: in memory
    /// only. [default: synced]
    #[arg(long, value_name = "DURABILITY", env = "PELTON_DURABILITY")]
    #[serde(default, deserialize_with = "from_text")]
    pub durability: Option<DurabilityArgument>,

    /// Where the default database is: it goes there at the start if it has no entries, and must be
    /// there already if it has [default: where it was, in memory if it is new]
    #[arg(long, value_name = "KIND", env = "PELTON_KIND", value_enum)]
    pub kind: Option<KindArgument>,

    /// Size of the files of the log, 64KiB to 1GiB; the next one is always made before it is needed
    ///
    /// Smaller ones suit a small disk, larger ones a great many writes. Files that are there keep
    /// their size. [default: 64MiB]
    #[arg(long, value_name = "SIZE", env = "PELTON_LOG_SEGMENT")]
    #[serde(default, deserialize_with = "from_text")]
    pub log_segment: Option<Size>,

    /// How much of the log is kept that no start needs any more, for those who watch: a size, or
    /// what was written within a time, such as 1h; 0 for nothing
    ///
    /// Whoever watches a database of the folder can go on from a point that lies so far back, also
    /// after a restart. Whole files are kept, as far as twice as much of the disk stays free beside
    /// them. [default: 64MiB]
    #[arg(long, value_name = "SIZE|TIME", env = "PELTON_KEEP_LOG")]
    #[serde(default, deserialize_with = "from_text")]
    pub keep_log: Option<KeptAmount>,

    /// Answer a write, and show it, only when so many replicas have it on their devices too; 0 for
    /// none
    ///
    /// Counted are replicas that follow this server itself. Each database that has a log waits for
    /// its device and theirs, whatever its durability. A write that waits longer than
    /// --replicas-acked-timeout ends with UNKNOWN, and those behind it with UNAVAILABLE, until the
    /// replicas are back. After a start nothing is read or written before so many replicas have
    /// what the log has. At a replica it holds once that is promoted. [default: 0]
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PELTON_REPLICAS_ACKED",
        value_parser = number::setting::<usize>(0, FOLLOWERS_MAX as i128)
    )]
    pub replicas_acked: Option<usize>,

    /// How long a write waits for --replicas-acked, 10ms to 10m [default: 10s]
    #[arg(long, value_name = "TIME", env = "PELTON_REPLICAS_ACKED_TIMEOUT")]
    #[serde(default, deserialize_with = "from_text")]
    pub replicas_acked_timeout: Option<Span>,

    /// Memory that keeps blocks and entries of databases on disk for their reads, 1MiB to 1TiB;
    /// beside --memory-limit
    ///
    /// The system's own cache of files comes on top of it. [default: 64MiB]
    #[arg(long, value_name = "SIZE", env = "PELTON_DISK_CACHE")]
    #[serde(default, deserialize_with = "from_text")]
    pub disk_cache: Option<Size>,

    /// Be a replica of the server at this address: it gets a copy of all that has a log there, and
    /// follows it
    ///
    /// Host:port or unix:/path. The folder of --data must be empty at the first start, or that of
    /// an old leader in whose place this one leads. Reads are served here, of a state that the
    /// leader had a moment ago; writes are refused, and the message names the leader. [default:
    /// none, this server is its own]
    #[arg(long, value_name = "ADDRESS", env = "PELTON_FOLLOW")]
    #[serde(default, deserialize_with = "from_text")]
    pub follow: Option<FollowAddress>,

    /// Turn health to NOT_SERVING while this replica is further behind its leader than this, 1s to
    /// 1d, so that nobody is sent here
    ///
    /// Looked at once a second. It is SERVING again when half of it is left. Who calls all the same
    /// is served. [default: none, health stays SERVING]
    #[arg(long, value_name = "TIME", env = "PELTON_MAX_LAG")]
    #[serde(default, deserialize_with = "from_text")]
    pub max_lag: Option<Span>,

    /// File with the token with which this server calls its leader, with the right admin there
    /// [default: the token in PELTON_FOLLOW_TOKEN, if there is one]
    #[arg(long, value_name = "FILE", env = "PELTON_FOLLOW_TOKEN_FILE")]
    pub follow_token_file: Option<PathBuf>,

    /// Speak TLS with the leader, and believe it if an authority of this system has signed its
    /// certificate
    ///
    /// The other flags of it mean this one too. A leader on another machine wants TLS. A value goes
    /// with `=` only. [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        env = "PELTON_FOLLOW_TLS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub follow_tls: Option<bool>,

    /// Believe the leader only if its certificate is one of these (PEM), or signed by one of these
    /// authorities
    #[arg(long, value_name = "FILE", env = "PELTON_FOLLOW_TLS_CA")]
    pub follow_tls_ca: Option<PathBuf>,

    /// Certificate to show to a leader that asks for one (mutual TLS), in PEM; needs
    /// --follow-tls-key
    #[arg(long, value_name = "FILE", env = "PELTON_FOLLOW_TLS_CERT")]
    pub follow_tls_cert: Option<PathBuf>,

    /// Private key of that certificate, in PEM
    #[arg(long, value_name = "FILE", env = "PELTON_FOLLOW_TLS_KEY")]
    pub follow_tls_key: Option<PathBuf>,

    /// The name that the certificate of the leader must have [default: the host of --follow]
    #[arg(long, value_name = "NAME", env = "PELTON_FOLLOW_TLS_SERVER_NAME")]
    pub follow_tls_server_name: Option<String>,

    /// Folder in which `pelton backup` makes its copies; made if there is none [default: none,
    /// backups are refused]
    #[arg(long, value_name = "DIR", env = "PELTON_BACKUP_ROOT")]
    pub backup_root: Option<PathBuf>,

    /// Bytes that the blobs of each database may have together, with unfinished uploads [default:
    /// as the disk has room]
    #[arg(long, value_name = "SIZE", env = "PELTON_BLOB_QUOTA")]
    #[serde(default, deserialize_with = "from_text")]
    pub blob_quota: Option<Size>,

    /// How long an upload that nobody continues is kept [default: 24h]
    #[arg(long, value_name = "TIME", env = "PELTON_KEEP_UPLOADS")]
    #[serde(default, deserialize_with = "from_text")]
    pub keep_uploads: Option<Span>,

    /// Start though something is lost: without what is missing of the log, without blobs that
    /// nothing names, and without what is in databases on disk that are damaged
    ///
    /// It has several meanings. Where the log is damaged, cut short or gone: give up what comes
    /// after the damage, or is missing. Where the file `pelton-data` is damaged: make it anew from
    /// what is there, without the secret of the tokens, all of which become invalid; so they do
    /// where it is the file of another folder. Where more files are complete blobs that nothing
    /// names than a crash leaves: move them into the folder `set-aside` of the data folder, where
    /// they stay for seven days; so do folders of databases on disk that the log does not name.
    /// Where a database on disk is damaged: move its folder alone there, where it stays until
    /// somebody removes it, and begin this database anew with what the log still has of it. The
    /// message of the start that was refused says which of them, and what is lost. Not needed after
    /// a crash or a power loss.
    #[arg(long)]
    #[serde(skip)]
    pub accept_loss: bool,

    /// Keep no data here: have the databases on this storage engine, as one of any number of
    /// servers in front of it
    ///
    /// `pelton store init` makes the keyspace ready, once. Such a server has no data folder, no
    /// blobs, no replicas and no backups, and nobody can watch a database of it. [default: none,
    /// data are in the folder of --data]
    #[arg(long, value_name = "ENGINE", env = "PELTON_STORE", value_enum)]
    pub store: Option<StoreArgument>,

    /// Nodes of the storage engine to begin with, HOST or HOST:PORT; may be repeated, or several
    /// separated by commas; the others are learned from them [default port: 9042]
    #[arg(long, value_name = "HOST[:PORT]", env = "PELTON_CONTACT")]
    #[serde(default, deserialize_with = "from_texts")]
    pub contact: Option<Vec<ContactAddresses>>,

    /// The keyspace of the storage engine that has the databases
    #[arg(long, value_name = "NAME", env = "PELTON_KEYSPACE")]
    pub keyspace: Option<String>,

    /// Ask the nodes of this data center first [default: all are alike]
    #[arg(long, value_name = "NAME", env = "PELTON_DATACENTER")]
    pub datacenter: Option<String>,

    /// The user as which the nodes are asked; needs --store-password-file [default: they ask for
    /// none]
    #[arg(long, value_name = "NAME", env = "PELTON_STORE_USER")]
    pub store_user: Option<String>,

    /// File with the password of --store-user, in one line
    #[arg(long, value_name = "FILE", env = "PELTON_STORE_PASSWORD_FILE")]
    pub store_password_file: Option<PathBuf>,

    /// Speak TLS with the nodes, and believe one only if its certificate is one of these (PEM), or
    /// signed by one of these authorities, and names its IP address
    ///
    /// Only in builds with the feature `cassandra-tls`. [default: no TLS]
    #[arg(long, value_name = "FILE", env = "PELTON_STORE_CA")]
    pub store_ca: Option<PathBuf>,

    /// How long the storage engine has for a request before its outcome is unknown, 100ms to 5m
    /// [default: 10s]
    ///
    /// A read that takes longer ends with UNAVAILABLE, a write with UNKNOWN if it may have been
    /// done.
    #[arg(long, value_name = "TIME", env = "PELTON_STORE_TIMEOUT")]
    #[serde(default, deserialize_with = "from_text")]
    pub store_timeout: Option<Span>,

    /// How connections get their threads [default: event-loop]
    #[arg(long, value_name = "DRIVER", env = "PELTON_DRIVER", value_enum)]
    pub driver: Option<DriverChoice>,

    /// Event loops, one thread each; with --driver blocking, which has a thread for each
    /// connection: calls that compute at once
    ///
    /// [default: the CPUs that this process may use; with --driver blocking 64]
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PELTON_THREADS",
        value_parser = number::setting::<usize>(1, net::limits::MAX_THREADS as i128)
    )]
    pub threads: Option<usize>,

    /// CPUs to bind the threads to, in turn, such as 0,2-3 [default: not bound]
    #[arg(long, value_name = "CPUS", env = "PELTON_PIN")]
    #[serde(default, deserialize_with = "from_text")]
    pub pin: Option<CpuList>,

    /// Memory that keys and values may take: a size, or a share of what this process may use
    ///
    /// Beyond it, writes that grow are refused with RESOURCE_EXHAUSTED; reads and deletes go on.
    /// [default: 70%]
    #[arg(long, value_name = "SIZE|SHARE", env = "PELTON_MEMORY_LIMIT")]
    #[serde(default, deserialize_with = "from_text")]
    pub memory_limit: Option<MemoryLimit>,

    /// Largest value, at most 1GiB
    ///
    /// Above the default, clients need a higher limit for received messages to read what was
    /// stored. [default: 4MB]
    #[arg(long, value_name = "SIZE", env = "PELTON_MAX_VALUE")]
    #[serde(default, deserialize_with = "from_text")]
    pub max_value: Option<Size>,

    /// Calls that one connection may have open at a time [default: 4096]
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PELTON_MAX_STREAMS",
        value_parser = number::setting::<u32>(1, 1 << 20)
    )]
    pub max_streams: Option<u32>,

    /// Open connections; more are refused [default: 10000]
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PELTON_MAX_CONNECTIONS",
        value_parser = number::setting::<usize>(1, 1 << 20)
    )]
    pub max_connections: Option<usize>,

    /// Open connections from one address (IPv6: one network of 64 bits); more are refused [default:
    /// 1024]
    ///
    /// 0: as many as --max-connections. Not for peers on this machine, unless with
    /// --limit-loopback. Raise it where all clients come through one proxy or NAT.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PELTON_MAX_CONNECTIONS_PER_ADDRESS",
        value_parser = number::setting::<usize>(0, 1 << 20)
    )]
    pub max_connections_per_address: Option<usize>,

    /// Hold --max-connections-per-address for peers on this machine (loopback), too [default:
    /// false]
    ///
    /// A value goes with `=` only
    #[arg(
        long,
        value_name = "BOOL",
        env = "PELTON_LIMIT_LOOPBACK",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub limit_loopback: Option<bool>,

    /// Send buffer of each TCP connection [default: the kernel sizes it as it goes]
    #[arg(long, value_name = "SIZE", env = "PELTON_TCP_SEND_BUFFER")]
    #[serde(default, deserialize_with = "from_text")]
    pub tcp_send_buffer: Option<Size>,

    /// Receive buffer of each TCP connection [default: the kernel sizes it as it goes]
    #[arg(long, value_name = "SIZE", env = "PELTON_TCP_RECEIVE_BUFFER")]
    #[serde(default, deserialize_with = "from_text")]
    pub tcp_receive_buffer: Option<Size>,

    /// HTTP/2 window of each call, what a client may send ahead [default: 64KiB, grown as the
    /// connection needs]
    #[arg(long, value_name = "SIZE", env = "PELTON_STREAM_WINDOW")]
    #[serde(default, deserialize_with = "from_text")]
    pub stream_window: Option<Size>,

    /// HTTP/2 window of each connection [default: 1MiB, grown as the connection needs]
    #[arg(long, value_name = "SIZE", env = "PELTON_CONNECTION_WINDOW")]
    #[serde(default, deserialize_with = "from_text")]
    pub connection_window: Option<Size>,

    /// How long running calls may take to end after SIGTERM, SIGINT or SIGQUIT; a second signal
    /// stops at once [default: 10s]
    ///
    /// What still runs shortly before that ends with UNAVAILABLE, or UNKNOWN if a write of it may
    /// have been done.
    #[arg(long, value_name = "TIME", env = "PELTON_DRAIN_TIMEOUT")]
    #[serde(default, deserialize_with = "from_text")]
    pub drain_timeout: Option<Span>,

    /// Close a connection whose client takes none of the waiting answers for so long [default: 30s]
    #[arg(long, value_name = "TIME", env = "PELTON_WRITE_STALL_TIMEOUT")]
    #[serde(default, deserialize_with = "from_text")]
    pub write_stall_timeout: Option<Span>,

    /// Permissions of UNIX sockets, as an octal number [default: 600, only this user]
    #[arg(long, value_name = "MODE", env = "PELTON_UNIX_MODE")]
    #[serde(default, deserialize_with = "from_text")]
    pub unix_mode: Option<UnixMode>,

    /// Also serve grpc.testing.TestService, for interoperability tests. A value goes with `=` only
    /// [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        env = "PELTON_INTEROP",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub interop: Option<bool>,

    /// The database whose keys io.grpc.KeyValueService serves [default: the default database]
    #[arg(long, value_name = "NAME", env = "PELTON_KVSTORE_DATABASE")]
    pub kvstore_database: Option<String>,

    /// Delay each operation of io.grpc.KeyValueService: read=TIME,write=TIME; with ,serial one
    /// after the other
    ///
    /// As the servers of the article that it comes from do, with read=10ms,write=50ms. No thread is
    /// held meanwhile. [default: no delay]
    #[arg(long, value_name = "DELAYS", env = "PELTON_SIMULATE")]
    #[serde(default, deserialize_with = "from_text")]
    pub simulate: Option<Simulation>,

    /// Throw away what messaging.GuploadService and POST /upload receive, as gupload's server does,
    /// instead of keeping it as blobs. A value goes with `=` only [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        env = "PELTON_DISCARD_UPLOADS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub discard_uploads: Option<bool>,

    /// Also serve metrics for Prometheus at http://ADDRESS/metrics; a port alone is of this machine
    /// only
    ///
    /// No access control and no TLS. [default: no metrics are served]
    #[arg(long, value_name = "PORT|HOST:PORT", env = "PELTON_METRICS_LISTEN")]
    #[serde(default, deserialize_with = "from_text")]
    pub metrics_listen: Option<MetricsAddress>,

    /// Log each call that takes as long or longer, with what it waited for [default: none]
    ///
    /// From the last byte of the request to when the answer was handed to the socket. Calls whose
    /// clients send as they like, and those that watch, are left out.
    #[arg(long, value_name = "TIME", env = "PELTON_SLOW_CALL")]
    #[serde(default, deserialize_with = "from_text")]
    pub slow_call: Option<Span>,

    /// What of the keys of slow calls is logged [default: length]
    #[arg(long, value_name = "WHAT", env = "PELTON_SLOW_CALL_KEYS", value_enum)]
    pub slow_call_keys: Option<SlowCallKeysArgument>,

    /// Export spans of calls to this OpenTelemetry collector, by OTLP over gRPC: http://HOST:PORT,
    /// or https://HOST:PORT [default: none are exported]
    ///
    /// Those of calls whose `traceparent` says that they are sampled. A collector that is away, or
    /// too slow, costs spans and no calls. Without it, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or
    /// OTEL_EXPORTER_OTLP_ENDPOINT counts, as do other variables of OpenTelemetry.
    #[arg(long, value_name = "URL", env = "PELTON_OTLP_ENDPOINT")]
    #[serde(default, deserialize_with = "from_text")]
    pub otlp_endpoint: Option<OtlpEndpoint>,

    /// Believe the collector only if its certificate is one of these (PEM), or signed by one of
    /// these authorities [default: those of this system]
    #[arg(long, value_name = "FILE", env = "PELTON_OTLP_CA")]
    pub otlp_ca: Option<PathBuf>,

    /// Send this header with each export, such as the key that a hosted collector wants; may be
    /// repeated
    ///
    /// Arguments are seen by all users of this machine: a secret stands better in the file of
    /// --otlp-header-file, or in the variable. Without either, OTEL_EXPORTER_OTLP_TRACES_HEADERS or
    /// OTEL_EXPORTER_OTLP_HEADERS counts.
    #[arg(
        long,
        value_name = "NAME=VALUE",
        env = "PELTON_OTLP_HEADER",
        hide_env_values = true
    )]
    #[serde(default, deserialize_with = "from_texts")]
    pub otlp_header: Option<Vec<OtlpHeaderText>>,

    /// Read headers for exports from this file, NAME=VALUE in each line; lines that begin with #
    /// say nothing
    #[arg(long, value_name = "FILE", env = "PELTON_OTLP_HEADER_FILE")]
    pub otlp_header_file: Option<PathBuf>,

    /// The name of the service under which spans are exported [default: pelton]
    #[arg(long, value_name = "NAME", env = "PELTON_OTLP_SERVICE_NAME")]
    pub otlp_service_name: Option<String>,

    /// Say this of the server in each export, such as deployment.environment.name=staging; may be
    /// repeated
    ///
    /// Stronger than what OTEL_RESOURCE_ATTRIBUTES says. service.version, service.instance.id,
    /// host.name and process.pid are said unless they are given.
    #[arg(long, value_name = "KEY=VALUE", env = "PELTON_OTLP_RESOURCE_ATTRIBUTE")]
    #[serde(default, deserialize_with = "from_texts")]
    pub otlp_resource_attribute: Option<Vec<OtlpResourceAttribute>>,

    /// Begin a trace of this share of the calls that come without `traceparent`: 0.01 is one of a
    /// hundred [default: 0]
    #[arg(long, value_name = "SHARE", env = "PELTON_OTLP_SAMPLE")]
    #[serde(default, deserialize_with = "from_text")]
    pub otlp_sample: Option<OtlpSample>,

    /// How lines of the log look, on standard error [default: text]
    #[arg(long, value_name = "FORMAT", env = "PELTON_LOG_FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,

    /// Least level of what is logged, to standard error [default: info]
    ///
    /// Read anew from the file of --config on SIGHUP, unless it is given as a flag or variable.
    #[arg(long, value_name = "LEVEL", env = "PELTON_LOG_LEVEL", value_enum)]
    pub log_level: Option<LogLevel>,
}

/// The address of a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowAddress(pub Address);

impl FromStr for FollowAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<FollowAddress, String> {
        server_address(text).map(FollowAddress)
    }
}

impl fmt::Display for FollowAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How connections get their threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum DriverChoice {
    /// event loops: each thread serves many connections, and what arrives together is served
    /// together
    EventLoop,
    /// one thread per connection, which serves one request after the other
    Blocking,
}

impl From<DriverChoice> for net::Driver {
    fn from(driver: DriverChoice) -> net::Driver {
        match driver {
            DriverChoice::EventLoop => net::Driver::EventLoops,
            DriverChoice::Blocking => net::Driver::Blocking,
        }
    }
}

impl fmt::Display for DriverChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no driver is hidden");
        f.write_str(value.get_name())
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// nothing but what ends the server
    Error,
    /// also what an operator should look at
    Warn,
    /// also start, stop and settings
    Info,
    /// also each connection, calls that are refused, and what is done each second
    Debug,
    /// everything
    Trace,
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no level is hidden");
        f.write_str(value.get_name())
    }
}

/// What of the keys of slow calls is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SlowCallKeysArgument {
    /// nothing
    Off,
    /// how long they are, since they may be personal
    Length,
    /// that, and the first 32 bytes
    Prefix,
}

impl fmt::Display for SlowCallKeysArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("none is hidden");
        f.write_str(value.get_name())
    }
}

/// How lines of the log look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// for people
    Text,
    /// one JSON object a line, with timestamp, level and message
    Json,
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no format is hidden");
        f.write_str(value.get_name())
    }
}

/// CPUs by number: `0,2-3`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

/// Permission bits of a file: `660`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixMode(pub u32);

/// The largest CPU number that is believed: far above any machine, and it bounds what `0-…` expands
/// to.
const CPU_MAX: usize = 4095;

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<CpuList, String> {
        let wrong =
            || format!("`{text}` is no list of CPUs; write numbers and ranges such as 0,2-3");
        let number = |part: &str| match part.trim().parse::<usize>() {
            Ok(cpu) if cpu <= CPU_MAX => Ok(cpu),
            _ => Err(wrong()),
        };
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = number(first)?..=number(last)?;
            if range.is_empty() {
                return Err(wrong());
            }
            cpus.extend(range);
        }
        Ok(CpuList(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

impl FromStr for UnixMode {
    type Err = String;

    fn from_str(text: &str) -> Result<UnixMode, String> {
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o777 => Ok(UnixMode(mode)),
            _ => Err(format!(
                "`{text}` is no octal file mode; write 600 (this user), 660 (also the group) or \
                 666 (all)"
            )),
        }
    }
}

impl fmt::Display for UnixMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03o}", self.0)
    }
}

/// What the file may say for a setting that is text on the command line.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a number")]
enum TextOrNumber {
    Text(String),
    Number(u64),
}

impl TextOrNumber {
    fn parse<T: FromStr<Err: fmt::Display>>(self) -> Result<T, String> {
        let text = match self {
            TextOrNumber::Text(text) => text,
            TextOrNumber::Number(number) => number.to_string(),
        };
        text.parse().map_err(|error: T::Err| error.to_string())
    }
}

fn from_text<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    let value = TextOrNumber::deserialize(deserializer)?;
    value.parse().map(Some).map_err(serde::de::Error::custom)
}

/// One text, or a list of texts.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

fn from_texts<'de, T, D>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    let texts = match OneOrMore::deserialize(deserializer)? {
        OneOrMore::One(text) => vec![text],
        OneOrMore::More(texts) => texts,
    };
    let parse = |text: String| text.parse().map_err(serde::de::Error::custom);
    texts
        .into_iter()
        .map(parse)
        .collect::<Result<_, _>>()
        .map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        let cpus = |text: &str| text.parse::<CpuList>().map(|list| list.0);
        assert_eq!(cpus("0,2-4, 7"), Ok(vec![0, 2, 3, 4, 7]));
        for text in ["", "a", "3-1", "1-", "-1", "0,,1", "0-99999999999"] {
            assert!(cpus(text).expect_err(text).contains("0,2-3"), "{text}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!("660".parse(), Ok(UnixMode(0o660)));
        assert_eq!(UnixMode(0o7).to_string(), "007");
        for text in ["", "8", "1000", "-1", "rw"] {
            assert!(
                text.parse::<UnixMode>().expect_err(text).contains("octal"),
                "{text}"
            );
        }
    }
}
