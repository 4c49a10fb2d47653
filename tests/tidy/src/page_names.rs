//! Names of the code in the pages for those who change it: `Type::item`, `module::item` and
//! `file.rs` exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Tree;
use crate::violation::Violation;

const CHECK: &str = "page-names";

/// The pages, and the folder of others.
const PAGES: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];
const FOLDER: &str = "docs/internals/";

/// What a path begins with that is not of the workspace.
const FOREIGN: [&str; 4] = ["std", "rustls", "lsm_tree", "rustix"];

/// The words behind which an item is defined.
const DEFINING: [&str; 11] = [
    "const",
    "enum",
    "fn",
    "macro_rules",
    "mod",
    "static",
    "struct",
    "trait",
    "type",
    "union",
    "use",
];

/// Returns the names in backticks that stand for nothing in `crates`. It is a search of texts, so
/// it finds names that are gone, and not each one that has another meaning now.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let names = CodeNames::of(tree);
    let mut found = Vec::new();
    for (path, text) in tree.with_extension(&["md"]) {
        if !PAGES.contains(&path) && !path.starts_with(FOLDER) {
            continue;
        }
        for (line, span) in spans(text) {
            let missing = path_of(span).and_then(|name| names.missing(&name));
            let message = match missing {
                Some((owner, item)) => format!("`{owner}` has no `{item}`: name what is there now"),
                None if is_file_name(span) && !is_file(tree, span) => {
                    format!("there is no file `{span}`: name what is there now")
                }
                None => continue,
            };
            found.push(Violation::new(CHECK, path, line, message));
        }
    }
    found
}

/// Returns what stands in backticks, outside of blocks of code, and the lines.
fn spans(page: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_block = false;
    for (index, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        }
        if is_block {
            continue;
        }
        // A span that goes over the end of a line is left out.
        let spans = line.split('`').skip(1).step_by(2);
        found.extend(spans.map(|span| (index + 1, span)));
    }
    found
}

/// Returns the parts of a path such as `Type::item`, also as a call or a macro.
fn path_of(span: &str) -> Option<Vec<&str>> {
    let end = span.find(['(', '!', '<']).unwrap_or(span.len());
    let parts: Vec<&str> = span[..end].split("::").collect();
    let is_path = parts.len() > 1 && parts.iter().all(|part| is_identifier(part));
    is_path.then_some(parts)
}

/// Returns whether a span is the name of a file in Rust, with or without folders.
fn is_file_name(span: &str) -> bool {
    let is_part = |c: char| is_word(c) || matches!(c, '/' | '.' | '-');
    span.strip_suffix(".rs")
        .is_some_and(|stem| !stem.is_empty() && stem.chars().all(is_part))
}

fn is_file(tree: &Tree, name: &str) -> bool {
    let mut sources = tree.with_extension(&["rs"]);
    sources.any(|(path, _)| {
        path.strip_suffix(name)
            .is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
    })
}

fn is_identifier(word: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    word.starts_with(is_letter) && word.chars().all(is_word)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What the files of `crates` define.
struct CodeNames<'a> {
    files: BTreeMap<&'a str, FileNames<'a>>,
}

/// What a file defines.
#[derive(Default)]
struct FileNames<'a> {
    /// All words, for variants.
    words: BTreeSet<&'a str>,
    /// Items, and what is exported from elsewhere.
    items: BTreeSet<&'a str>,
    /// Functions, constants and fields.
    members: BTreeSet<&'a str>,
    /// Types that are defined here, or have an `impl`.
    types: BTreeSet<&'a str>,
}

impl<'a> CodeNames<'a> {
    fn of(tree: &'a Tree) -> CodeNames<'a> {
        let sources = tree.with_extension(&["rs"]);
        let sources = sources.filter(|(path, _)| path.starts_with("crates/"));
        CodeNames {
            files: sources
                .map(|(path, text)| (path, FileNames::of(text)))
                .collect(),
        }
    }

    /// Returns the first two parts of a path of which the second is not in the first.
    fn missing<'n>(&self, path: &[&'n str]) -> Option<(&'n str, &'n str)> {
        if FOREIGN.contains(path.first()?) {
            return None;
        }
        let pairs = path.windows(2).map(|pair| (pair[0], pair[1]));
        let mut pairs = pairs.filter(|(owner, _)| !["crate", "self", "super"].contains(owner));
        pairs.find(|(owner, item)| !self.has(owner, item))
    }

    fn has(&self, owner: &str, item: &str) -> bool {
        if owner.starts_with(char::is_uppercase) {
            let of_type = self
                .files
                .values()
                .filter(|file| file.types.contains(owner));
            let is_variant = item.starts_with(char::is_uppercase);
            return { of_type }.any(|file| match is_variant {
                true => file.words.contains(item),
                false => file.members.contains(item),
            });
        }
        let mut inside = self.files.iter().filter(|(path, _)| is_inside(path, owner));
        inside.any(|(path, file)| file.items.contains(item) || is_inside(path, item))
    }
}

/// Returns whether a file is that of a module, or of one inside it.
fn is_inside(path: &str, module: &str) -> bool {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    path.split('/').skip(1).any(|part| part == module)
}

impl<'a> FileNames<'a> {
    fn of(text: &'a str) -> FileNames<'a> {
        let mut names = FileNames::default();
        let (mut is_header, mut is_export) = (false, false);
        for line in text.lines() {
            let code = line.trim_start();
            if code.starts_with("//") {
                continue;
            }
            is_header |= code.starts_with("impl ") || code.starts_with("impl<");
            is_export |= code.starts_with("pub ") && code.contains(" use ")
                || code.starts_with("pub(") && code.contains(" use ");
            names.add_line(code, is_header, is_export);
            is_header &= !code.contains('{');
            is_export &= !code.contains(';');
        }
        names
    }

    fn add_line(&mut self, code: &'a str, is_header: bool, is_export: bool) {
        let mut before = "";
        for word in code.split(|c| !is_word(c)).filter(|word| !word.is_empty()) {
            self.words.insert(word);
            let is_defined = DEFINING.contains(&before);
            if is_defined || is_export {
                self.items.insert(word);
            }
            if is_defined {
                self.members.insert(word);
            }
            if is_header || ["enum", "struct", "trait", "type", "union"].contains(&before) {
                self.types.insert(word);
            }
            before = word;
        }
        self.members.extend(field(code));
    }
}

/// Returns the name of the field that a line defines.
fn field(code: &str) -> Option<&str> {
    let code = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => code,
    };
    let (name, rest) = code.split_once(':')?;
    (is_identifier(name) && !rest.starts_with(':')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "\
pub(crate) use inner::{Exported,
    Later};
macro_rules! table { () => {} }
/// `fn gone` was here: struct Gone.
pub struct Thing<T> {
    pub(crate) field_a: T,
    field_b: u8,
}
impl<T: Copy>
    Thing<T>
{
    pub const fn make() {}
}
pub enum Choice { One, Two }
";

    fn lines(page: &str) -> Vec<usize> {
        let tree = Tree::of(&[
            ("docs/internals/a.md", page),
            ("docs/b.md", "`Thing::gone`"),
            ("crates/store/src/durable/part.rs", CODE),
            (
                "crates/store/src/other.rs",
                "impl Other { fn elsewhere() {} }",
            ),
        ]);
        let found = check(&tree);
        found.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn names_that_exist_are_left_alone() {
        for name in [
            "Thing::make",
            "Thing::make()",
            "Thing::field_a",
            "Thing::field_b",
            "Choice::Two",
            "Other::elsewhere",
            "part::Thing",
            "store::durable::part::Thing::make",
            "part::table!",
            "durable::Exported",
            "store::Later",
            "std::mem::swap",
            "crate::part::Choice",
        ] {
            assert_eq!(lines(&format!("text `{name}` text")), [0; 0], "{name}");
        }
    }

    #[test]
    fn names_that_are_gone_are_found() {
        for name in [
            "Thing::gone",
            "Thing::elsewhere",
            "Choice::Three",
            "Gone::make",
            "part::gone",
            "other::Thing",
            "store::gone::Thing",
            "durable::part::gone(a, b)",
        ] {
            assert_eq!(lines(&format!("\ntext `{name}` text")), [2], "{name}");
        }
    }

    #[test]
    fn names_of_files_are_looked_for_at_the_end_of_paths() {
        assert_eq!(
            lines("`part.rs` `durable/part.rs` `store/src/other.rs`"),
            [0; 0]
        );
        assert_eq!(lines("`art.rs`\n`other/part.rs`\n`.rs` `a b.rs`"), [1, 2]);
    }

    #[test]
    fn only_paths_in_backticks_are_looked_at() {
        let page = "Thing::gone `http2/a.rs::gone` `cargo test a::b` `Thing::…`\n\
                    ```text\n`Thing::gone`\n```\n`a` Thing::gone `b`";
        assert_eq!(lines(page), [0; 0]);
    }
}
