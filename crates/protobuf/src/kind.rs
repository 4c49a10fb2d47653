//! Kinds of fields: what each is in Rust, and how it is read and written.

use std::fmt::{self, Debug};

use crate::reader::{DecodeError, FieldFault, FieldValue, Reader};
use crate::{writer, zigzag};

/// What one value of a field is: a scalar type of protobuf, or an embedded message.
pub trait FieldKind<'a> {
    /// The type in Rust.
    type Value: Clone + Debug + PartialEq;

    /// The name in `.proto` files, or the full name of the message.
    const NAME: &'static str;

    /// Whether the elements of a repeated field stand together in one field without tags.
    const IS_PACKED: bool = false;

    /// Decodes a value.
    ///
    /// # Errors
    ///
    /// A wrong wire type, or content that is none of this kind.
    fn decode(value: FieldValue<'a>) -> Result<Self::Value, DecodeError>;

    /// Decodes a value, compiled into the caller by force.
    ///
    /// # Errors
    ///
    /// As [`FieldKind::decode`].
    #[doc(hidden)]
    #[inline(always)]
    fn decode_inlined(value: FieldValue<'a>) -> Result<Self::Value, DecodeError> {
        Self::decode(value)
    }

    /// Decodes a value that comes after another one of the same field: it replaces the earlier one,
    /// or is merged into it if it is a message.
    ///
    /// # Errors
    ///
    /// As [`FieldKind::decode`].
    #[inline(always)]
    fn merge(earlier: &mut Self::Value, value: FieldValue<'a>) -> Result<(), DecodeError> {
        *earlier = Self::decode(value)?;
        Ok(())
    }

    /// Checks what decoding an element of a list will check again, as far as it goes without
    /// walking into messages.
    ///
    /// # Errors
    ///
    /// As [`FieldKind::decode`].
    #[inline(always)]
    fn check(value: FieldValue<'a>) -> Result<(), DecodeError> {
        Self::decode(value).map(drop)
    }

    /// Returns the next value of a packed field, `None` at its end.
    ///
    /// # Errors
    ///
    /// The field ends within the value.
    fn next_packed(packed: &mut Reader<'a>) -> Result<Option<FieldValue<'a>>, FieldFault> {
        Ok(packed.next_packed()?.map(FieldValue::Varint))
    }

    /// Decodes what is in the lists of a message; see `Message::validate`.
    ///
    /// # Errors
    ///
    /// As [`FieldKind::decode`].
    fn validate(_value: &Self::Value) -> Result<(), DecodeError> {
        Ok(())
    }

    /// Appends the field `number`, also if the value is the default.
    fn encode(value: &Self::Value, number: u32, out: &mut Vec<u8>);

    /// Bytes that [`FieldKind::encode`] appends.
    fn encoded_len(value: &Self::Value, number: u32) -> usize;

    /// Appends the value without a tag, as an element of a packed field.
    fn encode_packed(_value: &Self::Value, _out: &mut Vec<u8>) {}
}

/// A [`FieldKind`] with a default value, which is not written where the field has no presence.
pub trait Scalar<'a>: FieldKind<'a, Value: Copy + Default> {
    /// Whether this is the default.
    fn is_default(value: &Self::Value) -> bool;
}

/// Kinds that are varints on the wire.
macro_rules! varints {
    ($(
        $(#[$attribute:meta])*
        $kind:ident $name:literal $type:ty, $decode:ident, $value:ident => $raw:expr;
    )*) => { $(
        $(#[$attribute])*
        #[derive(Debug)]
        pub struct $kind;

        impl<'a> FieldKind<'a> for $kind {
            type Value = $type;

            const NAME: &'static str = $name;

            const IS_PACKED: bool = true;

            #[inline(always)]
            fn decode(value: FieldValue<'a>) -> Result<$type, DecodeError> {
                Ok(value.$decode()?)
            }

            #[inline(always)]
            fn encode(&$value: &$type, number: u32, out: &mut Vec<u8>) {
                writer::uint64_always(out, number, $raw);
            }

            #[inline(always)]
            fn encoded_len(&$value: &$type, number: u32) -> usize {
                writer::tag_len(number) + writer::varint_len($raw)
            }

            fn encode_packed(&$value: &$type, out: &mut Vec<u8>) {
                writer::varint(out, $raw);
            }
        }

        impl Scalar<'_> for $kind {
            #[inline(always)]
            fn is_default(value: &$type) -> bool {
                *value == <$type>::default()
            }
        }
    )* };
}

varints! {
    /// A `uint64`.
    Uint64 "uint64" u64, varint, value => value;
    /// A `uint32`.
    Uint32 "uint32" u32, uint32, value => u64::from(value);
    /// An `int64`.
    Int64 "int64" i64, int64, value => value.cast_unsigned();
    /// An `int32`.
    Int32 "int32" i32, int32, value => i64::from(value).cast_unsigned();
    /// A `sint64`.
    Sint64 "sint64" i64, sint64, value => zigzag(value);
    /// A `sint32`.
    Sint32 "sint32" i32, sint32, value => zigzag(i64::from(value));
    /// A `bool`.
    Boolean "bool" bool, bool, value => u64::from(value);
    /// The number of an enum value, which may be none that is known.
    Enumeration "enum" i32, int32, value => i64::from(value).cast_unsigned();
}

/// Kinds of a fixed width.
macro_rules! fixed {
    ($(
        $(#[$attribute:meta])*
        $kind:ident $name:literal $type:ty, $bytes:literal, $next:ident, $encode:ident,
        $value:ident => $raw:expr, $read:ident => $decoded:expr;
    )*) => { $(
        $(#[$attribute])*
        #[derive(Debug)]
        pub struct $kind;

        impl<'a> FieldKind<'a> for $kind {
            type Value = $type;

            const NAME: &'static str = $name;

            const IS_PACKED: bool = true;

            #[inline(always)]
            fn decode(value: FieldValue<'a>) -> Result<$type, DecodeError> {
                let $read = value.$encode()?;
                Ok($decoded)
            }

            fn next_packed(packed: &mut Reader<'a>) -> Result<Option<FieldValue<'a>>, FieldFault> {
                packed.$next()
            }

            #[inline(always)]
            fn encode(&$value: &$type, number: u32, out: &mut Vec<u8>) {
                fixed!(@always $encode)(out, number, $raw);
            }

            #[inline(always)]
            fn encoded_len(_value: &$type, number: u32) -> usize {
                writer::tag_len(number) + $bytes
            }

            fn encode_packed(&$value: &$type, out: &mut Vec<u8>) {
                out.extend_from_slice(&$raw.to_le_bytes());
            }
        }

        impl Scalar<'_> for $kind {
            #[inline(always)]
            fn is_default(&$value: &$type) -> bool {
                $raw == 0
            }
        }
    )* };
    (@always fixed32) => { writer::fixed32_always };
    (@always fixed64) => { writer::fixed64_always };
}

fixed! {
    /// A `fixed32`.
    Fixed32 "fixed32" u32, 4, next_packed_fixed32, fixed32, value => value, raw => raw;
    /// A `fixed64`.
    Fixed64 "fixed64" u64, 8, next_packed_fixed64, fixed64, value => value, raw => raw;
    /// A `double`.
    Double "double" f64, 8, next_packed_fixed64, fixed64, value => value.to_bits(),
        raw => f64::from_bits(raw);
}

/// A `bytes` field.
#[derive(Debug)]
pub struct Bytes;

impl<'a> FieldKind<'a> for Bytes {
    type Value = &'a [u8];

    const NAME: &'static str = "bytes";

    #[inline(always)]
    fn decode(value: FieldValue<'a>) -> Result<&'a [u8], DecodeError> {
        Ok(value.bytes()?)
    }

    #[inline(always)]
    fn encode(value: &&'a [u8], number: u32, out: &mut Vec<u8>) {
        writer::bytes_always(out, number, value);
    }

    #[inline(always)]
    fn encoded_len(value: &&'a [u8], number: u32) -> usize {
        writer::bytes_len(number, value.len())
    }
}

impl<'a> Scalar<'a> for Bytes {
    #[inline(always)]
    fn is_default(value: &&'a [u8]) -> bool {
        value.is_empty()
    }
}

/// A `string` field.
#[derive(Debug)]
pub struct Text;

impl<'a> FieldKind<'a> for Text {
    type Value = &'a str;

    const NAME: &'static str = "string";

    #[inline(always)]
    fn decode(value: FieldValue<'a>) -> Result<&'a str, DecodeError> {
        Ok(value.string()?)
    }

    #[inline(always)]
    fn encode(value: &&'a str, number: u32, out: &mut Vec<u8>) {
        writer::bytes_always(out, number, value.as_bytes());
    }

    #[inline(always)]
    fn encoded_len(value: &&'a str, number: u32) -> usize {
        writer::bytes_len(number, value.len())
    }
}

impl<'a> Scalar<'a> for Text {
    #[inline(always)]
    fn is_default(value: &&'a str) -> bool {
        value.is_empty()
    }
}

/// A field of type `string` that holds a secret: [`Secret`].
#[derive(Debug)]
pub struct SecretText;

/// A text that no log and no message may show.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Secret<'a>(&'a str);

impl<'a> Secret<'a> {
    /// A secret with this text.
    pub const fn new(text: &'a str) -> Secret<'a> {
        Secret(text)
    }

    /// Returns the text.
    pub const fn reveal(&self) -> &'a str {
        self.0
    }
}

/// Shows nothing of it.
impl fmt::Debug for Secret<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

impl<'a> FieldKind<'a> for SecretText {
    type Value = Secret<'a>;

    const NAME: &'static str = Text::NAME;

    #[inline(always)]
    fn decode(value: FieldValue<'a>) -> Result<Secret<'a>, DecodeError> {
        Text::decode(value).map(Secret)
    }

    #[inline(always)]
    fn encode(value: &Secret<'a>, number: u32, out: &mut Vec<u8>) {
        Text::encode(&value.0, number, out);
    }

    #[inline(always)]
    fn encoded_len(value: &Secret<'a>, number: u32) -> usize {
        Text::encoded_len(&value.0, number)
    }
}

impl<'a> Scalar<'a> for SecretText {
    #[inline(always)]
    fn is_default(value: &Secret<'a>) -> bool {
        Text::is_default(&value.0)
    }
}
