//! What a tap has seen, at its end.

use std::collections::HashMap;

use hdrhistogram::Histogram;

use super::conditions::Conditions;
use super::frames::Unreadable;
use super::ledger::ConnectionFigures;
use super::tcp_of_side::TcpOfSide;
use super::totals::TapTotals;

/// One connection, or several that share a row.
#[derive(Clone, Debug, Default)]
pub struct ConnectionSummary {
    /// Which one, from 0.
    pub index: usize,
    /// How many.
    pub connections: u64,
    /// Its calls and its time.
    pub figures: ConnectionFigures,
    /// Why it was not followed to its end.
    pub unreadable: Option<Unreadable>,
    /// Plaintext forwarded.
    pub bytes_to_server: u64,
    /// The same from the server.
    pub bytes_to_client: u64,
    /// Reads that brought it.
    pub reads_from_client: u64,
    /// The same from the server.
    pub reads_from_server: u64,
    /// TCP of the client's side, where there is one.
    pub client_tcp: Option<TcpOfSide>,
    /// TCP of the server's side.
    pub server_tcp: Option<TcpOfSide>,
}

impl ConnectionSummary {
    /// Adds another connection to a row that stands for several.
    pub(super) fn add(&mut self, other: &ConnectionSummary) {
        self.connections += other.connections;
        self.figures.add(&other.figures);
        self.unreadable = self.unreadable.or(other.unreadable);
        self.bytes_to_server += other.bytes_to_server;
        self.bytes_to_client += other.bytes_to_client;
        self.reads_from_client += other.reads_from_client;
        self.reads_from_server += other.reads_from_server;
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub struct TapSummary {
    /// Calls, gaps and bursts.
    pub totals: TapTotals,
    /// Each connection that had a call, as far as there are not too many.
    pub connections: Vec<ConnectionSummary>,
    /// The other ones together.
    pub others: ConnectionSummary,
    /// Connections that ended with an error, by its reason.
    pub failed: HashMap<String, u64>,
    /// What was done to what was forwarded.
    pub conditions: Conditions,
    /// How long the server took to accept the first connection: the way there and back.
    pub connect_ns: u64,
    /// The server is on this machine.
    pub is_target_local: bool,
    /// As many connections were open as the tap relays: further ones had to wait.
    pub was_full: bool,
    /// How long the tap ran.
    pub wall_ns: u64,
    /// CPU time of its thread.
    pub own_cpu_ns: u64,
    /// From when bytes had been read to when they had been written, where they could be at once.
    pub forward_ns: Histogram<u64>,
}

impl TapSummary {
    /// The figures of all connections.
    pub fn figures(&self) -> ConnectionFigures {
        let mut all = self.others.figures;
        for connection in &self.connections {
            all.add(&connection.figures);
        }
        all
    }
}
