//! Encodes header blocks. RFC 7541 section 6.

use super::dynamic_table::{DynamicTable, Facts};
use super::names::KnownName;
use super::static_table::{self, StaticMatch};
use super::{DEFAULT_TABLE_BYTES, huffman, integer};
use crate::limits;

/// Whether a field enters the table. RFC 7541 sections 6.2.1 to 6.2.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexing {
    /// Enters the table: a field that most requests of the connection repeat.
    Incremental,
    /// Does not: a field whose value is seldom the same, such as a deadline or a trace id.
    Without,
    /// Must not, here and at every intermediary: a short secret that a table would let an attacker
    /// guess (RFC 7541 section 7.1.3).
    Never,
}

/// The sending end of a connection's header compression.
///
/// The table stays within 4096 bytes whatever the peer offers. A server that sends with
/// [`Indexing::Without`] only never fills it, so that its blocks are constant bytes unless
/// [`Encoder::has_size_update`].
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// The smallest size since the last block, if it was changed: it must be signalled (RFC 7541
    /// section 4.2).
    smallest_unsent: Option<usize>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

impl Encoder {
    /// An encoder with an empty table of the default size.
    pub fn new() -> Encoder {
        const { assert!(DEFAULT_TABLE_BYTES <= limits::MAX_ENCODER_TABLE_BYTES) };
        Encoder {
            table: DynamicTable::new(),
            smallest_unsent: None,
        }
    }

    /// The peer has sent SETTINGS_HEADER_TABLE_SIZE. The next block begins with what RFC 7541
    /// section 4.2 asks for.
    pub fn set_peer_table_bytes(&mut self, bytes: u32) {
        let size = (bytes as usize).min(limits::MAX_ENCODER_TABLE_BYTES);
        if size != self.table.max_size() {
            self.smallest_unsent = Some(self.smallest_unsent.unwrap_or(size).min(size));
            self.table.set_max_size(size);
        }
    }

    /// Whether the next block has to begin with a size update, and so cannot be constant bytes.
    pub fn has_size_update(&self) -> bool {
        self.smallest_unsent.is_some()
    }

    /// Counts every change of the dynamic table. While it stands still, the same fields make the
    /// same bytes.
    pub fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// The bytes of memory that the table holds; none before the first insertion.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// Begins a block: appends the size updates that are due.
    pub fn begin_block(&mut self, out: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest_unsent.take() {
            if smallest < self.table.max_size() {
                integer::encode(smallest, 5, 0x20, out);
            }
            integer::encode(self.table.max_size(), 5, 0x20, out);
        }
    }

    /// Appends one field to the block.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        debug_assert!(!self.has_size_update(), "begin_block first");
        let found = match static_table::find(name, value) {
            StaticMatch::Field(index) if indexing != Indexing::Never => {
                return integer::encode(index, 7, 0x80, out);
            }
            StaticMatch::Field(index) | StaticMatch::Name(index) => Some(index),
            StaticMatch::Nothing => None,
        };
        // Only a connection that indexes fields ever has entries to search.
        let (found_here, name_here) = self.find(name, value);
        if let (Some(index), true) = (found_here, indexing != Indexing::Never) {
            return integer::encode(index, 7, 0x80, out);
        }
        let (prefix_bits, flags) = match indexing {
            Indexing::Incremental => (6, 0x40),
            Indexing::Without => (4, 0x00),
            Indexing::Never => (4, 0x10),
        };
        let name_index = found.or(name_here).unwrap_or(0);
        integer::encode(name_index, prefix_bits, flags, out);
        if name_index == 0 {
            string(name, out);
        }
        string(value, out);
        if indexing == Indexing::Incremental {
            self.table.insert(name, value, FACTS);
        }
    }

    /// The index of an entry of the dynamic table with this name and value, and of the newest with
    /// this name.
    fn find(&self, name: &[u8], value: &[u8]) -> (Option<usize>, Option<usize>) {
        let mut name_index = None;
        for (at, entry) in self.table.entries().enumerate() {
            if entry.name_len as usize != name.len() || self.table.name(entry) != name {
                continue;
            }
            let index = static_table::LEN + 1 + at;
            if entry.value_len as usize == value.len() && self.table.value(entry) == value {
                return (Some(index), Some(index));
            }
            name_index.get_or_insert(index);
        }
        (None, name_index)
    }
}

/// The encoder does not ask its table for anything but names and values.
const FACTS: Facts = Facts {
    known: KnownName::Other,
    name_is_valid: true,
    value_is_valid: true,
};

/// Appends a string in Huffman code where that is shorter. RFC 7541 section 5.2.
fn string(text: &[u8], out: &mut Vec<u8>) {
    let encoded_len = huffman::encoded_len(text);
    if encoded_len < text.len() {
        integer::encode(encoded_len, 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        integer::encode(text.len(), 7, 0x00, out);
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{Decoder, FieldLimits, Fields};

    fn block(encoder: &mut Encoder, fields: &[(&str, &str)], indexing: Indexing) -> Vec<u8> {
        let mut out = Vec::new();
        encoder.begin_block(&mut out);
        for (name, value) in fields {
            encoder.field(name.as_bytes(), value.as_bytes(), indexing, &mut out);
        }
        out
    }

    #[test]
    fn requests_of_appendix_c4() {
        let mut encoder = Encoder::new();
        let mut fields = vec![
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ];
        let first = [
            0x82, 0x86, 0x84, 0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab,
            0x90, 0xf4, 0xff,
        ];
        assert_eq!(block(&mut encoder, &fields, Indexing::Incremental), first);
        fields.push(("cache-control", "no-cache"));
        let second = [
            0x82, 0x86, 0x84, 0xbe, 0x58, 0x86, 0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf,
        ];
        assert_eq!(block(&mut encoder, &fields, Indexing::Incremental), second);
    }

    #[test]
    fn secrets_are_marked_and_never_indexed() {
        let mut encoder = Encoder::new();
        let secret = [("authorization", "Bearer abc")];
        for _ in 0..2 {
            assert_eq!(
                block(&mut encoder, &secret, Indexing::Never)[..2],
                [0x1f, 23 - 15]
            );
        }
        assert_eq!(encoder.memory_bytes(), 0);
        // Even what stands in the static table as a whole.
        assert_eq!(
            block(&mut encoder, &[(":method", "GET")], Indexing::Never),
            [0x12, 0x03, b'G', b'E', b'T']
        );
    }

    #[test]
    fn size_updates_say_the_smallest_and_the_last() {
        let mut encoder = Encoder::new();
        let mut decoder = Decoder::new(4096);
        let mut fields = Fields::new();
        let mut decode = |bytes: &[u8]| decoder.decode(bytes, &FieldLimits::default(), &mut fields);
        let field = [("x-name", "value")];
        assert_eq!(
            decode(&block(&mut encoder, &field, Indexing::Incremental)),
            Ok(())
        );

        encoder.set_peer_table_bytes(1 << 31);
        assert!(
            !encoder.has_size_update(),
            "it stays at 4096, which is in force"
        );
        encoder.set_peer_table_bytes(0);
        encoder.set_peer_table_bytes(100);
        assert!(encoder.has_size_update());
        let bytes = block(&mut encoder, &field, Indexing::Incremental);
        assert_eq!(
            bytes[..4],
            [0x20, 0x3f, 100 - 31, 0x40],
            "the entry is gone"
        );
        assert_eq!(decode(&bytes), Ok(()));
        assert_eq!(block(&mut encoder, &field, Indexing::Incremental), [0xbe]);

        encoder.set_peer_table_bytes(50);
        assert_eq!(
            block(&mut encoder, &[], Indexing::Incremental),
            [0x3f, 50 - 31],
            "one is enough"
        );
    }
}
