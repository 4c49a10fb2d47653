//! Merges memtables and runs of tables into one order. A source is read only when its next entry
//! may be the next one of all: an entry may be in a block of megabytes, and who takes no further
//! one does not wait for it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::iter;
use std::ops::Bound;

use lsm_tree::{InternalValue, Memtable, Slice, Table, ValueType};

use crate::range::Direction;

/// Both ends of a range, as they are stored.
pub(super) type Ends = (Bound<Slice>, Bound<Slice>);

/// What is known of the next entry of a source.
pub(super) enum Ahead {
    /// It does not come before this key.
    NotBefore(Slice),
    /// It has been read.
    Entry(InternalValue),
}

/// Versions of keys in the order of a walk. What it returns first does not come before what it
/// returned last.
pub(super) type EntrySource<'a> = Box<dyn Iterator<Item = lsm_tree::Result<Ahead>> + 'a>;

/// All versions of the keys of a range in one memtable.
pub(super) fn memtable_source<'a>(
    memtable: &'a Memtable,
    (start, end): &Ends,
    direction: Direction,
) -> EntrySource<'a> {
    // Versions of a key are in the order of falling numbers.
    let place = |key: &Slice, number| {
        let value = Slice::new(&[]);
        InternalValue::from_components(key.clone(), value, number, ValueType::Value).key
    };
    let start = match start {
        Bound::Included(key) => Bound::Included(place(key, u64::MAX)),
        Bound::Excluded(key) => Bound::Excluded(place(key, 0)),
        Bound::Unbounded => Bound::Unbounded,
    };
    let end = match end {
        Bound::Included(key) => Bound::Included(place(key, 0)),
        Bound::Excluded(key) => Bound::Excluded(place(key, u64::MAX)),
        Bound::Unbounded => Bound::Unbounded,
    };
    let entries = memtable.items.range((start, end)).map(|entry| {
        Ok(Ahead::Entry(InternalValue {
            key: entry.key().clone(),
            value: entry.value().clone(),
        }))
    });
    match direction {
        Direction::Forward => Box::new(entries),
        Direction::Backward => Box::new(entries.rev()),
    }
}

/// The same in tables whose keys follow each other.
pub(super) fn table_source(tables: &[Table], ends: Ends, direction: Direction) -> EntrySource<'_> {
    match direction {
        Direction::Forward => Box::new(tables.iter().flat_map(move |table| {
            let first = table.metadata.key_range.min().clone();
            let entries = table.range(ends.clone());
            iter::once(Ok(Ahead::NotBefore(first)))
                .chain(entries.map(|entry| entry.map(Ahead::Entry)))
        })),
        Direction::Backward => Box::new(tables.iter().rev().flat_map(move |table| {
            let first = table.metadata.key_range.max().clone();
            let entries = table.range(ends.clone()).rev();
            iter::once(Ok(Ahead::NotBefore(first)))
                .chain(entries.map(|entry| entry.map(Ahead::Entry)))
        })),
    }
}

/// Entries of several sources in the order of a walk: forward the newest version of a key first,
/// backward the oldest.
pub(super) struct Merge<'a> {
    heads: BinaryHeap<SourceHead<'a>>,
}

impl<'a> Merge<'a> {
    /// Reads nothing yet.
    pub(super) fn new(sources: Vec<EntrySource<'a>>, direction: Direction) -> Merge<'a> {
        let heads = sources.into_iter().map(|source| SourceHead {
            direction,
            ahead: None,
            source,
        });
        Merge {
            heads: heads.collect(),
        }
    }
}

impl Iterator for Merge<'_> {
    type Item = lsm_tree::Result<InternalValue>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut head = self.heads.peek_mut()?;
            if let Some(Ahead::Entry(entry)) = head.ahead.take() {
                return Some(Ok(entry));
            }
            match head.source.next() {
                Some(Ok(ahead)) => head.ahead = Some(ahead),
                Some(Err(error)) => return Some(Err(error)),
                None => drop(PeekMut::pop(head)),
            }
        }
    }
}

/// A source with what is known of its next entry. The greatest one is the next to be asked.
struct SourceHead<'a> {
    direction: Direction,
    /// `None`: nothing, so it is asked before anything else is returned.
    ahead: Option<Ahead>,
    source: EntrySource<'a>,
}

impl Ord for SourceHead<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, two) = match (&self.ahead, &other.ahead) {
            (Some(one), Some(two)) => (one, two),
            (one, two) => return one.is_none().cmp(&two.is_none()),
        };
        // Keys rise, and numbers of the versions of a key fall.
        let rising = match (one, two) {
            (Ahead::Entry(one), Ahead::Entry(two)) => {
                return self.by_direction(one.key.cmp(&two.key));
            }
            (Ahead::Entry(one), Ahead::NotBefore(two)) => one.key.user_key.cmp(two),
            (Ahead::NotBefore(one), Ahead::Entry(two)) => one.cmp(&two.key.user_key),
            (Ahead::NotBefore(one), Ahead::NotBefore(two)) => one.cmp(two),
        };
        // What was not read may be the version that comes first.
        let is_unread = |ahead: &Ahead| matches!(ahead, Ahead::NotBefore(_));
        self.by_direction(rising)
            .then(is_unread(one).cmp(&is_unread(two)))
    }
}

impl SourceHead<'_> {
    /// Greater is what comes first.
    fn by_direction(&self, rising: Ordering) -> Ordering {
        match self.direction {
            Direction::Forward => rising.reverse(),
            Direction::Backward => rising,
        }
    }
}

impl PartialOrd for SourceHead<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SourceHead<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SourceHead<'_> {}
