//! The records of a large request in the order of their keys, without a step that takes long.
//!
//! To sort a hundred thousand keys takes tens of milliseconds, in which the loop serves nobody
//! else. So runs of them are sorted, one in each step, and merged as records are taken out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use bytes::Bytes;

use crate::limits::TKRZW_RUN_RECORDS;

/// A record: its key and its value.
pub(super) type RecordPair<'a> = (&'a [u8], &'a [u8]);

/// Where in a request the key and the value of a record are.
#[derive(Clone, Debug)]
struct RecordRange {
    key: Range<u32>,
    value: Range<u32>,
}

/// What a record takes in memory beside the request, in bytes.
pub(super) const RECORD_OVERHEAD_BYTES: usize = size_of::<RecordRange>();

/// The records of a request, which are taken out in the order of keys; of several with one key only
/// the first.
#[derive(Debug)]
pub(super) struct SortedRecords {
    request: Bytes,
    records: Vec<RecordRange>,
    /// How many records are in runs, which are sorted.
    sorted: usize,
    /// What is left of each run.
    runs: Vec<Range<usize>>,
    /// The next key of each run, the least on top; of equal ones that of the first run.
    heads: BinaryHeap<Reverse<(Bytes, usize)>>,
    /// The record that is next.
    next: Option<RecordRange>,
    /// The key that was taken out last.
    passed: Option<Bytes>,
}

impl SortedRecords {
    /// Takes the records of a request, which are parts of it.
    pub(super) fn new(request: &[u8], records: &[RecordPair<'_>]) -> SortedRecords {
        let part = |part: &[u8]| {
            let start = match part.is_empty() {
                // It may point anywhere.
                true => 0,
                false => part.as_ptr().addr().wrapping_sub(request.as_ptr().addr()),
            };
            // Requests are much shorter than what fits into 32 bits.
            let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            number(start)..number(start.saturating_add(part.len()))
        };
        let records = records.iter().map(|(key, value)| RecordRange {
            key: part(key),
            value: part(value),
        });
        SortedRecords {
            records: records.collect(),
            request: Bytes::copy_from_slice(request),
            sorted: 0,
            runs: Vec::new(),
            heads: BinaryHeap::new(),
            next: None,
            passed: None,
        }
    }

    /// Sorts a further run. Returns whether all records are in runs.
    pub(super) fn sort_run(&mut self) -> bool {
        let start = self.sorted;
        let end = self.records.len().min(start + TKRZW_RUN_RECORDS);
        if let Some(run) = self.records.get_mut(start..end)
            && !run.is_empty()
        {
            let request = &self.request[..];
            // Stable, so that the first of several with one key stays the first.
            run.sort_by(|one, other| part(request, &one.key).cmp(part(request, &other.key)));
            self.sorted = end;
            self.runs.push(start..end);
            self.push_head(self.runs.len() - 1);
        }
        self.sorted == self.records.len()
    }

    /// Puts the next key of a run among those of the others.
    fn push_head(&mut self, run: usize) {
        let left = self.runs.get(run).cloned().unwrap_or_default();
        if let Some(record) = self.records.get(left).and_then(<[_]>::first) {
            let key = (self.request).slice_ref(part(&self.request, &record.key));
            self.heads.push(Reverse((key, run)));
        }
    }

    /// Returns the next record, once all are in runs.
    pub(super) fn peek(&mut self) -> Option<RecordPair<'_>> {
        while self.next.is_none() {
            let Reverse((key, run)) = self.heads.pop()?;
            let record = self.runs.get_mut(run).and_then(Range::next);
            self.push_head(run);
            if self.passed.as_ref() != Some(&key) {
                self.next = record.and_then(|record| self.records.get(record)).cloned();
                self.passed = Some(key);
            }
        }
        let next = self.next.as_ref()?;
        let request = &self.request[..];
        Some((part(request, &next.key), part(request, &next.value)))
    }

    /// Takes out the next record, once all are in runs, and returns its key.
    pub(super) fn take_key(&mut self) -> Option<Bytes> {
        self.peek()?;
        self.pass();
        self.passed.clone()
    }

    /// Takes out the record that was peeked at.
    pub(super) fn pass(&mut self) {
        self.next = None;
    }
}

fn part<'a>(request: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    let range = range.start as usize..range.end as usize;
    request.get(range).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use testkit::Random;

    use super::*;

    #[test]
    fn records_come_in_order_and_of_equal_keys_the_first() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let count = [0, 1, 5, TKRZW_RUN_RECORDS, 3 * TKRZW_RUN_RECORDS + 7][seed as usize % 5];
            let mut request = Vec::new();
            let mut ranges = Vec::new();
            for index in 0..count {
                let start = request.len();
                request.extend_from_slice(&(random.below(1 + count as u64) as u16).to_be_bytes());
                let middle = request.len();
                request.extend_from_slice(&index.to_be_bytes());
                // Some keys are empty, some values are.
                let key = if index % 97 == 3 {
                    middle..middle
                } else {
                    start..middle
                };
                let value = if index % 5 == 0 {
                    middle..middle
                } else {
                    middle..request.len()
                };
                ranges.push((key, value));
            }
            let records: Vec<RecordPair<'_>> = ranges
                .iter()
                .map(|(key, value)| (&request[key.clone()], &request[value.clone()]))
                .collect();
            let mut expected = BTreeMap::new();
            for &(key, value) in &records {
                expected.entry(key).or_insert(value);
            }
            let mut sorted = SortedRecords::new(&request, &records);
            let runs = (1..).take_while(|_| !sorted.sort_run()).count() + 1;
            assert_eq!(runs, count.div_ceil(TKRZW_RUN_RECORDS).max(1));
            let mut found = Vec::new();
            while let Some((key, value)) = sorted.peek() {
                found.push((key.to_vec(), value.to_vec()));
                assert!(sorted.peek().is_some(), "it is there until it is passed");
                sorted.pass();
            }
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect();
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}
