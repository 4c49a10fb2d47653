//! The protobuf wire format, read in place and written in one pass.
//!
//! A message is a sequence of fields, each a tag (field number and wire type) and a value
//! (<https://protobuf.dev/programming-guides/encoding/>). [`Reader`] walks them without copying:
//! bytes and strings are slices of the input. The functions of [`writer`] append to a `Vec<u8>`
//! that belongs to the caller, usually the output buffer of a connection.
//!
//! [`message!`], [`oneof!`] and [`enumeration!`] turn a list of fields into a struct that borrows
//! from the input, its decoder and its encoder:
//!
//! ```
//! protobuf::message! {
//!     /// Some of the content of a file.
//!     pub struct Chunk<'a> = "example.Chunk" {
//!         /// Name of the file.
//!         1 name: string,
//!         /// The content.
//!         2 data: bytes,
//!         /// Checksum of `data`.
//!         3 crc: optional uint32,
//!         /// Numbers of the lines that changed.
//!         4 lines: repeated uint32,
//!     }
//! }
//!
//! let chunk = Chunk { name: "a", data: b"xy", crc: Some(0), lines: (&[7, 8]).into() };
//! let mut out = Vec::new();
//! chunk.encode(&mut out);
//! assert_eq!(out.len(), chunk.encoded_len());
//! let decoded = Chunk::decode(&out)?;
//! assert_eq!((decoded.name, decoded.data, decoded.crc), ("a", &b"xy"[..], Some(0)));
//! assert_eq!(decoded.lines.iter().collect::<Result<Vec<_>, _>>()?, [7, 8]);
//! # Ok::<(), protobuf::DecodeError>(())
//! ```
//!
//! Decoding allocates nothing. Of a repeated field only the place is kept, and its elements are
//! decoded as they are walked ([`List`]).
//!
//! What comes with each call of a busy server can do without the struct: a message whose fields are
//! looked at at once ([`Message::decode_inlined`]), the member of a oneof that is all of its
//! message (`decode_sole` of each oneof), and the elements of a list of these ([`List::encoded`]).

// What ships does not panic: docs/internals/panics.md.
#![cfg_attr(
    not(test),
    warn(
        clippy::disallowed_methods,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented,
        clippy::unwrap_used
    )
)]

mod field;
mod kind;
pub mod limits;
mod list;
mod macros;
mod message;
pub mod reader;
pub mod writer;

pub use field::{Embedded, Field, Optional, Repeated};
pub use kind::{
    Boolean, Bytes, Double, Enumeration, FieldKind, Fixed32, Fixed64, Int32, Int64, Scalar, Secret,
    SecretText, Sint32, Sint64, Text, Uint32, Uint64,
};
pub use list::{Elements, EncodedElements, List};
pub use message::{EnumDescription, FieldDescription, Label, Message, Oneof};
pub use reader::{DecodeError, FieldFault, FieldValue, Reader};

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
