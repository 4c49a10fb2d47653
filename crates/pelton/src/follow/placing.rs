//! Puts the data folder that was made of a new copy in the place of what was served. Each step may
//! be repeated, whatever of it was done before.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use store::SET_ASIDE_FOLDER;
use store::durable::{LOCK_NAME, REPLICA_ID_NAME, REPLICA_MARK_NAME};

use super::copying::{COPY_FOLDER, NEW_FOLDER, remove_folder};
use super::mark::{NEW_MARK_NAME, OldContent};
use super::promise::{NEW_PROMISE_NAME, PROMISE_NAME};

/// The folder in the data folder with what was served until a new copy came.
pub const OLD_FOLDER: &str = "replica-old";

/// What stays in its place in the data folder, whatever is served.
const STAYS: [&str; 10] = [
    REPLICA_MARK_NAME,
    NEW_MARK_NAME,
    PROMISE_NAME,
    NEW_PROMISE_NAME,
    REPLICA_ID_NAME,
    LOCK_NAME,
    SET_ASIDE_FOLDER,
    COPY_FOLDER,
    NEW_FOLDER,
    OLD_FOLDER,
];

/// Checks whether what is served can be moved at all.
///
/// # Errors
/// If a part of it cannot.
pub fn check_movable(folder: &Path) -> io::Result<()> {
    let device = fs::metadata(folder)?.dev();
    for entry in content(folder)? {
        if entry.metadata()?.dev() != device {
            return Err(io::Error::other(format!(
                "{} is another file system, and cannot make place for what the copy has: let the \
                 whole data folder be in one",
                entry.path().display()
            )));
        }
    }
    Ok(())
}

/// Makes ready for [`move_out`]: nothing of an earlier time is in its way.
///
/// # Errors
/// If that cannot be removed, or something cannot be moved: nothing was.
pub fn make_place(folder: &Path) -> io::Result<()> {
    check_movable(folder)?;
    // What followers of this server had begun to read is of no use to anybody.
    store::backup::remove_left_copies(folder)?;
    remove_folder(&folder.join(OLD_FOLDER))
}

/// Moves what was served into its folder.
pub fn move_out(folder: &Path) -> io::Result<()> {
    let old = folder.join(OLD_FOLDER);
    make_folder(&old)?;
    move_all(folder, &old)
}

/// Moves what was made of the new copy into the data folder, and what was served to where it
/// belongs; returns where it was set aside, if it was.
pub fn move_in(folder: &Path, old: OldContent, now_ms: u64) -> io::Result<Option<String>> {
    let new = folder.join(NEW_FOLDER);
    if new.try_exists()? {
        move_all(&new, folder)?;
    }
    match old {
        OldContent::Removed => Ok(None),
        OldContent::SetAside => set_aside(folder, now_ms),
    }
}

/// Removes what is left of a copy that was not used or is in its place, and of what was served
/// before it.
pub fn remove_remains(folder: &Path) -> io::Result<()> {
    for name in [COPY_FOLDER, NEW_FOLDER, OLD_FOLDER] {
        remove_folder(&folder.join(name))?;
    }
    Ok(())
}

/// Removes what is there, but for what stays in any case.
pub fn clear(folder: &Path) -> io::Result<()> {
    remove_remains(folder)?;
    for entry in content(folder)? {
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Returns whether nothing is there but what stays in any case.
pub fn is_empty(folder: &Path) -> io::Result<bool> {
    Ok(content(folder)?.is_empty())
}

/// The files and folders of a data folder but those that stay in any case.
fn content(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let mut content = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if !STAYS.iter().any(|stays| name == *stays) {
            content.push(entry);
        }
    }
    Ok(content)
}

fn move_all(from: &Path, to: &Path) -> io::Result<()> {
    for entry in content(from)? {
        fs::rename(entry.path(), to.join(entry.file_name()))?;
    }
    // First where they are now: at no moment a loss of power takes them from both.
    File::open(to)?.sync_all()?;
    File::open(from)?.sync_all()
}

/// Moves what was served to where it is removed after some days, like all that is set aside.
fn set_aside(folder: &Path, now_ms: u64) -> io::Result<Option<String>> {
    let old = folder.join(OLD_FOLDER);
    if !old.try_exists()? || is_empty(&old)? {
        return Ok(None);
    }
    let aside = folder.join(SET_ASIDE_FOLDER);
    make_folder(&aside)?;
    let place = aside.join(format!("{now_ms:014}-replica"));
    fs::rename(&old, &place)?;
    File::open(&aside)?.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(Some(place.display().to_string()))
}

/// Makes a folder where there is none, on the device.
fn make_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    File::open(above.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("it is there");
        let mut names: Vec<_> = entries
            .map(|entry| {
                let name = entry.expect("it can be read").file_name();
                name.into_string().expect("a plain name")
            })
            .collect();
        names.sort();
        names
    }

    fn fill(folder: &Path, content: &str) {
        for name in ["pelton-data", "1.log", LOCK_NAME] {
            fs::write(folder.join(name), content).expect("there is room");
        }
        fs::create_dir(folder.join("blobs")).expect("there is room");
        fs::write(folder.join("blobs/1"), content).expect("there is room");
    }

    fn check(folder: &Path, content: &str) {
        for name in ["pelton-data", "1.log", "blobs/1"] {
            let found = fs::read_to_string(folder.join(name)).expect("it is there");
            assert_eq!(found, content, "{name}");
        }
    }

    /// Renames so many of what a step moves, as if it had ended then.
    fn move_some(from: &Path, to: &Path, count: usize) {
        for entry in content(from).expect("it is there").iter().take(count) {
            fs::rename(entry.path(), to.join(entry.file_name())).expect("there is room");
        }
    }

    #[test]
    fn a_move_that_was_cut_anywhere_is_carried_out_when_it_is_repeated() {
        let name = format!("pelton-placing-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let (new, old) = (folder.join(NEW_FOLDER), folder.join(OLD_FOLDER));
        for what in [OldContent::SetAside, OldContent::Removed] {
            for (out, moved_in) in [(0, 0), (1, 0), (2, 1), (3, 2), (3, 3)] {
                fs::create_dir_all(&new).expect("a writable folder");
                fill(&folder, "old");
                fill(&new, "new");
                fs::write(folder.join(REPLICA_ID_NAME), "id").expect("there is room");
                make_place(&folder).expect("there is nothing in the way");
                fs::create_dir(&old).expect("there is room");
                move_some(&folder, &old, out);
                move_out(&folder).expect("there is room");
                check(&old, "old");
                move_some(&new, &folder, moved_in);
                let place = move_in(&folder, what, 7).expect("there is room");
                check(&folder, "new");
                let again = move_in(&folder, what, 8).expect("there is room");
                assert_eq!(again, None, "nothing is set aside twice");
                match place {
                    None => assert_eq!(what, OldContent::Removed),
                    Some(place) => check(Path::new(&place), "old"),
                }
                remove_remains(&folder).expect("it can be removed");
                let found = names(&folder);
                let is_aside = found.iter().any(|name| name == SET_ASIDE_FOLDER);
                assert_eq!(is_aside, what == OldContent::SetAside);
                assert!(found.iter().any(|name| name == REPLICA_ID_NAME));
                assert_eq!(found.len(), 5 + usize::from(is_aside), "{found:?}");
                fs::remove_dir_all(&folder).expect("it is there");
            }
        }
    }
}
