//! Files that get their name when they are complete, and replace others only if they may.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::exit::Failure;

/// Fails if something has the name that a file is to get, and may not be replaced.
pub fn check_free(path: &Path, may_replace: bool) -> Result<(), Failure> {
    match !may_replace && is_there(path)? {
        true => Err(there(path)),
        false => Ok(()),
    }
}

/// Whether something has that name. An error is none of both: what cannot be looked at is not
/// replaced.
fn is_there(path: &Path) -> Result<bool, Failure> {
    path.try_exists().map_err(|error| {
        let path = path.display();
        Failure::Failed(format!("cannot see whether {path} is there: {error}"))
    })
}

/// Something has the name that a file is to get.
pub fn there(path: &Path) -> Failure {
    Failure::Failed(format!("{} is there; --force replaces it", path.display()))
}

/// Gives a file its name. What has come to be there meanwhile stays, unless it may be replaced
/// ([`io::ErrorKind::AlreadyExists`]).
pub fn put(from: &Path, to: &Path, may_replace: bool) -> io::Result<()> {
    if may_replace {
        return fs::rename(from, to);
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems cannot do it in one step.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_replaced_only_if_it_may_be() {
        let folder = std::env::temp_dir().join(format!("pelton-in-place-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("there is room");
        let (from, to) = (folder.join("from"), folder.join("to"));
        for text in ["one", "two"] {
            fs::write(&from, text).expect("there is room");
            let is_first = text == "one";
            assert_eq!(is_there(&to).expect("it can be seen"), !is_first);
            match put(&from, &to, false) {
                Ok(()) => assert!(is_first),
                Err(error) => assert_eq!(
                    (error.kind(), is_first),
                    (io::ErrorKind::AlreadyExists, false)
                ),
            }
            assert_eq!(fs::read_to_string(&to).expect("it is there"), "one");
        }
        put(&from, &to, true).expect("it may");
        assert_eq!(fs::read_to_string(&to).expect("it is there"), "two");
        assert!(!from.exists());
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
