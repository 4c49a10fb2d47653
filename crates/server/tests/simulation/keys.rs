//! The keys of a simulated world, and what their values say.
//!
//! Every value names the call that wrote it, so that whoever reads it learns who was here. The
//! numbers of the keys are in the order of their bytes.

use std::ops::Range;

/// A key by its number.
pub type Key = u16;

/// Numbers that only ever grow, by [`step`].
pub const COUNTERS: Range<Key> = 0..8;
/// Four keys each, always written together.
pub const GROUPS: Range<Key> = 8..40;
/// Values that only ever grow, by eight bytes that name the call.
pub const LOGS: Range<Key> = 40..48;
/// Written, deleted, written on conditions.
pub const REGISTERS: Range<Key> = 48..112;
/// Written at first, overwritten now and then, never deleted.
pub const STABLE: Range<Key> = 112..496;
/// Written with a time to live, mostly.
pub const EXPIRING: Range<Key> = 496..512;
/// All keys.
pub const ALL: Range<Key> = 0..512;

/// Keys of one group.
pub const GROUP_KEYS: Key = 4;

/// The first key of a key's group.
pub fn group_of(key: Key) -> Key {
    GROUPS.start + (key - GROUPS.start) / GROUP_KEYS * GROUP_KEYS
}

/// What is added to a counter each time.
pub fn step(key: Key) -> i64 {
    debug_assert!(COUNTERS.contains(&key));
    if key.is_multiple_of(2) {
        1 + i64::from(key)
    } else {
        -1 - i64::from(key)
    }
}

/// The bytes of a key.
pub fn bytes_of(key: Key) -> [u8; 6] {
    let digit = |place: u16| b'0' + (key / place % 10) as u8;
    [
        class(key),
        b'/',
        digit(1000),
        digit(100),
        digit(10),
        digit(1),
    ]
}

/// The key of these bytes.
pub fn key_of(bytes: &[u8]) -> Key {
    let digits = bytes
        .get(2..)
        .and_then(|digits| std::str::from_utf8(digits).ok());
    let key = digits
        .and_then(|digits| digits.parse().ok())
        .expect("a key of this world");
    assert_eq!(bytes, bytes_of(key), "a key of this world");
    key
}

fn class(key: Key) -> u8 {
    match key {
        key if COUNTERS.contains(&key) => b'c',
        key if GROUPS.contains(&key) => b'g',
        key if LOGS.contains(&key) => b'l',
        key if REGISTERS.contains(&key) => b'r',
        key if STABLE.contains(&key) => b's',
        _ => b't',
    }
}

/// The prefix that exactly the keys of a class have.
pub fn prefix(of: &Range<Key>) -> [u8; 2] {
    [class(of.start), b'/']
}

/// The value that the call `by` writes to a key: its number, and bytes that only it would write
/// there.
pub fn value(by: u64, key: Key, length: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(length.max(8));
    value.extend_from_slice(&by.to_be_bytes());
    let first = (by as u8).wrapping_mul(31).wrapping_add(key as u8);
    let filler = |at: usize| first.wrapping_add(at as u8);
    value.extend((8..length).map(filler));
    value
}

/// Who wrote a value of a key. It must be exactly what that call writes there.
pub fn writer_of(key: Key, bytes: &[u8]) -> u64 {
    let by = bytes.first_chunk().expect("a value names its writer");
    let by = u64::from_be_bytes(*by);
    assert!(
        bytes == value(by, key, bytes.len()),
        "the value of call {by} in key {key} is damaged"
    );
    by
}
