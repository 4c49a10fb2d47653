//! Integers with a prefix of N bits. RFC 7541 section 5.1.

/// No length, index or table size of HPACK comes near this, and with it nothing that is added up
/// can overflow. It is also what bounds the bytes of one integer: four beyond the prefix.
const MAX: u32 = 1 << 28;

/// Why an integer could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntegerError {
    /// The block ends inside the integer.
    Truncated,
    /// The integer is longer or larger than anything HPACK needs.
    TooLarge,
}

/// Reads the integer whose first byte is `first`, of which the low `prefix_bits` belong to it. What
/// follows the first byte is taken from the front of `rest`.
#[inline]
pub(super) fn decode(first: u8, prefix_bits: u32, rest: &mut &[u8]) -> Result<usize, IntegerError> {
    let all_ones = (1u8 << prefix_bits) - 1;
    let value = first & all_ones;
    if value < all_ones {
        return Ok(usize::from(value));
    }
    decode_long(u32::from(all_ones), rest)
}

fn decode_long(prefix: u32, rest: &mut &[u8]) -> Result<usize, IntegerError> {
    let mut value = prefix;
    for shift in [0, 7, 14, 21] {
        let (&byte, after) = rest.split_first().ok_or(IntegerError::Truncated)?;
        *rest = after;
        value += u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return if value < MAX {
                Ok(value as usize)
            } else {
                Err(IntegerError::TooLarge)
            };
        }
    }
    Err(IntegerError::TooLarge)
}

/// Appends `value` with a prefix of `prefix_bits`; `flags` are the bits of the first byte above the
/// prefix.
pub(super) fn encode(value: usize, prefix_bits: u32, flags: u8, out: &mut Vec<u8>) {
    let all_ones = (1usize << prefix_bits) - 1;
    if value < all_ones {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | all_ones as u8);
    let mut rest = value - all_ones;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(prefix_bits: u32, bytes: &[u8]) -> Result<usize, IntegerError> {
        let mut rest = &bytes[1..];
        let value = decode(bytes[0], prefix_bits, &mut rest)?;
        assert!(rest.is_empty(), "bytes left over in {bytes:?}");
        Ok(value)
    }

    #[test]
    fn examples_of_appendix_c1() {
        assert_eq!(decoded(5, &[0b000_01010]), Ok(10));
        assert_eq!(
            decoded(5, &[0b000_11111, 0b1001_1010, 0b0000_1010]),
            Ok(1337)
        );
        assert_eq!(decoded(8 - 1, &[42]), Ok(42));
    }

    #[test]
    fn every_value_comes_back_with_every_prefix() {
        for prefix_bits in 4..=7 {
            for value in (0..5000).chain([1 << 14, (1 << 21) - 1, 1 << 21, (1 << 28) - 1]) {
                let mut bytes = Vec::new();
                encode(value, prefix_bits, 0, &mut bytes);
                assert_eq!(decoded(prefix_bits, &bytes), Ok(value));
            }
        }
    }

    #[test]
    fn truncated_and_endless_integers_are_errors() {
        assert_eq!(decoded(5, &[0x1f]), Err(IntegerError::Truncated));
        assert_eq!(
            decoded(5, &[0x1f, 0xff, 0xff]),
            Err(IntegerError::Truncated)
        );
        assert_eq!(
            decoded(5, &[0x1f, 0xff, 0xff, 0xff, 0x7f]),
            Err(IntegerError::TooLarge)
        );
        assert_eq!(
            decoded(5, &[0x1f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00]),
            Err(IntegerError::TooLarge)
        );
    }
}
