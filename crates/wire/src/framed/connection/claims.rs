//! What may be produced for the peer, and what is held for it.

use super::{FramedSendNeed, FramedServerConnection};
use crate::http2::outbound::BodyCharge;
use crate::http2::{Event, Pause, StreamKey};

impl FramedServerConnection {
    /// Returns whether calls may produce something for the peer: less than
    /// [`max_unsent_bytes`](crate::Config::max_unsent_bytes) wait or are set aside, and the layer
    /// above has not paused it.
    #[inline]
    pub fn has_capacity(&self) -> bool {
        self.pause != Pause::All && self.unsent_bytes() < self.config.max_unsent_bytes
    }

    /// Returns whether also large messages may be produced for the peer.
    #[inline]
    pub fn has_large_capacity(&self) -> bool {
        self.pause == Pause::No && self.has_capacity()
    }

    /// Holds back what is produced for this peer, or lets it go on.
    #[inline]
    pub fn set_pause(&mut self, pause: Pause) {
        self.pause = pause;
    }

    /// Returns the bytes that wait to be sent, or are set aside for it; shared bodies count in
    /// full.
    #[inline]
    pub fn unsent_bytes(&self) -> usize {
        let queue_bytes = self.queue.unsent_bytes() + self.queue.beside_bytes();
        queue_bytes + self.streams.claims.reserved
    }

    /// Returns the bytes that wait for the peer to take them.
    #[inline]
    pub fn queued_bytes(&self) -> usize {
        self.queue.unsent_bytes()
    }

    /// Returns how many bytes have waited to be sent and have gone out, since the connection began.
    #[inline]
    pub fn sent_bytes(&self) -> u64 {
        self.queue.sent_bytes()
    }

    /// Returns whether the response of a call waits for the peer to take it.
    #[inline]
    pub fn has_unsent(&self, stream: StreamKey) -> bool {
        (self.streams.get(stream)).is_some_and(|found| found.is_unsent)
    }

    /// Returns whether a message was put back, and waits until large messages may be produced.
    pub fn has_put_back(&self) -> bool {
        !self.put_back.is_empty()
    }

    /// Returns the bytes of memory that the connection keeps, or has set aside, for its calls, as
    /// far as it is not shared with others.
    pub fn buffered_bytes(&self) -> usize {
        self.held_bytes() - self.queue.shared_bytes() + self.streams.claims.reserved
    }

    /// Returns the bytes that the connection holds for its peer, or waits for from it, with what is
    /// shared and without what is only set aside.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        let put_back = self.put_back.iter().map(|one| one.message.len());
        self.incoming.bytes()
            + put_back.sum::<usize>()
            + self.streams.attachment_bytes
            + self.queue.unsent_bytes()
            + self.queue.beside_bytes()
            + self.out_bytes()
            + self.streams.claims.ready
            + self.streams.claims.kept
    }

    /// Returns whether the call of a stream may send a message. If not, a Writable event follows as
    /// soon as it may.
    pub fn can_send(&mut self, stream: StreamKey) -> bool {
        self.admit(stream, FramedSendNeed::Message)
    }

    /// The same for a large one.
    pub fn can_send_large(&mut self, stream: StreamKey) -> bool {
        self.admit(stream, FramedSendNeed::LargeMessage)
    }

    fn may_send(&self, need: FramedSendNeed) -> bool {
        match need {
            FramedSendNeed::Message => self.has_capacity(),
            FramedSendNeed::LargeMessage => self.has_large_capacity(),
        }
    }

    fn admit(&mut self, stream: StreamKey, need: FramedSendNeed) -> bool {
        let may_send = self.may_send(need);
        let Some(found) = self.streams.running_mut(stream) else {
            return false;
        };
        if !may_send {
            found.awaits = Some(need);
            self.has_waiting = true;
        }
        may_send
    }

    /// Returns the event of a call that waits for capacity, if there is some.
    pub(super) fn next_writable(&mut self) -> Option<Event> {
        if !self.has_waiting || !self.has_capacity() {
            return None;
        }
        let is_free = self.has_large_capacity();
        let may = |need| is_free || need == FramedSendNeed::Message;
        let stream = self.streams.take_writable(may);
        if stream.is_none() {
            self.has_waiting = !is_free;
        }
        stream.map(|stream| Event::Writable { stream })
    }

    /// Returns whether the request of a call has not arrived whole.
    pub fn awaits_request(&self, stream: StreamKey) -> bool {
        (self.streams.get(stream)).is_some_and(|found| found.is_receiving)
    }

    /// Returns whether the call of a stream waits until the peer takes some of what is sent to it.
    pub fn awaits_taking(&self, stream: StreamKey) -> bool {
        let waits = (self.streams.get(stream)).is_some_and(|found| found.awaits.is_some());
        waits || self.put_back.iter().any(|one| one.stream == stream)
    }

    /// Sets aside bytes for what the call of a stream will send, instead of what was set aside for
    /// it before.
    pub fn reserve_send(&mut self, stream: StreamKey, bytes: usize) {
        self.streams
            .set_claims(stream, |claims| claims.reserved = bytes);
    }

    /// Sets aside more bytes.
    #[inline]
    pub fn reserve_more(&mut self, stream: StreamKey, bytes: usize) {
        self.streams
            .set_claims(stream, |claims| claims.reserved += bytes);
    }

    /// Counts what the call of a stream holds ready for the peer.
    pub fn hold_ready(&mut self, stream: StreamKey, bytes: usize) {
        self.streams
            .set_claims(stream, |claims| claims.ready = bytes);
    }

    /// Counts what the call of a stream keeps of its request.
    pub fn hold_request(&mut self, stream: StreamKey, bytes: usize) {
        self.streams
            .set_claims(stream, |claims| claims.kept = bytes);
    }

    /// Charges the shared body that was sent last for a call.
    pub fn charge_shared(
        &mut self,
        stream: StreamKey,
        charge: impl FnOnce() -> Box<dyn BodyCharge>,
    ) {
        if let Some(found) = self.streams.get_mut(stream)
            && let Some((response, _)) = &mut found.response
        {
            response.charge_last(charge);
        }
    }

    /// Returns how many bytes may be sent before nothing more is produced.
    pub fn send_room(&self) -> usize {
        match self.has_capacity() {
            true => self.config.max_unsent_bytes - self.unsent_bytes(),
            false => 0,
        }
    }
}
