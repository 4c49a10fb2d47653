//! The workspace whose crate is mutated, and the copy in which it is built.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A crate of the workspace.
#[derive(Debug)]
pub struct Package {
    /// The name for `cargo -p`.
    pub name: String,
    /// The file of the library's root module, if there is a library.
    pub library: Option<PathBuf>,
    names: Vec<String>,
}

/// Returns the packages of the workspace in a folder.
pub fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let metadata: Value = serde_json::from_str(&text).map_err(|error| {
        format!(
            "cargo metadata: {error}: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })?;
    let packages = metadata["packages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    Ok(packages.iter().map(package).collect())
}

fn package(value: &Value) -> Package {
    let name = value["name"].as_str().unwrap_or_default().to_owned();
    let targets = value["targets"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let library = targets.iter().find(|target| {
        target["kind"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind == "lib"))
    });
    let mut names = vec![name.clone()];
    names.extend(
        library
            .and_then(|library| library["name"].as_str())
            .map(str::to_owned),
    );
    let library = library
        .and_then(|library| library["src_path"].as_str())
        .map(PathBuf::from);
    Package {
        name,
        library,
        names,
    }
}

/// Finds a package by its own name or by that of its library.
pub fn find<'a>(packages: &'a [Package], name: &str) -> Result<&'a Package, String> {
    packages
        .iter()
        .find(|package| package.names.iter().any(|own| own == name))
        .ok_or_else(|| {
            let names: Vec<&str> = packages
                .iter()
                .map(|package| package.name.as_str())
                .collect();
            format!(
                "there is no package {name}; the workspace has {}",
                names.join(", ")
            )
        })
}

/// Copies the files that git knows, or would add, into a folder, and removes all others from it.
/// A file with the right content is left alone, so that cargo builds only what has changed.
pub fn copy(root: &Path, to: &Path, instead: &[(PathBuf, String)]) -> Result<(), String> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .map_err(|error| format!("git ls-files: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "git ls-files: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let mut kept = HashSet::new();
    for name in output
        .stdout
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let name = PathBuf::from(String::from_utf8_lossy(name).into_owned());
        // A file that was deleted and not committed is still listed; folders are submodules.
        if !root.join(&name).is_file() {
            continue;
        }
        let content = match instead.iter().find(|(file, _)| *file == name) {
            Some((_, text)) => text.clone().into_bytes(),
            None => read(&root.join(&name))?,
        };
        write_changed(&to.join(&name), &content)?;
        keep_mode(&root.join(&name), &to.join(&name))?;
        kept.insert(to.join(&name));
    }
    remove_others(to, &kept)
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn write_changed(file: &Path, content: &[u8]) -> Result<(), String> {
    if fs::read(file).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    fs::write(file, content).map_err(|error| format!("{}: {error}", file.display()))
}

fn keep_mode(from: &Path, to: &Path) -> Result<(), String> {
    let mode = fs::metadata(from).map(|metadata| metadata.permissions());
    mode.and_then(|mode| fs::set_permissions(to, mode))
        .map_err(|error| format!("{}: {error}", to.display()))
}

fn remove_others(folder: &Path, kept: &HashSet<PathBuf>) -> Result<(), String> {
    let named = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(named)? {
        let entry = entry.map_err(named)?;
        if entry.file_type().map_err(named)?.is_dir() {
            remove_others(&entry.path(), kept)?;
        } else if !kept.contains(&entry.path()) {
            fs::remove_file(entry.path()).map_err(named)?;
        }
    }
    Ok(())
}
