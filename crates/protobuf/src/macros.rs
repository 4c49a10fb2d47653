//! The macros that make of a list of fields a struct, its decoder and its encoder.

#[cfg(doc)]
use crate::{Message, Oneof};

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
    ([$life:lifetime] secret) => { $crate::Secret<$life> };
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
    (secret) => { $crate::SecretText };
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
/// they stand here. Scalar types are called as in `.proto` files; one of an enum is `enumeration`,
/// and a string that nothing may show is `secret`.
/// A message that borrows nothing has no `<'a>`. With `"package.Name" in "outer."` errors name its
/// fields as those of the message around it. With `reserved`, the number of the last field in the
/// range that was given, 0 if none, is in the field `name`.
///
/// `[length_first]` before the fields sets [`Message::IS_LENGTH_FIRST`], and `[request]` sets
/// [`Message::FIELDS_MAX`] to that of a request with a list.
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
                    $crate::Message::merge_inlined(self, message)
                }

                #[inline(always)]
                fn merge_inlined(
                    &mut self,
                    message: &$life [u8],
                ) -> ::std::result::Result<(), $crate::DecodeError> {
                    #[inline(always)]
                    fn merge_field<$life>(
                        merged: &mut $message_type,
                        number: u32,
                        value: $crate::FieldValue<$life>,
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

                    let mut reader = $crate::Reader::bounded(message, Self::FIELDS_MAX);
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
    (@option request) => { const FIELDS_MAX: u32 = $crate::limits::REQUEST_FIELDS_MAX; };
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

        const _: () = {
            /// The numbers of the members.
            #[derive(Debug)]
            pub struct Numbers {
                $(#[doc = concat!("The number of `", stringify!($field), "`.")] pub $field: u32,)*
            }

            impl $(<$param>)? $name $(<$param>)? {
                /// The number of each member.
                pub const NUMBERS: Numbers = Numbers { $($field: $number,)* };
            }
        };

        impl<$life> $name $(<$param>)? {
            /// Decodes a message that is one member and nothing else, which is what every encoder
            /// makes of one that has nothing but the oneof, and hands the member on. `take` is
            /// compiled for each member by itself, so that none of them is moved through memory.
            ///
            /// `None` if the message is another one, or broken: decode it as a whole then.
            #[inline(always)]
            pub fn decode_sole<Taken>(
                message: &$life [u8],
                take: impl FnOnce(Self) -> Taken,
            ) -> Option<Taken> {
                let mut reader = $crate::Reader::new(message);
                let Ok(Some((number, value))) = reader.next_field() else {
                    return None;
                };
                if !reader.is_at_end() {
                    return None;
                }
                match number {
                    $($number => {
                        let member = <
                            $crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::FieldKind
                        >::decode_inlined(value);
                        Some(take($oneof::$variant(member.ok()?)))
                    })*
                    _ => None,
                }
            }
        }

        impl<$life> $crate::Oneof<$life> for $name $(<$param>)? {
            const FIELDS: &'static [$crate::FieldDescription] = &[$(
                $crate::FieldDescription {
                    number: $number,
                    name: stringify!($field),
                    path: stringify!($field),
                    kind: <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::FieldKind>::NAME,
                    label: $crate::Label::Optional,
                },
            )*];

            #[inline(always)]
            fn merge(
                oneof: &mut Option<Self>,
                number: u32,
                value: $crate::FieldValue<$life>,
            ) -> ::std::result::Result<bool, $crate::DecodeError> {
                match number {
                    $($number => {
                        if let Some($oneof::$variant(earlier)) = oneof {
                            <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::FieldKind>::merge(earlier, value)?;
                        } else {
                            let decoded = <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::FieldKind>::decode(value)?;
                            *oneof = Some($oneof::$variant(decoded));
                        }
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            fn validate(&self) -> ::std::result::Result<(), $crate::DecodeError> {
                match self {
                    $($oneof::$variant(value) => <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::FieldKind>::validate(value),)*
                }
            }

            #[inline]
            fn encode(&self, out: &mut ::std::vec::Vec<u8>) {
                match self {
                    $($oneof::$variant(value) => {
                        <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::FieldKind>::encode(value, $number, out);
                    })*
                }
            }

            #[inline]
            fn encoded_len(&self) -> usize {
                match self {
                    $($oneof::$variant(value) => {
                        <$crate::kind!($($kind)+ $(<$kind_life>)?) as $crate::FieldKind>::encoded_len(value, $number)
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

#[cfg(test)]
#[allow(dead_code, reason = "not all that a description makes is used here")]
mod tests {
    use crate::{Message, writer};

    crate::message! {
        /// With one field.
        pub struct Inner<'a> = "test.Inner" {
            /// A name.
            1 name: string,
        }

        /// Nothing but a oneof.
        pub struct Chosen<'a> = "test.Chosen" {} oneofs {
            /// The oneof.
            choice: Choice<'a>,
        }
    }

    crate::oneof! {
        /// A number or a message.
        pub enum Choice<'a> {
            /// A number.
            2 Number(number): uint64,
            /// A message.
            3 Inner(inner): message Inner<'a>,
        }
    }

    fn sole(message: &[u8]) -> Option<Choice<'_>> {
        Choice::decode_sole(message, |choice| choice)
    }

    #[test]
    fn a_sole_member_is_what_decoding_the_message_finds() {
        let name = "a";
        for choice in [Choice::Number(0), Choice::Inner(Inner { name })] {
            let mut bytes = Vec::new();
            choice.encode(&mut bytes);
            assert_eq!(sole(&bytes), Some(choice));
            let chosen = Chosen::decode(&bytes).expect("it is a message");
            assert_eq!(chosen.choice, Some(choice));
            assert_eq!(Chosen::decode_inlined(&bytes), Ok(chosen));
        }
        assert_eq!((Choice::NUMBERS.number, Choice::NUMBERS.inner), (2, 3));
    }

    #[test]
    fn what_is_no_sole_member_is_left_to_the_decoder_of_the_message() {
        let twice = [0x10, 1, 0x10, 2];
        let replaced = [0x10, 1, 0x1a, 0];
        let later = [0x10, 1, 0x20, 1];
        let wrong = [0x12, 0];
        let cut = [0x1a, 3, 0x0a];
        let no_name = [0x1a, 3, 0x0a, 1, 0xff];
        for message in [
            &[][..],
            &[0x20, 1],
            &twice,
            &replaced,
            &later,
            &wrong,
            &cut,
            &no_name,
        ] {
            assert_eq!(sole(message), None, "{message:?}");
        }
        let choice = |message| Chosen::decode(message).map(|chosen| chosen.choice);
        assert_eq!(choice(&twice[..]), Ok(Some(Choice::Number(2))));
        assert_eq!(choice(&replaced), Ok(Some(Choice::Inner(Inner::default()))));
        assert_eq!(choice(&later), Ok(Some(Choice::Number(1))));
        for message in [&wrong[..], &cut, &no_name] {
            assert!(choice(message).is_err(), "{message:?}");
        }
    }

    #[test]
    fn a_broken_message_is_refused_alike_when_it_is_decoded_inline() {
        let mut bytes = Vec::new();
        writer::bytes(&mut bytes, 1, &[0xff]);
        let error = Inner::decode(&bytes).expect_err("it is not UTF-8");
        assert_eq!(error.name, "name");
        assert_eq!(Inner::decode_inlined(&bytes), Err(error));
    }
}
