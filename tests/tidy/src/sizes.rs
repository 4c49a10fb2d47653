//! Lines of code, and assertions: what ships, without tests, comments and blank lines.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;

use crate::paths::is_punct;
use crate::source::is_test_only;

/// Lines of code and assertions of a file or crate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Size {
    /// Lines with code.
    pub lines: usize,
    /// `assert!`, `assert_eq!`, `assert_ne!` and their debug forms.
    pub assertions: usize,
}

/// Returns the size of a Rust file.
pub fn of(text: &str) -> Result<Size, String> {
    let tokens: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
    let lines: Vec<&str> = text.lines().collect();
    let mut counter = Counter {
        lines,
        code: BTreeSet::new(),
        assertions: 0,
    };
    counter.items(tokens);
    Ok(Size {
        lines: counter.code.len(),
        assertions: counter.assertions,
    })
}

struct Counter<'a> {
    lines: Vec<&'a str>,
    code: BTreeSet<usize>,
    assertions: usize,
}

impl Counter<'_> {
    /// Counts tokens, and leaves out comments and items for tests.
    fn items(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if let Some(length) = attribute_length(&tokens[at..]) {
                let attribute = &tokens[at..at + length];
                if is_for_tests(attribute) {
                    at += length;
                    at += item_length(&tokens[at..]);
                    continue;
                }
                if self.is_comment(&tokens[at]) {
                    at += length;
                    continue;
                }
            }
            self.token(&tokens[at], tokens.get(at + 1));
            at += 1;
        }
    }

    fn token(&mut self, token: &TokenTree, next: Option<&TokenTree>) {
        match token {
            TokenTree::Group(group) => {
                self.add(group.span_open());
                self.items(group.stream());
                self.add(group.span_close());
            }
            TokenTree::Ident(name) => {
                let is_call = is_punct(next, '!');
                let name = name.to_string();
                let name = name.strip_prefix("debug_").unwrap_or(&name);
                let is_assertion = ["assert", "assert_eq", "assert_ne"].contains(&name);
                self.assertions += usize::from(is_call && is_assertion);
                self.add(token.span());
            }
            _ => self.add(token.span()),
        }
    }

    fn add(&mut self, span: Span) {
        for line in span.start().line..=span.end().line {
            let text = self.lines.get(line.saturating_sub(1)).unwrap_or(&"");
            if !text.trim().is_empty() {
                self.code.insert(line);
            }
        }
    }

    /// Returns whether a `#` is written as `///` or `/**`.
    fn is_comment(&self, token: &TokenTree) -> bool {
        let start = token.span().start();
        let line = self.lines.get(start.line.saturating_sub(1)).unwrap_or(&"");
        line.chars().nth(start.column) == Some('/')
    }
}

/// Returns how many tokens an attribute has, if the tokens begin with one.
fn attribute_length(tokens: &[TokenTree]) -> Option<usize> {
    let is = |index: usize, mark| is_punct(tokens.get(index), mark);
    let group = if is(1, '!') { 2 } else { 1 };
    let is_bracket = matches!(
        tokens.get(group),
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket
    );
    (is(0, '#') && is_bracket).then_some(group + 1)
}

fn is_for_tests(attribute: &[TokenTree]) -> bool {
    let Some(TokenTree::Group(group)) = attribute.get(1) else {
        return false;
    };
    let tokens = group.stream();
    syn::parse2::<syn::Meta>(tokens).is_ok_and(|meta| {
        let attribute = syn::Attribute {
            pound_token: Default::default(),
            style: syn::AttrStyle::Outer,
            bracket_token: Default::default(),
            meta,
        };
        is_test_only(&[attribute])
    })
}

/// Returns how many tokens an item, statement or field has: to its `;`, `,` or last brace.
fn item_length(tokens: &[TokenTree]) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => [';', ','].contains(&punct.as_char()),
        _ => false,
    };
    // A `use` has braces before its end.
    let is_use = |token: &TokenTree| token.to_string() == "use";
    let only_semicolon = tokens.iter().take(3).any(is_use);
    let ends = |token: &TokenTree| match only_semicolon {
        true => token.to_string() == ";",
        false => ends(token),
    };
    let length = tokens.iter().position(ends).map(|index| index + 1);
    length.unwrap_or(tokens.len())
}

/// Returns the first and last line of a piece of syntax.
pub fn lines_of(syntax: &impl Spanned) -> (usize, usize) {
    let span = syntax.span();
    (span.start().line, span.end().line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(text: &str) -> (usize, usize) {
        let size = of(text).unwrap();
        (size.lines, size.assertions)
    }

    #[test]
    fn comments_and_blank_lines_are_no_code() {
        let text = "//! a\n\n/// b\n#[must_use]\nfn f() { // c\n\n    /* d */\n    g();\n}\n";
        assert_eq!(sized(text), (4, 0));
        assert_eq!(sized("/** a\n * b */\nfn f() {}"), (1, 0));
    }

    #[test]
    fn a_text_of_several_lines_is_code() {
        assert_eq!(sized("const A: &str = \"a\n\nb\";"), (2, 0));
    }

    #[test]
    fn tests_are_no_code() {
        assert_eq!(
            sized("fn f() {}\n#[cfg(test)]\nmod tests {\n fn g() {}\n}\nfn h() {}"),
            (2, 0)
        );
        assert_eq!(sized("#[cfg(test)]\nuse a::{\nb};\nfn h() {}"), (1, 0));
        assert_eq!(
            sized("impl A {\n#[cfg(test)]\nfn g() -> u8 {\n1\n}\nfn h() {}\n}"),
            (3, 0)
        );
        assert_eq!(
            sized("#[test]\n#[ignore]\nfn g() {\n}\n#[cfg(not(test))]\nfn h() {}"),
            (2, 0)
        );
    }

    #[test]
    fn assertions_are_counted() {
        assert_eq!(
            sized("fn f() { assert!(a); debug_assert_eq!(a, b); assert(c); }"),
            (1, 2)
        );
        assert_eq!(sized("#[cfg(test)] fn f() { assert!(a); }"), (0, 0));
    }
}
