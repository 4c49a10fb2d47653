//! Begins, makes and opens trees.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::TreeError;
use super::folder::Trees;
use super::generation::Generation;
use super::index::{SharedTree, TreeIndex};
use super::known::KnownTables;
use super::manifest;
use super::numbers::Counters;
use super::opening::{self, HeldTreeFiles};
use super::writer::TreeWriter;

impl Trees {
    /// Begins an empty tree without a folder, which costs no time: it is [made](TreeIndex::make) by
    /// somebody who may wait for the device. Until then its memtable has all of it, and the log
    /// must keep what is in there. `older` is the generation before, if there is one.
    pub fn begin(&self, generation: Generation, older: Option<&TreeIndex>) -> TreeWriter {
        let (lineage, tickets) = match older {
            Some(older) => (older.shared.lineage, older.shared.tickets.clone()),
            None => (generation, Arc::default()),
        };
        let folder = self.path_of(generation);
        let shared = SharedTree::new(self, folder, generation, (lineage, tickets), None);
        let index = TreeIndex::new(shared);
        index.shared.show(generation.sequence);
        TreeWriter::new(&index)
    }

    /// Makes an empty tree: [begins](Trees::begin) and makes it.
    pub fn create(&self, generation: Generation) -> Result<TreeWriter, TreeError> {
        let writer = self.begin(generation, None);
        writer.index().make()?;
        Ok(writer)
    }

    /// Makes an empty tree under an unfinished name, of which no start takes notice, to be filled
    /// by [`TreeWriter::load`]. It must be closed, all handles of it, before it is
    /// [named](Trees::name).
    pub fn prepare(&self, generation: Generation) -> Result<TreeWriter, TreeError> {
        self.check_place()?;
        let folder = self.unfinished(generation);
        self.make_folder()?;
        self.remove_if_there(&folder)?;
        self.open_folder(folder, generation)
    }

    /// Gives a prepared tree its name, on the device, and opens it. A start removes what the log
    /// does not know.
    pub fn name(&self, generation: Generation) -> Result<TreeWriter, TreeError> {
        let folder = self.path_of(generation);
        self.finish_folder(generation, &folder)?;
        self.open_generation(generation)
    }

    /// Opens a tree. Its memtables are empty: what is behind its
    /// [`persisted_sequence`](TreeIndex::persisted_sequence) must be put again.
    pub fn open_generation(&self, generation: Generation) -> Result<TreeWriter, TreeError> {
        let folder = self.path_of(generation);
        opening::check_types(&folder)?;
        manifest::check(&folder)?;
        remove_temporary(&folder).map_err(|error| TreeError::io(&folder, error))?;
        self.open_folder(folder, generation)
    }

    /// The same for a start that may be refused: all files stay, by a second name, until it is
    /// certain that it is not.
    pub(crate) fn open_held(
        &self,
        generation: Generation,
    ) -> Result<(TreeWriter, HeldTreeFiles), TreeError> {
        let folder = self.path_of(generation);
        // Before anything is made beside it.
        opening::check_types(&folder)?;
        let held = HeldTreeFiles::hold(&folder, self.held(generation));
        Ok((self.open_generation(generation)?, held))
    }

    fn open_folder(
        &self,
        folder: PathBuf,
        generation: Generation,
    ) -> Result<TreeWriter, TreeError> {
        let (counters, stop) = (Counters::default(), Arc::default());
        let tree = self.engine(&folder, &counters, &stop)?;
        let known = KnownTables::check(&folder, self.origin(generation), &tree)?;
        let origin = (generation, Arc::default());
        let engine = Some((tree, counters, stop));
        let shared = SharedTree::new(self, folder, generation, origin, engine);
        *shared.known_tables.lock() = known;
        let index = TreeIndex::new(shared);
        index.shared.show(index.persisted_sequence());
        Ok(TreeWriter::new(&index))
    }
}

/// The engine replaces a small file by a temporary one; a crash may leave that. What cannot be
/// removed is in nobody's way, and goes at a later start.
fn remove_temporary(folder: &Path) -> io::Result<()> {
    for file in fs::read_dir(folder)? {
        let file = file?;
        if file
            .file_name()
            .to_string_lossy()
            .starts_with(opening::TEMPORARY)
        {
            let _ = fs::remove_file(file.path());
        }
    }
    Ok(())
}
