//! Fields: one value or many of a kind, and embedded messages.

use std::fmt::Debug;
use std::marker::PhantomData;

use crate::kind::{FieldKind, Scalar};
use crate::list::List;
use crate::message::{Label, Message};
use crate::reader::{DecodeError, FieldValue};
use crate::writer;

/// What a field is: a scalar, or one of [`Optional`], [`Embedded`] and [`Repeated`].
pub trait Field<'a> {
    /// What the struct of the message holds.
    type Value: Clone + Debug + Default + PartialEq;

    /// How many values it may have.
    const LABEL: Label;

    /// See [`FieldKind::NAME`].
    const KIND: &'static str;

    /// Takes up one field of `message`.
    ///
    /// # Errors
    ///
    /// As [`FieldKind::decode`].
    fn merge(
        field: &mut Self::Value,
        value: FieldValue<'a>,
        number: u32,
        message: &'a [u8],
    ) -> Result<(), DecodeError>;

    /// Decodes what is in a list, or in those of a message; see [`Message::validate`].
    ///
    /// # Errors
    ///
    /// As [`FieldKind::decode`].
    fn validate(_field: &Self::Value) -> Result<(), DecodeError> {
        Ok(())
    }

    /// Appends the field, if there is something to say.
    fn encode(field: &Self::Value, number: u32, out: &mut Vec<u8>);

    /// Bytes that [`Field::encode`] appends.
    fn encoded_len(field: &Self::Value, number: u32) -> usize;
}

/// A scalar field with explicit presence: `Option` of the value.
#[derive(Debug)]
pub struct Optional<K>(PhantomData<K>);

/// A field with an embedded message: `Option` of the message.
#[derive(Debug)]
pub struct Embedded<M>(PhantomData<M>);

/// A field with any number of values: a [`List`].
#[derive(Debug)]
pub struct Repeated<K>(PhantomData<K>);

impl<'a, K: Scalar<'a>> Field<'a> for K {
    type Value = K::Value;

    const LABEL: Label = Label::Singular;

    const KIND: &'static str = K::NAME;

    #[inline(always)]
    fn merge(
        field: &mut K::Value,
        value: FieldValue<'a>,
        _number: u32,
        _message: &'a [u8],
    ) -> Result<(), DecodeError> {
        *field = K::decode(value)?;
        Ok(())
    }

    #[inline(always)]
    fn encode(field: &K::Value, number: u32, out: &mut Vec<u8>) {
        if !K::is_default(field) {
            <K as FieldKind>::encode(field, number, out);
        }
    }

    #[inline(always)]
    fn encoded_len(field: &K::Value, number: u32) -> usize {
        match K::is_default(field) {
            true => 0,
            false => <K as FieldKind>::encoded_len(field, number),
        }
    }
}

impl<'a, K: Scalar<'a>> Field<'a> for Optional<K> {
    type Value = Option<K::Value>;

    const LABEL: Label = Label::Optional;

    const KIND: &'static str = K::NAME;

    #[inline(always)]
    fn merge(
        field: &mut Option<K::Value>,
        value: FieldValue<'a>,
        _number: u32,
        _message: &'a [u8],
    ) -> Result<(), DecodeError> {
        *field = Some(K::decode(value)?);
        Ok(())
    }

    #[inline(always)]
    fn encode(field: &Option<K::Value>, number: u32, out: &mut Vec<u8>) {
        if let Some(value) = field {
            <K as FieldKind>::encode(value, number, out);
        }
    }

    #[inline(always)]
    fn encoded_len(field: &Option<K::Value>, number: u32) -> usize {
        let len = |value| <K as FieldKind>::encoded_len(value, number);
        field.as_ref().map_or(0, len)
    }
}

impl<'a, M: Message<'a>> Field<'a> for Embedded<M> {
    type Value = Option<M>;

    const LABEL: Label = Label::Optional;

    const KIND: &'static str = M::NAME;

    #[inline(always)]
    fn merge(
        field: &mut Option<M>,
        value: FieldValue<'a>,
        _number: u32,
        _message: &'a [u8],
    ) -> Result<(), DecodeError> {
        field.get_or_insert_default().merge(value.bytes()?)
    }

    fn validate(field: &Option<M>) -> Result<(), DecodeError> {
        field.as_ref().map_or(Ok(()), M::validate)
    }

    #[inline(always)]
    fn encode(field: &Option<M>, number: u32, out: &mut Vec<u8>) {
        if let Some(message) = field {
            <Embedded<M> as FieldKind>::encode(message, number, out);
        }
    }

    #[inline(always)]
    fn encoded_len(field: &Option<M>, number: u32) -> usize {
        let len = |message| <Embedded<M> as FieldKind>::encoded_len(message, number);
        field.as_ref().map_or(0, len)
    }
}

impl<'a, K: FieldKind<'a> + 'a> Field<'a> for Repeated<K> {
    type Value = List<'a, K>;

    const LABEL: Label = Label::Repeated;

    const KIND: &'static str = K::NAME;

    #[inline(always)]
    fn merge(
        field: &mut List<'a, K>,
        value: FieldValue<'a>,
        number: u32,
        message: &'a [u8],
    ) -> Result<(), DecodeError> {
        field.merge(value, number, message)
    }

    fn validate(field: &List<'a, K>) -> Result<(), DecodeError> {
        field.iter().try_for_each(|element| K::validate(&element?))
    }

    #[inline(always)]
    fn encode(field: &List<'a, K>, number: u32, out: &mut Vec<u8>) {
        field.encode(number, out);
    }

    #[inline(always)]
    fn encoded_len(field: &List<'a, K>, number: u32) -> usize {
        field.encoded_len(number)
    }
}

impl<'a, M: Message<'a>> FieldKind<'a> for Embedded<M> {
    type Value = M;

    const NAME: &'static str = M::NAME;

    #[inline(always)]
    fn decode(value: FieldValue<'a>) -> Result<M, DecodeError> {
        M::decode(value.bytes()?)
    }

    #[inline(always)]
    fn decode_inlined(value: FieldValue<'a>) -> Result<M, DecodeError> {
        M::decode_inlined(value.bytes()?)
    }

    #[inline(always)]
    fn merge(earlier: &mut M, value: FieldValue<'a>) -> Result<(), DecodeError> {
        earlier.merge(value.bytes()?)
    }

    #[inline(always)]
    fn check(value: FieldValue<'a>) -> Result<(), DecodeError> {
        value.bytes()?;
        Ok(())
    }

    fn validate(message: &M) -> Result<(), DecodeError> {
        message.validate()
    }

    #[inline(always)]
    fn encode(message: &M, number: u32, out: &mut Vec<u8>) {
        if M::IS_LENGTH_FIRST {
            writer::bytes_head(out, number, message.encoded_len());
            message.encode(out);
        } else {
            writer::message(out, number, |out| message.encode(out));
        }
    }

    #[inline(always)]
    fn encoded_len(message: &M, number: u32) -> usize {
        writer::bytes_len(number, message.encoded_len())
    }
}
