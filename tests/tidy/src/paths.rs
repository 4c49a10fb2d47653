//! The paths of a module: those that start in their own crate (`crate::…`, `super::…`, `self::…`),
//! or all.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, Macro, Path, Visibility};

use crate::modules::{Module, ModulePath, imports};

/// A path as it is written, and its line.
#[derive(Debug, PartialEq)]
pub struct UsedPath {
    /// Its parts.
    pub segments: ModulePath,
    /// The line of its first part; of the name itself in a `use`.
    pub line: usize,
}

/// Returns the paths in the items of a module, without those of the modules inside it. Imports are
/// all returned, also those from other crates.
pub fn of(module: &Module) -> Vec<UsedPath> {
    find(module, Finder::default())
}

/// Returns all paths of more than one part in the items of a module.
pub fn all(module: &Module) -> Vec<UsedPath> {
    let finder = Finder {
        takes_all: true,
        ..Finder::default()
    };
    find(module, finder)
}

fn find(module: &Module, mut finder: Finder) -> Vec<UsedPath> {
    for item in &module.items {
        finder.visit_item(item);
    }
    finder.found
}

#[derive(Default)]
struct Finder {
    /// Also those that start in other crates, or by what was imported.
    takes_all: bool,
    found: Vec<UsedPath>,
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for import in imports(&item.tree) {
            self.found.push(UsedPath {
                segments: import.path,
                line: import.line,
            });
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let names = path.segments.iter().map(|part| part.ident.to_string());
        let segments: ModulePath = names.collect();
        if segments.len() > 1 && self.takes(&segments[0]) {
            let line = path.segments[0].ident.span().start().line;
            self.found.push(UsedPath { segments, line });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        self.visit_path(&invocation.path);
        self.tokens(invocation.tokens.clone());
    }
}

impl Finder {
    fn takes(&self, first: &str) -> bool {
        self.takes_all || starts_inside(first)
    }

    /// Finds paths in the tokens of a macro, which have no syntax tree.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(first) if self.takes(&first.to_string()) => {
                    let segments = path_at(&tokens[at..]);
                    if segments.len() > 1 {
                        let line = first.span().start().line;
                        at += 3 * (segments.len() - 1);
                        self.found.push(UsedPath { segments, line });
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

fn path_at(tokens: &[TokenTree]) -> ModulePath {
    let is_colon = |token: Option<&TokenTree>| is_punct(token, ':');
    let mut segments = Vec::new();
    let mut at = 0;
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        segments.push(name.to_string());
        if !is_colon(tokens.get(at + 1)) || !is_colon(tokens.get(at + 2)) {
            break;
        }
        at += 3;
    }
    segments
}

/// Returns whether a token is this mark.
pub fn is_punct(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

fn starts_inside(name: &str) -> bool {
    ["crate", "super", "self"].contains(&name)
}
