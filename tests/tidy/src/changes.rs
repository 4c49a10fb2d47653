//! The lines that differ from the last commit.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// The changed lines of each file.
#[derive(Debug, Default)]
pub struct ChangedLines {
    files: HashMap<String, Vec<Range<usize>>>,
}

impl ChangedLines {
    /// Asks git. Without a commit to compare with, no line counts as changed.
    pub fn read(root: &Path) -> ChangedLines {
        let output = Command::new("git")
            .args(["diff", "--unified=0", "--no-color", "HEAD"])
            .current_dir(root)
            .output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        ChangedLines::parse(&String::from_utf8_lossy(&text))
    }

    /// Reads the headers of a diff without context.
    pub fn parse(diff: &str) -> ChangedLines {
        let mut changed = ChangedLines::default();
        let mut file = "";
        for line in diff.lines() {
            if let Some(name) = line.strip_prefix("+++ b/") {
                file = name;
            } else if let Some(range) = added(line) {
                let ranges = changed.files.entry(file.to_owned()).or_default();
                ranges.push(range);
            }
        }
        changed
    }

    /// Returns whether a line of a file is changed.
    pub fn contains(&self, file: &str, line: usize) -> bool {
        let ranges = self.files.get(file).map_or(&[][..], Vec::as_slice);
        ranges.iter().any(|range| range.contains(&line))
    }
}

/// Returns the new lines that the header of a hunk names: `@@ -1,2 +3,4 @@`.
fn added(header: &str) -> Option<Range<usize>> {
    let (_, range) = header.strip_prefix("@@ -")?.split_once(" +")?;
    let range = range.split(' ').next()?;
    let (start, count) = range.split_once(',').unwrap_or((range, "1"));
    let (start, count): (usize, usize) = (start.parse().ok()?, count.parse().ok()?);
    Some(start..start + count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_lines_of_each_hunk_are_changed() {
        let diff =
            "--- a/x.rs\n+++ b/x.rs\n@@ -1 +2 @@ fn f\n+y\n@@ -5,2 +7,3 @@\n@@ -9,2 +12,0 @@";
        let changed = ChangedLines::parse(diff);
        let lines: Vec<usize> = (0..20)
            .filter(|&line| changed.contains("x.rs", line))
            .collect();
        assert_eq!(lines, [2, 7, 8, 9]);
        assert!(!changed.contains("y.rs", 2));
    }
}
