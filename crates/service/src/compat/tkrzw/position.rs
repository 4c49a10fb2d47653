//! Where an iterator over the records of a database is.

use std::ops::Bound;

use store::Range;

/// Where an iterator is.
pub(super) enum IteratorPosition {
    /// At the first record whose key is not below this one.
    From(Vec<u8>),
    /// By hash: at the record with this key, and behind it if it is gone.
    At(Vec<u8>),
    /// By hash: at the first record behind that with this key.
    Behind(Vec<u8>),
}

impl IteratorPosition {
    /// Returns the position at a record.
    pub(super) fn at(key: Vec<u8>, is_by_hash: bool) -> IteratorPosition {
        match is_by_hash {
            true => IteratorPosition::At(key),
            false => IteratorPosition::From(key),
        }
    }

    /// Returns the position behind a record.
    pub(super) fn behind(key: &[u8], is_by_hash: bool) -> IteratorPosition {
        match is_by_hash {
            true => IteratorPosition::Behind(key.to_vec()),
            false => IteratorPosition::From(behind(key)),
        }
    }

    /// Returns the bytes of its key.
    pub(super) fn len(&self) -> usize {
        match self {
            IteratorPosition::From(key)
            | IteratorPosition::At(key)
            | IteratorPosition::Behind(key) => key.len(),
        }
    }

    /// Returns the range in which its record is the first.
    pub(super) fn range(&self) -> Range<'_> {
        match self {
            IteratorPosition::From(key) => Range {
                start: Bound::Included(key),
                end: Bound::Unbounded,
            },
            IteratorPosition::At(key) => Range {
                start: Bound::Included(key),
                end: Bound::Included(key),
            },
            IteratorPosition::Behind(_) => Range::ALL,
        }
    }

    /// Returns the key behind which its record is the first of that range.
    pub(super) fn passed(&self) -> Option<&[u8]> {
        match self {
            IteratorPosition::Behind(key) => Some(key),
            IteratorPosition::From(_) | IteratorPosition::At(_) => None,
        }
    }
}

/// Returns the first key behind another one.
pub(super) fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
