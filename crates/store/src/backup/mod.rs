//! Backups: a copy of all databases as they were at one commit, made while commits go on, and a new
//! data folder made of such a copy.
//!
//! Design: docs/internals/commit-and-log.md, "Backups". No threads and no clocks: the owner of the
//! values calls each step.

pub mod limits;

mod blobs;
mod check;
mod copy;
mod error;
mod file_entry;
mod making;
mod manifest;
mod replica_copy;
mod restore;
mod root;
mod run;
mod trees;

pub use check::{Verified, verify};
pub use error::{BackupError, RestoreError};
pub use file_entry::FileEntry;
pub use making::{BackupProgress, BackupReport};
pub use manifest::{MANIFEST_NAME, Manifest, ManifestError};
pub use replica_copy::{
    COPIES_FOLDER, CopiedFile, ReplicaCopy, ReplicaCopyError, remove_left_copies,
};
pub use restore::{RestoreConfig, Restored, new_folder, restore};
pub use root::BackupRoot;
pub use run::{BackupJob, BackupStep, BackupWatch};
