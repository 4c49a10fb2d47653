//! `pelton lab`

mod agent;
mod diagnose;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use net::Address;

pub use agent::AgentArguments;
pub use diagnose::DiagnoseArguments;

use super::lab_scenario::ScenarioArguments;
use super::server_address::server_address;
use super::{CompareArguments, ReportOutput, SweepArguments, TlsArguments, number};
use crate::size::{Size, Span};

/// `pelton lab …`
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Stand between any client and any server, and say which of them is waited for
    ///
    /// Forwards bytes as they are, and follows HTTP/2 (gRPC) and baidu_std in both directions: the
    /// calls on each connection, the limit on streams, windows, bursts, and the gaps between them
    /// with who could have moved. The first line of the report names the client, the connection,
    /// the server or the network, the lines below say what speaks for it and against it. With a
    /// command behind `--` it starts the client itself, and ends with it; without one it ends after
    /// --duration, or with Ctrl-C. docs/lab.md says how to read the report. Exit code 1: no call
    /// was seen.
    Tap(Box<TapArguments>),

    /// Load a server with one value of a parameter after the other, and find the knee
    ///
    /// Takes all flags of `pelton load`. Each cell is measured several times, all in random order;
    /// the report has medians, how far the runs are apart, and the least load that brings nearly
    /// the best throughput. `pelton lab sweep --over in-flight=1..128` takes a minute;
    /// --over in-flight=1..64 --over connections=1,4,16 all pairs. docs/lab.md says how to read the
    /// report. Exit code 1: calls failed, or the server went before the end.
    Sweep(Box<SweepArguments>),

    /// Say which differences between two saved results are beyond the noise
    ///
    /// Results are files of `pelton lab sweep --save`, or of `pelton load --output json`, a line
    /// for each run. Of two equal programs fewer than one comparison in twenty says that they
    /// differ. Exit code 1: something became worse, or there are too few runs to say anything.
    Compare(CompareArguments),

    /// Add up saved latencies, and print their percentiles
    ///
    /// Reads what `pelton load --histogram FILE` writes, and other logs of HdrHistogram (version
    /// 2), whose values are taken for nanoseconds. Histograms of the same tag are added up: of
    /// generators that ran side by side, or one after the other. The tag of none is `latency`.
    Histogram(HistogramArguments),

    /// Run a published experiment again, and say which of its claims hold here
    ///
    /// Starts servers and clients of its own on this machine, prints the table of what was measured
    /// beside what was published, and for each claim of the publication: reproduced, not
    /// reproduced, or cannot be seen here and why, by a criterion that is fixed beforehand. It
    /// takes up to three minutes, keeps all CPUs busy, and wants a machine with nothing else to do.
    /// docs/lab.md says more. Exit code 1: nothing was measured.
    Scenario(ScenarioArguments),

    /// Find by short experiments what makes a service slow
    ///
    /// Loads the target with ever more calls in flight, on one connection and on several, and looks
    /// at what its process does meanwhile; or runs a client of yours behind the tap, several times,
    /// with fewer calls open and with a longer way. The first line of the report is the cause, or
    /// `no limit found`, or `undecided` with what would have to be known; the lines below have the
    /// figures for and against it, and what to change. It makes at most 10000 calls a second, with
    /// 256 in flight, for two minutes, and ends when 1 % of them fail or take ten times as long.
    /// docs/lab.md says what it can know. Exit code 1: nothing could be measured.
    Diagnose(Box<DiagnoseArguments>),

    /// Report on the server's machine what its process does, for a diagnosis on another one
    ///
    /// Serves pelton.lab.v1.Agent over gRPC: whoever calls Watch gets a report in each interval,
    /// with the CPU of the process and of its busiest threads, time without a CPU, syncs, quota,
    /// CPUs stolen and idle, segments of TCP and how many were sent again, packets, and bytes in
    /// the buffers of its connections. `pelton lab diagnose --agent` calls it. It changes nothing,
    /// and takes no orders. It listens on the loopback interface, which `ssh -L
    /// 1988:127.0.0.1:1988 HOST` reaches; another address wants --token-file or --anonymous.
    /// docs/lab.md says more.
    Agent(AgentArguments),
}

/// `pelton lab histogram`
#[derive(Args, Debug)]
pub struct HistogramArguments {
    /// Logs of HdrHistogram; `-`: standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    #[command(flatten)]
    pub output: ReportOutput,
}

/// `pelton lab tap`
#[derive(Args, Debug)]
pub struct TapArguments {
    /// Where clients are to connect to: host:port, [ipv6]:port or unix:/path; port 0: the system
    /// chooses one, which a line on standard error names
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: Address,

    /// The server: host:port, [ipv6]:port or unix:/path
    #[arg(long, value_name = "ADDRESS", value_parser = server_address)]
    pub target: Address,

    #[command(flatten)]
    pub tls: TlsArguments,

    /// Speak TLS with clients, with this certificate (PEM). The tap has to read what it follows, so
    /// TLS ends in it and begins again: clients must believe this certificate
    #[arg(long, value_name = "FILE", requires = "listen_tls_key")]
    pub listen_tls_cert: Option<PathBuf>,

    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "listen_tls_cert")]
    pub listen_tls_key: Option<PathBuf>,

    /// Add so much to each round trip, half of it in each direction
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub delay: Span,

    /// Forward so many bytes a second at most in each direction, of all connections together
    #[arg(long, value_name = "SIZE", value_parser = parse_bandwidth)]
    pub bandwidth: Option<Size>,

    /// Forward so many packets a second at most in each direction, of all connections together.
    /// What is read at once is a packet, or as many as its bytes fill: a model of a network whose
    /// packets are counted
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = number::whole::<u64>(1, 1_000_000_000)
    )]
    pub packets_per_second: Option<u64>,

    /// Let clients have so many calls open at most on a connection of HTTP/2: the limit on streams
    /// in the server's SETTINGS is lowered on its way, which is all that is ever changed
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = number::whole::<u32>(1, 2_147_483_647)
    )]
    pub stream_limit: Option<u32>,

    /// End after so long; a command that was started is ended too
    #[arg(long, value_name = "TIME", value_parser = number::timeout)]
    pub duration: Option<Span>,

    /// Draw the last calls of each connection as bars over time into this file: a page with the
    /// report if its name ends in .html, the picture alone if it ends in .svg
    #[arg(long, value_name = "FILE", value_parser = parse_timeline)]
    pub timeline: Option<PathBuf>,

    #[command(flatten)]
    pub output: ReportOutput,

    /// The client and its arguments; `{target}` in them stands for the tap's address. What it
    /// prints goes to standard error
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

fn parse_bandwidth(text: &str) -> Result<Size, String> {
    match text.parse() {
        Ok(Size(0)) => Err("nothing would ever arrive; write at least 1".into()),
        Ok(size) => Ok(size),
        Err(error) => Err(format!("{error}")),
    }
}

fn parse_timeline(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let ending = path.extension().and_then(|ending| ending.to_str());
    match ending {
        Some("html" | "svg") => Ok(path),
        _ => Err("the name has to end in .html (a page) or .svg (a picture)".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeline_is_a_page_or_a_picture() {
        assert!(parse_timeline("a/b.html").is_ok());
        assert!(parse_timeline("b.svg").is_ok());
        for wrong in ["b", "b.png", ".svg", ""] {
            assert!(parse_timeline(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_bandwidth_is_refused() {
        assert_eq!(parse_bandwidth("1MiB"), Ok(Size(1 << 20)));
        assert!(parse_bandwidth("0").is_err());
        assert!(parse_bandwidth("fast").is_err());
    }
}
