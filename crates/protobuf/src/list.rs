//! Repeated fields, decoded as they are walked.

use std::fmt;

use crate::kind::FieldKind;
use crate::limits::MERGED_PARTS_MAX;
use crate::reader::{DecodeError, FieldFault, FieldValue, Reader};
use crate::writer;

/// The values of a repeated field: of a decoded message the place where they stand, of a message to
/// be encoded a slice of them.
pub struct List<'a, K: FieldKind<'a>> {
    /// Values to be encoded; empty in a decoded message.
    values: &'a [K::Value],
    /// The messages in which elements stand, the unused ones empty: more than one if a message was
    /// merged from several.
    parts: [&'a [u8]; MERGED_PARTS_MAX],
    /// The number of the field in them.
    number: u32,
    count: usize,
}

impl<'a, K: FieldKind<'a>> List<'a, K> {
    /// Returns how many elements there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there is no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Decodes one element after the other. After an error there is none.
    #[inline]
    pub fn iter(&self) -> Elements<'a, K> {
        Elements {
            list: *self,
            values: self.values.iter(),
            next_part: 0,
            reader: Reader::new(&[]),
            packed: Reader::new(&[]),
        }
    }

    /// Walks the messages of a decoded list as they are encoded, for a caller that knows a shorter
    /// way to decode them. A list that was made of values has none, and one of numbers neither.
    #[inline(always)]
    pub fn encoded(&self) -> EncodedElements<'a> {
        EncodedElements {
            parts: self.parts,
            number: self.number,
            next_part: 0,
            reader: Reader::new(&[]),
        }
    }

    /// Takes up one field `number` of `message`, an element or some packed ones.
    #[inline(always)]
    pub(crate) fn merge(
        &mut self,
        value: FieldValue<'a>,
        number: u32,
        message: &'a [u8],
    ) -> Result<(), DecodeError> {
        match value {
            FieldValue::Bytes(packed) if K::IS_PACKED => self.count += count_packed::<K>(packed)?,
            value => {
                K::check(value)?;
                self.count += 1;
            }
        }
        if !std::ptr::eq(self.parts[0], message) {
            self.add_part(number, message)?;
        }
        Ok(())
    }

    fn add_part(&mut self, number: u32, message: &'a [u8]) -> Result<(), FieldFault> {
        self.number = number;
        for part in &mut self.parts {
            // Used ones are never empty: they have a field.
            if part.is_empty() {
                *part = message;
            }
            if std::ptr::eq(*part, message) {
                return Ok(());
            }
        }
        Err(FieldFault::TooManyParts)
    }

    pub(crate) fn encode(&self, number: u32, out: &mut Vec<u8>) {
        if K::IS_PACKED {
            if self.count > 0 {
                writer::message(out, number, |out| {
                    self.valid().for_each(|value| K::encode_packed(&value, out));
                });
            }
        } else {
            self.valid()
                .for_each(|value| K::encode(&value, number, out));
        }
    }

    pub(crate) fn encoded_len(&self, number: u32) -> usize {
        if K::IS_PACKED {
            let mut packed = Vec::new();
            self.encode(number, &mut packed);
            return packed.len();
        }
        self.valid()
            .map(|value| K::encoded_len(&value, number))
            .sum()
    }

    /// The elements up to the first one that cannot be decoded: such a list came from elsewhere and
    /// was not looked at before it is sent on.
    fn valid(&self) -> impl Iterator<Item = K::Value> + use<'a, K> {
        self.iter().map_while(Result::ok)
    }
}

/// Walks the messages of a [`List`] without decoding them.
#[derive(Clone, Debug)]
pub struct EncodedElements<'a> {
    parts: [&'a [u8]; MERGED_PARTS_MAX],
    number: u32,
    next_part: usize,
    reader: Reader<'a>,
}

impl<'a> EncodedElements<'a> {
    #[inline(always)]
    fn try_next(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        loop {
            match self.reader.next_field()? {
                Some((number, value)) if number == self.number => {
                    return Ok(Some(value.bytes()?));
                }
                Some(_) => {}
                None => match self.parts.get(self.next_part) {
                    Some(part) if !part.is_empty() => {
                        self.next_part += 1;
                        self.reader = Reader::new(part);
                    }
                    _ => return Ok(None),
                },
            }
        }
    }
}

impl<'a> Iterator for EncodedElements<'a> {
    type Item = &'a [u8];

    /// Nothing follows what is no field: decoding the list has refused that already.
    #[inline(always)]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.try_next().unwrap_or(None)
    }
}

fn count_packed<'a, K: FieldKind<'a>>(packed: &'a [u8]) -> Result<usize, DecodeError> {
    let mut reader = Reader::new(packed);
    let mut count = 0;
    while let Some(value) = K::next_packed(&mut reader)? {
        K::check(value)?;
        count += 1;
    }
    Ok(count)
}

/// Walks the elements of a [`List`].
pub struct Elements<'a, K: FieldKind<'a>> {
    list: List<'a, K>,
    values: std::slice::Iter<'a, K::Value>,
    next_part: usize,
    reader: Reader<'a>,
    packed: Reader<'a>,
}

impl<'a, K: FieldKind<'a>> Elements<'a, K> {
    #[inline]
    fn try_next(&mut self) -> Result<Option<K::Value>, DecodeError> {
        loop {
            if K::IS_PACKED
                && let Some(value) = K::next_packed(&mut self.packed)?
            {
                return K::decode(value).map(Some);
            }
            match self.reader.next_field()? {
                Some((number, _)) if number != self.list.number => {}
                Some((_, FieldValue::Bytes(packed))) if K::IS_PACKED => {
                    self.packed = Reader::new(packed);
                }
                Some((_, value)) => return K::decode(value).map(Some),
                None => match self.list.parts.get(self.next_part) {
                    Some(part) if !part.is_empty() => {
                        self.next_part += 1;
                        self.reader = Reader::new(part);
                    }
                    _ => return Ok(None),
                },
            }
        }
    }
}

impl<'a, K: FieldKind<'a>> Iterator for Elements<'a, K> {
    type Item = Result<K::Value, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(value) = self.values.next() {
            return Some(Ok(value.clone()));
        }
        let next = self.try_next();
        if next.is_err() {
            self.next_part = MERGED_PARTS_MAX;
            self.reader = Reader::new(&[]);
            self.packed = Reader::new(&[]);
        }
        next.transpose()
    }
}

impl<'a, K: FieldKind<'a>> Clone for List<'a, K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<'a, K: FieldKind<'a>> Copy for List<'a, K> {}

impl<'a, K: FieldKind<'a>> Default for List<'a, K> {
    #[inline]
    fn default() -> Self {
        List::from(&[][..])
    }
}

impl<'a, K: FieldKind<'a>> From<&'a [K::Value]> for List<'a, K> {
    #[inline]
    fn from(values: &'a [K::Value]) -> Self {
        List {
            values,
            parts: [&[]; MERGED_PARTS_MAX],
            number: 0,
            count: values.len(),
        }
    }
}

impl<'a, K: FieldKind<'a>, const COUNT: usize> From<&'a [K::Value; COUNT]> for List<'a, K> {
    #[inline]
    fn from(values: &'a [K::Value; COUNT]) -> Self {
        List::from(&values[..])
    }
}

impl<'a, K: FieldKind<'a>> IntoIterator for &List<'a, K> {
    type Item = Result<K::Value, DecodeError>;
    type IntoIter = Elements<'a, K>;

    #[inline]
    fn into_iter(self) -> Elements<'a, K> {
        self.iter()
    }
}

impl<'a, K: FieldKind<'a>> PartialEq for List<'a, K> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, K: FieldKind<'a>> fmt::Debug for List<'a, K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, K: FieldKind<'a>> fmt::Debug for Elements<'a, K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Elements").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(dead_code, reason = "not all that a description makes is used here")]
mod tests {
    use crate::writer;
    use crate::{DecodeError, FieldFault, List};

    crate::message! {
        /// Numbers.
        pub struct Inner<'a> = "test.Inner" in "inner." {
            /// Packed.
            1 numbers: repeated fixed32,
            /// A name.
            2 name: string,
        }

        /// Numbers within.
        pub struct Outer<'a> = "test.Outer" {
            /// Merged.
            1 inner: message Inner<'a>,
            /// Not packed.
            2 names: repeated string,
        }
    }

    fn inner(numbers: &[u32], out: &mut Vec<u8>) {
        let inner = Some(Inner {
            numbers: numbers.into(),
            name: "",
        });
        let names = List::default();
        Outer { inner, names }.encode(out);
    }

    #[test]
    fn elements_of_merged_messages_follow_each_other() {
        let mut bytes = Vec::new();
        inner(&[1, 2], &mut bytes);
        inner(&[], &mut bytes);
        inner(&[3], &mut bytes);
        let outer = Outer::decode(&bytes).expect("it is a message");
        let numbers = outer.inner.expect("it is there").numbers;
        assert_eq!((numbers.len(), numbers.is_empty()), (3, false));
        assert_eq!(numbers, (&[1, 2, 3]).into());
        assert_ne!(numbers, (&[1, 2]).into());
        assert_eq!(format!("{numbers:?}"), "[Ok(1), Ok(2), Ok(3)]");
    }

    #[test]
    fn encoded_elements_of_merged_messages_follow_each_other() {
        crate::message! {
            /// Messages in a message.
            pub struct Nested<'a> = "test.Nested" {
                /// Merged.
                1 outer: message Outer<'a>,
            }
        }
        let mut bytes = Vec::new();
        for names in [&["a", "b"][..], &[], &["c"]] {
            let outer = Some(Outer {
                inner: None,
                names: names.into(),
            });
            Nested { outer }.encode(&mut bytes);
        }
        let nested = Nested::decode(&bytes).expect("it is a message");
        let names = nested.outer.expect("it is there").names;
        assert_eq!(names.encoded().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        // What is to be encoded has not been decoded.
        assert_eq!(List::<crate::Text>::from(&[""; 3]).encoded().count(), 0);
    }

    #[test]
    fn more_parts_than_are_remembered_are_refused() {
        let mut bytes = Vec::new();
        for part in 0..=crate::limits::MERGED_PARTS_MAX as u32 {
            let decoded = Outer::decode(&bytes);
            assert!(decoded.is_ok(), "{part} parts");
            inner(&[part], &mut bytes);
        }
        let error = Outer::decode(&bytes).expect_err("one part too many");
        assert_eq!(error.fault, FieldFault::TooManyParts);
        assert_eq!((error.field, error.name), (1, "inner.numbers"));
    }

    #[test]
    fn a_cut_number_of_a_packed_field_is_refused_at_once() {
        let mut bytes = Vec::new();
        writer::bytes(&mut bytes, 1, &[0; 7]);
        let error = Inner::decode(&bytes).expect_err("four bytes and three");
        assert_eq!(error.fault, FieldFault::Truncated);
    }

    #[test]
    fn nothing_follows_an_element_that_is_refused() {
        crate::message! {
            /// Messages.
            pub struct Messages<'a> = "test.Messages" {
                /// Decoded when they are walked.
                1 inner: repeated message Inner<'a>,
            }
        }
        let mut bytes = Vec::new();
        writer::bytes(&mut bytes, 1, &[0x12, 1, b'a']);
        writer::bytes(&mut bytes, 1, &[0x12, 1, 0xff]);
        writer::bytes(&mut bytes, 1, &[0x12, 1, b'b']);
        let messages = Messages::decode(&bytes).expect("its own fields are sound");
        let encoded: Vec<_> = messages.inner.encoded().collect();
        assert_eq!(
            encoded,
            [&[0x12, 1, b'a'], &[0x12, 1, 0xff], &[0x12, 1, b'b']]
        );
        let names: Vec<_> = messages
            .inner
            .iter()
            .map(|inner| inner.map(|inner| inner.name))
            .collect();
        let refused = DecodeError {
            field: 2,
            name: "inner.name",
            fault: FieldFault::NotUtf8,
        };
        assert_eq!(names, [Ok("a"), Err(refused)]);
        assert_eq!(crate::Message::validate(&messages), Err(refused));
    }
}
