//! The packages of the workspace, read once for all checks.

use std::collections::BTreeMap;

use crate::modules::Modules;
use crate::sizes::{self, Size};
use crate::source::Tree;

/// The files of the workspace, and the Rust packages among them.
pub struct Workspace {
    /// All files.
    pub tree: Tree,
    /// The packages, in the order of their folders.
    pub packages: Vec<Package>,
}

/// A Rust package.
pub struct Package {
    /// Its folder.
    pub folder: String,
    /// The modules of its library and of its program.
    pub programs: Vec<Modules>,
    /// The size of each file that is compiled into what ships.
    pub sizes: BTreeMap<String, Size>,
}

impl Workspace {
    /// Reads all packages of a tree.
    pub fn read(tree: Tree) -> Result<Workspace, String> {
        let mut packages = Vec::new();
        for folder in tree.packages() {
            packages.push(Package::read(&tree, folder)?);
        }
        Ok(Workspace { tree, packages })
    }

    /// Makes a workspace of paths and texts.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Workspace {
        Workspace::read(Tree::of(files)).unwrap()
    }

    /// Returns the names and packages of the crates of the workspace.
    pub fn crates(&self) -> impl Iterator<Item = (&str, &Package)> {
        let packages = self.packages.iter();
        packages.filter_map(|package| {
            let name = package.folder.strip_prefix("crates/")?;
            (!name.contains('/')).then_some((name, package))
        })
    }
}

impl Package {
    fn read(tree: &Tree, folder: &str) -> Result<Package, String> {
        let mut programs = Vec::new();
        let mut sizes = BTreeMap::new();
        for root in ["lib.rs", "main.rs"] {
            let root = format!("{folder}/src/{root}");
            if tree.text(&root).is_some() {
                programs.push(Modules::read(tree, &root)?);
            }
        }
        for (_, module) in programs.iter().flat_map(Modules::iter) {
            if module.is_file {
                let text = tree.text(&module.file).unwrap_or_default();
                let size = sizes::of(text).map_err(|error| format!("{}: {error}", module.file))?;
                sizes.insert(module.file.clone(), size);
            }
        }
        Ok(Package {
            folder: folder.to_owned(),
            programs,
            sizes,
        })
    }

    /// Returns the size of the whole package.
    pub fn size(&self) -> Size {
        let mut sum = Size::default();
        for size in self.sizes.values() {
            sum.lines += size.lines;
            sum.assertions += size.assertions;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_package_is_that_of_its_files_without_tests() {
        let workspace = Workspace::of(&[
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod tests;"),
            ("crates/a/src/b.rs", "fn f() {\n    debug_assert!(true);\n}"),
            ("crates/a/src/tests.rs", "fn f() {}"),
        ]);
        let expected = Size {
            lines: 4,
            assertions: 1,
        };
        let (name, package) = workspace.crates().next().unwrap();
        assert_eq!((name, package.size()), ("a", expected));
    }
}
