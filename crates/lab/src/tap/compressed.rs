//! Messages that are compressed on their way: how many bytes they are, and some of them, from which
//! what compressing costs can be learned.

use super::limits::{COMPRESSED_SAMPLE_BYTES, COMPRESSED_SAMPLES};

/// Before each message: whether it is compressed, and its length (gRPC over HTTP/2).
const PREFIX_BYTES: usize = 5;

/// The compressed messages of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompressedMessages {
    /// Messages.
    pub messages: u64,
    /// Their bytes as they travel.
    pub bytes: u64,
    /// The first ones, as they travel: [`COMPRESSED_SAMPLES`] of at most
    /// [`COMPRESSED_SAMPLE_BYTES`].
    pub samples: Vec<Vec<u8>>,
    /// Places for samples that are taken, also by messages that are not whole.
    taken: usize,
}

impl CompressedMessages {
    /// A message of this length begins; returns where it is to be kept, if it is.
    fn begin(&mut self, length: usize) -> Option<Vec<u8>> {
        self.messages += 1;
        self.bytes += length as u64;
        let is_kept = self.taken < COMPRESSED_SAMPLES && length <= COMPRESSED_SAMPLE_BYTES;
        is_kept.then(|| {
            self.taken += 1;
            Vec::with_capacity(length)
        })
    }
}

/// Finds the messages in one direction of a stream that names an encoding.
#[derive(Debug, Default)]
pub(super) struct MessageReader {
    prefix: Vec<u8>,
    /// Bytes of the current message that have yet to come.
    left: usize,
    sample: Option<Vec<u8>>,
}

impl MessageReader {
    /// Takes the next bytes of the body.
    pub(super) fn push(&mut self, mut bytes: &[u8], found: &mut CompressedMessages) {
        while !bytes.is_empty() {
            let wanted = match self.left {
                0 => PREFIX_BYTES - self.prefix.len(),
                left => left,
            };
            let (came, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            match self.left {
                0 => self.take_prefix(came, found),
                _ => self.take_message(came, found),
            }
        }
    }

    fn take_prefix(&mut self, came: &[u8], found: &mut CompressedMessages) {
        self.prefix.extend_from_slice(came);
        let &[is_compressed, a, b, c, d] = self.prefix.as_slice() else {
            return;
        };
        self.prefix.clear();
        self.left = u32::from_be_bytes([a, b, c, d]) as usize;
        if is_compressed == 1 && self.left > 0 {
            self.sample = found.begin(self.left);
        }
    }

    fn take_message(&mut self, came: &[u8], found: &mut CompressedMessages) {
        self.left -= came.len();
        if let Some(sample) = &mut self.sample {
            sample.extend_from_slice(came);
        }
        if self.left == 0 {
            found.samples.extend(self.sample.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(is_compressed: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32).to_be_bytes();
        [&[is_compressed], length.as_slice(), body].concat()
    }

    #[test]
    fn messages_are_found_however_the_bytes_come() {
        let bytes = [
            message(1, b"abc"),
            message(0, b"plain"),
            message(1, b""),
            message(1, b"de"),
        ]
        .concat();
        for piece in 1..=bytes.len() {
            let mut found = CompressedMessages::default();
            let mut reader = MessageReader::default();
            for part in bytes.chunks(piece) {
                reader.push(part, &mut found);
            }
            assert_eq!((found.messages, found.bytes), (2, 5), "{piece}");
            assert_eq!(found.samples, [b"abc".to_vec(), b"de".to_vec()], "{piece}");
        }
    }

    #[test]
    fn samples_are_bounded_by_number_and_by_length_also_of_messages_that_never_end() {
        let mut found = CompressedMessages::default();
        let long = vec![7; COMPRESSED_SAMPLE_BYTES + 1];
        MessageReader::default().push(&message(1, &long), &mut found);
        assert!(found.samples.is_empty());
        MessageReader::default().push(&message(1, &long[1..]), &mut found);
        assert_eq!(found.samples.len(), 1);
        // Each begins one, and sends no more of it.
        let mut open = Vec::new();
        for _ in 0..COMPRESSED_SAMPLES + 5 {
            let mut reader = MessageReader::default();
            reader.push(&message(1, b"abcdef")[..7], &mut found);
            open.push(reader);
        }
        let kept = open.iter().filter(|reader| reader.sample.is_some()).count();
        assert_eq!(kept, COMPRESSED_SAMPLES - 1);
        for reader in &mut open {
            reader.push(b"cdef", &mut found);
        }
        assert_eq!(found.samples.len(), COMPRESSED_SAMPLES);
        assert_eq!(found.messages, 2 + COMPRESSED_SAMPLES as u64 + 5);
        // A prefix that lies about its length reserves nothing.
        let mut found = CompressedMessages::default();
        MessageReader::default().push(&[1, 0xff, 0xff, 0xff, 0xff, 1], &mut found);
        assert_eq!((found.taken, found.bytes), (0, u64::from(u32::MAX)));
    }
}
