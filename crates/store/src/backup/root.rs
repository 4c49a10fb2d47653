//! The folder that holds backups, on the file system.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use wal::disk::RealDisk;

/// The folder under which backups are made, each in a folder of its own.
#[derive(Clone, Debug)]
pub struct BackupRoot {
    path: PathBuf,
}

impl BackupRoot {
    /// The root at this path, which is made if there is none; its parent must exist.
    pub fn open(path: &Path) -> io::Result<BackupRoot> {
        RealDisk::open_or_create(path)?;
        // The folder in which the server was started may be another one to whoever reads the path.
        let path = fs::canonicalize(path)?;
        Ok(BackupRoot { path })
    }

    /// Where the backup of a name is.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes the folder of a new backup; [`io::ErrorKind::AlreadyExists`] if there is one.
    ///
    /// # Panics
    /// If the name leads elsewhere: callers check names.
    pub fn create(&self, name: &str) -> io::Result<RealDisk> {
        assert!(
            !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']),
            "names of backups are checked before"
        );
        let path = self.path_of(name);
        fs::create_dir(&path)?;
        let opened = self.sync().and_then(|()| RealDisk::open(&path));
        if opened.is_err() {
            let _ = fs::remove_dir(&path);
        }
        opened
    }

    /// Removes the folder of a backup that was given up, with what is left in it: links of tables,
    /// if what failed was to make or to list them.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_dir_all(self.path_of(name))?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}
