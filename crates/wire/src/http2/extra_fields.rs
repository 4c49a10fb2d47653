//! Fields that the layer above adds to a response.

use crate::hpack::{Encoder, Indexing};
use crate::limits;

/// Fields for the head and for the trailers of a response, encoded without the dynamic table.
#[derive(Debug, Default)]
pub(crate) struct ExtraFields {
    head: Vec<u8>,
    trailers: Vec<u8>,
}

impl ExtraFields {
    /// Adds a field to the head, if there is room in its block. Returns the bytes that it takes.
    pub(crate) fn add_to_head(&mut self, name: &[u8], value: &[u8]) -> usize {
        add(&mut self.head, name, value)
    }

    /// Adds a field to the trailers, if there is room in their block. Returns the bytes that it
    /// takes.
    pub(crate) fn add_to_trailers(&mut self, name: &[u8], value: &[u8]) -> usize {
        add(&mut self.trailers, name, value)
    }

    /// Returns the fields of the head.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns the fields of the trailers.
    pub(crate) fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Returns how many bytes all fields have.
    pub(crate) fn bytes(&self) -> usize {
        self.head.len() + self.trailers.len()
    }
}

fn add(block: &mut Vec<u8>, name: &[u8], value: &[u8]) -> usize {
    let before = block.len();
    if before + name.len() + value.len() + limits::MAX_STATUS_MESSAGE_BYTES
        <= limits::MAX_SENT_BLOCK_BYTES
    {
        encode_field(name, value, block);
    }
    block.len() - before
}

/// Appends a field without the dynamic table, so that blocks may be sent in any order.
pub(crate) fn encode_field(name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    Encoder::new().field(name, value, Indexing::Without, block);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_added_while_a_status_still_fits_behind_them() {
        let mut extra = ExtraFields::default();
        let mut bytes = 0;
        let value = [b'v'; 1_000];
        for _ in 0..2 * limits::MAX_SENT_BLOCK_BYTES / value.len() {
            bytes += extra.add_to_head(b"name", &value);
            bytes += extra.add_to_trailers(b"name", &value);
        }
        assert_eq!(extra.bytes(), bytes);
        let most = limits::MAX_SENT_BLOCK_BYTES - limits::MAX_STATUS_MESSAGE_BYTES;
        for block in [extra.head(), extra.trailers()] {
            assert!(block.len() <= most && block.len() + 2 * value.len() > most);
        }
        assert_eq!(extra.add_to_head(b"name", &value), 0, "there is no room");
    }
}
