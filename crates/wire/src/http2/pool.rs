//! Buffers that are used again.

use crate::limits;

/// A few empty buffers with memory.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    buffers: Vec<Vec<u8>>,
}

impl Pool {
    /// An empty buffer, with memory if there is one.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next one who needs it, unless there are enough, or enough bytes in them.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        let is_worth_keeping = buffer.capacity() > 0
            && self.buffers.len() < limits::POOLED_BUFFERS
            && self.memory_bytes() + buffer.capacity() <= limits::POOLED_BYTES;
        if is_worth_keeping {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.buffers.iter().map(Vec::capacity).sum()
    }
}
