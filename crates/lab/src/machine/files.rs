//! Files of the kernel, or those that a test has recorded.

use std::collections::BTreeMap;
use std::fs;

/// Where the kernel says what the machine is.
pub trait SystemFiles {
    /// The text of a file; `None`: there is none, or it cannot be read.
    fn read(&self, path: &str) -> Option<String>;

    /// The last part of where a link leads.
    fn link(&self, path: &str) -> Option<String>;
}

/// Those of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelFiles;

impl SystemFiles for KernelFiles {
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(path).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }
}

/// Files by their paths; links are files with the name where they lead.
#[derive(Clone, Debug, Default)]
pub struct RecordedFiles(BTreeMap<String, String>);

impl RecordedFiles {
    /// These files.
    pub fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> RecordedFiles {
        let files = files.into_iter();
        RecordedFiles(
            files
                .map(|(path, text)| (path.to_owned(), text.to_owned()))
                .collect(),
        )
    }
}

impl SystemFiles for RecordedFiles {
    fn read(&self, path: &str) -> Option<String> {
        self.0.get(path).cloned()
    }

    fn link(&self, path: &str) -> Option<String> {
        self.read(path)
    }
}
