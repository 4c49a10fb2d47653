//! The lengths of functions and files.

use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

use crate::sizes::lines_of;
use crate::source::parse;
use crate::violation::Violation;
use crate::workspace::Workspace;

/// The longest function, in lines from `fn` to its closing brace.
const MAX_FUNCTION_LINES: usize = 70;

/// The longest file, in lines of code.
const MAX_FILE_LINES: usize = 500;

/// Returns the functions and files that are too long. Functions of tests count as others do.
pub fn check(workspace: &Workspace) -> Result<Vec<Violation>, String> {
    let mut finder = Finder::default();
    for (path, text) in workspace.tree.with_extension(&["rs"]) {
        finder.file = path.to_owned();
        finder.visit_file(&parse(path, text)?);
    }
    let mut found = finder.found;
    for package in &workspace.packages {
        for (file, size) in &package.sizes {
            if size.lines > MAX_FILE_LINES {
                let lines = size.lines;
                let message =
                    format!("{lines} lines of code, more than {MAX_FILE_LINES}: split it");
                found.push(Violation::new("files", file, 1, message));
            }
        }
    }
    Ok(found)
}

#[derive(Default)]
struct Finder {
    file: String,
    found: Vec<Violation>,
}

impl Finder {
    fn function(&mut self, signature: &Signature, block: &Block) {
        let first = signature.fn_token.span.start().line;
        let lines = lines_of(block).1 + 1 - first;
        if lines > MAX_FUNCTION_LINES {
            let name = &signature.ident;
            let message = format!("`{name}` has {lines} lines, more than {MAX_FUNCTION_LINES}");
            self.found
                .push(Violation::new("functions", &self.file, first, message));
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let files = [("crates/a/Cargo.toml", ""), ("crates/a/src/lib.rs", text)];
        let violations = check(&Workspace::of(&files)).unwrap();
        violations
            .iter()
            .map(|v| format!("{} {}", v.check, v.line))
            .collect()
    }

    fn function(lines: usize) -> String {
        format!(
            "/// Long.\nfn f() {{\n{}}}\n",
            "    g();\n".repeat(lines - 2)
        )
    }

    #[test]
    fn a_function_may_have_70_lines_and_not_71() {
        assert_eq!(found(&function(70)), [""; 0]);
        assert_eq!(found(&function(71)), ["functions 2"]);
    }

    #[test]
    fn methods_and_functions_of_tests_count_too() {
        assert_eq!(
            found(&format!("impl A {{\n{}}}", function(71))),
            ["functions 3"]
        );
        assert_eq!(
            found(&format!("trait A {{\n{}}}", function(71))),
            ["functions 3"]
        );
        assert_eq!(
            found(&format!("#[test]\n{}", function(71))),
            ["functions 3"]
        );
    }

    #[test]
    fn a_file_may_have_500_lines_of_code_and_not_501() {
        let comments = "// x\n\n".repeat(300);
        assert_eq!(
            found(&format!("{comments}{}", "const A: u8 = 1;\n".repeat(500))),
            [""; 0]
        );
        assert_eq!(found(&"const A: u8 = 1;\n".repeat(501)), ["files 1"]);
    }

    #[test]
    fn tests_in_a_file_are_not_its_code() {
        let tests = "#[cfg(test)]\nconst A: u8 = 1;\n".repeat(501);
        assert_eq!(found(&tests), [""; 0]);
    }
}
