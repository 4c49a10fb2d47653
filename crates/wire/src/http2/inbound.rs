//! What a stream has received and the layer above has not seen yet: the message that is being
//! gathered, and the backlog of a stream that is held.

use std::ops::Range;

use super::frame;
use super::pool::BufferPool;
use crate::grpc::message;
use crate::grpc::{DeframeStep, Deframer, MessageError, PREFIX_BYTES};
use crate::limits;

/// The receiving side of one stream's body.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    deframer: Deframer,
    /// Messages are handed up as they come, in parts.
    takes_parts: bool,
    /// Payload that came while the stream was held.
    backlog: Vec<u8>,
    /// How much of the backlog has been taken.
    backlog_at: usize,
    /// Bytes at the front of it that were handed up before and put back: the stream's window was
    /// not given back for them, and they take nothing more of it.
    again_bytes: usize,
    /// END_STREAM came while the stream was held, or behind the backlog.
    end_waits: bool,
    /// Bytes of this stream in the connection's count of unfinished bytes.
    counted: usize,
}

/// What was found next in a backlog.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BacklogStep {
    /// The message, or the part of one; ranges are those of [`Inbound::backlog`].
    pub(crate) step: DeframeStep,
    /// The bytes that it takes of the stream's window.
    pub(crate) taken: usize,
    /// The peer has ended its side with it.
    pub(crate) last: bool,
}

/// What is left when a backlog has been taken to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BacklogEnd {
    /// Bytes that are unfinished no more.
    pub(crate) done: usize,
    /// The peer has ended its side.
    pub(crate) end: bool,
}

impl Inbound {
    /// Begins with the body of another stream.
    pub(crate) fn begin(&mut self) {
        debug_assert!(self.is_empty(), "what came is dropped with its stream");
        self.takes_parts = false;
    }

    /// Hands messages up in parts from now on.
    pub(crate) fn take_parts(&mut self) {
        self.takes_parts = true;
    }

    /// Returns whether payload waits, which has to be taken before what comes.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Returns whether payload or the end of the stream waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.has_backlog() || self.end_waits
    }

    /// Notes that the end of the stream waits, behind what has not been taken.
    pub(crate) fn note_end(&mut self) {
        self.end_waits = true;
    }

    /// Returns whether a message has begun and not ended.
    #[inline]
    pub(crate) fn is_mid_message(&self) -> bool {
        self.deframer.is_mid_message()
    }

    /// Returns how many bytes the message that has begun lacks, if its length is known and it does
    /// not come in parts.
    #[inline]
    pub(crate) fn missing(&self) -> Option<usize> {
        self.deframer.missing()
    }

    /// Returns the same of a message that is gathered: what may come in parts is not kept.
    #[inline]
    pub(crate) fn missing_gathered(&self) -> Option<usize> {
        let is_gathered = !self.takes_parts || self.deframer.gathered_len() > 0;
        self.missing().filter(|_| is_gathered)
    }

    /// Returns the last message, which was gathered.
    pub(crate) fn gathered(&self) -> &[u8] {
        self.deframer.gathered()
    }

    /// Takes the last message, which was gathered.
    pub(crate) fn take_gathered(&mut self) -> Vec<u8> {
        self.deframer.take_buffer()
    }

    /// Takes memory for all of the message that is being gathered.
    pub(crate) fn reserve_message(&mut self) {
        self.deframer.reserve_message();
    }

    /// Takes the first part of a message back, which is gathered from now on.
    pub(crate) fn gather_whole(&mut self, part: &[u8]) {
        self.deframer.gather_whole(part);
    }

    /// Takes a buffer with memory if the payload will have to be gathered.
    #[inline]
    pub(crate) fn borrow_buffer(&mut self, payload: &[u8], pool: &mut BufferPool) {
        if self.takes_parts {
            return;
        }
        let is_whole = payload.len() >= PREFIX_BYTES
            && payload.len() - PREFIX_BYTES >= frame::read_u32(&payload[1..]) as usize;
        if !is_whole && !pool.is_empty() && self.deframer.buffer_bytes() == 0 {
            self.deframer.give_buffer(pool.take());
        }
    }

    /// Gives the buffer back in which the last message was gathered, as it was consumed.
    #[inline]
    pub(crate) fn return_buffer(&mut self, pool: &mut BufferPool) {
        if self.deframer.buffer_bytes() > 0 && !self.is_mid_message() {
            pool.give(self.deframer.take_buffer());
        }
    }

    /// Finds the next message in a payload, or a part of it if it takes parts.
    #[inline]
    pub(crate) fn find_message(
        &mut self,
        data: &[u8],
        at: &mut usize,
        max_bytes: usize,
    ) -> Result<DeframeStep, MessageError> {
        match self.takes_parts {
            true => self.deframer.push_part(data, at, max_bytes),
            false => self.deframer.push(data, at, max_bytes),
        }
    }

    /// Counts bytes that have come, if they are of a message that is not whole. Returns how many
    /// more are unfinished.
    pub(crate) fn count_unfinished(&mut self, bytes: usize) -> usize {
        let more = if self.is_mid_message() { bytes } else { 0 };
        self.counted += more;
        more
    }

    /// A message was handed up: what was gathered of it is no longer unfinished. Returns how many
    /// bytes fewer are.
    #[inline]
    pub(crate) fn count_finished(&mut self) -> usize {
        let still = self.backlog.len() - self.backlog_at;
        let done = self.counted - still;
        self.counted = still;
        done
    }

    /// Keeps payload that came while the stream was held, or while there was a backlog.
    pub(crate) fn keep_back(
        &mut self,
        payload: &[u8],
        end: bool,
        window_limit: u32,
        pool: &mut BufferPool,
    ) {
        self.drop_taken();
        make_room(&mut self.backlog, payload.len(), window_limit, pool);
        self.backlog.extend_from_slice(payload);
        self.end_waits = end;
        self.counted += payload.len();
    }

    /// Drops what was taken of the backlog, if that is half of it: a peer that always fills its
    /// window may keep it from ever being empty. So it has two windows at most, and each byte is
    /// moved once at most.
    fn drop_taken(&mut self) {
        if self.backlog_at > 0 && 2 * self.backlog_at >= self.backlog.len() {
            self.backlog.drain(..self.backlog_at);
            self.backlog_at = 0;
        }
    }

    /// Puts a message in front of the backlog, from which it may have come; returns the bytes that
    /// are unfinished now and were not before.
    pub(crate) fn put_back(&mut self, taken: &[u8], last: bool) -> usize {
        let length = u32::try_from(taken.len()).expect("a message has a length of four bytes");
        let prefix = message::prefix(length, false);
        let bytes = prefix.len() + taken.len();
        let came_from_here = (self.backlog[..self.backlog_at])
            .strip_suffix(taken)
            .is_some_and(|before| before.ends_with(&prefix));
        if came_from_here {
            self.backlog_at -= bytes;
        } else {
            let rest = &self.backlog[self.backlog_at..];
            self.backlog = [&prefix, taken, rest].concat();
            self.backlog_at = 0;
        }
        self.again_bytes += bytes;
        self.counted += bytes;
        self.end_waits |= last;
        bytes
    }

    /// Returns the backlog, also what of it has been taken.
    pub(crate) fn backlog(&self) -> &[u8] {
        &self.backlog
    }

    /// Takes the next message from the backlog, or a part of it.
    pub(crate) fn take_next(&mut self, max_bytes: usize) -> Result<BacklogStep, MessageError> {
        let start = self.backlog_at;
        let mut at = start;
        let step = self.find_in_backlog(&mut at, max_bytes);
        self.backlog_at = at;
        let step = step?;
        let mut taken = at - start;
        let is_whole = match &step {
            DeframeStep::Message { .. } => {
                taken = taken.saturating_sub(std::mem::take(&mut self.again_bytes));
                true
            }
            DeframeStep::Part { left, .. } => *left == 0,
            DeframeStep::NeedMore => false,
        };
        let last = is_whole && self.end_waits && at == self.backlog.len();
        self.end_waits &= !last;
        Ok(BacklogStep { step, taken, last })
    }

    /// Finds the next message in the backlog. Parts are small: a whole window would be a long step
    /// for those above.
    fn find_in_backlog(
        &mut self,
        at: &mut usize,
        max_bytes: usize,
    ) -> Result<DeframeStep, MessageError> {
        if !self.takes_parts {
            return self.deframer.push(&self.backlog, at, max_bytes);
        }
        loop {
            let end = self.backlog.len().min(*at + limits::BACKLOG_PIECE_BYTES);
            let step = self
                .deframer
                .push_part(&self.backlog[..end], at, max_bytes)?;
            if step != DeframeStep::NeedMore || *at == self.backlog.len() {
                return Ok(step);
            }
        }
    }

    /// Takes the next piece from the backlog of a body that is not gRPC, and returns its range and
    /// whether the peer has ended its side with it. `None`: all has been taken.
    pub(crate) fn take_piece(&mut self) -> Option<(Range<usize>, bool)> {
        let (start, behind) = (self.backlog_at, self.backlog.len());
        if start == behind {
            return None;
        }
        let end = behind.min(start + limits::BACKLOG_PIECE_BYTES);
        self.backlog_at = end;
        let last = end == behind && std::mem::take(&mut self.end_waits);
        Some((start..end, last))
    }

    /// The backlog has been taken to its end: gives its memory back.
    pub(crate) fn end_backlog(&mut self, pool: &mut BufferPool) -> BacklogEnd {
        self.backlog_at = 0;
        pool.give(std::mem::take(&mut self.backlog));
        let unfinished = self.deframer.gathered_len().min(self.counted);
        let done = self.counted - unfinished;
        self.counted = unfinished;
        let end = std::mem::take(&mut self.end_waits);
        BacklogEnd { done, end }
    }

    /// Forgets everything, as the stream is over. Returns how many bytes of it were unfinished.
    pub(crate) fn clear(&mut self, pool: &mut BufferPool) -> usize {
        pool.give(self.deframer.take_buffer());
        pool.give(std::mem::take(&mut self.backlog));
        self.deframer = Deframer::new();
        self.backlog_at = 0;
        self.again_bytes = 0;
        self.end_waits = false;
        std::mem::take(&mut self.counted)
    }

    /// Whether nothing is kept, not even memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.backlog.is_empty()
            && self.counted == 0
            && self.again_bytes == 0
            && !self.end_waits
            && !self.deframer.is_mid_message()
            && self.deframer.buffer_bytes() == 0
    }
}

/// Sees to it that a backlog has room for so much more. It may grow to a window: where that is
/// limited, since the stream brings much, it gets as much at once. Else it would be copied again
/// and again while it grows, each time to fresh pages.
fn make_room(backlog: &mut Vec<u8>, bytes: usize, window_limit: u32, pool: &mut BufferPool) {
    if backlog.capacity() == 0 {
        *backlog = pool.take();
    }
    let needed = backlog.len() + bytes;
    if needed > backlog.capacity() && window_limit < u32::MAX {
        let wanted = needed.max(window_limit as usize);
        backlog.reserve_exact(wanted - backlog.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever is held again before all is taken keeps what waits and as much again, however much
    /// follows.
    #[test]
    fn a_backlog_that_is_never_empty_does_not_grow() {
        let mut inbound = Inbound::default();
        let (mut sent, mut taken) = (0_u32, 0_u32);
        for _ in 0..1_000 {
            inbound.drop_taken();
            for _ in 0..10 {
                inbound.backlog.push(sent as u8);
                sent += 1;
            }
            while sent - taken > 50 {
                assert_eq!(inbound.backlog[inbound.backlog_at], taken as u8);
                inbound.backlog_at += 1;
                taken += 1;
            }
            assert!(inbound.backlog.len() <= 2 * 60, "{}", inbound.backlog.len());
        }
    }

    fn frame(message: &[u8]) -> Vec<u8> {
        let prefix = message::prefix(message.len() as u32, false);
        [&prefix[..], message].concat()
    }

    /// Returns the next message of the backlog, its bytes of the window, and whether it is last.
    fn next(inbound: &mut Inbound) -> Option<(Vec<u8>, usize, bool)> {
        let found = inbound.take_next(1_000).expect("it is valid");
        let message = match found.step {
            DeframeStep::Message { whole, .. } => match whole {
                Some(range) => inbound.backlog()[range].to_vec(),
                None => inbound.gathered().to_vec(),
            },
            _ => return None,
        };
        inbound.count_finished();
        Some((message, found.taken, found.last))
    }

    #[test]
    fn what_was_kept_back_comes_in_order_and_then_the_end() {
        let (mut inbound, mut pool) = (Inbound::default(), BufferPool::default());
        for _ in 0..2 {
            let payload = [frame(b"one"), frame(b"two")].concat();
            let (first, second) = payload.split_at(10);
            inbound.keep_back(first, false, u32::MAX, &mut pool);
            assert_eq!(next(&mut inbound), Some((b"one".to_vec(), 8, false)));
            inbound.keep_back(second, true, u32::MAX, &mut pool);
            assert_eq!(next(&mut inbound), Some((b"two".to_vec(), 8, true)));
            assert_eq!(next(&mut inbound), None);
            let end = inbound.end_backlog(&mut pool);
            let expected = BacklogEnd {
                done: 0,
                end: false,
            };
            assert_eq!(end, expected, "the last message has brought the end");
            assert!(inbound.is_empty());
        }
    }

    #[test]
    fn a_message_that_is_put_back_comes_again_and_takes_no_window() {
        let (mut inbound, mut pool) = (Inbound::default(), BufferPool::default());
        for _ in 0..2 {
            inbound.keep_back(&frame(b"one"), false, u32::MAX, &mut pool);
            let (one, taken, last) = next(&mut inbound).expect("it is whole");
            assert_eq!(taken, 8);
            assert_eq!(inbound.put_back(&one, last), 8);
            assert_eq!(next(&mut inbound), Some((b"one".to_vec(), 0, false)));
            assert_eq!(inbound.put_back(b"zero", true), 9);
            assert!(inbound.is_waiting());
            assert_eq!(next(&mut inbound), Some((b"zero".to_vec(), 0, true)));
            inbound.end_backlog(&mut pool);
            assert!(inbound.is_empty());
        }
    }

    #[test]
    fn unfinished_bytes_are_counted_until_they_are_finished_or_forgotten() {
        let (mut inbound, mut pool) = (Inbound::default(), BufferPool::default());
        for is_finished in [true, false, true] {
            inbound.begin();
            let frame = frame(b"message");
            let mut at = 0;
            let step = inbound.find_message(&frame[..9], &mut at, 100);
            assert_eq!(
                (step, inbound.count_unfinished(at)),
                (Ok(DeframeStep::NeedMore), 9)
            );
            assert_eq!(inbound.missing_gathered(), Some(3));
            if is_finished {
                let step = inbound.find_message(&frame[9..], &mut 0, 100);
                assert!(matches!(step, Ok(DeframeStep::Message { whole: None, .. })));
                assert_eq!(inbound.count_unfinished(3), 0);
                assert_eq!(inbound.count_finished(), 9);
                inbound.return_buffer(&mut pool);
            } else {
                assert_eq!(inbound.clear(&mut pool), 9);
            }
            assert!(inbound.is_empty());
        }
    }
}
