//! The streams that a server ended before its client did.

use std::collections::{BTreeMap, VecDeque};

use crate::limits::{LINGERING_STREAMS, MAX_LATE_FRAMES, MAX_REMEMBERED_RESETS};

/// Streams that we ended before the peer did: what it sent meanwhile is still to come.
///
/// Ordered by their ids, so that a peer which refers to many of them costs little with each frame.
#[derive(Debug, Default)]
pub(super) struct LateStreams {
    /// By id.
    ended: BTreeMap<u32, Late>,
    /// Those whose peers were not told yet to send no more, and when they are: the first is due
    /// first.
    lingering: VecDeque<(u32, u64)>,
}

/// What has come of such a stream.
#[derive(Debug, Default, Clone, Copy)]
struct Late {
    /// The peer's END_STREAM.
    has_ended: bool,
    /// DATA frames, at most [`MAX_LATE_FRAMES`].
    frames: u16,
}

impl LateStreams {
    /// Remembers a stream. One too many, and that with the lowest id is forgotten: its frames
    /// should have come longest ago.
    pub(super) fn insert(&mut self, id: u32) {
        if self.ended.len() == MAX_REMEMBERED_RESETS {
            self.ended.pop_first();
        }
        self.ended.insert(id, Late::default());
    }

    /// The peer of a stream, which is remembered, is to be told later to send no more; false if
    /// there are too many.
    pub(super) fn linger(&mut self, id: u32, due_ns: u64) -> bool {
        let has_room = self.lingering.len() < LINGERING_STREAMS;
        if has_room {
            self.lingering.push_back((id, due_ns));
        }
        has_room
    }

    /// When the next one is to be told.
    pub(super) fn linger_due_ns(&self) -> Option<u64> {
        self.lingering.front().map(|&(_, due_ns)| due_ns)
    }

    /// Takes out the next one that is due and has not ended by itself.
    pub(super) fn take_lingered(&mut self, now_ns: u64) -> Option<u32> {
        while let Some(&(id, due_ns)) = self.lingering.front()
            && due_ns <= now_ns
        {
            self.lingering.pop_front();
            if self.ended.get(&id).is_some_and(|late| !late.has_ended) {
                return Some(id);
            }
        }
        None
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
            Some(late) if !late.has_ended => {
                late.has_ended = true;
                true
            }
            _ => false,
        }
    }

    /// Counts a DATA frame; false if it is not remembered, has ended, or had too many.
    pub(super) fn count_frame(&mut self, id: u32) -> bool {
        match self.ended.get_mut(&id) {
            Some(late) if !late.has_ended && late.frames < MAX_LATE_FRAMES => {
                late.frames += 1;
                true
            }
            _ => false,
        }
    }

    /// What it takes, by estimate.
    pub(super) fn memory_bytes(&self) -> usize {
        // A node of a B-tree is at least half full.
        2 * self.ended.len() * size_of::<(u32, Late)>()
            + self.lingering.capacity() * size_of::<(u32, u64)>()
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
    fn who_ends_by_itself_is_not_told_to() {
        let mut late = LateStreams::default();
        for id in [1, 3, 5, 7] {
            late.insert(id);
            assert!(late.linger(id, 100 + u64::from(id)));
        }
        assert!(late.end(3) && late.remove(5));
        assert_eq!(late.linger_due_ns(), Some(101));
        assert_eq!(late.take_lingered(100), None);
        assert_eq!(late.take_lingered(101), Some(1));
        assert_eq!(late.take_lingered(106), None);
        assert_eq!(late.take_lingered(200), Some(7));
        assert_eq!(
            (late.take_lingered(200), late.linger_due_ns()),
            (None, None)
        );
        assert!(late.contains(7), "its frames may still come");
        let mut room = (9..).step_by(2).map(|id| late.linger(id, 300));
        assert_eq!(room.position(|has_room| !has_room), Some(LINGERING_STREAMS));
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

    /// The library does not say what a tree takes, so that it is an estimate: compared with the
    /// allocator.
    #[test]
    fn the_estimate_of_what_is_remembered_is_about_what_is_allocated() {
        for count in [100, 1_000, MAX_REMEMBERED_RESETS] {
            let mut late = LateStreams::default();
            let ids = (1..).step_by(2).take(count);
            let allocated = allocation_counter::measure(|| {
                ids.clone().for_each(|id| late.insert(id));
            });
            let (estimate, bytes) = (late.memory_bytes() as i64, allocated.bytes_current);
            assert!(
                2 * bytes < 3 * estimate && 2 * estimate < 3 * bytes,
                "{estimate}, {bytes}"
            );
            let lingering = allocation_counter::measure(|| {
                ids.take(LINGERING_STREAMS).for_each(|id| {
                    late.linger(id, 1);
                });
            });
            let more = late.memory_bytes() as i64 - estimate;
            assert_eq!(more, lingering.bytes_current);
        }
    }
}
