//! The manifest: what a backup consists of, and that it is complete.
//!
//! A text of lines, each a word and its values; the last one holds the CRC32C of all lines before
//! it:
//!
//! ```text
//! pelton-backup
//! format 2
//! server pelton 0.1.0
//! history-id 8d3c5f0a1b2c3d4e
//! group 4711
//! sequence 123456
//! wall-ms 1700000000000
//! databases 3
//! volatile-databases 1
//! file 00000000000000123000.snapshot 1048576 89abcdef
//! file 00000000000000000001.log 4096 01234567
//! checksum 0badcafe
//! ```

use std::fmt::Write as _;
use std::io;
use std::str::FromStr;

use wal::Position;
use wal::disk::{Disk, write_whole};

use super::file_entry::FileEntry;
use super::{limits, trees};
use crate::durable::BACKUP_MANIFEST_NAME;

/// The name of the file, which is there when everything else is on the device.
pub const MANIFEST_NAME: &str = BACKUP_MANIFEST_NAME;

/// Its name while it is written.
pub(super) const MANIFEST_NEW_NAME: &str = "MANIFEST.new";

/// The version of the format that this code writes. The log may have changes of identities.
pub const FORMAT_VERSION: u32 = 2;

/// The first version, which has none. It is read.
const FORMAT_VERSION_1: u32 = 1;

const HEADING: &str = "pelton-backup";

/// What a backup consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Name and version of the server that made it.
    pub server: String,
    /// The public half of the id of the log that it was taken from.
    pub history_id: u64,
    /// Where that log was cut: every commit up to this one is in the backup, and none behind it.
    pub cut: Position,
    /// The log's clock at the cut, in milliseconds since 1970.
    pub wall_ms: u64,
    /// Databases that are in it with their content.
    pub databases: u64,
    /// Databases of which only the description is in it.
    pub volatile_databases: u64,
    /// Its files: the snapshot, then the log in order, then those of databases on disk.
    pub files: Vec<FileEntry>,
}

impl Manifest {
    /// Bytes of all files together, without the manifest.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub(super) fn encode(&self) -> String {
        self.encode_as(FORMAT_VERSION)
    }

    fn encode_as(&self, version: u32) -> String {
        let mut text = format!(
            "{HEADING}\nformat {version}\nserver {}\nhistory-id {:016x}\ngroup {}\nsequence \
             {}\nwall-ms {}\n\
             databases {}\nvolatile-databases {}\n",
            self.server,
            self.history_id,
            self.cut.group,
            self.cut.sequence,
            self.wall_ms,
            self.databases,
            self.volatile_databases,
        );
        for FileEntry {
            name,
            bytes,
            checksum,
        } in &self.files
        {
            writeln!(text, "file {name} {bytes} {checksum:08x}").expect("a String takes it");
        }
        let checksum = crc32c::crc32c(text.as_bytes());
        writeln!(text, "checksum {checksum:08x}").expect("a String takes it");
        text
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::Foreign)?;
        if text.lines().next() != Some(HEADING) {
            return Err(ManifestError::Foreign);
        }
        let (body, last) = text
            .trim_end_matches('\n')
            .rsplit_once('\n')
            .ok_or(ManifestError::Damaged)?;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(body.as_bytes()), b"\n");
        if last != format!("checksum {checksum:08x}") {
            return Err(ManifestError::Damaged);
        }
        let mut lines = ManifestLines(body.lines());
        lines.0.next();
        let version = lines.number("format").ok_or(ManifestError::Damaged)?;
        let known = [FORMAT_VERSION_1, FORMAT_VERSION];
        let Some(known) = known.into_iter().find(|&known| u64::from(known) == version) else {
            return Err(ManifestError::Version(version));
        };
        let manifest = Manifest::read(&mut lines).ok_or(ManifestError::Damaged)?;
        // One text for each content: what reads otherwise than it was written is not ours.
        if manifest.encode_as(known).as_bytes() != bytes || !manifest.is_sound() {
            return Err(ManifestError::Damaged);
        }
        Ok(manifest)
    }

    fn read(lines: &mut ManifestLines<'_>) -> Option<Manifest> {
        let manifest = Manifest {
            server: lines.word("server")?.to_owned(),
            history_id: u64::from_str_radix(lines.word("history-id")?, 16).ok()?,
            cut: Position {
                group: lines.number("group")?,
                sequence: lines.number("sequence")?,
            },
            wall_ms: lines.number("wall-ms")?,
            databases: lines.number("databases")?,
            volatile_databases: lines.number("volatile-databases")?,
            files: Vec::new(),
        };
        let mut files = Vec::new();
        for line in lines.0.by_ref() {
            if files.len() == limits::FILES {
                return None;
            }
            files.push(line.strip_prefix("file ")?.parse().ok()?);
        }
        Some(Manifest { files, ..manifest })
    }

    /// Whether the files can be those of a backup. Their names are used as such: nothing in them
    /// may lead elsewhere.
    fn is_sound(&self) -> bool {
        let is_plain =
            |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || byte == b'.';
        let is_name = |name: &str| {
            name.bytes().all(is_plain) && name.starts_with(|first: char| first.is_ascii_digit())
        };
        let [snapshot, rest @ ..] = &self.files[..] else {
            return false;
        };
        let is_tree = |file: &FileEntry| file.name.ends_with(trees::SUFFIX);
        let (log, trees) = rest.split_at(rest.iter().take_while(|file| !is_tree(file)).count());
        let mut names = self.files.iter().map(|file| &*file.name);
        !log.is_empty()
            && names.all(|name| is_name(name) || trees::is_stray(name))
            && snapshot.name.ends_with(".snapshot")
            && log.iter().all(|file| file.name.ends_with(".log"))
            && log.is_sorted_by(|one, next| one.name < next.name)
            && trees
                .iter()
                .all(|file| trees::path_of(&file.name).is_some() || trees::is_stray(&file.name))
            && trees.is_sorted_by(|one, next| one.name < next.name)
    }
}

struct ManifestLines<'a>(std::str::Lines<'a>);

impl<'a> ManifestLines<'a> {
    fn word(&mut self, name: &str) -> Option<&'a str> {
        self.0.next()?.strip_prefix(name)?.strip_prefix(' ')
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        self.word(name)?.parse().ok()
    }
}

impl FromStr for FileEntry {
    type Err = ();

    fn from_str(text: &str) -> Result<FileEntry, ()> {
        let mut words = text.split(' ');
        let (Some(name), Some(bytes), Some(checksum), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(());
        };
        Ok(FileEntry {
            name: name.to_owned(),
            bytes: bytes.parse().map_err(|_| ())?,
            checksum: u32::from_str_radix(checksum, 16).map_err(|_| ())?,
        })
    }
}

/// Why a manifest is not one.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// There is none: the backup was not completed, or this is something else.
    #[error("there is no {MANIFEST_NAME} in it: this is no backup, or one that was not completed")]
    Missing,
    /// The file is something else.
    #[error("{MANIFEST_NAME} is not that of a backup")]
    Foreign,
    /// It has changed since it was written.
    #[error("{MANIFEST_NAME} has changed since it was written; use another copy of the backup")]
    Damaged,
    /// Another version of the program wrote it.
    #[error(
        "the backup has format {0}, and this version of pelton reads formats up to \
         {FORMAT_VERSION}; use the version that made it"
    )]
    Version(u64),
    /// The operating system refused.
    #[error("{MANIFEST_NAME} cannot be read: {0}")]
    Device(io::Error),
}

/// Reads the manifest of a backup.
pub(super) fn read(disk: &dyn Disk) -> Result<Manifest, ManifestError> {
    let file = match disk.open(MANIFEST_NAME) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ManifestError::Missing);
        }
        Err(error) => return Err(ManifestError::Device(error)),
    };
    let bytes = file.len().map_err(ManifestError::Device)?;
    let room = usize::try_from(bytes).ok();
    let room = room.filter(|&room| room <= limits::MANIFEST_BYTES);
    let mut text = vec![0; room.ok_or(ManifestError::Foreign)?];
    let count = file
        .read_up_to(&mut text, 0)
        .map_err(ManifestError::Device)?;
    Manifest::decode(&text[..count])
}

/// Writes the manifest: everything that it names is on the device. When this returns, the backup is
/// complete. One that could not be read again is not written.
pub(super) fn write(disk: &dyn Disk, manifest: &Manifest) -> io::Result<()> {
    let text = manifest.encode();
    if text.len() > limits::MANIFEST_BYTES || Manifest::decode(text.as_bytes()).is_err() {
        let what = "a backup cannot hold what was to be in it, and would not be restored";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    write_whole(disk, MANIFEST_NEW_NAME, MANIFEST_NAME, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let file = |name: &str, bytes, checksum| FileEntry {
            name: name.into(),
            bytes,
            checksum,
        };
        Manifest {
            server: "pelton 0.1.0".into(),
            history_id: 0x8d3c_5f0a_1b2c_3d4e,
            cut: Position {
                group: 4711,
                sequence: 123_456,
            },
            wall_ms: 1_700_000_000_000,
            databases: 3,
            volatile_databases: 1,
            files: vec![
                file("00000000000000123000.snapshot", 1 << 40, 0x89ab_cdef),
                file("00000000000000000001.log", 4096, 0x0123_4567),
                file("00000000000000000002.log", 512, 0),
            ],
        }
    }

    #[test]
    fn a_manifest_reads_as_it_was_written() {
        let manifest = manifest();
        let text = manifest.encode();
        assert_eq!(
            Manifest::decode(text.as_bytes()).ok(),
            Some(manifest.clone())
        );
        let text = manifest.encode_as(FORMAT_VERSION_1);
        assert_eq!(Manifest::decode(text.as_bytes()).ok(), Some(manifest));
    }

    #[test]
    fn no_changed_byte_and_no_cut_goes_unseen() {
        let text = manifest().encode().into_bytes();
        for at in 0..text.len() {
            for bits in [1, 0x20, 0x80] {
                let mut changed = text.clone();
                changed[at] ^= bits;
                assert!(Manifest::decode(&changed).is_err(), "byte {at}");
            }
            assert!(Manifest::decode(&text[..at]).is_err(), "cut at {at}");
        }
        let more = [&text[..], b"\n"].concat();
        assert!(Manifest::decode(&more).is_err());
    }

    /// With the right checksum: written by somebody who means harm, or by a mistake.
    #[test]
    fn files_that_are_none_of_a_backup_are_refused() {
        let with = |change: &dyn Fn(&mut Manifest)| {
            let mut changed = manifest();
            change(&mut changed);
            Manifest::decode(changed.encode().as_bytes())
        };
        assert!(with(&|_| {}).is_ok());
        for name in [
            "../00000000000000000001.log",
            "/etc/passwd.log",
            ".log",
            "",
            "1.snapshot",
            "00000000000000000001.LOG",
            "1\\.log",
        ] {
            assert!(
                with(&|changed| changed.files[1].name = name.into()).is_err(),
                "{name}"
            );
        }
        assert!(
            with(&|changed| changed.files.truncate(1)).is_err(),
            "without a log"
        );
        assert!(with(&|changed| changed.files.clear()).is_err());
        assert!(with(&|changed| changed.files.swap(1, 2)).is_err());
        assert!(with(&|changed| drop(changed.files.remove(0))).is_err());
        assert!(with(&|changed| changed.files[2].name = changed.files[1].name.clone()).is_err());
        assert!(with(&|changed| changed.server = "two\nlines".into()).is_err());
    }

    /// Nothing is called complete that could not be restored.
    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let disk = testkit::simulated_disk(1);
        for name in ["3.17..DS_Store.tree", "3.17.v1-copy.tree", "3.tree"] {
            let mut wrong = manifest();
            wrong.files.push(FileEntry {
                name: name.into(),
                ..wrong.files[0].clone()
            });
            write(&disk, &wrong).expect_err("it has a file that leads nowhere");
            assert!(matches!(read(&disk), Err(ManifestError::Missing)), "{name}");
        }
        write(&disk, &manifest()).expect("there is room");
        assert_eq!(read(&disk).ok(), Some(manifest()));
    }

    #[test]
    fn another_version_is_named() {
        let text = manifest().encode().replace("format 2\n", "format 7\n");
        let (body, _) = text.trim_end().rsplit_once('\n').expect("there are lines");
        let body = format!("{body}\n");
        let text = format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()));
        let error = Manifest::decode(text.as_bytes()).expect_err("it is newer");
        assert!(matches!(error, ManifestError::Version(7)), "{error}");
    }
}
