//! The metadata of the last request. Most requests that follow have the same, but for the
//! correlation id: what they say is known then, and is not decoded anew.

use crate::limits;

/// The bytes before and behind the correlation id.
#[derive(Debug, Default)]
pub(super) struct KnownMeta {
    bytes: Vec<u8>,
    /// Where the id stands, behind its tag; 0: nothing is known.
    id_at: usize,
}

impl KnownMeta {
    /// Returns the correlation id of metadata that are the same but for that.
    #[inline]
    pub(super) fn correlation_id(&self, meta: &[u8]) -> Option<i64> {
        if self.id_at == 0 {
            return None;
        }
        let (before, after) = self.bytes.split_at_checked(self.id_at)?;
        let id = meta.strip_prefix(before)?.strip_suffix(after)?;
        short_varint(id)
    }

    /// Takes the metadata of a request if they have one correlation id.
    pub(super) fn remember(&mut self, meta: &[u8]) {
        self.forget();
        if meta.len() > limits::FRAMED_KNOWN_META_BYTES {
            return;
        }
        if let Some((start, end)) = id_in(meta) {
            self.bytes.extend_from_slice(&meta[..start]);
            self.bytes.extend_from_slice(&meta[end..]);
            self.id_at = start;
        }
    }

    /// The next request is decoded.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
        self.id_at = 0;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Returns the number that is a varint of these bytes, all of them and at most nine.
#[inline]
fn short_varint(bytes: &[u8]) -> Option<i64> {
    let (last, rest) = bytes.split_last()?;
    if *last >= 0x80 || rest.len() > 8 || rest.iter().any(|byte| *byte < 0x80) {
        return None;
    }
    let shifted = rest.iter().rev();
    let high = i64::from(*last);
    Some(shifted.fold(high, |number, byte| number << 7 | i64::from(byte & 0x7f)))
}

/// Returns where the value of the one field `correlation_id` begins and ends.
fn id_in(meta: &[u8]) -> Option<(usize, usize)> {
    const CORRELATION_ID: u64 = 4;
    let (mut at, mut found) = (0, None);
    while at < meta.len() {
        let tag = varint_at(meta, &mut at)?;
        let start = at;
        let value = varint_at(meta, &mut at)?;
        match tag & 7 {
            0 if tag >> 3 == CORRELATION_ID && found.is_some() => return None,
            0 if tag >> 3 == CORRELATION_ID => found = Some((start, at)),
            0 => {}
            2 => at = at.checked_add(usize::try_from(value).ok()?)?,
            _ => return None,
        }
    }
    found
}

fn varint_at(meta: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0_u64;
    for (place, byte) in meta.get(*at..)?.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            *at += place + 1;
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use protobuf::writer;

    fn meta(id: u64, more: &[u8]) -> Vec<u8> {
        let mut meta = b"\x0a\x04\x0a\x02ab\x18\x00\x20".to_vec();
        writer::varint(&mut meta, id);
        meta.extend_from_slice(more);
        meta
    }

    #[test]
    fn an_id_is_read_where_the_rest_is_the_same() {
        let mut known = KnownMeta::default();
        assert_eq!(known.correlation_id(&meta(7, b"\x50\x00")), None);
        known.remember(&meta(7, b"\x50\x00"));
        for id in [0, 1, 127, 128, 1 << 40, (1 << 63) - 1] {
            let found = known.correlation_id(&meta(id, b"\x50\x00"));
            assert_eq!(found, Some(id as i64));
        }
        // Those of ten bytes are decoded.
        assert_eq!(known.correlation_id(&meta(u64::MAX, b"\x50\x00")), None);
        for other in [
            meta(7, b"\x50\x01"),
            meta(7, b"\x50\x00\x20\x07"),
            meta(7, b""),
            meta(7, b"\x3a\x01x\x50\x00"),
            b"\x20\x07".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(known.correlation_id(&other), None, "{other:02x?}");
        }
        known.forget();
        assert_eq!(known.correlation_id(&meta(7, b"\x50\x00")), None);
    }

    #[test]
    fn metadata_with_no_id_or_two_or_another_form_are_not_known() {
        let mut known = KnownMeta::default();
        for other in [
            b"\x0a\x04\x0a\x02ab".to_vec(),
            meta(7, b"\x20\x08"),
            meta(7, b"\x51\x00\x00\x00\x00\x00\x00\x00\x00"),
            meta(7, &vec![0x50; limits::FRAMED_KNOWN_META_BYTES]),
        ] {
            known.remember(&other);
            assert_eq!(known.correlation_id(&other), None, "{other:02x?}");
        }
    }
}
