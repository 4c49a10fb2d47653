//! Responses that wait for room in the output, in the order in which they go out.

use std::collections::VecDeque;

use crate::http2::StreamKey;
use crate::http2::outbound::Outbound;
use crate::http2::pool::BufferPool;
use crate::limits;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ResponseQueue {
    responses: VecDeque<QueuedResponse>,
    /// Bytes that have not gone out, with those that are shared.
    unsent_bytes: usize,
    /// Those of them that are shared with others.
    shared_bytes: usize,
    /// Bytes that have waited here and have gone out, since the connection began.
    sent_bytes: u64,
    /// How many of those that wait have no stream.
    refusals: usize,
}

/// A response that waits.
#[derive(Debug)]
struct QueuedResponse {
    /// The call; `None` of a request that was refused before one began.
    stream: Option<StreamKey>,
    frame: Outbound,
    has_begun: bool,
}

/// What became of replacing a response by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    /// The other one goes out.
    Done,
    /// Some of it has gone out.
    HasBegun,
    /// It does not wait here.
    NotHere,
}

impl ResponseQueue {
    /// Returns whether nothing waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.responses.is_empty()
    }

    /// Adds a response, so many bytes of which are shared. Without a stream it refuses a request
    /// that has not become a call.
    pub(super) fn push(&mut self, stream: Option<StreamKey>, frame: Outbound, shared_bytes: usize) {
        self.refusals += usize::from(stream.is_none());
        self.unsent_bytes += frame.bytes();
        self.shared_bytes += shared_bytes;
        self.responses.push_back(QueuedResponse {
            stream,
            frame,
            has_begun: false,
        });
    }

    /// Moves what waits to `out`, until that has so many bytes. `is_out` takes the streams whose
    /// response has gone out as a whole.
    pub(super) fn pump(
        &mut self,
        bound_bytes: usize,
        out: &mut Vec<u8>,
        pool: &mut BufferPool,
        mut is_out: impl FnMut(StreamKey),
    ) {
        while let Some(response) = self.responses.front_mut() {
            let room = bound_bytes.saturating_sub(out.len());
            if room == 0 {
                return;
            }
            let part = room.min(response.frame.bytes());
            let shared_bytes = response.frame.take(part, out, pool);
            response.has_begun = true;
            self.unsent_bytes -= part;
            self.shared_bytes -= shared_bytes;
            self.sent_bytes += part as u64;
            if response.frame.bytes() > 0 {
                return;
            }
            let stream = response.stream;
            self.responses.pop_front();
            match stream {
                Some(stream) => is_out(stream),
                None => self.refusals -= 1,
            }
        }
    }

    /// Puts what `write` appends in the place of the response of a call, if that waits whole.
    #[cold]
    pub(super) fn replace(
        &mut self,
        stream: StreamKey,
        pool: &mut BufferPool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Replaced {
        let of_it = |response: &&mut QueuedResponse| response.stream == Some(stream);
        let Some(response) = self.responses.iter_mut().find(of_it) else {
            return Replaced::NotHere;
        };
        if response.has_begun {
            return Replaced::HasBegun;
        }
        self.unsent_bytes -= response.frame.bytes();
        self.shared_bytes -= response.frame.clear(pool);
        response.frame.write(pool, write);
        self.unsent_bytes += response.frame.bytes();
        Replaced::Done
    }

    /// Drops all: the connection is over. Returns the streams whose response does not go out.
    pub(super) fn drop_all(&mut self) -> impl Iterator<Item = StreamKey> + use<> {
        self.unsent_bytes = 0;
        self.shared_bytes = 0;
        self.refusals = 0;
        let dropped = std::mem::take(&mut self.responses).into_iter();
        dropped.filter_map(|response| response.stream)
    }

    /// Returns the bytes that have not gone out, with those that are shared.
    #[inline]
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Returns those of them that are shared.
    #[inline]
    pub(super) fn shared_bytes(&self) -> usize {
        self.shared_bytes
    }

    /// Returns how many bytes have waited and have gone out, since the connection began.
    #[inline]
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Returns how many refusals of requests wait that have not become calls.
    #[inline]
    pub(super) fn refusals(&self) -> usize {
        self.refusals
    }

    /// Returns what the responses take beside their bytes.
    #[inline]
    pub(super) fn beside_bytes(&self) -> usize {
        self.responses.len() * limits::QUEUED_RESPONSE_BYTES
    }

    /// Returns the bytes that have gone out and take memory all the same, as what follows them in
    /// their response has not.
    #[inline]
    pub(super) fn out_bytes(&self) -> usize {
        (self.responses.front()).map_or(0, |response| response.frame.sent_bytes())
    }

    /// Returns the bytes of memory of the queue itself.
    pub(super) fn memory_bytes(&self) -> usize {
        self.responses.capacity() * size_of::<QueuedResponse>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: u32) -> StreamKey {
        StreamKey { slot, id: 1 }
    }

    fn frame(pool: &mut BufferPool, bytes: &[u8]) -> Outbound {
        let mut frame = Outbound::default();
        frame.write(pool, |out| out.extend_from_slice(bytes));
        frame
    }

    #[test]
    fn responses_go_out_in_order_as_far_as_there_is_room() {
        let mut pool = BufferPool::new(limits::POOLED_BYTES);
        let mut queue = ResponseQueue::default();
        for round in 1..=2 {
            queue.push(Some(key(1)), frame(&mut pool, b"first"), 0);
            queue.push(None, frame(&mut pool, b"no"), 0);
            assert_eq!((queue.unsent_bytes(), queue.refusals()), (7, 1));
            let (mut out, mut sent) = (Vec::new(), Vec::new());
            queue.pump(3, &mut out, &mut pool, |stream| sent.push(stream));
            assert_eq!((&out[..], queue.unsent_bytes()), (&b"fir"[..], 4));
            assert!(sent.is_empty() && !queue.is_empty());
            let replaced = queue.replace(key(1), &mut pool, |_| {});
            assert_eq!(replaced, Replaced::HasBegun);
            queue.pump(100, &mut out, &mut pool, |stream| sent.push(stream));
            assert_eq!((&out[..], &sent[..]), (&b"firstno"[..], &[key(1)][..]));
            assert!(queue.is_empty());
            let counters = (queue.unsent_bytes(), queue.refusals(), queue.sent_bytes());
            assert_eq!(counters, (0, 0, 7 * round));
        }
    }

    #[test]
    fn what_waits_whole_can_be_replaced_or_dropped() {
        let mut pool = BufferPool::new(limits::POOLED_BYTES);
        let mut queue = ResponseQueue::default();
        for _ in 0..2 {
            queue.push(Some(key(1)), frame(&mut pool, b"first"), 0);
            queue.push(None, frame(&mut pool, b"no"), 0);
            let mut replace =
                |stream| queue.replace(stream, &mut pool, |out| out.extend_from_slice(b"other"));
            assert_eq!(replace(key(2)), Replaced::NotHere);
            assert_eq!(replace(key(1)), Replaced::Done);
            let mut out = Vec::new();
            queue.pump(1, &mut out, &mut pool, |_| {});
            assert_eq!((&out[..], queue.unsent_bytes()), (&b"o"[..], 6));
            assert_eq!(queue.drop_all().collect::<Vec<_>>(), [key(1)]);
            assert!(queue.is_empty());
            assert_eq!((queue.unsent_bytes(), queue.refusals()), (0, 0));
        }
    }
}
