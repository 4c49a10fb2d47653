//! Small crates with and without circles.

use super::*;

/// Returns what is found in a crate of these files, as `file:line: message`.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let mut all = vec![("crates/a/Cargo.toml".to_owned(), "")];
    all.extend(
        files
            .iter()
            .map(|&(path, text)| (format!("crates/a/src/{path}"), text)),
    );
    let all: Vec<(&str, &str)> = all
        .iter()
        .map(|(path, text)| (path.as_str(), *text))
        .collect();
    let violations = check(&Workspace::of(&all));
    let short = |violation: &Violation| {
        let file = violation
            .file
            .strip_prefix("crates/a/src/")
            .unwrap()
            .to_owned();
        let way = violation.message.rsplit(": ").next().unwrap().to_owned();
        format!("{file}:{} {way}", violation.line)
    };
    violations.iter().map(short).collect()
}

const ROOT: (&str, &str) = ("lib.rs", "mod x; mod y; mod z; pub use x::X; pub use y::Y;");

#[test]
fn two_modules_that_import_each_other_are_a_circle() {
    let x = ("x.rs", "\nuse crate::y::Y; pub struct X;");
    let y = ("y.rs", "use super::x::X; pub struct Y;");
    assert_eq!(found(&[ROOT, x, y]), ["x.rs:2 y -> x", "y.rs:1 x -> y"]);
}

#[test]
fn imports_in_one_direction_are_no_circle() {
    let x = ("x.rs", "use crate::y::Y; pub struct X;");
    let y = ("y.rs", "use std::fmt; use crate::z; pub struct Y;");
    assert_eq!(found(&[ROOT, x, y, ("z.rs", "")]), [""; 0]);
}

#[test]
fn a_circle_of_three_is_reported_with_its_way() {
    let x = ("x.rs", "use crate::y::Y; pub struct X;");
    let y = ("y.rs", "use crate::z::Z; pub struct Y;");
    let z = ("z.rs", "pub struct Z; fn f() { crate::x::f() }");
    let expected = [
        "x.rs:1 y -> z -> x",
        "y.rs:1 z -> x -> y",
        "z.rs:1 x -> y -> z",
    ];
    assert_eq!(found(&[ROOT, x, y, z]), expected);
}

#[test]
fn re_exports_are_followed_to_the_definition() {
    let x = ("x.rs", "use crate::Y; pub struct X;");
    let y = ("y.rs", "fn f() { let _ = crate::X; } pub struct Y;");
    assert_eq!(found(&[ROOT, x, y]).len(), 2);
    let root = ("lib.rs", "mod x; mod y; pub use x::*; pub use y::*;");
    assert_eq!(found(&[root, x, y]).len(), 2);
}

#[test]
fn a_folder_stands_for_all_that_is_in_it() {
    let files = [
        ROOT,
        ("x/mod.rs", "mod inner; mod other;"),
        ("x/inner.rs", "use crate::y::Y; use super::other;"),
        ("x/other.rs", ""),
        ("y.rs", "use crate::x::f; pub struct Y;"),
    ];
    assert_eq!(found(&files), ["x/inner.rs:1 y -> x", "y.rs:1 x -> y"]);
}

#[test]
fn parent_and_child_may_import_each_other() {
    let files = [
        ("lib.rs", "mod x; use x::X; pub struct Root;"),
        (
            "x.rs",
            "mod inner; use inner::I; use crate::Root; pub struct X;",
        ),
        ("x/inner.rs", "use super::X; use crate::Root; pub struct I;"),
    ];
    assert_eq!(found(&files), [""; 0]);
}

#[test]
fn siblings_in_a_folder_are_checked_too() {
    let files = [
        ("lib.rs", "mod x;"),
        ("x.rs", "mod a; mod b;"),
        ("x/a.rs", "use super::b::{self, B};"),
        ("x/b.rs", "use crate::x::a; pub struct B;"),
    ];
    assert_eq!(found(&files), ["x/a.rs:1 b -> a", "x/b.rs:1 a -> b"]);
}

#[test]
fn tests_are_left_out() {
    let x = ("x.rs", "use crate::y::Y; pub struct X;");
    let y = (
        "y.rs",
        "#[cfg(test)] mod tests { use crate::x::X; } pub struct Y;",
    );
    assert_eq!(found(&[ROOT, x, y]), [""; 0]);
    let y = ("y.rs", "#[cfg(test)] mod tests; pub struct Y;");
    assert_eq!(
        found(&[ROOT, x, y, ("y/tests.rs", "use crate::x::X;")]),
        [""; 0]
    );
}

#[test]
fn paths_in_macros_and_inline_modules_count() {
    let x = ("x.rs", "fn f() { assert!((crate::y::f())) }");
    let y = ("y.rs", "mod inner { use super::super::x; }");
    assert_eq!(found(&[ROOT, x, y]), ["x.rs:1 y -> x", "y.rs:1 x -> y"]);
}

#[test]
fn circles_inside_one_file_are_no_circles_of_modules() {
    let root = ("lib.rs", "mod a { use crate::b; } mod b { use crate::a; }");
    assert_eq!(found(&[root]), [""; 0]);
}

#[test]
fn the_import_of_an_import_leads_to_where_it_comes_from() {
    // `y` takes from its parent what the parent has from `x`.
    let root = ("lib.rs", "mod x; mod y; use x::inner; pub use y::Y;");
    let x = ("x.rs", "pub mod inner { pub struct I; } use super::Y;");
    let y = ("y.rs", "use super::inner::I; pub struct Y;");
    assert_eq!(found(&[root, x, y]), ["x.rs:1 y -> x", "y.rs:1 x -> y"]);
}
