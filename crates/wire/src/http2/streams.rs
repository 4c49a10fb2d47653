//! The streams of a connection: a slab, found by stream identifier.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use super::headers::BodyKind;
use super::stream::{Dead, Stream};
use super::stream_key::StreamKey;
use crate::limits;

/// All streams: those that are open, and those whose work still runs.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    slots: Vec<Stream>,
    free: Vec<u32>,
    index: IdIndex,
    live: usize,
    /// Those of them that are over for the peer.
    dead: usize,
    /// Those whose receive windows the layer above has limited, since they bring much.
    bulk: usize,
}

impl Streams {
    /// Streams that are open or whose work still runs.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Streams that are open as the peer sees it.
    pub(crate) fn open(&self) -> usize {
        self.live - self.dead
    }

    /// Nothing is received or sent on the stream any more; its work may still run.
    pub(crate) fn kill(&mut self, slot: u32, dead: Dead) {
        let stream = &mut self.slots[slot as usize];
        self.dead += usize::from(!stream.is_dead());
        stream.kill(dead);
    }

    /// Limits what the receive window of a stream may grow to.
    pub(crate) fn limit_window(&mut self, slot: u32, bytes: u32) {
        let stream = &mut self.slots[slot as usize];
        self.bulk += usize::from(!stream.is_bulk());
        stream.limit_window(bytes);
    }

    /// Returns whether the receive window of a stream is limited.
    pub(crate) fn has_bulk(&self) -> bool {
        self.bulk > 0
    }

    /// Places for streams, taken or free: what a walk over all streams walks over.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    /// The slot of the stream with this identifier.
    #[inline]
    pub(crate) fn find(&self, id: u32) -> Option<u32> {
        self.index.find(id)
    }

    /// The stream, if it still exists.
    #[inline]
    pub(crate) fn get(&self, key: StreamKey) -> Option<&Stream> {
        self.slots
            .get(key.slot as usize)
            .filter(|stream| stream.id() == key.id && key.id != 0)
    }

    /// Whether the stream still exists.
    #[inline]
    pub(crate) fn contains(&self, key: StreamKey) -> bool {
        self.get(key).is_some()
    }

    /// Begins a stream. The caller has checked that the identifier is new and that there is room.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        id: u32,
        kind: BodyKind,
        send_window: u32,
        receive_window: u32,
    ) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            if self.slots.is_empty() {
                // Most connections have one call at a time, and are many.
                self.slots.reserve_exact(1);
            }
            self.slots.push(Stream::new());
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].begin(id, kind, send_window, receive_window);
        self.index.insert(id, slot);
        self.live += 1;
        slot
    }

    /// Frees the slot. The caller has emptied its queues.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        let stream = &mut self.slots[slot as usize];
        self.index.remove(stream.id());
        stream.free();
        self.dead -= usize::from(stream.is_dead());
        self.bulk -= usize::from(stream.is_bulk());
        self.free.push(slot);
        self.live -= 1;
        if self.live == 0 && self.slots.len() > limits::KEPT_STREAM_PLACES {
            self.trim();
        }
    }

    /// The keys of all streams that exist.
    pub(crate) fn keys(&self) -> impl Iterator<Item = StreamKey> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, stream)| stream.id() != 0)
            .map(|(slot, stream)| StreamKey {
                slot: slot as u32,
                id: stream.id(),
            })
    }

    /// All streams that exist.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Stream)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter(|(_, stream)| stream.id() != 0)
            .map(|(slot, stream)| (slot as u32, stream))
    }

    /// Returns whether a stream is there and nobody has ended it.
    #[inline]
    pub(crate) fn is_alive(&self, key: StreamKey) -> bool {
        self.get(key).is_some_and(|stream| !stream.is_dead())
    }

    /// Returns the key of the stream in a slot.
    #[inline]
    pub(crate) fn key(&self, slot: u32) -> StreamKey {
        StreamKey {
            slot,
            id: self[slot].id(),
        }
    }

    /// Puts a stream at the end of a queue, and removes those that have ended if it has more than
    /// `most`, which it can only have with them.
    pub(crate) fn enqueue(&self, queue: &mut VecDeque<StreamKey>, key: StreamKey, most: usize) {
        queue.push_back(key);
        if queue.len() > most {
            queue.retain(|key| self.is_alive(*key));
        }
    }

    /// Gives the memory back, if there is no stream.
    pub(crate) fn trim(&mut self) {
        if self.live == 0 {
            *self = Streams::default();
        }
    }

    /// Bytes of memory, without the buffers of single streams.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Stream>()
            + self.free.capacity() * 4
            + self.index.entries.capacity() * 8
    }
}

impl Index<u32> for Streams {
    type Output = Stream;
    #[inline]
    fn index(&self, slot: u32) -> &Stream {
        &self.slots[slot as usize]
    }
}

impl IndexMut<u32> for Streams {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Stream {
        &mut self.slots[slot as usize]
    }
}

/// From identifier to slot: open addressing with linear probing, where whoever is further from home
/// stays ("Robin Hood").
///
/// The identifiers that are in use mostly follow each other, so that half of the identifier is a
/// hash without collisions, and neighbours share a cache line. The order by distance lets a removal
/// stop at the next entry that is at home; otherwise it would walk over all streams that are open.
#[derive(Debug, Default)]
struct IdIndex {
    /// A power of two, at least twice the number of entries; empty at first.
    entries: Vec<IdEntry>,
    used: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct IdEntry {
    /// 0: free.
    id: u32,
    slot: u32,
}

/// Of a connection with one call at a time, and one that has just ended.
const FIRST_INDEX_ENTRIES: usize = 4;

impl IdIndex {
    #[inline]
    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    #[inline]
    fn home(&self, id: u32) -> usize {
        (id >> 1) as usize & self.mask()
    }

    /// How far the place is from the home of this identifier.
    #[inline]
    fn distance(&self, id: u32, at: usize) -> usize {
        at.wrapping_sub(self.home(id)) & self.mask()
    }

    #[inline]
    fn find(&self, id: u32) -> Option<u32> {
        if self.entries.is_empty() {
            return None;
        }
        let mut at = self.home(id);
        // Ends: at least half of the entries are free.
        loop {
            let entry = self.entries[at];
            if entry.id == id {
                return Some(entry.slot);
            }
            if entry.id == 0 {
                return None;
            }
            at = (at + 1) & self.mask();
        }
    }

    #[inline]
    fn insert(&mut self, id: u32, slot: u32) {
        debug_assert!(id != 0 && self.find(id).is_none());
        if (self.used + 1) * 2 > self.entries.len() {
            self.grow();
        }
        self.place(IdEntry { id, slot });
        self.used += 1;
    }

    #[inline]
    fn place(&mut self, mut entry: IdEntry) {
        let mut at = self.home(entry.id);
        loop {
            let there = self.entries[at];
            if there.id == 0 {
                self.entries[at] = entry;
                return;
            }
            if self.distance(there.id, at) < self.distance(entry.id, at) {
                self.entries[at] = entry;
                entry = there;
            }
            at = (at + 1) & self.mask();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.entries.len() * 2).max(FIRST_INDEX_ENTRIES);
        let old = std::mem::replace(&mut self.entries, vec![IdEntry::default(); len]);
        for entry in old.into_iter().filter(|entry| entry.id != 0) {
            self.place(entry);
        }
    }

    /// Removes an entry and moves those up that follow it and are not at home, so that no
    /// tombstones are needed.
    #[inline]
    fn remove(&mut self, id: u32) {
        let mut gap = self.home(id);
        while self.entries[gap].id != id {
            debug_assert!(self.entries[gap].id != 0, "the stream is in the index");
            gap = (gap + 1) & self.mask();
        }
        loop {
            let next = (gap + 1) & self.mask();
            let entry = self.entries[next];
            if entry.id == 0 || self.distance(entry.id, next) == 0 {
                break;
            }
            self.entries[gap] = entry;
            gap = next;
        }
        self.entries[gap] = IdEntry::default();
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_index_agrees_with_a_map() {
        let (mut index, mut model) = (IdIndex::default(), HashMap::new());
        let numbers = testkit::Random::new(0x2545_f491_4f6c_dd1d);
        for (step, random) in (0..20_000_u32).zip(numbers) {
            // A small range of identifiers far apart by a power of two, so that collisions are
            // common.
            let id = (random % 64) as u32 * 32 + ((random >> 8) % 4) as u32 * 2 + 1;
            if model.remove(&id).is_some() {
                index.remove(id);
            } else {
                index.insert(id, step);
                model.insert(id, step);
            }
            let probe = ((random >> 16) as u32 % 2_048) | 1;
            assert_eq!(index.find(probe), model.get(&probe).copied(), "step {step}");
            assert_eq!(index.used, model.len());
        }
        for (id, slot) in &model {
            assert_eq!(index.find(*id), Some(*slot));
        }
    }

    #[test]
    fn slots_are_used_again_and_old_keys_find_nothing() {
        let mut streams = Streams::default();
        let slot = streams.insert(1, BodyKind::Grpc, 10, 10);
        let key = StreamKey { slot, id: 1 };
        assert!(streams.contains(key));
        streams.remove(slot);
        assert_eq!(streams.insert(3, BodyKind::Plain, 10, 10), slot);
        assert!(!streams.contains(key));
        assert_eq!(streams.len(), 1);
        assert!(!streams.contains(StreamKey { slot: 7, id: 1 }));
    }

    #[test]
    fn a_stream_whose_window_is_limited_counts_once() {
        let mut streams = Streams::default();
        for id in [1, 3] {
            let slot = streams.insert(id, BodyKind::Grpc, 10, 10);
            assert!(!streams[slot].is_bulk() && !streams.has_bulk());
            for bytes in [5, u32::MAX] {
                streams.limit_window(slot, bytes);
                assert!(streams[slot].is_bulk() && streams.has_bulk());
            }
            streams.remove(slot);
            assert!(!streams.has_bulk());
        }
    }

    #[test]
    fn a_queue_that_is_too_long_loses_the_streams_that_have_ended() {
        let mut streams = Streams::default();
        let mut queue = VecDeque::new();
        for round in 0..2 {
            let ids = (1 + 8 * round..).step_by(2).take(4);
            let keys: Vec<_> = ids
                .map(|id| StreamKey {
                    slot: streams.insert(id, BodyKind::Grpc, 10, 10),
                    id,
                })
                .collect();
            streams.kill(keys[0].slot, Dead::ByPeer);
            streams.remove(keys[1].slot);
            for &key in &keys[..3] {
                streams.enqueue(&mut queue, key, 3);
            }
            assert_eq!(queue, &keys[..3]);
            streams.enqueue(&mut queue, keys[3], 3);
            assert_eq!(queue, &keys[2..]);
            queue.clear();
            for key in [keys[0], keys[2], keys[3]] {
                streams.remove(key.slot);
            }
        }
    }
}
