//! Reads the folder of a tree that nobody has open, as a whole, and changes nothing.

use std::fs;
use std::io;
use std::path::Path;

use super::error::TreeError;
use super::generation::Generation;
use super::known::{Origin, bytes_of, checksum_of, path_of};
use super::{anew, known, manifest, opening};

/// What is in the folder of a tree that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeReport {
    /// The number of its list of tables.
    pub list: u64,
    /// Tables in that list.
    pub tables: u64,
    /// Bytes of these tables.
    pub bytes: u64,
}

/// Reads everything in the folder of a tree with its checksums. It may have no list with a lower
/// number than `least`, unless it was begun anew since a snapshot of `base_sequence`.
///
/// # Errors
/// If the folder is missing, an older copy, or damaged, with the file that is; or if it cannot be
/// read.
pub(crate) fn verify(
    folder: &Path,
    (generation, owner): (Generation, u64),
    least: u64,
    base_sequence: u64,
) -> Result<TreeReport, TreeError> {
    if let Err(error) = fs::symlink_metadata(folder)
        && error.kind() == io::ErrorKind::NotFound
    {
        let folder = folder.into();
        return Err(TreeError::Missing { folder });
    }
    opening::check_types(folder)?;
    known::check_origin(folder, Origin { generation, owner })?;
    let list = manifest::check(folder)?;
    let is_newer = || anew::noted(folder).is_some_and(|anew| base_sequence <= anew.behind);
    if list.number < least && !is_newer() {
        return Err(TreeError::Older {
            folder: folder.into(),
            list: list.number,
            least,
        });
    }
    let mut report = TreeReport {
        list: list.number,
        tables: 0,
        bytes: 0,
    };
    for (id, checksum) in tables_of(folder, &list)? {
        if let Some(what) = wrong_with(folder, id, checksum)? {
            return Err(TreeError::damaged(folder, what));
        }
        report.tables += 1;
        let path = path_of(folder, id);
        report.bytes += bytes_of(&path).map_err(|error| TreeError::io(&path, error))?;
    }
    Ok(report)
}

/// Why the engine has not opened a tree: with the file that is to blame, where it can be found.
pub(super) fn not_opened(folder: &Path, error: lsm_tree::Error) -> TreeError {
    let error = TreeError::engine(folder, error);
    if !error.is_of_damage() && !error.may_be_of_content() {
        return error;
    }
    match find_wrong(folder) {
        Some(wrong) => TreeError::damaged(folder, wrong),
        None => error,
    }
}

/// The first table in the list that is not there or has changed, in words. `None`: there is none,
/// or nobody can say.
fn find_wrong(folder: &Path) -> Option<String> {
    let list = manifest::check(folder).ok()?;
    let tables = tables_of(folder, &list).ok()?;
    let wrong = |(id, checksum)| wrong_with(folder, id, checksum).ok().flatten();
    tables.into_iter().find_map(wrong)
}

fn tables_of(folder: &Path, list: &manifest::TableList) -> Result<Vec<(u64, u128)>, TreeError> {
    list.tables().ok_or_else(|| {
        let what = format!("`v{}`, the list of tables, makes no sense", list.number);
        TreeError::damaged(folder, what)
    })
}

fn wrong_with(folder: &Path, id: u64, checksum: u128) -> Result<Option<String>, TreeError> {
    let path = path_of(folder, id);
    match checksum_of(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Some(format!("`tables/{id}` is missing")))
        }
        Err(error) => Err(TreeError::io(&path, error)),
        Ok(found) if found != checksum => Ok(Some(format!(
            "`tables/{id}` has changed since it was written, or was cut"
        ))),
        Ok(_) => Ok(None),
    }
}
