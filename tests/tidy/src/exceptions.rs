//! The violations that stand today: how many of each check in each file. They may only become
//! fewer.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::changes::ChangedLines;
use crate::violation::{CHECKS, Violation};

/// A check and a file.
type Key = (String, String);

/// How many violations are allowed, and why.
#[derive(Clone, Debug, PartialEq)]
struct Allowance {
    count: usize,
    reason: String,
}

/// The list of `exceptions.txt`.
#[derive(Debug, Default, PartialEq)]
pub struct Exceptions {
    allowances: BTreeMap<Key, Allowance>,
}

const FIRST_REASON: &str = "to be mended";

impl Exceptions {
    /// Reads the list: a line is a check, a file, a number and the reason.
    pub fn parse(text: &str) -> Result<Exceptions, String> {
        let mut exceptions = Exceptions::default();
        for (index, line) in text.lines().enumerate() {
            if is_remark(line) {
                continue;
            }
            let (key, allowance) = parse_line(line)
                .ok_or_else(|| format!("{}: a line is: check file count reason", index + 1))?;
            if exceptions.allowances.insert(key, allowance).is_some() {
                return Err(format!(
                    "{}: this check and file stand here twice",
                    index + 1
                ));
            }
        }
        Ok(exceptions)
    }

    /// Returns the list that allows just these violations.
    pub fn of(violations: &[Violation]) -> Exceptions {
        let counts = counts(violations).into_iter();
        let allowances = counts.map(|(key, count)| {
            let reason = FIRST_REASON.to_owned();
            (key, Allowance { count, reason })
        });
        Exceptions {
            allowances: allowances.collect(),
        }
    }

    /// Returns the list as text.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for (key, allowance) in &self.allowances {
            write_line(&mut text, key, allowance);
        }
        text
    }

    /// Returns the text of the list with each number lowered to what is found. Lines for which
    /// nothing is found are removed; remarks and reasons stay.
    pub fn renew(&self, text: &str, violations: &[Violation]) -> String {
        let found = counts(violations);
        let mut renewed = String::new();
        for line in text.lines() {
            match parse_line(line).filter(|_| !is_remark(line)) {
                None => renewed.extend([line, "\n"]),
                Some((key, mut allowance)) => {
                    let count = found.get(&key).copied().unwrap_or(0);
                    allowance.count = allowance.count.min(count);
                    if count > 0 {
                        write_line(&mut renewed, &key, &allowance);
                    }
                }
            }
        }
        renewed
    }

    /// Returns what differs from the list. A file with more violations than allowed is reported by
    /// those on changed lines; if there are none, or if none are allowed, by all, up to a bound. A
    /// file with fewer is reported too.
    pub fn compare(&self, violations: &[Violation], changed: &ChangedLines) -> Vec<String> {
        let mut files: BTreeMap<Key, Vec<&Violation>> = BTreeMap::new();
        for violation in violations {
            files.entry(key(violation)).or_default().push(violation);
        }
        let mut failures = Vec::new();
        for (key, found) in &files {
            let allowed = self.allowances.get(key).map_or(0, |a| a.count);
            if found.len() > allowed {
                failures.extend(excess(key, found, allowed, changed));
            }
        }
        for (key, allowance) in &self.allowances {
            let count = files.get(key).map_or(0, Vec::len);
            if count < allowance.count {
                let ((check, file), allowed) = (key, allowance.count);
                failures.push(format!(
                    "{file}:1: [{check}] {count} found, {allowed} allowed: run script/tidy --renew"
                ));
            }
        }
        failures
    }
}

/// The violations that are printed of a file with more than allowed.
const MAX_PRINTED: usize = 10;

fn excess(
    (check, file): &Key,
    found: &[&Violation],
    allowed: usize,
    changed: &ChangedLines,
) -> Vec<String> {
    let is_changed = |violation: &&Violation| changed.contains(&violation.file, violation.line);
    let mut shown: Vec<&Violation> = found.iter().copied().filter(is_changed).collect();
    if shown.is_empty() || allowed == 0 {
        shown = found.to_vec();
    }
    let printed = shown.iter().take(MAX_PRINTED);
    let mut lines: Vec<String> = printed.map(|violation| violation.to_string()).collect();
    if allowed > 0 || shown.len() > MAX_PRINTED {
        let count = found.len();
        lines.push(format!(
            "{file}:1: [{check}] {count} found, {allowed} allowed; all of them: script/tidy --list"
        ));
    }
    lines
}

fn is_remark(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

fn parse_line(line: &str) -> Option<(Key, Allowance)> {
    let mut words = line.split_whitespace();
    let (check, file) = (words.next()?, words.next()?);
    let count = words.next()?.parse().ok()?;
    let reason = words.collect::<Vec<_>>().join(" ");
    let is_known = CHECKS.contains(&check) && !reason.is_empty();
    is_known.then(|| {
        (
            (check.to_owned(), file.to_owned()),
            Allowance { count, reason },
        )
    })
}

fn write_line(text: &mut String, (check, file): &Key, allowance: &Allowance) {
    let Allowance { count, reason } = allowance;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{check} {file} {count} {reason}");
}

fn key(violation: &Violation) -> Key {
    (violation.check.to_owned(), violation.file.clone())
}

fn counts(violations: &[Violation]) -> BTreeMap<Key, usize> {
    let mut counts = BTreeMap::new();
    for violation in violations {
        *counts.entry(key(violation)).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# remark\nwidth a.rs 2 because\n\nphrases b.rs 1 to be mended\n";

    fn violations(counts: &[(&'static str, &str, usize)]) -> Vec<Violation> {
        let all = counts.iter().flat_map(|&(check, file, count)| {
            (1..=count).map(move |line| Violation::new(check, file, line, "wrong".into()))
        });
        all.collect()
    }

    fn compare(counts: &[(&'static str, &str, usize)]) -> Vec<String> {
        let list = Exceptions::parse(LIST).unwrap();
        list.compare(&violations(counts), &ChangedLines::default())
    }

    #[test]
    fn what_is_listed_is_allowed() {
        assert_eq!(
            compare(&[("width", "a.rs", 2), ("phrases", "b.rs", 1)]),
            [""; 0]
        );
    }

    #[test]
    fn more_than_listed_is_reported_line_by_line() {
        let found = compare(&[("width", "a.rs", 3), ("phrases", "b.rs", 1)]);
        assert_eq!(found.len(), 4);
        assert_eq!(found[0], "a.rs:1: [width] wrong");
        assert!(found[3].starts_with("a.rs:1: [width] 3 found, 2 allowed;"));
        let found = compare(&[
            ("width", "a.rs", 2),
            ("phrases", "b.rs", 1),
            ("files", "a.rs", 1),
        ]);
        assert_eq!(found, ["a.rs:1: [files] wrong"]);
    }

    #[test]
    fn changed_lines_are_reported_alone() {
        let found = violations(&[("width", "a.rs", 3), ("phrases", "b.rs", 1)]);
        let changed = ChangedLines::parse("+++ b/a.rs\n@@ -1,0 +3 @@\n+x\n");
        let failures = Exceptions::parse(LIST).unwrap().compare(&found, &changed);
        assert_eq!(failures.len(), 2);
        assert_eq!(failures[0], "a.rs:3: [width] wrong");
    }

    #[test]
    fn the_report_of_a_file_is_bounded() {
        let found = compare(&[
            ("width", "a.rs", 2),
            ("phrases", "b.rs", 1),
            ("files", "a.rs", 99),
        ]);
        assert_eq!(found.len(), MAX_PRINTED + 1);
    }

    #[test]
    fn fewer_than_listed_is_reported() {
        let found = compare(&[("width", "a.rs", 1)]);
        assert_eq!(found.len(), 2);
        assert!(
            found
                .iter()
                .all(|line| line.contains("script/tidy --renew"))
        );
    }

    #[test]
    fn a_renewal_lowers_numbers_and_raises_none() {
        let list = Exceptions::parse(LIST).unwrap();
        let found = violations(&[("width", "a.rs", 1), ("width", "c.rs", 1)]);
        assert_eq!(
            list.renew(LIST, &found),
            "# remark\nwidth a.rs 1 because\n\n"
        );
        let found = violations(&[("width", "a.rs", 9), ("phrases", "b.rs", 1)]);
        assert_eq!(list.renew(LIST, &found), LIST);
    }

    #[test]
    fn counts_can_be_read_again() {
        let found = violations(&[("width", "a.rs", 1), ("files", "c.rs", 1)]);
        let list = Exceptions::of(&found);
        assert_eq!(Exceptions::parse(&list.lines()).unwrap(), list);
        assert_eq!(list.compare(&found, &ChangedLines::default()), [""; 0]);
    }

    #[test]
    fn lines_that_cannot_be_read_are_errors() {
        for line in [
            "width a.rs 1",
            "width a.rs x why",
            "unknown a.rs 1 why",
            "width",
        ] {
            assert!(
                Exceptions::parse(line).unwrap_err().starts_with("1: "),
                "{line}"
            );
        }
        assert!(Exceptions::parse("width a 1 why\nwidth a 2 why").is_err());
    }
}
