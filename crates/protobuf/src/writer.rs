//! Writing: each function appends one field. None of them leaves out defaults by itself except
//! those that say so.
//!
//! A message is written by its description, [`message!`](crate::message!). These functions are for
//! what that cannot do, and take their numbers from the description: elements of a list that are
//! written as they are found, a large value that follows without being copied, so that only its
//! head is written, bytes where the description has text, and bytes that are the same in each
//! message.

use super::{FIELD_NUMBER_MAX, FIXED32, FIXED64, LENGTH_DELIMITED, VARINT};

/// Bytes that `value` takes as a varint: 1 to 10.
#[inline]
pub fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Bytes of a length-delimited field with `length` bytes of content: tag, length and content.
#[inline]
pub fn bytes_len(field: u32, length: usize) -> usize {
    tag_len(field) + varint_len(length as u64) + length
}

/// Bytes of the tag of `field`.
#[inline]
pub fn tag_len(field: u32) -> usize {
    varint_len(u64::from(field) << 3)
}

/// Appends a bare varint, without a tag.
#[inline]
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
fn tag(out: &mut Vec<u8>, field: u32, wire_type: u32) {
    debug_assert!((1..=FIELD_NUMBER_MAX).contains(&field));
    varint(out, u64::from(8 * field + wire_type));
}

/// Appends a `uint64`, `uint32`, enum or non-negative `int` field, also if it is 0.
#[inline]
pub fn uint64_always(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

/// Appends a `uint64`, `uint32`, enum or non-negative `int` field unless it is 0, the default.
#[inline]
pub fn uint64(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        uint64_always(out, field, value);
    }
}

/// Appends an `int32`, `int64` or enum field unless it is 0, the default. Negative numbers take ten
/// bytes.
#[inline]
pub fn int64(out: &mut Vec<u8>, field: u32, value: i64) {
    uint64(out, field, value.cast_unsigned());
}

/// Appends a `sint32` or `sint64` field unless it is 0, the default.
#[inline]
pub fn sint64(out: &mut Vec<u8>, field: u32, value: i64) {
    uint64(out, field, super::zigzag(value));
}

/// Appends a `bool` field if it is true.
#[inline]
pub fn bool(out: &mut Vec<u8>, field: u32, value: bool) {
    uint64(out, field, u64::from(value));
}

/// Appends a `fixed64` field unless it is 0, the default.
#[inline]
pub fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        fixed64_always(out, field, value);
    }
}

/// Appends a `fixed64` field, also if it is 0.
#[inline]
pub fn fixed64_always(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `fixed32` field unless it is 0, the default.
#[inline]
pub fn fixed32(out: &mut Vec<u8>, field: u32, value: u32) {
    if value != 0 {
        fixed32_always(out, field, value);
    }
}

/// Appends a `fixed32` field, also if it is 0.
#[inline]
pub fn fixed32_always(out: &mut Vec<u8>, field: u32, value: u32) {
    tag(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `bytes` or `string` field, also if it is empty.
#[inline]
pub fn bytes_always(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    bytes_head(out, field, value.len());
    out.extend_from_slice(value);
}

/// Appends a `bytes` or `string` field unless it is empty, the default.
#[inline]
pub fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    if !value.is_empty() {
        bytes_always(out, field, value);
    }
}

/// Appends tag and length of a field whose `length` bytes of content the caller appends next, or
/// sends after `out`.
#[inline]
pub fn bytes_head(out: &mut Vec<u8>, field: u32, length: usize) {
    tag(out, field, LENGTH_DELIMITED);
    varint(out, length as u64);
}

/// Appends an embedded message, which `encode` writes; its length need not be known beforehand.
///
/// One byte is left for the length, as most messages are shorter than 128 bytes; a longer one is
/// moved on.
#[inline]
pub fn message(out: &mut Vec<u8>, field: u32, encode: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, LENGTH_DELIMITED);
    let length_at = out.len();
    out.push(0);
    encode(out);
    let length = out.len() - length_at - 1;
    if length < 0x80 {
        out[length_at] = length as u8;
    } else {
        widen_length(out, length_at, length);
    }
}

#[cold]
fn widen_length(out: &mut Vec<u8>, length_at: usize, length: usize) {
    let width = varint_len(length as u64);
    out.resize(out.len() + width - 1, 0);
    out.copy_within(length_at + 1..length_at + 1 + length, length_at + width);
    let mut rest = length;
    for byte in &mut out[length_at..length_at + width - 1] {
        *byte = rest as u8 | 0x80;
        rest >>= 7;
    }
    out[length_at + width - 1] = rest as u8;
}

#[cfg(test)]
mod tests {
    use super::super::{FieldValue, Reader, unzigzag, zigzag};
    use super::*;

    #[test]
    fn varint_len_agrees_with_varint() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
            }
        }
    }

    #[test]
    fn an_embedded_message_is_found_again_at_every_length() {
        for length in [0, 1, 127, 128, 129, 16_383, 16_384, 70_000] {
            let inside = vec![7_u8; length];
            let mut out = b"before".to_vec();
            message(&mut out, 3, |out| out.extend_from_slice(&inside));
            assert_eq!(out.len() - 6, bytes_len(3, length));
            let mut reader = Reader::new(&out[6..]);
            assert_eq!(
                reader.next_field(),
                Ok(Some((3, FieldValue::Bytes(&inside))))
            );
            assert_eq!(reader.next_field(), Ok(None));
            assert_eq!(&out[..6], b"before");
        }
    }

    #[test]
    fn zigzag_and_back() {
        for value in [0, 1, -1, 2, -2, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!(zigzag(-1), 1);
        assert_eq!(zigzag(i64::MIN), u64::MAX);
    }

    #[test]
    fn numbers_of_fixed_width_have_their_lowest_byte_first() {
        let mut out = Vec::new();
        fixed32(&mut out, 1, 0x0403_0201);
        fixed64(&mut out, 2, 0x0807_0605_0403_0201);
        assert_eq!(out, [0x0d, 1, 2, 3, 4, 0x11, 1, 2, 3, 4, 5, 6, 7, 8]);
        out.clear();
        fixed32_always(&mut out, 3, 0);
        assert_eq!(out, [0x1d, 0, 0, 0, 0]);
    }

    #[test]
    fn defaults_are_left_out() {
        let mut out = Vec::new();
        uint64(&mut out, 1, 0);
        int64(&mut out, 1, 0);
        sint64(&mut out, 1, 0);
        bool(&mut out, 1, false);
        fixed32(&mut out, 1, 0);
        fixed64(&mut out, 1, 0);
        bytes(&mut out, 1, b"");
        assert!(out.is_empty());
        bytes_always(&mut out, 1, b"");
        uint64_always(&mut out, 2, 0);
        assert_eq!(out, [0x0a, 0x00, 0x10, 0x00]);
    }
}
