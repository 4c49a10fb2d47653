//! What can be said about a field by its bytes alone, once, before it enters a table.

/// The field names that HTTP/2 or gRPC give a meaning to. Everything else is [`KnownName::Other`].
///
/// A table entry remembers it, so that an indexed field is recognised without looking at its name
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum KnownName {
    /// Any other name.
    Other,
    /// `:authority`.
    Authority,
    /// `:method`.
    Method,
    /// `:path`.
    Path,
    /// `:scheme`.
    Scheme,
    /// `:status`.
    Status,
    /// Any other name that begins with a colon: never allowed (RFC 9113 section 8.3).
    UnknownPseudo,
    /// `connection`, `proxy-connection`, `keep-alive`, `transfer-encoding`, `upgrade`: not allowed
    /// in HTTP/2 (RFC 9113 section 8.2.2).
    ConnectionSpecific,
    /// `te`.
    Te,
    /// `host`.
    Host,
    /// `authorization`.
    Authorization,
    /// `cookie`.
    Cookie,
    /// `content-length`.
    ContentLength,
    /// `content-type`.
    ContentType,
    /// `user-agent`.
    UserAgent,
    /// `grpc-timeout`.
    GrpcTimeout,
    /// `grpc-encoding`.
    GrpcEncoding,
    /// `grpc-accept-encoding`.
    GrpcAcceptEncoding,
    /// `grpc-status`.
    GrpcStatus,
    /// `grpc-message`.
    GrpcMessage,
    /// `grpc-status-details-bin`.
    GrpcStatusDetailsBin,
}

impl KnownName {
    /// Recognises a name.
    pub const fn of(name: &[u8]) -> KnownName {
        if name.is_empty() {
            return KnownName::Other;
        }
        if name[0] == b':' {
            return Self::of_pseudo(name);
        }
        match name {
            b"te" => KnownName::Te,
            b"host" => KnownName::Host,
            b"cookie" => KnownName::Cookie,
            b"upgrade" | b"connection" | b"keep-alive" | b"proxy-connection"
            | b"transfer-encoding" => KnownName::ConnectionSpecific,
            b"user-agent" => KnownName::UserAgent,
            b"authorization" => KnownName::Authorization,
            b"content-type" => KnownName::ContentType,
            b"content-length" => KnownName::ContentLength,
            b"grpc-status" => KnownName::GrpcStatus,
            b"grpc-message" => KnownName::GrpcMessage,
            b"grpc-timeout" => KnownName::GrpcTimeout,
            b"grpc-encoding" => KnownName::GrpcEncoding,
            b"grpc-accept-encoding" => KnownName::GrpcAcceptEncoding,
            b"grpc-status-details-bin" => KnownName::GrpcStatusDetailsBin,
            _ => KnownName::Other,
        }
    }

    const fn of_pseudo(name: &[u8]) -> KnownName {
        match name {
            b":path" => KnownName::Path,
            b":method" => KnownName::Method,
            b":scheme" => KnownName::Scheme,
            b":status" => KnownName::Status,
            b":authority" => KnownName::Authority,
            _ => KnownName::UnknownPseudo,
        }
    }

    /// Whether the name begins with a colon.
    pub const fn is_pseudo(self) -> bool {
        matches!(
            self,
            KnownName::Authority
                | KnownName::Method
                | KnownName::Path
                | KnownName::Scheme
                | KnownName::Status
                | KnownName::UnknownPseudo
        )
    }
}

/// Whether the bytes may stand as a field name in HTTP/2: one or more characters of an HTTP token
/// (RFC 9110 section 5.1), none of them upper case, with one colon before the name of a
/// pseudo-header field (RFC 9113 section 8.2.1).
pub fn is_valid_name(name: &[u8]) -> bool {
    let token = name.strip_prefix(b":").unwrap_or(name);
    !token.is_empty()
        && token
            .iter()
            .fold(true, |valid, &byte| valid & NAME_BYTES[usize::from(byte)])
}

/// Whether the bytes may stand as a field value in HTTP/2: no NUL, CR or LF anywhere, and neither
/// space nor tab at either end (RFC 9113 section 8.2.1).
#[inline]
pub fn is_valid_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_blank(value.first())
        && !is_blank(value.last())
        && (!has_control(value) || !value.iter().any(|byte| matches!(byte, 0 | b'\n' | b'\r')))
}

/// Whether a byte below 32 is among them, eight at a time.
#[inline]
fn has_control(value: &[u8]) -> bool {
    let any_below_32 =
        |word: u64| word.wrapping_sub(0x2020_2020_2020_2020) & !word & 0x8080_8080_8080_8080 != 0;
    let (words, rest) = value.as_chunks::<8>();
    match value.last_chunk::<8>() {
        // The last word may overlap the one before it.
        Some(last) => words.iter().chain([last]).fold(false, |found, word| {
            found | any_below_32(u64::from_le_bytes(*word))
        }),
        None => rest.iter().any(|&byte| byte < 32),
    }
}

static NAME_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        allowed[byte] = matches!(byte as u8,
            b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+'
            | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        byte += 1;
    }
    allowed
};

/// `==` for slices in constants.
pub(super) const fn equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for valid in ["a", "grpc-timeout", ":path", "x-1_2.3~", "!#$%&'*+-.^_`|~"] {
            assert!(is_valid_name(valid.as_bytes()), "{valid:?}");
        }
        for invalid in [
            "", ":", "::path", "a:b", "Te", "a b", "a\0", "a\u{7f}", "é", "a\n", "\"a\"", "a/b",
        ] {
            assert!(!is_valid_name(invalid.as_bytes()), "{invalid:?}");
        }
    }

    #[test]
    fn values() {
        for valid in [
            "",
            "a",
            "a b",
            "é",
            "a\tb",
            "\u{1}",
            "a long value with more than thirty-two characters",
        ] {
            assert!(is_valid_value(valid.as_bytes()), "{valid:?}");
        }
        for invalid in [
            " ", "\t", " a", "a ", "a\t", "\ta", "a\0b", "a\rb", "a\nb", "\n",
        ] {
            assert!(!is_valid_value(invalid.as_bytes()), "{invalid:?}");
        }
        let mut long = [b'x'; 70];
        for at in 0..long.len() {
            long[at] = b'\n';
            assert!(!is_valid_value(&long), "line feed at {at}");
            long[at] = b'x';
        }
    }

    #[test]
    fn known_names() {
        assert_eq!(KnownName::of(b":path"), KnownName::Path);
        assert_eq!(KnownName::of(b":paths"), KnownName::UnknownPseudo);
        assert_eq!(KnownName::of(b":"), KnownName::UnknownPseudo);
        assert_eq!(KnownName::of(b"connection"), KnownName::ConnectionSpecific);
        assert_eq!(KnownName::of(b"grpc-timeout"), KnownName::GrpcTimeout);
        assert_eq!(KnownName::of(b"grpc-timeoux"), KnownName::Other);
        assert_eq!(KnownName::of(b""), KnownName::Other);
        assert!(KnownName::UnknownPseudo.is_pseudo() && !KnownName::Te.is_pseudo());
    }
}
