//! Buffers that are used again.

use crate::limits;

/// A few empty buffers with memory.
#[derive(Debug)]
pub(crate) struct BufferPool {
    /// The largest last.
    buffers: Vec<Vec<u8>>,
    /// Of all of them.
    bytes: usize,
    max_bytes: usize,
    /// The bound while no stream brings much.
    usual_bytes: usize,
}

impl BufferPool {
    /// A pool that usually keeps at most so many bytes.
    pub(crate) fn new(usual_bytes: usize) -> BufferPool {
        BufferPool {
            buffers: Vec::new(),
            bytes: 0,
            max_bytes: usual_bytes,
            usual_bytes,
        }
    }

    /// An empty buffer, with memory if there is one: the largest.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Keeps a buffer for the next one who needs it, unless there are enough, or enough bytes in
    /// them.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        let is_worth_keeping = capacity > 0
            && self.buffers.len() < limits::POOLED_BUFFERS
            && self.bytes + capacity <= self.max_bytes;
        if is_worth_keeping {
            buffer.clear();
            let place = self
                .buffers
                .partition_point(|other| other.capacity() < capacity);
            self.buffers.insert(place, buffer);
            self.bytes += capacity;
        }
    }

    /// Keeps at most so many bytes from now on, or the usual number if that is more.
    pub(crate) fn bound(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes.max(self.usual_bytes);
        while self.bytes > self.max_bytes {
            drop(self.take());
        }
    }

    /// Keeps what is usual from now on.
    pub(crate) fn bound_as_usual(&mut self) {
        self.bound(self.usual_bytes);
    }

    /// Bytes beyond the usual number.
    pub(crate) fn extra_bytes(&self) -> usize {
        self.bytes.saturating_sub(self.usual_bytes)
    }

    /// Frees everything.
    pub(crate) fn trim(&mut self) {
        self.buffers = Vec::new();
        self.bytes = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes + self.buffers.capacity() * size_of::<Vec<u8>>()
    }
}

impl Default for BufferPool {
    fn default() -> BufferPool {
        BufferPool::new(limits::POOLED_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_keeps_no_more_than_it_may() {
        let mut pool = BufferPool::new(20);
        pool.bound(100);
        for capacity in [30, 60, 20, 10] {
            pool.give(Vec::with_capacity(capacity));
        }
        assert_eq!(pool.bytes, 100, "30, 60 and 10");
        assert_eq!(pool.take().capacity(), 60);
        assert_eq!(pool.bytes, 40);
        pool.bound_as_usual();
        assert_eq!(pool.bytes, 10);
        pool.give(Vec::with_capacity(20));
        assert_eq!(pool.bytes, 10);
        assert_eq!(pool.take().capacity(), 10);
        assert_eq!(pool.take().capacity(), 0);
    }

    #[test]
    fn a_pool_keeps_a_few_buffers_and_none_without_memory() {
        let mut pool = BufferPool::new(1 << 20);
        for _ in 0..2 {
            assert!(pool.is_empty());
            pool.give(Vec::new());
            assert!(pool.is_empty());
            for _ in 0..limits::POOLED_BUFFERS + 3 {
                pool.give(vec![7; 10]);
            }
            assert_eq!(pool.bytes, 10 * limits::POOLED_BUFFERS);
            assert!(pool.take().is_empty(), "only its memory is kept");
            pool.trim();
            assert_eq!(pool.memory_bytes(), 0);
        }
    }

    #[test]
    fn what_is_beyond_the_usual_is_extra() {
        let mut pool = BufferPool::new(20);
        pool.bound(10);
        pool.give(Vec::with_capacity(20));
        assert_eq!(
            (pool.bytes, pool.extra_bytes()),
            (20, 0),
            "never below the usual"
        );
        pool.bound(51);
        pool.give(Vec::with_capacity(31));
        assert_eq!((pool.bytes, pool.extra_bytes()), (51, 31));
        pool.bound(50);
        assert_eq!(
            (pool.bytes, pool.extra_bytes()),
            (20, 0),
            "the largest goes"
        );
    }
}
