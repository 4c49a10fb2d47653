//! What goes with each export beside the spans: most often the key of a customer.

use std::fmt;

use wire::grpc::{Metadata, MetadataError};

use crate::spans::limits;

/// Names that HTTP/2 or gRPC set themselves, or forbid.
const RESERVED: [&str; 9] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Headers of exports. They may be secrets: only their names are shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OtlpHeaders(Metadata);

/// Why there is no such header. It names no value, since that may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtlpHeaderError {
    /// The name has a wrong form.
    #[error("the name of a header is one or more of 0-9 a-z _ - .")]
    BadName,
    /// The name is one that gRPC or HTTP/2 set themselves.
    #[error("a header of this name is set by gRPC or HTTP/2 itself")]
    Reserved,
    /// The value has a wrong form.
    #[error("the value of a header is printable ASCII, and base64 if its name ends with -bin")]
    BadValue,
    /// There are too many.
    #[error("there are more than {} headers", limits::SPAN_HEADERS)]
    TooMany,
    /// They are too long.
    #[error("headers have more than {} bytes", limits::SPAN_HEADER_BYTES)]
    TooLong,
}

impl OtlpHeaders {
    /// Adds a header. Names are written in lower case (RFC 9113 section 8.2.1).
    ///
    /// # Errors
    /// If it has a wrong form, or there would be too many.
    pub fn push(&mut self, name: &str, value: &str) -> Result<(), OtlpHeaderError> {
        let name = name.trim().to_ascii_lowercase();
        let value = value.trim();
        if name.starts_with("grpc-") || RESERVED.contains(&&*name) {
            return Err(OtlpHeaderError::Reserved);
        }
        if self.0.len() >= limits::SPAN_HEADERS {
            return Err(OtlpHeaderError::TooMany);
        }
        let before = self.0.iter().map(|(name, value)| name.len() + value.len());
        if before.sum::<usize>() + name.len() + value.len() > limits::SPAN_HEADER_BYTES {
            return Err(OtlpHeaderError::TooLong);
        }
        let pushed = self.0.push_received(name.as_bytes(), value.as_bytes());
        pushed.map_err(|error| match error {
            MetadataError::BadKey | MetadataError::ReservedKey => OtlpHeaderError::BadName,
            MetadataError::WrongKind | MetadataError::BadValue | MetadataError::BadBase64 => {
                OtlpHeaderError::BadValue
            }
        })
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name)
    }

    /// Returns them as they go with a call; `None`: there are none.
    pub(super) fn metadata(&self) -> Option<&Metadata> {
        (!self.is_empty()).then_some(&self.0)
    }
}

impl fmt::Debug for OtlpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_as_they_are_and_only_their_names_are_shown() {
        let mut headers = OtlpHeaders::default();
        assert_eq!((headers.is_empty(), headers.metadata()), (true, None));
        headers.push("X-Api-Key", " s3cret ").expect("valid");
        headers
            .push("authorization", "Basic s3cret=")
            .expect("valid");
        headers.push("blob-bin", "czNjcmV0").expect("valid");
        let metadata = headers.metadata().expect("there are some");
        assert_eq!(metadata.get("x-api-key"), Some(&b"s3cret"[..]));
        assert_eq!(metadata.get("blob-bin"), Some(&b"s3cret"[..]));
        let shown = format!("{headers:?}");
        assert_eq!(shown, r#"["x-api-key", "authorization", "blob-bin"]"#);
    }

    #[test]
    fn what_cannot_be_a_header_is_refused_without_its_value() {
        for (name, value, expected) in [
            ("", "s3cret", OtlpHeaderError::BadName),
            ("a b", "s3cret", OtlpHeaderError::BadName),
            (":path", "s3cret", OtlpHeaderError::BadName),
            ("x", "s3\ncret", OtlpHeaderError::BadValue),
            ("x", "s3cr\u{e9}t", OtlpHeaderError::BadValue),
            ("x-bin", "s3cret!", OtlpHeaderError::BadValue),
            ("Grpc-Timeout", "s3cret", OtlpHeaderError::Reserved),
            ("TE", "s3cret", OtlpHeaderError::Reserved),
        ] {
            let mut headers = OtlpHeaders::default();
            assert_eq!(headers.push(name, value), Err(expected), "{name}");
            assert!(headers.is_empty());
        }
    }

    #[test]
    fn headers_are_bounded_in_number_and_bytes() {
        let mut headers = OtlpHeaders::default();
        for number in 0..limits::SPAN_HEADERS {
            headers.push(&format!("x-{number}"), "v").expect("valid");
        }
        assert_eq!(headers.push("y", "v"), Err(OtlpHeaderError::TooMany));
        let mut headers = OtlpHeaders::default();
        let half = "v".repeat(limits::SPAN_HEADER_BYTES / 2 - 1);
        headers.push("x", &half).expect("valid");
        headers.push("x", &half).expect("valid");
        assert_eq!(headers.push("y", ""), Err(OtlpHeaderError::TooLong));
    }
}
