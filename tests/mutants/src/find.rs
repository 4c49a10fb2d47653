//! Finds the mutants of one source file: the same kinds as those of cargo-mutants.

use std::path::Path;

use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, Pat, Signature, UnOp};

use crate::mutant::{Edit, Mutant};
use crate::values;

/// A comment with these words, in the line before an item, an arm or a statement, or in its own
/// line, keeps mutants out of it. It should give the reason.
const SKIP_MARK: &str = "mutants: skip";

/// Traits whose implementations only make text for people.
const TEXT_TRAITS: [&str; 2] = ["Display", "Debug"];

/// Functions whose arguments only make something faster.
const HINTS: [&str; 3] = ["with_capacity", "reserve", "shrink_to"];

/// A source file, and where its modules begin.
pub struct Source<'a> {
    /// The file, relative to the root of the workspace.
    pub file: &'a Path,
    pub text: &'a str,
    pub syntax: &'a syn::File,
}

/// Returns all mutants of a file, in the order of the text.
pub fn mutants(source: &Source<'_>) -> Vec<Mutant> {
    let mut finder = Finder {
        source,
        lines: source.text.lines().collect(),
        scopes: Vec::new(),
        found: Vec::new(),
    };
    finder.visit_file(source.syntax);
    finder
        .found
        .sort_by_key(|mutant| (mutant.range.start, mutant.range.end));
    finder.found
}

/// Returns whether an item is compiled only for tests.
pub fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.meta.to_token_stream().to_string();
        let is_cfg = attribute.path().is_ident("cfg");
        attribute.path().is_ident("test") || (is_cfg && mentions_test(&text))
    })
}

fn mentions_test(condition: &str) -> bool {
    let mut words = condition.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '"');
    words.any(|word| word == "test") && !condition.contains("not")
}

struct Finder<'a> {
    source: &'a Source<'a>,
    lines: Vec<&'a str>,
    /// The types and functions around the place that is visited.
    scopes: Vec<String>,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    fn text(&self, span: Span) -> &str {
        &self.source.text[span.byte_range()]
    }

    fn is_skipped(&self, attributes: &[Attribute], span: Span) -> bool {
        let line = span.start().line;
        let own = self
            .lines
            .get(line - 1)
            .is_some_and(|text| text.contains(SKIP_MARK));
        let before = line >= 2
            && self.lines[line - 2].trim_start().starts_with("//")
            && self.lines[line - 2].contains(SKIP_MARK);
        own || before || is_test_only(attributes)
    }

    fn add(&mut self, at: Span, edited: std::ops::Range<usize>, description: String, edit: Edit) {
        if self.scopes.is_empty() {
            return;
        }
        let start = at.start();
        self.found.push(Mutant {
            file: self.source.file.to_owned(),
            line: start.line,
            column: start.column + 1,
            function: self.scopes.join("::"),
            description,
            range: edited,
            edit,
        });
    }

    fn replace(&mut self, at: Span, expr: Span, description: String, by: String) {
        self.add(at, expr.byte_range(), description, Edit::Replace(by));
    }

    /// Visits a function: its body as a whole, then what is in it.
    fn function(&mut self, signature: &Signature, block: &Block) {
        if signature.constness.is_some() {
            return;
        }
        self.scopes.push(signature.ident.to_string());
        if signature.asyncness.is_none() && !block.stmts.is_empty() {
            self.body(signature, block);
        }
        self.visit_block(block);
        self.scopes.pop();
    }

    fn body(&mut self, signature: &Signature, block: &Block) {
        // What makes a value of its type by default is the value that it would be replaced with.
        let makes_default = ["new", "default"].contains(&signature.ident.to_string().as_str())
            && signature.inputs.is_empty();
        if makes_default {
            return;
        }
        let body: proc_macro2::TokenStream =
            block.stmts.iter().map(ToTokens::to_token_stream).collect();
        let body = body.to_string();
        let behind_brace = block.brace_token.span.open().byte_range().end;
        for value in values::of_return(&signature.output) {
            let same = value
                .parse::<proc_macro2::TokenStream>()
                .map(|tokens| tokens.to_string());
            if same.is_ok_and(|same| same == body) {
                continue;
            }
            let description = format!("replace the body with {value}");
            let edit = Edit::Return(value);
            self.add(
                signature.ident.span(),
                behind_brace..behind_brace,
                description,
                edit,
            );
        }
    }

    fn condition(&mut self, condition: &Expr) {
        // Operators have mutants of their own.
        if !matches!(
            condition,
            Expr::Path(_) | Expr::Field(_) | Expr::Call(_) | Expr::MethodCall(_) | Expr::Macro(_)
        ) {
            return;
        }
        let by = format!("!({})", self.text(condition.span()));
        let span = condition.span();
        self.replace(span, span, "negate the condition".to_owned(), by);
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes: &[Attribute] = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Trait(item) => &item.attrs,
            // Constants, types and macros have no statements that may be switched.
            _ => return,
        };
        if !self.is_skipped(attributes, item_span(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some((_, path, _)) = &item.trait_ {
            let last = path.segments.last().map(|last| last.ident.to_string());
            if last.is_some_and(|last| TEXT_TRAITS.contains(&last.as_str())) {
                return;
            }
        }
        let ty = self.text(item.self_ty.span()).to_owned();
        self.scopes.push(ty);
        visit::visit_item_impl(self, item);
        self.scopes.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.scopes.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.scopes.pop();
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !self.is_skipped(&item.attrs, item.sig.span()) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default
            && !self.is_skipped(&item.attrs, item.sig.span())
        {
            self.function(&item.sig, block);
        }
    }

    // None of these is worked out while the program runs.
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_angle_bracketed_generic_arguments(
        &mut self,
        _: &'ast syn::AngleBracketedGenericArguments,
    ) {
    }
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    // The insides of a macro are tokens, not expressions.
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}

    fn visit_expr_repeat(&mut self, expr: &'ast syn::ExprRepeat) {
        self.visit_expr(&expr.expr);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !self.is_skipped(&local.attrs, local.let_token.span()) {
            visit::visit_local(self, local);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if !self.is_skipped(&[], statement.span()) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let hint = matches!(&*call.func, Expr::Path(path) if path.path.segments.last()
            .is_some_and(|last| HINTS.contains(&last.ident.to_string().as_str())));
        if !hint {
            visit::visit_expr_call(self, call);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if HINTS.contains(&call.method.to_string().as_str()) {
            self.visit_expr(&call.receiver);
        } else {
            visit::visit_expr_method_call(self, call);
        }
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        if !contains_let(&expr.left) && !contains_let(&expr.right) {
            let from = expr.op.to_token_stream().to_string();
            for &to in alternatives(&expr.op) {
                let left = self.text(expr.left.span());
                let right = self.text(expr.right.span());
                let by = format!("({left}) {to} ({right})");
                let description = format!("replace {from} with {to}");
                self.replace(expr.op.span(), expr.span(), description, by);
            }
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        let removed = match expr.op {
            UnOp::Not(_) => Some("!"),
            // The minus of a number is a part of the number.
            UnOp::Neg(_) if !matches!(&*expr.expr, Expr::Lit(_)) => Some("-"),
            _ => None,
        };
        if let Some(operator) = removed {
            let by = self.text(expr.expr.span()).to_owned();
            self.replace(
                expr.op.span(),
                expr.span(),
                format!("remove {operator}"),
                by,
            );
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.condition(&expr.cond);
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        self.visit_expr(&expr.expr);
        let has_wildcard = expr
            .arms
            .iter()
            .any(|arm| arm.guard.is_none() && matches!(arm.pat, Pat::Wild(_)));
        for arm in &expr.arms {
            if self.is_skipped(&arm.attrs, arm.pat.span()) {
                continue;
            }
            if let Some((_, guard)) = &arm.guard {
                if !contains_let(guard) {
                    for by in ["true", "false"] {
                        let description = format!("replace the match guard with {by}");
                        let span = guard.span();
                        self.replace(span, span, description, by.to_owned());
                    }
                }
            } else if has_wildcard && !matches!(arm.pat, Pat::Wild(_)) {
                let pattern = self.text(arm.pat.span());
                let pattern: Vec<&str> = pattern.split_whitespace().collect();
                let description = format!("delete the match arm {}", pattern.join(" "));
                let end = arm.pat.span().byte_range().end;
                self.add(arm.pat.span(), end..end, description, Edit::NoMatch);
            }
            if let Some((_, guard)) = &arm.guard {
                self.visit_expr(guard);
            }
            self.visit_expr(&arm.body);
        }
    }
}

fn item_span(item: &syn::Item) -> Span {
    match item {
        syn::Item::Fn(item) => item.sig.span(),
        syn::Item::Impl(item) => item.impl_token.span(),
        syn::Item::Trait(item) => item.trait_token.span(),
        other => other.span(),
    }
}

/// Returns whether an expression is a chain of conditions with a `let`, which has its place only
/// where it stands.
fn contains_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => contains_let(&binary.left) || contains_let(&binary.right),
        _ => false,
    }
}

/// Returns the operators that stand in for one.
fn alternatives(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Lt(_) => &["==", ">", "<="],
        BinOp::Gt(_) => &["==", "<", ">="],
        BinOp::Le(_) => &[">", "<"],
        BinOp::Ge(_) => &["<", ">"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) => &["+", "/"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) => &["+=", "/="],
        BinOp::MulAssign(_) => &["+=", "/="],
        BinOp::DivAssign(_) => &["%=", "*="],
        BinOp::RemAssign(_) => &["/=", "+="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        BinOp::BitAndAssign(_) => &["|=", "^="],
        BinOp::BitOrAssign(_) => &["&=", "^="],
        BinOp::BitXorAssign(_) => &["|=", "&="],
        _ => &[],
    }
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
