//! Messages between the pool and the caller of a stream.

use std::collections::VecDeque;

use crate::limits;

/// What a message costs beside its bytes.
const ENTRY_BYTES: usize = size_of::<MessageEntry>();

#[derive(Debug)]
struct MessageEntry {
    bytes: usize,
    compressed: bool,
}

/// Messages in order, in one buffer, so that many small ones take little more than their bytes.
#[derive(Debug, Default)]
pub(super) struct MessageQueue {
    buffer: Vec<u8>,
    /// Where the first message begins.
    start: usize,
    entries: VecDeque<MessageEntry>,
}

impl MessageQueue {
    pub(super) fn push(&mut self, message: &[u8], compressed: bool) {
        self.buffer.extend_from_slice(message);
        self.entries.push_back(MessageEntry {
            bytes: message.len(),
            compressed,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns what the messages take.
    pub(super) fn bytes(&self) -> usize {
        self.buffer.len() - self.start + self.entries.len() * ENTRY_BYTES
    }

    /// Returns the first message, and whether it is compressed on its way.
    pub(super) fn front(&self) -> Option<(&[u8], bool)> {
        let entry = self.entries.front()?;
        let message = &self.buffer[self.start..self.start + entry.bytes];
        Some((message, entry.compressed))
    }

    /// Removes the first message.
    pub(super) fn pop(&mut self) {
        let Some(entry) = self.entries.pop_front() else {
            return;
        };
        self.start += entry.bytes;
        if self.entries.is_empty() {
            self.clear();
        } else if self.start > self.buffer.len() / 2 {
            // Each byte is moved at most once for each byte that has gone.
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }

    /// Removes the first message, which replaces what is in `into`, and returns whether it came
    /// compressed.
    pub(super) fn pop_into(&mut self, into: &mut Vec<u8>) -> Option<bool> {
        let compressed = self.entries.front()?.compressed;
        into.clear();
        if self.entries.len() == 1 && self.start == 0 {
            // A large message that is alone is not copied once more.
            std::mem::swap(&mut self.buffer, into);
            self.entries.clear();
        } else {
            into.extend_from_slice(self.front()?.0);
            self.pop();
        }
        Some(compressed)
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.buffer.clear();
        self.start = 0;
        self.buffer.shrink_to(limits::SHARED_KEPT_CAPACITY_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in() {
        let mut queue = MessageQueue::default();
        let mut out = b"former".to_vec();
        for round in 0..2_u8 {
            for number in 0..100_u8 {
                queue.push(&vec![number; usize::from(number % 7)], number % 2 == round);
            }
            assert_eq!(queue.len(), 100);
            for number in 0..100_u8 {
                assert_eq!(queue.pop_into(&mut out), Some(number % 2 == round));
                assert_eq!(out, vec![number; usize::from(number % 7)]);
                if number < 50 {
                    queue.push(b"later", false);
                }
            }
            for _ in 0..49 {
                assert_eq!(queue.front(), Some((&b"later"[..], false)));
                queue.pop();
            }
            assert_eq!(queue.pop_into(&mut out), Some(false));
            assert_eq!((&out[..], queue.bytes()), (&b"later"[..], 0));
            assert_eq!(queue.pop_into(&mut out), None);
        }
    }

    /// Else a peer of empty messages could have any number of them held.
    #[test]
    fn an_empty_message_takes_something() {
        let mut queue = MessageQueue::default();
        for count in 1..5 {
            queue.push(b"", false);
            assert_eq!(queue.bytes(), count * ENTRY_BYTES);
        }
        queue.pop();
        assert_eq!(queue.bytes(), 3 * ENTRY_BYTES);
    }

    #[test]
    fn a_queue_that_never_empties_does_not_grow() {
        let mut queue = MessageQueue::default();
        let mut out = Vec::new();
        queue.push(&[0; 100], false);
        for _ in 0..10_000 {
            queue.push(&[1; 100], false);
            queue.pop_into(&mut out);
        }
        assert_eq!(queue.bytes(), 100 + ENTRY_BYTES);
        assert!(
            queue.buffer.capacity() < 1_000,
            "{}",
            queue.buffer.capacity()
        );
    }
}
