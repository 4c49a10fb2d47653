//! What proves who calls, with any bytes in it: the fuzz target `authorization`.

use service::identities::{
    Identities, Identity, IdentityTable, IssuedToken, NEVER_MS, TOKEN_BYTES, TOKEN_PREFIX, Token,
    TokenKey, Unauthenticated,
};
use service::limits::AUTHORIZATION_BYTES_MAX;
use service::rights::Rights;

const NOW_MS: u64 = 1_000;
const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The bytes of each token that is known, who has it, and when it expires.
const KNOWN: [(u8, &str, u64); 4] = [
    (1, "first", NEVER_MS),
    (2, "second", NOW_MS + 1),
    (3, "expired", NOW_MS),
    (0, "zeros", NEVER_MS),
];

/// Looks the value of a header up, whole or as a part of one, and a slower form says whose it is.
pub fn fuzz_authorization(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else {
        return;
    };
    let value = header(mode, data);
    let table = table();
    let found = table.resolve(&value, NOW_MS);
    let name = found.map(|key| {
        let identity = table.get(key);
        identity
            .expect("a key finds its identity")
            .name()
            .to_owned()
    });
    assert_eq!(name, expected(&value), "{}", value.escape_ascii());
    if let Some(token) = Token::of_header(&value) {
        assert!(value.ends_with(token.text().as_bytes()));
    }
    let read = Token::parse(data).map(|token| token.text());
    assert!(read.is_none_or(|text| text.as_bytes() == data));
}

/// A header of these bytes, or a known token that they change.
fn header(mode: u8, data: &[u8]) -> Vec<u8> {
    let (known, _, _) = KNOWN[usize::from(mode >> 2) % KNOWN.len()];
    match mode & 3 {
        0 => data.to_vec(),
        1 => [b"Bearer ", data].concat(),
        2 => {
            let mut bytes = [known; TOKEN_BYTES];
            bytes
                .iter_mut()
                .zip(data)
                .for_each(|(byte, change)| *byte ^= change);
            format!("bearer {}", *Token::new(bytes).text()).into_bytes()
        }
        _ => {
            let text = Token::new([known; TOKEN_BYTES]).text();
            let mut value = format!("Bearer {}", *text).into_bytes();
            for change in data.chunks_exact(2) {
                let at = usize::from(change[0]) % value.len();
                value[at] = change[1];
            }
            value
        }
    }
}

fn table() -> std::sync::Arc<IdentityTable> {
    let key = TokenKey::new(&[9; 32]);
    let identities = Identities::new(key.clone(), Vec::new());
    let all = KNOWN.map(|(byte, name, expires_ms)| {
        let issued = IssuedToken {
            hash: key.hash(&Token::new([byte; TOKEN_BYTES])),
            expires_ms,
        };
        Identity::new(name, Rights::everything(), NEVER_MS, vec![issued]).expect("it is sound")
    });
    identities.replace(all.into(), NOW_MS).expect("they differ");
    identities.table()
}

fn expected(value: &[u8]) -> Result<String, Unauthenticated> {
    let bytes = bytes_of(value).ok_or(Unauthenticated::NoToken)?;
    let known = KNOWN
        .iter()
        .find(|(byte, _, _)| bytes.iter().all(|other| other == byte));
    match known.filter(|_| bytes.len() == TOKEN_BYTES) {
        None => Err(Unauthenticated::Unknown),
        Some((_, _, expires_ms)) if *expires_ms <= NOW_MS => Err(Unauthenticated::Expired),
        Some((_, name, _)) => Ok((*name).to_owned()),
    }
}

/// The bytes of the token in a header, read bit by bit.
fn bytes_of(value: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(value).ok()?;
    let is_short = value.len() <= AUTHORIZATION_BYTES_MAX;
    let (scheme, rest) = text.split_at_checked("bearer".len()).filter(|_| is_short)?;
    let is_space = |letter: char| " \t\n\r\u{c}".contains(letter);
    let token = rest.trim_start_matches(is_space);
    if !scheme.eq_ignore_ascii_case("bearer") || token == rest {
        return None;
    }
    let digits = token.strip_prefix(TOKEN_PREFIX)?;
    let mut bits = Vec::new();
    for digit in digits.bytes() {
        let value = DIGITS.iter().position(|&one| one == digit)?;
        bits.extend((0..6).rev().map(|bit| value >> bit & 1 == 1));
    }
    let (bits, left_over) = bits.split_at_checked(8 * TOKEN_BYTES)?;
    if left_over.len() != 2 || left_over.contains(&true) {
        return None;
    }
    let byte = |bits: &[bool]| bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
    Some(bits.chunks(8).map(byte).collect())
}

#[test]
fn the_corpus_of_authorization_passes() {
    testkit::replay_corpus("authorization", fuzz_authorization);
}
