//! What a stream has received and the room above has not seen yet.

use crate::grpc::Deframer;

/// The receiving side of one stream's body.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    pub(crate) deframer: Deframer,
    /// Payload that came while the stream was held.
    pub(crate) backlog: Vec<u8>,
    /// How much of the backlog has been taken.
    pub(crate) backlog_at: usize,
    /// END_STREAM came while the stream was held, or behind the backlog.
    pub(crate) end_waits: bool,
    /// Bytes of this stream in the connection's count of unfinished bytes.
    pub(crate) counted: usize,
}

impl Inbound {
    /// Whether nothing is kept, not even memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.backlog.is_empty()
            && self.counted == 0
            && !self.end_waits
            && !self.deframer.is_mid_message()
            && self.deframer.buffer_bytes() == 0
    }
}
