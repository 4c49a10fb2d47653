//! A token: 256 random bits, how it is written, and the keyed hash by which a server knows it.

use std::fmt;

use ring::hmac;
use zeroize::{Zeroize, Zeroizing};

use crate::limits::AUTHORIZATION_BYTES_MAX;
use crate::redact::{TOKEN_DIGITS, TOKEN_PREFIX};

/// Bytes of the secret.
pub const TOKEN_BYTES: usize = 32;

/// Bytes by which a [`TokenKey`] is told from others.
pub const KEY_CHECK_BYTES: usize = 16;

/// What is hashed for that. It is shorter than the secret of a token, and so no token.
const CHECKED_WORDS: &[u8] = b"the key of a data folder";

/// The scheme of RFC 6750 section 2.1, which is not case-sensitive (RFC 9110 section 11.1).
const SCHEME: &[u8] = b"bearer";

/// The digits of base64url (RFC 4648 section 5).
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The secret that proves an identity. Its memory is overwritten when it is dropped.
pub struct Token(Zeroizing<[u8; TOKEN_BYTES]>);

impl Token {
    /// Makes a token of random bytes.
    pub fn new(random: [u8; TOKEN_BYTES]) -> Token {
        Token(Zeroizing::new(random))
    }

    /// Reads a token as [`Token::text`] writes it, `None` if this is none. There is one way to
    /// write a token.
    pub fn parse(text: &[u8]) -> Option<Token> {
        let digits = text.strip_prefix(TOKEN_PREFIX.as_bytes())?;
        let digits: &[u8; TOKEN_DIGITS] = digits.try_into().ok()?;
        let mut bytes = Zeroizing::new([0; TOKEN_BYTES]);
        for (four, three) in digits.chunks(4).zip(bytes.chunks_mut(3)) {
            let mut bits = 0_u32;
            for &digit in four {
                bits = bits << 6 | value_of(digit)?;
            }
            // Of the last group, 18 bits, two are left over.
            let left_over_bits = 6 * four.len() - 8 * three.len();
            if bits & ((1 << left_over_bits) - 1) != 0 {
                return None;
            }
            bits >>= left_over_bits;
            for byte in three.iter_mut().rev() {
                *byte = bits as u8;
                bits >>= 8;
            }
            bits.zeroize();
        }
        Some(Token(bytes))
    }

    /// Reads the value of the header `authorization`, `Bearer TOKEN`; `None` if that is not in it.
    pub fn of_header(value: &[u8]) -> Option<Token> {
        if value.len() > AUTHORIZATION_BYTES_MAX {
            return None;
        }
        let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
        let token = rest.trim_ascii_start();
        if !scheme.eq_ignore_ascii_case(SCHEME) || token.len() == rest.len() {
            return None;
        }
        Token::parse(token)
    }

    /// Returns the token as it is written: `pelton_` and 43 digits of base64url.
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(TOKEN_PREFIX.len() + TOKEN_DIGITS));
        text.push_str(TOKEN_PREFIX);
        for three in self.0.chunks(3) {
            let bits = three
                .iter()
                .fold(0, |bits, &byte| bits << 8 | u32::from(byte));
            let bits = bits << (24 - 8 * three.len());
            for place in 0..=three.len() {
                let digit = bits >> (18 - 6 * place) & 63;
                text.push(char::from(ALPHABET[digit as usize]));
            }
        }
        text
    }
}

/// Returns whether two secrets are the same, and takes as long wherever they differ.
pub fn is_same_secret(one: &[u8], other: &[u8]) -> bool {
    let differing = (one.iter().zip(other)).fold(0, |bits, (one, other)| bits | (one ^ other));
    one.len() == other.len() && differing == 0
}

/// The value of a digit.
fn value_of(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

/// Shows nothing of it: tokens appear in no log.
impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

/// The secret key of a data folder, with which its tokens are hashed.
#[derive(Clone)]
pub struct TokenKey(hmac::Key);

impl TokenKey {
    /// Makes the key of its random bytes.
    pub fn new(random: &[u8; 32]) -> TokenKey {
        TokenKey(hmac::Key::new(hmac::HMAC_SHA256, random))
    }

    /// Returns the hash by which the token is known.
    ///
    /// A hash for passwords, slow on purpose, would gain nothing: nobody can try out 256 random
    /// bits.
    pub fn hash(&self, token: &Token) -> TokenHash {
        let tag = hmac::sign(&self.0, &token.0[..]);
        let mut hash = [0; 32];
        for (byte, of_tag) in hash.iter_mut().zip(tag.as_ref()) {
            *byte = *of_tag;
        }
        TokenHash(hash)
    }

    /// Returns what tells this key from others, without giving anything of it away.
    pub fn check_value(&self) -> [u8; KEY_CHECK_BYTES] {
        let tag = hmac::sign(&self.0, CHECKED_WORDS);
        let mut value = [0; KEY_CHECK_BYTES];
        for (byte, of_tag) in value.iter_mut().zip(tag.as_ref()) {
            *byte = *of_tag;
        }
        value
    }

    /// Returns whether this is the hash of the token. The comparison takes as long wherever they
    /// differ.
    pub fn is_hash_of(&self, hash: &TokenHash, token: &Token) -> bool {
        hmac::verify(&self.0, &token.0[..], &hash.0).is_ok()
    }
}

/// Shows nothing of it.
impl fmt::Debug for TokenKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenKey(…)")
    }
}

/// The keyed hash of a token: HMAC with SHA-256. It proves nothing, and may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Returns the hash of these bytes, which [`TokenHash::as_bytes`] gave.
    pub const fn from_bytes(bytes: [u8; 32]) -> TokenHash {
        TokenHash(bytes)
    }

    /// Returns its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that differ in all places, and from one seed to another.
    fn bytes(seed: u8) -> [u8; TOKEN_BYTES] {
        std::array::from_fn(|at| (at as u8).wrapping_mul(97).wrapping_add(seed))
    }

    #[test]
    fn a_token_is_read_as_it_is_written() {
        for seed in 0..=255 {
            let token = Token::new(bytes(seed));
            let text = token.text();
            assert_eq!(text.len(), 50);
            let read = Token::parse(text.as_bytes()).expect("a token");
            assert_eq!(*read.0, bytes(seed));
        }
        let zeros = format!("pelton_{}", "A".repeat(43));
        assert_eq!(*Token::new([0; 32]).text(), zeros);
        let ones = format!("pelton_{}8", "_".repeat(42));
        assert_eq!(*Token::new([255; 32]).text(), ones);
    }

    /// Two texts for one token would be two values that a connection keeps.
    #[test]
    fn there_is_one_way_to_write_a_token() {
        let text = Token::new(bytes(3)).text();
        let mut read = 0;
        for at in 0..text.len() {
            for byte in 0..=255 {
                let mut other = text.as_bytes().to_vec();
                other[at] = byte;
                let Some(token) = Token::parse(&other) else {
                    continue;
                };
                read += 1;
                assert_eq!(token.text().as_bytes(), other);
            }
        }
        // What is in front as it is, then all digits in all places, but of the last one those that
        // leave no bit over.
        assert_eq!(read, TOKEN_PREFIX.len() + 42 * 64 + 16);
        for other in [
            "",
            "pelton_",
            &text[1..],
            &text[..49],
            &format!("{}A", *text),
        ] {
            assert!(Token::parse(other.as_bytes()).is_none(), "{other:?}");
        }
    }

    #[test]
    fn a_header_has_the_scheme_in_any_case_and_one_token() {
        let text = Token::new(bytes(9)).text();
        let text = &**text;
        let spaces = " ".repeat(AUTHORIZATION_BYTES_MAX - text.len() - 6);
        for (value, is_one) in [
            (format!("Bearer {text}"), true),
            (format!("bearer {text}"), true),
            (format!("BEARER   {text}"), true),
            (format!("Bearer{spaces}{text}"), true),
            (format!("Bearer {spaces}{text}"), false),
            (format!("Bearer{text}"), false),
            (format!(" Bearer {text}"), false),
            (format!("Bearer {text} "), false),
            (format!("Bearer {text},{text}"), false),
            (format!("Basic {text}"), false),
            (format!("Bearer {}", &text[7..]), false),
            (text.to_owned(), false),
            ("Bearer ".to_owned(), false),
            ("Bearer".to_owned(), false),
            ("Bea".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(
                Token::of_header(value.as_bytes()).is_some(),
                is_one,
                "{value:?}"
            );
        }
    }

    #[test]
    fn a_hash_is_that_of_one_token_and_one_key() {
        let (key, other_key) = (TokenKey::new(&[1; 32]), TokenKey::new(&[2; 32]));
        let token = Token::new(bytes(5));
        let hash = key.hash(&token);
        assert_eq!(TokenHash::from_bytes(*hash.as_bytes()), hash);
        assert!(key.is_hash_of(&hash, &token) && !other_key.is_hash_of(&hash, &token));
        for bit in 0..256 {
            let mut near = bytes(5);
            near[bit / 8] ^= 1 << (bit % 8);
            let near = Token::new(near);
            assert!(!key.is_hash_of(&hash, &near) && key.hash(&near) != hash);
        }
    }

    #[test]
    fn secrets_are_the_same_if_all_their_bytes_are() {
        assert!(is_same_secret(b"", b"") && is_same_secret(b"abc", b"abc"));
        for other in [&b""[..], b"ab", b"abcd", b"abd", b"bbc"] {
            assert!(!is_same_secret(b"abc", other) && !is_same_secret(other, b"abc"));
        }
    }

    #[test]
    fn nothing_of_a_secret_is_shown() {
        let (token, key) = (Token::new([7; 32]), TokenKey::new(&[7; 32]));
        assert_eq!(format!("{token:?} {key:?}"), "Token(…) TokenKey(…)");
    }
}
