//! Folders that look like the `/` of a machine.

use std::fs;
use std::path::PathBuf;

/// A folder that looks like the `/` of a machine with these files.
pub fn machine(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let name = format!("pelton-machine-{name}-{}", std::process::id());
    let root = std::env::temp_dir().join(name);
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("every file lies in a folder"))
            .expect("folder is made");
        fs::write(path, content).expect("file is written");
    }
    root
}
