//! The compact form.
//!
//! ```text
//! file   = magic, format version (u32), record*, end
//! record = length of the body (varint), body
//! body   = 1, version (varint), expiry in ms (varint), key length (varint), key, value
//! end    = length of the body (varint), 2, number of entries (varint),
//!          CRC32C of all bytes before it (u32)
//! ```
//!
//! Fixed numbers are little-endian, varints are those of protobuf.

use std::io::{self, BufRead, BufReader, Read, Write};

use api::keyvalue;
use protobuf::writer::varint;

use super::{ExportEntry, FORMAT_VERSION};
use crate::exit::Failure;
use crate::input::unreadable;

/// A first byte that no text begins with, and a line end that careless copying would change.
pub const MAGIC: [u8; 8] = *b"\x89PELTON\n";

const ENTRY: u8 = 1;
const END: u8 = 2;

/// The longest body: the largest entry that a server can store.
const BODY_BYTES_MAX: usize =
    1 + 10 + 10 + 3 + store::limits::KEY_BYTES + store::limits::VALUE_BYTES_MAX;

/// Bytes of a body that are believed in at once: memory for more is taken when they are really
/// there.
const TRUSTED_BYTES: usize = 1 << 20;

pub struct BinaryWriter<W> {
    out: W,
    checksum: u32,
    entries: u64,
    record: Vec<u8>,
}

impl<W: Write> BinaryWriter<W> {
    pub fn begin(out: W) -> io::Result<BinaryWriter<W>> {
        let mut writer = BinaryWriter {
            out,
            checksum: 0,
            entries: 0,
            record: Vec::new(),
        };
        writer.write(&MAGIC)?;
        writer.write(&FORMAT_VERSION.to_le_bytes())?;
        Ok(writer)
    }

    pub fn entry(&mut self, entry: &keyvalue::Entry<'_>) -> io::Result<()> {
        let mut head = vec![ENTRY];
        varint(&mut head, entry.version);
        varint(&mut head, entry.expires_at_ms);
        varint(&mut head, entry.key.len() as u64);
        let body_bytes = head.len() + entry.key.len() + entry.value.len();
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        varint(&mut record, body_bytes as u64);
        record.extend_from_slice(&head);
        record.extend_from_slice(entry.key);
        record.extend_from_slice(entry.value);
        self.entries += 1;
        let written = self.write(&record);
        self.record = record;
        written
    }

    pub fn end(mut self) -> io::Result<W> {
        let mut body = vec![END];
        varint(&mut body, self.entries);
        let mut record = Vec::new();
        varint(&mut record, body.len() as u64 + 4);
        record.extend_from_slice(&body);
        self.write(&record)?;
        let checksum = self.checksum.to_le_bytes();
        self.out.write_all(&checksum)?;
        Ok(self.out)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.out.write_all(bytes)
    }
}

pub struct BinaryReader<R> {
    source: BufReader<R>,
    name: String,
    checksum: u32,
    entries: u64,
    body: Vec<u8>,
}

impl<R: Read> BinaryReader<R> {
    pub fn begin(source: BufReader<R>, name: &str) -> Result<BinaryReader<R>, Failure> {
        let mut reader = BinaryReader {
            source,
            name: name.into(),
            checksum: 0,
            entries: 0,
            body: Vec::new(),
        };
        let magic: [u8; 8] = reader.array()?;
        if magic != MAGIC {
            return Err(reader.wrong("it is no export: neither of the two forms begins like this"));
        }
        let version = u32::from_le_bytes(reader.array()?);
        if version != FORMAT_VERSION {
            return Err(reader.wrong(&format!(
                "it has format version {version}, this program knows {FORMAT_VERSION}; a newer \
                 pelton may read it"
            )));
        }
        Ok(reader)
    }

    pub fn may_wait(&self) -> bool {
        self.source.buffer().is_empty()
    }

    /// The next entry, with its number from 1 on.
    pub fn next_entry(&mut self) -> Result<Option<(u64, ExportEntry)>, Failure> {
        let body_bytes = self.varint()?;
        let Ok(body_bytes @ 1..=BODY_BYTES_MAX) = usize::try_from(body_bytes) else {
            return Err(self.damaged());
        };
        match self.array()? {
            [ENTRY] => self.entry(body_bytes - 1).map(Some),
            [END] => self.end(body_bytes - 1).map(|()| None),
            _ => Err(self.damaged()),
        }
    }

    fn entry(&mut self, bytes: usize) -> Result<(u64, ExportEntry), Failure> {
        self.read_body(bytes)?;
        let body = std::mem::take(&mut self.body);
        let entry = decode_entry(&body);
        self.body = body;
        self.entries += 1;
        entry
            .map(|entry| (self.entries, entry))
            .ok_or_else(|| self.damaged())
    }

    fn end(&mut self, bytes: usize) -> Result<(), Failure> {
        let Some(bytes @ 1..=10) = bytes.checked_sub(4) else {
            return Err(self.damaged());
        };
        self.read_body(bytes)?;
        let mut rest = &self.body[..];
        if take_varint(&mut rest) != Some(self.entries) || !rest.is_empty() {
            return Err(self.damaged());
        }
        let expected = self.checksum;
        if u32::from_le_bytes(self.array()?) != expected {
            return Err(self.damaged());
        }
        match self.source.fill_buf() {
            Ok([]) => Ok(()),
            Ok(_) => {
                Err(self.wrong("something follows after its end; are these two files in one?"))
            }
            Err(error) => Err(unreadable(&self.name, &error)),
        }
    }

    fn read_body(&mut self, bytes: usize) -> Result<(), Failure> {
        self.body.clear();
        self.body.reserve(bytes.min(TRUSTED_BYTES));
        let read = (&mut self.source)
            .take(bytes as u64)
            .read_to_end(&mut self.body)
            .map_err(|error| unreadable(&self.name, &error))?;
        if read < bytes {
            return Err(self.broken_off());
        }
        self.checksum = crc32c::crc32c_append(self.checksum, &self.body);
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, Failure> {
        let mut bytes = Vec::with_capacity(10);
        loop {
            let [byte] = self.array()?;
            bytes.push(byte);
            if byte < 0x80 || bytes.len() == 10 {
                return take_varint(&mut &bytes[..]).ok_or_else(|| self.damaged());
            }
        }
    }

    fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], Failure> {
        let mut bytes = [0; COUNT];
        match self.source.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.broken_off());
            }
            Err(error) => return Err(unreadable(&self.name, &error)),
        }
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes);
        Ok(bytes)
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::Failed(format!("{}: {what}", self.name))
    }

    fn damaged(&self) -> Failure {
        self.wrong(&format!(
            "it is damaged at or before record {}: its bytes are not those that were written",
            self.entries + 1
        ))
    }

    fn broken_off(&self) -> Failure {
        self.wrong(&format!(
            "it breaks off after record {}: it is only a part of an export",
            self.entries
        ))
    }
}

fn decode_entry(mut body: &[u8]) -> Option<ExportEntry> {
    let _version = take_varint(&mut body)?;
    let expires_at_ms = take_varint(&mut body)?;
    let key_bytes = usize::try_from(take_varint(&mut body)?).ok()?;
    let (key, value) = body.split_at_checked(key_bytes)?;
    Some(ExportEntry {
        key: key.to_vec(),
        value: value.to_vec(),
        expires_at_ms,
    })
}

/// A varint from the front of `bytes`, `None` if there is none of at most 64 bits.
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..10 {
        let byte = *bytes.get(at)?;
        if at == 9 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some(number);
        }
    }
    None
}
