//! Compressed messages.
//!
//! A small one is decompressed when it is found. A large one waits until there is memory for what
//! it becomes, and is then decompressed in steps, as far as the layer above allows: other
//! connections are served in between. One of a connection is under way at a time, in the order in
//! which they came; what follows on its stream waits behind it.
//!
//! Invariants: `is_unpacked` of a stream is set exactly while it stands in `waiting`; only the
//! first of them is granted memory, and counted with what it becomes.

use std::collections::VecDeque;

use super::connection::{Connection, MessageAt, TakenMessage};
use super::error::{Cause, ConnectionError};
use super::event::Event;
use super::guard::Charge;
use super::streams::{Encoding, StreamKey};
use crate::grpc::compression::{self, Unzipping};
use crate::grpc::{Code, InflateError, Status};
use crate::limits;

type Handled = Result<Option<Event>, ConnectionError>;

/// A message that is decompressed in steps, or waits for that.
#[derive(Debug)]
struct Unpacking {
    stream: StreamKey,
    packed: Vec<u8>,
    /// It is the last of its stream.
    last: bool,
    unzipping: Unzipping,
}

impl Unpacking {
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

    fn push(&mut self, unpacking: Unpacking) {
        self.packed_bytes += unpacking.packed.capacity();
        self.waiting.push_back(unpacking);
    }

    fn remove(&mut self, at: usize) -> Option<Unpacking> {
        let removed = self.waiting.remove(at)?;
        self.packed_bytes -= removed.packed.capacity();
        self.is_granted &= at > 0;
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        Some(removed)
    }
}

impl Connection {
    /// Bounds what may be made of large compressed messages from now on, in bytes: in this way the
    /// layer above shares its time among connections. Unbounded at first.
    #[inline]
    pub fn set_unpack_allowance(&mut self, bytes: usize) {
        self.unpacks.allowance = bytes;
    }

    /// Returns what is left of [`Connection::set_unpack_allowance`], in bytes.
    pub fn unpack_allowance(&self) -> usize {
        self.unpacks.allowance
    }

    /// Whether a compressed message has its memory, and goes on when the layer above allows it.
    #[inline]
    pub fn waits_to_unpack(&self) -> bool {
        self.unpacks.is_granted
    }

    /// Reports a compressed message that has just been found, or keeps it until it is decompressed.
    #[cold]
    pub(super) fn deliver_compressed(
        &mut self,
        stream: StreamKey,
        last: bool,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Handled {
        if self.streams[stream.slot].encoding != Encoding::Gzip {
            let message = "a message is compressed and no grpc-encoding was named";
            let status = Status::new(Code::Internal, message);
            return self.end_call(stream.slot, &status, Cause::BadMessage, out);
        }
        let packed = self.message(input);
        let usual_bytes = packed.len() * limits::USUAL_INFLATE_RATIO;
        let announced = match compression::announced_bytes(packed) {
            Err(error) => return self.end_packed(stream.slot, error, out),
            Ok(bytes) => bytes,
        };
        let max_bytes = self.config.max_message_bytes;
        if announced > max_bytes {
            let error = InflateError::TooLarge { max_bytes };
            return self.end_packed(stream.slot, error, out);
        }
        // Before it is made: what it becomes beyond honest ones is paid for, also if its call ends
        // meanwhile.
        let excess = announced.saturating_sub(usual_bytes);
        self.charge(Charge::Inflated(u32::try_from(excess).unwrap_or(u32::MAX)))?;
        if announced > limits::UNPACKED_AT_ONCE_BYTES && !self.is_client() {
            self.keep_packed(stream, announced, last, input);
            return self.check_gathered(stream.slot, out);
        }
        let mut inflated = self.pool.take();
        // What becomes more than it announced is damaged.
        if compression::gunzip(self.message(input), announced, &mut inflated).is_err() {
            return self.end_packed(stream.slot, InflateError::Damaged, out);
        }
        self.take_inflated(inflated);
        let last = self.take_end(stream, last);
        Ok(Some(Event::Message { stream, last }))
    }

    /// Puts a message at the end of those that are decompressed in steps.
    fn keep_packed(&mut self, stream: StreamKey, announced: usize, last: bool, input: &[u8]) {
        let packed = match self.take_message() {
            TakenMessage::Input(range) => input[range].to_vec(),
            TakenMessage::Owned(bytes) => bytes,
            TakenMessage::Shared(bytes) => bytes.into(),
        };
        self.unpacks.push(Unpacking {
            stream,
            packed,
            last,
            unzipping: Unzipping::new(announced),
        });
        self.streams[stream.slot].is_unpacked = true;
    }

    /// Goes on with the message whose turn it is; returns it when it is whole.
    pub(super) fn unpack_some(&mut self, out: &mut Vec<u8>) -> Handled {
        let unpacks = &mut self.unpacks;
        let Some(first) = unpacks.waiting.front_mut() else {
            return Ok(None);
        };
        let (stream, step) = (first.stream, limits::UNPACK_STEP_BYTES);
        let is_wanted = (self.streams.get(stream)).is_some_and(|found| !found.work_done);
        if !is_wanted {
            self.drop_unpacking(stream.slot);
            return Ok(None);
        }
        let made = first
            .unzipping
            .step(&first.packed, step.min(unpacks.allowance));
        unpacks.allowance -= made.unwrap_or(step).clamp(1, unpacks.allowance);
        if made.is_ok() && !first.unzipping.has_ended() {
            return Ok(None);
        }
        let Some(whole) = unpacks.remove(0) else {
            return Ok(None);
        };
        self.streams[stream.slot].is_unpacked = false;
        match made {
            Err(error) => self.end_packed(stream.slot, error, out),
            Ok(_) => self.deliver_unpacked(whole),
        }
    }

    /// Reports a message that was decompressed, and lets go on what waits behind it.
    fn deliver_unpacked(&mut self, whole: Unpacking) -> Handled {
        let stream = whole.stream;
        self.pool.give(whole.packed);
        let found = &mut self.streams[stream.slot];
        if found.held {
            // The layer above has stopped the stream meanwhile: it takes the message when it lets
            // it go on.
            let added = found.inbound.put_back(&whole.unzipping.into_bytes());
            found.inbound.end_waits |= whole.last;
            self.gather(added);
            return Ok(None);
        }
        if !self.resumed.contains(&stream) {
            self.resumed.push_back(stream);
        }
        self.take_inflated(whole.unzipping.into_bytes());
        self.was_compressed = true;
        Ok(Some(Event::Message {
            stream,
            last: whole.last,
        }))
    }

    /// The last message is one that was decompressed.
    fn take_inflated(&mut self, inflated: Vec<u8>) {
        self.pool
            .give(std::mem::replace(&mut self.unpacked, inflated));
        self.message_at = MessageAt::Unpacked;
    }

    /// A compressed message cannot be read.
    #[cold]
    fn end_packed(&mut self, slot: u32, error: InflateError, out: &mut Vec<u8>) -> Handled {
        let (status, cause) = match error {
            InflateError::Damaged => (error.status(), Cause::BadMessage),
            InflateError::TooLarge { .. } => {
                (self.with_hint(&error.status()), Cause::MessageTooLarge)
            }
        };
        self.end_call(slot, &status, cause, out)
    }

    /// The stream takes no messages any more.
    pub(super) fn drop_unpacking(&mut self, slot: u32) {
        if std::mem::take(&mut self.streams[slot].is_unpacked) {
            let mut waiting = self.unpacks.waiting.iter();
            if let Some(at) = waiting.position(|one| one.stream.slot == slot) {
                self.unpacks.remove(at);
            }
        }
    }

    /// Forgets all that waits at once, as the connection is over.
    pub(super) fn forget_unpacking(&mut self) {
        for one in std::mem::take(&mut self.unpacks.waiting) {
            self.streams[one.stream.slot].is_unpacked = false;
        }
        self.unpacks = Unpacks::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What came counts while it waits; only the first, and only once it has its memory, counts
    /// also with what it becomes.
    #[test]
    fn messages_hold_the_memory_that_they_report() {
        let mut unpacks = Unpacks::default();
        for _ in 0..2 {
            let mut held = Vec::new();
            for count in 1..=9_u32 {
                let allocated = allocation_counter::measure(|| {
                    unpacks.push(Unpacking {
                        stream: StreamKey {
                            slot: count,
                            id: 2 * count + 1,
                        },
                        packed: Vec::with_capacity(1_000 * count as usize),
                        last: true,
                        unzipping: Unzipping::new(100_000 + count as usize),
                    });
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
            unpacks.remove(1);
            assert_eq!(unpacks.bytes(), 43_000 + becomes);
            unpacks.remove(0);
            assert_eq!((unpacks.bytes(), unpacks.is_granted()), (42_000, false));
            while unpacks.remove(0).is_some() {}
            assert_eq!(unpacks.memory_bytes(), 0);
        }
    }
}
