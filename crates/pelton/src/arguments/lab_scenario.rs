//! `pelton lab scenario`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lab::scenario::ScenarioScale;

use super::{ReportOutput, number};

/// `pelton lab scenario`
#[derive(Args, Debug)]
pub struct ScenarioArguments {
    /// Which experiment
    #[arg(value_name = "NAME", value_enum)]
    pub name: ScenarioName,

    /// Measure as much and as long as the publication did, instead of within three minutes
    #[arg(long)]
    pub full: bool,

    /// Make runs so short that they show only that everything works, and no figures
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,

    /// How often each run is made [default: 2 or 3, by the experiment; with --full up to 5, of
    /// chunk-size 50]
    #[arg(long, value_name = "NUMBER", value_parser = number::whole::<usize>(1, 1_000))]
    pub rounds: Option<usize>,

    /// Begins the random order of the runs [default: another one each time]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,

    /// Of channels and in-flight: a Python that has grpcio, for clients of gRPC's C core, and
    /// pelton_grpc [default: python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<PathBuf>,

    /// Of channels: a client of gRPC's C core to take in the place of grpcio, with the flags of
    /// those in peers/, such as that in C++; --python is that of pelton_grpc then
    #[arg(long, value_name = "PROGRAM")]
    pub grpc_client: Option<PathBuf>,

    /// Of chunk-size: also write each upload as `shift,nanoseconds`, as the original prints it,
    /// into a file for each way: of `sizes.csv` become sizes.grpc.csv, sizes.http2.csv and others
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Draw the claims, their charts and the table into this file: one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    #[command(flatten)]
    pub output: ReportOutput,
}

impl ScenarioArguments {
    /// How much is to be measured.
    pub fn scale(&self) -> ScenarioScale {
        match (self.quick, self.full) {
            (true, _) => ScenarioScale::Quick,
            (false, true) => ScenarioScale::Full,
            (false, false) => ScenarioScale::Short,
        }
    }
}

/// A published experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScenarioName {
    /// YDB, 2025: channels of gRPC, and the connections that they share
    Channels,
    /// Mastrangelo, 2018: one call at a time, many, and a server with and without its lock
    InFlight,
    /// brpc and SRPC: connections that are shared, pooled, and made for each call
    ConnectionModes,
    /// Tkrzw-RPC, 2021: a thread for each connection or events, streams, and batches
    ServerModes,
    /// gupload, 2018: a file in chunks of 16 bytes to 2 MiB over gRPC and plain HTTP/2, with and
    /// without TLS
    ChunkSize,
}
