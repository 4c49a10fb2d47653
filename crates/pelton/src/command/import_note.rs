//! How far an import from another server has come, in a file, so that it can go on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use net::Address;
use serde::{Deserialize, Serialize};

use crate::arguments::ImportArguments;
use crate::encoding::{decode_hex, encode_hex};
use crate::exit::Failure;
use crate::limits::{IMPORT_NOTE_BYTES, IMPORT_NOTE_MS};
use crate::output;

/// What the file has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImportNote {
    /// The address of the other server, and the index of its database.
    from: String,
    index: i32,
    /// The address of the server here, and the name of its database.
    to: String,
    database: String,
    /// The last key that was written, in hexadecimal digits; none if the other database has no
    /// order.
    last_key: Option<String>,
    /// Records written up to there.
    records: u64,
}

/// The file of a note.
#[derive(Debug)]
pub(super) struct NoteFile {
    path: PathBuf,
    note: ImportNote,
    last_key: Option<Vec<u8>>,
    written: Instant,
}

impl NoteFile {
    fn new(arguments: &ImportArguments, address: &Address) -> NoteFile {
        let (from, index) = (address.to_string(), arguments.index);
        let plain = |char: char| match char.is_ascii_alphanumeric() || "-.".contains(char) {
            true => char,
            false => '_',
        };
        let name: String = from.chars().map(plain).collect();
        let path = arguments
            .note
            .clone()
            .unwrap_or_else(|| format!("pelton-import-{name}-{index}.note").into());
        NoteFile {
            path,
            note: ImportNote {
                from,
                index,
                to: arguments.connection.address.to_string(),
                database: arguments.database.clone(),
                last_key: None,
                records: 0,
            },
            last_key: None,
            written: Instant::now(),
        }
    }

    /// Makes the file, before anything is written to the database.
    pub(super) fn begin(
        arguments: &ImportArguments,
        address: &Address,
    ) -> Result<NoteFile, Failure> {
        let mut file = NoteFile::new(arguments, address);
        file.write()?;
        Ok(file)
    }

    /// Returns the note of an import that has not come to its end, if there is one.
    ///
    /// # Errors
    /// If it cannot be read, or is that of another import.
    pub(super) fn find(
        arguments: &ImportArguments,
        address: &Address,
    ) -> Result<Option<NoteFile>, Failure> {
        let mut file = NoteFile::new(arguments, address);
        let path = file.path.display();
        let text = match read(&file.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Failure::Failed(format!(
                    "cannot read the note {path} of how far the import has come: {error}"
                )));
            }
        };
        let other = |what: &str| {
            Failure::Failed(format!(
                "{path} is {what}; nothing was written. Name another file with --note, or remove \
                 it to begin with an empty database"
            ))
        };
        let note: ImportNote =
            serde_json::from_str(&text).map_err(|_| other("no note of an import"))?;
        let is_same = ImportNote {
            last_key: None,
            records: 0,
            ..note.clone()
        } == file.note;
        if !is_same {
            let ImportNote {
                from, index, to, ..
            } = &note;
            let what = format!("the note of another import: from {from}, index {index}, to {to}");
            return Err(other(&what));
        }
        let last_key = note.last_key.as_deref();
        let last_key = last_key.map(|key| decode_hex(key.as_bytes()));
        file.last_key = match last_key {
            None => None,
            Some(key) => Some(key.ok_or_else(|| other("no note of an import"))?),
        };
        file.note = note;
        Ok(Some(file))
    }

    /// Returns the key behind which the import goes on.
    pub(super) fn last_key(&self) -> Option<Vec<u8>> {
        self.last_key.clone()
    }

    /// Returns how many records are written.
    pub(super) fn records(&self) -> u64 {
        self.note.records
    }

    /// Forgets how far the import has come.
    pub(super) fn begin_anew(&mut self) -> Result<(), Failure> {
        (self.last_key, self.note.records) = (None, 0);
        self.write()
    }

    /// Records with these keys are written.
    pub(super) fn advance(&mut self, keys: &[Box<[u8]>], is_ordered: bool) -> Result<(), Failure> {
        self.note.records += keys.len() as u64;
        if let Some(key) = keys.last().filter(|_| is_ordered) {
            self.last_key = Some(key.to_vec());
        }
        match self.written.elapsed() >= Duration::from_millis(IMPORT_NOTE_MS) {
            true => self.write(),
            false => Ok(()),
        }
    }

    /// Writes the file, and returns how far the import has come, in words.
    pub(super) fn how_far(&mut self, is_ordered: bool) -> Result<String, Failure> {
        self.write()?;
        let (written, path) = (output::entries(self.note.records), self.path.display());
        Ok(match is_ordered {
            true => format!(
                "{written} are written, as {path} notes; when the cause is removed, the same \
                 command goes on from there"
            ),
            false => format!(
                "{written} are written; when the cause is removed, the same command begins anew, \
                 as the records there have no order, and writes over them ({path} notes it)"
            ),
        })
    }

    /// Replaces the file as a whole: one that is half written would be none.
    fn write(&mut self) -> Result<(), Failure> {
        self.note.last_key = self.last_key.as_deref().map(encode_hex);
        self.written = Instant::now();
        let path = self.path.display();
        let failed = |error: io::Error| {
            Failure::Failed(format!(
                "cannot write the note {path} of how far the import has come: {error}; --note \
                 names another file"
            ))
        };
        let text = serde_json::to_string(&self.note).map_err(|error| failed(error.into()))?;
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        fs::write(&new, text + "\n").map_err(failed)?;
        fs::rename(&new, &self.path).map_err(failed)
    }

    /// Removes the file: the import has come to its end.
    pub(super) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            let path = self.path.display();
            output::note(format!("the note {path} could not be removed: {error}"));
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    use io::Read;
    let mut text = String::new();
    let file = fs::File::open(path)?;
    file.take(IMPORT_NOTE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
