//! How a call ends.

use std::borrow::Cow;

use super::metadata::Metadata;
use crate::limits;

macro_rules! codes {
    ($($number:literal $variant:ident $name:literal $meaning:literal)*) => {
        /// The status codes of gRPC.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Code {
            $(#[doc = $meaning] $variant = $number,)*
        }

        impl Code {
            /// The name as it stands in the gRPC documentation.
            pub const fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// The code with this number, [`Code::Unknown`] if there is none.
            pub const fn from_u8(number: u8) -> Code {
                match number { $($number => Code::$variant,)* _ => Code::Unknown }
            }

            /// All codes in the order of their numbers.
            pub const ALL: &[Code] = &[$(Code::$variant),*];
        }
    };
}

codes! {
    0 Ok "OK" "Success."
    1 Cancelled "CANCELLED" "The caller gave the call up."
    2 Unknown "UNKNOWN" "An error without a better code, or a code that we do not know."
    3 InvalidArgument "INVALID_ARGUMENT" "The request is wrong whatever the state of the system."
    4 DeadlineExceeded "DEADLINE_EXCEEDED" "The deadline passed; the work may have been done."
    5 NotFound "NOT_FOUND" "What was asked for does not exist."
    6 AlreadyExists "ALREADY_EXISTS" "What was to be created exists."
    7 PermissionDenied "PERMISSION_DENIED" "The caller is known and may not do this."
    8 ResourceExhausted "RESOURCE_EXHAUSTED" "A limit is reached."
    9 FailedPrecondition "FAILED_PRECONDITION" "The system is not in a state in which this can be \
                                                done."
    10 Aborted "ABORTED" "Something else came in between; to be tried again from the start."
    11 OutOfRange "OUT_OF_RANGE" "The request goes beyond the valid range."
    12 Unimplemented "UNIMPLEMENTED" "The method does not exist here."
    13 Internal "INTERNAL" "Something that must hold does not: an error in the program or in the \
                            protocol."
    14 Unavailable "UNAVAILABLE" "Not now; to be tried again."
    15 DataLoss "DATA_LOSS" "Data are lost or damaged."
    16 Unauthenticated "UNAUTHENTICATED" "The caller is not known."
}

impl Code {
    /// Reads the value of `grpc-status`. A number that we do not know, or no number, is
    /// [`Code::Unknown`].
    pub fn parse(value: &[u8]) -> Code {
        match value {
            [digit @ b'0'..=b'9'] => Code::from_u8(digit - b'0'),
            [b'1', digit @ b'0'..=b'6'] => Code::from_u8(10 + digit - b'0'),
            _ => Code::Unknown,
        }
    }

    /// The value of `grpc-status`.
    pub const fn digits(self) -> &'static str {
        const DIGITS: [&str; 17] = [
            "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15",
            "16",
        ];
        DIGITS[self as usize]
    }

    /// What an HTTP status means for a call whose answer is not gRPC (gRPC documentation, "HTTP to
    /// gRPC Status Code Mapping").
    pub const fn from_http(status: u16) -> Code {
        match status {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502 | 503 | 504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How a call ends: a code, a text for people, and trailing metadata. OK and constant texts
/// allocate nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}{}{message}", self.separator())]
pub struct Status {
    code: Code,
    message: Cow<'static, str>,
    metadata: Option<Box<Metadata>>,
    follows_response: bool,
}

impl Status {
    /// Success.
    pub const OK: Status = Status {
        code: Code::Ok,
        message: Cow::Borrowed(""),
        metadata: None,
        follows_response: false,
    };

    /// A status with a text, which says what happened, to what, and what to do.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Status {
        Status {
            code,
            message: message.into(),
            metadata: None,
            follows_response: false,
        }
    }

    /// Returns a status for a field of the request that is wrong; the text names it.
    pub fn invalid_argument(message: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::InvalidArgument, message)
    }

    /// Returns a status for what is too large; the text names the limit, what was given and what
    /// is allowed.
    pub fn resource_exhausted(message: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::ResourceExhausted, message)
    }

    /// Returns a status for what was named and does not exist.
    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::NotFound, message)
    }

    /// Returns a status for what the server cannot do.
    pub fn unimplemented(message: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::Unimplemented, message)
    }

    /// Returns a status for a caller that broke the rules of the kind of call it made.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::Internal, message)
    }

    /// The same with trailing metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Status {
        self.metadata = (!metadata.is_empty()).then(|| Box::new(metadata));
        self
    }

    /// Client: the same status of a call whose response had begun before, or that was reset when
    /// the server may have worked on it.
    #[must_use]
    pub fn after_response(mut self) -> Status {
        self.follows_response = true;
        self
    }

    /// Client: returns whether the call's response had begun before, or may have: then the server
    /// may have worked on the call, whatever the code says.
    pub fn follows_response(&self) -> bool {
        self.follows_response
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The trailing metadata, if there are any.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_deref()
    }

    /// Whether the call succeeded.
    pub fn is_ok(&self) -> bool {
        self.code == Code::Ok
    }

    /// Returns whether it is OK and nothing beside it.
    pub(crate) fn is_bare_ok(&self) -> bool {
        self.is_ok() && self.message.is_empty() && self.metadata.is_none()
    }

    /// Returns what stands between code and text where both are shown.
    fn separator(&self) -> &'static str {
        match self.message.is_empty() {
            true => "",
            false => ": ",
        }
    }
}

/// Appends the value of `grpc-message`: all but printable ASCII without `%` is percent-encoded
/// (gRPC over HTTP/2, "Percent-Encoded"), and so are spaces at either end, which may not stand
/// there in a field value (RFC 9113 section 8.2.1). A text that would go beyond
/// [`limits::MAX_STATUS_MESSAGE_BYTES`] is cut after a whole character.
pub fn encode_message(message: &str, out: &mut Vec<u8>) {
    let end = out.len() + limits::MAX_STATUS_MESSAGE_BYTES;
    let inner = message.trim_matches(' ');
    let inner_start = message.len() - message.trim_start_matches(' ').len();
    let inner_end = inner_start + inner.len();
    for (at, character) in message.char_indices() {
        let start = out.len();
        let is_edge = !(inner_start..inner_end).contains(&at);
        for &byte in character.encode_utf8(&mut [0; 4]).as_bytes() {
            if matches!(byte, b' '..=b'~') && byte != b'%' && !is_edge {
                out.push(byte);
            } else {
                let hex = |digit: u8| b"0123456789ABCDEF"[usize::from(digit)];
                out.extend_from_slice(&[b'%', hex(byte >> 4), hex(byte & 0xf)]);
            }
        }
        if out.len() > end {
            out.truncate(start);
            // Cutting must not leave a bare space at the end.
            out.truncate(
                out.trim_ascii_end()
                    .len()
                    .max(end - limits::MAX_STATUS_MESSAGE_BYTES),
            );
            return;
        }
    }
}

/// Reads the value of `grpc-message`. What is not a percent sign with two hexadecimal digits stands
/// for itself, and what is not UTF-8 then is replaced: a text for people is never lost because of
/// an error in it.
pub fn decode_message(value: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let decoded = match after {
            [high, low, ..] if byte == b'%' => hex_value(*high).zip(hex_value(*low)),
            _ => None,
        };
        if let Some((high, low)) = decoded {
            bytes.push(high << 4 | low);
            rest = &after[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::is_valid_value;
    use testkit::Random;

    fn encoded(message: &str) -> String {
        let mut out = Vec::new();
        encode_message(message, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn codes_and_their_numbers() {
        assert_eq!(Code::ALL.len(), 17);
        for (number, code) in Code::ALL.iter().enumerate() {
            assert_eq!(Code::from_u8(number as u8), *code);
            assert_eq!(*code as usize, number);
            assert_eq!(code.digits(), number.to_string());
            assert_eq!(Code::parse(code.digits().as_bytes()), *code);
        }
        for unknown in ["", "17", "00", "0x0", "-1", "2147483648", "16 "] {
            assert_eq!(
                Code::parse(unknown.as_bytes()),
                Code::Unknown,
                "{unknown:?}"
            );
        }
        assert_eq!(Code::from_u8(200), Code::Unknown);
        assert_eq!(Code::DeadlineExceeded.name(), "DEADLINE_EXCEEDED");
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(
            encoded("plain text, all of it: ~!\"#$&"),
            "plain text, all of it: ~!\"#$&"
        );
        assert_eq!(encoded("100%"), "100%25");
        assert_eq!(encoded("a\nb\0\u{7f}"), "a%0Ab%00%7F");
        assert_eq!(encoded("☺ 😈"), "%E2%98%BA %F0%9F%98%88");
        assert_eq!(encoded("  in the middle "), "%20%20in the middle%20");
        assert_eq!(encoded("  "), "%20%20");
        assert_eq!(encoded(""), "");
    }

    #[test]
    fn messages_come_back() {
        let special = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
        assert_eq!(decode_message(encoded(special).as_bytes()), special);
        let mut random = Random::new(0x5eed_0011);
        for _ in 0..2000 {
            let bound = if random.below(2) == 0 { 128 } else { 0x11_0000 };
            let len = random.below(40);
            let text: String = (0..len)
                .filter_map(|_| char::from_u32(random.below(bound) as u32))
                .collect();
            let value = encoded(&text);
            assert!(
                is_valid_value(value.as_bytes()) && value.is_ascii(),
                "{value:?} {random:?}"
            );
            assert_eq!(decode_message(value.as_bytes()), text, "{random:?}");
        }
    }

    #[test]
    fn what_is_wrong_stands_for_itself() {
        assert_eq!(decode_message(b"100%"), "100%");
        assert_eq!(decode_message(b"%2"), "%2");
        assert_eq!(decode_message(b"%zz%41"), "%zzA");
        assert_eq!(decode_message(b"%%34"), "%4");
        assert_eq!(decode_message(b"\xff%FF"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_long_message_is_cut_after_a_whole_character() {
        for text in [
            "x".repeat(10_000),
            "☺".repeat(5000),
            "a b ".repeat(5000),
            " ".repeat(5000),
        ] {
            let value = encoded(&text);
            assert!(value.len() <= limits::MAX_STATUS_MESSAGE_BYTES);
            assert!(value.len() > limits::MAX_STATUS_MESSAGE_BYTES - 12);
            assert!(is_valid_value(value.as_bytes()));
            assert!(text.starts_with(&decode_message(value.as_bytes())));
        }
    }

    #[test]
    fn a_status_says_what_it_is() {
        let mut metadata = Metadata::new();
        metadata
            .push_received(b"grpc-retry-pushback-ms", b"100")
            .expect("valid");
        let status = Status::new(Code::Unavailable, "draining").with_metadata(metadata);
        assert_eq!(status.to_string(), "UNAVAILABLE: draining");
        assert_eq!(status.metadata().map(Metadata::len), Some(1));
        assert_eq!(Status::OK.to_string(), "OK");
        assert!(
            Status::OK.is_ok()
                && Status::OK
                    .with_metadata(Metadata::new())
                    .metadata()
                    .is_none()
        );
        assert!(size_of::<Status>() <= 40);
    }
}
