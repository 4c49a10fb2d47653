//! Looks tokens up, for `script/instructions`: `token_lookups WHAT TIMES`. WHAT is `good`, or where
//! a token that is not known differs from one that is: `first`, `middle` or `last`; or `same-` and
//! one of these, for the comparison with the value that a connection has sent before.

use std::hint::black_box;

use service::identities::{
    Identities, Identity, IssuedToken, NEVER_MS, TOKEN_BYTES, Token, TokenKey, is_same_secret,
};
use service::limits::IDENTITIES_MAX;
use service::rights::Rights;

const USAGE: &str = "usage: token_lookups [same-]good|first|middle|last TIMES";

fn token(number: usize) -> Token {
    let mut bytes = [0x5a; TOKEN_BYTES];
    bytes[12..20].copy_from_slice(&number.to_le_bytes());
    Token::new(bytes)
}

/// As many as there can be.
fn identities() -> Identities {
    let key = TokenKey::new(&[9; 32]);
    let identities = Identities::new(key.clone(), Vec::new());
    let one = |number| {
        let issued = IssuedToken {
            hash: key.hash(&token(number)),
            expires_ms: NEVER_MS,
        };
        let name = format!("n{number}");
        Identity::new(&name, Rights::everything(), NEVER_MS, vec![issued]).expect("it is sound")
    };
    let all = (0..IDENTITIES_MAX).map(one).collect();
    identities.replace(all, 0).expect("they differ");
    identities
}

/// The same header, with another digit in a place of its token.
fn changed(header: &[u8], place: &str) -> Vec<u8> {
    let mut header = header.to_vec();
    let at = match place {
        "good" => return header,
        "first" => header.len() - 43,
        "middle" => header.len() - 22,
        // The last digit has two bits that must be 0.
        "last" => header.len() - 1,
        _ => panic!("{USAGE}"),
    };
    header[at] = match header[at] {
        b'Q' => b'A',
        _ => b'Q',
    };
    header
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, times] = &arguments[..] else {
        panic!("{USAGE}")
    };
    let times: usize = times.parse().expect(USAGE);
    let table = identities().table();
    let header = format!("Bearer {}", *token(500).text()).into_bytes();
    if let Some(place) = what.strip_prefix("same-") {
        let other = changed(&header, place);
        for _ in 0..times {
            let is_same = is_same_secret(black_box(&header), black_box(&other));
            assert_eq!(is_same, place == "good");
        }
        return;
    }
    let other = changed(&header, what);
    for _ in 0..times {
        let found = table.resolve(black_box(&other), 0);
        assert_eq!(found.is_ok(), what == "good");
    }
}
