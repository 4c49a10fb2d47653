//! What a Search compares keys with.

use memchr::memmem::Finder;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;

use crate::limits::{TKRZW_PATTERNS, TKRZW_REGEX_BYTES};

/// How keys are compared with a pattern.
#[derive(Debug)]
pub(super) enum KeyPattern {
    /// It has one of these somewhere.
    Contains(Vec<TextPattern>),
    /// It ends so.
    Ends(Box<[u8]>),
    /// An expression matches somewhere.
    Regex(Box<Regex>),
    /// Any: those that are walked are all that is looked for.
    Any,
}

/// A text that is looked for in keys.
#[derive(Debug)]
pub(super) struct TextPattern {
    text: Box<[u8]>,
    finder: Finder<'static>,
    ignores_case: bool,
    is_of_words: bool,
}

/// There is no such expression, or it is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadPattern;

impl KeyPattern {
    /// Makes the pattern of a mode `contain…`; `None`: it is none of them.
    pub(super) fn contains(mode: &str, pattern: &[u8]) -> Option<Result<KeyPattern, BadPattern>> {
        let (mode, is_list) = match mode.strip_suffix('*') {
            Some(mode) => (mode, true),
            None => (mode, false),
        };
        let (ignores_case, is_of_words) = match mode {
            "contain" => (false, false),
            "containcase" => (true, false),
            "containword" => (false, true),
            "containcaseword" => (true, true),
            _ => return None,
        };
        let text = |text: &[u8]| {
            let text: Box<[u8]> = match ignores_case {
                true => text.to_ascii_lowercase().into(),
                false => text.into(),
            };
            TextPattern {
                finder: Finder::new(&text).into_owned(),
                text,
                ignores_case,
                is_of_words,
            }
        };
        let texts: Vec<_> = match is_list {
            true => pattern.split(|&byte| byte == b'\n').map(text).collect(),
            false => vec![text(pattern)],
        };
        Some(match texts.len() <= TKRZW_PATTERNS {
            true => Ok(KeyPattern::Contains(texts)),
            false => Err(BadPattern),
        })
    }

    /// Makes the pattern of the mode `regex`. Letters in `(?…)` in front choose a dialect of the
    /// original, of which there is one here; `i` ignores case.
    pub(super) fn regex(pattern: &[u8]) -> Result<KeyPattern, BadPattern> {
        let pattern = str::from_utf8(pattern).map_err(|_| BadPattern)?;
        let (letters, pattern) = match pattern.strip_prefix("(?").and_then(|rest| {
            let (letters, rest) = rest.split_once(')')?;
            let is_known = letters.bytes().all(|letter| b"abeil".contains(&letter));
            (!letters.is_empty() && is_known).then_some((letters, rest))
        }) {
            Some((letters, rest)) => (letters, rest),
            None => ("", pattern),
        };
        // As the original's: of bytes. Classes of all letters of Unicode would take a hundred times
        // as long to compile.
        let syntax = syntax::Config::new()
            .unicode(false)
            .utf8(false)
            .case_insensitive(letters.contains('i'));
        let config = Regex::config()
            .utf8_empty(false)
            .nfa_size_limit(Some(TKRZW_REGEX_BYTES))
            .onepass(false)
            .hybrid_cache_capacity(2 * TKRZW_REGEX_BYTES);
        let regex = Regex::builder()
            .configure(config)
            .syntax(syntax)
            .build(pattern);
        let regex = regex.map_err(|_| BadPattern)?;
        Ok(KeyPattern::Regex(Box::new(regex)))
    }

    /// Returns whether a key is looked for.
    pub(super) fn matches(&self, key: &[u8]) -> bool {
        match self {
            KeyPattern::Contains(texts) => texts.iter().any(|text| text.is_in(key)),
            KeyPattern::Ends(text) => key.ends_with(text),
            KeyPattern::Regex(regex) => regex.is_match(key),
            KeyPattern::Any => true,
        }
    }

    /// Returns how much work a comparison with a key is, in bytes that are looked at.
    pub(super) fn cost(&self, key: &[u8]) -> usize {
        match self {
            KeyPattern::Contains(texts) => {
                let fit = texts.iter().filter(|text| text.fits(key)).count();
                texts.len() + (key.len() + 1).saturating_mul(fit)
            }
            KeyPattern::Ends(_) | KeyPattern::Regex(_) | KeyPattern::Any => key.len() + 1,
        }
    }
}

impl TextPattern {
    /// Whether it could be in a key.
    fn fits(&self, key: &[u8]) -> bool {
        self.text.len() <= key.len()
    }

    fn is_in(&self, key: &[u8]) -> bool {
        if !self.fits(key) {
            return false;
        }
        let folded;
        let key = match self.ignores_case {
            true => {
                folded = key.to_ascii_lowercase();
                &folded[..]
            }
            false => key,
        };
        if !self.is_of_words {
            return self.finder.find(key).is_some();
        }
        let mut found = self.finder.find_iter(key);
        found.any(|start| self.is_word(key, start))
    }

    /// Returns whether what was found is not a part of longer words.
    fn is_word(&self, key: &[u8], start: usize) -> bool {
        let end = start + self.text.len();
        let before = start.checked_sub(1).and_then(|at| key.get(at));
        let is_joined = |one: Option<&u8>, other: Option<&u8>| {
            let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            one.is_some_and(is_letter) && other.is_some_and(is_letter)
        };
        !is_joined(before, self.text.first()) && !is_joined(key.get(end), self.text.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(mode: &str, pattern: &str, key: &str) -> bool {
        let made = match mode {
            "regex" => KeyPattern::regex(pattern.as_bytes()),
            mode => KeyPattern::contains(mode, pattern.as_bytes()).expect("a mode"),
        };
        made.expect("a sound pattern").matches(key.as_bytes())
    }

    #[test]
    fn each_mode_compares_as_its_name_says() {
        for (mode, pattern, key, expected) in [
            ("contain", "bc", "abcd", true),
            ("contain", "", "", true),
            ("contain", "BC", "abcd", false),
            ("contain*", "x\nbc", "abcd", true),
            ("contain*", "x\ny", "abcd", false),
            ("containcase", "BC", "abcd", true),
            ("containcase*", "X\nBC", "abcd", true),
            ("containword", "bc", "abcd", false),
            ("containword", "bc", "a bc d", true),
            ("containword", "bc", "bcd bc", true),
            ("containword", "bc", "bc_ bc1", false),
            ("containword", "-bc", "a-bc", true),
            ("containcaseword", "BC", "a-bc-d", true),
            ("containcaseword*", "X\nBC", "abc bc", true),
            ("regex", "b.d", "abcd", true),
            ("regex", "^b", "abcd", false),
            ("regex", "(?i)B.D", "abcd", true),
            ("regex", "(?ei)B+", "abcd", true),
            ("regex", "(?a)[0-9]{2}$", "x12", true),
        ] {
            assert_eq!(
                matches(mode, pattern, key),
                expected,
                "{mode} {pattern} {key}"
            );
        }
    }

    #[test]
    fn an_expression_that_is_none_or_too_large_is_refused() {
        for pattern in [&b"("[..], b"\xff", b"(a{1000}){1000}{1000}"] {
            assert!(KeyPattern::regex(pattern).is_err(), "{pattern:?}");
        }
        let many = vec![b'\n'; TKRZW_PATTERNS];
        let made = KeyPattern::contains("contain*", &many);
        assert_eq!(made.map(|made| made.err()), Some(Some(BadPattern)));
        assert!(KeyPattern::contains("contains", b"").is_none());
    }
}
