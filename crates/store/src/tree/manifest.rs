//! The engine's list of tables, checked before the engine reads it.
//!
//! The file `current` names the list and holds its checksum, which the engine (3.1.10) writes and
//! does not look at: a list that is damaged can make it allocate whatever a damaged length says.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::error::TreeError;

/// Number of the list (8 bytes), checksum (16), kind of the checksum, all little-endian.
const CURRENT_BYTES: usize = 25;

/// A file that takes the place of `current`; if a crash leaves it, the next start removes it, as it
/// does those of the engine.
const TEMPORARY: &str = ".tmp-current";

/// The list of tables that a folder names.
#[derive(Debug)]
pub(super) struct TableList {
    pub(super) number: u64,
    bytes: Vec<u8>,
}

impl TableList {
    /// The numbers of the tables and their checksums, each of all bytes of its file; `None`: the
    /// list makes no sense.
    pub(super) fn tables(&self) -> Option<Vec<(u64, u128)>> {
        let mut section = ManifestBytes(section(&self.bytes, b"tables")?);
        let mut tables = Vec::new();
        for _ in 0..section.number::<1>()? {
            for _ in 0..section.number::<1>()? {
                for _ in 0..section.number::<4>()? {
                    let id = u64::try_from(section.number::<8>()?).ok()?;
                    let _kind = section.number::<1>()?;
                    let checksum = section.number::<16>()?;
                    let _sequence = section.number::<8>()?;
                    tables.push((id, checksum));
                }
            }
        }
        Some(tables)
    }
}

/// A part of an archive of the engine, by its name. At the end of the archive stand 8 bytes each
/// with the place and the length of its contents; these are a heading of 4 bytes, a count of 4, and
/// for each part place, length (8 bytes each), and its name behind the length of that (2).
fn section<'a>(archive: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut end = ManifestBytes(archive.get(archive.len().checked_sub(16)?..)?);
    let contents = usize::try_from(end.number::<8>()?).ok()?;
    let mut contents = ManifestBytes(archive.get(contents..)?);
    let _heading = contents.number::<4>()?;
    for _ in 0..contents.number::<4>()? {
        let from = usize::try_from(contents.number::<8>()?).ok()?;
        let length = usize::try_from(contents.number::<8>()?).ok()?;
        let name_length = usize::try_from(contents.number::<2>()?).ok()?;
        if contents.take(name_length)? == name {
            return archive.get(from..from.checked_add(length)?);
        }
    }
    None
}

/// Bytes that are read from the front.
struct ManifestBytes<'a>(&'a [u8]);

impl<'a> ManifestBytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of so many bytes, at most 16, little-endian.
    fn number<const BYTES: usize>(&mut self) -> Option<u128> {
        let mut bytes = [0; 16];
        bytes.get_mut(..BYTES)?.copy_from_slice(self.take(BYTES)?);
        Some(u128::from_le_bytes(bytes))
    }
}

/// Reads the list of tables; fails unless it is the one that was written.
pub(super) fn check(folder: &Path) -> Result<TableList, TreeError> {
    let current = match fs::read(folder.join("current")) {
        Ok(current) => current,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(TreeError::damaged(folder, "`current` is missing"));
        }
        Err(error) => return Err(TreeError::io(folder, error)),
    };
    let damaged = |what: &str| TreeError::damaged(folder, what);
    let Ok(current) = <[u8; CURRENT_BYTES]>::try_from(&current[..]) else {
        return Err(damaged(
            "`current`, which names the list of tables, has a wrong length",
        ));
    };
    let (number, rest) = current.split_first_chunk::<8>().expect("it is longer");
    let (checksum, kind) = rest.split_first_chunk::<16>().expect("it is longer");
    if kind != [0] {
        return Err(damaged("`current` has a checksum of an unknown kind"));
    }
    let number = u64::from_le_bytes(*number);
    let name = format!("v{number}");
    let bytes = match fs::read(folder.join(&name)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let what = format!("`{name}`, the list of tables, is missing");
            return Err(damaged(&what));
        }
        Err(error) => return Err(TreeError::io(&folder.join(name), error)),
    };
    if xxhash_rust::xxh3::xxh3_128(&bytes) != u128::from_le_bytes(*checksum) {
        let what = format!("`{name}`, the list of tables, is not what was written");
        return Err(damaged(&what));
    }
    Ok(TableList { number, bytes })
}

/// Has the file `current` name the list of this number, which is there, and brings that to the
/// device.
pub(super) fn name(folder: &Path, number: u64) -> Result<(), TreeError> {
    let named = || -> io::Result<()> {
        let current = folder.join("current");
        let named = fs::read(&current)?;
        if named.first_chunk() != Some(&number.to_le_bytes()) {
            let list = fs::read(folder.join(format!("v{number}")))?;
            let checksum = xxhash_rust::xxh3::xxh3_128(&list);
            let mut content = Vec::with_capacity(CURRENT_BYTES);
            content.extend(number.to_le_bytes());
            content.extend(checksum.to_le_bytes());
            content.push(0);
            let temporary = folder.join(TEMPORARY);
            let mut file = File::create(&temporary)?;
            file.write_all(&content)?;
            file.sync_all()?;
            fs::rename(&temporary, &current)?;
        }
        // Always: the rename may be an earlier one, of which only the sync has failed.
        File::open(folder)?.sync_all()
    };
    named().map_err(|error| TreeError::io(folder, error))
}
