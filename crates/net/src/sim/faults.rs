//! What goes wrong in a simulated network, how often, and how often it did.

/// How a simulated network misbehaves. Rates are chances in a million.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Shortest time that bytes travel.
    pub latency_min_ns: u64,
    /// Longest time that bytes travel. Connections overtake each other by the difference.
    pub latency_max_ns: u64,
    /// Per write, and per piece: it is split once more, at any byte. Per read: it gets less than
    /// there is.
    pub split_per_million: u32,
    /// Per piece: the direction stands still for up to `stall_max_ns`.
    pub stall_per_million: u32,
    /// The longest stall.
    pub stall_max_ns: u64,
    /// Per piece: the connection is reset at any byte of it. What was sent and had not arrived is
    /// lost.
    pub cut_per_million: u32,
    /// Per tick: the node pauses for up to `pause_max_ns` before the next.
    pub pause_per_million: u32,
    /// The longest pause.
    pub pause_max_ns: u64,
    /// Smallest buffer of one direction of a connection: bytes under way and unread.
    pub buffer_min_bytes: u64,
    /// Largest such buffer.
    pub buffer_max_bytes: u64,
}

impl Faults {
    /// A network without a fault.
    pub fn none() -> Faults {
        Faults {
            latency_min_ns: 20_000,
            latency_max_ns: 20_000,
            split_per_million: 0,
            stall_per_million: 0,
            stall_max_ns: 0,
            cut_per_million: 0,
            pause_per_million: 0,
            pause_max_ns: 0,
            buffer_min_bytes: 1 << 20,
            buffer_max_bytes: 1 << 20,
        }
    }

    /// All faults but cutting: whoever keeps to the protocol must get through.
    pub fn rough() -> Faults {
        Faults {
            latency_max_ns: 2_000_000,
            split_per_million: 400_000,
            stall_per_million: 5_000,
            stall_max_ns: 200_000_000,
            pause_per_million: 5_000,
            pause_max_ns: 50_000_000,
            buffer_min_bytes: 1,
            buffer_max_bytes: 64 * 1024,
            ..Faults::none()
        }
    }

    /// All faults.
    pub fn hostile() -> Faults {
        Faults {
            cut_per_million: 2_000,
            ..Faults::rough()
        }
    }
}

/// How often each fault happened: a test can assert that it tested something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Sent bytes that travelled in more pieces than written.
    pub splits: u64,
    /// Writes that took only a part though there was room.
    pub short_writes: u64,
    /// Reads that got less than there was.
    pub short_reads: u64,
    /// Pieces that arrived after one that another connection sent later.
    pub reorderings: u64,
    /// Directions that stood still.
    pub stalls: u64,
    /// Connections reset by the network.
    pub cuts: u64,
    /// Connections reset because one side closed with input unread.
    pub resets: u64,
    /// Nodes that paused.
    pub pauses: u64,
    /// Writes that took a part, or nothing, because the buffer was full: back-pressure.
    pub full_buffers: u64,
    /// Bytes that arrived.
    pub bytes: u64,
}

impl FaultCounts {
    /// Adds those of another run.
    pub fn add(&mut self, other: &FaultCounts) {
        self.splits += other.splits;
        self.short_writes += other.short_writes;
        self.short_reads += other.short_reads;
        self.reorderings += other.reorderings;
        self.stalls += other.stalls;
        self.cuts += other.cuts;
        self.resets += other.resets;
        self.pauses += other.pauses;
        self.full_buffers += other.full_buffers;
        self.bytes += other.bytes;
    }
}
