//! What the call of one stream has claimed of its connection's send capacity, and what it waits
//! for.

/// The claims of a stream's call. The sums over all streams are in
/// [`Capacity`](super::capacity::Capacity) and [`WindowRoom`](super::room::WindowRoom).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SendClaims {
    /// Bytes that are set aside for what the call is about to send.
    reserved_bytes: usize,
    /// Bytes that the call holds ready for the peer.
    ready_bytes: usize,
    /// Bytes that the call keeps of its request.
    kept_bytes: usize,
    /// Bytes of the connection's send window that the call is about to use.
    promised_bytes: usize,
    /// Stands in a queue of streams that wait for send capacity.
    awaits_capacity: bool,
    /// Is owed a Writable event as soon as the peer's windows let something out.
    awaits_room: bool,
    /// Stands in the queue of streams that wait for the connection's send window.
    in_room_queue: bool,
    /// Its first message was kept back until the connection has send capacity.
    is_deferred: bool,
    /// A message of it was put back until the connection has capacity for large ones.
    is_put_back: bool,
    /// A message of it has been delivered: from now on its call paces itself by `can_send`.
    has_delivered: bool,
}

/// What was given back of the claims of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Released {
    pub(crate) reserved_bytes: usize,
    pub(crate) ready_bytes: usize,
    pub(crate) kept_bytes: usize,
}

impl SendClaims {
    /// Begins with another stream, whose call has claimed nothing.
    pub(crate) fn begin(&mut self) {
        let bytes = [
            self.reserved_bytes,
            self.promised_bytes,
            self.ready_bytes,
            self.kept_bytes,
        ];
        debug_assert_eq!(bytes, [0; 4], "given back with the stream");
        *self = SendClaims::default();
    }

    /// Sets what is set aside, and returns what was before.
    pub(crate) fn set_reserved(&mut self, bytes: usize) -> usize {
        std::mem::replace(&mut self.reserved_bytes, bytes)
    }

    /// Sets aside more.
    #[inline]
    pub(crate) fn add_reserved(&mut self, bytes: usize) {
        self.reserved_bytes += bytes;
    }

    /// Sets what is held ready, and returns what was before.
    pub(crate) fn set_ready(&mut self, bytes: usize) -> usize {
        std::mem::replace(&mut self.ready_bytes, bytes)
    }

    /// Sets what is kept of the request, and returns what was before.
    pub(crate) fn set_kept(&mut self, bytes: usize) -> usize {
        std::mem::replace(&mut self.kept_bytes, bytes)
    }

    /// Gives back what is set aside, held ready and kept.
    #[inline]
    pub(crate) fn release(&mut self) -> Released {
        Released {
            reserved_bytes: std::mem::take(&mut self.reserved_bytes),
            ready_bytes: std::mem::take(&mut self.ready_bytes),
            kept_bytes: std::mem::take(&mut self.kept_bytes),
        }
    }

    /// Returns what is promised of the connection's send window.
    pub(crate) fn promised_bytes(&self) -> usize {
        self.promised_bytes
    }

    /// Sets what is promised, and returns what was before.
    #[inline]
    pub(crate) fn set_promised(&mut self, bytes: usize) -> usize {
        std::mem::replace(&mut self.promised_bytes, bytes)
    }

    /// Lets the call wait for capacity. Returns whether it did not before.
    pub(crate) fn await_capacity(&mut self) -> bool {
        !std::mem::replace(&mut self.awaits_capacity, true)
    }

    /// There is capacity for the call.
    pub(crate) fn stop_awaiting_capacity(&mut self) {
        self.awaits_capacity = false;
    }

    /// Keeps the first message back. Returns whether it was not before.
    pub(crate) fn defer(&mut self) -> bool {
        !std::mem::replace(&mut self.is_deferred, true)
    }

    /// Lets the first message come.
    pub(crate) fn stop_deferring(&mut self) {
        self.is_deferred = false;
        self.has_delivered = true;
    }

    /// Notes that a message was put back. Returns whether none was before.
    pub(crate) fn put_back(&mut self) -> bool {
        !std::mem::replace(&mut self.is_put_back, true)
    }

    /// Lets the message come that was put back.
    pub(crate) fn take_put_back(&mut self) {
        self.is_put_back = false;
    }

    /// Returns whether a message was put back, and has not come.
    pub(crate) fn is_put_back(&self) -> bool {
        self.is_put_back
    }

    /// Notes that a message has been delivered.
    #[inline]
    pub(crate) fn set_delivered(&mut self) {
        self.has_delivered = true;
    }

    /// Returns whether a message has been delivered.
    #[inline]
    pub(crate) fn has_delivered(&self) -> bool {
        self.has_delivered
    }

    /// Lets the call wait for room.
    pub(crate) fn await_room(&mut self) {
        self.awaits_room = true;
    }

    /// Lets the call wait for room no more. Returns whether it did.
    #[inline]
    pub(crate) fn stop_awaiting_room(&mut self) -> bool {
        std::mem::take(&mut self.awaits_room)
    }

    /// Enters the queue of those that wait for the connection's send window. Returns whether it did
    /// not stand there before.
    pub(crate) fn enter_room_queue(&mut self) -> bool {
        !std::mem::replace(&mut self.in_room_queue, true)
    }

    /// Leaves that queue.
    pub(crate) fn leave_room_queue(&mut self) {
        self.in_room_queue = false;
    }

    /// Returns whether the call waits for capacity or room.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_deferred || self.awaits_capacity || self.awaits_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_claimed_is_given_back_once() {
        let mut claims = SendClaims::default();
        for _ in 0..2 {
            claims.begin();
            assert_eq!(claims.set_reserved(10), 0);
            assert_eq!(claims.set_reserved(7), 10);
            claims.add_reserved(3);
            assert_eq!((claims.set_ready(20), claims.set_kept(30)), (0, 0));
            assert_eq!(claims.set_promised(40), 0);
            for (reserved_bytes, ready_bytes, kept_bytes) in [(10, 20, 30), (0, 0, 0)] {
                let expected = Released {
                    reserved_bytes,
                    ready_bytes,
                    kept_bytes,
                };
                assert_eq!(claims.release(), expected);
            }
            assert_eq!((claims.promised_bytes(), claims.set_promised(0)), (40, 40));
        }
        assert_eq!(claims, SendClaims::default());
    }

    #[test]
    fn a_call_enters_each_queue_once() {
        let mut claims = SendClaims::default();
        for _ in 0..2 {
            claims.begin();
            assert!(claims.await_capacity() && !claims.await_capacity());
            claims.stop_awaiting_capacity();
            assert!(claims.defer() && !claims.defer() && claims.is_waiting());
            claims.stop_deferring();
            assert!(claims.has_delivered() && !claims.is_waiting());
            assert!(claims.put_back() && !claims.put_back() && claims.is_put_back());
            claims.take_put_back();
            claims.await_room();
            assert!(claims.enter_room_queue() && !claims.enter_room_queue());
            claims.leave_room_queue();
            assert!(claims.stop_awaiting_room() && !claims.stop_awaiting_room());
        }
    }
}
