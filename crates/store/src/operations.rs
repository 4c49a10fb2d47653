//! The operations of a write batch: fixed-size records, and the payload in which their bytes lie.

use std::ops::Range;

use bytes::Bytes;

use crate::limits;
use crate::operation::TransactList;
use crate::payload::{Payload, PayloadMark};
use crate::record::{OperationParts, OperationRecord};
use crate::value::Value;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    records: Vec<OperationRecord>,
    payload: Payload,
}

/// An end of the operations, at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationsEnd {
    records: usize,
    payload: PayloadMark,
}

impl Operations {
    /// Returns how many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the bytes of their keys and values.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len()
    }

    /// Returns the bytes that they take: of many short ones, the records take most.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.payload.len() + self.records.len() * size_of::<OperationRecord>()
    }

    /// Returns where they end now.
    #[inline]
    pub(crate) fn end(&self) -> OperationsEnd {
        OperationsEnd {
            records: self.records.len(),
            payload: self.payload.end(),
        }
    }

    /// Adds one. The lengths of its parts fit in 32 bits. A large value that is nearly all of the
    /// `message` in which it lies is kept there.
    #[inline]
    pub(crate) fn push(
        &mut self,
        parts: &OperationParts<'_>,
        hash: u64,
        list: TransactList,
        message: Option<&Bytes>,
    ) -> &OperationRecord {
        let place = (self.payload).push(parts.key, parts.value, parts.expected, message);
        self.records.push(OperationRecord {
            hash,
            place,
            action: parts.action,
            check: parts.check,
            list,
            want_previous: parts.want_previous,
        });
        &self.records[self.records.len() - 1]
    }

    /// Takes back what was added behind an end.
    pub(crate) fn truncate(&mut self, end: OperationsEnd) {
        self.records.truncate(end.records);
        self.payload.truncate(end.payload);
    }

    /// Moves those from `first` on into `rest`, which is empty.
    pub(crate) fn split_off(&mut self, first: usize, rest: &mut Operations) {
        let places = self.records[first..].iter();
        let mark = (self.payload).mark_before(places.map(|operation| operation.place));
        let moved = |operation: OperationRecord| OperationRecord {
            place: operation.place.moved_before(mark),
            ..operation
        };
        rest.records.extend(self.records.drain(first..).map(moved));
        rest.payload = self.payload.split_off(mark);
    }

    /// Takes over all of others, behind its own.
    pub(crate) fn append(&mut self, other: &mut Operations) {
        let end = self.payload.end();
        let moved = |operation: OperationRecord| OperationRecord {
            place: operation.place.moved_behind(end),
            ..operation
        };
        self.records.extend(other.records.drain(..).map(moved));
        self.payload.append(&mut other.payload);
    }

    /// Adds some of others behind its own, which stay there.
    pub(crate) fn append_some(&mut self, other: &Operations, places: Range<usize>) {
        for operation in &other.records[places] {
            let place = (self.payload).append_part(&other.payload, operation.place);
            self.records.push(OperationRecord {
                place,
                ..*operation
            });
        }
    }

    /// Forgets all, and keeps a little memory.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.payload.clear();
        self.records
            .shrink_to(limits::KEPT_BYTES / size_of::<OperationRecord>());
    }

    /// Returns the operation at a place.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> &OperationRecord {
        &self.records[place]
    }

    /// Returns the last one.
    pub(crate) fn last(&self) -> Option<&OperationRecord> {
        self.records.last()
    }

    /// Returns the hashes of the keys of some, of which the last need not exist.
    pub(crate) fn hashes(&self, places: Range<usize>) -> impl Iterator<Item = u64> {
        let end = places.end.min(self.records.len());
        self.records[places.start..end]
            .iter()
            .map(|operation| operation.hash)
    }

    /// Returns the key of an operation.
    #[inline]
    pub(crate) fn key(&self, operation: &OperationRecord) -> &[u8] {
        self.payload.key(operation.place)
    }

    /// Returns the value of an operation.
    #[inline]
    pub(crate) fn value(&self, operation: &OperationRecord) -> Value<'_> {
        self.payload.value(operation.place)
    }

    /// Returns the value that an operation expects.
    #[inline]
    pub(crate) fn expected_value(&self, operation: &OperationRecord) -> &[u8] {
        self.payload.expected_value(operation.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Action, Check};

    fn push(operations: &mut Operations, key: &[u8], value: &[u8]) {
        let parts = OperationParts {
            key,
            value,
            expected: b"expected",
            action: Action::Get,
            check: Check::None,
            want_previous: false,
        };
        operations.push(&parts, key.len() as u64, TransactList::Compares, None);
    }

    fn keys(operations: &Operations) -> Vec<Vec<u8>> {
        let all = (0..operations.len()).map(|place| operations.get(place));
        all.map(|operation| {
            assert_eq!(operations.expected_value(operation), b"expected");
            operations.key(operation).to_vec()
        })
        .collect()
    }

    #[test]
    fn what_was_split_off_and_appended_keeps_its_bytes() {
        let large = vec![7; limits::SHARED_VALUE_BYTES];
        let (mut first, mut second) = (Operations::default(), Operations::default());
        for _ in 0..2 {
            for key in [&b"a"[..], b"bb", b"ccc", b"dddd"] {
                push(
                    &mut first,
                    key,
                    if key.len() % 2 == 0 { &large } else { key },
                );
            }
            let bytes = first.bytes();
            first.split_off(1, &mut second);
            assert_eq!(keys(&first), [b"a".to_vec()]);
            assert_eq!(second.value(second.get(0)).bytes(), large);
            assert_eq!(first.bytes() + second.bytes(), bytes);
            first.append(&mut second);
            assert_eq!((first.bytes(), second.len(), second.bytes()), (bytes, 0, 0));
            assert_eq!(first.value(first.get(3)).bytes(), large);
            assert_eq!(first.hashes(1..9).collect::<Vec<_>>(), [2, 3, 4]);
            first.clear();
            assert_eq!((first.len(), first.bytes()), (0, 0));
        }
    }

    #[test]
    fn what_is_taken_back_leaves_what_was_before() {
        let mut operations = Operations::default();
        push(&mut operations, b"key", b"value");
        let (end, bytes) = (operations.end(), operations.bytes());
        push(&mut operations, b"other", b"value");
        operations.truncate(end);
        assert_eq!(
            (keys(&operations), operations.bytes()),
            (vec![b"key".to_vec()], bytes)
        );
    }
}
