//! The two forms of an export. docs/export.md describes them for users.

mod binary;
mod jsonl;

use std::io::{BufRead, BufReader, Read, Write};

use api::keyvalue;

use self::binary::{BinaryReader, BinaryWriter};
use self::jsonl::{JsonlReader, JsonlWriter};
use crate::arguments::ExportFormat;
use crate::exit::Failure;
use crate::input::{BUFFER_BYTES, unreadable};

/// Of both forms. A reader refuses what is newer.
const FORMAT_VERSION: u32 = 1;

/// An entry that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportEntry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// 0: never.
    pub expires_at_ms: u64,
}

/// Writes an export.
pub enum ExportWriter<W> {
    Jsonl(JsonlWriter<W>),
    Binary(BinaryWriter<W>),
}

impl<W: Write> ExportWriter<W> {
    /// Writes what stands before the first entry.
    pub fn begin(format: ExportFormat, out: W) -> std::io::Result<ExportWriter<W>> {
        Ok(match format {
            ExportFormat::Jsonl => ExportWriter::Jsonl(JsonlWriter::begin(out)?),
            ExportFormat::Binary => ExportWriter::Binary(BinaryWriter::begin(out)?),
        })
    }

    pub fn entry(&mut self, entry: &keyvalue::Entry<'_>) -> std::io::Result<()> {
        match self {
            ExportWriter::Jsonl(writer) => writer.entry(entry),
            ExportWriter::Binary(writer) => writer.entry(entry),
        }
    }

    /// Writes what proves that the export is complete, and gives the output back.
    pub fn end(self) -> std::io::Result<W> {
        match self {
            ExportWriter::Jsonl(writer) => writer.end(),
            ExportWriter::Binary(writer) => writer.end(),
        }
    }
}

/// Reads an export of either form.
pub enum ExportReader<R> {
    Jsonl(JsonlReader<R>),
    Binary(BinaryReader<R>),
}

impl<R: Read> ExportReader<R> {
    /// Finds out which form it is.
    pub fn begin(source: R, name: &str) -> Result<ExportReader<R>, Failure> {
        let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
        let start = source
            .fill_buf()
            .map_err(|error| unreadable(name, &error))?;
        if start.first() == Some(&binary::MAGIC[0]) {
            BinaryReader::begin(source, name).map(ExportReader::Binary)
        } else {
            Ok(ExportReader::Jsonl(JsonlReader::new(source, name)))
        }
    }

    /// The next entry, with the number of its line or record; `None` at the end, if that is where
    /// it should be.
    pub fn next_entry(&mut self) -> Result<Option<(u64, ExportEntry)>, Failure> {
        match self {
            ExportReader::Jsonl(reader) => reader.next_entry(),
            ExportReader::Binary(reader) => reader.next_entry(),
        }
    }

    /// Whether the next entry may have to be waited for.
    pub fn may_wait(&self) -> bool {
        match self {
            ExportReader::Jsonl(reader) => reader.may_wait(),
            ExportReader::Binary(reader) => reader.may_wait(),
        }
    }

    /// What the numbers of the entries count.
    pub fn unit(&self) -> &'static str {
        match self {
            ExportReader::Jsonl(_) => "line",
            ExportReader::Binary(_) => "record",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<ExportEntry> {
        let entry = |key: &[u8], value: &[u8], expires_at_ms| ExportEntry {
            key: key.to_vec(),
            value: value.to_vec(),
            expires_at_ms,
        };
        vec![
            entry(b"", b"the empty key", 0),
            entry(b"a\nb", b"", 1_800_000_000_000),
            entry("grün".as_bytes(), &[0x00, 0xff, 0x80], u64::MAX),
            entry(&[0xfe; 65_535], &[7; 300_000], 0),
        ]
    }

    fn export(format: ExportFormat, entries: &[ExportEntry]) -> Vec<u8> {
        let mut writer = ExportWriter::begin(format, Vec::new()).expect("memory is writable");
        for (version, entry) in (1..).zip(entries) {
            let message = keyvalue::Entry {
                key: &entry.key,
                value: &entry.value,
                version,
                expires_at_ms: entry.expires_at_ms,
            };
            writer.entry(&message).expect("memory is writable");
        }
        writer.end().expect("memory is writable")
    }

    fn import(bytes: &[u8]) -> Result<Vec<ExportEntry>, Failure> {
        let mut reader = ExportReader::begin(bytes, "test")?;
        let mut entries = Vec::new();
        while let Some((_, entry)) = reader.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }

    #[test]
    fn what_was_written_is_read() {
        for format in [ExportFormat::Jsonl, ExportFormat::Binary] {
            for count in 0..=entries().len() {
                let entries = &entries()[..count];
                let bytes = export(format, entries);
                assert!(
                    import(&bytes).expect("valid") == entries,
                    "{format:?} {count}"
                );
            }
        }
    }

    /// Wherever it breaks off, the end is missed.
    #[test]
    fn no_part_passes_for_the_whole() {
        for format in [ExportFormat::Jsonl, ExportFormat::Binary] {
            let whole = export(format, &entries()[..3]);
            // Without its last line end, a text is whole all the same.
            let shortest_whole = whole.len() - usize::from(format == ExportFormat::Jsonl);
            for length in 1..shortest_whole {
                let error = import(&whole[..length]).expect_err("incomplete");
                let message = error.to_string();
                assert!(
                    message.starts_with("test"),
                    "{format:?} {length}: {message}"
                );
            }
            let more = [&whole[..], b"{}"].concat();
            assert!(import(&more).is_err(), "nothing may follow");
        }
    }

    #[test]
    fn every_changed_byte_of_the_binary_form_is_noticed() {
        let whole = export(ExportFormat::Binary, &entries()[..3]);
        for at in 0..whole.len() {
            for flip in [0x01, 0x80] {
                let mut changed = whole.clone();
                changed[at] ^= flip;
                assert!(import(&changed).is_err(), "byte {at}, {flip:#x}");
            }
        }
    }
}
