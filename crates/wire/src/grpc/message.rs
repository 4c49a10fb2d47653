//! Messages in a stream of DATA payloads: one byte that returns whether the message is compressed,
//! four bytes of its length, the message (gRPC over HTTP/2, "Length-Prefixed-Message").

use std::ops::Range;

use super::status::{Code, Status};

/// The flag and the length before each message.
pub const PREFIX_BYTES: usize = 5;

/// Why what came is not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.status().message())]
pub enum MessageError {
    /// The prefix announces more than is allowed. Nothing was allocated for it.
    TooLarge {
        /// What the prefix says.
        bytes: u32,
        /// What is allowed.
        max_bytes: usize,
    },
    /// The flag is neither 0 nor 1.
    BadFlag(u8),
    /// The stream ended inside a message.
    Truncated,
}

impl MessageError {
    /// The status that the call ends with.
    pub fn status(self) -> Status {
        match self {
            MessageError::TooLarge { bytes, max_bytes } => Status::new(
                Code::ResourceExhausted,
                format!("the message has {bytes} bytes and the limit is {max_bytes}"),
            ),
            MessageError::BadFlag(flag) => Status::new(
                Code::Internal,
                format!("the message begins with the flag {flag}: 0 and 1 are known"),
            ),
            MessageError::Truncated => {
                Status::new(Code::Internal, "the stream ended inside a message")
            }
        }
    }
}

/// What [`Deframer::push`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeframeStep {
    /// The data are used up.
    NeedMore,
    /// One message, as it was sent.
    Message {
        /// Where in the data the whole message lies. If none, it came in pieces and lies in
        /// [`Deframer::gathered`].
        whole: Option<Range<usize>>,
        /// Whether it is compressed with the encoding of the call.
        compressed: bool,
    },
    /// Some of a message that is not compressed, as it came ([`Deframer::push_part`]).
    Part {
        /// Where in the data it lies.
        range: Range<usize>,
        /// The bytes of the message that are still to come.
        left: usize,
    },
}

/// Finds the messages of one direction of one stream.
///
/// A message that lies in one payload is reported in place. Only one that is cut by the end of a
/// payload is copied, to a buffer that grows as its bytes arrive, and because of what a prefix
/// claims only where the caller asks for it ([`Deframer::reserve_message`]).
#[derive(Debug, Default)]
pub struct Deframer {
    gathered: Vec<u8>,
    prefix: [u8; PREFIX_BYTES],
    /// How much of the prefix is there. It is whole while the message behind it is gathered.
    prefix_len: u8,
    /// The rest of the message is gathered, though others come in parts.
    is_whole: bool,
    /// How much of the message was reported in parts.
    parted: u32,
}

impl Deframer {
    /// A deframer before the first message, without any memory.
    pub fn new() -> Deframer {
        Deframer::default()
    }

    /// Looks at `data` from `*at` on, up to the end of one message or of the data, and moves `*at`
    /// behind it.
    ///
    /// # Errors
    /// The call ends with [`MessageError::status`]; nothing that follows in the stream has a
    /// meaning.
    #[inline]
    pub fn push(
        &mut self,
        data: &[u8],
        at: &mut usize,
        max_message_bytes: usize,
    ) -> Result<DeframeStep, MessageError> {
        if self.prefix_len == 0
            && let Some((prefix, rest)) = data[*at..].split_first_chunk::<PREFIX_BYTES>()
        {
            let (compressed, len) = parse_prefix(*prefix, max_message_bytes)?;
            if len <= rest.len() {
                let start = *at + PREFIX_BYTES;
                *at = start + len;
                return Ok(DeframeStep::Message {
                    whole: Some(start..start + len),
                    compressed,
                });
            }
        }
        self.gather(data, at, max_message_bytes)
    }

    /// The same, but nothing is gathered of a message that is cut: what there is of it is reported
    /// at once, as a [`DeframeStep::Part`]. A message that is compressed is gathered all the same,
    /// and so is one for which [`Deframer::gather_whole`] was called.
    ///
    /// # Errors
    /// As for [`Deframer::push`].
    pub fn push_part(
        &mut self,
        data: &[u8],
        at: &mut usize,
        max_message_bytes: usize,
    ) -> Result<DeframeStep, MessageError> {
        if !self.take_prefix(data, at) {
            return Ok(DeframeStep::NeedMore);
        }
        let (compressed, len) = parse_prefix(self.prefix, max_message_bytes)?;
        let rest = data.len() - *at;
        let missing = len - self.parted as usize;
        if compressed || self.is_whole || (self.parted == 0 && missing <= rest) {
            return self.gather(data, at, max_message_bytes);
        }
        let count = missing.min(rest);
        if count == 0 {
            return Ok(DeframeStep::NeedMore);
        }
        let range = *at..*at + count;
        *at = range.end;
        self.parted += count as u32;
        let left = missing - count;
        if left == 0 {
            (self.prefix_len, self.parted) = (0, 0);
        }
        Ok(DeframeStep::Part { range, left })
    }

    /// Takes the first part of a message back, which is then gathered: it is reported once more, as
    /// a whole.
    ///
    /// Only for the last [`DeframeStep::Part`], if that was the first of its message and not the
    /// last.
    pub fn gather_whole(&mut self, part: &[u8]) {
        debug_assert!(self.parted as usize == part.len() && self.is_mid_message());
        self.parted = 0;
        self.is_whole = true;
        self.append(part, part.len());
    }

    /// Completes the prefix, as far as it has come; returns whether it is whole.
    fn take_prefix(&mut self, data: &[u8], at: &mut usize) -> bool {
        let have = usize::from(self.prefix_len);
        if have == PREFIX_BYTES {
            return true;
        }
        if have == 0 {
            self.gathered.clear();
        }
        let count = (PREFIX_BYTES - have).min(data.len() - *at);
        self.prefix[have..have + count].copy_from_slice(&data[*at..*at + count]);
        self.prefix_len += count as u8;
        *at += count;
        have + count == PREFIX_BYTES
    }

    /// [`Deframer::push`] for a message that is cut, in its prefix or behind it.
    fn gather(
        &mut self,
        data: &[u8],
        at: &mut usize,
        max_message_bytes: usize,
    ) -> Result<DeframeStep, MessageError> {
        if !self.take_prefix(data, at) {
            return Ok(DeframeStep::NeedMore);
        }
        let (compressed, len) = parse_prefix(self.prefix, max_message_bytes)?;
        let rest = &data[*at..];
        let missing = len - self.gathered.len();
        if missing > rest.len() {
            self.append(rest, len);
            *at = data.len();
            return Ok(DeframeStep::NeedMore);
        }
        let start = *at;
        *at += missing;
        self.prefix_len = 0;
        self.is_whole = false;
        if missing == len {
            return Ok(DeframeStep::Message {
                whole: Some(start..start + len),
                compressed,
            });
        }
        self.append(&rest[..missing], len);
        Ok(DeframeStep::Message {
            whole: None,
            compressed,
        })
    }

    /// Appends to the buffer, which grows to twice what is there at most, and never beyond the
    /// message.
    fn append(&mut self, bytes: &[u8], message_len: usize) {
        let needed = self.gathered.len() + bytes.len();
        if needed > self.gathered.capacity() {
            let wanted = (needed * 2).min(message_len).max(needed);
            self.gathered.reserve_exact(wanted - self.gathered.len());
        }
        self.gathered.extend_from_slice(bytes);
    }

    /// Takes memory for all of the message that is being gathered, which the caller has accounted
    /// for: a large one is then not moved again and again as it grows.
    pub fn reserve_message(&mut self) {
        let missing = self.missing().unwrap_or(0);
        self.gathered.reserve_exact(missing);
    }

    /// The last message that came in pieces. Valid until the next [`Deframer::push`].
    pub fn gathered(&self) -> &[u8] {
        &self.gathered
    }

    /// Whether a message has begun and not ended. If so at the end of the stream, it is
    /// [`MessageError::Truncated`].
    pub fn is_mid_message(&self) -> bool {
        self.prefix_len > 0
    }

    /// Returns how many bytes the message that is being gathered still lacks; `None` between
    /// messages, while its prefix is not whole, and for one that comes in parts.
    #[inline]
    pub fn missing(&self) -> Option<usize> {
        if usize::from(self.prefix_len) < PREFIX_BYTES || self.parted > 0 {
            return None;
        }
        let [_, length @ ..] = self.prefix;
        Some(u32::from_be_bytes(length) as usize - self.gathered.len())
    }

    /// How many bytes of the message that is being gathered are there; 0 between messages.
    pub fn gathered_len(&self) -> usize {
        match self.is_mid_message() {
            true => self.gathered.len(),
            false => 0,
        }
    }

    /// The bytes of memory that the buffer holds.
    pub fn buffer_bytes(&self) -> usize {
        self.gathered.capacity()
    }

    /// Takes the buffer away, for a pool. Whoever does it in the middle of a message must give it
    /// back unchanged.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.gathered)
    }

    /// Gives a buffer, whose memory is used for the next message that comes in pieces.
    pub fn give_buffer(&mut self, buffer: Vec<u8>) {
        self.gathered = buffer;
    }
}

/// The flag and the length.
#[inline]
fn parse_prefix(
    prefix: [u8; PREFIX_BYTES],
    max_message_bytes: usize,
) -> Result<(bool, usize), MessageError> {
    let [flag, length @ ..] = prefix;
    let bytes = u32::from_be_bytes(length);
    if flag > 1 {
        return Err(MessageError::BadFlag(flag));
    }
    if bytes as usize > max_message_bytes {
        return Err(MessageError::TooLarge {
            bytes,
            max_bytes: max_message_bytes,
        });
    }
    Ok((flag == 1, bytes as usize))
}

/// The prefix of a message of `len` bytes.
#[inline]
pub fn prefix(len: u32, compressed: bool) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = len.to_be_bytes();
    [u8::from(compressed), a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    const MAX: usize = 1000;

    /// All messages of a stream that comes in the given pieces.
    fn messages<'a>(
        deframer: &mut Deframer,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Vec<(bool, Vec<u8>)>, MessageError> {
        let mut found = Vec::new();
        for data in pieces {
            let mut at = 0;
            while let DeframeStep::Message { whole, compressed } =
                deframer.push(data, &mut at, MAX)?
            {
                let bytes = whole.map_or_else(
                    || deframer.gathered().to_vec(),
                    |range| data[range].to_vec(),
                );
                found.push((compressed, bytes));
            }
            assert_eq!(at, data.len(), "everything is used up");
        }
        Ok(found)
    }

    fn stream(messages: &[(bool, Vec<u8>)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (compressed, bytes) in messages {
            out.extend_from_slice(&prefix(bytes.len() as u32, *compressed));
            out.extend_from_slice(bytes);
        }
        out
    }

    #[test]
    fn split_at_every_two_places() {
        let sent = [
            (false, b"hello".to_vec()),
            (true, vec![]),
            (false, vec![7; 20]),
            (false, vec![]),
        ];
        let bytes = stream(&sent);
        for one in 0..=bytes.len() {
            for other in one..=bytes.len() {
                let mut deframer = Deframer::new();
                let pieces = [&bytes[..one], &bytes[one..other], &bytes[other..]];
                assert_eq!(
                    messages(&mut deframer, pieces).as_deref(),
                    Ok(&sent[..]),
                    "split at {one} and {other}"
                );
                assert!(!deframer.is_mid_message());
            }
        }
    }

    #[test]
    fn random_messages_in_random_pieces() {
        let mut random = Random::new(0x5eed_0010);
        let mut deframer = Deframer::new();
        for _ in 0..500 {
            let sent: Vec<_> = (0..random.below(6))
                .map(|_| {
                    (
                        random.below(2) == 0,
                        random.bytes(MAX, |random| random.number() as u8),
                    )
                })
                .collect();
            let bytes = stream(&sent);
            let longest = 1 + random.below(1500) as usize;
            let mut pieces = Vec::new();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, after) =
                    rest.split_at((1 + random.below(longest as u64) as usize).min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            assert_eq!(messages(&mut deframer, pieces), Ok(sent), "{random:?}");
        }
        assert!(deframer.buffer_bytes() <= MAX);
    }

    #[test]
    fn parts_are_what_whole_messages_are() {
        let mut random = Random::new(0x5eed_0011);
        let mut deframer = Deframer::new();
        for _ in 0..500 {
            let sent: Vec<_> = (0..random.below(6))
                .map(|_| {
                    let is_packed = random.below(4) == 0;
                    (is_packed, random.bytes(MAX, |random| random.number() as u8))
                })
                .collect();
            let bytes = stream(&sent);
            let (mut found, mut open, mut at) = (Vec::new(), Vec::new(), 0);
            while at < bytes.len() {
                let end = bytes.len().min(at + 1 + random.below(300) as usize);
                // To the end of the data, as where the message before lay in them.
                while at < end {
                    match deframer
                        .push_part(&bytes[..end], &mut at, MAX)
                        .expect("valid")
                    {
                        DeframeStep::Message { whole, compressed } => {
                            let gathered = deframer.gathered();
                            let whole = whole.map_or(gathered, |range| &bytes[range]);
                            found.push((compressed, whole.to_vec()));
                        }
                        DeframeStep::Part { range, left }
                            if open.is_empty() && left > 0 && random.below(3) == 0 =>
                        {
                            deframer.gather_whole(&bytes[range]);
                            assert!(deframer.missing() == Some(left));
                        }
                        DeframeStep::Part { range, left } => {
                            open.extend_from_slice(&bytes[range]);
                            assert_eq!(deframer.is_mid_message(), left > 0);
                            if left == 0 {
                                found.push((false, std::mem::take(&mut open)));
                            }
                        }
                        DeframeStep::NeedMore => assert_eq!(at, end),
                    }
                }
            }
            assert_eq!(found, sent, "{random:?}");
            assert!(!deframer.is_mid_message() && deframer.gathered_len() == 0);
        }
    }

    #[test]
    fn a_message_in_one_piece_is_never_copied() {
        let mut deframer = Deframer::new();
        let bytes = stream(&[(false, vec![1; 900]), (false, vec![2; 900])]);
        messages(&mut deframer, [&bytes[..]]).expect("valid");
        // Not even if only its prefix is cut.
        messages(&mut deframer, [&bytes[..3], &bytes[3..]]).expect("valid");
        messages(&mut deframer, [&bytes[..5], &bytes[5..]]).expect("valid");
        assert_eq!(deframer.buffer_bytes(), 0);
    }

    #[test]
    fn memory_that_is_reserved_is_for_the_whole_message_and_no_more() {
        let mut deframer = Deframer::new();
        for size in [900_usize, 1, 300, 900] {
            let bytes = stream(&[(false, vec![size as u8; size])]);
            let (begun, rest) = bytes.split_at(PREFIX_BYTES + size / 3);
            drop(deframer.take_buffer());
            messages(&mut deframer, [begun]).expect("valid");
            deframer.reserve_message();
            let reserved = deframer.buffer_bytes();
            assert_eq!(reserved, size);
            let pieces = rest.chunks(10);
            let found = messages(&mut deframer, pieces).expect("valid");
            assert_eq!(found, [(false, vec![size as u8; size])]);
            // Between messages there is nothing to reserve for.
            deframer.reserve_message();
            assert!(deframer.buffer_bytes() <= reserved, "it was not moved");
        }
    }

    #[test]
    fn too_large_is_known_from_the_prefix() {
        let too_large = MessageError::TooLarge {
            bytes: 1001,
            max_bytes: MAX,
        };
        let bytes = prefix(1001, false);
        assert_eq!(messages(&mut Deframer::new(), [&bytes[..]]), Err(too_large));
        assert_eq!(
            messages(&mut Deframer::new(), [&bytes[..4], &bytes[4..]]),
            Err(too_large)
        );
        assert_eq!(
            messages(&mut Deframer::new(), [&[1, 0xff, 0xff, 0xff, 0xff][..]])
                .unwrap_err()
                .status()
                .code(),
            Code::ResourceExhausted
        );
        assert_eq!(
            messages(&mut Deframer::new(), [&[2, 0, 0, 0, 0][..]]),
            Err(MessageError::BadFlag(2))
        );
    }

    #[test]
    fn a_lying_prefix_costs_what_arrives() {
        let mut deframer = Deframer::new();
        let mut at = 0;
        let announced = prefix(1 << 30, false);
        assert_eq!(
            deframer.push(&announced, &mut at, 1 << 30),
            Ok(DeframeStep::NeedMore)
        );
        assert_eq!(deframer.buffer_bytes(), 0);
        let mut arrived = 0;
        for _ in 0..100 {
            arrived += 10;
            assert_eq!(
                deframer.push(&[0; 10], &mut 0, 1 << 30),
                Ok(DeframeStep::NeedMore)
            );
            assert!(
                deframer.buffer_bytes() <= 2 * arrived,
                "{} for {arrived}",
                deframer.buffer_bytes()
            );
        }
        assert!(deframer.is_mid_message());
    }

    #[test]
    fn buffers_can_be_pooled() {
        let mut deframer = Deframer::new();
        deframer.give_buffer(Vec::with_capacity(500));
        let bytes = stream(&[(false, vec![3; 400])]);
        assert_eq!(
            messages(&mut deframer, [&bytes[..100], &bytes[100..]]),
            Ok(vec![(false, vec![3; 400])])
        );
        assert_eq!(deframer.take_buffer().capacity(), 500);
        assert_eq!(deframer.buffer_bytes(), 0);
    }
}
