//! Names of types: a generic one is for one type of the workspace.

use std::collections::{BTreeMap, BTreeSet};

use syn::Item;
use syn::visit::{self, Visit};

use crate::modules::Modules;
use crate::violation::Violation;
use crate::workspace::Workspace;

const GENERIC: &str = include_str!("../type-names.txt");

/// A type that is defined in code that ships.
#[derive(Debug)]
struct Definition {
    name: String,
    krate: String,
    file: String,
    line: usize,
}

/// How many types a crate defines, and how many have a name that others have too.
#[derive(Debug, Default, PartialEq)]
pub struct SharedNames {
    /// All types of the crate.
    pub types: usize,
    /// Those with a name that is defined more than once in the workspace.
    pub shared: usize,
}

/// Returns the definitions of generic names that are defined more than once.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let generic: BTreeSet<&str> = GENERIC
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let definitions = definitions(workspace);
    let counts = counts(&definitions);
    let shared = definitions.iter().filter(|definition| {
        generic.contains(definition.name.as_str()) && counts[definition.name.as_str()] > 1
    });
    let violation = |definition: &Definition| {
        let Definition {
            name, file, line, ..
        } = definition;
        let times = counts[name.as_str()];
        let message = format!("the generic name `{name}` is defined {times} times: add its noun");
        Violation::new("type-names", file, *line, message)
    };
    shared.map(violation).collect()
}

/// Returns for each crate how many of its types share their names.
pub fn shared(workspace: &Workspace) -> BTreeMap<String, SharedNames> {
    let definitions = definitions(workspace);
    let counts = counts(&definitions);
    let mut crates: BTreeMap<String, SharedNames> = BTreeMap::new();
    for definition in &definitions {
        let names = crates.entry(definition.krate.clone()).or_default();
        names.types += 1;
        names.shared += usize::from(counts[definition.name.as_str()] > 1);
    }
    crates
}

fn counts(definitions: &[Definition]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for definition in definitions {
        *counts.entry(definition.name.as_str()).or_default() += 1;
    }
    counts
}

fn definitions(workspace: &Workspace) -> Vec<Definition> {
    let mut finder = Finder::default();
    for (name, package) in workspace.crates() {
        finder.krate = name.to_owned();
        for (_, module) in package.programs.iter().flat_map(Modules::iter) {
            finder.file = module.file.clone();
            for item in &module.items {
                finder.visit_item(item);
            }
        }
    }
    finder.found
}

#[derive(Default)]
struct Finder {
    krate: String,
    file: String,
    found: Vec<Definition>,
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        let ident = match item {
            Item::Enum(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            // Its items are visited as those of a module of their own.
            Item::Mod(_) => return,
            _ => return visit::visit_item(self, item),
        };
        self.found.push(Definition {
            name: ident.to_string(),
            krate: self.krate.clone(),
            file: self.file.clone(),
            line: ident.span().start().line,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(a: &str, b: &str) -> Workspace {
        Workspace::of(&[
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", a),
            ("crates/b/Cargo.toml", ""),
            ("crates/b/src/lib.rs", b),
        ])
    }

    fn found(a: &str, b: &str) -> Vec<String> {
        let violations = check(&workspace(a, b));
        let place = |violation: &Violation| format!("{}:{}", violation.file, violation.line);
        violations.iter().map(place).collect()
    }

    #[test]
    fn a_generic_name_that_is_defined_twice_is_a_violation_at_both() {
        let expected = ["crates/a/src/lib.rs:1", "crates/b/src/lib.rs:2"];
        assert_eq!(found("enum State {}", "\nstruct State;"), expected);
        assert_eq!(
            found("fn f() { enum State {} }", "\nmod x { type State = u8; }"),
            expected
        );
    }

    #[test]
    fn a_generic_name_may_be_defined_once_and_others_twice() {
        assert_eq!(found("enum State {}", "struct UploadState;"), [""; 0]);
        assert_eq!(found("struct UploadState;", "struct UploadState;"), [""; 0]);
    }

    #[test]
    fn tests_may_use_any_name() {
        assert_eq!(
            found("enum State {}", "#[cfg(test)] mod t { struct State; }"),
            [""; 0]
        );
    }

    #[test]
    fn shared_names_are_counted_for_each_crate() {
        let counts = shared(&workspace("struct A; struct B;", "struct A;"));
        let expected = |types, shared| SharedNames { types, shared };
        assert_eq!(counts["a"], expected(2, 1));
        assert_eq!(counts["b"], expected(1, 1));
    }
}
