//! Checks the structure and the language of the workspace. Each check reports violations as
//! `file:line: [check] message`; those that `exceptions.txt` lists are allowed, and may only become
//! fewer.

#![allow(
    clippy::disallowed_methods,
    reason = "a tool may end with a panic where the system has no threads; the list is the server's"
)]

mod changes;
mod circles;
mod exceptions;
mod layers;
mod length;
mod missing_docs;
mod modules;
mod musts;
mod page_names;
mod paths;
mod phrases;
mod report;
mod service_names;
mod sizes;
mod source;
mod type_names;
mod violation;
mod width;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use changes::ChangedLines;
use exceptions::Exceptions;
use source::Tree;
use violation::Violation;
use workspace::Workspace;

const USAGE: &str = "usage: script/tidy [--renew | --list | --counts]

Checks the structure and the language of the workspace. Violations that
tests/tidy/exceptions.txt lists are allowed; it may only become shorter.

  circles       modules beside each other do not import each other, by whatever way
  layers        a crate depends on crates of lower layers only
  service-names the crate server names no method and no service
  phrases       no phrase of tests/tidy/phrases.txt, also in tests/*.py, script/ and proto/
  type-names    a name of tests/tidy/type-names.txt is for one type of the workspace
  width         at most 100 columns
  functions     at most 70 lines
  files         at most 500 lines of code, without tests, comments and blank lines
  missing-docs  the lint is on in each crate
  musts         each rule of docs/internals/rfc-musts.md has tests, and they exist
  page-names    `Type::item` and `file.rs` in ARCHITECTURE.md, CONTRIBUTING.md and
                docs/internals exist

  --renew   lowers the numbers in exceptions.txt to what is found; raises none
  --list    prints every violation, also the allowed ones
  --counts  prints what is found in the form of exceptions.txt
";

const EXCEPTIONS: &str = "tests/tidy/exceptions.txt";

/// What a run does with the violations that it finds.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Compare,
    Renew,
    List,
    Counts,
    Help,
}

fn main() -> ExitCode {
    match arguments(std::env::args().skip(1)).and_then(|(mode, root)| run(mode, &root)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::from(2)
        }
    }
}

fn arguments(words: impl Iterator<Item = String>) -> Result<(Mode, PathBuf), String> {
    let (mut mode, mut root) = (Mode::Compare, PathBuf::from("."));
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--renew" => mode = Mode::Renew,
            "--list" => mode = Mode::List,
            "--counts" => mode = Mode::Counts,
            "-h" | "--help" => mode = Mode::Help,
            "--root" => root = words.next().ok_or(USAGE)?.into(),
            _ => return Err(USAGE.into()),
        }
    }
    Ok((mode, root))
}

/// Returns whether the workspace passes.
fn run(mode: Mode, root: &Path) -> Result<bool, String> {
    if mode == Mode::Help {
        print!("{USAGE}");
        return Ok(true);
    }
    let workspace = Workspace::read(Tree::read(root)?)?;
    let violations = violations(&workspace)?;
    match mode {
        Mode::List => report::list(&violations),
        Mode::Counts => print!("{}", Exceptions::of(&violations).lines()),
        Mode::Compare | Mode::Renew | Mode::Help => {
            return compare(mode, root, &workspace, &violations);
        }
    }
    Ok(true)
}

fn compare(
    mode: Mode,
    root: &Path,
    workspace: &Workspace,
    violations: &[Violation],
) -> Result<bool, String> {
    let file = root.join(EXCEPTIONS);
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let mut exceptions = Exceptions::parse(&text).map_err(|e| format!("{EXCEPTIONS}:{e}"))?;
    if mode == Mode::Renew {
        let renewed = exceptions.renew(&text, violations);
        std::fs::write(&file, &renewed).map_err(|error| format!("{EXCEPTIONS}: {error}"))?;
        exceptions = Exceptions::parse(&renewed).map_err(|e| format!("{EXCEPTIONS}:{e}"))?;
    }
    let failures = exceptions.compare(violations, &ChangedLines::read(root));
    report::summary(violations, &failures);
    report::crates(workspace);
    for failure in &failures {
        eprintln!("{failure}");
    }
    if !failures.is_empty() {
        eprintln!(
            "tidy: {} failures; the rules: script/tidy --help",
            failures.len()
        );
    }
    Ok(failures.is_empty())
}

/// Returns what all checks find, sorted by check, file and line.
fn violations(workspace: &Workspace) -> Result<Vec<Violation>, String> {
    let tree = &workspace.tree;
    let mut found = circles::check(workspace);
    found.extend(layers::check(tree));
    found.extend(service_names::check(workspace)?);
    found.extend(phrases::check(tree));
    found.extend(type_names::check(workspace));
    found.extend(width::check(tree));
    found.extend(length::check(workspace)?);
    found.extend(missing_docs::check(tree));
    found.extend(musts::check(tree));
    found.extend(page_names::check(tree));
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Option<Mode> {
        let words = words.iter().map(|word| (*word).to_owned());
        arguments(words).ok().map(|(mode, _)| mode)
    }

    #[test]
    fn arguments_name_the_mode() {
        assert!(parsed(&[]) == Some(Mode::Compare));
        assert!(parsed(&["--help"]) == Some(Mode::Help));
        assert!(parsed(&["--renew"]) == Some(Mode::Renew));
        assert!(parsed(&["--root", "a", "--list"]) == Some(Mode::List));
        assert!(parsed(&["--root"]).is_none());
        assert!(parsed(&["--other"]).is_none());
    }

    #[test]
    fn each_check_takes_part_in_a_run() {
        let long = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(501));
        let library = format!("mod x; mod y; enum State {{}}\n// rubbish\n{long}");
        let wide = "x".repeat(101);
        let workspace = Workspace::of(&[
            ("crates/wire/Cargo.toml", "[dependencies]\nserver = \"1\"\n"),
            ("crates/wire/src/lib.rs", &library),
            ("crates/wire/src/x.rs", "use crate::y; struct State;"),
            ("crates/wire/src/y.rs", "use crate::x;"),
            ("docs/internals/rfc-musts.md", "| 1 | rule | none |\n"),
            ("ARCHITECTURE.md", "`State::gone`"),
            ("README.md", &wide),
            (
                "crates/service/src/method.rs",
                "methods! { Echo { Ping x; } }",
            ),
            ("crates/server/Cargo.toml", ""),
            (
                "crates/server/src/lib.rs",
                "const A: Method = Method::Ping;",
            ),
        ]);
        let found = violations(&workspace).unwrap();
        for check in violation::CHECKS {
            assert!(
                found.iter().any(|violation| violation.check == check),
                "{check}"
            );
        }
    }
}
