//! One change of the program, and where it stands.

use std::ops::Range;
use std::path::PathBuf;

/// What a mutant changes in the text of its file.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// The function returns this at once. The mutant's range is empty and stands behind the
    /// opening brace of the body.
    Return(String),
    /// The expression in the mutant's range is replaced by this one.
    Replace(String),
    /// The match arm never matches. The mutant's range is empty and stands behind the pattern.
    NoMatch,
}

/// One change of the program, which a test should notice.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The file, relative to the root of the workspace.
    pub file: PathBuf,
    /// The line and the column, from 1, of what is changed.
    pub line: usize,
    pub column: usize,
    /// The function around it, with its type: `Window::grow`.
    pub function: String,
    /// What is changed: "replace < with <=".
    pub description: String,
    /// The bytes of the file that are replaced; empty for what is only inserted.
    pub range: Range<usize>,
    pub edit: Edit,
}

impl Mutant {
    /// Returns what names the mutant in reports and for `--retry`.
    pub fn name(&self) -> String {
        format!(
            "{}:{}:{}: {} in {}",
            self.file.display(),
            self.line,
            self.column,
            self.description,
            self.function
        )
    }
}
