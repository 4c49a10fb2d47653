//! `pelton.lab.v1.Agent`: `proto/pelton/lab/v1/agent.proto`.

crate::method::methods! {
    /// Reports what the server does for which the agent was started, once in each interval, until
    /// the caller cancels the call, its deadline comes, or an hour is over. UNAVAILABLE: no such
    /// process runs, or it may not be looked at; it has ended; or the agent ends.
    /// RESOURCE_EXHAUSTED: so many others watch that there is no room, or the agent has no file
    /// descriptor or no memory left. INVALID_ARGUMENT: the interval is out of its range.
    /// UNAUTHENTICATED: the agent has a token, and this call has another one, or none. A connection
    /// on which no call has come after 5 seconds that is allowed is closed.
    WATCH ServerStreaming "pelton.lab.v1.Agent/Watch";
}

protobuf::message! {
    /// The message `AgentWatchRequest`.
    pub struct AgentWatchRequest = "pelton.lab.v1.AgentWatchRequest" {
        /// Milliseconds from one report to the next: 50 to 60 000. 0 = 1000.
        1 interval_ms: uint32,
        /// Each report is about the whole time since the call began. Without it, about the time
        /// since the report before.
        2 cumulative: bool,
    }

    /// The message `AgentReport`.
    pub struct AgentReport<'a> = "pelton.lab.v1.AgentReport" {
        /// How long the time was that the report is about, in nanoseconds.
        1 elapsed_ns: uint64,
        /// The server's processes.
        2 process: message ProcessActivity,
        /// The machine on which they run. Absent: the kernel does not say.
        3 machine: message MachineActivity,
        /// Their threads, the busiest first: at most 16.
        4 threads: repeated message ThreadActivity<'a>,
        /// The network of the machine.
        5 network: message NetworkActivity,
    }

    /// The message `ProcessActivity`. Shares of the time, from 0 to 1; numbers of CPUs may be
    /// higher.
    pub struct ProcessActivity = "pelton.lab.v1.ProcessActivity" {
        /// CPUs that were busy for it on average.
        1 cpus: double,
        /// CPUs that it waited for on average while it was ready to run.
        2 waited_for_cpus: double,
        /// The part of the looks, a hundred each second or, at many threads, fewer, at which a
        /// thread waited for a sync of a file. Absent: the kernel does not say.
        3 in_sync: optional double,
        /// CPUs that a quota of its control group, or of one above it, gives it. Absent: there is
        /// none.
        4 quota_cpus: optional double,
        /// The part of the periods of that quota in which it was used up.
        5 throttled: optional double,
        /// How often its threads moved from one CPU to another each second. Absent: the kernel does
        /// not say.
        6 migrations_per_s: optional double,
    }

    /// The message `MachineActivity`.
    pub struct MachineActivity = "pelton.lab.v1.MachineActivity" {
        /// The field `cpus`.
        1 cpus: uint32,
        /// The part of the time of all CPUs that the hypervisor gave to others.
        2 steal: double,
        /// The part of it in which they had nothing to do.
        3 idle: double,
    }

    /// The message `ThreadActivity`.
    pub struct ThreadActivity<'a> = "pelton.lab.v1.ThreadActivity" {
        /// As the kernel has it.
        1 name: string,
        /// The part of the time in which it was on a CPU.
        2 busy: double,
        /// The part of it in which it was ready to run, and waited for one.
        3 waited: double,
    }

    /// The message `NetworkActivity`. Of the whole machine, in the time of the report. Absent: the
    /// kernel does not say.
    pub struct NetworkActivity = "pelton.lab.v1.NetworkActivity" {
        /// Segments of TCP.
        1 tcp_segments_received: optional uint64,
        /// The field `tcp_segments_sent`.
        2 tcp_segments_sent: optional uint64,
        /// Those of them that were sent again.
        3 tcp_segments_retransmitted: optional uint64,
        /// Of all interfaces but loopback.
        4 packets_received: optional uint64,
        /// The field `packets_sent`.
        5 packets_sent: optional uint64,
        /// The field `bytes_received`.
        6 bytes_received: optional uint64,
        /// The field `bytes_sent`.
        7 bytes_sent: optional uint64,
        /// Bytes in the buffers of the server's TCP connections: such that it has not read. Absent:
        /// the agent was not given its port.
        8 tcp_unread_bytes: optional uint64,
        /// The same: such that were not acknowledged.
        9 tcp_unsent_bytes: optional uint64,
        /// How long before the report they were counted, in nanoseconds: of many connections that
        /// is not done for each report.
        10 tcp_bytes_age_ns: optional uint64,
    }
}
