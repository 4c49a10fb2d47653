//! Any header blocks, one after the other on one connection: the fuzz target `hpack`.

use wire::hpack::{Decoder, Encoder, FieldLimits, Fields, Indexing};
use wire::limits;

const LIMITS: FieldLimits = FieldLimits {
    max_fields: limits::MAX_FIELDS,
    max_list_bytes: limits::MAX_FIELD_LIST_BYTES,
};

/// As in hpack_hostile.rs.
const MAX_FIELDS_MEMORY: usize = 48 << 10;
const MAX_TABLE_MEMORY: usize = 24 << 10;

/// Decodes the blocks, and encodes the fields of each for another decoder, which must find the
/// same.
pub fn fuzz_hpack(data: &[u8]) {
    let (mut decoder, mut other_decoder) = (Decoder::new(4096), Decoder::new(4096));
    let mut encoder = Encoder::new();
    let (mut fields, mut other_fields) = (Fields::new(), Fields::new());
    let mut rest = data;
    while let Some((&length, after)) = rest.split_first() {
        let (block, after) = after.split_at(block_bytes(length).min(after.len()));
        rest = after;
        let result = decoder.decode(block, &LIMITS, &mut fields);
        assert!(fields.memory_bytes() <= MAX_FIELDS_MEMORY);
        assert!(fields.len() <= LIMITS.max_fields);
        assert!(fields.list_bytes() <= LIMITS.max_list_bytes);
        assert!(decoder.memory_bytes() <= MAX_TABLE_MEMORY);
        if result.is_err() {
            // The end of the connection.
            return;
        }
        let mut encoded = Vec::new();
        encoder.begin_block(&mut encoded);
        for (name, value) in fields.iter() {
            let indexing = match (name.len() + value.len()) % 3 {
                0 => Indexing::Incremental,
                1 => Indexing::Without,
                _ => Indexing::Never,
            };
            encoder.field(name, value, indexing, &mut encoded);
        }
        let result = other_decoder.decode(&encoded, &LIMITS, &mut other_fields);
        result.expect("the encoder's blocks are valid");
        assert!(fields.fields().eq(other_fields.fields()));
    }
}

/// Returns the bytes of a block from the byte before it: any short length, and some long ones.
fn block_bytes(length: u8) -> usize {
    match length {
        0..=127 => length.into(),
        _ => usize::from(length - 127) * 64,
    }
}

#[test]
fn the_corpus_of_hpack_passes() {
    testkit::replay_corpus("hpack", fuzz_hpack);
}
