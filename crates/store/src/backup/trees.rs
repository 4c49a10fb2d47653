//! The files of trees in a backup. A backup has no folders, so their paths become names:
//! `trees/3-17/tables/4` is `3.17.tables.4.tree`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use wal::disk::{Disk, RealDisk};

use super::copy::{GrowingFile, ReadFile};
use super::file_entry::FileEntry;
use crate::tree::{Generation, TreeError, TreeFile, TreeIndex};

/// What the names of these files end with.
pub(super) const SUFFIX: &str = ".tree";

/// The name in a backup of a file of a tree.
fn flat_name(generation: Generation, path: &Path) -> Option<String> {
    let path = path.to_str()?.replace('/', ".");
    let tree = generation.to_string().replace('-', ".");
    Some(format!("{tree}.{path}{SUFFIX}"))
}

/// Where a file belongs, within the folder of trees.
pub(super) fn path_of(name: &str) -> Option<PathBuf> {
    let (database, rest) = name.strip_suffix(SUFFIX)?.split_once('.')?;
    let (sequence, path) = rest.split_once('.')?;
    let tree = format!("{database}-{sequence}");
    let path = path.split('.');
    // Nothing may lead elsewhere.
    path.clone()
        .all(|part| !part.is_empty())
        .then(|| Path::new(&tree).join(path.collect::<PathBuf>()))
}

/// A temporary file in the folder of a tree, which some backups have.
const STRAY_PATH: &str = ".tmp-known-tables";

/// Whether a file is one that an earlier version took into a backup although nothing needs it: a
/// temporary file that was there for a moment, or was left by a full disk. It is checked as all
/// files are, and restored nowhere.
pub(super) fn is_stray(name: &str) -> bool {
    let tree = name
        .strip_suffix(SUFFIX)
        .and_then(|path| path.strip_suffix(STRAY_PATH))
        .and_then(|tree| tree.strip_suffix('.'));
    let parts = tree.and_then(|tree| tree.split_once('.'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    parts.is_some_and(|(database, sequence)| is_number(database) && is_number(sequence))
}

/// Trees that are being copied.
#[derive(Debug)]
pub(super) struct Copying {
    trees: Vec<TreeIndex>,
    /// Files that are there and were not read yet.
    unread: Vec<String>,
    reading: Option<ReadFile>,
    pub(super) bytes: u64,
}

/// What a step of that has come to.
pub(super) enum CopyStep {
    /// These files are there now.
    Begun(Vec<String>),
    /// Something was read.
    More,
    /// This one is complete.
    File(FileEntry),
    Done,
}

/// Why a tree was not copied.
pub(super) enum CopyError {
    Tree(TreeError),
    Device { name: String, source: io::Error },
}

impl Copying {
    pub(super) fn new(trees: Vec<TreeIndex>) -> Copying {
        Copying {
            trees,
            unread: Vec::new(),
            reading: None,
            bytes: 0,
        }
    }

    /// Links the files of a tree, or reads a piece of one.
    pub(super) fn step(&mut self, target: &dyn Disk) -> Result<CopyStep, CopyError> {
        if let Some(file) = &mut self.reading {
            let name = file.entry().name.clone();
            let piece = file
                .next()
                .map_err(|source| CopyError::Device { name, source })?;
            self.bytes += piece.len() as u64;
            if !piece.is_empty() {
                return Ok(CopyStep::More);
            }
            let entry = file.entry().clone();
            self.reading = None;
            return Ok(CopyStep::File(entry));
        }
        if let Some(name) = self.unread.pop() {
            let file = ReadFile::open(target, &name);
            let file = file.map_err(|source| CopyError::Device { name, source })?;
            self.reading = Some(file);
            return Ok(CopyStep::More);
        }
        let Some(tree) = self.trees.pop() else {
            return Ok(CopyStep::Done);
        };
        let names = link(&tree, target)?;
        self.unread.clone_from(&names);
        Ok(CopyStep::Begun(names))
    }
}

/// Takes the files of a tree as it is between two changes of its set of tables: links its tables,
/// and copies what is small.
fn link(tree: &TreeIndex, target: &dyn Disk) -> Result<Vec<String>, CopyError> {
    let mut names = Vec::new();
    let mut problem = None;
    let walked = tree.visit_files(&mut |file| {
        let Some(name) = flat_name(tree.generation(), &file.path) else {
            return true;
        };
        match take(file, &name, target) {
            Ok(()) => names.push(name),
            Err(source) => problem = Some(CopyError::Device { name, source }),
        }
        problem.is_none()
    });
    walked.map_err(CopyError::Tree)?;
    problem.map_or(Ok(names), Err)
}

/// Only tables are linked: whatever else the engine writes, it may write over.
fn take(file: &TreeFile, name: &str, target: &dyn Disk) -> io::Result<()> {
    if file.is_table {
        return target.link_from(&file.place, name);
    }
    let mut copy = GrowingFile::create(target, name)?;
    copy.add(&fs::read(&file.place)?)?;
    copy.finish().map(drop)
}

/// A file in the folder of trees, to be filled. Its folders are made.
pub(super) fn create(trees: &Path, name: &str) -> io::Result<GrowingFile> {
    let bad = || io::Error::from(io::ErrorKind::InvalidInput);
    let path = path_of(name).ok_or_else(bad)?;
    let file = path
        .file_name()
        .and_then(|file| file.to_str())
        .ok_or_else(bad)?;
    let mut folder = RealDisk::open_or_create(trees)?;
    for part in path.parent().ok_or_else(bad)?.components() {
        folder = RealDisk::open_or_create(folder.path().join(part))?;
    }
    let made = GrowingFile::create(&folder, file)?;
    folder.sync_folder()?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database_id::DatabaseId;

    #[test]
    fn names_lead_back_to_where_a_file_was() {
        let generation = Generation {
            database: DatabaseId(3),
            sequence: 17,
        };
        for path in ["current", "v4", "tables/12"] {
            let name = flat_name(generation, Path::new(path)).expect("it is text");
            assert_eq!(path_of(&name), Some(Path::new("3-17").join(path)), "{name}");
        }
        for name in [
            "3.17.tree",
            "3.tree",
            "3.17..tree",
            "3.17.a..b.tree",
            "3.17.a",
        ] {
            assert_eq!(path_of(name), None, "{name}");
        }
    }
}
