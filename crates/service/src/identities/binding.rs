//! What proves an identity without a token: a name in a client's certificate, the fingerprint of
//! one, or the user at the other end of a UNIX socket.

use std::fmt;
use std::str::FromStr;

use crate::limits::BINDING_BYTES_MAX;
use crate::status::shortened;

/// What an identity is bound to. Two are equal if they are proved by the same thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binding {
    /// A `dNSName` of a certificate, in lower case: the name of a host, which is not
    /// case-sensitive (RFC 5280 section 4.2.1.6).
    Dns(Box<str>),
    /// A `uniformResourceIdentifier` of a certificate, byte by byte, such as an ID of SPIFFE.
    Uri(Box<str>),
    /// An `rfc822Name` of a certificate, its host in lower case.
    Email(Box<str>),
    /// The SHA-256 of a certificate.
    Fingerprint([u8; 32]),
    /// The user of a process at the other end of a UNIX socket.
    User(u32),
}

/// Which bindings a caller can prove, by how the server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsableBindings {
    /// Somewhere certificates of clients are asked for, and checked.
    pub certificates: bool,
    /// Somewhere it listens on a UNIX socket.
    pub users: bool,
}

impl UsableBindings {
    /// All of them.
    pub const ALL: UsableBindings = UsableBindings {
        certificates: true,
        users: true,
    };
}

/// Why a text is no binding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// It begins with no kind.
    #[error(
        "{0:?} is none of `san:dns:NAME`, `san:uri:URI`, `san:email:ADDRESS`, `sha256:FINGERPRINT` \
         and `uid:NUMBER`"
    )]
    UnknownKind(String),
    /// It is too long.
    #[error("the name has {bytes} bytes, and one of this kind at most {limit}")]
    TooLong {
        /// Bytes that it has.
        bytes: usize,
        /// Bytes that it may have.
        limit: usize,
    },
    /// It has a wildcard.
    #[error(
        "{0:?} has a `*`: names of certificates are compared as they are, and patterns match nobody"
    )]
    Wildcard(String),
    /// No certificate that is made well can have this name.
    #[error("{0:?} is no {1}")]
    BadName(String, &'static str),
    /// The fingerprint has other digits, or not as many.
    #[error(
        "a fingerprint is the SHA-256 of a certificate: 64 hexadecimal digits, with or without \
         colons, as `openssl x509 -noout -fingerprint -sha256 -in FILE` shows it"
    )]
    BadFingerprint,
    /// It is no number of a user.
    #[error("{0:?} is no number of a user, as `id -u NAME` shows it")]
    BadUser(String),
    /// Users of other namespaces show as this one.
    #[error(
        "the kernel shows {OVERFLOW_USER} for all users of other namespaces that it cannot map: \
         nobody can be known by it"
    )]
    OverflowUser,
}

/// What the kernel shows for a user that has no number here: user_namespaces(7).
const OVERFLOW_USER: u32 = 65_534;

const DNS: &str = "san:dns:";
const URI: &str = "san:uri:";
const EMAIL: &str = "san:email:";
const FINGERPRINT: &str = "sha256:";
const USER: &str = "uid:";

impl Binding {
    /// Returns the binding that the name of a host in a certificate proves.
    ///
    /// # Errors
    /// If it is none, or has a wildcard.
    pub fn of_dns(name: &str) -> Result<Binding, BindingError> {
        let bad = || BindingError::BadName(shortened(name), "name of a host");
        match check(name, 253, bad)?.split('.').all(is_label) {
            true => Ok(Binding::Dns(name.to_ascii_lowercase().into())),
            false => Err(bad()),
        }
    }

    /// Returns the binding that a URI in a certificate proves. It is not normalized: URIs that mean
    /// the same and are written in another way prove nothing.
    ///
    /// # Errors
    /// If it is none.
    pub fn of_uri(uri: &str) -> Result<Binding, BindingError> {
        let bad = || BindingError::BadName(shortened(uri), "absolute URI");
        let (scheme, rest) = check(uri, BINDING_BYTES_MAX, bad)?
            .split_once(':')
            .ok_or_else(bad)?;
        // RFC 3986 section 3.1.
        let is_scheme_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        let begins_well = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
        match begins_well && scheme.bytes().all(is_scheme_byte) && !rest.is_empty() {
            true => Ok(Binding::Uri(uri.into())),
            false => Err(bad()),
        }
    }

    /// Returns the binding that an e-mail address in a certificate proves. The part before the `@`
    /// is case-sensitive (RFC 5280 section 7.5).
    ///
    /// # Errors
    /// If it is none.
    pub fn of_email(address: &str) -> Result<Binding, BindingError> {
        let bad = || BindingError::BadName(shortened(address), "e-mail address");
        let (local, host) = check(address, 320, bad)?.split_once('@').ok_or_else(bad)?;
        if local.is_empty() || !host.split('.').all(is_label) {
            return Err(bad());
        }
        let address = format!("{local}@{}", host.to_ascii_lowercase());
        Ok(Binding::Email(address.into()))
    }

    /// Returns the binding to a user of this machine by its number.
    ///
    /// # Errors
    /// If the number can be that of many users, or of none.
    pub fn of_user(user: u32) -> Result<Binding, BindingError> {
        match user {
            OVERFLOW_USER => Err(BindingError::OverflowUser),
            u32::MAX => Err(BindingError::BadUser(user.to_string())),
            user => Ok(Binding::User(user)),
        }
    }

    /// Returns what a caller shows that proves it, for messages.
    pub fn noun(&self) -> &'static str {
        match self {
            Binding::User(_) => "user",
            _ => "certificate",
        }
    }
}

/// Returns a name that can be compared: printable ASCII without spaces, `*`, quotes and controls,
/// of 1 to `limit` bytes.
fn check(name: &str, limit: usize, bad: impl Fn() -> BindingError) -> Result<&str, BindingError> {
    if name.len() > limit {
        return Err(BindingError::TooLong {
            bytes: name.len(),
            limit,
        });
    }
    if name.contains('*') {
        return Err(BindingError::Wildcard(shortened(name)));
    }
    match !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'"')
    {
        true => Ok(name),
        false => Err(bad()),
    }
}

/// A part of the name of a host: RFC 1035 section 2.3.1, with the underscores that some have.
fn is_label(label: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=63).contains(&label.len()) && label.bytes().all(is_inner)
}

impl fmt::Display for Binding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Binding::Dns(name) => write!(formatter, "{DNS}{name}"),
            Binding::Uri(uri) => write!(formatter, "{URI}{uri}"),
            Binding::Email(address) => write!(formatter, "{EMAIL}{address}"),
            Binding::Fingerprint(bytes) => {
                formatter.write_str(FINGERPRINT)?;
                bytes
                    .iter()
                    .try_for_each(|byte| write!(formatter, "{byte:02x}"))
            }
            Binding::User(user) => write!(formatter, "{USER}{user}"),
        }
    }
}

impl FromStr for Binding {
    type Err = BindingError;

    fn from_str(text: &str) -> Result<Binding, BindingError> {
        if let Some(name) = text.strip_prefix(DNS) {
            Binding::of_dns(name)
        } else if let Some(uri) = text.strip_prefix(URI) {
            Binding::of_uri(uri)
        } else if let Some(address) = text.strip_prefix(EMAIL) {
            Binding::of_email(address)
        } else if let Some(digits) = fingerprint_digits(text) {
            let bytes = fingerprint(digits).ok_or(BindingError::BadFingerprint)?;
            Ok(Binding::Fingerprint(bytes))
        } else if let Some(number) = text.strip_prefix(USER) {
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            let user = number.parse().ok().filter(|_| is_number);
            Binding::of_user(user.ok_or_else(|| BindingError::BadUser(shortened(number)))?)
        } else {
            Err(BindingError::UnknownKind(shortened(text)))
        }
    }
}

/// Returns the digits of `sha256:…`, and of what `openssl x509 -fingerprint -sha256` prints.
fn fingerprint_digits(text: &str) -> Option<&str> {
    const PRINTED: &str = "sha256 Fingerprint=";
    match text.split_at_checked(PRINTED.len()) {
        Some((begin, digits)) if begin.eq_ignore_ascii_case(PRINTED) => Some(digits.trim_end()),
        _ => text.strip_prefix(FINGERPRINT),
    }
}

/// Reads `0a1b…`, or `0A:1B:…`.
fn fingerprint(text: &str) -> Option<[u8; 32]> {
    let has_colons = text.len() == 32 * 3 - 1;
    let digits = text.as_bytes();
    if !has_colons && digits.len() != 64 {
        return None;
    }
    let step = if has_colons { 3 } else { 2 };
    let mut bytes = [0; 32];
    for (byte, part) in bytes.iter_mut().zip(digits.chunks(step)) {
        let (pair, rest) = part.split_at_checked(2)?;
        if !matches!(rest, [] | [b':']) || !pair.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_is_read_as_it_is_written() {
        let hex = "0123456789abcdef".repeat(4);
        let colons: Vec<String> = (0..32)
            .map(|at| hex[2 * at..][..2].to_uppercase())
            .collect();
        for (text, shown) in [
            ("san:dns:Worker-1.Example", "san:dns:worker-1.example"),
            ("san:dns:localhost", "san:dns:localhost"),
            (
                "san:uri:spiffe://Example.org/ns/a",
                "san:uri:spiffe://Example.org/ns/a",
            ),
            ("san:uri:urn:uuid:1", "san:uri:urn:uuid:1"),
            ("san:email:Ops+x@Example.COM", "san:email:Ops+x@example.com"),
            (&format!("sha256:{hex}"), &format!("sha256:{hex}")),
            (
                &format!("sha256:{}", colons.join(":")),
                &format!("sha256:{hex}"),
            ),
            (
                &format!("sha256 Fingerprint={}", colons.join(":")),
                &format!("sha256:{hex}"),
            ),
            (
                &format!("SHA256 Fingerprint={}\n", colons.join(":")),
                &format!("sha256:{hex}"),
            ),
            ("uid:0", "uid:0"),
            ("uid:1000", "uid:1000"),
        ] {
            let binding: Binding = text.parse().expect(text);
            assert_eq!(binding.to_string(), shown);
            assert_eq!(shown.parse(), Ok(binding));
        }
    }

    #[test]
    fn what_is_no_binding_says_why() {
        let long = format!("san:dns:{}", "a.".repeat(200));
        let long_uri = format!("san:uri:a:{}", "a".repeat(BINDING_BYTES_MAX));
        let odd_colons = format!("sha256:{}", "0:123".repeat(19));
        for (text, words) in [
            ("", "is none of"),
            ("dns:a", "is none of"),
            ("SAN:DNS:a", "is none of"),
            ("san:ip:10.0.0.1", "is none of"),
            ("san:dns:", "is no name of a host"),
            ("san:dns:a b", "is no name of a host"),
            ("san:dns:a.", "is no name of a host"),
            ("san:dns:.a", "is no name of a host"),
            ("san:dns:a\0b", "is no name of a host"),
            ("san:dns:bücher.example", "is no name of a host"),
            ("san:dns:*.example", "has a `*`"),
            ("san:uri:spiffe://*/x", "has a `*`"),
            (&long, "at most"),
            (&long_uri, "at most"),
            ("san:uri:/a/b", "is no absolute URI"),
            ("san:uri:1a:b", "is no absolute URI"),
            ("san:uri:a:", "is no absolute URI"),
            ("san:uri:a:\u{e9}", "is no absolute URI"),
            ("san:email:a", "is no e-mail address"),
            ("san:email:@a", "is no e-mail address"),
            ("san:email:a@", "is no e-mail address"),
            ("san:email:a@b@c", "is no e-mail address"),
            ("sha256:", "64 hexadecimal digits"),
            (&odd_colons, "64 hexadecimal digits"),
            ("sha256 Fingerprint=", "64 hexadecimal digits"),
            ("sha1 Fingerprint=80:9B", "is none of"),
            (
                &format!("sha256:{}", "+1".repeat(32)),
                "64 hexadecimal digits",
            ),
            (
                &format!("sha256:{}", "0123".repeat(17)),
                "64 hexadecimal digits",
            ),
            ("uid:", "is no number of a user"),
            ("uid:+1", "is no number of a user"),
            ("uid:root", "is no number of a user"),
            ("uid:4294967295", "is no number of a user"),
            ("uid:4294967296", "is no number of a user"),
            ("uid:65534", "other namespaces"),
        ] {
            let error = text.parse::<Binding>().expect_err(text).to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }

    /// Two texts are one binding only where the rules of names say so: for all others there is one
    /// way to write it.
    #[test]
    fn arbitrary_names_are_bound_to_themselves_or_to_nothing() {
        let mut random = testkit::Random::new(11);
        let alphabet = b"aB1-._*@:/ \0\x7f\xc3\xa9\"+";
        let mut read = 0;
        for _ in 0..50_000 {
            let bytes: Vec<u8> = (0..random.below(12))
                .map(|_| alphabet[random.below(alphabet.len())])
                .collect();
            let name = String::from_utf8_lossy(&bytes);
            for (made, is_same) in [
                (
                    Binding::of_dns(&name),
                    str::eq_ignore_ascii_case as fn(&str, &str) -> bool,
                ),
                (Binding::of_uri(&name), |one, other| one == other),
                (Binding::of_email(&name), str::eq_ignore_ascii_case),
            ] {
                let Ok(made) = made else { continue };
                read += 1;
                let text = made.to_string();
                assert_eq!(text.parse(), Ok(made.clone()));
                let (_, shown) = text.split_once(':').expect("a kind");
                let (_, shown) = shown.split_once(':').expect("a kind of name");
                assert!(is_same(shown, &name), "{shown:?} of {name:?}");
                assert!(
                    name.bytes()
                        .all(|byte| byte.is_ascii_graphic() && byte != b'*')
                );
            }
        }
        assert!(read > 500, "{read}");
    }
}
