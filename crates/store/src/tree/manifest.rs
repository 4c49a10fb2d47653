//! The engine's list of tables, checked before the engine reads it.
//!
//! The file `current` names the list and holds its checksum, which the engine (3.1.10) writes and does not look at: a
//! list that is damaged can make it allocate whatever a damaged length says.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::error::TreeError;

/// Number of the list (8 bytes), checksum (16), kind of the checksum, all little-endian.
const CURRENT_BYTES: usize = 25;

/// A file that takes the place of `current`; if a crash leaves it, the next start removes it, as it does those of the engine.
const TEMPORARY: &str = ".tmp-current";

/// Fails unless the list of tables is the one that was written.
pub(super) fn check(folder: &Path) -> Result<(), TreeError> {
    let current = match fs::read(folder.join("current")) {
        Ok(current) => current,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(TreeError::damaged(folder, "the file current is missing"));
        }
        Err(error) => return Err(TreeError::io(folder, error)),
    };
    let damaged = |what: &str| TreeError::damaged(folder, what);
    let Ok(current) = <[u8; CURRENT_BYTES]>::try_from(&current[..]) else {
        return Err(damaged("the file current has a wrong length"));
    };
    let (number, rest) = current.split_first_chunk::<8>().expect("it is longer");
    let (checksum, kind) = rest.split_first_chunk::<16>().expect("it is longer");
    if kind != [0] {
        return Err(damaged(
            "the file current has a checksum of an unknown kind",
        ));
    }
    let list = folder.join(format!("v{}", u64::from_le_bytes(*number)));
    let list = match fs::read(list) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(damaged("the list of tables is missing"));
        }
        Err(error) => return Err(TreeError::io(folder, error)),
    };
    if xxhash_rust::xxh3::xxh3_128(&list) != u128::from_le_bytes(*checksum) {
        return Err(damaged("the list of tables is not what was written"));
    }
    Ok(())
}

/// Has the file `current` name the list of this number, which is there, and brings that to the device.
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
