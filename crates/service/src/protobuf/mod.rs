//! The protobuf wire format, read in place and written in one pass.
//!
//! A message is a sequence of fields, each a tag (field number and wire type) and a value
//! (<https://protobuf.dev/programming-guides/encoding/>). [`Reader`] walks them without copying: bytes and strings are
//! slices of the input. The functions of [`writer`] append to a `Vec<u8>` that belongs to somebody else, usually the
//! output buffer of a connection. There is no code generation: every message of ours says in its own few lines what
//! its fields mean, which is what keeps the hot ones at a few nanoseconds.

pub mod reader;
pub mod writer;

pub use reader::{DecodeError, Fault, Reader, Value};

/// Largest field number: a tag is a 32-bit varint whose low three bits are the wire type.
pub const FIELD_NUMBER_MAX: u32 = (1 << 29) - 1;

/// Wire type of `int32`, `int64`, `uint32`, `uint64`, `sint32`, `sint64`, `bool` and enums.
const VARINT: u32 = 0;
/// Wire type of `fixed64`, `sfixed64` and `double`.
const FIXED64: u32 = 1;
/// Wire type of `string`, `bytes`, embedded messages and packed repeated fields.
const LENGTH_DELIMITED: u32 = 2;
/// Wire type that begins a group (deprecated; only ever skipped here).
const GROUP_START: u32 = 3;
/// Wire type that ends a group.
const GROUP_END: u32 = 4;
/// Wire type of `fixed32`, `sfixed32` and `float`.
const FIXED32: u32 = 5;

/// The signed number that a `sint32` or `sint64` varint stands for.
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// The varint that stands for a `sint32` or `sint64`.
pub fn zigzag(value: i64) -> u64 {
    (value << 1).cast_unsigned() ^ (value >> 63).cast_unsigned()
}
