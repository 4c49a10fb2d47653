//! The table of what the protocols demand, and the tests that prove it.

use crate::source::Tree;
use crate::violation::Violation;

const CHECK: &str = "musts";

const PAGE: &str = "docs/internals/rfc-musts.md";

/// How many cases each section of h2spec has.
const H2SPEC: &str = include_str!("../h2spec-cases.txt");

/// Returns the rows whose test does not exist, or that have none. The last cell of a row names the
/// tests: `` `file.rs::function` ``, the same of Python, `` `h2spec http2/6.9.1/2` ``, or `none`.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let lines = tree.text(PAGE).unwrap_or_default().lines();
    for (index, line) in lines.enumerate() {
        let Some(row) = line
            .strip_prefix('|')
            .and_then(|line| line.trim_end().strip_suffix('|'))
        else {
            continue;
        };
        let mut cells = row.rsplit('|').map(str::trim);
        let tests = cells.next().unwrap_or_default();
        if tests == "test" || tests.starts_with("---") {
            continue;
        }
        let mut add = |message| found.push(Violation::new(CHECK, PAGE, index + 1, message));
        if tests == "none" {
            add(format!(
                "no test proves: {}",
                cells.next().unwrap_or_default()
            ));
            continue;
        }
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            add("the last cell names no test; write `none`".to_owned());
        }
        names
            .iter()
            .filter_map(|name| missing(tree, name))
            .for_each(add);
    }
    found
}

fn missing(tree: &Tree, name: &str) -> Option<String> {
    if let Some(case) = name.strip_prefix("h2spec ") {
        return (!is_case(case)).then(|| format!("h2spec has no case `{case}`"));
    }
    let Some((file, function)) = name.rsplit_once("::") else {
        return Some(format!("`{name}` is not of the form file.rs::function"));
    };
    let Some(text) = tree.text(file) else {
        return Some(format!("there is no file `{file}`"));
    };
    let keyword = if file.ends_with(".py") { "def" } else { "fn" };
    let head = format!("{keyword} {function}(");
    let exists = text
        .lines()
        .any(|line| line.trim_start().starts_with(&head));
    (!exists).then(|| format!("`{file}` has no test `{function}`"))
}

fn is_case(case: &str) -> bool {
    let Some((section, number)) = case.rsplit_once('/') else {
        return false;
    };
    let sections = H2SPEC.lines().filter_map(|line| line.split_once(' '));
    let count = sections
        .filter(|(name, _)| *name == section)
        .map(|(_, count)| count);
    let count = count
        .filter_map(|count| count.trim().parse::<u32>().ok())
        .next();
    let number = number.parse::<u32>().unwrap_or(0);
    count.is_some_and(|count| (1..=count).contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cell: &str) -> Vec<String> {
        let page = format!("| section | what | test |\n|---|---|---|\n| 1 | a rule | {cell} |\n");
        let test = (
            "crates/wire/tests/a.rs",
            "#[test]\nfn rule() {}\n// fn gone()",
        );
        let python = (
            "tests/e2e/test_a.py",
            "def test_rule(server):\n# def test_gone()",
        );
        let violations = check(&Tree::of(&[(PAGE, &page), test, python]));
        violations.iter().map(Violation::to_string).collect()
    }

    #[test]
    fn tests_and_cases_that_exist_are_accepted() {
        assert_eq!(found("`crates/wire/tests/a.rs::rule`"), [""; 0]);
        assert_eq!(
            found("`crates/wire/tests/a.rs::rule`, `h2spec http2/6.9.1/2`"),
            [""; 0]
        );
        assert_eq!(found("`tests/e2e/test_a.py::test_rule`"), [""; 0]);
    }

    #[test]
    fn a_row_without_a_test_is_a_violation() {
        let expected = format!("{PAGE}:3: [musts] no test proves: a rule");
        assert_eq!(found("none"), [expected]);
        assert_eq!(found("").len(), 1);
    }

    #[test]
    fn a_test_that_does_not_exist_is_a_violation() {
        assert_eq!(found("`crates/wire/tests/a.rs::gone`").len(), 1);
        assert_eq!(found("`crates/wire/tests/a.rs::rul`").len(), 1);
        assert_eq!(found("`crates/wire/tests/b.rs::rule`").len(), 1);
        assert_eq!(found("`tests/e2e/test_a.py::test_gone`").len(), 1);
        assert_eq!(found("`rule`").len(), 1);
    }

    #[test]
    fn a_case_that_does_not_exist_is_a_violation() {
        assert_eq!(found("`h2spec http2/6.9.1/99`").len(), 1);
        assert_eq!(found("`h2spec http2/99/1`").len(), 1);
        assert_eq!(found("`h2spec http2`").len(), 1);
    }
}
