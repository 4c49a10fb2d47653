//! `pelton load`

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgGroup, Args, ValueEnum};
use lab::{
    Distribution, MetadataField, MetadataValue, MethodName, Mix, Requirement, ValueSizes, limits,
};
use net::Address;

use super::load_operations::{LoadYcsb, parse_distribution};
use super::load_rate::{LoadRate, parse_rate};
use super::server_address::server_address;
use super::{
    CpuList, CredentialArguments, LoadFormat, LoadService, ProfileArguments, TlsArguments, number,
};
use crate::size::{Size, Span};

/// `pelton load`
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("request").args(["data", "data_file", "request_file"]))]
#[command(group = ArgGroup::new("json").args(["data", "request_file"]))]
pub struct LoadArguments {
    /// Another workload than those below
    #[command(subcommand)]
    pub service: Option<LoadService>,

    /// The server: host:port, [ipv6]:port or unix:/path
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "PELTON_ADDRESS",
        default_value = "127.0.0.1:1978",
        value_parser = server_address
    )]
    pub address: Address,

    /// How long to wait for connections
    #[arg(
        long,
        value_name = "TIME",
        env = "PELTON_TIMEOUT",
        default_value = "10s",
        value_parser = number::timeout
    )]
    pub timeout: Span,

    /// What calls are made over
    #[arg(long, value_name = "PROTOCOL", value_enum, default_value_t = LoadProtocol::Grpc)]
    pub protocol: LoadProtocol,

    #[command(flatten)]
    pub tls: TlsArguments,

    #[command(flatten)]
    pub credentials: CredentialArguments,

    #[command(flatten)]
    pub profile: ProfileArguments,

    /// How to print the result
    #[arg(
        long = "output",
        value_name = "FORMAT",
        env = "PELTON_OUTPUT",
        value_enum,
        default_value_t = LoadFormat::Text
    )]
    pub format: LoadFormat,

    /// Which operations of a Pelton server, in percent: get, put, delete, append, incr; insert (a
    /// Put of a key that was never there), scan (of 1 to 100 entries), rmw (a Get, and a Put of the
    /// same key when it is answered)
    #[arg(
        long,
        value_name = "MIX",
        default_value = "get=100",
        conflicts_with = "method"
    )]
    pub mix: Mix,

    /// The operations and keys of a workload of YCSB instead of --mix and --distribution: A (half
    /// updates), B (5 % updates), C (only reads), D (5 % inserts, the latest are read), E (scans,
    /// 5 % inserts), F (half of the reads are followed by a write). YCSB's own values have 1000
    /// bytes
    #[arg(
        long,
        value_name = "LETTER",
        ignore_case = true,
        conflicts_with_all = ["mix", "distribution", "batch", "pipe", "method", "echo"]
    )]
    pub ycsb: Option<LoadYcsb>,

    /// So many operations in one Batch, each with its own outcome
    #[arg(
        long,
        value_name = "NUMBER",
        conflicts_with = "method",
        value_parser = number::whole::<usize>(1, limits::MAX_BATCH as i128)
    )]
    pub batch: Option<usize>,

    /// Send over a Pipe on each connection; with --batch so many operations in one message
    #[arg(long, conflicts_with = "method")]
    pub pipe: bool,

    /// The database to load, whose entries are overwritten and left behind; '' is the default
    /// database [default: one that is made like the default database, and removed at the end,
    /// whatever PELTON_DATABASE says]
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,

    /// How many keys; `incr` has as many counters of its own
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 100_000,
        value_parser = number::whole::<u64>(1, limits::MAX_KEYS.into())
    )]
    pub keys: u64,

    /// Bytes of a key
    #[arg(long, value_name = "SIZE", default_value = "16", value_parser = parse_key_size)]
    pub key_size: u16,

    /// How keys are chosen: uniform, sequential, zipf or zipf:EXPONENT (0.99 if not given), latest
    /// or latest:EXPONENT (as zipf, what was inserted last the most often)
    #[arg(long, value_name = "WAY", default_value = "uniform", value_parser = parse_distribution)]
    pub distribution: Distribution,

    /// Bytes of a value: a size, or exp:MEAN for exponentially distributed ones
    #[arg(long, value_name = "SIZE", default_value = "32", value_parser = parse_value_sizes)]
    pub value_size: ValueSizes,

    /// Before the load, store every key once; in a database that is made for the load this is done
    /// whenever the mix has gets
    #[arg(long, conflicts_with = "method")]
    pub fill: bool,

    /// Call this method instead: package.Service/Method, unary or streaming; the package may be
    /// left out with --data and --request-file, and over baidu_std and SRPC. No token goes with it
    /// but one that --token-file names on this command line
    #[arg(long, value_name = "METHOD", requires = "request")]
    pub method: Option<MethodName>,

    /// Call an echo service instead, with messages of so many bytes: example.EchoService/Echo of
    /// brpc's examples, with --protocol srpc BenchmarkPB/echo_pb of SRPC's benchmark, which answers
    /// with an empty message. A Pelton server takes 16 MiB if it is not told otherwise. No token
    /// goes with it but one that --token-file names on this command line
    #[arg(
        long,
        value_name = "SIZE",
        conflicts_with_all = [
            "method",
            "data",
            "data_file",
            "request_file",
            "proto",
            "descriptor_set",
            "mix",
            "ycsb",
            "batch",
            "pipe",
            "fill",
        ],
        value_parser = parse_echo_size
    )]
    pub echo: Option<usize>,

    /// Its request as JSON, or `@FILE`: the JSON is in this file, `@-`: on standard input; what the
    /// method takes is asked from the server by reflection. Filled in anew for each call are
    /// {{counter}}, {{random 1 100}}, {{random_text 16}}, {{random_bytes 16}} and {{uuid}};
    /// {{utf8}} first in a field of bytes: its text, and not base64
    #[arg(long, value_name = "JSON|@FILE", requires = "method")]
    pub data: Option<String>,

    /// Its request as the bytes of this file; `-`: of standard input
    #[arg(long, value_name = "FILE", requires = "method")]
    pub data_file: Option<PathBuf>,

    /// Many requests: the JSON of one on each line of this file, written as in --data; `-`: of
    /// standard input
    #[arg(long, value_name = "FILE", requires = "method")]
    pub request_file: Option<PathBuf>,

    /// Which of them is next
    #[arg(
        long,
        value_name = "WAY",
        value_enum,
        default_value_t = LoadRequestOrder::Sequential,
        requires = "request_file",
        // Where they are there, clap no longer asks for the file.
        conflicts_with_all = ["data", "data_file"]
    )]
    pub request_order: LoadRequestOrder,

    /// What the method takes, for servers without reflection: the .proto file of its service
    #[arg(
        long,
        value_name = "FILE",
        requires = "json",
        conflicts_with = "descriptor_set"
    )]
    pub proto: Option<PathBuf>,

    /// Where the imports of --proto are, beside its own folder; may be repeated
    #[arg(long, value_name = "FOLDER", requires = "proto")]
    pub import_path: Vec<PathBuf>,

    /// The same as a FileDescriptorSet (protoc --include_imports -o FILE)
    #[arg(long, value_name = "FILE", requires = "json")]
    pub descriptor_set: Option<PathBuf>,

    /// Messages of a call of a streaming method: requests where the client streams (10 if not
    /// given); where the server alone does, responses after which the call is cancelled (if not
    /// given, the server ends it)
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "json",
        value_parser = number::whole::<u64>(1, limits::MAX_MESSAGES.into())
    )]
    pub messages: Option<u64>,

    /// Where both sides stream: requests of a call that wait for their response at a time [default:
    /// 1]
    #[arg(long, value_name = "NUMBER", requires = "json", value_parser = parse_in_flight)]
    pub messages_in_flight: Option<usize>,

    /// Connections
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = parse_connections)]
    pub connections: usize,

    /// Calls at a time on each connection; only with --mode multiplexed [default: 16, with --rate
    /// 1000]
    #[arg(long, value_name = "NUMBER", value_parser = parse_in_flight)]
    pub in_flight: Option<usize>,

    /// How connections are used, in our words or in those of brpc [default: multiplexed, with
    /// --protocol srpc exclusive]
    #[arg(long, value_name = "MODE", value_enum)]
    pub mode: Option<LoadMode>,

    /// Open loop: so many calls a second, whether the server keeps up or not; without it each place
    /// sends its next call when its last one was answered. A ramp (1000..5000) changes evenly over
    /// the measured time; steps (1000,2000,3000) have an equal part of it each
    #[arg(long, value_name = "NUMBER", value_parser = parse_rate)]
    pub rate: Option<LoadRate>,

    /// How the calls of an open loop follow each other
    #[arg(
        long,
        value_name = "WAY",
        value_enum,
        default_value_t = LoadArrivals::Poisson,
        requires = "rate"
    )]
    pub arrivals: LoadArrivals,

    /// Load before measuring
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub warm_up: Span,

    /// Measure so long
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub duration: Span,

    /// Measure so many calls, however long it takes
    #[arg(
        long,
        value_name = "NUMBER",
        conflicts_with = "duration",
        value_parser = number::whole::<u64>(1, u64::MAX.into())
    )]
    pub calls: Option<u64>,

    /// What the run must reach, or the exit code is 1: a latency as in p99<2ms (mean, p50, p99.9 or
    /// another percentile, max), rate>1000, errors<1% or errors<=0; may be repeated, or several
    /// separated by commas. With one of errors, a failed call alone is no miss
    #[arg(long, value_name = "REQUIREMENT", value_delimiter = ',')]
    pub require: Vec<Requirement>,

    /// Also write the latencies into this file, as a log of HdrHistogram: `pelton lab histogram`
    /// reads it, and other tools
    #[arg(long, value_name = "FILE")]
    pub histogram: Option<PathBuf>,

    /// Draw the run into this file: one page that needs no network, with charts of the latencies
    /// and of the time
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// How long each call may take; the server is told
    #[arg(long, value_name = "TIME", conflicts_with = "pipe")]
    pub deadline: Option<Span>,

    /// What goes with each call: name=value, or name=random for 32 other digits each time; may be
    /// repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_metadata)]
    pub metadata: Vec<MetadataField>,

    /// For whom the server is to answer (:authority) [default: the address]
    #[arg(long, value_name = "HOST")]
    pub authority: Option<String>,

    /// Threads that send
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = parse_threads)]
    pub threads: usize,

    /// CPUs for these threads, such as 1 or 2-3
    #[arg(long, value_name = "CPUS")]
    pub pin: Option<CpuList>,

    /// The server's process on this machine: its CPU time is measured too
    #[arg(long, value_name = "PID", value_parser = number::whole::<u32>(1, u32::MAX.into()))]
    pub server_pid: Option<u32>,

    /// Begins the random numbers: the same seed chooses the same keys and values
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        value_parser = number::whole::<u64>(0, u64::MAX.into())
    )]
    pub seed: u64,
}

/// What calls are made over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadProtocol {
    /// HTTP/2
    Grpc,
    /// the default protocol of brpc
    #[value(name = "baidu_std", alias = "brpc")]
    BaiduStd,
    /// that of SRPC, which carries one call at a time on a connection
    Srpc,
}

/// How connections are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadMode {
    /// several calls at a time on each
    Multiplexed,
    /// the same, as brpc calls it
    Single,
    /// one call at a time on each
    Exclusive,
    /// the same, as brpc calls it
    Pooled,
    /// a new connection for each call, of brpc as well
    Short,
}

/// Which of several requests is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadRequestOrder {
    /// one after the other, and again from the first
    Sequential,
    /// any of them
    Random,
}

/// How the calls of an open loop follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadArrivals {
    /// at equal distances
    Fixed,
    /// as from many callers who know nothing of each other
    Poisson,
}

impl LoadArguments {
    /// Returns which operations, and how their keys are chosen.
    pub fn operations(&self) -> (Mix, Distribution) {
        let named = || (self.mix.clone(), self.distribution);
        self.ycsb.map_or_else(named, LoadYcsb::operations)
    }
}

fn parse_key_size(text: &str) -> Result<u16, String> {
    let size: Size = text.parse().map_err(|error| format!("{error}"))?;
    let size = u16::try_from(size.0).ok().filter(|size| *size > 0);
    size.ok_or_else(|| format!("a key has 1 to {} bytes", u16::MAX))
}

fn parse_value_sizes(text: &str) -> Result<ValueSizes, String> {
    /// What a server can be set to store at most.
    const MAX_BYTES: u64 = 1 << 30;
    let (make, size): (fn(usize) -> ValueSizes, &str) = match text.strip_prefix("exp:") {
        Some(mean) => (ValueSizes::Exponential, mean),
        None => (ValueSizes::Fixed, text),
    };
    let size: Size = size.parse().map_err(|error| format!("{error}"))?;
    let sizes = usize::try_from(size.0).map(make);
    match sizes {
        Ok(sizes) if sizes.max_bytes() as u64 <= MAX_BYTES => Ok(sizes),
        _ => Err(
            "values have at most 1GiB, exponentially distributed ones up to ten times their mean"
                .into(),
        ),
    }
}

fn parse_echo_size(text: &str) -> Result<usize, String> {
    let size: Size = text.parse().map_err(|error| format!("{error}"))?;
    let bytes = usize::try_from(size.0).ok();
    let bytes = bytes.filter(|bytes| (1..=limits::MAX_ECHO_BYTES).contains(bytes));
    bytes.ok_or_else(|| {
        format!(
            "write a size from 1 to {}",
            Size(limits::MAX_ECHO_BYTES as u64)
        )
    })
}

fn parse_metadata(text: &str) -> Result<MetadataField, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` is no metadata; write name=value or name=random"))?;
    let field = MetadataField {
        name: name.into(),
        value: match value {
            "random" => MetadataValue::Random,
            value => MetadataValue::Same(value.into()),
        },
    };
    field.check().map_err(|_| {
        format!(
            "`{text}` cannot be sent: names are lower-case letters, digits, `-`, `_` and `.`, and \
             do not begin with grpc- or end with -bin; values are printable ASCII"
        )
    })?;
    Ok(field)
}

/// A number from 1 to `most`.
fn count(text: &str, most: usize) -> Result<usize, String> {
    match usize::from_str(text) {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("write a number from 1 to {most}")),
    }
}

fn parse_connections(text: &str) -> Result<usize, String> {
    count(text, limits::MAX_CONNECTIONS)
}

fn parse_in_flight(text: &str) -> Result<usize, String> {
    count(text, limits::MAX_IN_FLIGHT)
}

fn parse_threads(text: &str) -> Result<usize, String> {
    count(text, limits::MAX_THREADS)
}
