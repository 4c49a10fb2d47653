//! What a stream has received and the layer above has not seen yet.

use crate::grpc::message;
use crate::grpc::{Deframer, MessageError, Step};
use crate::limits;

/// The receiving side of one stream's body.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    pub(crate) deframer: Deframer,
    /// Messages are handed up as they come, in parts.
    pub(crate) takes_parts: bool,
    /// Payload that came while the stream was held.
    pub(crate) backlog: Vec<u8>,
    /// How much of the backlog has been taken.
    pub(crate) backlog_at: usize,
    /// Bytes at the front of it that were handed up before and put back: the stream's window was
    /// not given back for them, and they take nothing more of it.
    pub(crate) again_bytes: usize,
    /// END_STREAM came while the stream was held, or behind the backlog.
    pub(crate) end_waits: bool,
    /// Bytes of this stream in the connection's count of unfinished bytes.
    pub(crate) counted: usize,
}

impl Inbound {
    /// Drops what was taken of the backlog, if that is half of it: a peer that always fills its
    /// window may keep it from ever being empty. So it has two windows at most, and each byte is
    /// moved once at most.
    pub(crate) fn drop_taken(&mut self) {
        if self.backlog_at > 0 && 2 * self.backlog_at >= self.backlog.len() {
            self.backlog.drain(..self.backlog_at);
            self.backlog_at = 0;
        }
    }

    /// Puts a message in front of the backlog, from which it may have come; returns the bytes that
    /// are unfinished now and were not before.
    pub(crate) fn put_back(&mut self, taken: &[u8]) -> usize {
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
        bytes
    }

    /// Finds the next message in a payload, or a part of it if it takes parts.
    #[inline]
    pub(crate) fn find_message(
        &mut self,
        data: &[u8],
        at: &mut usize,
        max_bytes: usize,
    ) -> Result<Step, MessageError> {
        match self.takes_parts {
            true => self.deframer.push_part(data, at, max_bytes),
            false => self.deframer.push(data, at, max_bytes),
        }
    }

    /// The same in the backlog. Parts are small: a whole window would be a long step for those
    /// above.
    pub(crate) fn find_in_backlog(
        &mut self,
        at: &mut usize,
        max_bytes: usize,
    ) -> Result<Step, MessageError> {
        if !self.takes_parts {
            return self.deframer.push(&self.backlog, at, max_bytes);
        }
        loop {
            let end = self.backlog.len().min(*at + limits::BACKLOG_PIECE_BYTES);
            let step = self
                .deframer
                .push_part(&self.backlog[..end], at, max_bytes)?;
            if step != Step::NeedMore || *at == self.backlog.len() {
                return Ok(step);
            }
        }
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
}
