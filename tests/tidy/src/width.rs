//! Lines of at most 100 columns.

use crate::source::Tree;
use crate::violation::Violation;

const MAX_COLUMNS: usize = 100;

/// Pages that a program writes, and copies of files that others write.
const GENERATED: [&str; 4] = [
    "docs/limits.md",
    "proto/grpc/",
    "tests/mutants/fixture/",
    "tests/transcripts/",
];

/// Returns the lines that are too long. In pages, tables and examples are exempt; everywhere, lines
/// with an address, which cannot be wrapped.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.with_extension(&["rs", "py", "md", "proto"]) {
        if GENERATED.iter().any(|start| path.starts_with(start)) {
            continue;
        }
        let is_page = path.ends_with(".md");
        let mut in_example = false;
        for (index, line) in text.lines().enumerate() {
            let start = line.trim_start();
            let is_fence = start.starts_with("```") || start.starts_with("~~~");
            in_example ^= is_page && is_fence;
            let is_table = start.trim_start_matches(['/', '!', ' ']).starts_with('|');
            let is_exempt = in_example || is_table || line.contains("://");
            let columns = line.chars().count();
            if columns > MAX_COLUMNS && !is_exempt {
                let message = format!("{columns} columns, more than {MAX_COLUMNS}: wrap it");
                found.push(Violation::new("width", path, index + 1, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let violations = check(&Tree::of(&[(path, text)]));
        violations.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_line_may_have_100_columns_and_not_101() {
        for path in ["a.rs", "a.py", "a.md", "a.proto"] {
            assert_eq!(lines(path, &"é".repeat(100)), [0; 0]);
            assert_eq!(lines(path, &format!("\n{}", "é".repeat(101))), [2]);
        }
    }

    #[test]
    fn tables_examples_and_addresses_are_exempt() {
        let long = "x".repeat(101);
        assert_eq!(lines("a.md", &format!("| {long} |")), [0; 0]);
        assert_eq!(lines("a.md", &format!("see https://{long}")), [0; 0]);
        assert_eq!(lines("a.md", &format!("```\n{long}\n```\n{long}")), [4]);
        assert_eq!(lines("a.rs", &format!("//! ```\n{long}")), [2]);
    }

    #[test]
    fn generated_pages_and_other_files_are_exempt() {
        assert_eq!(lines("docs/limits.md", &"x".repeat(101)), [0; 0]);
        assert_eq!(lines("Cargo.toml", &"x".repeat(101)), [0; 0]);
    }
}
