//! A chunk of an upload that comes in parts: its data are told apart from what stands around them,
//! so that they can be stored before all of it has come.

use crate::keyvalue::messages::Invalid;
use crate::limits::CHUNK_TAIL_BYTES;
use api::blob::{UploadChunk, UploadRequest};
use protobuf::Reader;
use store::blob::limits::CHUNK_BYTES;

/// `UploadRequest.chunk`, of wire type 2.
const CHUNK_TAG: u8 = 2 << 3 | 2;

/// `UploadChunk.data`, of wire type 2.
const DATA_TAG: u8 = 1 << 3 | 2;

/// A message with a chunk, of which some has come.
#[derive(Debug)]
pub(super) struct PartedChunk {
    /// Bytes of data that are still to come.
    data_bytes: usize,
    /// Bytes of the chunk behind its data.
    rest_bytes: usize,
    /// What has come behind the data: of the chunk, and of the message.
    tail: Vec<u8>,
}

/// What a message begins with.
#[derive(Debug)]
pub(super) enum ChunkStart<'a> {
    /// With the data of a chunk, of which these have come.
    Chunk(PartedChunk, &'a [u8]),
    /// With data that are more than a chunk may have, in bytes.
    TooLarge(usize),
    /// With something else, or it cannot be told yet.
    Other,
}

impl PartedChunk {
    /// Looks at the first part of a message, of which `left` bytes are still to come.
    ///
    /// What every encoder makes is known: a chunk, and in it first the data, with little behind
    /// them.
    pub(super) fn begin(part: &[u8], left: usize) -> ChunkStart<'_> {
        let message_bytes = part.len() + left;
        let Some((chunk_bytes, chunk)) = field_head(part, CHUNK_TAG) else {
            return ChunkStart::Other;
        };
        let Some((data_bytes, data)) = field_head(chunk, DATA_TAG) else {
            return ChunkStart::Other;
        };
        let chunk_begin = part.len() - chunk.len();
        let data_begin = part.len() - data.len();
        let chunk_end = chunk_begin.saturating_add(chunk_bytes);
        let data_end = data_begin.saturating_add(data_bytes);
        // Also lengths that lie, which are then told from the whole.
        if chunk_end > message_bytes
            || data_end > chunk_end
            || message_bytes - data_end > CHUNK_TAIL_BYTES
        {
            return ChunkStart::Other;
        }
        if data_bytes > CHUNK_BYTES {
            return ChunkStart::TooLarge(data_bytes);
        }
        let mut parted = PartedChunk {
            data_bytes,
            rest_bytes: chunk_end - data_end,
            tail: Vec::new(),
        };
        let data = parted.take(data);
        ChunkStart::Chunk(parted, data)
    }

    /// Takes the next part; returns the data in it.
    pub(super) fn take<'a>(&mut self, part: &'a [u8]) -> &'a [u8] {
        let (data, tail) = part.split_at(part.len().min(self.data_bytes));
        self.data_bytes -= data.len();
        self.tail.extend_from_slice(tail);
        data
    }

    /// All of the message has come. Returns the checksum of the data, if it was sent.
    pub(super) fn end(self) -> Result<Option<u32>, Invalid> {
        let (rest, behind) = self.tail.split_at(self.rest_bytes.min(self.tail.len()));
        let chunk = UploadChunk::decode(rest)?;
        let mut reader = Reader::new(rest);
        let mut has_more_data = false;
        while let Some((number, _)) = reader.next_field()? {
            has_more_data |= number == UploadChunk::NUMBERS.data;
        }
        // They would replace what is stored already. No encoder makes such a message.
        if has_more_data {
            return Err(Invalid::rule("chunk.data", "is there more than once"));
        }
        if UploadRequest::decode(behind)?.part.is_some() {
            return Err(Invalid::rule("part", "is there more than once"));
        }
        Ok(chunk.crc32c)
    }
}

/// The length that a field of bytes at the beginning of `bytes` says, and what follows it; `None`:
/// it is another field, or its head is not there as a whole.
fn field_head(bytes: &[u8], tag: u8) -> Option<(usize, &[u8])> {
    let (&first, mut rest) = bytes.split_first()?;
    if first != tag {
        return None;
    }
    let mut length = 0_u64;
    // A length of five bytes has 35 bits.
    for shift in (0..35).step_by(7) {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        length |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((usize::try_from(length).ok()?, rest));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyvalue::messages::FieldRule;
    use api::blob::UploadPart;
    use protobuf::FieldFault;

    fn message(data: &[u8], crc32c: Option<u32>) -> Vec<u8> {
        let mut message = Vec::new();
        UploadPart::Chunk(UploadChunk { data, crc32c }).encode(&mut message);
        message
    }

    /// All data, and the checksum.
    type Chunk = (Vec<u8>, Result<Option<u32>, Invalid>);

    /// Reads a message whose first part ends at `at`; `None`: it is to come as a whole.
    fn read(message: &[u8], at: usize) -> Option<Chunk> {
        let (first, rest) = message.split_at(at);
        let ChunkStart::Chunk(mut parted, data) = PartedChunk::begin(first, rest.len()) else {
            return None;
        };
        let mut found = data.to_vec();
        for byte in rest.chunks(1) {
            found.extend_from_slice(parted.take(byte));
        }
        Some((found, parted.end()))
    }

    #[test]
    fn chunks_are_read_wherever_they_are_cut() {
        for (bytes, crc32c) in [
            (0, Some(1)),
            (1, None),
            (127, Some(2)),
            (128, None),
            (300, Some(0)),
        ] {
            let data: Vec<u8> = (0..bytes).map(|number| number as u8).collect();
            let message = message(&data, crc32c);
            let mut read_whole = 0;
            for at in 1..message.len() {
                match read(&message, at) {
                    Some((found, sum)) => {
                        assert_eq!((found, sum), (data.clone(), Ok(crc32c)), "cut at {at}");
                    }
                    None => read_whole += 1,
                }
            }
            // Only where the head itself is cut; data without a byte are no field.
            let most = if bytes == 0 { message.len() } else { 6 };
            assert!(read_whole <= most, "{read_whole} of a message with {bytes}");
        }
    }

    #[test]
    fn what_other_messages_hold_is_told_from_the_whole() {
        let chunk = message(&[7; 100], Some(1));
        let others: [&[u8]; 6] = [
            // A begin; a chunk whose checksum comes first; a group.
            &[0x0a, 100, 0x0a],
            &[0x12, 100, 0x15, 0, 0, 0, 0, 0x0a, 90],
            &[0x13, 0x0a, 90],
            // A length without an end, or beyond what is around it.
            &[0x12, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 0x0a, 1],
            &[0x12, 20, 0x0a, 19],
            &[0x12, 101, 0x0a, 90],
        ];
        for other in others {
            let found = PartedChunk::begin(other, 95 - other.len());
            assert!(matches!(found, ChunkStart::Other), "{other:?}: {found:?}");
        }
        // Much behind the data.
        let found = PartedChunk::begin(&chunk[..20], chunk.len() - 20 + CHUNK_TAIL_BYTES - 5);
        assert!(matches!(found, ChunkStart::Chunk(..)));
        let found = PartedChunk::begin(&chunk[..20], chunk.len() - 20 + CHUNK_TAIL_BYTES);
        assert!(matches!(found, ChunkStart::Other));
    }

    #[test]
    fn what_would_replace_what_is_stored_is_refused() {
        let chunk = message(&[7; 100], Some(1));
        let mut twice = chunk.clone();
        twice.extend_from_slice(&chunk);
        let refused = |message: &[u8]| read(message, 50).map(|(_, sum)| sum);
        let part = Invalid::rule("part", "is there more than once");
        assert_eq!(refused(&twice), Some(Err(part)));
        // The same within the chunk.
        let mut inside = vec![0x12, 100 + 2 + 3, 0x0a, 100];
        inside.extend_from_slice(&[7; 100]);
        inside.extend_from_slice(&[0x0a, 1, 8]);
        let data = Invalid::rule("chunk.data", "is there more than once");
        assert_eq!(refused(&inside), Some(Err(data)));
        // What is not known is passed over; what cannot be read is not.
        let mut unknown = chunk.clone();
        unknown.extend_from_slice(&[0x78, 1]);
        assert_eq!(refused(&unknown), Some(Ok(Some(1))));
        unknown.push(0x78);
        let Some(Err(error)) = refused(&unknown) else {
            panic!("it is cut");
        };
        assert_eq!(error.rule, FieldRule::Malformed(FieldFault::Truncated));
    }
}
