//! What experiments have measured. What could not be measured is `None`, and never zero.

use super::agent_presence::AgentPresence;

/// CPU time of one thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadUse {
    /// Its name, as the kernel has it.
    pub name: String,
    /// For which part of the time it was on a CPU, from 0 to 1.
    pub busy: f64,
    /// For which part it was ready to run, and waited for one.
    pub waited: f64,
}

/// What one process, or several, did while an experiment ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessUse {
    /// CPUs that were busy for it on average.
    pub cpus: f64,
    /// Its busiest thread.
    pub busiest: Option<ThreadUse>,
    /// CPUs that it waited for on average while it was ready to run.
    pub waited_for_cpus: f64,
    /// The part of the looks at which a thread was within a sync of a file.
    pub in_sync: Option<f64>,
    /// CPUs that a quota of its control group gives it.
    pub quota_cpus: Option<f64>,
    /// The part of the periods of that quota in which it was used up.
    pub throttled: Option<f64>,
    /// How often its threads moved from one CPU to another each second.
    pub migrations_per_s: Option<f64>,
}

/// What the CPUs of a machine did meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineUse {
    /// CPUs that there are.
    pub cpus: usize,
    /// The part of their time that the hypervisor gave to others.
    pub steal: f64,
    /// The part of their time in which they had nothing to do.
    pub idle: f64,
}

/// One experiment of our own generator.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPoint {
    /// Connections.
    pub connections: usize,
    /// Calls in flight on all of them together.
    pub in_flight: usize,
    /// Bytes that each request had more than is asked for, in a field that no server knows.
    pub padding_bytes: usize,
    /// The server might compress its responses.
    pub accepts_gzip: bool,
    /// Operations in each call.
    pub records_per_call: u64,
    /// Calls that ended each second.
    pub rate: f64,
    /// From the start of a call to its end, in nanoseconds.
    pub mean_ns: u64,
    /// The same: half of them took no longer.
    pub p50_ns: u64,
    /// The same: 99 of 100 took no longer.
    pub p99_ns: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Bytes sent and received each second.
    pub bytes_per_s: (f64, f64),
    /// Segments of TCP sent and received each second, acknowledgements without bytes included.
    pub segments_per_s: Option<(f64, f64)>,
    /// The part of the time in which the busiest thread of the generator was on a CPU.
    pub generator_busy: Option<f64>,
    /// The part of the time of a connection in which requests waited for the server's window.
    pub window_wait: f64,
    /// The calls on a connection at which the server let no more begin; `None`: that did not
    /// happen.
    pub stream_limit: Option<u64>,
    /// The server's process, if it is on this machine, or an agent on its machine watches it.
    pub server: Option<ProcessUse>,
    /// The machine on which it was watched.
    pub machine: Option<MachineUse>,
}

impl LoadPoint {
    /// The part of the calls that failed.
    pub fn failed_share(&self) -> f64 {
        self.failed as f64 / (self.failed + self.succeeded).max(1) as f64
    }

    /// Bytes of a call in the direction that has more of them.
    pub fn bytes_per_s_max(&self) -> f64 {
        self.bytes_per_s.0.max(self.bytes_per_s.1)
    }
}

/// What a diagnosis may do to a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadCeiling {
    /// Calls a second.
    pub rate: f64,
    /// Calls in flight.
    pub in_flight: usize,
    /// How long all experiments may take together, in nanoseconds.
    pub time_ns: u64,
}

/// Why experiments ended before all were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyEnd {
    /// Too many calls failed; the first one with these words.
    Failures(String),
    /// The time was over.
    Time,
    /// The user ended it.
    User,
    /// A run of the client could not be made, for this reason.
    NoRun(String),
}

/// What our own generator has measured.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadEvidence {
    /// What it was allowed.
    pub ceiling: LoadCeiling,
    /// On one connection, with ever more calls in flight.
    pub one: Vec<LoadPoint>,
    /// As many calls in flight as last on one connection, spread over several.
    pub spread: Option<LoadPoint>,
    /// The best of one connection once more, after that: how much chance there is in the figures.
    pub again: Option<LoadPoint>,
    /// One call in flight once more, after that.
    pub alone: Option<LoadPoint>,
    /// The best of one connection with larger requests.
    pub larger: Option<LoadPoint>,
    /// The same without compressed responses.
    pub uncompressed: Option<LoadPoint>,
    /// Responses of that experiment that were compressed all the same.
    pub still_compressed: Option<CompressionUse>,
    /// The same with several operations in each message.
    pub batched: Option<LoadPoint>,
    /// There and back to the server without its work; `None`: it is on this machine.
    pub round_trip_ns: Option<u64>,
    /// The agent that watched the server; `None`: there was none.
    pub agent: Option<AgentPresence>,
    /// Why it ended early.
    pub early_end: Option<EarlyEnd>,
}

/// Compressed messages of one direction, and what they cost. What they cost was measured on this
/// machine, with some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CompressionUse {
    /// Messages each second.
    pub messages_per_s: f64,
    /// How many times as many bytes they are without.
    pub ratio: f64,
    /// CPUs that it takes to compress them.
    pub compress_cpus: f64,
    /// CPUs that it takes to decompress them.
    pub decompress_cpus: f64,
}

/// One run of the user's client behind the tap.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientRun {
    /// What the tap made of the server's limit on streams.
    pub stream_limit_made: Option<u32>,
    /// What the tap added to each round trip, in nanoseconds.
    pub delay_ns: u64,
    /// Calls that succeeded, each second from the first call to the last sign of progress.
    pub rate: f64,
    /// Calls that ended.
    pub ended: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Connections that carried calls.
    pub connections: usize,
    /// The most of them that stood at a time: a client may make one after the other.
    pub connections_at_a_time: usize,
    /// Calls that were open on a connection on average.
    pub mean_open: f64,
    /// The most that were open on one.
    pub most_open: usize,
    /// The server's limit on streams, as the client was shown it.
    pub limit: Option<u32>,
    /// The part of the time with as many open as that.
    pub at_limit: f64,
    /// The part of the time in which the client was the one to move.
    pub client_share: f64,
    /// The same of the server, whether the limit was reached or not.
    pub server_share: f64,
    /// The part of the time in which requests waited for the server's window.
    pub server_window_share: f64,
    /// The same of responses and the client's window.
    pub client_window_share: f64,
    /// From a whole request to the first byte of its answer, in nanoseconds: half took no longer.
    pub server_ns: u64,
    /// The mean of the same.
    pub server_mean_ns: u64,
    /// From the first byte of a request to the last of its answer: half took no longer.
    pub call_ns: u64,
    /// Bytes to and from the server each second.
    pub bytes_per_s: (f64, f64),
    /// The part of the time in which the tap's thread was busy.
    pub tap_busy: f64,
    /// There and back to the server; `None`: it is on this machine.
    pub round_trip_ns: Option<u64>,
    /// Compressed requests, if there were any.
    pub compressed_requests: Option<CompressionUse>,
    /// Compressed responses.
    pub compressed_responses: Option<CompressionUse>,
    /// The client's processes.
    pub client: Option<ProcessUse>,
    /// The server's process, if it is on this machine, or an agent on its machine watches it.
    pub server: Option<ProcessUse>,
    /// This machine.
    pub machine: Option<MachineUse>,
    /// The machine on which the server was watched.
    pub server_machine: Option<MachineUse>,
    /// What the tap says of it where no call succeeded.
    pub problem: Option<String>,
}

impl ClientRun {
    /// The part of the time in which a window was used up.
    pub fn window_share(&self) -> f64 {
        self.server_window_share + self.client_window_share
    }
}

/// What runs of the user's client have shown.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientEvidence {
    /// As it is.
    pub plain: ClientRun,
    /// With half as many calls open at a time on a connection.
    pub halved: Option<ClientRun>,
    /// With one call open at a time on a connection.
    pub single: Option<ClientRun>,
    /// With a longer way.
    pub delayed: Option<ClientRun>,
    /// With one CPU alone.
    pub pinned: Option<ClientRun>,
    /// As it is once more, after these: how much chance there is in the figures.
    pub again: Option<ClientRun>,
    /// The agent that watched the server; `None`: there was none.
    pub agent: Option<AgentPresence>,
    /// Why runs were left out.
    pub early_end: Option<EarlyEnd>,
}
