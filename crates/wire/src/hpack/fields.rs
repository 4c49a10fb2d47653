//! The decoded fields of one header block, in a reused arena.

use std::fmt;

use super::ENTRY_OVERHEAD_BYTES;
use super::dynamic_table::{DynamicTable, SHORT_BYTES};
use super::error::HpackError;
use super::huffman::{self, HuffmanError};
use super::names::{KnownName, is_valid_name, is_valid_value};
use super::static_table;
use crate::limits;

/// What one header block may contain. Beyond it the connection ends: a decoder that skips what is
/// too much no longer agrees with its peer about the table, or keeps paying for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldLimits {
    /// Number of fields; each crumb of a cookie counts.
    pub max_fields: usize,
    /// Bytes of all names and values, and 32 more for each field (RFC 9113 section 6.5.2).
    pub max_list_bytes: usize,
}

impl Default for FieldLimits {
    fn default() -> FieldLimits {
        FieldLimits {
            max_fields: limits::MAX_FIELDS,
            max_list_bytes: limits::MAX_FIELD_LIST_BYTES,
        }
    }
}

/// One decoded field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodedField<'a> {
    /// The name as it was sent.
    pub name: &'a [u8],
    /// The value as it was sent.
    pub value: &'a [u8],
    /// Which of the names with a meaning it is.
    pub known: KnownName,
    /// Whether [`is_valid_name`] and [`is_valid_value`] hold.
    pub is_valid: bool,
}

/// A reused list of fields. Cleared and filled by [`super::Decoder::decode`].
#[derive(Default)]
pub struct Fields {
    /// Longer than what is used, so that short pieces can be copied with a fixed length.
    arena: Vec<u8>,
    used: usize,
    entries: Vec<FieldEntry>,
    list_bytes: usize,
    all_valid: bool,
}

/// Without what is in them, which may be secrets.
impl fmt::Debug for Fields {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, bytes) = (self.entries.len(), self.list_bytes);
        write!(formatter, "Fields({count} of {bytes} bytes)")
    }
}

#[derive(Debug, Clone, Copy)]
struct FieldEntry {
    name: ArenaSpan,
    value: ArenaSpan,
    known: KnownName,
    is_valid: bool,
}

/// A piece of the arena, or of the static table's text if the start has the [`STATIC`] bit.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArenaSpan {
    start: u32,
    len: u32,
}

const STATIC: u32 = 1 << 31;

impl ArenaSpan {
    #[inline]
    pub(super) fn len(self) -> usize {
        self.len as usize
    }
}

/// A name that has been read, and what is known of it.
#[derive(Clone, Copy)]
pub(super) struct Name {
    pub(super) span: ArenaSpan,
    pub(super) known: KnownName,
    pub(super) is_valid: bool,
}

impl Name {
    /// The name of an entry of the static table.
    #[inline]
    pub(super) fn of_static(entry: &static_table::StaticEntry) -> Name {
        let start = u32::from(entry.start) | STATIC;
        let len = u32::from(entry.name_len);
        Name {
            span: ArenaSpan { start, len },
            known: entry.known,
            is_valid: true,
        }
    }
}

impl Fields {
    /// An empty list that allocates when it is first filled.
    pub fn new() -> Fields {
        Fields {
            all_valid: true,
            ..Fields::default()
        }
    }

    /// Forgets the fields and keeps the memory.
    pub fn clear(&mut self) {
        self.used = 0;
        self.entries.clear();
        self.list_bytes = 0;
        self.all_valid = true;
    }

    /// Forgets the fields and gives the memory back: for a connection that idles.
    pub fn release_memory(&mut self) {
        *self = Fields::new();
    }

    /// The bytes of memory that the list holds.
    pub fn memory_bytes(&self) -> usize {
        self.arena.capacity() + self.entries.capacity() * size_of::<FieldEntry>()
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all names and values and 32 more for each field, as SETTINGS_MAX_HEADER_LIST_SIZE
    /// counts them.
    pub fn list_bytes(&self) -> usize {
        self.list_bytes
    }

    /// Whether every field may stand in an HTTP/2 message by its bytes. If not, the message is
    /// malformed (RFC 9113 section 8.2.1).
    pub fn all_valid(&self) -> bool {
        self.all_valid
    }

    /// Name and value of the field at `index`, in the order in which they were sent.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        self.field(index).map(|field| (field.name, field.value))
    }

    /// The field at `index` with what is known of it.
    #[inline]
    pub fn field(&self, index: usize) -> Option<DecodedField<'_>> {
        self.entries.get(index).map(|entry| self.resolve(entry))
    }

    /// Names and values in the order in which they were sent.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields().map(|field| (field.name, field.value))
    }

    /// The fields with what is known of them, in the order in which they were sent.
    #[inline]
    pub fn fields(&self) -> impl Iterator<Item = DecodedField<'_>> {
        self.entries.iter().map(|entry| self.resolve(entry))
    }

    /// The value of the first field with this name.
    pub fn value_of(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter()
            .find(|field| field.0 == name)
            .map(|field| field.1)
    }

    /// Appends a field. For tests, and for whoever builds a list without a block.
    ///
    /// # Errors
    /// If the list would go beyond `limits`.
    pub fn push(
        &mut self,
        name: &[u8],
        value: &[u8],
        limits: &FieldLimits,
    ) -> Result<(), HpackError> {
        let budget = self.budget(limits)?;
        let name = self
            .add_raw(name, name.len(), budget)
            .map(|span| self.checked_name(span))?;
        let value = self.add_raw(value, value.len(), budget - name.span.len())?;
        self.finish_literal(name, value);
        Ok(())
    }

    #[inline]
    fn resolve(&self, entry: &FieldEntry) -> DecodedField<'_> {
        DecodedField {
            name: self.bytes(entry.name),
            value: self.bytes(entry.value),
            known: entry.known,
            is_valid: entry.is_valid,
        }
    }

    #[inline]
    pub(super) fn bytes(&self, span: ArenaSpan) -> &[u8] {
        let text = if span.start & STATIC != 0 {
            &static_table::TEXT[..]
        } else {
            &self.arena[..]
        };
        let start = (span.start & !STATIC) as usize;
        &text[start..start + span.len as usize]
    }

    /// How many bytes the name and value of one more field may have.
    #[inline]
    pub(super) fn budget(&self, limits: &FieldLimits) -> Result<usize, HpackError> {
        if self.entries.len() >= limits.max_fields {
            return Err(HpackError::TooManyFields);
        }
        let used = self.list_bytes + ENTRY_OVERHEAD_BYTES;
        limits
            .max_list_bytes
            .checked_sub(used)
            .ok_or(HpackError::ListTooLarge)
    }

    /// Appends an entry of the static table, without copying it.
    #[inline]
    pub(super) fn add_static(
        &mut self,
        entry: &static_table::StaticEntry,
        budget: usize,
    ) -> Result<(), HpackError> {
        let (name_len, value_len) = (u32::from(entry.name_len), u32::from(entry.value_len));
        if (name_len + value_len) as usize > budget {
            return Err(HpackError::ListTooLarge);
        }
        let start = u32::from(entry.start) | STATIC;
        self.finish(FieldEntry {
            name: ArenaSpan {
                start,
                len: name_len,
            },
            value: ArenaSpan {
                start: start + name_len,
                len: value_len,
            },
            known: entry.known,
            is_valid: true,
        });
        Ok(())
    }

    /// Appends the entry at `index` of the dynamic table, 0 being the newest. It is copied: a later
    /// field of the same block may evict it.
    #[inline]
    pub(super) fn add_dynamic(
        &mut self,
        table: &DynamicTable,
        index: usize,
        budget: usize,
    ) -> Result<(), HpackError> {
        let entry = *table.get(index).ok_or(HpackError::BadIndex)?;
        let len = entry.name_len as usize + entry.value_len as usize;
        if len > budget {
            return Err(HpackError::ListTooLarge);
        }
        let start = self.copy(table.bytes_from(&entry), len);
        self.finish(FieldEntry {
            name: ArenaSpan {
                start,
                len: entry.name_len,
            },
            value: ArenaSpan {
                start: start + entry.name_len,
                len: entry.value_len,
            },
            known: entry.known,
            is_valid: entry.is_valid(),
        });
        Ok(())
    }

    /// Copies the name of the entry at `index` of the dynamic table.
    #[inline]
    pub(super) fn add_dynamic_name(
        &mut self,
        table: &DynamicTable,
        index: usize,
        budget: usize,
    ) -> Result<Name, HpackError> {
        let entry = *table.get(index).ok_or(HpackError::BadIndex)?;
        if entry.name_len as usize > budget {
            return Err(HpackError::ListTooLarge);
        }
        let start = self.copy(table.bytes_from(&entry), entry.name_len as usize);
        Ok(Name {
            span: ArenaSpan {
                start,
                len: entry.name_len,
            },
            known: entry.known,
            is_valid: entry.name_is_valid,
        })
    }

    /// Copies a string that is not encoded: the first `len` bytes of `source`, which may go on
    /// behind them.
    #[inline]
    pub(super) fn add_raw(
        &mut self,
        source: &[u8],
        len: usize,
        budget: usize,
    ) -> Result<ArenaSpan, HpackError> {
        if len > budget {
            return Err(HpackError::ListTooLarge);
        }
        let start = self.copy(source, len);
        Ok(ArenaSpan {
            start,
            len: len as u32,
        })
    }

    /// Decodes a string in Huffman code.
    #[inline]
    pub(super) fn add_huffman(
        &mut self,
        encoded: &[u8],
        budget: usize,
    ) -> Result<ArenaSpan, HpackError> {
        let room = huffman::max_decoded_len(encoded.len()).min(budget) + huffman::SLACK_BYTES;
        self.reserve(room);
        let target = &mut self.arena[self.used..self.used + room];
        let len = huffman::decode(encoded, target).map_err(|error| match error {
            HuffmanError::Invalid => HpackError::BadHuffman,
            HuffmanError::TooLong => HpackError::ListTooLarge,
        })?;
        let start = self.used as u32;
        self.used += len;
        Ok(ArenaSpan {
            start,
            len: len as u32,
        })
    }

    /// Looks at a name that came as a literal.
    #[inline]
    pub(super) fn checked_name(&self, span: ArenaSpan) -> Name {
        let bytes = self.bytes(span);
        Name {
            span,
            known: KnownName::of(bytes),
            is_valid: is_valid_name(bytes),
        }
    }

    /// Appends a field of which at least the value came as a literal, and returns whether the value
    /// is valid.
    #[inline]
    pub(super) fn finish_literal(&mut self, name: Name, value: ArenaSpan) -> bool {
        let value_is_valid = is_valid_value(self.bytes(value));
        self.finish(FieldEntry {
            name: name.span,
            value,
            known: name.known,
            is_valid: name.is_valid & value_is_valid,
        });
        value_is_valid
    }

    #[inline]
    fn finish(&mut self, entry: FieldEntry) {
        self.list_bytes +=
            entry.name.len as usize + entry.value.len as usize + ENTRY_OVERHEAD_BYTES;
        self.all_valid &= entry.is_valid;
        self.entries.push(entry);
    }

    /// Copies the first `len` bytes of `source` to the arena and says where they begin. If the
    /// source goes on behind them, a short piece is copied together with what follows: a copy of a
    /// fixed length is a few instructions.
    #[inline]
    fn copy(&mut self, source: &[u8], len: usize) -> u32 {
        self.reserve(len + SHORT_BYTES);
        let start = self.used;
        self.used += len;
        let target = self.arena[start..].first_chunk_mut::<SHORT_BYTES>();
        match (source.first_chunk::<SHORT_BYTES>(), target) {
            // mutants: skip, copying exactly what could be copied at a fixed length is only slower
            (Some(source), Some(target)) if len <= SHORT_BYTES => *target = *source,
            _ => self.copy_exactly(start, &source[..len]),
        }
        start as u32
    }

    /// Not inlined: the compiler would make one call of this and of the copy of a fixed length.
    #[inline(never)]
    fn copy_exactly(&mut self, start: usize, source: &[u8]) {
        self.arena[start..start + source.len()].copy_from_slice(source);
    }

    #[inline]
    fn reserve(&mut self, bytes: usize) {
        if self.arena.len() - self.used < bytes {
            self.grow(bytes);
        }
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        let len = (self.used + bytes)
            .next_power_of_two()
            .max(FIRST_ARENA_BYTES);
        self.arena.resize(len, 0);
    }
}

/// The head of a usual gRPC call fits.
const FIRST_ARENA_BYTES: usize = 256;
