//! The form in JSON lines: a head, one line for each entry, an end.
//!
//! A file without a head is read too, as the lines of `pelton scan --output json` or of another
//! program; there is no end to be missed then.

use std::io::{self, BufReader, Read, Write};

use api::keyvalue;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ExportEntry, FORMAT_VERSION};
use crate::encoding::insert_bytes;
use crate::exit::Failure;
use crate::input::InputLines;
use crate::json::{JsonEncoding, decode};
use crate::json_text::read_line;
use crate::output::object;

const FORMAT_NAME: &str = "pelton-export";

pub struct JsonlWriter<W> {
    out: W,
    entries: u64,
}

impl<W: Write> JsonlWriter<W> {
    pub fn begin(out: W) -> io::Result<JsonlWriter<W>> {
        let mut writer = JsonlWriter { out, entries: 0 };
        writer.line(object([
            ("format", FORMAT_NAME.into()),
            ("format_version", FORMAT_VERSION.into()),
        ]))?;
        Ok(writer)
    }

    pub fn entry(&mut self, entry: &keyvalue::Entry<'_>) -> io::Result<()> {
        let mut fields = Map::new();
        insert_bytes(&mut fields, "key", entry.key);
        insert_bytes(&mut fields, "value", entry.value);
        fields.insert("version".into(), entry.version.into());
        if entry.expires_at_ms != 0 {
            fields.insert("expires_at_ms".into(), entry.expires_at_ms.into());
        }
        self.entries += 1;
        self.line(fields)
    }

    pub fn end(mut self) -> io::Result<W> {
        let entries = self.entries.into();
        self.line(object([("end", true.into()), ("entries", entries)]))?;
        Ok(self.out)
    }

    fn line(&mut self, fields: Map<String, Value>) -> io::Result<()> {
        writeln!(self.out, "{}", Value::Object(fields))
    }
}

/// What a line may say. Which fields are there tells what the line is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object that describes an entry")]
struct LineJson {
    format: Option<String>,
    format_version: Option<u32>,
    end: Option<bool>,
    entries: Option<u64>,
    key: Option<String>,
    #[serde(default)]
    key_encoding: JsonEncoding,
    value: Option<String>,
    #[serde(default)]
    value_encoding: JsonEncoding,
    /// Read over: an import makes new versions.
    #[serde(rename = "version")]
    _version: Option<u64>,
    expires_at_ms: Option<u64>,
}

pub struct JsonlReader<R> {
    lines: InputLines<R>,
    name: String,
    entries: u64,
    has_head: bool,
}

impl<R: Read> JsonlReader<R> {
    pub fn new(source: BufReader<R>, name: &str) -> JsonlReader<R> {
        JsonlReader {
            lines: InputLines::buffered(source, name),
            name: name.into(),
            entries: 0,
            has_head: false,
        }
    }

    pub fn may_wait(&self) -> bool {
        self.lines.may_wait()
    }

    /// The next entry, with the number of its line.
    pub fn next_entry(&mut self) -> Result<Option<(u64, ExportEntry)>, Failure> {
        loop {
            let Some((number, line)) = self.lines.next_line()? else {
                return self.no_more_lines();
            };
            let wrong =
                |error: String| Failure::Usage(format!("{}, line {number}: {error}", self.name));
            let line: LineJson = read_line(line).map_err(wrong)?;
            if let Some(format) = &line.format {
                check_head(format, line.format_version).map_err(wrong)?;
                if self.has_head || self.entries > 0 {
                    return Err(wrong("a head stands in the first line only".into()));
                }
                self.has_head = true;
            } else if line.end == Some(true) {
                let entries = self.entries;
                if line.entries != Some(entries) {
                    return Err(wrong(format!(
                        "the export ends here with {entries} entries, and should have {}",
                        line.entries.unwrap_or(0)
                    )));
                }
                return self.end();
            } else {
                let entry = entry(line).map_err(wrong)?;
                self.entries += 1;
                return Ok(Some((number, entry)));
            }
        }
    }

    fn no_more_lines(&self) -> Result<Option<(u64, ExportEntry)>, Failure> {
        if self.has_head {
            return Err(Failure::Failed(format!(
                "{}: it breaks off after {} entries: it is only a part of an export",
                self.name, self.entries
            )));
        }
        Ok(None)
    }

    fn end(&mut self) -> Result<Option<(u64, ExportEntry)>, Failure> {
        match self.lines.next_line()? {
            None => Ok(None),
            Some((number, _)) => Err(Failure::Failed(format!(
                "{}, line {number}: something follows after the end; are these two files in one?",
                self.name
            ))),
        }
    }
}

fn check_head(format: &str, version: Option<u32>) -> Result<(), String> {
    if format != FORMAT_NAME {
        return Err(format!("the format is `{format}`, not `{FORMAT_NAME}`"));
    }
    match version {
        Some(FORMAT_VERSION) => Ok(()),
        other => Err(format!(
            "the format version is {}, this program knows {FORMAT_VERSION}; a newer pelton may \
             read it",
            other.unwrap_or(0)
        )),
    }
}

fn entry(line: LineJson) -> Result<ExportEntry, String> {
    let key = line.key.ok_or("`key` is missing")?;
    let value = line.value.ok_or("`value` is missing")?;
    Ok(ExportEntry {
        key: decode("key", key, line.key_encoding)?,
        value: decode("value", value, line.value_encoding)?,
        expires_at_ms: line.expires_at_ms.unwrap_or(0),
    })
}
