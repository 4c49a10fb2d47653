//! What can go wrong with a tree.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use wal::disk::{Advised, is_full};

/// Why a tree could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The operating system refused.
    #[error("the tree in {}: {}", .folder.display(), Advised(.source))]
    Io {
        /// The tree's folder.
        folder: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The folder is not there.
    #[error(
        "the tree in {} is missing; put the folder back, or restore a backup",
        .folder.display()
    )]
    Missing {
        /// The tree's folder.
        folder: PathBuf,
    },
    /// The folder is an older copy of itself, and the log may be gone that has what it lacks.
    #[error(
        "the tree in {} is an older copy: its list of tables is number {list}, and the newest \
         snapshot was made with number {least}; what came between may be gone from the log; put \
         the newer folder back, or restore a backup",
        .folder.display()
    )]
    Older {
        /// The tree's folder.
        folder: PathBuf,
        /// The number of its list of tables.
        list: u64,
        /// The number of the oldest list that will do.
        least: u64,
    },
    /// What is in the folder is not what was written there.
    #[error("the tree in {} is damaged: {what}; restore a backup", .folder.display())]
    Damaged {
        /// The tree's folder.
        folder: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl TreeError {
    pub(super) fn io(folder: &Path, source: io::Error) -> TreeError {
        // Whoever reads says this of what was read; the operating system says it of nothing.
        let is_of_content = matches!(
            source.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData
        );
        if is_of_content {
            return TreeError::damaged(folder, source.to_string());
        }
        TreeError::Io {
            folder: folder.into(),
            source,
        }
    }

    /// Whether the device, or what the user may have of it, is full.
    pub(super) fn is_of_no_room(&self) -> bool {
        matches!(self, TreeError::Io { source, .. } if is_full(source))
    }

    /// Whether something is lost, and not only out of reach for now.
    pub fn is_of_damage(&self) -> bool {
        match self {
            TreeError::Io { .. } => false,
            TreeError::Missing { .. } | TreeError::Older { .. } | TreeError::Damaged { .. } => true,
        }
    }

    /// Whether what is in a file may have led to this error of the operating system, which then
    /// says nothing of the system: the engine (3.1.10) seeks from the end of a table, and behind
    /// the start of one that is too short (EINVAL). The checksums of the files decide.
    pub(super) fn may_be_of_content(&self) -> bool {
        let passing = [
            Errno::ACCESS,
            Errno::PERM,
            Errno::IO,
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::NOBUFS,
            Errno::INTR,
            Errno::AGAIN,
            Errno::BUSY,
            Errno::STALE,
            Errno::TIMEDOUT,
            Errno::ROFS,
            Errno::NOSPC,
            Errno::DQUOT,
        ];
        match self {
            TreeError::Io { source, .. } => match source.raw_os_error() {
                Some(number) => !passing.map(Errno::raw_os_error).contains(&number),
                None => source.kind() != io::ErrorKind::Interrupted,
            },
            _ => false,
        }
    }

    /// Whether the same read may succeed at once: it was interrupted, or cut short.
    pub(super) fn is_of_interruption(&self) -> bool {
        matches!(self, TreeError::Io { source, .. } if source.kind() == io::ErrorKind::Interrupted)
    }

    /// Whether a start may give the tree up, if it is told to accept a loss: it is damaged, or the
    /// device cannot read it. What is only out of reach, as for want of rights or of file
    /// descriptors, is not given up.
    pub fn can_be_given_up(&self) -> bool {
        match self {
            TreeError::Io { source, .. } => source.raw_os_error() == Some(Errno::IO.raw_os_error()),
            _ => self.is_of_damage(),
        }
    }

    pub(super) fn damaged(folder: &Path, what: impl Into<String>) -> TreeError {
        TreeError::Damaged {
            folder: folder.into(),
            what: what.into(),
        }
    }

    pub(super) fn engine(folder: &Path, error: lsm_tree::Error) -> TreeError {
        match error {
            lsm_tree::Error::Io(source) if source.kind() == io::ErrorKind::NotFound => {
                TreeError::damaged(folder, "a file is missing")
            }
            lsm_tree::Error::Io(source) if is_cut_short(&source) => TreeError::Io {
                folder: folder.into(),
                source: io::Error::new(
                    io::ErrorKind::Interrupted,
                    format!("a read of a table was cut short ({source})"),
                ),
            },
            lsm_tree::Error::Io(source) => TreeError::io(folder, source),
            other => TreeError::damaged(folder, in_words(&other)),
        }
    }
}

/// Whether a read has brought less than there is: what is missing lies within the file. The engine
/// (3.1.10) reads once and gives numbers in words only; were these words others, it would be
/// damage, as where the file is too short.
fn is_cut_short(error: &io::Error) -> bool {
    let numbers = || {
        let text = error.to_string();
        let (_, rest) = text.strip_prefix("read_exact(")?.split_once(") at ")?;
        let (offset, rest) = rest.split_once(" did not read enough bytes ")?;
        let (wanted, length) = rest.split_once("; file has length ")?;
        let end = u64::checked_add(offset.parse().ok()?, wanted.parse().ok()?)?;
        Some((end, length.parse::<u64>().ok()?))
    };
    error.kind() == io::ErrorKind::UnexpectedEof
        && numbers().is_some_and(|(end, length)| end <= length)
}

/// What the engine means.
fn in_words(error: &lsm_tree::Error) -> String {
    use lsm_tree::Error as E;
    match error {
        E::ChecksumMismatch { .. } => "a part of a table does not fit its checksum".into(),
        E::Decompress(_) => "a part of a table cannot be decompressed".into(),
        E::InvalidVersion(version) => {
            format!("it has a format of the engine, {version}, that is not known")
        }
        E::Unrecoverable => "its list of tables and its tables do not fit together".into(),
        E::InvalidTag(_) | E::InvalidTrailer | E::InvalidHeader(_) | E::Utf8(_) => {
            format!("a part of a table makes no sense ({error})")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_device_is_told_from_one_that_fails() {
        let folder = Path::new("folder");
        let of = |kind: io::ErrorKind| TreeError::engine(folder, io::Error::from(kind).into());
        assert!(of(io::ErrorKind::StorageFull).is_of_no_room());
        assert!(of(io::ErrorKind::QuotaExceeded).is_of_no_room());
        assert!(of(io::ErrorKind::FileTooLarge).is_of_no_room());
        assert!(!of(io::ErrorKind::PermissionDenied).is_of_no_room());
        assert!(!TreeError::damaged(folder, "full").is_of_no_room());
    }

    #[test]
    fn a_read_that_is_cut_short_is_told_from_a_file_that_is_too_short() {
        let folder = Path::new("folder");
        for (length, is_passing) in [(99, false), (100, true), (5000, true)] {
            let words = format!(
                "read_exact(7) at 60 did not read enough bytes 40; file has length {length}"
            );
            let error = io::Error::new(io::ErrorKind::UnexpectedEof, words);
            let error = TreeError::engine(folder, error.into());
            assert_eq!(error.is_of_interruption(), is_passing, "{error}");
            assert_eq!(error.is_of_damage(), !is_passing, "{error}");
            assert_eq!(error.can_be_given_up(), !is_passing, "{error}");
        }
        let interrupted = io::Error::from(io::ErrorKind::Interrupted);
        assert!(TreeError::engine(folder, interrupted.into()).is_of_interruption());
    }

    #[test]
    fn an_error_that_content_may_have_led_to_is_told_from_a_passing_one() {
        let folder = Path::new("folder");
        let of = |error: io::Error| TreeError::engine(folder, error.into());
        for passing in [
            Errno::IO,
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::ACCESS,
            Errno::PERM,
            Errno::INTR,
        ] {
            let error = of(passing.into());
            assert!(!error.may_be_of_content(), "{error}");
            assert!(!error.is_of_damage(), "{error}");
        }
        let interrupted = of(io::ErrorKind::Interrupted.into());
        assert!(!interrupted.may_be_of_content());
        for number in [Errno::INVAL, Errno::OVERFLOW, Errno::ISDIR] {
            assert!(of(number.into()).may_be_of_content());
        }
        assert!(of(io::Error::other("makes no sense")).may_be_of_content());
        assert!(of(io::ErrorKind::InvalidData.into()).is_of_damage());
    }

    #[test]
    fn what_is_lost_is_told_from_what_cannot_be_read_for_now() {
        let folder = Path::new("folder");
        let of = |error: io::Error| TreeError::engine(folder, error.into());
        const EIO: i32 = 5;
        const EMFILE: i32 = 24;
        for passing in [EIO, EMFILE] {
            assert!(!of(io::Error::from_raw_os_error(passing)).is_of_damage());
        }
        assert!(of(io::ErrorKind::NotFound.into()).is_of_damage());
        assert!(of(io::ErrorKind::UnexpectedEof.into()).is_of_damage());
        let missing = TreeError::Missing {
            folder: folder.into(),
        };
        assert!(missing.is_of_damage());
    }
}
