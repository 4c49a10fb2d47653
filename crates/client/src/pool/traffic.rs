//! What goes through a connection.

/// What has gone through a connection, and what kept it waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionTraffic {
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Reads that brought something.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// How long the socket took nothing, though there was something to write.
    pub socket_wait_ns: u64,
    /// How long something waited for the server's flow-control windows, and for nothing else.
    pub window_wait_ns: u64,
    /// Since when it waits for the socket.
    blocked_since_ns: Option<u64>,
    /// Since when it waits for a window.
    shut_since_ns: Option<u64>,
}

impl ConnectionTraffic {
    /// Adds what another connection did, which is gone.
    pub(crate) fn add(&mut self, other: &ConnectionTraffic) {
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.reads += other.reads;
        self.writes += other.writes;
        self.socket_wait_ns += other.socket_wait_ns;
        self.window_wait_ns += other.window_wait_ns;
    }

    pub(crate) fn set_blocked(&mut self, is_blocked: bool, now_ns: u64) {
        note_wait(
            &mut self.blocked_since_ns,
            &mut self.socket_wait_ns,
            is_blocked,
            now_ns,
        );
    }

    pub(crate) fn set_shut(&mut self, is_shut: bool, now_ns: u64) {
        note_wait(
            &mut self.shut_since_ns,
            &mut self.window_wait_ns,
            is_shut,
            now_ns,
        );
    }

    /// The same with what waits by now counted to the end.
    pub(crate) fn until(mut self, now_ns: u64) -> ConnectionTraffic {
        for (since, sum) in [
            (self.blocked_since_ns, &mut self.socket_wait_ns),
            (self.shut_since_ns, &mut self.window_wait_ns),
        ] {
            *sum += since.map_or(0, |since| now_ns.saturating_sub(since));
        }
        self
    }
}

fn note_wait(since_ns: &mut Option<u64>, sum_ns: &mut u64, waits: bool, now_ns: u64) {
    match (waits, *since_ns) {
        (true, None) => *since_ns = Some(now_ns),
        (false, Some(since)) => {
            *sum_ns += now_ns.saturating_sub(since);
            *since_ns = None;
        }
        _ => {}
    }
}
