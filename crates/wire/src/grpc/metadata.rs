//! What goes with a call besides its messages (gRPC over HTTP/2, "Custom-Metadata").

use std::borrow::Cow;
use std::fmt;

use super::base64;

/// Why a key or value cannot be metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// A key is one or more of `0-9 a-z _ - .`.
    #[error("a metadata key must be one or more of 0-9 a-z _ - .")]
    BadKey,
    /// A key that begins with `grpc-` belongs to gRPC.
    #[error("metadata keys that begin with grpc- belong to gRPC")]
    ReservedKey,
    /// The key ends with `-bin` and the value is text, or the other way round.
    #[error("binary metadata, and only it, must have a key that ends with -bin")]
    WrongKind,
    /// A text value is printable ASCII and space, without space at either end.
    #[error("a metadata value must be printable ASCII without space at either end")]
    BadValue,
    /// The value of a `-bin` key is not base64.
    #[error("the value of a -bin metadata key is not base64")]
    BadBase64,
}

/// The key of what proves who calls (RFC 9110 section 11.6.2).
pub const AUTHORIZATION: &str = "authorization";

/// Whether the values of this key are binary and travel as base64.
#[inline]
pub fn is_binary_key(key: &[u8]) -> bool {
    key.ends_with(b"-bin")
}

/// Whether the bytes are a key: one or more of `0-9 a-z _ - .`.
pub fn is_valid_key(key: &[u8]) -> bool {
    !key.is_empty()
        && key
            .iter()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'_' | b'-' | b'.'))
}

/// Returns whether a key belongs to gRPC, so that an application must not choose it.
fn is_reserved_key(key: &str) -> bool {
    key.starts_with("grpc-")
}

/// Whether the bytes are a text value: printable ASCII and space. Space at either end is refused
/// because it may not stand there in HTTP/2 (RFC 9113 section 8.2.1).
pub fn is_valid_text(value: &[u8]) -> bool {
    value.iter().all(|byte| matches!(byte, b' '..=b'~'))
        && value.first() != Some(&b' ')
        && value.last() != Some(&b' ')
}

/// Decodes the value of a `-bin` key: base64 with or without padding, several values joined by
/// commas. Calls `each` with every value, decoded to `buffer`, which is reused.
///
/// # Errors
/// [`MetadataError::BadBase64`]; the values before the wrong one have been handed over.
pub fn decode_binary(
    value: &[u8],
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> Result<(), MetadataError> {
    for part in value.split(|&byte| byte == b',') {
        buffer.clear();
        base64::decode(part.trim_ascii(), buffer).ok_or(MetadataError::BadBase64)?;
        each(buffer);
    }
    Ok(())
}

/// Appends the value of a `-bin` key as it travels: base64 without padding.
pub fn encode_binary(bytes: &[u8], out: &mut Vec<u8>) {
    base64::encode(bytes, out);
}

/// A list of valid metadata, in the order in which it is sent. Binary values lie in it as they are,
/// not as base64.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    entries: Vec<(Cow<'static, str>, Vec<u8>)>,
}

impl Metadata {
    /// An empty list.
    pub const fn new() -> Metadata {
        Metadata {
            entries: Vec::new(),
        }
    }

    /// Appends text.
    ///
    /// # Errors
    /// If key or value have a wrong form, the key begins with `grpc-`, or it ends with `-bin`.
    pub fn push_ascii(
        &mut self,
        key: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Result<(), MetadataError> {
        let key = key.into();
        if is_reserved_key(&key) {
            return Err(MetadataError::ReservedKey);
        }
        self.push_text(key, value.into())
    }

    fn push_text(&mut self, key: Cow<'static, str>, value: String) -> Result<(), MetadataError> {
        if !is_valid_key(key.as_bytes()) {
            return Err(MetadataError::BadKey);
        }
        if is_binary_key(key.as_bytes()) {
            return Err(MetadataError::WrongKind);
        }
        if !is_valid_text(value.as_bytes()) {
            return Err(MetadataError::BadValue);
        }
        self.entries.push((key, value.into_bytes()));
        Ok(())
    }

    /// Puts another text in the place of an entry, without a new allocation if it is no longer.
    ///
    /// # Errors
    /// If the entry is not one of text, or the value has a wrong form.
    pub fn set_text(&mut self, index: usize, value: &[u8]) -> Result<(), MetadataError> {
        let (key, old) = self.entries.get_mut(index).ok_or(MetadataError::BadKey)?;
        if is_binary_key(key.as_bytes()) {
            return Err(MetadataError::WrongKind);
        }
        if !is_valid_text(value) {
            return Err(MetadataError::BadValue);
        }
        old.clear();
        old.extend_from_slice(value);
        Ok(())
    }

    /// Appends bytes, under a key that ends with `-bin`.
    ///
    /// # Errors
    /// If the key has a wrong form, or begins with `grpc-`.
    pub fn push_binary(
        &mut self,
        key: impl Into<Cow<'static, str>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<(), MetadataError> {
        let key = key.into();
        if is_reserved_key(&key) {
            return Err(MetadataError::ReservedKey);
        }
        if !is_valid_key(key.as_bytes()) {
            return Err(MetadataError::BadKey);
        }
        if !is_binary_key(key.as_bytes()) {
            return Err(MetadataError::WrongKind);
        }
        self.entries.push((key, value.into()));
        Ok(())
    }

    /// Appends a field as it was received: text, or one or more binary values.
    ///
    /// # Errors
    /// If it is not metadata.
    pub fn push_received(&mut self, key: &[u8], value: &[u8]) -> Result<(), MetadataError> {
        let text_key = std::str::from_utf8(key).map_err(|_| MetadataError::BadKey)?;
        if !is_binary_key(key) {
            let value = std::str::from_utf8(value).map_err(|_| MetadataError::BadValue)?;
            return self.push_text(Cow::Owned(text_key.to_owned()), value.to_owned());
        }
        if !is_valid_key(key) {
            return Err(MetadataError::BadKey);
        }
        let before = self.entries.len();
        let decoded = decode_binary(value, &mut Vec::new(), |bytes| {
            self.entries
                .push((Cow::Owned(text_key.to_owned()), bytes.to_vec()));
        });
        if decoded.is_err() {
            self.entries.truncate(before);
        }
        decoded
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values in their order; a value is text or, if [`is_binary_key`], bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().map(|(key, value)| (&**key, &value[..]))
    }

    /// The first value of this key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.iter()
            .find(|entry| entry.0 == key)
            .map(|entry| entry.1)
    }
}

/// Without what proves who calls: that belongs in no log.
impl fmt::Debug for Metadata {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.entries.iter().map(|(key, value)| match &**key {
            AUTHORIZATION => (key, None),
            _ => (key, Some(String::from_utf8_lossy(value))),
        });
        formatter.debug_list().entries(shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    #[test]
    fn texts_are_replaced() {
        let mut metadata = Metadata::new();
        metadata.push_ascii("x-id", "1234").expect("valid");
        metadata.push_binary("x-bin", [1]).expect("valid");
        assert_eq!(metadata.set_text(0, b"567"), Ok(()));
        assert_eq!(metadata.get("x-id"), Some(&b"567"[..]));
        assert_eq!(metadata.set_text(0, b"a\nb"), Err(MetadataError::BadValue));
        assert_eq!(metadata.set_text(1, b"a"), Err(MetadataError::WrongKind));
        assert_eq!(metadata.set_text(2, b"a"), Err(MetadataError::BadKey));
    }

    #[test]
    fn keys_and_values() {
        let mut metadata = Metadata::new();
        for (key, value, expected) in [
            ("x-trace.id_1", "some text", Ok(())),
            ("empty", "", Ok(())),
            ("", "a", Err(MetadataError::BadKey)),
            ("Upper", "a", Err(MetadataError::BadKey)),
            ("a b", "a", Err(MetadataError::BadKey)),
            (":path", "a", Err(MetadataError::BadKey)),
            ("x-bin", "a", Err(MetadataError::WrongKind)),
            ("a", "é", Err(MetadataError::BadValue)),
            ("a", "b\n", Err(MetadataError::BadValue)),
            ("a", " b", Err(MetadataError::BadValue)),
            ("a", "b ", Err(MetadataError::BadValue)),
        ] {
            assert_eq!(
                metadata.push_ascii(key, value),
                expected,
                "{key:?} {value:?}"
            );
        }
        assert_eq!(
            metadata.push_binary("x", [1]),
            Err(MetadataError::WrongKind)
        );
        assert_eq!(
            metadata.push_binary("É-bin", [1]),
            Err(MetadataError::BadKey)
        );
        assert_eq!(metadata.push_binary("x-bin", [0, 255]), Ok(()));
        assert_eq!(metadata.len(), 3);
        assert_eq!(metadata.get("x-bin"), Some(&[0, 255][..]));
        assert_eq!(metadata.get("empty"), Some(&[][..]));
        assert_eq!(metadata.get("other"), None);
    }

    #[test]
    fn keys_of_grpc_are_received_but_never_chosen() {
        let mut metadata = Metadata::new();
        for key in ["grpc-timeout", "grpc-status", "grpc-future", "grpc-"] {
            let pushed = metadata.push_ascii(key, "1");
            assert_eq!(pushed, Err(MetadataError::ReservedKey), "{key}");
        }
        let pushed = metadata.push_binary("grpc-trace-bin", [1]);
        assert_eq!(pushed, Err(MetadataError::ReservedKey));
        assert!(metadata.is_empty());
        for key in ["grpc", "x-grpc-test", "grpcx-a"] {
            assert_eq!(metadata.push_ascii(key, "1"), Ok(()), "{key}");
        }
        let received: [(&[u8], &[u8]); 2] = [
            (b"grpc-retry-pushback-ms", b"7"),
            (b"grpc-trace-bin", b"AQ"),
        ];
        for (key, value) in received {
            assert_eq!(metadata.push_received(key, value), Ok(()));
        }
        assert_eq!(metadata.get("grpc-retry-pushback-ms"), Some(&b"7"[..]));
        assert_eq!(metadata.get("grpc-trace-bin"), Some(&[1][..]));
        assert_eq!(metadata.len(), 5);
    }

    #[test]
    fn binary_values_padded_unpadded_and_joined() {
        let mut metadata = Metadata::new();
        assert_eq!(
            metadata.push_received(b"x-bin", b"AAEC,AAE=,AA, /w"),
            Ok(())
        );
        let values: Vec<_> = metadata.iter().map(|entry| entry.1.to_vec()).collect();
        assert_eq!(values, [vec![0, 1, 2], vec![0, 1], vec![0], vec![255]]);
        assert_eq!(
            metadata.push_received(b"x-bin", b"AAEC,A"),
            Err(MetadataError::BadBase64)
        );
        assert_eq!(metadata.len(), 4, "nothing of a wrong field is kept");
        assert_eq!(metadata.push_received(b"x-bin", b""), Ok(()));
        assert_eq!(metadata.len(), 5, "an empty value is a value");
        assert_eq!(
            metadata.push_received(b"\xff", b"a"),
            Err(MetadataError::BadKey)
        );
        assert_eq!(
            metadata.push_received(b"a", b"\xff"),
            Err(MetadataError::BadValue)
        );
    }

    #[test]
    fn any_bytes_travel() {
        let mut random = Random::new(0x5eed_0014);
        for _ in 0..500 {
            let bytes = random.bytes(60, |random| random.number() as u8);
            let mut value = Vec::new();
            encode_binary(&bytes, &mut value);
            assert!(is_valid_text(&value) && !value.contains(&b'='));
            let mut metadata = Metadata::new();
            assert_eq!(
                metadata.push_received(b"x-bin", &value),
                Ok(()),
                "{random:?}"
            );
            assert_eq!(metadata.get("x-bin"), Some(&bytes[..]), "{random:?}");
        }
    }
}
