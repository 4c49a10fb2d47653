//! The keys and values of a write batch, in one piece but for large values, which lie by
//! themselves.
//!
//! A large value is copied once, into the form in which an index keeps it: whoever stores it takes
//! a reference. The rest of a batch stays small, so that adding to it moves little.

use crate::limits;
use crate::value::Value;
use bytes::Bytes;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    bytes: Vec<u8>,
    /// Values of [`limits::SHARED_VALUE_BYTES`] and more, in the order of their operations.
    large: Vec<Bytes>,
    /// Of all large values.
    large_bytes: usize,
}

/// Where the key, the value and the expected value of an operation lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadPlace {
    start: usize,
    key_len: u32,
    value_len: u32,
    expected_len: u32,
    /// The place among the large values, if it is one.
    large: Option<u32>,
}

/// An end of a payload, at some time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PayloadMark {
    bytes: usize,
    large: usize,
}

impl Payload {
    /// How many bytes of keys and values there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.large_bytes
    }

    /// Adds what belongs to an operation. Lengths fit into 32 bits.
    ///
    /// A large value that is nearly all of the `message` in which it lies is kept there.
    #[inline]
    pub(crate) fn push(
        &mut self,
        key: &[u8],
        value: &[u8],
        expected: &[u8],
        message: Option<&Bytes>,
    ) -> PayloadPlace {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let large = self.push_value(value, message);
        self.bytes.extend_from_slice(expected);
        PayloadPlace {
            start,
            key_len: key.len() as u32,
            value_len: value.len() as u32,
            expected_len: expected.len() as u32,
            large,
        }
    }

    #[inline]
    fn push_value(&mut self, value: &[u8], message: Option<&Bytes>) -> Option<u32> {
        if value.len() < limits::SHARED_VALUE_BYTES {
            self.bytes.extend_from_slice(value);
            return None;
        }
        Some(self.push_large(value, message))
    }

    /// Out of line: the way of small values is to stay short.
    #[inline(never)]
    fn push_large(&mut self, value: &[u8], message: Option<&Bytes>) -> u32 {
        let kept = message.and_then(|message| kept_in(message, value));
        let shared = kept.unwrap_or_else(|| Bytes::copy_from_slice(value));
        self.large.push(shared);
        self.large_bytes += value.len();
        self.large.len() as u32 - 1
    }

    #[inline]
    pub(crate) fn key(&self, place: PayloadPlace) -> &[u8] {
        &self.bytes[place.start..][..place.key_len as usize]
    }

    #[inline]
    pub(crate) fn value(&self, place: PayloadPlace) -> Value<'_> {
        match place.large {
            Some(large) => Value::Shared(&self.large[large as usize]),
            None => {
                let start = place.start + place.key_len as usize;
                Value::Inline(&self.bytes[start..][..place.value_len as usize])
            }
        }
    }

    #[inline]
    pub(crate) fn expected_value(&self, place: PayloadPlace) -> &[u8] {
        let value_len = match place.large {
            Some(_) => 0,
            None => place.value_len as usize,
        };
        let start = place.start + place.key_len as usize + value_len;
        &self.bytes[start..][..place.expected_len as usize]
    }

    #[inline]
    pub(crate) fn end(&self) -> PayloadMark {
        PayloadMark {
            bytes: self.bytes.len(),
            large: self.large.len(),
        }
    }

    /// Takes back what was added since its end was at `mark`.
    pub(crate) fn truncate(&mut self, mark: PayloadMark) {
        self.bytes.truncate(mark.bytes);
        let gone = self.large.drain(mark.large..);
        self.large_bytes -= gone.map(|value| value.len()).sum::<usize>();
    }

    /// Adds all of another payload. Its places are then to be [`moved`](PayloadPlace::moved_behind)
    /// behind the end before.
    pub(crate) fn append(&mut self, other: &mut Payload) {
        self.bytes.append(&mut other.bytes);
        self.large.append(&mut other.large);
        self.large_bytes += std::mem::take(&mut other.large_bytes);
    }

    /// Adds what another payload has at a place: small parts are copied, a large value is shared.
    /// Returns where it lies.
    pub(crate) fn append_part(&mut self, other: &Payload, place: PayloadPlace) -> PayloadPlace {
        let start = self.bytes.len();
        let part = &other.bytes[place.start..][..place.own_bytes()];
        self.bytes.extend_from_slice(part);
        let large = place.large.map(|large| {
            let value = other.large[large as usize].clone();
            self.large_bytes += value.len();
            self.large.push(value);
            self.large.len() as u32 - 1
        });
        PayloadPlace {
            start,
            large,
            ..place
        }
    }

    /// Moves what lies behind `mark` into another payload. Its places are then to be
    /// [`moved`](PayloadPlace::moved_before).
    pub(crate) fn split_off(&mut self, mark: PayloadMark) -> Payload {
        let large = self.large.split_off(mark.large);
        let large_bytes = large.iter().map(|value| value.len()).sum();
        self.large_bytes -= large_bytes;
        Payload {
            bytes: self.bytes.split_off(mark.bytes),
            large,
            large_bytes,
        }
    }

    /// Where the first of some operations begins, whose places are given in order.
    pub(crate) fn mark_before(
        &self,
        places: impl Iterator<Item = PayloadPlace> + Clone,
    ) -> PayloadMark {
        let first = places.clone().next();
        let first_large = places.filter_map(|place| place.large).next();
        PayloadMark {
            bytes: first.map_or(self.bytes.len(), |place| place.start),
            large: first_large.map_or(self.large.len(), |large| large as usize),
        }
    }

    /// Forgets everything, and keeps a little memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(limits::KEPT_BYTES);
        self.large.clear();
        (self.large).shrink_to(limits::KEPT_BYTES / limits::SHARED_VALUE_BYTES);
        self.large_bytes = 0;
    }
}

/// The value where it lies in a message, unless that holds much beside it: that would stay as long
/// as the value does.
fn kept_in(message: &Bytes, value: &[u8]) -> Option<Bytes> {
    let (whole, part) = (message.as_ptr_range(), value.as_ptr_range());
    let is_part = whole.start <= part.start && part.end <= whole.end;
    let beside = message.len().checked_sub(value.len())?;
    let is_most = beside <= value.len() / limits::KEPT_BESIDE_VALUE_PART;
    (is_part && is_most).then(|| message.slice_ref(value))
}

impl PayloadPlace {
    /// Bytes of it that do not lie by themselves.
    fn own_bytes(self) -> usize {
        let value_len = match self.large {
            Some(_) => 0,
            None => self.value_len as usize,
        };
        self.key_len as usize + value_len + self.expected_len as usize
    }

    /// The same in a payload to whose end, then at `mark`, this one was appended.
    #[inline]
    pub(crate) fn moved_behind(self, mark: PayloadMark) -> PayloadPlace {
        PayloadPlace {
            start: self.start + mark.bytes,
            large: self.large.map(|large| large + mark.large as u32),
            ..self
        }
    }

    /// The same in what was split off at `mark`.
    #[inline]
    pub(crate) fn moved_before(self, mark: PayloadMark) -> PayloadPlace {
        PayloadPlace {
            start: self.start - mark.bytes,
            large: self.large.map(|large| large - mark.large as u32),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = limits::SHARED_VALUE_BYTES;

    /// Key, value and expected value of an operation with a large value or a small one.
    fn parts(number: u8, is_large: bool) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let value_len = if is_large { LARGE } else { LARGE - 1 };
        let size = usize::from(number);
        (
            vec![number; size],
            vec![number; value_len],
            vec![!number; size],
        )
    }

    /// Adds operations, large where the bit is set; returns their places.
    fn filled(payload: &mut Payload, first: u8, count: u8, large: u8) -> Vec<PayloadPlace> {
        let add = |bit: u8| {
            let (key, value, expected) = parts(first + bit, large >> bit & 1 == 1);
            payload.push(&key, &value, &expected, None)
        };
        (0..count).map(add).collect()
    }

    fn check(payload: &Payload, places: &[PayloadPlace], first: u8, large: u8) {
        for (bit, &place) in (0..).zip(places) {
            let (key, value, expected) = parts(first + bit, large >> bit & 1 == 1);
            assert_eq!(payload.key(place), key);
            assert_eq!(payload.value(place).bytes(), value);
            assert_eq!(payload.expected_value(place), expected);
            let is_shared = matches!(payload.value(place), Value::Shared(_));
            assert_eq!(is_shared, value.len() == LARGE);
        }
    }

    fn length(places: &[PayloadPlace]) -> usize {
        let bytes = |place: &PayloadPlace| place.key_len + place.value_len + place.expected_len;
        places.iter().map(|place| bytes(place) as usize).sum()
    }

    #[test]
    fn what_is_split_off_and_appended_again_stays_what_it_was() {
        for large in 0..16 {
            for at in 0..=4 {
                let mut payload = Payload::default();
                let mut places = filled(&mut payload, 1, 4, large);
                for round in 0..2 {
                    let mark = payload.mark_before(places[at..].iter().copied());
                    let mut rest = payload.split_off(mark);
                    let kept = places[..at].to_vec();
                    let moved = places.drain(at..).map(|place| place.moved_before(mark));
                    let moved: Vec<_> = moved.collect();
                    check(&payload, &kept, 1, large);
                    check(&rest, &moved, 1 + at as u8, large >> at);
                    assert_eq!((payload.len(), rest.len()), (length(&kept), length(&moved)));
                    let mark = payload.end();
                    payload.append(&mut rest);
                    places.extend(moved.iter().map(|place| place.moved_behind(mark)));
                    check(&payload, &places, 1, large);
                    assert_eq!((payload.len(), rest.len()), (length(&places), 0), "{round}");
                }
            }
        }
    }

    #[test]
    fn parts_that_are_added_one_by_one_are_what_they_were() {
        for large in 0..16 {
            let (mut payload, mut other) = (Payload::default(), Payload::default());
            let places = filled(&mut payload, 1, 4, large);
            for round in 0..2 {
                let added: Vec<_> = (places.iter())
                    .map(|&place| other.append_part(&payload, place))
                    .collect();
                check(&other, &added, 1, large);
                assert_eq!(other.len(), (round + 1) * payload.len());
                check(&payload, &places, 1, large);
            }
            other.clear();
            assert_eq!(other.len(), 0);
        }
    }

    /// A message with `before` bytes, a value and `behind` bytes.
    fn message(before: usize, value_len: usize, behind: usize) -> Bytes {
        let bytes = |at| at as u8;
        (0..before + value_len + behind).map(bytes).collect()
    }

    #[test]
    fn a_value_that_is_most_of_its_message_is_kept_there() {
        let spare = LARGE / limits::KEPT_BESIDE_VALUE_PART;
        let shapes = [
            (0, LARGE, 0, true),
            (spare - 7, LARGE, 7, true),
            (spare - 7, LARGE, 8, false),
            (1, LARGE - 1, 0, false),
            (10, LARGE, LARGE, false),
        ];
        let mut payload = Payload::default();
        for (before, value_len, behind, is_kept) in [shapes, shapes].concat() {
            let message = message(before, value_len, behind);
            let value = &message[before..][..value_len];
            let mark = payload.end();
            let place = payload.push(b"key", value, b"", Some(&message));
            assert_eq!(payload.value(place).bytes(), value);
            let is_there = payload.value(place).bytes().as_ptr() == value.as_ptr();
            assert_eq!(is_there, is_kept, "{before}, {value_len}, {behind}");
            assert_eq!(message.is_unique(), !is_kept);
            payload.truncate(mark);
            assert!(message.is_unique(), "it is let go of");
        }
    }

    #[test]
    fn a_value_that_does_not_lie_in_the_message_is_copied() {
        let (message, other) = (message(0, LARGE + 1, 0), message(1, LARGE, 0));
        let mut payload = Payload::default();
        for value in [&other[1..], &other[..LARGE]] {
            let place = payload.push(b"key", value, b"", Some(&message));
            assert_eq!(payload.value(place).bytes(), value);
        }
        assert!(message.is_unique() && other.is_unique());
    }

    #[test]
    fn what_is_taken_back_leaves_nothing_twice() {
        let mut payload = Payload::default();
        let kept = filled(&mut payload, 1, 2, 0b10);
        for large in [0, 0b01, 0b10, 0b11] {
            let (mark, before) = (payload.end(), payload.len());
            let places = filled(&mut payload, 9, 2, large);
            assert_eq!(payload.len(), before + length(&places));
            payload.truncate(mark);
            assert_eq!(payload.len(), before);
            check(&payload, &kept, 1, 0b10);
        }
        payload.clear();
        assert_eq!((payload.len(), payload.large.len()), (0, 0));
    }
}
