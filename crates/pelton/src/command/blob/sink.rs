//! Where a download goes: a file, or standard output.

use std::io;
use std::path::{Path, PathBuf};

use super::attempts::FailedAttempt;
use super::part::{BlobSource, PartFile, PartState};
use crate::arguments::quoted;
use crate::exit::Failure;
use crate::in_place;
use crate::output::{Output, bytes, note};

/// What `--to` names is not the folder that it has to be. Said before anything is fetched.
pub(super) fn no_folder(to: &Path) -> Failure {
    let shown = to.display();
    let text = match to.components().as_path() {
        path if path.exists() => {
            format!("--to {shown} is no folder, and nothing was downloaded; name one")
        }
        path => format!(
            "there is no folder {shown}, and nothing was downloaded; `mkdir {}` makes it",
            quoted(&path.to_string_lossy())
        ),
    };
    Failure::Usage(text)
}

/// A blob, and where it goes.
pub(super) struct DownloadTarget {
    pub(super) name: String,
    /// `None`: standard output.
    pub(super) path: Option<PathBuf>,
}

/// A blob that was fetched.
pub(super) struct FetchedBlob {
    pub(super) name: String,
    /// `None`: it went to standard output.
    pub(super) path: Option<PathBuf>,
    pub(super) bytes: u64,
    pub(super) crc32c: u32,
    pub(super) version: u64,
    /// Bytes of it that an earlier run has fetched.
    pub(super) resumed_bytes: u64,
}

/// Where content goes, and what is known of it.
pub(super) struct Sink<'a> {
    pub(super) target: &'a DownloadTarget,
    /// `None`: standard output.
    part: Option<PartFile>,
    pub(super) state: PartState,
    /// Which blob it is: from its first message on, or from an earlier run.
    pub(super) is_known: bool,
    /// Its size was told.
    is_expected: bool,
    /// Bytes that were there already, and still are.
    resumed_bytes: u64,
    /// Bytes that were counted as moved.
    shown_bytes: u64,
    /// Another run would do no better.
    pub(super) is_hopeless: bool,
}

impl<'a> Sink<'a> {
    /// Goes on with what an earlier run has left.
    pub(super) fn open(target: &'a DownloadTarget, database: &str) -> Result<Sink<'a>, Failure> {
        let open = |path: &PathBuf| {
            PartFile::open(path, database, &target.name).map_err(|error| unwritten(path, &error))
        };
        let (part, found) = target.path.as_ref().map(open).transpose()?.unzip();
        let found = found.flatten();
        Ok(Sink {
            target,
            part,
            is_known: found.is_some(),
            resumed_bytes: found.as_ref().map_or(0, |found| found.bytes),
            state: found.unwrap_or_else(|| PartState {
                database: database.to_owned(),
                name: target.name.clone(),
                ..PartState::default()
            }),
            is_expected: false,
            shown_bytes: 0,
            is_hopeless: false,
        })
    }

    /// It is this blob. Returns whether its size was not told before.
    pub(super) fn expects(&mut self, source: BlobSource) -> bool {
        self.state.source = source;
        self.is_known = true;
        !std::mem::replace(&mut self.is_expected, true)
    }

    /// How much more there is than when it was asked last.
    pub(super) fn moved_bytes(&mut self) -> i64 {
        let shown_bytes = std::mem::replace(&mut self.shown_bytes, self.state.bytes);
        self.state.bytes.cast_signed() - shown_bytes.cast_signed()
    }

    /// Adds some of it.
    pub(super) fn add(&mut self, data: &[u8]) -> Result<(), Failure> {
        if self.part.is_none() && self.state.bytes == 0 {
            let size = bytes(self.state.source.size_bytes);
            let what = format!("the blob `{}`, {size},", self.state.name);
            let instead = "write it into a file with --to FILE, or pipe it to `cat` to see it all \
                           the same";
            Output::check_terminal(data, &what, instead)?;
        }
        let written = match &mut self.part {
            Some(part) => part.append(data, &mut self.state),
            None => self.state.write(data, &mut io::stdout().lock()),
        };
        written.map_err(|error| self.unwritten(error))?;
        let told = (self.part.as_mut()).map_or(Ok(()), |part| part.tell(&self.state));
        told.map_err(|error| self.unwritten(error))
    }

    /// Throws away what is there. Returns whether that was possible.
    pub(super) fn begin_anew(&mut self) -> Result<bool, Failure> {
        let emptied = match &mut self.part {
            Some(part) => part.begin_anew(),
            None if self.state.bytes == 0 => Ok(()),
            None => return Ok(false),
        };
        emptied.map_err(|error| self.unwritten(error))?;
        self.resumed_bytes = 0;
        self.state.bytes = 0;
        self.state.crc32c = 0;
        self.is_known = false;
        Ok(true)
    }

    /// Whether all of it came, and as it is.
    pub(super) fn check(&mut self) -> Result<(), FailedAttempt> {
        let PartState {
            source,
            bytes,
            crc32c,
            ..
        } = self.state;
        if (bytes, crc32c) == (source.size_bytes, source.crc32c) {
            return Ok(());
        }
        let failure = Failure::Failed(format!(
            "`{}` came with {bytes} bytes and CRC32C {crc32c:08x}, and has {} bytes and {:08x}",
            self.target.name, source.size_bytes, source.crc32c
        ));
        match self.begin_anew()? {
            true => Err(FailedAttempt::Again(failure)),
            false => Err(FailedAttempt::Final(failure)),
        }
    }

    /// The file gets its name: everything is in it. What came to be there since the beginning
    /// stays, unless it may be replaced.
    pub(super) fn complete(self, may_replace: bool) -> Result<FetchedBlob, Failure> {
        if let (Some(path), Some(part)) = (&self.target.path, self.part) {
            let completed = part.complete(path, may_replace);
            completed.map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => in_place::there(path),
                _ => unwritten(path, &error),
            })?;
        }
        Ok(FetchedBlob {
            name: self.state.name,
            path: self.target.path.clone(),
            bytes: self.state.bytes,
            crc32c: self.state.crc32c,
            version: self.state.source.version,
            resumed_bytes: self.resumed_bytes,
        })
    }

    /// It stays for another run, if that has something to go on with.
    pub(super) fn give_up(self, is_interrupted: bool) {
        let Some(mut part) = self.part else {
            return;
        };
        let is_useful = self.state.bytes > 0 && (is_interrupted || !self.is_hopeless);
        match is_useful && part.tell_now(&self.state).is_ok() {
            true => note(format_args!(
                "pelton: {} of `{}` {} kept: the same command goes on from there",
                bytes(self.state.bytes),
                self.state.name,
                if self.state.bytes == 1 { "is" } else { "are" }
            )),
            false => part.remove(),
        }
    }

    fn unwritten(&self, error: io::Error) -> Failure {
        match &self.target.path {
            Some(path) => unwritten(path, &error),
            None => Failure::output(error),
        }
    }
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("{} cannot be written: {error}", path.display()))
}
