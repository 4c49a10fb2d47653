//! A download that is not complete: content in `NAME.part`, and in `NAME.part.state` of which blob
//! it is, how much of it, and the checksum up to there. A later run of the program goes on from
//! there, after Ctrl-C, a kill or a crash of the machine.
//!
//! What the state says is written behind the content that it describes, and is compared with it
//! before it is believed. What lies behind is not believed. Nobody waits for a sync before the end:
//! what a crash of the machine has spoilt does not fit.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::sync_ahead::SyncAhead;
use crate::in_place;
use crate::limits::{DOWNLOAD_STATE_BYTES, DOWNLOAD_STATE_EVERY_BYTES, DOWNLOAD_WRITE_BYTES};
use crate::output::note;

/// Bytes read at a time where what is there is compared with its checksum.
const READ_BYTES: usize = 1 << 20;

/// Which content it is. Another one under the same name has another version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlobSource {
    pub(super) size_bytes: u64,
    pub(super) crc32c: u32,
    pub(super) version: u64,
}

/// How far a download has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartState {
    pub(super) database: String,
    pub(super) name: String,
    pub(super) source: BlobSource,
    /// Bytes that are there.
    pub(super) bytes: u64,
    /// CRC32C of them.
    pub(super) crc32c: u32,
}

impl PartState {
    /// Writes what follows. After an error it still says what was written, and not more.
    pub(super) fn write(&mut self, data: &[u8], to: &mut dyn Write) -> io::Result<()> {
        for piece in data.chunks(DOWNLOAD_WRITE_BYTES) {
            to.write_all(piece)?;
            self.crc32c = crc32c::crc32c_append(self.crc32c, piece);
            self.bytes += piece.len() as u64;
        }
        Ok(())
    }

    /// A line, and one with its checksum: a half-written one is none.
    fn encode(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("it has nothing that JSON has not");
        let checksum = crc32c::crc32c(&line);
        line.extend_from_slice(format!("\n{checksum:08x}\n").as_bytes());
        line
    }

    /// What stands behind is of an earlier state, which was longer.
    fn decode(bytes: &[u8]) -> Option<PartState> {
        let end = bytes.iter().position(|&byte| byte == b'\n')?;
        let (line, rest) = bytes.split_at(end);
        let checksum = format!("\n{:08x}\n", crc32c::crc32c(line));
        let fits = rest.starts_with(checksum.as_bytes());
        fits.then(|| serde_json::from_slice(line).ok()).flatten()
    }
}

/// The file of an unfinished download. Nobody else has it.
#[derive(Debug)]
pub(super) struct PartFile {
    path: PathBuf,
    file: File,
    sync_ahead: SyncAhead,
    state: File,
    /// The bytes that the state describes.
    told_bytes: u64,
}

impl PartFile {
    /// Opens that of a file. Returns also how far it has come, if that is so and it is that blob.
    pub(super) fn open(
        target: &Path,
        database: &str,
        name: &str,
    ) -> io::Result<(PartFile, Option<PartState>)> {
        let path = with_ending(target, ".part");
        let file = open(&path)?;
        lock(&file, &path)?;
        let state_path = with_ending(&path, ".state");
        // A download makes both before it writes.
        if file.metadata()?.len() > 0 && !state_path.try_exists()? {
            return Err(foreign(&path));
        }
        let state = open(&state_path)?;
        let mut part = PartFile {
            path,
            file,
            sync_ahead: SyncAhead::default(),
            state,
            told_bytes: 0,
        };
        let found = part.read_state()?;
        let found = found.filter(|state| state.database == database && state.name == name);
        match &found {
            None => part.begin_anew()?,
            Some(found) => {
                part.file.set_len(found.bytes)?;
                part.file.seek(SeekFrom::Start(found.bytes))?;
                part.told_bytes = found.bytes;
            }
        }
        Ok((part, found))
    }

    /// What the state says, if the content is so.
    fn read_state(&mut self) -> io::Result<Option<PartState>> {
        let mut bytes = Vec::new();
        (&self.state)
            .take(DOWNLOAD_STATE_BYTES)
            .read_to_end(&mut bytes)?;
        let Some(state) = PartState::decode(&bytes) else {
            return Ok(None);
        };
        let found = checksum(&self.file, state.bytes)?;
        if found != Some(state.crc32c) {
            let path = self.path.display();
            note(format_args!(
                "pelton: {path} is damaged: `{}` is downloaded anew",
                state.name
            ));
            return Ok(None);
        }
        Ok(Some(state))
    }

    /// Adds to the content.
    pub(super) fn append(&mut self, data: &[u8], state: &mut PartState) -> io::Result<()> {
        state.write(data, &mut self.file)?;
        self.sync_ahead.wrote(data.len(), &self.file);
        Ok(())
    }

    /// Says how far it has come, if that is much further than was said.
    pub(super) fn tell(&mut self, state: &PartState) -> io::Result<()> {
        match state.bytes - self.told_bytes >= DOWNLOAD_STATE_EVERY_BYTES {
            true => self.tell_now(state),
            false => Ok(()),
        }
    }

    /// Says how far it has come.
    pub(super) fn tell_now(&mut self, state: &PartState) -> io::Result<()> {
        // One write: a kill leaves the one before or this one.
        self.state.write_all_at(&state.encode(), 0)?;
        self.told_bytes = state.bytes;
        Ok(())
    }

    /// Throws away what is there.
    pub(super) fn begin_anew(&mut self) -> io::Result<()> {
        self.state.set_len(0)?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.told_bytes = 0;
        Ok(())
    }

    /// The content is complete, durable and gets its name; that of another file only if it may be
    /// replaced.
    pub(super) fn complete(mut self, target: &Path, may_replace: bool) -> io::Result<()> {
        self.sync_ahead.end()?;
        self.file.sync_all()?;
        in_place::put(&self.path, target, may_replace)?;
        // Left behind it would say nothing of an empty file.
        let _ = fs::remove_file(with_ending(&self.path, ".state"));
        Ok(())
    }

    /// Nobody will go on with it.
    pub(super) fn remove(self) {
        let _ = fs::remove_file(with_ending(&self.path, ".state"));
        let _ = fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

/// The error for a file that no download has left.
fn foreign(path: &Path) -> io::Error {
    io::Error::other(format!(
        "{} is there and is not of a download; move it away, or name another file with --to",
        path.display()
    ))
}

/// Two downloads into one file would mix their contents.
fn lock(file: &File, path: &Path) -> io::Result<()> {
    let taken = || io::Error::other("another download writes to it");
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(taken()),
        // Some file systems know no locks.
        Err(TryLockError::Error(_)) | Ok(()) => {}
    }
    // Who had it before may have completed it, and so given this file its last name.
    is_still_there(fs::metadata(path), file.metadata()?.ino())?
        .then_some(())
        .ok_or_else(taken)
}

/// Whether what was found at a path is the file that was opened there. An error says nothing of
/// others.
fn is_still_there(found: io::Result<fs::Metadata>, inode: u64) -> io::Result<bool> {
    match found {
        Ok(there) => Ok(there.ino() == inode),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Of the first bytes of a file; `None`: there are not so many.
fn checksum(file: &File, bytes: u64) -> io::Result<Option<u32>> {
    let (mut at, mut crc32c, mut buffer) = (0, 0, vec![0; READ_BYTES]);
    while at < bytes {
        let wanted = (bytes - at).min(READ_BYTES as u64) as usize;
        match file.read_at(&mut buffer[..wanted], at)? {
            0 => return Ok(None),
            count => {
                crc32c = crc32c::crc32c_append(crc32c, &buffer[..count]);
                at += count as u64;
            }
        }
    }
    Ok(Some(crc32c))
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    const SOURCE: BlobSource = BlobSource {
        size_bytes: 1 << 40,
        crc32c: 7,
        version: 9,
    };

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path =
                std::env::temp_dir().join(format!("pelton-part-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn target(&self) -> PathBuf {
            self.0.join("target")
        }

        fn open(&self) -> (PartFile, Option<PartState>) {
            self.open_of("d", "n")
        }

        /// Other tests of this program begin processes, which hold all locks between fork and exec:
        /// a moment later the one that was left is free.
        fn open_of(&self, database: &str, name: &str) -> (PartFile, Option<PartState>) {
            let until = Instant::now() + Duration::from_secs(30);
            loop {
                match PartFile::open(&self.target(), database, name) {
                    Ok(opened) => return opened,
                    Err(error) if Instant::now() > until => panic!("{error}"),
                    Err(_) => thread::yield_now(),
                }
            }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn state_of(content: &[u8]) -> PartState {
        PartState {
            database: "d".into(),
            name: "n".into(),
            source: SOURCE,
            bytes: content.len() as u64,
            crc32c: crc32c::crc32c(content),
        }
    }

    /// One that was left behind, with more content than it says.
    fn left(folder: &Folder, content: &[u8]) {
        let (mut part, found) = folder.open();
        assert_eq!(found, None);
        let mut state = state_of(b"");
        part.append(content, &mut state).unwrap();
        part.tell_now(&state).unwrap();
        part.append(b"behind", &mut state).unwrap();
    }

    #[test]
    fn what_was_left_is_gone_on_with() {
        let folder = Folder::new("left");
        left(&folder, b"content");
        let (mut part, found) = folder.open();
        let mut state = found.expect("it was left");
        assert_eq!(state, state_of(b"content"));
        part.append(b", the rest", &mut state).unwrap();
        assert_eq!(state, state_of(b"content, the rest"));
        part.complete(&folder.target(), false).unwrap();
        assert_eq!(fs::read(folder.target()).unwrap(), b"content, the rest");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn no_changed_byte_of_content_or_state_is_believed() {
        let folder = Folder::new("changed");
        for file in ["target.part", "target.part.state"] {
            left(&folder, b"content");
            let path = folder.0.join(file);
            let sound = fs::read(&path).unwrap();
            let told = match file {
                "target.part" => b"content".len(),
                _ => sound.len(),
            };
            for at in 0..told {
                left_again(&folder, &path, &sound, at);
            }
            folder.open().0.remove();
        }
    }

    fn left_again(folder: &Folder, path: &Path, sound: &[u8], at: usize) {
        folder.open().0.remove();
        left(folder, b"content");
        let mut changed = sound.to_vec();
        changed[at] ^= 1;
        fs::write(path, &changed).unwrap();
        let (mut part, found) = folder.open();
        assert_eq!(found, None, "byte {at} of {}", path.display());
        part.append(b"new", &mut state_of(b"")).unwrap();
        assert_eq!(fs::read(folder.0.join("target.part")).unwrap(), b"new");
    }

    #[test]
    fn a_short_content_and_another_blob_begin_anew() {
        let folder = Folder::new("short");
        left(&folder, b"content");
        let part = File::options()
            .write(true)
            .open(folder.0.join("target.part"));
        part.unwrap().set_len(3).unwrap();
        assert_eq!(folder.open().1, None);
        left(&folder, b"content");
        let (_, found) = folder.open_of("d", "other");
        assert_eq!(found, None);
        left(&folder, b"content");
        let (_, found) = folder.open_of("other", "n");
        assert_eq!(found, None);
    }

    #[test]
    fn a_file_that_no_download_has_left_is_not_touched() {
        let folder = Folder::new("foreign");
        let path = folder.0.join("target.part");
        fs::write(&path, "mine").unwrap();
        for _ in 0..2 {
            let error = PartFile::open(&folder.target(), "d", "n").unwrap_err();
            assert!(error.to_string().contains("not of a download"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), b"mine");
            assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
        }
        // An empty one has nothing to lose.
        fs::write(&path, "").unwrap();
        folder.open().0.remove();
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    }

    /// What the device does not say is no other download.
    #[test]
    fn a_device_that_fails_is_told_as_that() {
        const EIO: i32 = 5;
        let failed = is_still_there(Err(io::Error::from_raw_os_error(EIO)), 1);
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(EIO));
        let gone = is_still_there(Err(io::ErrorKind::NotFound.into()), 1);
        assert!(!gone.unwrap());
    }

    #[test]
    fn two_at_once_are_refused() {
        let folder = Folder::new("two");
        let (part, _) = folder.open();
        let error = PartFile::open(&folder.target(), "d", "n").unwrap_err();
        assert!(error.to_string().contains("another download"), "{error}");
        part.remove();
        folder.open();
    }

    /// Takes so many bytes in all, and notes how many at a time.
    struct Narrow {
        room: usize,
        writes: Vec<usize>,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let count = bytes.len().min(self.room);
            self.room -= count;
            self.writes.push(count);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_largest_chunk_is_written_in_pieces() {
        let content: Vec<u8> = (0..4 << 20).map(|at: u32| (at % 251) as u8).collect();
        let mut to = Narrow {
            room: usize::MAX,
            writes: Vec::new(),
        };
        let mut state = state_of(b"");
        state.write(&content, &mut to).unwrap();
        assert_eq!(state, state_of(&content));
        assert_eq!(to.writes, [DOWNLOAD_WRITE_BYTES; 16]);
    }

    #[test]
    fn after_a_failed_write_the_state_says_what_is_there() {
        let content = vec![7; 3 * DOWNLOAD_WRITE_BYTES];
        let room = 2 * DOWNLOAD_WRITE_BYTES + 5;
        let mut to = Narrow {
            room,
            writes: Vec::new(),
        };
        let mut state = state_of(b"");
        state.write(&content, &mut to).unwrap_err();
        assert_eq!(state, state_of(&content[..2 * DOWNLOAD_WRITE_BYTES]));
    }

    #[test]
    fn the_state_is_told_now_and_then() {
        let folder = Folder::new("told");
        let (mut part, _) = folder.open();
        let mut state = state_of(b"");
        state.crc32c = u32::MAX;
        state.bytes = DOWNLOAD_STATE_EVERY_BYTES - 1;
        part.tell(&state).unwrap();
        assert_eq!(part.told_bytes, 0);
        state.bytes += 1;
        part.tell(&state).unwrap();
        assert_eq!(part.told_bytes, state.bytes);
        let stored = || fs::read(folder.0.join("target.part.state")).unwrap();
        assert_eq!(PartState::decode(&stored()), Some(state.clone()));
        // A shorter one.
        state.crc32c = 1;
        part.tell_now(&state).unwrap();
        assert_eq!(PartState::decode(&stored()), Some(state));
    }
}
