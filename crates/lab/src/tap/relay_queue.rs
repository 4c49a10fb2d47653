//! What waits in the tap in one direction of a connection.

use std::collections::VecDeque;

/// Bytes that are to arrive together.
#[derive(Debug)]
struct QueuedPiece {
    arrival_ns: u64,
    bytes: Vec<u8>,
}

/// Bytes in their order, each with the moment before which it is not to be forwarded.
#[derive(Debug, Default)]
pub(super) struct RelayQueue {
    pieces: VecDeque<QueuedPiece>,
    /// Bytes of the first piece that are forwarded.
    forwarded: usize,
    bytes: usize,
    /// When the end of the sender's side arrives.
    end_ns: Option<u64>,
}

impl RelayQueue {
    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds bytes at the end.
    pub(super) fn push(&mut self, bytes: &[u8], arrival_ns: u64) {
        if !bytes.is_empty() {
            self.bytes += bytes.len();
            let bytes = bytes.to_vec();
            self.pieces.push_back(QueuedPiece { arrival_ns, bytes });
        }
    }

    /// Nothing follows.
    pub(super) fn end(&mut self, arrival_ns: u64) {
        self.end_ns.get_or_insert(arrival_ns);
    }

    /// Whether the sender has ended its side.
    pub(super) fn has_end(&self) -> bool {
        self.end_ns.is_some()
    }

    /// Whether nothing is left to be forwarded but the end itself.
    pub(super) fn is_end_due(&self, now_ns: u64) -> bool {
        self.is_empty() && self.end_ns.is_some_and(|end_ns| end_ns <= now_ns)
    }

    /// The next bytes that are to be forwarded by now; empty if there are none.
    pub(super) fn due(&self, now_ns: u64) -> &[u8] {
        match self.pieces.front() {
            Some(piece) if piece.arrival_ns <= now_ns => {
                piece.bytes.get(self.forwarded..).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// So many of the next bytes are forwarded.
    pub(super) fn consume(&mut self, count: usize) {
        self.forwarded += count;
        self.bytes = self.bytes.saturating_sub(count);
        if let Some(piece) = self.pieces.front()
            && self.forwarded >= piece.bytes.len()
        {
            self.pieces.pop_front();
            self.forwarded = 0;
        }
    }

    /// When the next bytes, or the end, arrive; `None` if nothing waits.
    pub(super) fn next_arrival_ns(&self) -> Option<u64> {
        match self.pieces.front() {
            Some(piece) => Some(piece.arrival_ns),
            None => self.end_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_their_order_and_not_before_their_time() {
        let mut queue = RelayQueue::default();
        queue.push(b"", 1);
        assert!(queue.is_empty() && queue.next_arrival_ns().is_none());
        queue.push(b"first", 10);
        queue.push(b"second", 20);
        queue.end(30);
        queue.end(99);
        assert_eq!((queue.len(), queue.next_arrival_ns()), (11, Some(10)));
        assert_eq!(queue.due(9), b"");
        assert_eq!(queue.due(10), b"first");
        queue.consume(2);
        assert_eq!(queue.due(10), b"rst");
        queue.consume(3);
        assert_eq!(
            (queue.due(19), queue.next_arrival_ns()),
            (&[][..], Some(20))
        );
        assert!(!queue.is_end_due(40));
        queue.consume(6);
        assert_eq!((queue.len(), queue.next_arrival_ns()), (0, Some(30)));
        assert!(queue.has_end() && !queue.is_end_due(29) && queue.is_end_due(30));
    }
}
