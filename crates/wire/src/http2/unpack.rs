//! Large compressed messages.
//!
//! A large one waits until there is memory for what it becomes, and is then decompressed in steps,
//! as far as the layer above allows: other connections are served in between. One of a connection
//! is under way at a time, in the order in which they came; what follows on its stream waits behind
//! it.
//!
//! Invariants: `is_decompressing` of a stream is set exactly while it stands in `waiting`; only the
//! first of them is granted memory, and counted with what it becomes.

use std::collections::VecDeque;

use super::stream_key::StreamKey;
use super::streams::Streams;
use crate::grpc::InflateError;
use crate::grpc::compression::Unzipping;
use crate::limits;

/// A message that is decompressed in steps, or waits for that.
#[derive(Debug)]
pub(crate) struct Unpacking {
    stream: StreamKey,
    packed: Vec<u8>,
    /// It is the last of its stream.
    last: bool,
    unzipping: Unzipping,
}

impl Unpacking {
    /// Returns a message that has not begun, and becomes so many bytes.
    pub(crate) fn new(
        stream: StreamKey,
        packed: Vec<u8>,
        announced_bytes: usize,
        last: bool,
    ) -> Unpacking {
        Unpacking {
            stream,
            packed,
            last,
            unzipping: Unzipping::new(announced_bytes),
        }
    }

    /// Returns its stream.
    pub(crate) fn stream(&self) -> StreamKey {
        self.stream
    }

    /// Returns whether it is the last message of its stream.
    pub(crate) fn is_last(&self) -> bool {
        self.last
    }

    /// Returns what came, and what it has become.
    pub(crate) fn into_bytes(self) -> (Vec<u8>, Vec<u8>) {
        (self.packed, self.unzipping.into_bytes())
    }

    /// The memory that it takes when it is under way, beside what came.
    fn bytes(&self) -> usize {
        self.unzipping.announced_bytes() + Unzipping::STATE_BYTES
    }
}

/// The large compressed messages of a connection.
#[derive(Debug)]
pub(crate) struct Unpacks {
    waiting: VecDeque<Unpacking>,
    /// There is memory for the first.
    is_granted: bool,
    /// What may still be made for now, by the layer above.
    allowance: usize,
    /// What came of all of them.
    packed_bytes: usize,
}

impl Default for Unpacks {
    fn default() -> Unpacks {
        Unpacks {
            waiting: VecDeque::new(),
            is_granted: false,
            allowance: usize::MAX,
            packed_bytes: 0,
        }
    }
}

impl Unpacks {
    /// Bytes of messages that wait.
    #[inline]
    pub(crate) fn packed_bytes(&self) -> usize {
        self.packed_bytes
    }

    /// What they are charged with.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        match self.is_granted {
            true => self.packed_bytes + self.next_bytes(),
            false => self.packed_bytes,
        }
    }

    /// Returns what the first takes when it is under way, in bytes.
    pub(crate) fn next_bytes(&self) -> usize {
        self.waiting.front().map_or(0, Unpacking::bytes)
    }

    /// Bounds what may be made from now on, in bytes.
    #[inline]
    pub(crate) fn set_allowance(&mut self, bytes: usize) {
        self.allowance = bytes;
    }

    /// Returns what is left of the allowance, in bytes.
    pub(crate) fn allowance(&self) -> usize {
        self.allowance
    }

    /// Returns the stream of the first.
    pub(crate) fn first(&self) -> Option<StreamKey> {
        self.waiting.front().map(|first| first.stream)
    }

    /// Whether the first waits for memory.
    #[inline]
    pub(crate) fn awaits_memory(&self) -> bool {
        !self.is_granted && !self.waiting.is_empty()
    }

    /// Whether a message is under way.
    #[inline]
    pub(crate) fn is_granted(&self) -> bool {
        self.is_granted
    }

    /// There is memory for the first.
    pub(crate) fn grant(&mut self) {
        self.is_granted = !self.waiting.is_empty();
    }

    #[inline]
    pub(crate) fn may_step(&self) -> bool {
        self.is_granted && self.allowance > 0
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes() + self.waiting.capacity() * size_of::<Unpacking>()
    }

    #[cfg(test)]
    pub(crate) fn reserve(&mut self, messages: usize) {
        self.waiting.reserve(messages);
    }

    /// Puts a message at the end. What follows on its stream waits behind it.
    pub(crate) fn push(&mut self, unpacking: Unpacking, streams: &mut Streams) {
        streams[unpacking.stream.slot].set_decompressing(true);
        self.packed_bytes += unpacking.packed.capacity();
        self.waiting.push_back(unpacking);
    }

    /// Goes on with the first, as far as the allowance and a step go. Returns it when it is whole,
    /// or why it cannot be read; then it is taken out.
    pub(crate) fn step(
        &mut self,
        streams: &mut Streams,
    ) -> Option<Result<Unpacking, (StreamKey, InflateError)>> {
        let first = self.waiting.front_mut()?;
        let step_bytes = limits::UNPACK_STEP_BYTES;
        let made = first
            .unzipping
            .step(&first.packed, step_bytes.min(self.allowance));
        self.allowance -= made.unwrap_or(step_bytes).clamp(1, self.allowance);
        if made.is_ok() && !first.unzipping.has_ended() {
            return None;
        }
        let whole = self.remove(0, streams)?;
        Some(match made {
            Ok(_) => Ok(whole),
            Err(error) => Err((whole.stream, error)),
        })
    }

    /// Takes out what waits of the stream in a slot, if there is something.
    #[inline]
    pub(crate) fn remove_of(&mut self, slot: u32, streams: &mut Streams) {
        if streams[slot].is_decompressing() {
            self.find_and_remove(slot, streams);
        }
    }

    #[cold]
    fn find_and_remove(&mut self, slot: u32, streams: &mut Streams) {
        let mut waiting = self.waiting.iter();
        if let Some(at) = waiting.position(|one| one.stream.slot == slot) {
            self.remove(at, streams);
        }
    }

    /// Forgets all that waits at once, as the connection is over.
    pub(crate) fn forget(&mut self, streams: &mut Streams) {
        for one in std::mem::take(self).waiting {
            streams[one.stream.slot].set_decompressing(false);
        }
    }

    fn remove(&mut self, at: usize, streams: &mut Streams) -> Option<Unpacking> {
        let removed = self.waiting.remove(at)?;
        streams[removed.stream.slot].set_decompressing(false);
        self.packed_bytes -= removed.packed.capacity();
        self.is_granted &= at > 0;
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::compression;
    use crate::http2::headers::BodyKind;

    /// A stream with a message of so many bytes before it was compressed.
    fn message(streams: &mut Streams, id: u32, bytes: usize) -> Unpacking {
        let slot = streams.insert(id, BodyKind::Grpc, 10, 10);
        let mut packed = Vec::new();
        compression::gzip(&vec![id as u8; bytes], &mut packed);
        Unpacking::new(StreamKey { slot, id }, packed, bytes, true)
    }

    /// What came counts while it waits; only the first, and only once it has its memory, counts
    /// also with what it becomes.
    #[test]
    fn messages_hold_the_memory_that_they_report() {
        let (mut unpacks, mut streams) = (Unpacks::default(), Streams::default());
        for _ in 0..2 {
            let mut held = Vec::new();
            for count in 1..=9_u32 {
                let id = 2 * count + 1;
                let slot = streams.insert(id, BodyKind::Grpc, 10, 10);
                let allocated = allocation_counter::measure(|| {
                    let packed = Vec::with_capacity(1_000 * count as usize);
                    let announced = 100_000 + count as usize;
                    let unpacking = Unpacking::new(StreamKey { slot, id }, packed, announced, true);
                    unpacks.push(unpacking, &mut streams);
                });
                held.push(allocated.bytes_current);
                let memory_bytes = unpacks.memory_bytes() as i64;
                assert_eq!(memory_bytes, held.iter().sum(), "{count} messages");
            }
            assert_eq!(unpacks.bytes(), 45_000);
            unpacks.grant();
            let becomes = 100_001 + Unzipping::STATE_BYTES;
            assert_eq!(unpacks.bytes(), 45_000 + becomes);
            let memory_bytes = unpacks.memory_bytes() as i64;
            assert_eq!(memory_bytes, held.iter().sum::<i64>() + becomes as i64);
            // One that is not under way goes, then the one that is, then all.
            unpacks.remove(1, &mut streams);
            assert_eq!(unpacks.bytes(), 43_000 + becomes);
            unpacks.remove(0, &mut streams);
            assert_eq!((unpacks.bytes(), unpacks.is_granted()), (42_000, false));
            while unpacks.remove(0, &mut streams).is_some() {}
            assert_eq!(unpacks.memory_bytes(), 0);
            let keys: Vec<_> = streams.keys().collect();
            for key in keys {
                assert!(!streams[key.slot].is_decompressing());
                streams.remove(key.slot);
            }
        }
    }

    #[test]
    fn the_first_message_is_made_as_far_as_the_allowance_goes() {
        let (mut unpacks, mut streams) = (Unpacks::default(), Streams::default());
        for id in [1, 3] {
            let one = message(&mut streams, id, 10_000);
            unpacks.push(one, &mut streams);
        }
        for id in [1, 3] {
            assert!(unpacks.awaits_memory() && !unpacks.may_step());
            unpacks.grant();
            assert_eq!(unpacks.first().map(|key| key.id), Some(id));
            unpacks.set_allowance(4_000);
            assert!(unpacks.step(&mut streams).is_none());
            assert!(!unpacks.may_step(), "the allowance is used up");
            unpacks.set_allowance(usize::MAX);
            let mut steps = std::iter::from_fn(|| Some(unpacks.step(&mut streams)));
            let whole = steps.by_ref().take(100).flatten().next();
            let whole = whole.expect("it ends").expect("it is valid");
            assert!(whole.is_last() && !streams[whole.stream().slot].is_decompressing());
            assert_eq!(whole.into_bytes().1, vec![id as u8; 10_000]);
        }
        assert_eq!(unpacks.bytes(), 0);
    }

    #[test]
    fn messages_of_a_stream_that_ends_and_of_a_connection_that_is_over_are_forgotten() {
        let (mut unpacks, mut streams) = (Unpacks::default(), Streams::default());
        for id in [1, 3, 5] {
            let one = message(&mut streams, id, 100);
            unpacks.push(one, &mut streams);
        }
        let slot = streams.find(3).expect("it is open");
        for _ in 0..2 {
            unpacks.remove_of(slot, &mut streams);
            let unpacked: Vec<_> = streams
                .iter_mut()
                .map(|(_, one)| one.is_decompressing())
                .collect();
            assert_eq!(unpacked, [true, false, true]);
        }
        unpacks.forget(&mut streams);
        assert!(streams.iter_mut().all(|(_, one)| !one.is_decompressing()));
        assert_eq!((unpacks.bytes(), unpacks.first()), (0, None));
    }
}
