//! `server` names no service: what it must know of one stands in the tables of `service`.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ExprField, Fields, Item, ItemMod, Member};

use crate::modules::{Module, Modules};
use crate::paths::{self, is_punct};
use crate::source::{Tree, parse};
use crate::violation::Violation;
use crate::workspace::Workspace;

/// The table of methods, `methods!`.
const METHODS: &str = "crates/service/src/method.rs";

/// What an operator chooses for services.
const SETTINGS: &str = "crates/service/src/settings/mod.rs";

/// The enums whose variants are methods and services.
const NAMING: [&str; 3] = ["Method", "Service", "DropIn"];

/// Returns the places in `server` that name a method, a service, or the settings of one.
pub fn check(workspace: &Workspace) -> Result<Vec<Violation>, String> {
    let methods = table(&workspace.tree)?;
    let settings = settings(&workspace.tree)?;
    let mut found = Vec::new();
    let server = workspace.crates().filter(|(name, _)| *name == "server");
    for (_, package) in server {
        for (_, module) in package.programs.iter().flat_map(Modules::iter) {
            for (line, name) in named(module, &methods, &settings) {
                let message = format!("`server` names no service, but `{name}`: ask a table");
                found.push(Violation::new("service-names", &module.file, line, message));
            }
        }
    }
    Ok(found)
}

fn named(
    module: &Module,
    methods: &BTreeSet<String>,
    settings: &BTreeSet<String>,
) -> Vec<(usize, String)> {
    let mut finder = FieldFinder {
        settings,
        found: Vec::new(),
    };
    for item in &module.items {
        finder.visit_item(item);
    }
    let names = |pair: &[String]| NAMING.contains(&&*pair[0]) && methods.contains(&pair[1]);
    for path in paths::all(module) {
        if let Some(pair) = path.segments.windows(2).find(|pair| names(pair)) {
            finder.found.push((path.line, pair.join("::")));
        }
    }
    finder.found
}

/// Finds accesses to fields with the settings of a service.
struct FieldFinder<'a> {
    settings: &'a BTreeSet<String>,
    found: Vec<(usize, String)>,
}

impl<'ast> Visit<'ast> for FieldFinder<'_> {
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_expr_field(&mut self, field: &'ast ExprField) {
        if let Member::Named(name) = &field.member
            && self.settings.contains(&name.to_string())
        {
            let line = name.span().start().line;
            self.found.push((line, name.to_string()));
        }
        visit::visit_expr_field(self, field);
    }
}

/// Returns the names of all services and methods.
fn table(tree: &Tree) -> Result<BTreeSet<String>, String> {
    let file = parse(METHODS, tree.text(METHODS).unwrap_or_default())?;
    let mut names = BTreeSet::new();
    for item in &file.items {
        if let Item::Macro(item) = item
            && item.mac.path.is_ident("methods")
        {
            add_names(item.mac.tokens.clone(), &mut names);
        }
    }
    Ok(names)
}

/// Adds the names at the start of each part of the table, which ends with `;` or a block.
fn add_names(tokens: TokenStream, names: &mut BTreeSet<String>) {
    let mut is_start = true;
    for token in tokens {
        match &token {
            TokenTree::Ident(name) if is_start => {
                names.insert(name.to_string());
                is_start = false;
            }
            TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::Brace => {
                add_names(group.stream(), names);
                is_start = true;
            }
            _ => is_start |= is_punct(Some(&token), ';'),
        }
    }
}

/// Returns the names of the fields of `ServiceSettings`.
fn settings(tree: &Tree) -> Result<BTreeSet<String>, String> {
    let file = parse(SETTINGS, tree.text(SETTINGS).unwrap_or_default())?;
    let mut names = BTreeSet::new();
    for item in &file.items {
        if let Item::Struct(item) = item
            && item.ident == "ServiceSettings"
            && let Fields::Named(fields) = &item.fields
        {
            let fields = fields.named.iter().filter_map(|field| field.ident.as_ref());
            names.extend(fields.map(ToString::to_string));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let workspace = Workspace::of(&[
            (
                METHODS,
                "methods! { Echo [Open] { EchoUnary Grpc(ECHO), Open; EchoStream Http(\"x\"); } \
                 Blob { Put Grpc(PUT), Write; } }",
            ),
            (SETTINGS, "pub struct ServiceSettings { interop: bool }"),
            ("crates/server/Cargo.toml", ""),
            ("crates/server/src/lib.rs", text),
        ]);
        let found = check(&workspace).unwrap();
        found.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn methods_services_and_their_settings_are_found() {
        assert_eq!(lines("fn f() { g(Method::EchoUnary); }"), [1]);
        assert_eq!(lines("\nuse service::method::Method::{Put, Other};"), [2]);
        assert_eq!(lines("fn f() {\n matches!(a, Method::EchoStream) }"), [2]);
        assert_eq!(lines("const A: Service = service::Service::Blob;"), [1]);
        assert_eq!(lines("fn f() -> bool { config.services.interop }"), [1]);
    }

    #[test]
    fn other_names_are_left_alone() {
        let text = "fn f() { Method::ALL; Verb::Put; method.entry(); blob::Blob::new(); }";
        assert_eq!(lines(text), [0; 0]);
        assert_eq!(
            lines("#[cfg(test)] mod tests { fn f() { Method::Put; } }"),
            [0; 0]
        );
    }
}
