//! The lint `missing_docs` has to be on in each crate.

use crate::source::Tree;
use crate::violation::Violation;

const CHECK: &str = "missing-docs";

/// Returns the crates whose manifest does not turn the lint on, and the files that turn it off.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let workspace = tree.text("Cargo.toml").unwrap_or_default();
    let mut found = Vec::new();
    for krate in tree.crates() {
        let manifest = format!("crates/{krate}/Cargo.toml");
        let text = tree.text(&manifest).unwrap_or_default();
        let inherits = has_entry(text, "[lints]", "workspace", &["true"])
            && is_on(workspace, "[workspace.lints.rust]");
        if !inherits && !is_on(text, "[lints.rust]") {
            let message = format!("the lint `missing_docs` is not on in `{krate}`");
            found.push(Violation::new(CHECK, &manifest, 1, message));
        }
    }
    for (path, text) in tree.with_extension(&["rs"]) {
        if path.starts_with("crates/") && path.contains("/src/") {
            found.extend(allowances(path, text));
        }
    }
    found
}

fn is_on(manifest: &str, section: &str) -> bool {
    let levels = ["\"warn\"", "\"deny\"", "\"forbid\""];
    has_entry(manifest, section, "missing_docs", &levels)
}

fn has_entry(manifest: &str, section: &str, key: &str, values: &[&str]) -> bool {
    let lines = manifest.lines().map(str::trim);
    let inside = lines.skip_while(|line| *line != section).skip(1);
    let mut entries = inside.take_while(|line| !line.starts_with('['));
    entries.any(|line| {
        let entry = line.split_once('=');
        entry.is_some_and(|(name, value)| name.trim() == key && values.contains(&value.trim()))
    })
}

fn allowances(path: &str, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut in_allowance = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        in_allowance |= line.starts_with("#[allow(") || line.starts_with("#![allow(");
        if in_allowance && line.contains("missing_docs") {
            let message = "the lint `missing_docs` is turned off here".to_owned();
            found.push(Violation::new(CHECK, path, index + 1, message));
        }
        in_allowance &= !line.contains(']');
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: &str = "[workspace.lints.rust]\nmissing_docs = \"warn\"\n";

    fn count(workspace: &str, manifest: &str, library: &str) -> usize {
        let files = [
            ("Cargo.toml", workspace),
            ("crates/a/Cargo.toml", manifest),
            ("crates/a/src/lib.rs", library),
        ];
        check(&Tree::of(&files)).len()
    }

    #[test]
    fn the_lint_is_on_by_the_workspace_or_by_the_crate() {
        assert_eq!(count(ON, "[lints]\nworkspace = true\n", ""), 0);
        assert_eq!(count("", "[lints.rust]\nmissing_docs = \"deny\"\n", ""), 0);
    }

    #[test]
    fn a_crate_without_the_lint_is_a_violation() {
        assert_eq!(count(ON, "[package]\nname = \"a\"\n", ""), 1);
        assert_eq!(count("", "[lints]\nworkspace = true\n", ""), 1);
        assert_eq!(count(ON, "[lints.rust]\nmissing_docs = \"allow\"\n", ""), 1);
    }

    #[test]
    fn turning_the_lint_off_is_a_violation() {
        let manifest = "[lints]\nworkspace = true\n";
        assert_eq!(count(ON, manifest, "#![allow(missing_docs)]"), 1);
        assert_eq!(
            count(ON, manifest, "#[allow(\n    missing_docs,\n)]\nfn f() {}"),
            1
        );
        assert_eq!(
            count(ON, manifest, "#[allow(dead_code)]\n// missing_docs"),
            0
        );
    }
}
