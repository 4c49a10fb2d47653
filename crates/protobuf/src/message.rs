//! Messages described by their fields: the traits, and the macros that implement them.

use std::fmt::Debug;

use crate::reader::DecodeError;
#[cfg(doc)]
use crate::{Embedded, Optional, Repeated, Scalar};
use crate::{Fault, Value};

/// How many values a field may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// A scalar, which has its default where the field is absent: a [`Scalar`].
    Singular,
    /// None or one: [`Optional`], [`Embedded`], or a member of a oneof.
    Optional,
    /// Any number: [`Repeated`].
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

/// A message of protobuf, described by [`message!`](crate::message!).
pub trait Message<'a>: Clone + Debug + Default + PartialEq {
    /// Its full name.
    const NAME: &'static str;

    /// Its fields but those of its oneofs.
    const FIELDS: &'static [FieldDescription];

    /// Its oneofs: the name of each, and its fields.
    const ONEOFS: &'static [(&'static str, &'static [FieldDescription])];

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
    fn merge(oneof: &mut Option<Self>, number: u32, value: Value<'a>) -> Result<bool, DecodeError>;

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
        let fault: Fault = self.fault;
        DecodeError { field, name, fault }
    }
}

/// The type in Rust of a field. Not a projection of its kind, which would make it invariant.
#[doc(hidden)]
#[macro_export]
macro_rules! value {
    ([$life:lifetime] optional $kind:ident) => {
        ::std::option::Option<$crate::value!([$life] $kind)>
    };
    ([$life:lifetime] repeated $($kind:tt)+) => { $crate::List<$life, $crate::kind!($($kind)+)> };
    ([$life:lifetime] message $($message:tt)+) => { ::std::option::Option<$($message)+> };
    ([$life:lifetime] member message $($message:tt)+) => { $($message)+ };
    ([$life:lifetime] member $kind:ident) => { $crate::value!([$life] $kind) };
    ([$life:lifetime] string) => { &$life str };
    ([$life:lifetime] bytes) => { &$life [u8] };
    ([$life:lifetime] uint64) => { u64 };
    ([$life:lifetime] uint32) => { u32 };
    ([$life:lifetime] int64) => { i64 };
    ([$life:lifetime] int32) => { i32 };
    ([$life:lifetime] sint64) => { i64 };
    ([$life:lifetime] sint32) => { i32 };
    ([$life:lifetime] bool) => { bool };
    ([$life:lifetime] enumeration) => { i32 };
    ([$life:lifetime] fixed32) => { u32 };
    ([$life:lifetime] fixed64) => { u64 };
    ([$life:lifetime] double) => { f64 };
}

/// The kind of a field.
#[doc(hidden)]
#[macro_export]
macro_rules! kind {
    (optional $kind:ident) => { $crate::Optional<$crate::kind!($kind)> };
    (repeated $($kind:tt)+) => { $crate::Repeated<$crate::kind!($($kind)+)> };
    (message $($message:tt)+) => { $crate::Embedded<$($message)+> };
    (string) => { $crate::Text };
    (bytes) => { $crate::Bytes };
    (uint64) => { $crate::Uint64 };
    (uint32) => { $crate::Uint32 };
    (int64) => { $crate::Int64 };
    (int32) => { $crate::Int32 };
    (sint64) => { $crate::Sint64 };
    (sint32) => { $crate::Sint32 };
    (bool) => { $crate::Boolean };
    (enumeration) => { $crate::Enumeration };
    (fixed32) => { $crate::Fixed32 };
    (fixed64) => { $crate::Fixed64 };
    (double) => { $crate::Double };
}

/// Describes a message: generates its struct, which borrows from the bytes that it was decoded
/// from, and its [`Message`].
///
/// ```text
/// message! {
///     /// Documentation.
///     pub struct Name<'a> = "package.Name" {
///         1 name: string,
///         2 count: optional uint64,
///         3 part: message Part<'a>,
///         4 lines: repeated uint32,
///         …
///     }
///     oneofs {
///         name: Oneof,
///     }
///     reserved { name: 12..=15 }
/// }
/// ```
///
/// The blocks `oneofs` and `reserved` may be left out. Fields are encoded in the order in which
/// they stand here. Scalar types are called as in `.proto` files; one of an enum is `enumeration`.
/// A message that borrows nothing has no `<'a>`. With `"package.Name" in "outer."` errors name its
/// fields as those of the message around it. With `reserved`, the number of the last field in the
/// range that was given, 0 if none, is in the field `name`.
///
/// `[length_first]` before the fields sets [`Message::IS_LENGTH_FIRST`].
///
/// `Name::NUMBERS.field` is the number of a field, for those who write a message piece by piece.
#[macro_export]
macro_rules! message {
    ($(
        $(#[$attribute:meta])*
        pub struct $message:ident $(<$life:lifetime>)? = $full_name:literal $(in $prefix:literal)?
        $([$option:ident])?
        { $($fields:tt)* }
        $(oneofs { $($oneofs:tt)* })?
        $(reserved { $($reserved:tt)* })?
    )*) => { $(
        $crate::message! { @life [$($life)?]
            [$(#[$attribute])*] $message $full_name [$($prefix)?] [$($option)?]
            { $($fields)* } { $($($oneofs)*)? } { $($($reserved)*)? }
        }
    )* };
    (@life [] $attributes:tt $message:ident $($rest:tt)*) => {
        $crate::message! { @define $attributes [$message] ['message] $message $($rest)* }
    };
    (@life [$life:lifetime] $attributes:tt $message:ident $($rest:tt)*) => {
        $crate::message! { @define $attributes [$message<$life>] [$life] $message $($rest)* }
    };
    (@define [$($attribute:tt)*] [$message_type:ty] [$life:lifetime] $message:ident
        $full_name:literal $prefix:tt [$($option:ident)?]
        {
            $($(#[$field_attribute:meta])* $number:literal $field:ident: $($kind:ident)+ $(<$kind_life:lifetime>)?,)*
        }
        { $($(#[$oneof_attribute:meta])* $oneof:ident: $oneof_type:ty,)* }
        { $($reserved:ident: $reserved_numbers:pat)? }
    ) => {
        $crate::message! { @struct [$($attribute)*] $message [$life] {
            $($(#[$field_attribute])* $field: [$($kind)+ $(<$kind_life>)?],)*
        } {
            $($(#[$oneof_attribute])* $oneof: $oneof_type,)*
        } { $($reserved)? } }

        const _: () = {
            /// The numbers of the fields.
            #[derive(Debug)]
            pub struct Numbers {
                $(#[doc = concat!("The number of `", stringify!($field), "`.")] pub $field: u32,)*
            }

            impl<$life> $message_type {
                /// The number of each field.
                pub const NUMBERS: Numbers = Numbers { $($field: $number,)* };

                /// Decodes the message.
                ///
                /// # Errors
                ///
                /// The bytes are no message, or a field has a wrong wire type.
                #[inline(always)]
                pub fn decode(
                    message: &$life [u8],
                ) -> ::std::result::Result<Self, $crate::DecodeError> {
                    $crate::Message::decode(message)
                }

                /// Appends the message.
                #[inline]
                pub fn encode(&self, out: &mut ::std::vec::Vec<u8>) {
                    $crate::Message::encode(self, out);
                }

                /// Returns how many bytes `encode` appends.
                #[inline]
                pub fn encoded_len(&self) -> usize {
                    $crate::Message::encoded_len(self)
                }
            }

            impl<$life> $crate::Message<$life> for $message_type {
                const NAME: &'static str = $full_name;

                const FIELDS: &'static [$crate::FieldDescription] = &[$(
                    $crate::FieldDescription {
                        number: $number,
                        name: stringify!($field),
                        path: $crate::message!(@path $prefix $field),
                        kind: <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Field>::KIND,
                        label: <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Field>::LABEL,
                    },
                )*];

                $($crate::message! { @option $option })?

                const ONEOFS: &'static [(&'static str, &'static [$crate::FieldDescription])] = &[$(
                    (stringify!($oneof), <$oneof_type as $crate::Oneof>::FIELDS),
                )*];

                #[inline]
                fn merge(
                    &mut self,
                    message: &$life [u8],
                ) -> ::std::result::Result<(), $crate::DecodeError> {
                    #[inline(always)]
                    fn merge_field<$life>(
                        merged: &mut $message_type,
                        number: u32,
                        value: $crate::Value<$life>,
                        message: &$life [u8],
                    ) -> ::std::result::Result<(), $crate::DecodeError> {
                        let _ = (&merged, value, message);
                        match number {
                            $($number => {
                                return <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Field>::merge(
                                    &mut merged.$field, value, $number, message,
                                );
                            })*
                            $($reserved_numbers => merged.$reserved = number,)?
                            _ => {}
                        }
                        $(
                            if <$oneof_type as $crate::Oneof>::merge(
                                &mut merged.$oneof, number, value,
                            )? {
                                return Ok(());
                            }
                        )*
                        Ok(())
                    }

                    let mut reader = $crate::Reader::new(message);
                    loop {
                        match reader.next_field() {
                            Ok(Some((number, value))) => {
                                if let Err(error) = merge_field(self, number, value, message) {
                                    return Err(error.within(number, Self::FIELDS, Self::ONEOFS));
                                }
                            }
                            Ok(None) => return Ok(()),
                            Err(error) => return Err(error.within(0, Self::FIELDS, Self::ONEOFS)),
                        }
                    }
                }

                fn validate(&self) -> ::std::result::Result<(), $crate::DecodeError> {
                    $(<$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Field>::validate(&self.$field)?;)*
                    $(self.$oneof.as_ref().map_or(Ok(()), $crate::Oneof::validate)?;)*
                    Ok(())
                }

                #[inline]
                fn encode(&self, out: &mut ::std::vec::Vec<u8>) {
                    let _ = &out;
                    $(<$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Field>::encode(&self.$field, $number, out);)*
                    $(
                        if let Some(oneof) = &self.$oneof {
                            $crate::Oneof::encode(oneof, out);
                        }
                    )*
                }

                #[inline]
                fn encoded_len(&self) -> usize {
                    0 $(+ <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Field>::encoded_len(&self.$field, $number))*
                        $(+ self.$oneof.as_ref().map_or(0, $crate::Oneof::encoded_len))*
                }
            }
        };
    };
    (@option length_first) => { const IS_LENGTH_FIRST: bool = true; };
    (@path [] $field:ident) => { stringify!($field) };
    (@path [$prefix:literal] $field:ident) => { concat!($prefix, stringify!($field)) };
    // A struct has a lifetime or not, and its fields the same one or any.
    (@struct $attributes:tt $message:ident ['message] $($rest:tt)*) => {
        $crate::message! { @fields $attributes [$message] ['static] $($rest)* }
    };
    (@struct $attributes:tt $message:ident [$life:lifetime] $($rest:tt)*) => {
        $crate::message! { @fields $attributes [$message<$life>] [$life] $($rest)* }
    };
    (@fields [$($attribute:tt)*] [$message:ident $(<$param:lifetime>)?] [$life:lifetime]
        { $($(#[$field_attribute:meta])* $field:ident: [$($value:tt)*],)* }
        { $($(#[$oneof_attribute:meta])* $oneof:ident: $oneof_type:ty,)* }
        { $($reserved:ident)? }
    ) => {
        $($attribute)*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $message $(<$param>)? {
            $(
                $(#[$field_attribute])*
                pub $field: $crate::value!([$life] $($value)*),
            )*
            $(
                $(#[$oneof_attribute])*
                pub $oneof: Option<$oneof_type>,
            )*
            $(
                /// The number of a reserved field that was given, 0 for none.
                pub $reserved: u32,
            )?
        }
    };
}

/// Describes a oneof: generates an enum of its members, and its [`Oneof`].
///
/// ```text
/// oneof! {
///     /// Documentation.
///     pub enum Name<'a> {
///         4 Variant(field_name): string,
///         5 Other(field_name): message Part<'a>,
///     }
/// }
/// ```
#[macro_export]
macro_rules! oneof {
    ($(
        $(#[$attribute:meta])*
        pub enum $oneof:ident $(<$life:lifetime>)? { $($fields:tt)* }
    )*) => { $(
        $crate::oneof! { @life [$($life)?] [$(#[$attribute])*] $oneof { $($fields)* } }
    )* };
    (@life [] $attributes:tt $oneof:ident $fields:tt) => {
        $crate::oneof! { @define $attributes $oneof [$oneof] ['message] ['static] $fields }
    };
    (@life [$life:lifetime] $attributes:tt $oneof:ident $fields:tt) => {
        $crate::oneof! { @define $attributes $oneof [$oneof<$life>] [$life] [$life] $fields }
    };
    (@define [$($attribute:tt)*] $oneof:ident [$name:ident $(<$param:lifetime>)?]
        [$life:lifetime] [$value_life:lifetime]
        {
            $(
                $(#[$variant_attribute:meta])*
                $number:literal $variant:ident($field:ident):
                $($kind:ident)+ $(<$kind_life:lifetime>)?,
            )*
        }
    ) => {
        $($attribute)*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum $name $(<$param>)? {
            $($(#[$variant_attribute])* $variant($crate::value!([$value_life] member $($kind)+ $(<$kind_life>)?)),)*
        }

        impl $(<$param>)? $name $(<$param>)? {
            /// Appends the member, which is all of a message that has nothing but the oneof.
            #[inline]
            pub fn encode(&self, out: &mut ::std::vec::Vec<u8>) {
                $crate::Oneof::encode(self, out);
            }
        }

        impl<$life> $crate::Oneof<$life> for $name $(<$param>)? {
            const FIELDS: &'static [$crate::FieldDescription] = &[$(
                $crate::FieldDescription {
                    number: $number,
                    name: stringify!($field),
                    path: stringify!($field),
                    kind: <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Kind>::NAME,
                    label: $crate::Label::Optional,
                },
            )*];

            #[inline(always)]
            fn merge(
                oneof: &mut Option<Self>,
                number: u32,
                value: $crate::Value<$life>,
            ) -> ::std::result::Result<bool, $crate::DecodeError> {
                match number {
                    $($number => {
                        if let Some($oneof::$variant(earlier)) = oneof {
                            <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Kind>::merge(earlier, value)?;
                        } else {
                            let decoded = <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Kind>::decode(value)?;
                            *oneof = Some($oneof::$variant(decoded));
                        }
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            fn validate(&self) -> ::std::result::Result<(), $crate::DecodeError> {
                match self {
                    $($oneof::$variant(value) => <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Kind>::validate(value),)*
                }
            }

            #[inline]
            fn encode(&self, out: &mut ::std::vec::Vec<u8>) {
                match self {
                    $($oneof::$variant(value) => {
                        <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Kind>::encode(value, $number, out);
                    })*
                }
            }

            #[inline]
            fn encoded_len(&self) -> usize {
                match self {
                    $($oneof::$variant(value) => {
                        <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::Kind>::encoded_len(value, $number)
                    })*
                }
            }
        }
    };
}

/// Describes an enum. Messages hold the number ([`Enumeration`](crate::Enumeration)), since a peer
/// may know more values; `Name::from_number` finds the value.
///
/// ```text
/// enumeration! {
///     /// Documentation.
///     pub enum Name = "package.Name" {
///         Unspecified = 0,
///     }
/// }
/// ```
#[macro_export]
macro_rules! enumeration {
    ($(
        $(#[$attribute:meta])*
        pub enum $name:ident = $full_name:literal {
            $($(#[$value_attribute:meta])* $value:ident = $number:literal,)*
        }
    )*) => { $(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$value_attribute])* $value = $number,)*
        }

        impl $name {
            /// Full name, and all values.
            pub const DESCRIPTION: $crate::EnumDescription = $crate::EnumDescription {
                name: $full_name,
                values: &[$(($number, stringify!($value)),)*],
            };

            /// Returns the number of the value, as messages hold it.
            pub const fn number(self) -> i32 {
                self as i32
            }

            /// Returns the value of this number, `None` for one that is not known.
            pub const fn from_number(number: i32) -> Option<$name> {
                match number {
                    $($number => Some($name::$value),)*
                    _ => None,
                }
            }
        }
    )* };
}
