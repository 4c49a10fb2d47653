//! Texts of callers without the tokens that stand in them, should somebody have taken one for a
//! name.

/// What each token begins with, so that those who search files for lost secrets find it.
pub const TOKEN_PREFIX: &str = "pelton_";

/// Digits of base64url that follow: 42 of 6 bits, and one of 4.
pub(crate) const TOKEN_DIGITS: usize = 43;

/// What stands in the place of the digits of a token.
const REDACTED: char = '…';

/// Returns a text without the tokens that stand in it.
pub fn without_tokens(text: &str) -> String {
    let mut rest = text;
    let mut clean = String::with_capacity(text.len());
    while let Some(at) = rest.find(TOKEN_PREFIX) {
        let (before, found) = rest.split_at(at);
        clean.push_str(before);
        let token_bytes = token_bytes(found);
        clean.push_str(TOKEN_PREFIX);
        clean.extend((token_bytes > 0).then_some(REDACTED));
        rest = &found[token_bytes.max(TOKEN_PREFIX.len())..];
    }
    clean.push_str(rest);
    clean
}

/// Returns whether what may be a token stands in a text.
pub fn contains_token(text: &str) -> bool {
    let mut found = text.match_indices(TOKEN_PREFIX);
    found.any(|(at, _)| text.get(at..).is_some_and(|rest| token_bytes(rest) > 0))
}

/// Returns the first `characters` of a text without the tokens in it, and whether there are more.
/// Tokens go first: of one that reaches beyond the end no part is left.
pub fn shortened_without_tokens(text: &str, characters: usize) -> (String, bool) {
    let mut clean = String::new();
    let (mut rest, mut left) = (text, characters);
    while left > 0 {
        let token_bytes = token_bytes(rest);
        if token_bytes > 0 {
            let shown = TOKEN_PREFIX.chars().chain([REDACTED]);
            let before_bytes = clean.len();
            clean.extend(shown.take(left));
            left -= clean[before_bytes..].chars().count();
            rest = &rest[token_bytes..];
            continue;
        }
        let mut chars = rest.chars();
        let Some(char) = chars.next() else {
            break;
        };
        clean.push(char);
        left -= 1;
        rest = chars.as_str();
    }
    (clean, !rest.is_empty())
}

/// Returns how many bytes the token has with which a text begins; 0: it begins with none. All that
/// could be digits of it belong to it.
fn token_bytes(text: &str) -> usize {
    let Some(found) = text.strip_prefix(TOKEN_PREFIX) else {
        return 0;
    };
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    let digits = found.bytes().take_while(is_of_token).count();
    match digits >= TOKEN_DIGITS {
        true => TOKEN_PREFIX.len() + digits,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use testkit::Random;

    use super::*;

    fn token() -> String {
        format!("{TOKEN_PREFIX}{}", "x_-9".repeat(11))
    }

    #[test]
    fn a_text_is_cut_to_length_after_tokens_are_removed() {
        let token = token();
        for (text, characters, expected) in [
            ("orders".to_owned(), 6, ("orders", false)),
            ("orders".to_owned(), 5, ("order", true)),
            ("äöü".to_owned(), 2, ("äö", true)),
            (String::new(), 0, ("", false)),
            (token.clone(), 512, ("pelton_…", false)),
            (format!("a{token} b"), 10, ("apelton_… ", true)),
            // It reaches beyond the end, or would be left as a part of a token by what was cut.
            (token.clone(), 30, ("pelton_…", false)),
            (format!("12345678{token}"), 20, ("12345678pelton_…", false)),
            (format!("{token}/{token}"), 70, ("pelton_…/pelton_…", false)),
            (token.clone(), 3, ("pel", false)),
        ] {
            let (text, is_cut) = shortened_without_tokens(&text, characters);
            assert_eq!((&*text, is_cut), expected, "{characters}");
        }
    }

    /// The slower form: all of the text is cleaned, and then cut.
    #[test]
    fn arbitrary_texts_are_shortened_as_if_they_were_cleaned_as_a_whole() {
        let token = token();
        let parts = [
            &*token,
            "a",
            "ä…",
            TOKEN_PREFIX,
            "x_-9x_-9x_-9",
            "/",
            &token[..20],
        ];
        let mut random = Random::new(3);
        for _ in 0..20_000 {
            let text: String = (0..random.below(8))
                .map(|_| parts[random.below(parts.len())])
                .collect();
            let characters = random.below(90);
            let clean = without_tokens(&text);
            assert_eq!(contains_token(&text), clean != text, "{text:?}");
            let (short, _) = shortened_without_tokens(&text, characters);
            assert_eq!(
                short,
                clean.chars().take(characters).collect::<String>(),
                "{text:?}"
            );
        }
    }
}
