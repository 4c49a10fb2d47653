//! What a call has to send: kept until it is answered, so that it can be made again.

use bytes::Bytes;

use crate::limits;

/// A message of a request.
#[derive(Debug, Default)]
pub(super) struct KeptMessage {
    /// What its caller has encoded.
    pub(super) head: Vec<u8>,
    /// What follows, held by others too.
    pub(super) body: Option<Bytes>,
    /// It is sent in gzip, if its call has named that.
    pub(super) compress: bool,
}

impl KeptMessage {
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, Bytes::len)
    }
}

/// The messages of a call, in order. Buffers are used again by the next call of the slot.
#[derive(Debug, Default)]
pub(super) struct KeptMessages {
    messages: Vec<KeptMessage>,
    /// The messages of this call; those behind are empty buffers.
    count: usize,
    /// Copied bytes; shared ones do not count, as others hold them too.
    bytes: usize,
}

impl KeptMessages {
    /// Adds a message that `encode` appends, and returns it.
    pub(super) fn push(
        &mut self,
        compress: bool,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<Bytes>,
    ) -> &KeptMessage {
        if self.count == self.messages.len() {
            self.messages.push(KeptMessage::default());
        }
        let message = &mut self.messages[self.count];
        message.body = encode(&mut message.head);
        message.compress = compress;
        self.count += 1;
        self.bytes += message.head.len();
        message
    }

    /// Removes the last message.
    pub(super) fn pop(&mut self) {
        if let Some(index) = self.count.checked_sub(1) {
            let message = &mut self.messages[index];
            self.bytes -= message.head.len();
            message.head.clear();
            message.body = None;
            self.count = index;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &KeptMessage> {
        self.messages[..self.count].iter()
    }

    /// Returns whether more may be kept.
    pub(super) fn has_room(&self) -> bool {
        self.count < limits::POOL_KEPT_MESSAGES && self.bytes < limits::POOL_KEPT_BYTES
    }

    /// Removes all, and keeps the first buffer as it is.
    pub(super) fn restart(&mut self) {
        while self.count > 0 {
            self.pop();
        }
        self.messages.truncate(1);
    }

    /// Removes all, and keeps a small buffer.
    pub(super) fn clear(&mut self) {
        self.messages.truncate(1);
        for message in &mut self.messages {
            message.head.clear();
            message.head.shrink_to(limits::POOL_KEPT_CAPACITY_BYTES);
            message.body = None;
        }
        (self.count, self.bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_kept_in_order_and_buffers_are_used_again() {
        let mut kept = KeptMessages::default();
        for _ in 0..2 {
            kept.push(false, |out| {
                out.extend_from_slice(b"one");
                None
            });
            kept.push(false, |out| {
                out.push(b'2');
                Some(Bytes::from_static(b"shared"))
            });
            let lengths: Vec<_> = kept.iter().map(KeptMessage::len).collect();
            assert_eq!((lengths, kept.bytes), (vec![3, 7], 4));
            kept.pop();
            assert_eq!((kept.iter().count(), kept.bytes), (1, 3));
            kept.restart();
            assert_eq!((kept.iter().count(), kept.bytes), (0, 0));
            kept.push(false, |_| None);
            kept.clear();
            kept.pop();
            assert_eq!((kept.iter().count(), kept.bytes), (0, 0));
        }
    }

    /// Each has its own, whatever its buffer was used for before.
    #[test]
    fn each_message_is_compressed_or_not() {
        let mut kept = KeptMessages::default();
        for compress in [true, false, true] {
            kept.push(compress, |_| None);
            kept.push(!compress, |_| None);
            let all: Vec<_> = kept.iter().map(|message| message.compress).collect();
            assert_eq!(all, [compress, !compress]);
            kept.pop();
            kept.pop();
        }
    }

    #[test]
    fn a_large_buffer_is_given_back() {
        let mut kept = KeptMessages::default();
        let large = limits::POOL_KEPT_BYTES;
        kept.push(false, |out| {
            out.resize(large, 0);
            None
        });
        assert!(!kept.has_room());
        kept.clear();
        assert!(kept.has_room());
        assert!(kept.messages[0].head.capacity() < large);
        for _ in 0..limits::POOL_KEPT_MESSAGES {
            assert!(kept.has_room());
            kept.push(false, |_| None);
        }
        assert!(!kept.has_room());
    }
}
