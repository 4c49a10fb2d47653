//! What can make a service slow.

/// What makes a service slow, or holds its throughput down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// One connection carries no more; several do.
    OneConnection,
    /// The server lets no more calls be open on a connection.
    StreamLimit,
    /// Flow-control windows are used up.
    Window,
    /// The client uses all the CPU that it can.
    ClientCpu,
    /// One thread of the client is busy all the time, and others are not.
    ClientThread,
    /// The client keeps fewer calls open than the server could work on.
    ClientInFlight,
    /// The client has no call open although nothing keeps it from it.
    ClientPace,
    /// The client opens calls without bound at a server that has no more to give.
    ClientQueue,
    /// One thread of the server is busy all the time, and others are not.
    ServerThread,
    /// The server uses all the CPU that it can.
    ServerCpu,
    /// The server works on one call at a time, and does not use its CPU meanwhile.
    ServerSerial,
    /// The server works on a fixed number of calls at a time, and does not use its CPU meanwhile.
    ServerPool,
    /// The server waits for syncs of a disk.
    DiskSync,
    /// The way to the server is long.
    Way,
    /// So many bytes go over the way each second, and no more.
    Bandwidth,
    /// So many packets go over the way each second, and no more.
    PacketsPerSecond,
    /// The server's CPU goes to messages, each with little in it.
    SmallMessages,
    /// CPU goes to compressing messages.
    Compression,
    /// Threads of the client move from CPU to CPU.
    WanderingThreads,
    /// A quota of CPU time keeps threads from running.
    Quota,
    /// The hypervisor gives the CPU to others.
    Steal,
    /// The generator of the load has no more to give.
    Generator,
}

impl Cause {
    /// All.
    pub const ALL: [Cause; 22] = [
        Cause::OneConnection,
        Cause::StreamLimit,
        Cause::Window,
        Cause::ClientCpu,
        Cause::ClientThread,
        Cause::ClientInFlight,
        Cause::ClientPace,
        Cause::ClientQueue,
        Cause::ServerThread,
        Cause::ServerCpu,
        Cause::ServerSerial,
        Cause::ServerPool,
        Cause::DiskSync,
        Cause::Way,
        Cause::Bandwidth,
        Cause::PacketsPerSecond,
        Cause::SmallMessages,
        Cause::Compression,
        Cause::WanderingThreads,
        Cause::Quota,
        Cause::Steal,
        Cause::Generator,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cause::OneConnection => "one_connection",
            Cause::StreamLimit => "stream_limit",
            Cause::Window => "window",
            Cause::ClientCpu => "client_cpu",
            Cause::ClientThread => "client_thread",
            Cause::ClientInFlight => "client_in_flight",
            Cause::ClientPace => "client_pace",
            Cause::ClientQueue => "client_queue",
            Cause::ServerThread => "server_thread",
            Cause::ServerCpu => "server_cpu",
            Cause::ServerSerial => "server_serial",
            Cause::ServerPool => "server_pool",
            Cause::DiskSync => "disk_sync",
            Cause::Way => "way",
            Cause::Bandwidth => "bandwidth",
            Cause::PacketsPerSecond => "packets_per_second",
            Cause::SmallMessages => "small_messages",
            Cause::Compression => "compression",
            Cause::WanderingThreads => "wandering_threads",
            Cause::Quota => "cpu_quota",
            Cause::Steal => "cpu_steal",
            Cause::Generator => "generator",
        }
    }

    /// The name in a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Cause::OneConnection => "one connection",
            Cause::StreamLimit => "limit on streams",
            Cause::Window => "flow-control window",
            Cause::ClientCpu => "CPU of the client",
            Cause::ClientThread => "one thread of the client",
            Cause::ClientInFlight => "calls in flight of the client",
            Cause::ClientPace => "pace of the client",
            Cause::ClientQueue => "queue in the client",
            Cause::ServerThread => "one thread of the server",
            Cause::ServerCpu => "CPU of the server",
            Cause::ServerSerial => "one call at a time in the server",
            Cause::ServerPool => "a fixed number of calls at a time in the server",
            Cause::DiskSync => "syncs of the disk",
            Cause::Way => "way to the server",
            Cause::Bandwidth => "bandwidth",
            Cause::PacketsPerSecond => "packets each second",
            Cause::SmallMessages => "messages that are too small",
            Cause::Compression => "compression of messages",
            Cause::WanderingThreads => "threads that move between CPUs",
            Cause::Quota => "CPU quota",
            Cause::Steal => "CPU taken by the hypervisor",
            Cause::Generator => "generator of the load",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_cause_has_a_name_of_its_own() {
        let names: HashSet<_> = Cause::ALL.map(Cause::name).into();
        let words: HashSet<_> = Cause::ALL.map(Cause::words).into();
        assert_eq!((names.len(), words.len()), (22, 22));
    }
}
