//! Checks the structure and the language of the workspace. Each check reports violations as
//! `file:line: [check] message`; those that `exceptions.txt` lists are allowed, and may only become
//! fewer.

#![allow(
    clippy::disallowed_methods,
    reason = "a tool may end with a panic where the system has no threads; the list is the server's"
)]

mod circles;
mod exceptions;
mod layers;
mod length;
mod missing_docs;
mod modules;
mod musts;
mod paths;
mod phrases;
mod report;
mod sizes;
mod source;
mod type_names;
mod violation;
mod width;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use exceptions::Exceptions;
use source::Tree;
use violation::Violation;
use workspace::Workspace;

const USAGE: &str = "usage: script/tidy [--renew | --list | --counts]

Checks the structure and the language of the workspace. Violations that
tests/tidy/exceptions.txt lists are allowed; it may only become shorter.

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
            "--root" => root = words.next().ok_or(USAGE)?.into(),
            _ => return Err(USAGE.into()),
        }
    }
    Ok((mode, root))
}

/// Returns whether the workspace passes.
fn run(mode: Mode, root: &Path) -> Result<bool, String> {
    let workspace = Workspace::read(Tree::read(root)?)?;
    let violations = violations(&workspace)?;
    match mode {
        Mode::List => report::list(&violations),
        Mode::Counts => print!("{}", Exceptions::of(&violations).lines()),
        Mode::Compare | Mode::Renew => return compare(mode, root, &workspace, &violations),
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
    let complaints = exceptions.compare(violations);
    report::summary(violations, &complaints);
    report::crates(workspace);
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    if !complaints.is_empty() {
        eprintln!(
            "tidy: {} complaints; the rules: script/tidy --help",
            complaints.len()
        );
    }
    Ok(complaints.is_empty())
}

/// Returns what all checks find, sorted by check, file and line.
fn violations(workspace: &Workspace) -> Result<Vec<Violation>, String> {
    let tree = &workspace.tree;
    let mut found = circles::check(workspace);
    found.extend(layers::check(tree));
    found.extend(phrases::check(tree));
    found.extend(type_names::check(workspace));
    found.extend(width::check(tree));
    found.extend(length::check(workspace)?);
    found.extend(missing_docs::check(tree));
    found.extend(musts::check(tree));
    found.sort();
    Ok(found)
}
