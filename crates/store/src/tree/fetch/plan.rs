//! What calls will look at, recorded before they run.

use std::ops::{Bound, Range as IndexRange};

use crate::range::{Direction, Range};

/// What calls will look at in one database, call by call. Owns its bytes, so that it can travel.
#[derive(Debug, Default)]
pub struct ReadPlan {
    pub(super) calls: Vec<CallReads>,
    /// Where the single keys stand.
    keys: Vec<IndexRange<usize>>,
    bytes: Vec<u8>,
}

/// The reads that one call plans.
#[derive(Debug)]
pub(super) struct CallReads {
    pub(super) tag: u64,
    kept: IndexRange<usize>,
    pub(super) read: PlannedRead,
}

/// One of the ways to look at a database.
#[derive(Debug)]
pub(super) enum PlannedRead {
    /// Nothing was planned.
    Nothing,
    /// The entries of some keys, up to the one with which their values come to more than so many
    /// bytes.
    Keys {
        keys: IndexRange<usize>,
        value_bytes: usize,
    },
    /// Entries of a range, one after the other.
    Page {
        range: StoredRange,
        /// A key that the walk has passed, where the range does not say it.
        passed: Option<IndexRange<usize>>,
        page: PageRequest,
    },
    /// How many entries a range has.
    Count {
        range: StoredRange,
        rows: u32,
        may_estimate: bool,
    },
}

/// What one call plans, for a database that is read elsewhere.
#[derive(Clone, Debug)]
pub(crate) enum PlannedRequest<'a> {
    /// See [`ReadPlan::keys`].
    Keys {
        keys: Vec<&'a [u8]>,
        value_bytes: usize,
    },
    /// See [`ReadPlan::page_behind`].
    Page {
        range: Range<'a>,
        passed: Option<&'a [u8]>,
        page: PageRequest,
    },
    /// See [`ReadPlan::count`].
    Count {
        range: Range<'a>,
        may_estimate: bool,
    },
}

/// A range whose keys stand in the bytes of the plan.
#[derive(Debug)]
pub(super) struct StoredRange {
    start: Bound<IndexRange<usize>>,
    end: Bound<IndexRange<usize>>,
}

/// How much of a range a page takes.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest {
    /// From which end.
    pub direction: Direction,
    /// Values are of no interest.
    pub keys_only: bool,
    /// Entries to walk, at least one.
    pub rows: u32,
    /// Live entries to prefetch.
    pub entries: u64,
    /// Bytes of keys and values to prefetch, unless the first entry alone has more.
    pub bytes: usize,
}

impl ReadPlan {
    /// Begins the plan of the next call. `tag` and `kept` come back with what is prefetched for it.
    pub fn begin(&mut self, tag: u64, kept: &[u8]) {
        let kept = self.keep(kept);
        let read = PlannedRead::Nothing;
        self.calls.push(CallReads { tag, kept, read });
    }

    /// The call will look at the entry of a key.
    #[inline]
    pub fn key(&mut self, key: &[u8]) {
        self.keys(usize::MAX, std::iter::once(key));
    }

    /// The call will look at the entries of these keys, in this order, until their values come to
    /// more than `value_bytes` together.
    #[inline]
    pub fn keys<'a>(&mut self, value_bytes: usize, keys: impl Iterator<Item = &'a [u8]>) {
        let first = self.keys.len();
        for key in keys {
            let key = self.keep(key);
            self.keys.push(key);
        }
        let keys = first..self.keys.len();
        self.plan_read(PlannedRead::Keys { keys, value_bytes });
    }

    /// The call will scan a part of a range.
    pub fn page(&mut self, range: &Range<'_>, page: PageRequest) {
        self.page_behind(range, None, page);
    }

    /// The same for a database whose keys are in another order than their own: the walk over the
    /// range has passed this key, and what comes behind it may be below it.
    pub fn page_behind(&mut self, range: &Range<'_>, passed: Option<&[u8]>, page: PageRequest) {
        let range = self.keep_range(range);
        let passed = passed.map(|key| self.keep(key));
        self.plan_read(PlannedRead::Page {
            range,
            passed,
            page,
        });
    }

    /// The call will count a part of a range: at most `rows` entries, but at least one.
    /// `may_estimate`: if these are not all, an estimate of the whole range will do.
    pub fn count(&mut self, range: &Range<'_>, rows: u32, may_estimate: bool) {
        let range = self.keep_range(range);
        self.plan_read(PlannedRead::Count {
            range,
            rows,
            may_estimate,
        });
    }

    /// Takes some calls out, by their places. Keys keep their places, here and there.
    pub(super) fn take_out(&mut self, is_taken: &[bool]) -> ReadPlan {
        debug_assert_eq!(is_taken.len(), self.calls.len(), "one word for each call");
        if is_taken.iter().all(|&is_taken| is_taken) {
            return std::mem::take(self);
        }
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for (call, &is_taken) in self.calls.drain(..).zip(is_taken) {
            if is_taken {
                taken.push(call);
            } else {
                left.push(call);
            }
        }
        self.calls = left;
        ReadPlan {
            calls: taken,
            keys: self.keys.clone(),
            bytes: self.bytes.clone(),
        }
    }

    /// Whether there are no calls.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// How many calls there are.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// How many single keys they plan to read.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Bytes of keys that are kept for all of this.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The tags of all calls.
    pub fn tags(&self) -> impl Iterator<Item = u64> {
        self.calls.iter().map(|call| call.tag)
    }

    /// What the call at a place plans, for a database that is read elsewhere.
    pub(crate) fn request(&self, call: usize) -> PlannedRequest<'_> {
        match &self.calls[call].read {
            PlannedRead::Nothing => PlannedRequest::Keys {
                keys: Vec::new(),
                value_bytes: 0,
            },
            PlannedRead::Keys { keys, value_bytes } => PlannedRequest::Keys {
                keys: keys.clone().map(|place| self.key_at(place)).collect(),
                value_bytes: *value_bytes,
            },
            PlannedRead::Page {
                range,
                passed,
                page,
            } => PlannedRequest::Page {
                range: self.range(range),
                passed: passed.clone().map(|passed| &self.bytes[passed]),
                page: *page,
            },
            PlannedRead::Count {
                range,
                may_estimate,
                ..
            } => PlannedRequest::Count {
                range: self.range(range),
                may_estimate: *may_estimate,
            },
        }
    }

    /// Returns what the read of the call at a place takes before it is done: the bytes of its keys,
    /// and those that it is expected to bring, where a value is expected to have so many.
    pub(crate) fn expected_bytes(&self, call: usize, value_bytes: usize) -> (usize, usize) {
        match &self.calls[call].read {
            PlannedRead::Nothing => (0, 0),
            PlannedRead::Keys { keys, .. } => {
                let key_bytes = keys.clone().map(|place| self.key_at(place).len());
                (key_bytes.sum(), keys.len().saturating_mul(value_bytes))
            }
            PlannedRead::Page { page, .. } => (0, page.bytes),
            PlannedRead::Count { .. } => (0, 0),
        }
    }

    fn plan_read(&mut self, read: PlannedRead) {
        let call = self.calls.last_mut();
        let call = call.expect("a call's plan begins with `begin`");
        debug_assert!(
            matches!(call.read, PlannedRead::Nothing),
            "a call looks at one thing in a step"
        );
        call.read = read;
    }

    fn keep(&mut self, bytes: &[u8]) -> IndexRange<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn keep_range(&mut self, range: &Range<'_>) -> StoredRange {
        StoredRange {
            start: range.start.map(|key| self.keep(key)),
            end: range.end.map(|key| self.keep(key)),
        }
    }

    pub(super) fn kept(&self, call: usize) -> &[u8] {
        &self.bytes[self.calls[call].kept.clone()]
    }

    pub(super) fn key_at(&self, place: usize) -> &[u8] {
        &self.bytes[self.keys[place].clone()]
    }

    pub(super) fn range(&self, range: &StoredRange) -> Range<'_> {
        let at = |place: &IndexRange<usize>| &self.bytes[place.clone()];
        Range {
            start: range.start.as_ref().map(at),
            end: range.end.as_ref().map(at),
        }
    }
}
