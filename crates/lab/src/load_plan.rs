//! The plan of a run.

use std::time::Duration;

use client::{Address, FramedProtocol};

use crate::worker::WorkerPlan;

/// How long a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So long.
    Duration(Duration),
    /// Until so many calls have been made.
    Calls(u64),
}

/// A run.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The server.
    pub address: Address,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// What calls are made over; `None`: gRPC.
    pub framed: Option<FramedProtocol>,
    /// TLS of all connections; `None`: they are plain.
    pub tls: Option<client::tls::ClientTls>,
    /// Lets the server compress its responses.
    pub accepts_gzip: bool,
    /// For whom the server is to answer; `None`: the address.
    pub authority: Option<String>,
    /// Threads, at least one and no more than there are connections.
    pub threads: usize,
    /// CPUs for the threads, in turn. Empty: not pinned.
    pub pin: Vec<usize>,
    /// Connections of all threads together.
    pub connections: usize,
    /// What each worker does; `thread`, `connections` and `calls` are filled in.
    pub worker: WorkerPlan,
    /// Load before measuring.
    pub warm_up: Duration,
    /// Then measure.
    pub length: Length,
    /// Whether the first call that fails ends it.
    pub stop_on_failure: bool,
    /// Whose CPU time to count, if the server runs on this machine.
    pub server_process: Option<u32>,
}

impl LoadPlan {
    /// One plain connection of gRPC with one call at a time, in a closed loop from the start.
    pub fn to(address: Address, connect_timeout: Duration, length: Length) -> LoadPlan {
        LoadPlan {
            address,
            connect_timeout,
            framed: None,
            tls: None,
            accepts_gzip: true,
            authority: None,
            threads: 1,
            pin: Vec::new(),
            connections: 1,
            worker: WorkerPlan::closed(1),
            warm_up: Duration::ZERO,
            length,
            stop_on_failure: false,
            server_process: None,
        }
    }
}
