//! Messages described by their fields: the traits that the macros implement.

use std::fmt::Debug;

use crate::limits::{LIST_FIELDS_MAX, MESSAGE_FIELDS_MAX};
use crate::reader::{DecodeError, FieldFault, FieldValue};

/// How many values a field may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// A scalar, which has its default where the field is absent: a `Scalar`.
    Singular,
    /// None or one: `Optional`, `Embedded`, or a member of a oneof.
    Optional,
    /// Any number: `Repeated`.
    Repeated,
}

/// A field as its message describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldDescription {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// Its name in errors, with those of the messages around it.
    pub path: &'static str,
    /// Its scalar type as in `.proto` files, `enum`, or the full name of a message.
    pub kind: &'static str,
    /// How many values it may have.
    pub label: Label,
}

/// Returns whether one of the fields is repeated.
const fn has_list(fields: &[FieldDescription]) -> bool {
    let mut rest = fields;
    while let [first, others @ ..] = rest {
        if matches!(first.label, Label::Repeated) {
            return true;
        }
        rest = others;
    }
    false
}

/// A message of protobuf, described by [`message!`](crate::message!).
pub trait Message<'a>: Clone + Debug + Default + PartialEq {
    /// Its full name.
    const NAME: &'static str;

    /// Its fields but those of its oneofs.
    const FIELDS: &'static [FieldDescription];

    /// Its oneofs: the name of each, and its fields.
    const ONEOFS: &'static [(&'static str, &'static [FieldDescription])];

    /// How many fields it may have, those included that are not known or come again.
    const FIELDS_MAX: u32 = match has_list(Self::FIELDS) {
        true => LIST_FIELDS_MAX,
        false => MESSAGE_FIELDS_MAX,
    };

    /// Whether its length is computed before it is encoded within another message, which is cheaper
    /// for large ones: else those of 128 bytes and more are moved when their length is known.
    const IS_LENGTH_FIRST: bool = false;

    /// Decodes fields into `self`: single values are replaced, embedded messages merged, lists
    /// continued.
    ///
    /// # Errors
    ///
    /// `message` is broken, or a field has a wrong wire type; `self` is in between then.
    fn merge(&mut self, message: &'a [u8]) -> Result<(), DecodeError>;

    /// Decodes as [`Message::merge`], compiled into the caller by force.
    ///
    /// # Errors
    ///
    /// As [`Message::merge`].
    #[doc(hidden)]
    fn merge_inlined(&mut self, message: &'a [u8]) -> Result<(), DecodeError>;

    /// Decodes a message.
    ///
    /// # Errors
    ///
    /// As [`Message::merge`].
    #[inline(always)]
    fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoded = Self::default();
        decoded.merge(message)?;
        Ok(decoded)
    }

    /// Decodes a message as [`Message::decode`], compiled into the caller by force: for the few
    /// messages that come with each call, whose fields need not become a struct in memory then.
    ///
    /// # Errors
    ///
    /// As [`Message::merge`].
    #[inline(always)]
    fn decode_inlined(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoded = Self::default();
        decoded.merge_inlined(message)?;
        Ok(decoded)
    }

    /// Decodes all elements of all lists, which decoding the message has not looked into.
    ///
    /// # Errors
    ///
    /// The first that an element has.
    fn validate(&self) -> Result<(), DecodeError>;

    /// Appends the message.
    fn encode(&self, out: &mut Vec<u8>);

    /// Bytes that [`Message::encode`] appends.
    fn encoded_len(&self) -> usize;
}

/// A oneof of protobuf, described by [`oneof!`](crate::oneof!). The message holds an `Option` of
/// it.
pub trait Oneof<'a>: Clone + Debug + PartialEq {
    /// Its members.
    const FIELDS: &'static [FieldDescription];

    /// Decodes the field `number`, if it is a member, else returns false. Another member is
    /// replaced, a message of the same member is merged.
    ///
    /// # Errors
    ///
    /// A wrong wire type, or content that is none of the member's kind.
    fn merge(
        oneof: &mut Option<Self>,
        number: u32,
        value: FieldValue<'a>,
    ) -> Result<bool, DecodeError>;

    /// As [`Message::validate`].
    ///
    /// # Errors
    ///
    /// The first that an element has.
    fn validate(&self) -> Result<(), DecodeError>;

    /// Appends the member that is set.
    fn encode(&self, out: &mut Vec<u8>);

    /// Bytes that [`Oneof::encode`] appends.
    fn encoded_len(&self) -> usize;
}

/// An enum of protobuf, described by [`enumeration!`](crate::enumeration!).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnumDescription {
    /// Its full name.
    pub name: &'static str,
    /// Number and name of each value, the name as in Rust.
    pub values: &'static [(i32, &'static str)],
}

impl DecodeError {
    /// Completes an error of the message with these fields. One of a message within it has been
    /// completed there.
    #[cold]
    #[doc(hidden)]
    #[must_use]
    pub fn within(
        self,
        number: u32,
        fields: &[FieldDescription],
        oneofs: &[(&str, &[FieldDescription])],
    ) -> DecodeError {
        let field = if self.field == 0 { number } else { self.field };
        if !self.name.is_empty() || field == 0 {
            return self;
        }
        let members = oneofs.iter().flat_map(|&(_, members)| members);
        let described = fields.iter().chain(members);
        let name = described
            .into_iter()
            .find(|described| described.number == field)
            .map_or("(unknown)", |described| described.path);
        let fault: FieldFault = self.fault;
        DecodeError { field, name, fault }
    }
}
