//! Folders as values: tests of crashes keep them as they are, and put other states together.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The files below a folder, each with its content.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// All files below a folder.
///
/// # Panics
/// If it cannot be read.
pub fn read_folder(folder: &Path) -> Files {
    let mut files = Files::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for file in fs::read_dir(next).expect("it is there") {
            let path = file.expect("it is there").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("it is below");
                files.insert(name.into(), fs::read(&path).expect("it is there"));
            }
        }
    }
    files
}

/// Puts these files into a folder, beside what is there.
///
/// # Panics
/// If they cannot be written.
pub fn write_folder(folder: &Path, files: &Files) {
    for (name, bytes) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("there is room");
        fs::write(path, bytes).expect("there is room");
    }
}
