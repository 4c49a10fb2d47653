//! Bytes as text: keys on the command line, entries in a terminal, fields in JSON.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use crate::arguments::KeyEncoding;
use crate::exit::Failure;

/// The bytes of a key as it stands on the command line.
pub fn decode_key(text: &OsStr, encoding: KeyEncoding) -> Result<Vec<u8>, Failure> {
    let wrong = |form: &str| {
        let text = text.display();
        Failure::Usage(format!(
            "the key `{text}` is not {form}; --key-encoding says how keys are written"
        ))
    };
    match encoding {
        KeyEncoding::Text => Ok(text.as_bytes().to_vec()),
        KeyEncoding::Escape => unescape(text.as_bytes())
            .ok_or_else(|| wrong("escaped: behind a backslash stands n, t, r, a backslash or xNN")),
        KeyEncoding::Hex => {
            decode_hex(text.as_bytes()).ok_or_else(|| wrong("hexadecimal with two digits a byte"))
        }
        KeyEncoding::Base64 => BASE64
            .decode(text.as_bytes())
            .map_err(|_| wrong("base64 with its padding")),
    }
}

/// Two hexadecimal digits for each byte.
pub fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of two hexadecimal digits each.
pub fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
    if rest.is_empty() {
        pairs.iter().map(byte).collect()
    } else {
        None
    }
}

/// A key for people, in the encoding in which they write keys. Never contains a tab or a line end.
pub fn show_key(key: &[u8], encoding: KeyEncoding) -> String {
    match encoding {
        KeyEncoding::Text | KeyEncoding::Escape => escape(key),
        KeyEncoding::Hex => encode_hex(key),
        KeyEncoding::Base64 => BASE64.encode(key),
    }
}

/// Bytes on one line: `\n`, `\t`, `\r`, `\\`, and `\xNN` for other characters that are not printed,
/// for what is not UTF-8, and for blanks at either end, which a shell's `read` would take away.
/// [`unescape`] takes it back.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    escape_into(&mut out, bytes);
    String::from_utf8(out).expect("what is not UTF-8 is escaped")
}

/// The same, behind what is there already.
pub fn escape_into(out: &mut Vec<u8>, bytes: &[u8]) {
    let is_blank = |byte: &&u8| **byte == b' ';
    let (before, rest) = bytes.split_at(bytes.iter().take_while(is_blank).count());
    let behind = rest.iter().rev().take_while(is_blank).count();
    let (middle, behind) = rest.split_at(rest.len() - behind);
    escape_bytes(out, before);
    escape_middle(out, middle);
    escape_bytes(out, behind);
}

/// Bytes that begin no character of several bytes are looked up, without a branch for each kind.
fn escape_middle(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let Some(character) = long_character(&bytes[at..]) else {
            let (text, length) = SHOWN[usize::from(byte)];
            out.extend_from_slice(&text);
            out.truncate(out.len() - text.len() + length);
            at += 1;
            continue;
        };
        let utf8 = &bytes[at..at + character.len_utf8()];
        match character.is_control() || is_unseen(character) {
            true => escape_bytes(out, utf8),
            false => out.extend_from_slice(utf8),
        }
        at += utf8.len();
    }
}

/// How a byte by itself is shown, and how much of that there is.
const SHOWN: [([u8; 4], usize); 256] = {
    let mut shown = [([0; 4], 4); 256];
    let mut byte = 0;
    while byte < shown.len() {
        shown[byte] = match byte as u8 {
            b'\n' => (*b"\\n  ", 2),
            b'\t' => (*b"\\t  ", 2),
            b'\r' => (*b"\\r  ", 2),
            b'\\' => (*b"\\\\  ", 2),
            plain @ b' '..=b'~' => ([plain, 0, 0, 0], 1),
            _ => (ESCAPED[byte], 4),
        };
        byte += 1;
    }
    shown
};

/// The character with which bytes begin, if they begin with one of several bytes in UTF-8.
#[inline]
fn long_character(bytes: &[u8]) -> Option<char> {
    let length = match bytes.first()? {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
    text.chars().next()
}

/// Characters that nobody sees, that end a line somewhere, or that turn the order of what is
/// written.
fn is_unseen(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
    )
}

/// The bytes that [`escape`] has written; `None`: a backslash stands before something else.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        let (&letter, behind) = rest.split_first()?;
        rest = behind;
        bytes.push(match letter {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'\\' => b'\\',
            b'x' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                rest = behind;
                decode_hex(digits)?[0]
            }
            _ => return None,
        });
    }
    Some(bytes)
}

/// Each byte as [`escape_bytes`] writes it.
const ESCAPED: [[u8; 4]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut escaped = [*b"\\x00"; 256];
    let mut byte = 0;
    while byte < escaped.len() {
        escaped[byte][2] = DIGITS[byte >> 4];
        escaped[byte][3] = DIGITS[byte & 15];
        byte += 1;
    }
    escaped
};

fn escape_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.extend_from_slice(&ESCAPED[usize::from(*byte)]);
    }
}

/// Adds `name` with the bytes as text, or as base64 if they are not UTF-8, and `name_encoding`,
/// which says which.
pub fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    let (text, encoding) = match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), "text"),
        Err(_) => (BASE64.encode(bytes), "base64"),
    };
    object.insert(name.into(), text.into());
    object.insert(format!("{name}_encoding"), encoding.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_shown_in_each_encoding() {
        let key = |text: &str, encoding| decode_key(OsStr::new(text), encoding).expect(text);
        assert_eq!(key("a b", KeyEncoding::Text), b"a b");
        assert_eq!(key("00ffAb", KeyEncoding::Hex), [0x00, 0xff, 0xab]);
        assert_eq!(key("AP8=", KeyEncoding::Base64), [0x00, 0xff]);
        assert_eq!(key("", KeyEncoding::Hex), b"");
        assert_eq!(
            decode_key(OsStr::from_bytes(&[0xfe]), KeyEncoding::Text).expect("any bytes"),
            [0xfe]
        );
        assert_eq!(show_key(&[0x00, 0xff], KeyEncoding::Hex), "00ff");
        assert_eq!(show_key(&[0x00, 0xff], KeyEncoding::Base64), "AP8=");
        assert_eq!(
            show_key(&[0x00, 0xff, b'a'], KeyEncoding::Text),
            "\\x00\\xffa"
        );
    }

    #[test]
    fn wrong_keys_are_explained() {
        for (text, encoding) in [
            ("0", KeyEncoding::Hex),
            ("0g", KeyEncoding::Hex),
            ("+1", KeyEncoding::Hex),
            ("AP8", KeyEncoding::Base64),
            ("\\", KeyEncoding::Escape),
            ("\\q", KeyEncoding::Escape),
            ("\\x1", KeyEncoding::Escape),
            ("\\x1g", KeyEncoding::Escape),
            ("!", KeyEncoding::Base64),
        ] {
            let failure = decode_key(OsStr::new(text), encoding).expect_err(text);
            assert!(failure.to_string().contains("--key-encoding"), "{failure}");
        }
    }

    #[test]
    fn what_could_be_mistaken_is_escaped() {
        assert_eq!(escape("grün\t\n\r\\".as_bytes()), "grün\\t\\n\\r\\\\");
        assert_eq!(escape(&[0x1b, b'[', 0xc3]), "\\x1b[\\xc3");
        assert_eq!(
            escape(b"\xe2\x82\xac\xe2\x82a\xe2"),
            "\u{20ac}\\xe2\\x82a\\xe2"
        );
        assert_eq!(
            escape("\u{85}".as_bytes()),
            "\\xc2\\x85",
            "a control character of two bytes"
        );
    }

    #[test]
    fn escape_is_taken_back() {
        let there_and_back = |bytes: &[u8]| {
            let text = escape(bytes);
            let back = decode_key(OsStr::new(&text), KeyEncoding::Escape);
            assert_eq!(back.expect("valid"), bytes, "{text}");
            let harmful = |character: char| character.is_control() || is_unseen(character);
            assert!(
                !text.contains(harmful) && text.trim_matches(' ') == text,
                "{text:?}"
            );
        };
        for bytes in [
            &b""[..],
            b" ",
            b"  a b  ",
            b"\\n",
            b"\n\t\r\\\0",
            b"\\x41",
            "\u{202e}\u{200b}\u{feff}x\u{85}".as_bytes(),
            b"\xff\xfe caf\xc3",
            b"\xe2\x82\xac\xe2\x82a\xe2\xed\xa0\x80\xf4\x90\x80\x80\xc0\x80",
        ] {
            there_and_back(bytes);
        }
        for first in 0..=255 {
            for second in 0..=255 {
                there_and_back(&[first, second]);
            }
        }
        assert_eq!(escape(b" a b "), "\\x20a b\\x20");
    }

    #[test]
    fn json_says_how_bytes_are_written() {
        let mut object = Map::new();
        insert_bytes(&mut object, "key", b"k\n");
        insert_bytes(&mut object, "value", &[0xff, 0x00]);
        let expected =
            r#"{"key":"k\n","key_encoding":"text","value":"/wA=","value_encoding":"base64"}"#;
        assert_eq!(Value::Object(object).to_string(), expected);
    }
}
