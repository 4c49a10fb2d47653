//! How keys are stored: as they are, but for those that consist of zeros alone.
//!
//! The engine takes no empty key. So a key of zeros alone, the empty one among them, gets a zero
//! more. Every other key stays between the same neighbours: where it has its first byte that is not
//! zero, a key of zeros has a zero or its end.

use std::borrow::Cow;
use std::ops::Bound;

use super::limits;
use crate::range::Range;

fn is_zeros(key: &[u8]) -> bool {
    key.iter().all(|&byte| byte == 0)
}

/// As it is stored.
#[inline]
pub(super) fn stored(key: &[u8]) -> Cow<'_, [u8]> {
    if is_zeros(key) {
        Cow::Owned(vec![0; key.len() + 1])
    } else {
        Cow::Borrowed(key)
    }
}

/// As it was given.
#[inline]
pub(super) fn given(stored: &[u8]) -> &[u8] {
    if is_zeros(stored) {
        &stored[..stored.len().saturating_sub(1)]
    } else {
        stored
    }
}

/// An end of a range as it is stored.
pub(super) type StoredBound<'a> = Bound<Cow<'a, [u8]>>;

/// The same of a range. Its ends may be longer than any key.
pub(super) fn stored_range<'a>(range: &Range<'a>) -> (StoredBound<'a>, StoredBound<'a>) {
    (
        shortened(range.start, Bound::Excluded).map(stored),
        shortened(range.end, Bound::Included).map(stored),
    )
}

/// A longer end lies between the longest key that it begins with and whatever comes behind that
/// one: `cut` says on which side that key is.
fn shortened<'a>(
    bound: Bound<&'a [u8]>,
    cut: impl FnOnce(&'a [u8]) -> Bound<&'a [u8]>,
) -> Bound<&'a [u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) if key.len() > limits::KEY_BYTES => {
            cut(&key[..limits::KEY_BYTES])
        }
        bound => bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    fn sample(random: &mut Random) -> Vec<u8> {
        let len = random.below(6);
        (0..len)
            .map(|_| [0, 0, 0, 1, 255][random.below(5)])
            .collect()
    }

    #[test]
    fn long_ends_of_ranges_are_cut_at_the_right_side() {
        let longest = [1; limits::KEY_BYTES];
        let longer = [1; limits::KEY_BYTES + 3];
        let range = Range {
            start: Bound::Included(&longer[..]),
            end: Bound::Included(&longer[..]),
        };
        let (start, end) = stored_range(&range);
        assert_eq!(start, Bound::Excluded(Cow::Borrowed(&longest[..])));
        assert_eq!(end, Bound::Included(Cow::Borrowed(&longest[..])));
        let whole = Range::new(&longest, Some(&longest));
        let (start, end) = stored_range(&whole);
        assert_eq!(start, Bound::Included(Cow::Borrowed(&longest[..])));
        assert_eq!(end, Bound::Excluded(Cow::Borrowed(&longest[..])));
    }

    #[test]
    fn order_and_content_survive() {
        let mut random = Random::new(7);
        for _ in 0..20_000 {
            let (one, two) = (sample(&mut random), sample(&mut random));
            assert!(!stored(&one).is_empty());
            assert_eq!(given(&stored(&one)), one);
            assert_eq!(
                stored(&one).cmp(&stored(&two)),
                one.cmp(&two),
                "{one:?} {two:?}"
            );
        }
    }
}
