//! What is stored of an entry, in either form.
//!
//! `linearizable`: columns `value`, `version`, `expires_ms`, `bytes`. Paxos gives all cells of a
//! write one ballot, so cells of two writes never mix, and a condition can name the version.
//!
//! `quorum`: two cells. `head` is the version, the expiry and the length of the value (8 bytes
//! each, big-endian); `entry` is the version and the value. The last write wins cell by cell there,
//! and two gateways can write with the same timestamp. Of two such cells one that expires wins over
//! one that does not, of two that expire the one that does so later, and then the larger bytes win.
//! Both cells of a write expire together and begin with the version, so all nodes agree on one of
//! the two writes as a whole.

use bytes::Bytes;
use store::remote::RemoteEntry;

use crate::limits;

/// Bytes of a cell `head`.
const HEAD_BYTES: usize = 24;

/// Bytes before the value in a cell `entry`.
const VERSION_BYTES: usize = 8;

/// What is known of an entry without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHead {
    /// The version of its last write; never 0.
    pub version: u64,
    /// Milliseconds since 1970 from which on it counts as absent; 0: never.
    pub expires_ms: u64,
    /// Bytes of its value.
    pub value_bytes: u64,
}

impl EntryHead {
    /// Whether it counts as absent.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        is_expired(self.expires_ms, now_ms)
    }
}

/// Whether an entry with this expiry (0: none) counts as absent.
pub fn is_expired(expires_ms: u64, now_ms: u64) -> bool {
    expires_ms != 0 && now_ms >= expires_ms
}

/// A row is not one that this program has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// A cell is missing.
    #[error("a row has no {0}")]
    Missing(&'static str),
    /// A cell has another length than it can have.
    #[error("a cell `{name}` has {bytes} bytes")]
    Length {
        /// Its column.
        name: &'static str,
        /// Its bytes.
        bytes: usize,
    },
    /// The cells are of two writes.
    #[error("the cells of a row are of two writes")]
    TwoWrites,
}

/// Returns the cells `head` and `entry` of an entry of a database with the promise `quorum`.
pub fn encode_cells(version: u64, expires_ms: u64, value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    for number in [version, expires_ms, value.len() as u64] {
        head.extend_from_slice(&number.to_be_bytes());
    }
    let mut entry = Vec::with_capacity(VERSION_BYTES + value.len());
    entry.extend_from_slice(&version.to_be_bytes());
    entry.extend_from_slice(value);
    (head, entry)
}

/// Returns what a cell `head` says.
///
/// # Errors
///
/// If the cell has another length.
pub fn decode_head(head: &[u8]) -> Result<EntryHead, EntryError> {
    let error = EntryError::Length {
        name: "head",
        bytes: head.len(),
    };
    let mut numbers = head.chunks_exact(8).map(big_endian);
    let mut number = || numbers.next().ok_or(error);
    let (version, expires_ms, value_bytes) = (number()?, number()?, number()?);
    if head.len() != HEAD_BYTES {
        return Err(error);
    }
    Ok(EntryHead {
        version,
        expires_ms,
        value_bytes,
    })
}

/// Returns the entry of a row of a database with the promise `quorum`.
///
/// # Errors
///
/// If the cells are not those of one write.
pub fn decode_cells(head: &[u8], entry: &Bytes, is_alone: bool) -> Result<RemoteEntry, EntryError> {
    let EntryHead {
        version,
        expires_ms,
        ..
    } = decode_head(head)?;
    let error = EntryError::Length {
        name: "entry",
        bytes: entry.len(),
    };
    let own_version = entry.get(..VERSION_BYTES).ok_or(error)?;
    if big_endian(own_version) != version {
        return Err(EntryError::TwoWrites);
    }
    Ok(RemoteEntry {
        value: kept_value(entry, VERSION_BYTES, is_alone),
        version,
        expires_ms,
    })
}

/// Returns a value to be kept, without the first bytes of its cell. One that is small, or not alone
/// in the answer of the node, is copied: as a part of that answer it would hold all of it.
pub fn kept_value(cell: &Bytes, skip: usize, is_alone: bool) -> Bytes {
    let Some(value) = cell.get(skip..) else {
        return Bytes::new();
    };
    if !is_alone || value.len() < limits::SHARED_VALUE_BYTES {
        return Bytes::copy_from_slice(value);
    }
    cell.slice(skip..)
}

fn big_endian(bytes: &[u8]) -> u64 {
    let push = |number: u64, &byte: &u8| (number << 8) | u64::from(byte);
    bytes.iter().fold(0, push)
}

/// Returns the time to live that the engine is given, in seconds; 0: none.
///
/// It is longer than what is left ([`limits::EXPIRY_MARGIN_S`]), as readers go by the expiry in the
/// row, and the row must be there until then. What the engine cannot express gets none.
pub fn engine_ttl_s(now_ms: u64, expires_ms: u64) -> i32 {
    if expires_ms == 0 {
        return 0;
    }
    let left_s = expires_ms.saturating_sub(now_ms).div_ceil(1000);
    let ttl_s = left_s.saturating_add(limits::EXPIRY_MARGIN_S);
    let end_s = ttl_s.saturating_add(now_ms.div_ceil(1000));
    if end_s > limits::EXPIRY_MAX_S {
        return 0;
    }
    i32::try_from(ttl_s).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use testkit::Random;

    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;

    #[test]
    fn an_entry_comes_back_as_it_was_encoded() {
        let mut random = Random::new(4);
        for _ in 0..1000 {
            let (version, expires_ms) = (random.number(), random.number());
            let value = random.bytes(100, |random| random.below(256_u32) as u8);
            let (head, entry) = encode_cells(version, expires_ms, &value);
            let value_bytes = value.len() as u64;
            let expected = EntryHead {
                version,
                expires_ms,
                value_bytes,
            };
            assert_eq!(decode_head(&head), Ok(expected));
            let found = decode_cells(&head, &Bytes::from(entry), false).unwrap();
            assert_eq!((found.version, found.expires_ms), (version, expires_ms));
            assert_eq!(found.value, value);
        }
    }

    #[test]
    fn of_two_writes_with_one_timestamp_both_cells_of_the_later_version_are_larger() {
        let mut random = Random::new(5);
        for _ in 0..1000 {
            let version = random.number() >> 1;
            let mut cells = |version| encode_cells(version, random.number(), &[random.below(9_u8)]);
            let (older, newer) = (cells(version), cells(version + 1));
            assert!(newer.0 > older.0 && newer.1 > older.1);
        }
    }

    #[test]
    fn cells_of_other_lengths_are_errors() {
        let (head, entry) = encode_cells(7, 0, b"value");
        for bytes in (0..HEAD_BYTES).chain([HEAD_BYTES + 1]) {
            let mut wrong = head.clone();
            wrong.resize(bytes, 0);
            let name = "head";
            assert_eq!(decode_head(&wrong), Err(EntryError::Length { name, bytes }));
        }
        let short = Bytes::from(entry[..7].to_vec());
        assert!(decode_cells(&head, &short, false).is_err());
        let (other, _) = encode_cells(8, 0, b"value");
        let found = decode_cells(&other, &Bytes::from(entry), false);
        assert_eq!(found, Err(EntryError::TwoWrites));
    }

    #[test]
    fn only_a_large_value_that_is_alone_holds_the_answer_that_brought_it() {
        let cell = Bytes::from(vec![1; 2 * limits::SHARED_VALUE_BYTES]);
        assert_eq!(kept_value(&cell, 8, true).as_ptr(), cell[8..].as_ptr());
        assert_ne!(kept_value(&cell, 8, false).as_ptr(), cell[8..].as_ptr());
        let small = cell.slice(..100);
        assert_ne!(kept_value(&small, 8, true).as_ptr(), small[8..].as_ptr());
        assert_eq!(kept_value(&small, 101, true), Bytes::new());
    }

    #[test]
    fn the_engine_keeps_a_row_longer_than_it_counts_as_present() {
        assert_eq!(engine_ttl_s(NOW_MS, 0), 0);
        let margin = limits::EXPIRY_MARGIN_S as i32;
        assert_eq!(engine_ttl_s(NOW_MS, NOW_MS + 1), 1 + margin);
        assert_eq!(engine_ttl_s(NOW_MS, NOW_MS + 2000), 2 + margin);
        assert_eq!(engine_ttl_s(NOW_MS, 1), margin);
    }

    #[test]
    fn an_expiry_beyond_what_the_engine_can_express_is_left_to_the_row() {
        assert_eq!(engine_ttl_s(NOW_MS, u64::MAX), 0);
        assert_eq!(engine_ttl_s(u64::MAX, u64::MAX), 0);
        assert_eq!(engine_ttl_s(NOW_MS, (limits::EXPIRY_MAX_S + 1) * 1000), 0);
    }

    #[test]
    fn an_entry_is_absent_from_its_expiry_on() {
        assert!(!is_expired(NOW_MS, NOW_MS - 1));
        assert!(is_expired(NOW_MS, NOW_MS));
        assert!(!is_expired(0, NOW_MS));
    }
}
