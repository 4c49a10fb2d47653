//! The source files of a crate that are compiled into what ships, and their mutants.

use std::fs;
use std::path::{Path, PathBuf};

use crate::find::{self, Source};
use crate::mutant::Mutant;

/// Files that are left out unless they are asked for, with the reasons.
const EXCLUSIONS: &str = include_str!("../exclusions.txt");

/// Returns the parts of file names that are left out by default.
pub fn exclusions() -> Vec<&'static str> {
    let lines = EXCLUSIONS
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).collect()
}

/// Returns the mutants of a crate: of the file at `library` and of the modules that it names,
/// without those that are compiled for tests only. Files are relative to `root`.
pub fn mutants(root: &Path, library: &Path, excluded: &[&str]) -> Result<Vec<Mutant>, String> {
    let mut found = Vec::new();
    module_file(root, library, true, excluded, &mut found)?;
    Ok(found)
}

fn module_file(
    root: &Path,
    file: &Path,
    owns_folder: bool,
    excluded: &[&str],
    found: &mut Vec<Mutant>,
) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let syntax = syn::parse_file(&text)
        .map_err(|error| format!("{}:{}: {error}", file.display(), error.span().start().line))?;
    let relative = file.strip_prefix(root).unwrap_or(file);
    let name = relative.to_string_lossy();
    if !excluded.iter().any(|part| name.contains(part)) {
        found.extend(find::mutants(&Source {
            file: relative,
            text: &text,
            syntax: &syntax,
        }));
    }
    let parent = file.parent().unwrap_or(root);
    let folder = match owns_folder {
        true => parent.to_owned(),
        false => parent.join(file.file_stem().unwrap_or_default()),
    };
    modules(&syntax.items, root, parent, &folder, excluded, found)
}

/// Follows `mod name;` in a file and in its inline modules, whose files lie in `folder`.
fn modules(
    items: &[syn::Item],
    root: &Path,
    parent: &Path,
    folder: &Path,
    excluded: &[&str],
    found: &mut Vec<Mutant>,
) -> Result<(), String> {
    for item in items {
        let syn::Item::Mod(module) = item else {
            continue;
        };
        if find::is_test_only(&module.attrs) {
            continue;
        }
        let name = module.ident.to_string();
        if let Some((_, items)) = &module.content {
            modules(items, root, parent, &folder.join(&name), excluded, found)?;
        } else if let Some(path) = path_attribute(&module.attrs) {
            module_file(root, &parent.join(path), true, excluded, found)?;
        } else {
            let flat = folder.join(format!("{name}.rs"));
            let nested = folder.join(&name).join("mod.rs");
            let (file, owns_folder) = if flat.exists() {
                (flat, false)
            } else {
                (nested, true)
            };
            module_file(root, &file, owns_folder, excluded, found)?;
        }
    }
    Ok(())
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<PathBuf> {
    let attribute = attributes
        .iter()
        .find(|attribute| attribute.path().is_ident("path"))?;
    let syn::Meta::NameValue(meta) = &attribute.meta else {
        return None;
    };
    let syn::Expr::Lit(literal) = &meta.value else {
        return None;
    };
    let syn::Lit::Str(path) = &literal.lit else {
        return None;
    };
    Some(PathBuf::from(path.value()))
}
