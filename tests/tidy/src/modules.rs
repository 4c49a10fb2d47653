//! The modules of a crate, from its root file on, without those that are compiled for tests only.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use syn::{Item, UseTree};

use crate::source::{Tree, is_test_only, parse, prune_tests};

/// The path of a module from the root of its crate; that of the root is empty.
pub type ModulePath = Vec<String>;

/// A module in a file of its own, or inside a file.
pub struct Module {
    /// The file.
    pub file: String,
    /// Whether the module is the whole file.
    pub is_file: bool,
    /// Its items, without those of tests.
    pub items: Vec<Item>,
    imports: HashMap<String, ModulePath>,
    globs: Vec<ModulePath>,
    defined: BTreeSet<String>,
}

/// The modules of a library or program by their paths.
#[derive(Default)]
pub struct Modules {
    modules: BTreeMap<ModulePath, Module>,
}

/// Re-exports of re-exports are followed so far.
const MAX_DEPTH: usize = 12;

impl Modules {
    /// Reads the modules of the crate whose root file is given.
    pub fn read(tree: &Tree, root: &str) -> Result<Modules, String> {
        let mut modules = Modules::default();
        modules.add_file(tree, root, true, Vec::new())?;
        Ok(modules)
    }

    /// Returns all modules and their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&ModulePath, &Module)> {
        self.modules.iter()
    }

    fn add_file(
        &mut self,
        tree: &Tree,
        file: &str,
        owns_folder: bool,
        path: ModulePath,
    ) -> Result<(), String> {
        let Some(text) = tree.text(file) else {
            return Ok(());
        };
        let mut items = parse(file, text)?.items;
        prune_tests(&mut items);
        let folder = match owns_folder {
            true => file.rsplit_once('/').map_or("", |(folder, _)| folder),
            false => file.strip_suffix(".rs").unwrap_or(file),
        };
        self.add(tree, file, folder, items, path, true)
    }

    fn add(
        &mut self,
        tree: &Tree,
        file: &str,
        folder: &str,
        items: Vec<Item>,
        path: ModulePath,
        is_file: bool,
    ) -> Result<(), String> {
        for item in &items {
            let Item::Mod(child) = item else { continue };
            if is_test_only(&child.attrs) {
                continue;
            }
            let name = child.ident.to_string();
            let child_path = joined(&path, &name);
            let child_folder = format!("{folder}/{name}");
            if let Some((_, items)) = &child.content {
                self.add(tree, file, &child_folder, items.clone(), child_path, false)?;
                continue;
            }
            let nested = format!("{child_folder}/mod.rs");
            match tree.text(&nested) {
                Some(_) => self.add_file(tree, &nested, true, child_path)?,
                None => self.add_file(tree, &format!("{child_folder}.rs"), false, child_path)?,
            }
        }
        let module = Module::new(file, is_file, items);
        self.modules.insert(path, module);
        Ok(())
    }

    /// Returns the module in which what a path names is defined: imports and re-exports are
    /// followed. Returns `None` for what other crates define.
    pub fn resolve(&self, from: &ModulePath, segments: &[String]) -> Option<ModulePath> {
        self.resolve_to(from, segments, 0)
    }

    fn resolve_to(
        &self,
        from: &ModulePath,
        segments: &[String],
        depth: usize,
    ) -> Option<ModulePath> {
        let (first, mut rest) = segments.split_first()?;
        let mut module = from.clone();
        match first.as_str() {
            "crate" => module.clear(),
            "self" => {}
            "super" => {
                module.pop()?;
                while let Some(("super", after)) = rest.split_first().map(|(s, r)| (s.as_str(), r))
                {
                    module.pop()?;
                    rest = after;
                }
            }
            name if self.knows(from, name) => rest = segments,
            _ => return None,
        }
        for name in rest {
            let child = joined(&module, name);
            if self.modules.contains_key(&child) {
                module = child;
                continue;
            }
            let target = self.definition(&module, name, depth + 1);
            let target = target.unwrap_or_else(|| module.clone());
            let is_module = target.last() == Some(name);
            if !is_module || target == module {
                return Some(target);
            }
            module = target;
        }
        Some(module)
    }

    fn knows(&self, module: &ModulePath, name: &str) -> bool {
        let own = self.modules.get(module);
        self.modules.contains_key(&joined(module, name))
            || own.is_some_and(|module| module.imports.contains_key(name))
    }

    /// Returns where a name of a module comes from, if it is imported from this crate.
    fn definition(&self, module: &ModulePath, name: &str, depth: usize) -> Option<ModulePath> {
        let own = self.modules.get(module).filter(|_| depth < MAX_DEPTH)?;
        if own.defined.contains(name) {
            return Some(module.clone());
        }
        if let Some(import) = own.imports.get(name) {
            // `use name::Other as name` must not look for itself.
            let is_itself = import.first().is_some_and(|first| first == name);
            return match is_itself && !self.modules.contains_key(&joined(module, name)) {
                true => None,
                false => self.resolve_to(module, import, depth),
            };
        }
        own.globs.iter().find_map(|glob| {
            let target = self.resolve_to(module, glob, depth)?;
            match self.modules.get(&target)?.defined.contains(name) {
                true => Some(target),
                false if target == *module => None,
                false => self.definition(&target, name, depth + 1),
            }
        })
    }

    /// Returns the path of the nearest module with a file of its own: the module, or one around it.
    pub fn file_module(&self, path: &ModulePath) -> ModulePath {
        let mut path = path.clone();
        while self
            .modules
            .get(&path)
            .is_some_and(|module| !module.is_file)
        {
            path.pop();
        }
        path
    }
}

impl Module {
    fn new(file: &str, is_file: bool, items: Vec<Item>) -> Module {
        let mut module = Module {
            file: file.to_owned(),
            is_file,
            items: Vec::new(),
            imports: HashMap::new(),
            globs: Vec::new(),
            defined: BTreeSet::new(),
        };
        for item in &items {
            if let Item::Use(item) = item {
                module.import(&item.tree);
            } else if let Some(name) = defined_name(item) {
                module.defined.insert(name);
            }
        }
        module.items = items;
        module
    }

    fn import(&mut self, tree: &UseTree) {
        for import in imports(tree) {
            match import.name {
                Some(name) => drop(self.imports.insert(name, import.path)),
                None => self.globs.push(import.path),
            }
        }
    }
}

fn joined(path: &[String], name: &str) -> ModulePath {
    let mut path = path.to_vec();
    path.push(name.to_owned());
    path
}

/// One name that a `use` brings in.
#[derive(Debug)]
pub struct Import {
    /// The path as it is written.
    pub path: ModulePath,
    /// The name by which it is known; `None` for `*`.
    pub name: Option<String>,
    /// The line of its last part.
    pub line: usize,
}

/// Returns the names that a `use` brings in.
pub fn imports(tree: &UseTree) -> Vec<Import> {
    let mut found = Vec::new();
    collect(tree, &mut Vec::new(), &mut found);
    found
}

fn collect(tree: &UseTree, prefix: &mut ModulePath, found: &mut Vec<Import>) {
    let mut add = |ident: &syn::Ident, name: String| {
        let own = ident.to_string();
        let (path, name) = match own == "self" && !prefix.is_empty() {
            true if name == "self" => (prefix.clone(), prefix.last().cloned()),
            true => (prefix.clone(), Some(name)),
            false => (joined(prefix, &own), Some(name)),
        };
        let line = ident.span().start().line;
        found.push(Import { path, name, line });
    };
    match tree {
        UseTree::Name(tree) => add(&tree.ident, tree.ident.to_string()),
        UseTree::Rename(tree) => add(&tree.ident, tree.rename.to_string()),
        UseTree::Glob(tree) => found.push(Import {
            path: prefix.clone(),
            name: None,
            line: tree.star_token.spans[0].start().line,
        }),
        UseTree::Path(tree) => {
            prefix.push(tree.ident.to_string());
            collect(&tree.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                collect(tree, prefix, found);
            }
        }
    }
}

fn defined_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(ident.to_string())
}
