//! The streams that a server ended before its client did.

use std::collections::BTreeMap;

use crate::limits::MAX_REMEMBERED_RESETS;

/// Streams that we ended before the peer did: what it sent meanwhile is still to come.
///
/// Ordered by their ids, so that a peer which refers to many of them costs little with each frame.
#[derive(Debug, Default)]
pub(super) struct LateStreams {
    /// By id: whether the peer's END_STREAM has come.
    ended: BTreeMap<u32, bool>,
}

impl LateStreams {
    /// Remembers a stream. One too many, and that with the lowest id is forgotten: its frames should have come longest
    /// ago.
    pub(super) fn insert(&mut self, id: u32) {
        if self.ended.len() == MAX_REMEMBERED_RESETS {
            self.ended.pop_first();
        }
        self.ended.insert(id, false);
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.ended.contains_key(&id)
    }

    /// Forgets a stream; false if it was not remembered.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        self.ended.remove(&id).is_some()
    }

    /// Notes that the peer has ended its side; false if it is not remembered, or has ended before.
    pub(super) fn end(&mut self, id: u32) -> bool {
        match self.ended.get_mut(&id) {
            Some(has_ended) if !*has_ended => {
                *has_ended = true;
                true
            }
            _ => false,
        }
    }

    /// What it takes, by estimate.
    pub(super) fn memory_bytes(&self) -> usize {
        // A node of a B-tree is at least half full.
        2 * self.ended.len() * size_of::<(u32, bool)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_ends_once_and_is_forgotten_once() {
        let mut late = LateStreams::default();
        late.insert(5);
        assert!(late.contains(5) && !late.contains(3));
        assert!(late.end(5) && !late.end(5) && !late.end(3));
        assert!(late.remove(5) && !late.remove(5));
        assert!(!late.contains(5));
    }

    #[test]
    fn the_lowest_of_too_many_is_forgotten() {
        let mut late = LateStreams::default();
        let ids = (1..).step_by(2).take(MAX_REMEMBERED_RESETS + 1);
        ids.clone().for_each(|id| late.insert(id));
        assert_eq!(late.ended.len(), MAX_REMEMBERED_RESETS);
        assert!(!late.contains(1) && late.contains(3));
        assert!(late.contains(ids.last().expect("there are some")));
    }
}
