//! Ranges of keys, and the walks over them.

use std::ops::Bound;

/// Which way a scan walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key on.
    Forward,
    /// From the largest key on.
    Backward,
}

/// A range of keys in byte order. Keys are compared as unsigned bytes; a prefix comes before its
/// extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<'a> {
    /// The lower end.
    pub start: Bound<&'a [u8]>,
    /// The upper end.
    pub end: Bound<&'a [u8]>,
}

impl<'a> Range<'a> {
    /// All keys.
    pub const ALL: Range<'static> = Range {
        start: Bound::Unbounded,
        end: Bound::Unbounded,
    };

    /// From `start` up to, not including, `end`; without an end, to the last key.
    pub fn new(start: &'a [u8], end: Option<&'a [u8]>) -> Range<'a> {
        Range {
            start: Bound::Included(start),
            end: end.map_or(Bound::Unbounded, Bound::Excluded),
        }
    }

    /// All keys that begin with `prefix`. The upper end is built in `buffer`.
    pub fn prefix(prefix: &'a [u8], buffer: &'a mut Vec<u8>) -> Range<'a> {
        buffer.clear();
        // The first key behind all that begin with the prefix: its last byte that can grow grows,
        // and what follows falls away. A prefix of 0xff alone has no such key.
        if let Some(last) = prefix.iter().rposition(|&byte| byte != 0xff) {
            buffer.extend_from_slice(&prefix[..=last]);
            buffer[last] += 1;
        }
        Range::new(
            prefix,
            if buffer.is_empty() {
                None
            } else {
                Some(buffer)
            },
        )
    }

    /// What is left of this range for a walk in `direction` that has passed `key`.
    pub fn beyond(self, key: &'a [u8], direction: Direction) -> Range<'a> {
        match direction {
            Direction::Forward => Range {
                start: Bound::Excluded(key),
                ..self
            },
            Direction::Backward => Range {
                end: Bound::Excluded(key),
                ..self
            },
        }
    }

    /// Whether no key at all can lie in this range.
    pub fn is_empty(&self) -> bool {
        match (self.start, self.end) {
            (Bound::Unbounded, Bound::Excluded(end)) => end.is_empty(),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (
                Bound::Included(start) | Bound::Excluded(start),
                Bound::Included(end) | Bound::Excluded(end),
            ) => start >= end,
        }
    }

    /// Whether `key` lies in this range.
    pub fn contains(&self, key: &[u8]) -> bool {
        let from_start = match self.start {
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
            Bound::Unbounded => true,
        };
        from_start
            && match self.end {
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
                Bound::Unbounded => true,
            }
    }
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd<'a> {
    /// The range is walked to its end.
    Complete,
    /// The visitor stopped it.
    Stopped,
    /// The budget of rows is spent. The walk has passed this key (which need not have been visited:
    /// expired entries are walked, not visited); go on with [`Range::beyond`].
    BudgetSpent(&'a [u8]),
}

/// One slice of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountSlice<'a> {
    /// Entries in the part of the range that was walked.
    pub count: u64,
    /// `None`: the range is counted to its end. Otherwise the count has passed this key; go on with
    /// [`Range::beyond`], forward.
    pub passed: Option<&'a [u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_covers_exactly_its_extensions() {
        let cases: [(&[u8], Option<&[u8]>); 6] = [
            (b"", None),
            (b"a", Some(b"b")),
            (b"ab", Some(b"ac")),
            (b"a\xff", Some(b"b")),
            (b"\xff\xff", None),
            (b"a\xff\xff", Some(b"b")),
        ];
        for (prefix, end) in cases {
            let mut buffer = Vec::new();
            assert_eq!(Range::prefix(prefix, &mut buffer), Range::new(prefix, end));
        }
    }

    #[test]
    fn empty_ranges_are_known() {
        let (a, b): (&[u8], &[u8]) = (b"a", b"b");
        assert!(Range::new(b, Some(a)).is_empty());
        assert!(Range::new(a, Some(a)).is_empty());
        assert!(!Range::new(a, Some(b)).is_empty());
        assert!(!Range::new(a, None).is_empty());
        assert!(!Range::ALL.is_empty());
        assert!(Range::ALL.beyond(b"", Direction::Backward).is_empty());
        assert!(
            Range::new(a, Some(b))
                .beyond(b, Direction::Forward)
                .is_empty()
        );
        assert!(
            Range::new(a, Some(b))
                .beyond(a, Direction::Backward)
                .is_empty()
        );
    }
}
