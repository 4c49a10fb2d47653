//! The file that keeps up to which timestamp of its master a server has everything.

use std::io;
use std::path::Path;

use wal::disk::{Disk, RealDisk, read_at_most, write_whole};

/// Its name in the data folder, where no other is given.
const DEFAULT_NAME: &str = "pelton-tkrzw-timestamp";

/// Bytes of the file that are read: more than a number has.
const BYTES_MAX: usize = 64;

/// Such a file: a number and the end of a line, as the original writes it.
#[derive(Debug)]
pub(super) struct TimestampFile {
    folder: RealDisk,
    name: String,
}

impl TimestampFile {
    /// That of a data folder.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(super) fn in_folder(folder: &Path) -> io::Result<TimestampFile> {
        Ok(TimestampFile {
            folder: RealDisk::open(folder)?,
            name: DEFAULT_NAME.to_owned(),
        })
    }

    /// One at a path.
    ///
    /// # Errors
    /// If its folder cannot be used, or it has no name that could be one.
    pub(super) fn at(path: &Path) -> io::Result<TimestampFile> {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| io::Error::other("this is no name of a file"))?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        Ok(TimestampFile {
            folder: RealDisk::open(folder)?,
            name: name.to_owned(),
        })
    }

    /// Returns the timestamp; 0: none is kept.
    ///
    /// # Errors
    /// If the file cannot be read, or has something else.
    pub(super) fn read(&self) -> io::Result<i64> {
        let Some(bytes) = read_at_most(&self.folder, &self.name, BYTES_MAX)? else {
            return Ok(0);
        };
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let number = text.trim().parse().ok().filter(|number| *number >= 0);
        number.ok_or_else(|| io::Error::other("it has no timestamp"))
    }

    /// Keeps a timestamp, and returns when it is on the device.
    ///
    /// # Errors
    /// If it cannot be written: what was there before stays.
    pub(super) fn write(&self, timestamp: i64) -> io::Result<()> {
        let text = format!("{timestamp}\n");
        let new_name = format!("{}.new", self.name);
        write_whole(&self.folder, &new_name, &self.name, text.as_bytes())
    }

    /// Returns where it is, for messages.
    pub(super) fn describe(&self) -> String {
        self.folder.describe(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_timestamp_is_kept_as_the_original_writes_it() {
        let name = format!("pelton-tkrzw-timestamp-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a writable folder");
        let path = folder.join("ts");
        for file in [TimestampFile::at(&path), TimestampFile::in_folder(&folder)] {
            let file = file.expect("the folder is there");
            assert_eq!(file.read().expect("there is none"), 0);
            for timestamp in [0, 1_700_000_000_123, i64::MAX] {
                file.write(timestamp).expect("there is room");
                assert_eq!(file.read().expect("it is there"), timestamp);
            }
        }
        fs::write(&path, "1700000000123\n").expect("there is room");
        let file = TimestampFile::at(&path).expect("the folder is there");
        assert_eq!(file.read().expect("it is there"), 1_700_000_000_123);
        for text in ["", "x", "-1\n", "\u{fffd}"] {
            fs::write(&path, text).expect("there is room");
            assert!(file.read().is_err(), "{text:?}");
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
