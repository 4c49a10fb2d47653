//! Published experiments, run again: what is started, and which of their claims hold here.
//!
//! A [`Scenario`] makes a [`ScenarioPlan`]: servers, and runs of clients against them. Whoever
//! carries it out brings back [`Measurements`], and the scenario judges each [`Claim`] of the
//! publication by a criterion of shape that stands in the plan, so before anything is measured.
//! Nothing here starts a program or opens a socket.

mod channels;
mod chunk_size;
mod claim;
mod connection_modes;
mod in_flight;
mod measurements;
mod plan;
mod report;
mod server_modes;
mod table;

pub use claim::{Claim, ClaimVerdict};
pub use measurements::{MeasuredRun, Measurements};
pub use plan::{PlannedClient, PlannedRun, PlannedServer, ScenarioPlan, ScenarioScale};
pub use report::ScenarioReport;

use table::Column;

/// A published experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// "So You Want to Optimize gRPC" (Carl Mastrangelo, 2018): calls one at a time, many, and a
    /// server without its lock.
    InFlight,
    /// brpc and SRPC: connections that are shared, pooled, and made for each call.
    ConnectionModes,
    /// "The Surprising gRPC Client Bottleneck" (YDB, 2025): channels, and the connections that they
    /// share.
    Channels,
    /// Tkrzw-RPC (Hirabayashi, 2021): server modes, streams and batches.
    ServerModes,
    /// gupload (Costa, 2018): a file in chunks of 16 bytes to 2 MiB, over gRPC and HTTP/2.
    ChunkSize,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 5] = [
        Scenario::Channels,
        Scenario::InFlight,
        Scenario::ConnectionModes,
        Scenario::ServerModes,
        Scenario::ChunkSize,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::InFlight => "in-flight",
            Scenario::ConnectionModes => "connection-modes",
            Scenario::Channels => "channels",
            Scenario::ServerModes => "server-modes",
            Scenario::ChunkSize => "chunk-size",
        }
    }

    /// What was published, and where.
    pub fn publication(self) -> &'static str {
        match self {
            Scenario::InFlight => in_flight::PUBLICATION,
            Scenario::ConnectionModes => connection_modes::PUBLICATION,
            Scenario::Channels => channels::PUBLICATION,
            Scenario::ServerModes => server_modes::PUBLICATION,
            Scenario::ChunkSize => chunk_size::PUBLICATION,
        }
    }

    /// What is to be started and measured.
    pub fn plan(self, scale: ScenarioScale) -> ScenarioPlan {
        match self {
            Scenario::InFlight => in_flight::plan(scale),
            Scenario::ConnectionModes => connection_modes::plan(scale),
            Scenario::Channels => channels::plan(scale),
            Scenario::ServerModes => server_modes::plan(scale),
            Scenario::ChunkSize => chunk_size::plan(scale),
        }
    }

    /// What each claim of the publication looks like in what was measured.
    pub fn judge(self, measured: &Measurements) -> Vec<Claim> {
        match self {
            Scenario::InFlight => in_flight::judge(measured),
            Scenario::ConnectionModes => connection_modes::judge(measured),
            Scenario::Channels => channels::judge(measured),
            Scenario::ServerModes => server_modes::judge(measured),
            Scenario::ChunkSize => chunk_size::judge(measured),
        }
    }

    /// The columns of its table.
    fn columns(self) -> &'static [Column] {
        match self {
            Scenario::InFlight
            | Scenario::ConnectionModes
            | Scenario::Channels
            | Scenario::ServerModes => table::CALLS,
            Scenario::ChunkSize => chunk_size::COLUMNS,
        }
    }

    /// Charts of its own; `None`: those of its columns are good enough.
    fn charts(self, measured: &Measurements) -> Option<Vec<(String, String)>> {
        (self == Scenario::ChunkSize).then(|| chunk_size::charts(measured))
    }

    /// The names of what [`ScenarioReport::csv`] has; `None`: it has nothing.
    pub fn csv_names(self) -> Option<Vec<&'static str>> {
        let files = self.csv(&Measurements::default())?;
        Some(files.into_iter().map(|(name, _)| name).collect())
    }

    fn csv(self, measured: &Measurements) -> Option<Vec<(&'static str, String)>> {
        (self == Scenario::ChunkSize).then(|| chunk_size::csv(measured))
    }
}
