//! What is printed of a run.

use std::collections::BTreeSet;

use crate::sizes::Size;
use crate::type_names;
use crate::violation::{CHECKS, Violation};
use crate::workspace::Workspace;

/// Prints every violation.
pub fn list(violations: &[Violation]) {
    for violation in violations {
        println!("{violation}");
    }
}

/// Prints for each check how many violations stand in how many files.
pub fn summary(violations: &[Violation], failures: &[String]) {
    println!("{:<14} {:>10} {:>6}", "check", "violations", "files");
    for check in CHECKS {
        let found: Vec<&Violation> = violations.iter().filter(|v| v.check == check).collect();
        let files: BTreeSet<&str> = found.iter().map(|v| v.file.as_str()).collect();
        println!("{check:<14} {:>10} {:>6}", found.len(), files.len());
    }
    if failures.is_empty() {
        println!(
            "all of them are listed in tests/tidy/exceptions.txt, which may only become shorter"
        );
    }
    println!();
}

/// Prints the size of each crate, without tests, comments and blank lines.
pub fn crates(workspace: &Workspace) {
    let names = type_names::shared(workspace);
    println!(
        "{:<10} {:>7} {:>10} {:>6} {:>18}",
        "crate", "lines", "assertions", "types", "with shared names"
    );
    let row = |name: &str, size: Size, types: usize, shared: usize| {
        let Size { lines, assertions } = size;
        println!("{name:<10} {lines:>7} {assertions:>10} {types:>6} {shared:>18}");
    };
    let (mut total, mut all_types, mut all_shared) = (Size::default(), 0, 0);
    for (name, package) in workspace.crates() {
        let size = package.size();
        let (types, shared) = names.get(name).map_or((0, 0), |n| (n.types, n.shared));
        row(name, size, types, shared);
        total.lines += size.lines;
        total.assertions += size.assertions;
        all_types += types;
        all_shared += shared;
    }
    row("total", total, all_types, all_shared);
}
