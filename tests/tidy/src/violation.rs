//! One violation of a rule.

use std::fmt;

/// A place that breaks a rule of a check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The name of the check.
    pub check: &'static str,
    /// The file, relative to the root of the workspace.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Violation {
    /// Makes a violation at a line of a file.
    pub fn new(check: &'static str, file: &str, line: usize, message: String) -> Violation {
        let file = file.to_owned();
        Violation {
            check,
            file,
            line,
            message,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation {
            check,
            file,
            line,
            message,
        } = self;
        write!(f, "{file}:{line}: [{check}] {message}")
    }
}

/// The names of all checks, in the order of the summary.
pub const CHECKS: [&str; 11] = [
    "circles",
    "layers",
    "service-names",
    "phrases",
    "type-names",
    "width",
    "functions",
    "files",
    "missing-docs",
    "musts",
    "page-names",
];
