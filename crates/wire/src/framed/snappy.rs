//! The raw format of snappy, decompressed in steps.
//!
//! A varint with the length of what it becomes, then elements: literal bytes, and copies of what
//! was made before (<https://github.com/google/snappy/blob/main/format_description.txt>). A library
//! would make all of it at once, which is too long a step for a large message.

use crate::grpc::InflateError;

/// The most that an element of three bytes makes of each: a copy of 64.
const RATIO_MAX: usize = 22;

/// Bytes that the length may have: five of a varint.
const LENGTH_BYTES_MAX: usize = 5;

/// A message that is decompressed in steps.
#[derive(Debug)]
pub(crate) struct Unsnapping {
    /// How much of the message was read.
    at: usize,
    /// A literal of which some is still to be copied.
    literal_left: usize,
    announced_bytes: usize,
    out: Vec<u8>,
}

/// Returns the length that a message announces, in bytes, and how many bytes say so.
pub(crate) fn announced(message: &[u8]) -> Result<(usize, usize), InflateError> {
    let mut length = 0_u64;
    for (at, byte) in message.iter().take(LENGTH_BYTES_MAX).enumerate() {
        length |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let is_honest = length <= (message.len() * RATIO_MAX) as u64;
            return match usize::try_from(length) {
                Ok(length) if is_honest => Ok((length, at + 1)),
                _ => Err(InflateError::Damaged),
            };
        }
    }
    Err(InflateError::Damaged)
}

impl Unsnapping {
    /// Begins with a message, which becomes so many bytes, and says so in the first `at`.
    pub(crate) fn new((announced_bytes, at): (usize, usize)) -> Unsnapping {
        Unsnapping {
            at,
            literal_left: 0,
            announced_bytes,
            out: Vec::new(),
        }
    }

    /// Returns what it becomes, in bytes.
    pub(crate) fn announced_bytes(&self) -> usize {
        self.announced_bytes
    }

    /// Takes what it has become.
    pub(crate) fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Goes on for about `most_bytes` of output, and returns whether it has ended. `message` is the
    /// same each time.
    ///
    /// # Errors
    /// If it is damaged, or does not become what it announced.
    pub(crate) fn step(&mut self, message: &[u8], most_bytes: usize) -> Result<bool, InflateError> {
        if self.out.capacity() == 0 {
            self.out.reserve_exact(self.announced_bytes);
        }
        let until = self.out.len().saturating_add(most_bytes);
        while self.out.len() < until {
            if self.literal_left > 0 {
                let part = self.literal_left.min(until - self.out.len());
                let bytes = take(message, &mut self.at, part)?;
                self.out.extend_from_slice(bytes);
                self.literal_left -= part;
                continue;
            }
            if self.at == message.len() {
                return match self.out.len() == self.announced_bytes {
                    true => Ok(true),
                    false => Err(InflateError::Damaged),
                };
            }
            self.element(message)?;
        }
        let has_ended = self.literal_left == 0 && self.at == message.len();
        match has_ended && self.out.len() != self.announced_bytes {
            true => Err(InflateError::Damaged),
            false => Ok(has_ended),
        }
    }

    fn element(&mut self, message: &[u8]) -> Result<(), InflateError> {
        let tag = take(message, &mut self.at, 1)?[0];
        let high = usize::from(tag >> 2);
        match tag & 3 {
            0 => {
                let extra = high.saturating_sub(59);
                let length = match extra {
                    0 => high,
                    _ => number(take(message, &mut self.at, extra)?),
                };
                let room = self.announced_bytes - self.out.len();
                if length >= room {
                    return Err(InflateError::Damaged);
                }
                self.literal_left = length + 1;
                Ok(())
            }
            1 => {
                let low = number(take(message, &mut self.at, 1)?);
                self.copy((high >> 3) << 8 | low, 4 + (high & 7))
            }
            2 => {
                let offset = number(take(message, &mut self.at, 2)?);
                self.copy(offset, high + 1)
            }
            _ => {
                let offset = number(take(message, &mut self.at, 4)?);
                self.copy(offset, high + 1)
            }
        }
    }

    fn copy(&mut self, offset: usize, length: usize) -> Result<(), InflateError> {
        let made = self.out.len();
        if offset == 0 || offset > made || length > self.announced_bytes - made {
            return Err(InflateError::Damaged);
        }
        let start = made - offset;
        if offset >= length {
            self.out.extend_from_within(start..start + length);
        } else {
            // It goes on in what it makes itself.
            for at in start..start + length {
                self.out.push(self.out[at]);
            }
        }
        Ok(())
    }
}

fn take<'a>(message: &'a [u8], at: &mut usize, count: usize) -> Result<&'a [u8], InflateError> {
    let end = at.checked_add(count).ok_or(InflateError::Damaged)?;
    let bytes = message.get(*at..end).ok_or(InflateError::Damaged)?;
    *at = end;
    Ok(bytes)
}

fn number(bytes: &[u8]) -> usize {
    let digits = bytes.iter().rev();
    digits.fold(0, |number, byte| number << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use testkit::Random;

    use super::*;

    fn decompress(message: &[u8], step_bytes: usize) -> Result<Vec<u8>, InflateError> {
        let mut unsnapping = Unsnapping::new(announced(message)?);
        while !unsnapping.step(message, step_bytes)? {}
        Ok(unsnapping.take_bytes())
    }

    /// Text that repeats itself, as far as chance has it.
    fn text(random: &mut Random, bytes: usize) -> Vec<u8> {
        let mut text: Vec<u8> = Vec::new();
        while text.len() < bytes {
            if text.len() > 8 && random.below(3) > 0 {
                let start = random.below(text.len());
                let length = (1 + random.below(100_usize)).min(text.len() - start);
                text.extend_from_within(start..start + length);
            } else {
                text.push(random.below(256_u16) as u8);
            }
        }
        text.truncate(bytes);
        text
    }

    #[test]
    fn what_the_library_compresses_comes_back_whatever_the_steps() {
        let mut random = Random::new(1);
        for bytes in [0, 1, 5, 60, 61, 62, 300, 5_000, 70_000, 300_000] {
            let text = text(&mut random, bytes);
            let message = snap::raw::Encoder::new().compress_vec(&text).expect("fits");
            for step_bytes in [1, 7, 1_000, usize::MAX] {
                assert_eq!(decompress(&message, step_bytes).as_ref(), Ok(&text));
            }
        }
    }

    #[test]
    fn damaged_messages_become_what_the_library_makes_of_them_or_an_error() {
        let mut random = Random::new(2);
        for _ in 0..20_000 {
            let bytes = random.below(400_usize);
            let text = text(&mut random, bytes);
            let mut message = snap::raw::Encoder::new().compress_vec(&text).expect("fits");
            for _ in 0..1 + random.below(3) {
                let at = random.below(message.len());
                message[at] = random.below(256_u16) as u8;
            }
            let theirs = snap::raw::Decoder::new().decompress_vec(&message).ok();
            assert_eq!(decompress(&message, 13).ok(), theirs, "{message:02x?}");
        }
    }

    #[test]
    fn a_message_cannot_announce_more_than_its_bytes_can_become() {
        assert_eq!(
            announced(b"\xff\xff\xff\xff\x0f\x00"),
            Err(InflateError::Damaged)
        );
        assert_eq!(
            announced(b"\x80\x80\x80\x80\x80\x00"),
            Err(InflateError::Damaged)
        );
        assert_eq!(announced(b""), Err(InflateError::Damaged));
        assert_eq!(announced(b"\x16"), Ok((22, 1)));
    }
}
