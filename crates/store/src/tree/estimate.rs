//! About how many entries a range has: from what is known of tables without reading them.

use std::ops::Bound;

use lsm_tree::Table;

use super::key::stored_range;
use crate::range::Range;

/// About how many entries tables hold in a range. Memtables are left out: they are bounded, and
/// hardly count where an exact number takes long.
pub(super) fn entries<'a>(tables: impl Iterator<Item = &'a Table>, range: &Range<'_>) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let share_of = |table: &Table| {
        let meta = &table.metadata;
        let live = meta.item_count.saturating_sub(meta.tombstone_count);
        let keys = &meta.key_range;
        (live as f64 * share(keys.min(), keys.max(), range)) as u64
    };
    tables.map(share_of).sum()
}

/// Which share of what lies between two keys lies in a range, if keys are spread evenly over the
/// kinds of bytes that these two have.
fn share(min: &[u8], max: &[u8], range: &Range<'_>) -> f64 {
    let same = min.iter().zip(max).take_while(|(one, other)| one == other);
    let same = same.count();
    let digits = Digits::of(&min[same..], &max[same..]);
    let place = |key: &[u8]| digits.fraction(&key[same.min(key.len())..]);
    let (low, high) = (place(min), place(max));
    let within = |key: &[u8]| match key {
        key if key < min => low,
        key if key > max => high,
        key => place(key),
    };
    let (start, end) = stored_range(range);
    let start = match &start {
        Bound::Included(key) | Bound::Excluded(key) => within(key),
        Bound::Unbounded => low,
    };
    let end = match &end {
        Bound::Included(key) | Bound::Excluded(key) => within(key),
        Bound::Unbounded => high,
    };
    if low >= high {
        // One key, or keys that differ far behind: all or nothing.
        return f64::from(u8::from(overlaps(min, max, range)));
    }
    ((end - start) / (high - low)).clamp(0.0, 1.0)
}

/// The bytes that keys are made of, as digits of a number.
struct Digits {
    lowest: u8,
    base: f64,
}

impl Digits {
    /// From the bytes of two keys: where there is a figure or letter, all of its kind are there.
    fn of(one: &[u8], other: &[u8]) -> Digits {
        let (mut lowest, mut highest) = (u8::MAX, 0);
        for &byte in one.iter().chain(other) {
            let (first, last) = match byte {
                b'0'..=b'9' => (b'0', b'9'),
                b'a'..=b'z' => (b'a', b'z'),
                b'A'..=b'Z' => (b'A', b'Z'),
                byte => (byte, byte),
            };
            lowest = lowest.min(first);
            highest = highest.max(last);
        }
        Digits {
            lowest,
            base: f64::from(highest.saturating_sub(lowest)) + 1.0,
        }
    }

    /// Bytes as digits behind a point.
    fn fraction(&self, bytes: &[u8]) -> f64 {
        let mut worth = 1.0;
        let digits = bytes.iter().take(SIGNIFICANT_BYTES).map(|&byte| {
            worth /= self.base;
            let digit = f64::from(byte.saturating_sub(self.lowest));
            worth * digit.min(self.base - 1.0)
        });
        digits.sum()
    }
}

/// Bytes of a key that are looked at: more do not change a number with 53 binary digits.
const SIGNIFICANT_BYTES: usize = 16;

fn overlaps(min: &[u8], max: &[u8], range: &Range<'_>) -> bool {
    let (start, end) = stored_range(range);
    let begins = match &start {
        Bound::Included(key) => **key <= *max,
        Bound::Excluded(key) => **key < *max,
        Bound::Unbounded => true,
    };
    let ends = match &end {
        Bound::Included(key) => **key >= *min,
        Bound::Excluded(key) => **key > *min,
        Bound::Unbounded => true,
    };
    begins && ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(min: &str, max: &str, start: &str, end: &str) -> f64 {
        let end = (!end.is_empty()).then_some(end.as_bytes());
        let range = Range::new(start.as_bytes(), end);
        share(min.as_bytes(), max.as_bytes(), &range)
    }

    #[test]
    fn shares_are_about_right() {
        let cases = [
            ("a", "k", "", "", 1.0),
            ("a", "k", "f", "", 0.5),
            ("a", "k", "", "f", 0.5),
            ("a", "k", "l", "", 0.0),
            ("a", "k", "", "a", 0.0),
            ("a", "k", "c", "e", 0.2),
            ("key-0000", "key-9999", "key-5", "key-6", 0.1),
            ("key-0000", "key-9999", "a", "z", 1.0),
            ("key-00000", "key-19999", "key-10000", "", 0.5),
            ("key-00000", "key-19999", "key-10000", "key-15000", 0.25),
            ("key-0000", "key-9999", "key-99990", "", 0.0),
            ("b", "b", "a", "c", 1.0),
            ("b", "b", "c", "d", 0.0),
            ("b", "b", "b", "c", 1.0),
            ("b", "b", "a", "b", 0.0),
        ];
        for (min, max, start, end, expected) in cases {
            let found = shared(min, max, start, end);
            assert!(
                (found - expected).abs() < 0.02,
                "{min} {max} {start} {end}: {found}"
            );
        }
    }
}
