//! The dynamic table. RFC 7541 sections 2.3.2 and 4.

use std::collections::VecDeque;
use std::fmt;

use super::names::KnownName;
use super::{DEFAULT_TABLE_BYTES, ENTRY_OVERHEAD_BYTES};

/// Entries, newest first, over one buffer of bytes. Entries are evicted in the order in which they
/// came, so that the bytes in use are always one piece: new ones are appended, and when the buffer
/// is full the piece moves to its front.
pub(super) struct DynamicTable {
    entries: VecDeque<TableEntry>,
    /// Always [`SHORT_BYTES`] longer than what is used, so that a reader may copy a fixed length.
    bytes: Vec<u8>,
    used: usize,
    /// The position of `bytes[0]`, counting all bytes that were ever appended (wrapping).
    origin: u32,
    /// RFC 7541 section 4.1: names, values and 32 for each entry.
    size: usize,
    max_size: usize,
    changes: u64,
}

/// Without what is in it, which may be secrets.
impl fmt::Debug for DynamicTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, size) = (self.entries.len(), self.size);
        write!(formatter, "DynamicTable({count} of {size} bytes)")
    }
}

/// One entry: name and value stand side by side.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableEntry {
    position: u32,
    pub(super) name_len: u32,
    pub(super) value_len: u32,
    pub(super) known: KnownName,
    pub(super) name_is_valid: bool,
    pub(super) value_is_valid: bool,
}

impl TableEntry {
    #[inline]
    pub(super) fn is_valid(&self) -> bool {
        self.name_is_valid & self.value_is_valid
    }

    fn len(&self) -> usize {
        self.name_len as usize + self.value_len as usize
    }
}

/// What is known of a field that is inserted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) known: KnownName,
    pub(super) name_is_valid: bool,
    pub(super) value_is_valid: bool,
}

/// Pieces up to this length are copied out of a table with a fixed length.
pub(super) const SHORT_BYTES: usize = 64;

/// What the buffer gets at the first insertion: room for the few fields that clients repeat.
const FIRST_BYTES: usize = 256;

impl DynamicTable {
    /// An empty table of the default size, without any memory.
    pub(super) fn new() -> DynamicTable {
        DynamicTable {
            entries: VecDeque::new(),
            bytes: Vec::new(),
            used: 0,
            origin: 0,
            size: 0,
            max_size: DEFAULT_TABLE_BYTES,
            changes: 0,
        }
    }

    pub(super) fn max_size(&self) -> usize {
        self.max_size
    }

    /// How often the table has changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<TableEntry>()
    }

    /// The entry at `index`, 0 being the newest.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&TableEntry> {
        self.entries.get(index)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &TableEntry> {
        self.entries.iter()
    }

    /// The name and value of an entry, and at least as many bytes after them as make up
    /// [`SHORT_BYTES`].
    #[inline]
    pub(super) fn bytes_from(&self, entry: &TableEntry) -> &[u8] {
        &self.bytes[entry.position.wrapping_sub(self.origin) as usize..]
    }

    pub(super) fn name(&self, entry: &TableEntry) -> &[u8] {
        &self.bytes_from(entry)[..entry.name_len as usize]
    }

    pub(super) fn value(&self, entry: &TableEntry) -> &[u8] {
        &self.bytes_from(entry)[entry.name_len as usize..entry.len()]
    }

    /// Changes the size, evicting what no longer fits. RFC 7541 section 4.3.
    pub(super) fn set_max_size(&mut self, max_size: usize) {
        self.changes += 1;
        self.max_size = max_size;
        self.evict_to(max_size);
    }

    /// Inserts an entry after evicting what stands in its way. One that is larger than the table
    /// empties it, which is not an error. RFC 7541 section 4.4.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], facts: Facts) {
        self.changes += 1;
        let len = name.len() + value.len();
        let size = len + ENTRY_OVERHEAD_BYTES;
        self.evict_to(self.max_size.saturating_sub(size));
        if size > self.max_size {
            return;
        }
        self.make_room(len);
        self.entries.push_front(TableEntry {
            position: self.origin.wrapping_add(self.used as u32),
            name_len: name.len() as u32,
            value_len: value.len() as u32,
            known: facts.known,
            name_is_valid: facts.name_is_valid,
            value_is_valid: facts.value_is_valid,
        });
        let (name_at, value_at) = (self.used, self.used + name.len());
        self.bytes[name_at..value_at].copy_from_slice(name);
        self.bytes[value_at..value_at + value.len()].copy_from_slice(value);
        self.used += len;
        self.size += size;
        debug_assert!(self.size <= self.max_size);
    }

    fn evict_to(&mut self, max_size: usize) {
        while self.size > max_size {
            let oldest = self
                .entries
                .pop_back()
                .expect("a table without entries has the size 0");
            self.size -= oldest.len() + ENTRY_OVERHEAD_BYTES;
        }
    }

    /// Makes sure that `len` bytes can be appended. Moves the bytes in use to the front if that
    /// frees at least half of the buffer, so that each byte is moved about once; otherwise doubles
    /// the buffer.
    #[inline]
    fn make_room(&mut self, len: usize) {
        if self.used + len + SHORT_BYTES > self.bytes.len() {
            self.make_room_slow(len);
        }
    }

    #[cold]
    fn make_room_slow(&mut self, len: usize) {
        let live = self.entries.back().map_or(self.used, |oldest| {
            oldest.position.wrapping_sub(self.origin) as usize
        });
        self.bytes.copy_within(live..self.used, 0);
        self.used -= live;
        self.origin = self.origin.wrapping_add(live as u32);
        let wanted = (self.used + len) * 2 + SHORT_BYTES;
        if wanted > self.bytes.len() {
            self.bytes
                .resize(wanted.next_power_of_two().max(FIRST_BYTES), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    const FACTS: Facts = Facts {
        known: KnownName::Other,
        name_is_valid: true,
        value_is_valid: true,
    };

    /// The table as the RFC describes it, without any cleverness.
    #[derive(Default)]
    struct Model {
        entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    }

    impl Model {
        fn size(&self) -> usize {
            self.entries
                .iter()
                .map(|(name, value)| name.len() + value.len() + 32)
                .sum()
        }

        fn evict_to(&mut self, max_size: usize) {
            while self.size() > max_size {
                self.entries.pop_back();
            }
        }
    }

    #[test]
    fn behaves_like_the_model_and_stays_small() {
        let mut random = Random::new(0x5eed_0003);
        let (mut table, mut model) = (DynamicTable::new(), Model::default());
        table.origin = u32::MAX - 5000; // the position wraps during the test
        let mut max_size = table.max_size();
        for _ in 0..20_000 {
            if random.below(50) == 0 {
                max_size = [0, 100, 1000, 4096][random.below(4) as usize];
                table.set_max_size(max_size);
                model.evict_to(max_size);
            } else {
                let longest = if random.below(30) == 0 { 5000 } else { 60 };
                let name = random.bytes(longest, |random| random.number() as u8);
                let value = random.bytes(longest, |random| random.number() as u8);
                table.insert(&name, &value, FACTS);
                model.evict_to(max_size.saturating_sub(name.len() + value.len() + 32));
                if name.len() + value.len() + 32 <= max_size {
                    model.entries.push_front((name, value));
                }
            }
            let entries: VecDeque<_> = table
                .entries()
                .map(|entry| (table.name(entry).to_vec(), table.value(entry).to_vec()))
                .collect();
            assert_eq!(entries, model.entries, "{random:?}");
            assert_eq!(table.size, model.size(), "{random:?}");
        }
        assert!(
            table.memory_bytes() <= 5 * 4096,
            "{} bytes",
            table.memory_bytes()
        );
    }

    #[test]
    fn an_empty_table_holds_no_memory() {
        assert_eq!(DynamicTable::new().memory_bytes(), 0);
    }
}
