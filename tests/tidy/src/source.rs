//! The files of the workspace.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use syn::{Attribute, ImplItem, Item, TraitItem};

/// The text files of a workspace by their paths, relative to its root.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

const EXTENSIONS: [&str; 5] = ["rs", "py", "md", "proto", "toml"];

/// The folder of scripts, which are read also without an extension.
const SCRIPTS: &str = "script/";

/// Returns the extension of a file's name; empty: it has none.
pub fn extension_of(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

impl Tree {
    /// Reads the files that git knows, or would add.
    pub fn read(root: &Path) -> Result<Tree, String> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others"])
            .arg("--exclude-standard")
            .current_dir(root)
            .output()
            .map_err(|error| format!("git ls-files: {error}"))?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(format!("git ls-files: {error}"));
        }
        let mut tree = Tree::default();
        for path in String::from_utf8_lossy(&output.stdout).split('\0') {
            let extension = extension_of(path);
            let is_script = extension.is_empty() && path.starts_with(SCRIPTS);
            // A file that was deleted and not committed is still listed.
            if (EXTENSIONS.contains(&extension) || is_script) && root.join(path).is_file() {
                let text = std::fs::read_to_string(root.join(path));
                let text = text.map_err(|error| format!("{path}: {error}"))?;
                tree.files.insert(path.to_owned(), text);
            }
        }
        Ok(tree)
    }

    /// Makes a tree of paths and texts.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|&(path, text)| (path.into(), text.into()));
        Tree {
            files: files.collect(),
        }
    }

    /// Returns the text of a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Returns all files and their texts.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter();
        files.map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns the files whose paths end in one of the extensions.
    pub fn with_extension(&self, extensions: &[&str]) -> impl Iterator<Item = (&str, &str)> {
        let is_wanted = move |path: &str| extensions.contains(&extension_of(path));
        let files = self.files.iter();
        files
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .filter(move |(path, _)| is_wanted(path))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Returns the folders of all Rust packages but those of fixtures.
    pub fn packages(&self) -> Vec<&str> {
        let manifests = self.files.keys();
        let folders = manifests.filter_map(|path| path.strip_suffix("/Cargo.toml"));
        folders.filter(|path| !path.contains("fixture")).collect()
    }

    /// Returns the names of the crates of the workspace: the folders in `crates`.
    pub fn crates(&self) -> Vec<&str> {
        let folders = self.packages().into_iter();
        let names = folders.filter_map(|folder| folder.strip_prefix("crates/"));
        names.filter(|name| !name.contains('/')).collect()
    }
}

/// Parses a Rust file.
pub fn parse(path: &str, text: &str) -> Result<syn::File, String> {
    let named = |error: syn::Error| format!("{path}:{}: {error}", error.span().start().line);
    syn::parse_file(text).map_err(named)
}

/// Returns whether an item is compiled for tests only: `#[test]`, or a `cfg` that names `test`
/// without `not`.
pub fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("test") {
            return true;
        }
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        let condition = list.tokens.to_string();
        let mut words = condition.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '"');
        let names_test = words.any(|word| word == "test");
        list.path.is_ident("cfg") && names_test && !condition.contains("not")
    })
}

/// Removes the items that are compiled for tests only.
pub fn prune_tests(items: &mut Vec<Item>) {
    items.retain(|item| !is_test_only(attributes(item)));
    for item in items {
        match item {
            Item::Mod(module) => {
                if let Some((_, items)) = &mut module.content {
                    prune_tests(items);
                }
            }
            Item::Impl(block) => block.items.retain(|item| match item {
                ImplItem::Fn(function) => !is_test_only(&function.attrs),
                ImplItem::Const(constant) => !is_test_only(&constant.attrs),
                _ => true,
            }),
            Item::Trait(block) => block.items.retain(|item| match item {
                TraitItem::Fn(function) => !is_test_only(&function.attrs),
                _ => true,
            }),
            _ => {}
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pruned(text: &str) -> usize {
        let mut file = syn::parse_file(text).unwrap();
        prune_tests(&mut file.items);
        file.items.len()
    }

    #[test]
    fn items_for_tests_are_removed() {
        assert_eq!(pruned("#[cfg(test)] mod tests; #[test] fn a() {}"), 0);
        assert_eq!(
            pruned("#[cfg(any(test, feature = \"suite\"))] mod suite;"),
            0
        );
    }

    #[test]
    fn items_that_ship_are_kept() {
        assert_eq!(
            pruned("#[cfg(not(test))] fn a() {} #[cfg(unix)] fn b() {}"),
            2
        );
        assert_eq!(pruned("#[cfg(feature = \"test\")] fn a() {}"), 1);
    }

    #[test]
    fn packages_are_folders_with_a_manifest() {
        let tree = Tree::of(&[
            ("Cargo.toml", ""),
            ("crates/wire/Cargo.toml", ""),
            ("tests/tidy/Cargo.toml", ""),
            ("tests/mutants/fixture/plain/Cargo.toml", ""),
        ]);
        assert_eq!(tree.packages(), ["crates/wire", "tests/tidy"]);
        assert_eq!(tree.crates(), ["wire"]);
    }
}
