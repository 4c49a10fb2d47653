//! `pelton load kvstore`, `ping`, `gupload` and `tkrzw`: clients of benchmarks of other systems.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use lab::{Distribution, limits};
use net::Address;

use super::load_operations::parse_distribution;
use super::server_address::server_address;
use super::{CpuList, CredentialArguments, ProfileArguments, TlsArguments, number};
use crate::simulation::Simulation;
use crate::size::{Size, Span};

/// `pelton load …`
#[derive(Debug, Subcommand)]
pub enum LoadService {
    /// Load io.grpc.KeyValueService as the client of "So You Want to Optimize gRPC" does
    ///
    /// Create, Retrieve, Update and Delete in equal shares, on one connection. Prints the line of
    /// the article's client, counted as that counts, below it all operations, and beside both what
    /// the server's delays allow. Exit code 1: the result is void, or calls failed. Keys are
    /// written to the database that --kvstore-database of the server names, by default the default
    /// database; those that it has made and not deleted are deleted at the end.
    Kvstore(KvstoreLoadArguments),

    /// Load Ydb.Debug.V1.DebugService as the YDB project's ping benchmark does
    ///
    /// Prints the table of that benchmark, one row for each number of pings in flight (with
    /// --per-worker, one for each ping in flight of the last). The first call that fails ends it,
    /// with exit code 1.
    Ping(PingLoadArguments),

    /// Upload a file in chunks, again and again, as gupload's client does
    ///
    /// To messaging.GuploadService, or with --http2 to /upload: content that is made for it, one
    /// upload after the other on one connection. Prints how long they took until the last chunk
    /// was given away, which is gupload's own clock over gRPC, and until the answer, which is that
    /// over HTTP/2. A server keeps what it receives, unless it has --discard-uploads. The first
    /// upload that fails ends it; exit code 1: others had succeeded by then, and are shown.
    Gupload(GuploadLoadArguments),

    /// Load tkrzw_rpc.DBMService, the service of Tkrzw-RPC, as its benchmark does
    ///
    /// Echo, Get and Set, each a call of its own, several records in a call, or messages of a
    /// stream, with responses or without. Keys are numbers in decimal digits: `--operation set` and
    /// `--fill` overwrite the records of these keys, and leave them behind. Exit code 1: the result
    /// is void, or calls failed.
    Tkrzw(TkrzwLoadArguments),
}

/// `pelton load kvstore`
#[derive(Args, Debug)]
pub struct KvstoreLoadArguments {
    #[command(flatten)]
    pub target: LoadTarget,

    /// One call at a time, as the article's first client; its line leaves Creates out
    #[arg(long)]
    pub blocking: bool,

    /// Calls at a time [default: 100]
    #[arg(long, value_name = "NUMBER", value_parser = parse_in_flight, conflicts_with = "blocking")]
    pub in_flight: Option<usize>,

    /// Whose keys are whose
    #[arg(long, value_name = "USE", value_enum, default_value_t = LoadKeys::Shared)]
    pub keys: LoadKeys,

    /// End with the first call that fails
    #[arg(long)]
    pub stop_on_error: bool,

    /// The delays that the server was given, for what can be reached at most; the server is not
    /// told
    #[arg(long, value_name = "DELAYS", default_value = "read=10ms,write=50ms")]
    pub simulate: Simulation,

    /// Mean size of keys, exponentially distributed
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = parse_mean)]
    pub key_mean: usize,

    /// Mean size of values, exponentially distributed
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = parse_mean)]
    pub value_mean: usize,

    /// Load before measuring
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub warm_up: Span,

    /// Measure so long
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub duration: Span,

    /// Draw the run into this file: one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Begins the random numbers: the same seed chooses the same keys and values [default: another
    /// one each time]
    #[arg(long, value_name = "NUMBER", value_parser = number::whole::<u64>(0, u64::MAX.into()))]
    pub seed: Option<u64>,
}

/// `pelton load ping`
#[derive(Args, Debug)]
pub struct PingLoadArguments {
    #[command(flatten)]
    pub target: LoadTarget,

    /// Pings at a time, or a sweep from the first number to the last: 32, 1-32
    #[arg(long, value_name = "NUMBERS", default_value = "32")]
    pub in_flight: Sweep,

    /// Send each ping over a stream, which is used again, instead of a call of its own
    #[arg(long, conflicts_with = "deadline")]
    pub streaming: bool,

    /// Connections
    #[arg(long, value_name = "HOW", value_enum, default_value_t = PingConnections::One)]
    pub connections: PingConnections,

    /// How long each call may take; not with --streaming
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub deadline: Span,

    /// Load before measuring, for each number of pings in flight
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub warm_up: Span,

    /// Measure so long, for each number of pings in flight
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub duration: Span,

    /// Instead of the table, print what each ping in flight (worker) of the last number had
    #[arg(long)]
    pub per_worker: bool,

    /// CPU for the thread that sends
    #[arg(long, value_name = "CPUS")]
    pub pin: Option<CpuList>,
}

/// `pelton load gupload`
#[derive(Args, Debug)]
pub struct GuploadLoadArguments {
    #[command(flatten)]
    pub target: LoadTarget,

    /// Bytes of the file, which looks like a log
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "16MiB",
        value_parser = |text: &str| parse_size(text, limits::MAX_UPLOAD_BYTES)
    )]
    pub size: usize,

    /// Bytes of a chunk: a message, or with --http2 a DATA frame, or several if it is longer than
    /// one may be
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "4KiB",
        value_parser = |text: &str| parse_size(text, limits::MAX_UPLOAD_CHUNK_BYTES)
    )]
    pub chunk_size: usize,

    /// Uploads that are measured
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 10,
        value_parser = number::whole::<usize>(1, limits::MAX_UPLOADS as i128)
    )]
    pub uploads: usize,

    /// Uploads before those
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        value_parser = number::whole::<usize>(0, limits::MAX_UPLOADS as i128)
    )]
    pub warm_up: usize,

    /// Send the file as the body of a plain POST over HTTP/2
    #[arg(long)]
    pub http2: bool,

    /// Compress each message with gzip
    #[arg(long, conflicts_with = "http2")]
    pub compress: bool,

    /// How long each upload may take
    #[arg(long, value_name = "TIME", default_value = "10min")]
    pub deadline: Span,

    /// The server's process on this machine: its CPU time is measured too
    #[arg(long, value_name = "PID", value_parser = number::whole::<u32>(1, u32::MAX.into()))]
    pub server_pid: Option<u32>,
}

/// `pelton load tkrzw`
#[derive(Args, Debug)]
pub struct TkrzwLoadArguments {
    #[command(flatten)]
    pub target: LoadTarget,

    /// What is called
    #[arg(long, value_name = "OPERATION", value_enum, default_value_t = TkrzwLoadOperation::Echo)]
    pub operation: TkrzwLoadOperation,

    /// So many records in each call (GetMulti and SetMulti)
    #[arg(
        long,
        value_name = "NUMBER",
        conflicts_with = "stream",
        value_parser = number::whole::<usize>(1, limits::MAX_BATCH as i128)
    )]
    pub records: Option<usize>,

    /// Send operations as messages of one stream on each connection
    #[arg(long)]
    pub stream: bool,

    /// Want no response to the messages of a stream (omit_response): each connection has one stream
    /// of --messages after the other, and a call is a whole stream. Operations that the server
    /// refused are not seen then, and count as done
    #[arg(long, requires = "stream", conflicts_with = "in_flight")]
    pub omit_responses: bool,

    /// Messages of a stream without responses
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 10_000,
        requires = "omit_responses",
        value_parser = number::whole::<u64>(1, limits::MAX_MESSAGES.into())
    )]
    pub messages: u64,

    /// Connections
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        value_parser = number::whole::<usize>(1, limits::MAX_CONNECTIONS as i128)
    )]
    pub connections: usize,

    /// Calls, or messages of a stream, at a time on each connection [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = parse_in_flight)]
    pub in_flight: Option<usize>,

    /// Threads that send
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        value_parser = number::whole::<usize>(1, limits::MAX_THREADS as i128)
    )]
    pub threads: usize,

    /// Not with echo: the database, by its place in the server's list [default: 0]
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = number::whole::<i32>(0, i32::MAX.into())
    )]
    pub index: Option<i32>,

    /// Not with echo: how many keys [default: 1000000]
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = number::whole::<u64>(1, limits::MAX_KEYS.into())
    )]
    pub keys: Option<u64>,

    /// Not with echo: bytes of a key, which is a number with leading zeros [default: 8]
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = |text: &str| parse_size(text, usize::from(u16::MAX))
    )]
    pub key_size: Option<usize>,

    /// Bytes of a value, or of the message of an Echo
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "8",
        value_parser = |text: &str| parse_size(text, 16 << 20)
    )]
    pub value_size: usize,

    /// Not with echo: how keys are chosen: uniform, sequential, zipf or zipf:EXPONENT [default:
    /// sequential]
    #[arg(long, value_name = "WAY", value_parser = parse_distribution)]
    pub distribution: Option<Distribution>,

    /// Before the load, store every key once; not with echo
    #[arg(long)]
    pub fill: bool,

    /// Load before measuring
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub warm_up: Span,

    /// Measure so long
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub duration: Span,

    /// Draw the run into this file: one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// The server's process on this machine: its CPU time is measured too
    #[arg(long, value_name = "PID", value_parser = number::whole::<u32>(1, u32::MAX.into()))]
    pub server_pid: Option<u32>,

    /// Begins the random numbers: the same seed chooses the same keys
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        value_parser = number::whole::<u64>(0, u64::MAX.into())
    )]
    pub seed: u64,
}

/// What is called of Tkrzw-RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TkrzwLoadOperation {
    /// a message comes back
    Echo,
    /// records are read
    Get,
    /// records are stored, over those that are there
    Set,
}

/// Where the server is, and how the result is printed.
#[derive(Args, Debug)]
pub struct LoadTarget {
    /// The server: host:port, [ipv6]:port or unix:/path
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "PELTON_ADDRESS",
        default_value = "127.0.0.1:1978",
        value_parser = server_address
    )]
    pub address: Address,

    #[command(flatten)]
    pub tls: TlsArguments,

    #[command(flatten)]
    pub credentials: CredentialArguments,

    #[command(flatten)]
    pub profile: ProfileArguments,

    /// How long to wait for connections
    #[arg(
        long,
        value_name = "TIME",
        env = "PELTON_TIMEOUT",
        default_value = "10s",
        value_parser = number::timeout
    )]
    pub timeout: Span,

    /// How to print the result
    #[arg(
        long = "output",
        value_name = "FORMAT",
        env = "PELTON_OUTPUT",
        value_enum,
        default_value_t = LoadFormat::Text
    )]
    pub format: LoadFormat,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadFormat {
    /// for people
    Text,
    /// a line of names and a line of figures
    Csv,
    /// one JSON object
    Json,
}

/// Whose keys are whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadKeys {
    /// as in the article: a key may be deleted by one call before another comes to it, which is
    /// counted as a race
    Shared,
    /// a key belongs to one call at a time: any status but OK is an error, and every value is
    /// compared
    Owned,
}

/// Connections of pings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PingConnections {
    /// one for all
    One,
    /// one for each ping in flight
    PerWorker,
}

/// Numbers from the first to the last, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    pub first: usize,
    pub last: usize,
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Sweep, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last))
                if 1 <= first && first <= last && last <= limits::MAX_IN_FLIGHT =>
            {
                Ok(Sweep { first, last })
            }
            _ => Err(format!(
                "write a number from 1 to {}, or two of them as in 1-32",
                limits::MAX_IN_FLIGHT
            )),
        }
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sweep { first, last } if first == last => write!(f, "{first}"),
            Sweep { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

fn parse_in_flight(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=limits::MAX_IN_FLIGHT).contains(&number) => Ok(number),
        _ => Err(format!(
            "write a number from 1 to {}",
            limits::MAX_IN_FLIGHT
        )),
    }
}

/// Sizes go up to ten times their mean.
fn parse_mean(text: &str) -> Result<usize, String> {
    parse_size(text, 16 << 20)
}

fn parse_size(text: &str, most_bytes: usize) -> Result<usize, String> {
    let size: Size = text.parse().map_err(|error| format!("{error}"))?;
    let bytes = usize::try_from(size.0).ok();
    let bytes = bytes.filter(|bytes| (1..=most_bytes).contains(bytes));
    bytes.ok_or_else(|| format!("write a size from 1 to {}", Size(most_bytes as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_read() {
        for (text, first, last) in [("32", 32, 32), ("1-32", 1, 32), ("5 - 5", 5, 5)] {
            assert_eq!(text.parse(), Ok(Sweep { first, last }), "{text}");
        }
        for text in ["", "0", "0-3", "5-4", "1-2-3", "a", "1-99999999"] {
            let error = text.parse::<Sweep>().expect_err(text);
            assert!(error.contains("1-32"), "{error}");
        }
    }
}
