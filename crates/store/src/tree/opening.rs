//! What a start does before the engine opens the folder of a tree.
//!
//! The engine (3.1.10) takes the types of files for granted, and ends the process where a table is
//! a folder. And it removes, as it opens a folder, whatever the list of tables does not name. So
//! the types are checked here; and what may be removed is kept by a second name until it is certain
//! that the server starts: a start that is refused leaves all as it was.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::error::TreeError;
use super::{anew, known};

/// The folder of tables within that of a tree.
pub(super) const TABLES: &str = "tables";

/// What the engine looks over in the folder of tables.
const FOREIGN: [&str; 2] = [".DS_Store", "._"];

/// The file that names the list of tables.
pub(super) const CURRENT: &str = "current";

/// Whether the engine reads what is at this path within the folder of a tree: the lists of tables,
/// the name of the one that holds, and the tables with their folder.
fn is_of_engine(path: &Path) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(path) = path.to_str() else {
        return false;
    };
    match path.split_once('/') {
        None => path == CURRENT || path == TABLES || path.strip_prefix('v').is_some_and(is_number),
        Some((folder, table)) => folder == TABLES && is_number(table),
    }
}

/// Fails unless everything that is read in a folder is of the type that it takes for granted.
pub(super) fn check_types(folder: &Path) -> Result<(), TreeError> {
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => {}
        // A link to nothing, or in a ring, is none either. What the device does not let us see may
        // be one.
        Err(error) if !is_of_link(&error) => return Err(TreeError::io(folder, error)),
        _ => return Err(TreeError::damaged(folder, "it is not a folder")),
    }
    for name in names(folder)? {
        let is_read = name == CURRENT
            || name == known::NAME
            || name == anew::NAME
            || name.to_string_lossy().starts_with('v');
        if is_read && !type_of(folder, Path::new(&name))?.is_file() {
            return Err(is_no_file(folder, Path::new(&name)));
        }
    }
    // A copy of an empty tree has none, and the engine makes it.
    match fs::symlink_metadata(folder.join(TABLES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|error| TreeError::io(&folder.join(TABLES), error))?,
    };
    if !type_of(folder, Path::new(TABLES))?.is_dir() {
        return Err(TreeError::damaged(folder, "`tables` is not a folder"));
    }
    for name in names(&folder.join(TABLES))? {
        let path = Path::new(TABLES).join(&name);
        let text = name.to_string_lossy();
        if FOREIGN.iter().any(|foreign| text.starts_with(foreign)) {
            continue;
        }
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            let what = format!(
                "`{}` is not the name of a table: if somebody else put it there, move it away",
                path.display()
            );
            return Err(TreeError::damaged(folder, what));
        }
        if !type_of(folder, &path)?.is_file() {
            return Err(is_no_file(folder, &path));
        }
    }
    Ok(())
}

/// In front of the names of temporary files, of the engine and of this module.
pub(super) const TEMPORARY: &str = ".tmp";

/// Whether a name in the folder of a tree is one that this program, or the engine, gives.
pub(super) fn is_ours(name: &str) -> bool {
    let path = Path::new(name);
    let is_noted = name == known::NAME || name == anew::NAME;
    is_noted || name.starts_with(TEMPORARY) || is_of_engine(path)
}

/// Whether a name in the folder of tables is one that the engine gives, or that nobody misses.
pub(super) fn is_table(name: &str) -> bool {
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    is_number || FOREIGN.iter().any(|foreign| name.starts_with(foreign))
}

/// Whether everything in the folder of a tree has a name and a type that this program gives: what
/// somebody else has put there is not to be removed.
pub(super) fn has_only_ours(folder: &Path) -> io::Result<bool> {
    // A link leads to what is somebody else's.
    if !fs::symlink_metadata(folder)?.is_dir() {
        return Ok(false);
    }
    for file in fs::read_dir(folder)? {
        let file = file?;
        let name = file.file_name();
        let is_folder = file.file_type()?.is_dir();
        if is_folder != (name == TABLES) || !name.to_str().is_some_and(is_ours) {
            return Ok(false);
        }
        if !is_folder {
            continue;
        }
        for table in fs::read_dir(file.path())? {
            let table = table?;
            let is_one = table.file_name().to_str().is_some_and(is_table);
            if !is_one || table.file_type()?.is_dir() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Whether a path leads nowhere.
fn is_of_link(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

fn is_no_file(folder: &Path, name: &Path) -> TreeError {
    TreeError::damaged(folder, format!("`{}` is not a file", name.display()))
}

/// What is there, behind links.
fn type_of(folder: &Path, name: &Path) -> Result<Metadata, TreeError> {
    let path = folder.join(name);
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let what = match path.is_symlink() {
                true => format!("`{}` is a link to nothing", name.display()),
                false => format!("`{}` is missing", name.display()),
            };
            Err(TreeError::damaged(folder, what))
        }
        found => found.map_err(|error| TreeError::io(&path, error)),
    }
}

fn names(folder: &Path) -> Result<Vec<OsString>, TreeError> {
    let read = || -> io::Result<Vec<OsString>> {
        let files = fs::read_dir(folder)?;
        files.map(|file| Ok(file?.file_name())).collect()
    };
    read().map_err(|error| TreeError::io(folder, error))
}

/// Whether opening a tree may remove a file of this name, in its folder or in the one of tables
/// within.
fn may_be_removed(part: &str, name: &str) -> bool {
    match part {
        TABLES => is_table(name),
        // The engine takes whatever begins with this letter for a list of tables.
        _ => name.starts_with('v') || name.starts_with(TEMPORARY),
    }
}

/// The files of a tree under second names, until it is certain that the server starts. Dropped
/// before, it puts those back that were removed.
#[derive(Debug)]
pub(crate) struct HeldTreeFiles {
    /// The folder of the tree.
    folder: PathBuf,
    /// Where the second names are.
    held: PathBuf,
    had_tables: bool,
    is_released: bool,
}

impl HeldTreeFiles {
    /// Gives the files of a tree that may be removed a second name. Where files cannot have one,
    /// this does nothing: what the engine removes is of
    /// no use to anybody.
    pub(super) fn hold(folder: &Path, held: PathBuf) -> HeldTreeFiles {
        let this = HeldTreeFiles {
            folder: folder.into(),
            held,
            had_tables: folder.join(TABLES).exists(),
            is_released: false,
        };
        let _ = this.link();
        this
    }

    fn link(&self) -> io::Result<()> {
        // A start that has ended in between may have left them here alone.
        let _ = self.put_back_others();
        let _ = fs::remove_dir_all(&self.held);
        for part in ["", TABLES] {
            let (from, to) = (self.folder.join(part), self.held.join(part));
            fs::create_dir(&to)?;
            if part == TABLES && !self.had_tables {
                continue;
            }
            for file in fs::read_dir(from)? {
                let file = file?;
                let name = file.file_name();
                if file.file_type()?.is_file() && may_be_removed(part, &name.to_string_lossy()) {
                    fs::hard_link(file.path(), to.join(file.file_name()))?;
                }
            }
        }
        Ok(())
    }

    /// The server starts: what was removed is of no use, but for files of somebody else. Returns
    /// the tables that were removed since no list names them.
    pub(crate) fn release(mut self) -> Vec<PathBuf> {
        self.is_released = true;
        let strays = self.strays().unwrap_or_default();
        // What cannot be removed now goes at the next start.
        if self.put_back_others().is_ok() {
            let _ = fs::remove_dir_all(&self.held);
        }
        strays
    }

    fn strays(&self) -> io::Result<Vec<PathBuf>> {
        let mut strays = Vec::new();
        for file in fs::read_dir(self.held.join(TABLES))? {
            let table = self.folder.join(TABLES).join(file?.file_name());
            if !table.try_exists()? {
                strays.push(table);
            }
        }
        strays.sort();
        Ok(strays)
    }

    /// Puts back what the engine took for a list of tables, by its first letter, and what is none.
    fn put_back_others(&self) -> io::Result<()> {
        for file in fs::read_dir(&self.held)? {
            let name = file?.file_name();
            let to = self.folder.join(&name);
            if !name.to_str().is_some_and(is_ours) && !to.try_exists()? {
                fs::rename(self.held.join(&name), to)?;
            }
        }
        Ok(())
    }

    fn put_back(&self) -> io::Result<()> {
        if !self.had_tables {
            fs::remove_dir(self.folder.join(TABLES))?;
        }
        for part in ["", TABLES] {
            let (from, to) = (self.held.join(part), self.folder.join(part));
            for file in fs::read_dir(from)? {
                let file = file?;
                let name = to.join(file.file_name());
                if file.file_type()?.is_file() && !name.exists() {
                    fs::rename(file.path(), name)?;
                }
            }
        }
        fs::remove_dir_all(&self.held)
    }
}

impl Drop for HeldTreeFiles {
    fn drop(&mut self) {
        if !self.is_released {
            // What cannot be put back is of no use, and what is left goes at the next start.
            let _ = self.put_back();
        }
    }
}
