//! The streams of a connection: a slab, found by stream identifier.

use std::ops::{Index, IndexMut};

use super::flow::{ReceiveWindow, SendWindow};
use super::inbound::Inbound;
use super::outbound::Outbound;
use super::turns::Turn;
use crate::grpc::Status;
use crate::limits;

/// Names a stream of one connection: the place in its slab, and the HTTP/2 stream identifier. As
/// identifiers are never used again, a key that has outlived its stream finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// Place in the slab.
    pub slot: u32,
    /// RFC 9113 section 5.1.1.
    pub id: u32,
}

/// What the body of a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// gRPC messages.
    Grpc,
    /// Anything else.
    Plain,
}

/// How the peer compresses the messages of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    Unknown,
}

/// Who ended a stream before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dead {
    No,
    ByPeer,
    ByUs,
}

/// Metadata that the layer above adds to a response.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    pub(crate) head: Vec<u8>,
    pub(crate) trailers: Vec<u8>,
}

impl Extra {
    pub(crate) fn bytes(&self) -> usize {
        self.head.len() + self.trailers.len()
    }
}

/// Client: the status of a call, come while messages are still to be taken.
#[derive(Debug, Default)]
pub(crate) enum LateStatus {
    #[default]
    NotCome,
    /// OK and nothing beside it, as nearly always: kept without an allocation.
    Ok,
    Other(Box<Status>),
}

impl LateStatus {
    pub(crate) fn has_not_come(&self) -> bool {
        matches!(self, LateStatus::NotCome)
    }
}

/// One stream. A free slot has identifier 0 and keeps its buffers for the next.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) token: u32,
    pub(crate) kind: Kind,
    pub(crate) dead: Dead,
    /// END_STREAM has been received.
    pub(crate) receive_closed: bool,
    /// END_STREAM has been sent.
    pub(crate) send_closed: bool,
    /// The layer above has made its last call for this stream.
    pub(crate) work_done: bool,
    /// Our HEADERS have been sent.
    pub(crate) head_sent: bool,
    /// Client: the final response head has been received.
    pub(crate) head_received: bool,
    /// Messages stay in the backlog until the layer above resumes the stream.
    pub(crate) held: bool,
    /// Messages stay in the backlog until the one before them is decompressed.
    pub(crate) is_unpacked: bool,
    /// What its receive window may grow to at most.
    pub(crate) window_limit: u32,
    /// Stands in the list of streams that have something to send and a window for it.
    pub(crate) in_ready: bool,
    /// `can_send` has become false; a Writable event is owed.
    pub(crate) owes_writable: bool,
    /// Stands in the queue of streams that wait for the connection's send capacity.
    pub(crate) awaits_capacity: bool,
    /// Is owed a Writable event as soon as the peer's windows let something out.
    pub(crate) awaits_room: bool,
    /// Stands in the queue of streams that wait for the connection's send window.
    pub(crate) in_room_queue: bool,
    /// The peer has taken something, or opened the stream's window, since the call last asked.
    pub(crate) has_progress: bool,
    /// Its first message was kept back until the connection has send capacity.
    pub(crate) is_deferred: bool,
    /// A message of it was put back until the connection has capacity for large ones.
    pub(crate) is_put_back: bool,
    /// A message of it has been delivered: from now on its call paces itself by `can_send`.
    pub(crate) has_delivered: bool,
    /// Bytes that are set aside for what its call is about to send.
    pub(crate) reserved_bytes: usize,
    /// Bytes of the connection's send window that its call is about to use.
    pub(crate) promised_bytes: usize,
    /// Bytes that its call holds ready for the peer.
    pub(crate) ready_bytes: usize,
    /// Bytes that its call keeps of its request.
    pub(crate) kept_bytes: usize,
    /// Whether messages that we send are compressed.
    pub(crate) compress: bool,
    /// Our HEADERS named gzip as the encoding.
    pub(crate) head_names_gzip: bool,
    pub(crate) peer_takes_gzip: bool,
    /// The answer to a HEAD request has no body.
    pub(crate) is_head_request: bool,
    pub(crate) encoding: Encoding,
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// Bytes handed up and not yet released.
    pub(crate) unreleased: u32,
    /// What content-length still promises.
    pub(crate) content_left: Option<u64>,
    /// Fields for our head and our trailers, encoded without the dynamic table.
    pub(crate) extra: Option<Box<Extra>>,
    /// Client: the status that came while messages were still to be taken.
    pub(crate) late_status: LateStatus,
    /// The turn of the message that it is sending.
    pub(crate) turn: Turn,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
}

impl Stream {
    fn new() -> Stream {
        Stream {
            id: 0,
            token: 0,
            kind: Kind::Grpc,
            dead: Dead::No,
            receive_closed: false,
            send_closed: false,
            work_done: false,
            head_sent: false,
            head_received: false,
            held: false,
            is_unpacked: false,
            window_limit: u32::MAX,
            in_ready: false,
            owes_writable: false,
            awaits_capacity: false,
            awaits_room: false,
            in_room_queue: false,
            has_progress: false,
            is_deferred: false,
            is_put_back: false,
            has_delivered: false,
            reserved_bytes: 0,
            promised_bytes: 0,
            ready_bytes: 0,
            kept_bytes: 0,
            compress: false,
            head_names_gzip: false,
            peer_takes_gzip: false,
            is_head_request: false,
            encoding: Encoding::Identity,
            send_window: SendWindow::new(0),
            receive_window: ReceiveWindow::new(0),
            unreleased: 0,
            content_left: None,
            extra: None,
            late_status: LateStatus::NotCome,
            turn: Turn::default(),
            inbound: Inbound::default(),
            outbound: Outbound::default(),
        }
    }

    fn begin(&mut self, id: u32, kind: Kind, send_window: u32, receive_window: u32) {
        debug_assert!(self.inbound.is_empty() && self.outbound.is_empty());
        debug_assert_eq!(self.turn, Turn::default());
        self.id = id;
        self.token = 0;
        self.kind = kind;
        self.dead = Dead::No;
        self.receive_closed = false;
        self.send_closed = false;
        self.work_done = false;
        self.head_sent = false;
        self.head_received = false;
        self.held = false;
        self.inbound.takes_parts = false;
        self.is_unpacked = false;
        self.window_limit = u32::MAX;
        self.in_ready = false;
        self.owes_writable = false;
        self.awaits_capacity = false;
        self.awaits_room = false;
        self.in_room_queue = false;
        self.has_progress = false;
        self.is_deferred = false;
        self.is_put_back = false;
        self.has_delivered = false;
        debug_assert_eq!(
            [
                self.reserved_bytes,
                self.promised_bytes,
                self.ready_bytes,
                self.kept_bytes
            ],
            [0; 4],
            "given back with the stream"
        );
        self.compress = false;
        self.head_names_gzip = false;
        self.peer_takes_gzip = false;
        self.is_head_request = false;
        self.encoding = Encoding::Identity;
        self.send_window = SendWindow::new(send_window);
        self.receive_window = ReceiveWindow::new(receive_window);
        self.unreleased = 0;
        self.content_left = None;
        self.extra = None;
        self.late_status = LateStatus::NotCome;
    }

    /// Counts body bytes against content-length. False: they are too many, or too few at the end.
    #[inline]
    pub(crate) fn takes_content(&mut self, bytes: u64, end: bool) -> bool {
        match &mut self.content_left {
            None => true,
            Some(left) if bytes > *left => false,
            Some(left) => {
                *left -= bytes;
                !end || *left == 0
            }
        }
    }

    /// Whether its messages stay in the backlog.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.held || self.is_unpacked
    }

    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead != Dead::No
    }

    /// Whether the layer above bounds its receive window ([`super::Connection::limit_window`]), and
    /// so what it gathers.
    #[inline]
    pub(crate) fn is_bulk(&self) -> bool {
        self.window_limit != u32::MAX
    }
}

/// All streams: those that are open, and those whose work still runs.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    slots: Vec<Stream>,
    free: Vec<u32>,
    index: IdIndex,
    live: usize,
    /// Those of them that are over for the peer.
    dead: usize,
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
        stream.dead = dead;
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
            .filter(|stream| stream.id == key.id && key.id != 0)
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
        kind: Kind,
        send_window: u32,
        receive_window: u32,
    ) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
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
        debug_assert!(
            stream.id != 0
                && !stream.in_ready
                && stream.inbound.is_empty()
                && stream.outbound.is_empty()
        );
        self.index.remove(stream.id);
        stream.id = 0;
        self.dead -= usize::from(stream.is_dead());
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
            .filter(|(_, stream)| stream.id != 0)
            .map(|(slot, stream)| StreamKey {
                slot: slot as u32,
                id: stream.id,
            })
    }

    /// All streams that exist.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Stream)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter(|(_, stream)| stream.id != 0)
            .map(|(slot, stream)| (slot as u32, stream))
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

const FIRST_INDEX_ENTRIES: usize = 16;

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
        let slot = streams.insert(1, Kind::Grpc, 10, 10);
        let key = StreamKey { slot, id: 1 };
        assert!(streams.contains(key));
        streams.remove(slot);
        assert_eq!(streams.insert(3, Kind::Plain, 10, 10), slot);
        assert!(!streams.contains(key));
        assert_eq!(streams.len(), 1);
        assert!(!streams.contains(StreamKey { slot: 7, id: 1 }));
    }
}
