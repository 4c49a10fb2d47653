//! Decodes header blocks. RFC 7541 sections 3.2 and 6.

use super::dynamic_table::{DynamicTable, Facts};
use super::error::HpackError;
use super::fields::{ArenaSpan, FieldLimits, Fields, Name};
use super::{DEFAULT_TABLE_BYTES, integer, static_table};
use crate::limits;

/// The receiving end of a connection's header compression.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    max_table_bytes: usize,
}

impl Decoder {
    /// A decoder with an empty table. `max_table_bytes` is what is advertised as
    /// SETTINGS_HEADER_TABLE_SIZE; less than 4096 is raised to it, because the peer may use as much
    /// until it has seen the SETTINGS.
    pub fn new(max_table_bytes: usize) -> Decoder {
        debug_assert!(
            max_table_bytes <= limits::MAX_WATCHED_TABLE_BYTES,
            "{max_table_bytes}"
        );
        Decoder {
            table: DynamicTable::new(),
            max_table_bytes: max_table_bytes
                .clamp(DEFAULT_TABLE_BYTES, limits::MAX_WATCHED_TABLE_BYTES),
        }
    }

    /// Counts every change of the dynamic table, size updates too. While it stands still, a block
    /// that is equal byte by byte has the same meaning.
    pub fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// The bytes of memory that the table holds; none before the first insertion.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// Decodes one whole header block, CONTINUATION frames already joined, into `fields`, which is
    /// cleared before.
    ///
    /// # Errors
    /// Every error must end the connection: the table is no longer what the peer believes.
    pub fn decode(
        &mut self,
        block: &[u8],
        limits: &FieldLimits,
        fields: &mut Fields,
    ) -> Result<(), HpackError> {
        fields.clear();
        let mut rest = self.size_updates(block)?;
        while let Some((&first, after)) = rest.split_first() {
            rest = after;
            let budget = fields.budget(limits)?;
            match first {
                0x80.. => self.indexed(first, &mut rest, budget, fields)?,
                0x20..=0x3f => return Err(HpackError::SizeUpdateMisplaced),
                _ => self.literal(first, &mut rest, budget, fields)?,
            }
        }
        Ok(())
    }

    /// Applies the size updates at the beginning of a block. There may be two, the smallest size
    /// since the last block and the final one (RFC 7541 section 4.2). More only make the decoder
    /// work.
    #[inline]
    fn size_updates<'a>(&mut self, block: &'a [u8]) -> Result<&'a [u8], HpackError> {
        let mut rest = block;
        let mut count = 0;
        while let Some((&first @ 0x20..=0x3f, after)) = rest.split_first() {
            rest = after;
            let size = integer::decode(first, 5, &mut rest)?;
            count += 1;
            if count > limits::MAX_TABLE_SIZE_UPDATES {
                return Err(HpackError::TooManySizeUpdates);
            }
            if size > self.max_table_bytes {
                return Err(HpackError::SizeUpdateTooLarge);
            }
            self.table.set_max_size(size);
        }
        Ok(rest)
    }

    /// RFC 7541 section 6.1.
    #[inline]
    fn indexed(
        &self,
        first: u8,
        rest: &mut &[u8],
        budget: usize,
        fields: &mut Fields,
    ) -> Result<(), HpackError> {
        let index = integer::decode(first, 7, rest)?;
        match static_table::get(index) {
            Some(entry) => fields.add_static(entry, budget),
            None => fields.add_dynamic(&self.table, dynamic_index(index)?, budget),
        }
    }

    /// A literal, which enters the table or not. RFC 7541 section 6.2.
    #[inline]
    fn literal(
        &mut self,
        first: u8,
        rest: &mut &[u8],
        budget: usize,
        fields: &mut Fields,
    ) -> Result<(), HpackError> {
        // Without indexing and never indexed differ only for those who send the field on.
        let enters_table = first & 0x40 != 0;
        let index = integer::decode(first, if enters_table { 6 } else { 4 }, rest)?;
        let name = if index == 0 {
            let span = string(rest, budget, fields)?;
            fields.checked_name(span)
        } else if let Some(entry) = static_table::get(index) {
            Name::of_static(entry)
        } else {
            fields.add_dynamic_name(&self.table, dynamic_index(index)?, budget)?
        };
        let left = budget
            .checked_sub(name.span.len())
            .ok_or(HpackError::ListTooLarge)?;
        let value = string(rest, left, fields)?;
        let value_is_valid = fields.finish_literal(name, value);
        if enters_table {
            let facts = Facts {
                known: name.known,
                name_is_valid: name.is_valid,
                value_is_valid,
            };
            self.table
                .insert(fields.bytes(name.span), fields.bytes(value), facts);
        }
        Ok(())
    }
}

/// The place in the dynamic table of an index that is not in the static one.
#[inline]
fn dynamic_index(index: usize) -> Result<usize, HpackError> {
    index
        .checked_sub(static_table::LEN + 1)
        .ok_or(HpackError::BadIndex)
}

/// Reads a string literal into the arena of `fields`. RFC 7541 section 5.2.
#[inline]
fn string(rest: &mut &[u8], budget: usize, fields: &mut Fields) -> Result<ArenaSpan, HpackError> {
    let (&first, after) = rest.split_first().ok_or(HpackError::Truncated)?;
    *rest = after;
    let len = integer::decode(first, 7, rest)?;
    let source = *rest;
    let (text, after) = source.split_at_checked(len).ok_or(HpackError::Truncated)?;
    *rest = after;
    if first & 0x80 == 0 {
        fields.add_raw(source, len, budget)
    } else {
        fields.add_huffman(text, budget)
    }
}
