//! Send room: what the peer's windows would let out at once. A call that has to fetch what it sends
//! (a download, from a disk) asks for it before it fetches, so that nothing is held for a peer that
//! could not take it.
//!
//! What is being fetched is promised its part of the connection's window, so that a thousand calls
//! do not fetch for the room of one.
//!
//! A connection without send capacity, since its peer does not take what waits on some streams, has
//! room for those that it does take, one after the other: as soon as nothing waits but for windows.

use std::collections::VecDeque;

use super::config::Config;
use super::stream::Stream;
use super::stream_key::StreamKey;
use super::streams::Streams;

/// What there is to send into, beside what is promised.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendSpace {
    /// The connection's send window.
    pub(crate) window_bytes: usize,
    /// The connection has send capacity.
    pub(crate) has_capacity: bool,
    /// Something waits that the windows let out.
    pub(crate) has_ready: bool,
}

impl SendSpace {
    /// Returns the bytes of the connection's window into which may be sent: none while there is no
    /// capacity, and something waits that the windows let out.
    fn open_bytes(self) -> usize {
        match self.has_capacity || !self.has_ready {
            true => self.window_bytes,
            false => 0,
        }
    }
}

/// What is promised of the connection's send window, and which streams wait for it.
#[derive(Debug)]
pub(crate) struct WindowRoom {
    /// Bytes of the connection's send window that calls are about to use.
    promised_bytes: usize,
    /// Streams that are owed a Writable event as soon as the connection's send window lets
    /// something out.
    waiting: VecDeque<StreamKey>,
    /// What the queue may hold before the keys of streams that have ended are removed.
    max_waiting: usize,
}

impl WindowRoom {
    /// Returns the room of a connection of which nothing is promised.
    pub(crate) fn new(config: &Config) -> WindowRoom {
        WindowRoom {
            promised_bytes: 0,
            waiting: VecDeque::new(),
            max_waiting: 2 * config.max_streams as usize,
        }
    }

    /// Returns how many bytes would go out at once on a stream, on which may be written, beside
    /// what is promised to others. If none, the stream waits for some.
    pub(crate) fn find(
        &mut self,
        key: StreamKey,
        streams: &mut Streams,
        space: SendSpace,
    ) -> usize {
        let stream = &mut streams[key.slot];
        let waiting = stream.outbound.bytes();
        let stream_room = stream.send_window.available().saturating_sub(waiting);
        let others = self.promised_bytes - stream.claims.promised_bytes();
        let room = stream_room.min(space.open_bytes().saturating_sub(others));
        if room > 0 {
            return room;
        }
        stream.claims.await_room();
        // Otherwise the peer has to open the stream's own window, and it may not do so before it
        // has got all that the window lets out: a stream of which that is not yet sent waits in the
        // queue, however little it is.
        if stream_room > 0 && stream.claims.enter_room_queue() {
            streams.enqueue(&mut self.waiting, key, self.max_waiting);
        }
        0
    }

    /// Promises the call of a stream so much of the window, instead of what was promised before.
    pub(crate) fn promise(&mut self, stream: &mut Stream, bytes: usize) {
        let before = stream.claims.set_promised(bytes);
        self.promised_bytes = self.promised_bytes - before + bytes;
    }

    /// The call of a stream has sent, or is over: gives back what was promised to it.
    #[inline]
    pub(crate) fn release(&mut self, stream: &mut Stream) {
        self.promised_bytes -= stream.claims.set_promised(0);
    }

    /// Returns whether a stream that waits may go on.
    #[inline]
    pub(crate) fn has_next(&self, space: SendSpace) -> bool {
        !self.waiting.is_empty() && self.is_free(space)
    }

    fn is_free(&self, space: SendSpace) -> bool {
        space.open_bytes() > self.promised_bytes
    }

    /// Takes out the stream whose call has waited longest, if some of the window is free.
    pub(crate) fn next(&mut self, streams: &mut Streams, space: SendSpace) -> Option<StreamKey> {
        while self.is_free(space) {
            let key = self.waiting.pop_front()?;
            if !streams.contains(key) {
                continue;
            }
            let stream = &mut streams[key.slot];
            stream.claims.leave_room_queue();
            let waits = stream.claims.stop_awaiting_room();
            if waits && stream.is_wanted() {
                return Some(key);
            }
        }
        None
    }

    /// The connection is over: whoever waits is told so by other events.
    pub(crate) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Returns the bytes of memory that the queue holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<StreamKey>()
    }

    #[cfg(test)]
    pub(crate) fn reserve_queue(&mut self, keys: usize) {
        self.waiting.reserve(keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::headers::BodyKind;

    fn streams(send_window: u32) -> (Streams, [StreamKey; 2]) {
        let mut streams = Streams::default();
        let keys = [1, 3].map(|id| StreamKey {
            slot: streams.insert(id, BodyKind::Grpc, send_window, 10),
            id,
        });
        (streams, keys)
    }

    fn space(window_bytes: usize) -> SendSpace {
        SendSpace {
            window_bytes,
            has_capacity: true,
            has_ready: false,
        }
    }

    #[test]
    fn what_is_promised_to_one_is_no_room_for_another() {
        let mut room = WindowRoom::new(&Config::server());
        let (mut streams, [one, other]) = streams(10_000);
        for _ in 0..2 {
            assert_eq!(room.find(one, &mut streams, space(12_000)), 10_000);
            room.promise(&mut streams[one.slot], 10_000);
            assert_eq!(
                room.find(one, &mut streams, space(12_000)),
                10_000,
                "its own"
            );
            assert_eq!(room.find(other, &mut streams, space(12_000)), 2_000);
            assert_eq!(room.find(other, &mut streams, space(10_000)), 0);
            assert!(!room.has_next(space(10_000)));
            assert_eq!(room.next(&mut streams, space(10_000)), None);
            room.release(&mut streams[one.slot]);
            assert!(room.has_next(space(10_000)));
            assert_eq!(room.next(&mut streams, space(10_000)), Some(other));
            assert_eq!(room.next(&mut streams, space(10_000)), None);
        }
    }

    #[test]
    fn without_capacity_there_is_room_when_nothing_waits_but_for_windows() {
        let mut room = WindowRoom::new(&Config::server());
        let (mut streams, [one, _]) = streams(1_000);
        let full = |window_bytes, has_ready| SendSpace {
            window_bytes,
            has_capacity: false,
            has_ready,
        };
        for _ in 0..2 {
            assert_eq!(room.find(one, &mut streams, full(1, true)), 0);
            assert_eq!(room.next(&mut streams, full(1, true)), None);
            assert_eq!(room.next(&mut streams, full(0, false)), None);
            assert_eq!(room.next(&mut streams, full(1, false)), Some(one));
            assert_eq!(room.find(one, &mut streams, full(1, false)), 1);
            assert_eq!(room.find(one, &mut streams, full(2_000, false)), 1_000);
            assert!(!room.has_next(space(2_000)), "it has room");
        }
    }
}
