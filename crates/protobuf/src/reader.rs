//! Reading: one field after the other, borrowed from the input, every length checked before it is
//! believed.

use std::borrow::Cow;

use super::{FIELD_NUMBER_MAX, FIXED32, FIXED64, GROUP_END, GROUP_START, LENGTH_DELIMITED, VARINT};
#[cfg(doc)]
use crate::limits::MERGED_PARTS_MAX;
use crate::limits::{LIST_FIELDS_MAX, PROTOBUF_GROUP_DEPTH_MAX};

/// Why a message cannot be decoded, and at which of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}", place(self.field))]
pub struct DecodeError {
    /// Number of the field, 0 if not even its tag could be read.
    pub field: u32,
    /// Its name, with those of the messages around it where the description says so; empty if it is
    /// not known.
    pub name: &'static str,
    /// What is wrong.
    pub fault: FieldFault,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldFault {
    /// The message ends within a tag, a number, or before the length that was announced.
    #[error("the message ends in the middle of it")]
    Truncated,
    /// A varint has more than ten bytes or more than 64 bits.
    #[error("a variable-length number has more than 64 bits")]
    VarintTooLong,
    /// The field number is 0 or above [`FIELD_NUMBER_MAX`].
    #[error("the field number is not between 1 and 536870911")]
    FieldNumber,
    /// The wire type is 6 or 7, which do not exist.
    #[error("there is no such wire type")]
    UnknownWireType,
    /// A known field comes with the wire type of another kind of field.
    #[error("its wire type is not the one of this field")]
    WrongWireType,
    /// A group ends that was not begun, or another one is still open.
    #[error("a group ends that was not begun")]
    UnbalancedGroup,
    /// Groups are nested deeper than [`PROTOBUF_GROUP_DEPTH_MAX`].
    #[error("groups are nested too deeply")]
    TooDeep,
    /// A string is not UTF-8.
    #[error("the string is not UTF-8")]
    NotUtf8,
    /// A message with a repeated field comes in more than [`MERGED_PARTS_MAX`] pieces.
    #[error("the message around it comes in too many pieces")]
    TooManyParts,
    /// The message has more fields than one of its kind may have.
    #[error("the message has too many fields")]
    TooManyFields,
}

impl DecodeError {
    /// Returns the error of the field `field`, whose name is not known.
    #[inline(always)]
    pub fn new(field: u32, fault: FieldFault) -> DecodeError {
        let name = "";
        DecodeError { field, name, fault }
    }
}

impl From<FieldFault> for DecodeError {
    #[inline(always)]
    fn from(fault: FieldFault) -> DecodeError {
        DecodeError::new(0, fault)
    }
}

/// Returns where a field stands, in words.
fn place(field: u32) -> Cow<'static, str> {
    match field {
        0 => "a tag".into(),
        field => format!("field number {field}").into(),
    }
}

/// The value of one field as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// A number in variable length.
    Varint(u64),
    /// Eight bytes, little-endian.
    Fixed64(u64),
    /// Bytes, a string, an embedded message, or packed numbers.
    Bytes(&'a [u8]),
    /// Four bytes, little-endian.
    Fixed32(u32),
}

impl<'a> FieldValue<'a> {
    /// A `uint64`, or the raw form of any other varint field.
    pub fn varint(self) -> Result<u64, FieldFault> {
        match self {
            FieldValue::Varint(value) => Ok(value),
            _ => Err(FieldFault::WrongWireType),
        }
    }

    /// A `uint32`; higher bits are cut off, as every protobuf implementation does.
    pub fn uint32(self) -> Result<u32, FieldFault> {
        self.varint().map(|value| value as u32)
    }

    /// An `int32` or an enum; higher bits are cut off.
    pub fn int32(self) -> Result<i32, FieldFault> {
        self.varint().map(|value| value as i32)
    }

    /// An `int64`.
    pub fn int64(self) -> Result<i64, FieldFault> {
        self.varint().map(u64::cast_signed)
    }

    /// A `sint32`; higher bits are cut off before the sign is found.
    pub fn sint32(self) -> Result<i32, FieldFault> {
        let value = self.uint32()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// A `sint64`.
    pub fn sint64(self) -> Result<i64, FieldFault> {
        self.varint().map(super::unzigzag)
    }

    /// A `bool`; every number but 0 is true.
    pub fn bool(self) -> Result<bool, FieldFault> {
        self.varint().map(|value| value != 0)
    }

    /// A `fixed64`.
    pub fn fixed64(self) -> Result<u64, FieldFault> {
        match self {
            FieldValue::Fixed64(value) => Ok(value),
            _ => Err(FieldFault::WrongWireType),
        }
    }

    /// A `fixed32`.
    pub fn fixed32(self) -> Result<u32, FieldFault> {
        match self {
            FieldValue::Fixed32(value) => Ok(value),
            _ => Err(FieldFault::WrongWireType),
        }
    }

    /// `bytes`, or the inside of an embedded message.
    pub fn bytes(self) -> Result<&'a [u8], FieldFault> {
        match self {
            FieldValue::Bytes(bytes) => Ok(bytes),
            _ => Err(FieldFault::WrongWireType),
        }
    }

    /// A `string`, checked to be UTF-8.
    pub fn string(self) -> Result<&'a str, FieldFault> {
        std::str::from_utf8(self.bytes()?).map_err(|_| FieldFault::NotUtf8)
    }
}

/// Walks the fields of one message.
///
/// Groups are skipped. What comes out is for the caller to match by number; numbers that it does
/// not know it lets go, which is how old programs read new messages.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Tags that may still be read.
    fields_left: u32,
}

impl<'a> Reader<'a> {
    /// A reader at the first field of `message`, which may have [`LIST_FIELDS_MAX`] fields.
    #[inline(always)]
    pub fn new(message: &'a [u8]) -> Reader<'a> {
        Reader::bounded(message, LIST_FIELDS_MAX)
    }

    /// A reader at the first field of `message`, which may have so many fields, those within groups
    /// included.
    #[inline(always)]
    pub fn bounded(message: &'a [u8], fields_max: u32) -> Reader<'a> {
        Reader {
            rest: message,
            fields_left: fields_max,
        }
    }

    /// Whether the end of the message has been reached.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field, `None` at the end of the message.
    ///
    /// Inlined by force, as is all that it calls: without that, carrying its result through memory
    /// costs more than finding it, 19 of 31 ns for a Get.
    #[inline(always)]
    pub fn next_field(&mut self) -> Result<Option<(u32, FieldValue<'a>)>, DecodeError> {
        while !self.rest.is_empty() {
            let (number, wire_type) = self.tag()?;
            let at_field = |fault| DecodeError::new(number, fault);
            match wire_type {
                GROUP_START => self.skip_group(number).map_err(at_field)?,
                GROUP_END => return Err(at_field(FieldFault::UnbalancedGroup)),
                _ => {
                    return self
                        .value(wire_type)
                        .map(|value| Some((number, value)))
                        .map_err(at_field);
                }
            }
        }
        Ok(None)
    }

    /// Calls `visit` with each field; what it complains about is reported with the number of the
    /// field.
    #[inline(always)]
    pub fn for_each(
        mut self,
        mut visit: impl FnMut(u32, FieldValue<'a>) -> Result<(), FieldFault>,
    ) -> Result<(), DecodeError> {
        while let Some((field, value)) = self.next_field()? {
            visit(field, value).map_err(|fault| DecodeError::new(field, fault))?;
        }
        Ok(())
    }

    /// The next number where numbers stand without tags: in the inside of a packed repeated field
    /// of a varint type.
    pub fn next_packed(&mut self) -> Result<Option<u64>, FieldFault> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.varint().map(Some)
    }

    /// The next number of a packed repeated field whose numbers have four bytes each.
    pub fn next_packed_fixed32(&mut self) -> Result<Option<FieldValue<'a>>, FieldFault> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.value(FIXED32).map(Some)
    }

    /// The next number of a packed repeated field whose numbers have eight bytes each.
    pub fn next_packed_fixed64(&mut self) -> Result<Option<FieldValue<'a>>, FieldFault> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.value(FIXED64).map(Some)
    }

    #[inline(always)]
    fn tag(&mut self) -> Result<(u32, u32), DecodeError> {
        let outside = |fault| DecodeError::new(0, fault);
        let left = self.fields_left.checked_sub(1);
        self.fields_left = left.ok_or_else(|| outside(FieldFault::TooManyFields))?;
        let tag = self.varint().map_err(outside)?;
        let number = tag >> 3;
        if number == 0 || number > u64::from(FIELD_NUMBER_MAX) {
            return Err(outside(FieldFault::FieldNumber));
        }
        Ok((number as u32, (tag & 7) as u32))
    }

    #[inline(always)]
    fn value(&mut self, wire_type: u32) -> Result<FieldValue<'a>, FieldFault> {
        match wire_type {
            VARINT => self.varint().map(FieldValue::Varint),
            FIXED64 => self
                .array()
                .map(|bytes| FieldValue::Fixed64(u64::from_le_bytes(bytes))),
            LENGTH_DELIMITED => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| FieldFault::Truncated)?;
                let (bytes, rest) = self
                    .rest
                    .split_at_checked(length)
                    .ok_or(FieldFault::Truncated)?;
                self.rest = rest;
                Ok(FieldValue::Bytes(bytes))
            }
            FIXED32 => self
                .array()
                .map(|bytes| FieldValue::Fixed32(u32::from_le_bytes(bytes))),
            _ => Err(FieldFault::UnknownWireType),
        }
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, FieldFault> {
        match self.rest {
            // mutants: skip, `long_varint` reads one byte too, and the same
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, FieldFault> {
        let mut value = 0_u64;
        for (index, &byte) in self.rest.iter().take(10).enumerate() {
            // The tenth byte carries bit 63 alone; whatever else it says would be lost.
            if index == 9 && byte > 1 {
                return Err(FieldFault::VarintTooLong);
            }
            value += u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        // Ten bytes never get here: the tenth ends the number or is refused.
        Err(FieldFault::Truncated)
    }

    #[inline(always)]
    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], FieldFault> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(FieldFault::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// Skips to the end of the group `number` whose start was just read, and over all groups
    /// within.
    #[cold]
    fn skip_group(&mut self, number: u32) -> Result<(), FieldFault> {
        let mut open = [0; PROTOBUF_GROUP_DEPTH_MAX];
        open[0] = number;
        let mut depth = 1;
        while depth > 0 {
            if self.rest.is_empty() {
                return Err(FieldFault::Truncated);
            }
            let (number, wire_type) = self.tag().map_err(|error| error.fault)?;
            match wire_type {
                GROUP_START => {
                    *open.get_mut(depth).ok_or(FieldFault::TooDeep)? = number;
                    depth += 1;
                }
                GROUP_END if open[depth - 1] == number => depth -= 1,
                GROUP_END => return Err(FieldFault::UnbalancedGroup),
                _ => drop(self.value(wire_type)?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<(u32, FieldValue<'_>)>, DecodeError> {
        let mut fields = Vec::new();
        Reader::new(message).for_each(|number, value| {
            fields.push((number, value));
            Ok(())
        })?;
        Ok(fields)
    }

    fn fault(message: &[u8]) -> (u32, FieldFault) {
        let error = fields(message).expect_err("the message is broken");
        (error.field, error.fault)
    }

    #[test]
    fn reads_every_wire_type() {
        let message = [
            0x08, 0x96, 0x01, // 1: varint 150
            0x12, 0x02, b'h', b'i', // 2: bytes
            0x19, 1, 0, 0, 0, 0, 0, 0, 0, // 3: fixed64
            0x25, 2, 0, 0, 0, // 4: fixed32
        ];
        let expected = vec![
            (1, FieldValue::Varint(150)),
            (2, FieldValue::Bytes(b"hi")),
            (3, FieldValue::Fixed64(1)),
            (4, FieldValue::Fixed32(2)),
        ];
        assert_eq!(fields(&message), Ok(expected));
        assert_eq!(fields(&[]), Ok(vec![]));
    }

    #[test]
    fn varints_have_at_most_64_bits() {
        let mut message = vec![0x08];
        message.extend([0xff; 9]);
        message.push(0x01);
        assert_eq!(
            fields(&message),
            Ok(vec![(1, FieldValue::Varint(u64::MAX))])
        );
        *message.last_mut().expect("not empty") = 0x02;
        assert_eq!(fault(&message), (1, FieldFault::VarintTooLong));
        *message.last_mut().expect("not empty") = 0x81;
        assert_eq!(fault(&message), (1, FieldFault::VarintTooLong));
        // Longer than needed is allowed: some encoders reserve the room before they know the
        // number.
        assert_eq!(
            fields(&[0x08, 0x81, 0x80, 0x00]),
            Ok(vec![(1, FieldValue::Varint(1))])
        );
    }

    #[test]
    fn lengths_are_checked_before_they_are_believed() {
        assert_eq!(fault(&[0x12, 0x03, 1, 2]), (2, FieldFault::Truncated));
        let huge = [
            0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
        ];
        assert_eq!(fault(&huge), (2, FieldFault::Truncated));
        assert_eq!(fault(&[0x19, 1, 2, 3]), (3, FieldFault::Truncated));
        assert_eq!(fault(&[0x25, 1, 2, 3]), (4, FieldFault::Truncated));
        assert_eq!(fault(&[0x80]), (0, FieldFault::Truncated));
        assert_eq!(fault(&[0x08]), (1, FieldFault::Truncated));
    }

    #[test]
    fn a_message_has_no_more_fields_than_it_may() {
        let read = |message: &[u8], fields_max| {
            let mut count = 0;
            let reader = Reader::bounded(message, fields_max);
            let result = reader.for_each(|_, _| {
                count += 1;
                Ok(())
            });
            (count, result.map_err(|error| error.fault))
        };
        let three = [0x08, 1, 0x08, 2, 0x12, 0];
        assert_eq!(read(&three, 3), (3, Ok(())));
        assert_eq!(read(&three, 2), (2, Err(FieldFault::TooManyFields)));
        assert_eq!(read(&[], 0), (0, Ok(())));
        // Begin and end of a group, what is in it, and the groups in it count as well.
        let groups = [0x0b, 0x08, 1, 0x13, 0x14, 0x0c, 0x0b, 0x0c, 0x08, 1];
        assert_eq!(read(&groups, 8), (1, Ok(())));
        for fields_max in 0..8 {
            let expected = (0, Err(FieldFault::TooManyFields));
            assert_eq!(read(&groups, fields_max), expected, "{fields_max}");
        }
    }

    #[test]
    fn tags_are_checked() {
        assert_eq!(fault(&[0x00, 0x00]), (0, FieldFault::FieldNumber));
        assert_eq!(
            fault(&[0x80, 0x80, 0x80, 0x80, 0x10, 0x00]),
            (0, FieldFault::FieldNumber)
        );
        assert_eq!(
            fields(&[0xf8, 0xff, 0xff, 0xff, 0x0f, 0x07]),
            Ok(vec![(FIELD_NUMBER_MAX, FieldValue::Varint(7))])
        );
        assert_eq!(fault(&[0x0e, 0x00]), (1, FieldFault::UnknownWireType));
        assert_eq!(fault(&[0x0f, 0x00]), (1, FieldFault::UnknownWireType));
    }

    #[test]
    fn groups_are_skipped_with_all_that_is_in_them() {
        // Group 1 { 2: varint 5, group 3 { 4: "x" } }, then field 5: 6.
        let message = [
            0x0b, 0x10, 0x05, 0x1b, 0x22, 0x01, b'x', 0x1c, 0x0c, 0x28, 0x06,
        ];
        assert_eq!(fields(&message), Ok(vec![(5, FieldValue::Varint(6))]));
        assert_eq!(fault(&[0x0b, 0x10, 0x05]), (1, FieldFault::Truncated));
        assert_eq!(fault(&[0x0b, 0x14]), (1, FieldFault::UnbalancedGroup));
        assert_eq!(fault(&[0x0c]), (1, FieldFault::UnbalancedGroup));
        let mut deep = vec![0x0b; PROTOBUF_GROUP_DEPTH_MAX];
        deep.extend(vec![0x0c; PROTOBUF_GROUP_DEPTH_MAX]);
        assert_eq!(fields(&deep), Ok(vec![]));
        deep.insert(0, 0x0b);
        deep.push(0x0c);
        assert_eq!(fault(&deep), (1, FieldFault::TooDeep));
    }

    #[test]
    fn packed_numbers_are_read_one_by_one() {
        let mut reader = Reader::new(&[0x05, 0x96, 0x01, 0x80]);
        assert_eq!(reader.next_packed(), Ok(Some(5)));
        assert_eq!(reader.next_packed(), Ok(Some(150)));
        assert_eq!(reader.next_packed(), Err(FieldFault::Truncated));
        assert_eq!(Reader::new(&[]).next_packed(), Ok(None));
    }

    #[test]
    fn values_check_their_kind() {
        assert_eq!(
            FieldValue::Varint(3).bytes(),
            Err(FieldFault::WrongWireType)
        );
        assert_eq!(
            FieldValue::Bytes(b"x").varint(),
            Err(FieldFault::WrongWireType)
        );
        assert_eq!(
            FieldValue::Varint(3).fixed32(),
            Err(FieldFault::WrongWireType)
        );
        assert_eq!(
            FieldValue::Varint(3).fixed64(),
            Err(FieldFault::WrongWireType)
        );
        assert_eq!(
            FieldValue::Bytes(&[0xff]).string(),
            Err(FieldFault::NotUtf8)
        );
        assert_eq!(FieldValue::Bytes("ä".as_bytes()).string(), Ok("ä"));
        assert_eq!(FieldValue::Varint(u64::MAX).int32(), Ok(-1));
        assert_eq!(FieldValue::Varint(u64::MAX).int64(), Ok(-1));
        assert_eq!(FieldValue::Varint(7).int64(), Ok(7));
        assert_eq!(FieldValue::Varint((1 << 32) + 7).uint32(), Ok(7));
        assert_eq!(FieldValue::Varint(1 << 40).bool(), Ok(true));
        assert_eq!(FieldValue::Varint(3).sint64(), Ok(-2));
    }
}
