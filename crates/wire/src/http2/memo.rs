//! Remembers header blocks that come again byte by byte.
//!
//! A client that repeats a call without a deadline sends the same few indexed bytes each time. Such
//! a block means the same as before as long as the dynamic table has not changed; then there is
//! nothing to decode, to check or to route.

use super::headers::{Head, HeadInfo};
use crate::hpack::Fields;
use crate::limits;

/// A block and what it means.
struct MemoEntry {
    block: Vec<u8>,
    /// The decoder's count of changes when the block was decoded.
    changes: u64,
    fields: Fields,
    info: HeadInfo,
    /// What the layer above has noted.
    route: Option<u64>,
}

/// The remembered blocks of one connection.
#[derive(Default)]
pub(crate) struct Memo {
    entries: Vec<MemoEntry>,
    /// The entry that is replaced next.
    next: usize,
    misses: u32,
}

impl Memo {
    /// The entry of this block.
    #[inline]
    pub(crate) fn find(&mut self, block: &[u8], changes: u64) -> Option<usize> {
        let found = self
            .entries
            .iter()
            .position(|entry| entry.changes == changes && entry.block == block);
        if found.is_some() {
            self.misses = 0;
        }
        found
    }

    /// Learns a block that was not found and has left the table as it was. Takes `fields` in
    /// exchange for others. A peer whose blocks never come again is soon learned from only now and
    /// then.
    pub(crate) fn learn(
        &mut self,
        block: &[u8],
        changes: u64,
        fields: &mut Fields,
        info: HeadInfo,
    ) -> Option<usize> {
        self.misses = self.misses.saturating_add(1);
        let is_worth_it =
            self.misses <= limits::MEMO_MISSES || self.misses.is_multiple_of(limits::MEMO_SAMPLING);
        if !is_worth_it
            || block.len() > limits::MEMO_BLOCK_BYTES
            || fields.memory_bytes() > limits::MEMO_FIELDS_BYTES
        {
            return None;
        }
        let at = self.next;
        self.next = (self.next + 1) % limits::MEMO_ENTRIES;
        if at == self.entries.len() {
            if at == 0 {
                // Most connections repeat one head, and are many.
                self.entries.reserve_exact(1);
            }
            self.entries.push(MemoEntry {
                block: Vec::new(),
                changes,
                fields: Fields::new(),
                info,
                route: None,
            });
        }
        let entry = &mut self.entries[at];
        entry.block.clear();
        entry.block.extend_from_slice(block);
        entry.changes = changes;
        std::mem::swap(&mut entry.fields, fields);
        entry.info = info;
        entry.route = None;
        Some(at)
    }

    /// Returns the head of an entry.
    #[inline]
    pub(crate) fn head(&self, at: usize) -> Head<'_> {
        let entry = &self.entries[at];
        Head {
            info: &entry.info,
            fields: &entry.fields,
        }
    }

    /// Returns what was noted for an entry.
    #[inline]
    pub(crate) fn route(&self, at: usize) -> Option<u64> {
        self.entries[at].route
    }

    /// Notes something for an entry, as long as it stays.
    pub(crate) fn set_route(&mut self, at: usize, route: u64) {
        self.entries[at].route = Some(route);
    }

    /// Returns the bytes of memory that the entries hold.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<MemoEntry>()
            + self
                .entries
                .iter()
                .map(|entry| entry.block.capacity() + entry.fields.memory_bytes())
                .sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::FieldLimits;

    fn learn(memo: &mut Memo, block: &[u8], changes: u64) -> Option<usize> {
        memo.learn(block, changes, &mut Fields::new(), HeadInfo::EMPTY)
    }

    #[test]
    fn a_block_is_found_until_the_table_changes() {
        let mut memo = Memo::default();
        assert_eq!(memo.find(b"abc", 1), None);
        let at = learn(&mut memo, b"abc", 1);
        assert!(at.is_some());
        assert_eq!(memo.find(b"abc", 1), at);
        assert_eq!(memo.find(b"abd", 1), None);
        assert_eq!(memo.find(b"abc", 2), None);
    }

    #[test]
    fn old_entries_are_replaced_and_forget_their_route() {
        let mut memo = Memo::default();
        let first = learn(&mut memo, &[0], 0).expect("learned");
        memo.set_route(first, 7);
        for byte in 1..=limits::MEMO_ENTRIES as u8 {
            learn(&mut memo, &[byte], 0);
        }
        assert_eq!(memo.find(&[0], 0), None);
        let replaced = memo
            .find(&[limits::MEMO_ENTRIES as u8], 0)
            .expect("learned last");
        assert_eq!((replaced, memo.route(replaced)), (first, None));
        assert_eq!(memo.entries.len(), limits::MEMO_ENTRIES);
    }

    #[test]
    fn blocks_that_never_repeat_are_seldom_learned() {
        let mut memo = Memo::default();
        let learned = (0..3_200_u32)
            .filter(|number| learn(&mut memo, &number.to_le_bytes(), 0).is_some())
            .count();
        assert_eq!(
            learned as u32,
            limits::MEMO_MISSES + 3_200 / limits::MEMO_SAMPLING
        );
    }

    /// As a connection does it: what is not found is learned. A single hit, and the peer is worth
    /// it again.
    #[test]
    fn a_block_that_repeats_resets_the_misses() {
        let mut memo = Memo::default();
        let mut number = 0_u32;
        for _ in 0..3 {
            let mut learned = 0;
            for _ in 0..limits::MEMO_SAMPLING - 1 {
                number += 1;
                let block = number.to_le_bytes();
                assert_eq!(memo.find(&block, 0), None);
                learned += u32::from(learn(&mut memo, &block, 0).is_some());
            }
            assert_eq!(learned, limits::MEMO_MISSES);
            // One that is still remembered.
            let place = memo.entries[0].block.clone();
            assert_eq!(memo.find(&place, 0), Some(0));
        }
    }

    #[test]
    fn blocks_and_fields_are_learned_up_to_their_bounds() {
        let longest = [0; limits::MEMO_BLOCK_BYTES];
        assert!(learn(&mut Memo::default(), &longest, 0).is_some());
        let longer = [0; limits::MEMO_BLOCK_BYTES + 1];
        assert_eq!(learn(&mut Memo::default(), &longer, 0), None);
        // The memory of a list grows in powers of two, and is never exactly at its bound.
        let mut outcomes = Vec::new();
        for value_bytes in (0..16_000).step_by(500) {
            let mut fields = Fields::new();
            let value = vec![b'v'; value_bytes];
            let pushed = fields.push(b"x", &value, &FieldLimits::default());
            pushed.expect("within the limits");
            let is_small = fields.memory_bytes() <= limits::MEMO_FIELDS_BYTES;
            let learned = Memo::default().learn(b"abc", 0, &mut fields, HeadInfo::EMPTY);
            assert_eq!(learned.is_some(), is_small, "{value_bytes}");
            outcomes.push(is_small);
        }
        assert!(outcomes.contains(&true) && outcomes.contains(&false));
    }
}
