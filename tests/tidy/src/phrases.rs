//! Phrases of our own for which the field has a word: `phrases.txt`.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use crate::source::{Tree, extension_of};
use crate::violation::Violation;

const PHRASES: &str = include_str!("../phrases.txt");

const PAGES: [&str; 4] = [
    "ARCHITECTURE.md",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
];

/// A line of `phrases.txt`.
#[derive(Debug)]
struct Phrase {
    text: String,
    words: Vec<String>,
    instead: String,
    folder: String,
    any_case: bool,
}

/// A word of a text, and its line. A word is made of letters; `_` and all else part words.
#[derive(Debug)]
struct Word<'a> {
    text: &'a str,
    lower: Cow<'a, str>,
    /// The whole identifier around it.
    identifier: &'a str,
    line: usize,
    /// Whether a sentence or a paragraph ends before it, so that no phrase goes across.
    is_apart: bool,
}

/// Returns the phrases in crates, pages, protocol files, scripts, and tests in Python.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let phrases = phrases(PHRASES);
    let public = public_names(tree);
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        if is_read(path) {
            found.extend(find(&phrases, &public, path, text));
        }
    }
    found
}

fn is_read(path: &str) -> bool {
    let (folder, _) = path.split_once('/').unwrap_or_default();
    let extension = extension_of(path);
    match folder {
        "crates" | "docs" => matches!(extension, "rs" | "md"),
        "tests" => extension == "py",
        "script" => matches!(extension, "py" | ""),
        "proto" => extension == "proto",
        _ => PAGES.contains(&path),
    }
}

fn phrases(list: &str) -> Vec<Phrase> {
    let lines = list
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let phrase = |line: &str| {
        let mut parts = line.split('|').map(str::trim);
        let text = parts.next().unwrap_or_default().to_owned();
        let any_case = !text.contains(char::is_uppercase);
        let words = text.split(' ').map(str::to_owned).collect();
        let instead = parts.next().unwrap_or_default().to_owned();
        let folder = parts.next().unwrap_or_default().to_owned();
        Phrase {
            text,
            words,
            instead,
            folder,
            any_case,
        }
    };
    lines.map(phrase).collect()
}

/// Returns the identifiers of the public API: a rename of those would break its callers.
fn public_names(tree: &Tree) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for (_, text) in tree.with_extension(&["proto"]) {
        let code = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default());
        names.extend(code.flat_map(|line| line.split(|c| !is_identifier(c))));
    }
    names
}

fn is_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn find(phrases: &[Phrase], public: &BTreeSet<&str>, path: &str, text: &str) -> Vec<Violation> {
    let words = words(text);
    let phrases = phrases
        .iter()
        .filter(|phrase| path.starts_with(&phrase.folder));
    // Most phrases begin with a whole word, by which they are looked up.
    let (parts, whole): (Vec<&Phrase>, Vec<&Phrase>) =
        phrases.partition(|phrase| phrase.words[0].contains('*'));
    let mut by_word: HashMap<String, Vec<&Phrase>> = HashMap::new();
    for phrase in whole {
        by_word
            .entry(phrase.words[0].to_lowercase())
            .or_default()
            .push(phrase);
    }
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let candidates = by_word
            .get(&*word.lower)
            .into_iter()
            .flatten()
            .chain(&parts);
        let mut candidates = candidates.filter(|phrase| phrase.is_at(&words[index..]));
        let matching = candidates.next();
        if let Some(phrase) = matching
            && !public.contains(word.identifier)
        {
            let message = format!("say `{}`, not `{}`", phrase.instead, phrase.text);
            found.push(Violation::new("phrases", path, word.line, message));
        }
    }
    found
}

/// Returns the words of a text. Marks of comments and quotations at the start of a line are no
/// words, so that phrases are found across lines.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words: Vec<Word<'_>> = Vec::new();
    let mut is_apart = false;
    for (index, line) in text.lines().enumerate() {
        is_apart |= line.trim_matches(|c: char| !c.is_alphanumeric()).is_empty();
        for identifier in line.split_inclusive(|c: char| !is_identifier(c) && c != '\'') {
            for part in identifier.split('_') {
                let text = part.trim_matches(|c: char| !c.is_alphanumeric());
                if !text.is_empty() {
                    words.push(Word {
                        text,
                        lower: match text.contains(char::is_uppercase) {
                            true => text.to_lowercase().into(),
                            false => text.into(),
                        },
                        identifier: identifier.trim_matches(|c: char| !is_identifier(c)),
                        line: index + 1,
                        is_apart,
                    });
                    is_apart = false;
                }
            }
            is_apart |= identifier.ends_with(['.', ';', ':', '(', ')', '|', '"', '{', '}']);
        }
    }
    words
}

impl Phrase {
    fn is_at(&self, words: &[Word<'_>]) -> bool {
        if words.len() < self.words.len() {
            return false;
        }
        let mut pairs = self.words.iter().zip(words).enumerate();
        pairs.all(|(index, (pattern, word))| {
            let text = match self.any_case {
                true => &*word.lower,
                false => word.text,
            };
            (index == 0 || !word.is_apart) && matches(pattern, text)
        })
    }
}

/// Returns whether a word fits a pattern, which may have a `*` at either end.
fn matches(pattern: &str, word: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => word.contains(pattern.trim_matches('*')),
        (Some(end), None) => word.ends_with(end),
        (None, Some(start)) => word.starts_with(start),
        (None, None) => word == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let proto = (
            "proto/a.proto",
            "message Shown { bytes papers = 1; } // rubbish",
        );
        let violations = check(&Tree::of(&[(path, text), proto]));
        let of_path = violations.iter().filter(|found| found.file == path);
        of_path.map(|violation| violation.line).collect()
    }

    #[test]
    fn phrases_are_found_in_any_case_and_across_lines() {
        assert_eq!(lines("crates/a/src/b.rs", "// The room above."), [1]);
        assert_eq!(
            lines("crates/a/src/b.rs", "fn f() {}\n/// the room\n/// above"),
            [2]
        );
        assert_eq!(lines("docs/a.md", "> of an *earlier*\n> life"), [1]);
        assert_eq!(lines("README.md", "an odd frame, and odd frames"), [1, 1]);
    }

    #[test]
    fn identifiers_are_split_at_underscores() {
        assert_eq!(lines("crates/a/src/b.rs", "fn doomed_files() {}"), [1]);
        assert_eq!(lines("crates/a/src/b.rs", "fn who_is_told() {}"), [1]);
        assert_eq!(lines("crates/a/src/b.rs", "struct MetricsReaper;"), [1]);
        assert_eq!(lines("crates/a/src/b.rs", "fn take_wish() {}"), [1]);
    }

    #[test]
    fn plain_text_is_no_phrase() {
        let text = "the room. Above it; shown, look; a life\nof earlier plans";
        assert_eq!(lines("docs/a.md", text), [0; 0]);
        assert_eq!(lines("docs/a.md", "the room\n\nabove"), [0; 0]);
    }

    #[test]
    fn a_capital_letter_confines_a_phrase_to_its_case() {
        assert_eq!(lines("crates/store/src/b.rs", "let look: Look = it;"), [1]);
        assert_eq!(lines("crates/store/src/b.rs", "a second look"), [0; 0]);
    }

    #[test]
    fn a_folder_confines_a_phrase() {
        assert_eq!(lines("crates/server/src/b.rs", "struct Worker;"), [1]);
        assert_eq!(lines("crates/lab/src/b.rs", "struct Worker;"), [0; 0]);
    }

    #[test]
    fn names_of_the_public_api_and_other_files_are_exempt() {
        assert_eq!(lines("docs/api.md", "`Shown` has `papers`"), [0; 0]);
        assert_eq!(lines("crates/a/src/b.rs", "rubbish"), [1]);
        assert_eq!(lines("peers/README.md", "the room above"), [0; 0]);
        assert_eq!(lines("tests/tidy/src/a.rs", "rubbish"), [0; 0]);
        assert_eq!(lines("script/interop/main.go", "// rubbish"), [0; 0]);
    }

    #[test]
    fn protocol_files_scripts_and_tests_in_python_are_read() {
        for path in [
            "proto/b.proto",
            "tests/e2e/test_b.py",
            "script/rows.py",
            "script/interop/run",
        ] {
            assert_eq!(lines(path, "// the room above"), [1], "{path}");
        }
    }
}
