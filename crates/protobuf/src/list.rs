//! Repeated fields, decoded as they are walked.

use std::fmt;

use crate::field::Kind;
use crate::limits::MERGED_PARTS_MAX;
use crate::reader::{DecodeError, Fault, Reader, Value};
use crate::writer;

/// The values of a repeated field: of a decoded message the place where they stand, of a message to
/// be encoded a slice of them.
pub struct List<'a, K: Kind<'a>> {
    /// Values to be encoded; empty in a decoded message.
    values: &'a [K::Value],
    /// The messages in which elements stand, the unused ones empty: more than one if a message was
    /// merged from several.
    parts: [&'a [u8]; MERGED_PARTS_MAX],
    /// The number of the field in them.
    number: u32,
    count: usize,
}

impl<'a, K: Kind<'a>> List<'a, K> {
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

    /// Takes up one field `number` of `message`, an element or some packed ones.
    #[inline(always)]
    pub(crate) fn merge(
        &mut self,
        value: Value<'a>,
        number: u32,
        message: &'a [u8],
    ) -> Result<(), DecodeError> {
        match value {
            Value::Bytes(packed) if K::IS_PACKED => self.count += count_packed::<K>(packed)?,
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

    fn add_part(&mut self, number: u32, message: &'a [u8]) -> Result<(), Fault> {
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
        Err(Fault::TooManyParts)
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

fn count_packed<'a, K: Kind<'a>>(packed: &'a [u8]) -> Result<usize, DecodeError> {
    let mut reader = Reader::new(packed);
    let mut count = 0;
    while let Some(value) = K::next_packed(&mut reader)? {
        K::check(value)?;
        count += 1;
    }
    Ok(count)
}

/// Walks the elements of a [`List`].
pub struct Elements<'a, K: Kind<'a>> {
    list: List<'a, K>,
    values: std::slice::Iter<'a, K::Value>,
    next_part: usize,
    reader: Reader<'a>,
    packed: Reader<'a>,
}

impl<'a, K: Kind<'a>> Elements<'a, K> {
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
                Some((_, Value::Bytes(packed))) if K::IS_PACKED => {
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

impl<'a, K: Kind<'a>> Iterator for Elements<'a, K> {
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

impl<'a, K: Kind<'a>> Clone for List<'a, K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<'a, K: Kind<'a>> Copy for List<'a, K> {}

impl<'a, K: Kind<'a>> Default for List<'a, K> {
    #[inline]
    fn default() -> Self {
        List::from(&[][..])
    }
}

impl<'a, K: Kind<'a>> From<&'a [K::Value]> for List<'a, K> {
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

impl<'a, K: Kind<'a>, const COUNT: usize> From<&'a [K::Value; COUNT]> for List<'a, K> {
    #[inline]
    fn from(values: &'a [K::Value; COUNT]) -> Self {
        List::from(&values[..])
    }
}

impl<'a, K: Kind<'a>> IntoIterator for &List<'a, K> {
    type Item = Result<K::Value, DecodeError>;
    type IntoIter = Elements<'a, K>;

    #[inline]
    fn into_iter(self) -> Elements<'a, K> {
        self.iter()
    }
}

impl<'a, K: Kind<'a>> PartialEq for List<'a, K> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, K: Kind<'a>> fmt::Debug for List<'a, K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, K: Kind<'a>> fmt::Debug for Elements<'a, K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Elements").finish_non_exhaustive()
    }
}
