use std::path::Path;

use super::*;

/// Returns the mutants of a text as "function: description".
fn found(text: &str) -> Vec<String> {
    let syntax = syn::parse_file(text).unwrap();
    mutants(&Source {
        file: Path::new("a.rs"),
        text,
        syntax: &syntax,
    })
    .iter()
    .map(|mutant| format!("{}: {}", mutant.function, mutant.description))
    .collect()
}

#[test]
fn operators_have_their_neighbours() {
    assert_eq!(
        found("fn f(a: Thing) -> ! { g(a < b, a + b); a.c += 1; }"),
        [
            "f: replace < with ==",
            "f: replace < with >",
            "f: replace < with <=",
            "f: replace + with -",
            "f: replace + with *",
            "f: replace += with -=",
            "f: replace += with *=",
        ]
    );
    assert_eq!(
        found("fn f() -> ! { g(!a, -b, -1, a == b || c) }"),
        [
            "f: remove !",
            "f: remove -",
            "f: replace == with !=",
            "f: replace || with &&"
        ]
    );
}

#[test]
fn a_function_returns_simple_values_of_its_type() {
    let text =
        "impl Thing { fn is_open(&self) -> bool { self.open } fn close(&mut self) { x(); } }";
    assert_eq!(
        found(text),
        [
            "Thing::is_open: replace the body with true",
            "Thing::is_open: replace the body with false",
            "Thing::close: replace the body with ()",
        ]
    );
    assert!(
        found("fn f() -> Option<bool> { None }")
            .iter()
            .all(|name| !name.contains("None"))
    );
    assert!(found("fn f() {} fn new() -> Thing { Thing { a: 1 } }").is_empty());
}

#[test]
fn an_arm_goes_only_where_another_one_takes_its_values() {
    assert_eq!(
        found("fn f() -> ! { match a { 1 => b(), 2 if c => d(), _ => e() } }"),
        [
            "f: delete the match arm 1",
            "f: replace the match guard with true",
            "f: replace the match guard with false",
        ]
    );
    assert!(found("fn f() -> ! { match a { Some(1) => b(), other => e() } }").is_empty());
}

#[test]
fn plain_conditions_are_negated_and_chains_with_let_stay_whole() {
    assert_eq!(
        found("fn f() -> ! { if a.is_open() { b() } if !c { d() } }"),
        ["f: negate the condition", "f: remove !"]
    );
    assert_eq!(
        found("fn f() -> ! { if let Some(a) = b && a == 1 { c() } }"),
        ["f: replace == with !="]
    );
}

#[test]
fn what_is_not_worked_out_at_run_time_is_left_alone() {
    for text in [
        "const A: u8 = 1 + 2;",
        "static A: [u8; 1 + 2] = [0; 3];",
        "const fn f() -> u8 { 1 + 2 }",
        "impl Thing { const A: u8 = 1 + 2; }",
        "fn f() -> ! { let a = [0; 1 + 2]; const { 1 + 2 }; g::<{ 1 + 2 }>() }",
        "fn f() -> ! { assert!(a == b) }",
        "enum Thing { A = 1 + 2 }",
        "fn f() -> ! { Vec::with_capacity(a + b) }",
    ] {
        assert!(found(text).is_empty(), "{text}: {:?}", found(text));
    }
}

#[test]
fn tests_and_texts_are_left_alone() {
    for text in [
        "#[cfg(test)] mod tests { fn f() -> bool { a == b } }",
        "#[cfg(any(test, feature = \"suite\"))] fn f() -> bool { a == b }",
        "#[test] fn f() { a(b + c) }",
        "impl fmt::Display for Thing { fn fmt(&self) -> fmt::Result { a(b + c) } }",
    ] {
        assert!(found(text).is_empty(), "{text}: {:?}", found(text));
    }
    assert!(!found("#[cfg(not(test))] fn f() -> bool { a == b }").is_empty());
    assert!(!found("#[cfg(feature = \"x\")] fn f() -> bool { a == b }").is_empty());
}

#[test]
fn a_mark_with_a_reason_keeps_mutants_out() {
    let skipped = "fn f() -> ! {
        // mutants: skip, only a hint
        if a.is_large() { b(); }
        if c.is_open() { d(); } // mutants: skip, the same
        if e.is_last() { g(); }
    }";
    assert_eq!(found(skipped), ["f: negate the condition"]);
    assert!(found("// mutants: skip, never runs\nfn f() -> bool { a == b }").is_empty());
    let text = "impl Thing {\n    /// Text.\n    // mutants: skip, so\n    fn f() -> bool { a }\n}";
    assert!(found(text).is_empty());
}
