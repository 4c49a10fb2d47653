//! What of a data folder must stay in its place while a server uses it, beside files of the log.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::folder::FolderFile;
use crate::database_id::DatabaseId;
use crate::store::Store;
use wal::PrepareError;

/// The folder's own file, and the trees of databases on disk: without them the next start is
/// refused, and what was written is out of reach or lost.
#[derive(Debug)]
pub(super) struct Places {
    folder_file: Arc<FolderFile>,
    store: Store,
}

impl Places {
    pub(super) fn new(folder_file: Arc<FolderFile>, store: Store) -> Places {
        Places { folder_file, store }
    }

    /// An error if something is surely no longer there. What cannot be looked at says nothing: the
    /// next look may.
    pub(super) fn check(&self) -> Result<(), PrepareError> {
        match self.missing() {
            Some(file) => Err(PrepareError::Removed { file }),
            None => Ok(()),
        }
    }

    fn missing(&self) -> Option<String> {
        if let Some(file) = self.folder_file.missing() {
            return Some(file);
        }
        let trees = self.store.trees()?;
        if trees.check_place().is_err() {
            return Some(trees.folder().display().to_string());
        }
        let databases = self.store.databases();
        let missing = |id| {
            let missing = missing_of(&self.folder_of(id)?)?;
            // It may have been dropped, cleared or converted meanwhile. No handle is kept for as
            // long as that takes: the last one removes a folder.
            let folder = self.folder_of(id)?;
            missing.starts_with(&folder).then_some(missing)
        };
        let missing = databases.iter().find_map(|database| missing(database.id))?;
        Some(missing.display().to_string())
    }

    /// The folder of a database on disk, if it was made.
    fn folder_of(&self, id: DatabaseId) -> Option<PathBuf> {
        let tree = self.store.tree(id)?;
        tree.is_made().then(|| tree.folder().to_owned())
    }
}

/// The folder of a tree, or that of its tables, if it is not there.
fn missing_of(folder: &Path) -> Option<PathBuf> {
    let is_missing = |path: &Path| match fs::metadata(path) {
        Ok(found) => !found.is_dir(),
        Err(error) => {
            [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind())
        }
    };
    let tables = folder.join("tables");
    if !is_missing(&tables) {
        return None;
    }
    Some(match is_missing(folder) {
        true => folder.to_owned(),
        false => tables,
    })
}
