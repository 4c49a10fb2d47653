//! The trailers of a good answer, kept as bytes: nearly all that come are the same, and mean the
//! same as long as the table has not changed. Then there is nothing to decode and to check.

use crate::limits;

/// The last trailers that said OK and nothing else.
#[derive(Debug, Default)]
pub(super) struct OkTrailers {
    block: Vec<u8>,
    /// [`crate::hpack::Decoder::changes`] when the block was decoded.
    changes: u64,
}

impl OkTrailers {
    /// Whether this block says OK and nothing else. If not, that is not known.
    #[inline]
    pub(super) fn are(&self, block: &[u8], changes: u64) -> bool {
        !block.is_empty() && self.changes == changes && self.block == block
    }

    /// The block says so, and has left the table as it was.
    pub(super) fn learn(&mut self, block: &[u8], changes: u64) {
        if block.len() <= limits::MEMO_BLOCK_BYTES {
            self.block.clear();
            self.block.extend_from_slice(block);
            self.changes = changes;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.block.capacity()
    }
}
