//! Base64 with the standard alphabet (RFC 4648 section 4), for `-bin` metadata.
//!
//! Our own, because it is short, and because what gRPC asks for, padding or not as the sender
//! likes, is what general libraries make a matter of configuration.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const INVALID: u8 = 0xff;

static VALUES: [u8; 256] = {
    let mut values = [INVALID; 256];
    let mut value = 0;
    while value < 64 {
        values[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    values
};

/// Appends `bytes` encoded, without padding.
pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut bits = 0u32;
        for at in 0..3 {
            bits = bits << 8 | u32::from(group.get(at).copied().unwrap_or(0));
        }
        for at in 0..=group.len() {
            out.push(ALPHABET[(bits >> (18 - 6 * at) & 0x3f) as usize]);
        }
    }
}

/// Appends what `text` stands for, with or without padding. `None`, and `out` as it was, if it is
/// not base64.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let before = out.len();
    let decoded = decode_unpadded(without_padding(text)?, out);
    if decoded.is_none() {
        out.truncate(before);
    }
    decoded
}

/// Padding makes the length a multiple of four, or it is no padding.
fn without_padding(text: &[u8]) -> Option<&[u8]> {
    let unpadded = text
        .strip_suffix(b"==")
        .or_else(|| text.strip_suffix(b"="))
        .unwrap_or(text);
    let is_padded = unpadded.len() < text.len();
    if is_padded && !text.len().is_multiple_of(4) {
        None
    } else {
        Some(unpadded)
    }
}

fn decode_unpadded(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.reserve(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for &character in group {
            let value = VALUES[usize::from(character)];
            if value == INVALID {
                return None;
            }
            bits = bits << 6 | u32::from(value);
        }
        let [_, bytes @ ..] = (bits << (6 * (4 - group.len()))).to_be_bytes();
        match group.len() {
            4 => out.extend_from_slice(&bytes),
            3 => out.extend_from_slice(&bytes[..2]),
            2 => out.extend_from_slice(&bytes[..1]),
            // One character has six bits: no byte.
            _ => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    fn decoded(text: &str) -> Option<Vec<u8>> {
        let mut out = b"before".to_vec();
        let result = decode(text.as_bytes(), &mut out);
        assert!(out.starts_with(b"before") && (result.is_some() || out.len() == 6));
        result.map(|()| out[6..].to_vec())
    }

    #[test]
    fn vectors_of_rfc_4648_section_10() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            encode(bytes.as_bytes(), &mut out);
            assert_eq!(out, text.trim_end_matches('=').as_bytes());
            assert_eq!(decoded(text).as_deref(), Some(bytes.as_bytes()));
            assert_eq!(
                decoded(text.trim_end_matches('=')).as_deref(),
                Some(bytes.as_bytes())
            );
        }
    }

    #[test]
    fn what_is_not_base64() {
        for wrong in [
            "A", "AAAAA", "A=", "=", "==", "AA=", "AAA==", "AAAA=", "A===", "A A", "AA-_",
            "Zg==Zg==", "Zm9v\n", "é",
        ] {
            assert_eq!(decoded(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn any_bytes_come_back() {
        let mut random = Random::new(0x5eed_0013);
        for _ in 0..2000 {
            let bytes = random.bytes(50, |random| random.number() as u8);
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            let mut back = Vec::new();
            assert_eq!(decode(&text, &mut back), Some(()), "{random:?}");
            assert_eq!(back, bytes, "{random:?}");
        }
    }
}
