//! Builds a copy of the workspace in which one crate has all its sampled mutants, and drops those
//! that do not compile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::mutant::Mutant;
use crate::render::{self, Placed};
use crate::workspace;

/// The most rounds of building and dropping: an error may hide others behind it, since types are
/// checked before borrows.
const MAX_ROUNDS: usize = 30;

/// Where the copy is and what is built.
pub struct Build<'a> {
    pub root: &'a Path,
    /// The folder with the copy (`tree`) and what is built (`target`).
    pub scratch: &'a Path,
    pub package: &'a str,
    /// The root module of the crate, relative to `root`.
    pub library: &'a Path,
    /// Packages whose tests are built too.
    pub wider: &'a [String],
}

/// A program with tests.
#[derive(Clone, Debug)]
pub struct TestProgram {
    pub package: String,
    pub name: String,
    pub executable: PathBuf,
    pub manifest_folder: PathBuf,
}

/// A mistake that the compiler found: where, and its whole text.
struct CompileError {
    primary: Vec<(PathBuf, Range<usize>)>,
    others: Vec<(PathBuf, Range<usize>)>,
    text: String,
}

impl Build<'_> {
    /// Builds with as many of the mutants as compile. `mutants` are numbered by their place;
    /// those that do not compile are removed from `active`.
    pub fn build(
        &self,
        mutants: &[Mutant],
        active: &mut BTreeSet<usize>,
    ) -> Result<Vec<TestProgram>, String> {
        for round in 1..=MAX_ROUNDS {
            let placed = self.write(mutants, active)?;
            let (mut errors, mut programs) = self.cargo(&["check", "--lib"], &[])?;
            if errors.is_empty() {
                let wider: Vec<&str> = self.wider.iter().map(String::as_str).collect();
                (errors, programs) = self.cargo(&["test", "--no-run"], &wider)?;
            }
            if errors.is_empty() {
                return Ok(programs);
            }
            let blamed = blamed(&errors, &placed);
            if blamed.is_empty() {
                let texts: Vec<&str> = errors.iter().map(|error| error.text.as_str()).collect();
                return Err(format!(
                    "no mutant is near these errors:\n{}",
                    texts.join("\n")
                ));
            }
            println!("round {round}: {} mutants do not compile", blamed.len());
            active.retain(|number| !blamed.contains(number));
        }
        Err(format!(
            "after {MAX_ROUNDS} rounds it still does not compile"
        ))
    }

    fn tree(&self) -> PathBuf {
        self.scratch.join("tree")
    }

    /// Writes the copy; returns where each mutant stands.
    fn write(
        &self,
        mutants: &[Mutant],
        active: &BTreeSet<usize>,
    ) -> Result<BTreeMap<PathBuf, Vec<Placed>>, String> {
        let mut files: BTreeMap<PathBuf, Vec<(usize, &Mutant)>> = BTreeMap::new();
        files.entry(self.library.to_owned()).or_default();
        for &number in active {
            let mutant = &mutants[number];
            files
                .entry(mutant.file.clone())
                .or_default()
                .push((number, mutant));
        }
        let (mut instead, mut placed) = (Vec::new(), BTreeMap::new());
        for (file, mutants_of_file) in files {
            let text = fs::read_to_string(self.root.join(&file))
                .map_err(|error| format!("{}: {error}", file.display()))?;
            let mut rendered = render::render(&text, &mutants_of_file);
            if file == self.library {
                let count = format!("{}", mutants.len().max(1));
                rendered
                    .text
                    .push_str(&render::SWITCH_MODULE.replace("MUTANT_COUNT", &count));
            }
            instead.push((file.clone(), rendered.text));
            placed.insert(file, rendered.placed);
        }
        fs::create_dir_all(self.tree()).map_err(|error| format!("{error}"))?;
        workspace::copy(self.root, &self.tree(), &instead)?;
        Ok(placed)
    }

    fn cargo(
        &self,
        arguments: &[&str],
        wider: &[&str],
    ) -> Result<(Vec<CompileError>, Vec<TestProgram>), String> {
        let mut command = Command::new("cargo");
        command
            .args(arguments)
            .args(["--message-format=json", "--package", self.package]);
        for package in wider {
            command.args(["--package", package]);
        }
        let output = command
            .arg("--target-dir")
            .arg(self.scratch.join("target"))
            .current_dir(self.tree())
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let messages = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let (mut errors, mut programs) = (Vec::new(), Vec::new());
        for message in messages {
            match message["reason"].as_str() {
                Some("compiler-message") if message["message"]["level"] == "error" => {
                    errors.extend(compile_error(&message["message"]));
                }
                Some("compiler-artifact") => programs.extend(test_program(&message)),
                _ => {}
            }
        }
        if errors.is_empty() && !output.status.success() {
            return Err(format!(
                "cargo failed: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        Ok((errors, programs))
    }
}

fn test_program(message: &Value) -> Option<TestProgram> {
    let executable = message["executable"].as_str()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?);
    Some(TestProgram {
        // The folder names the package in every form of the identifier that cargo has had.
        package: manifest
            .parent()?
            .file_name()?
            .to_string_lossy()
            .into_owned(),
        name: message["target"]["name"].as_str()?.to_owned(),
        executable: PathBuf::from(executable),
        manifest_folder: manifest.parent()?.to_owned(),
    })
}

/// Returns an error with a place; the last one only counts the others.
fn compile_error(message: &Value) -> Option<CompileError> {
    let mut spans = Vec::new();
    collect_spans(message, &mut spans);
    if spans.is_empty() {
        return None;
    }
    let place = |span: &Value| {
        let number = |name: &str| span[name].as_u64().unwrap_or_default() as usize;
        let file = PathBuf::from(span["file_name"].as_str().unwrap_or_default());
        (file, number("byte_start")..number("byte_end"))
    };
    let (primary, others): (Vec<&Value>, Vec<&Value>) =
        spans.iter().partition(|span| span["is_primary"] == true);
    Some(CompileError {
        primary: primary.into_iter().map(place).collect(),
        others: others.into_iter().map(place).collect(),
        text: message["rendered"].as_str().unwrap_or_default().to_owned(),
    })
}

fn collect_spans(message: &Value, spans: &mut Vec<Value>) {
    spans.extend(message["spans"].as_array().cloned().unwrap_or_default());
    for child in message["children"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
    {
        let mut of_child = Vec::new();
        collect_spans(child, &mut of_child);
        for mut span in of_child {
            span["is_primary"] = Value::Bool(false);
            spans.push(span);
        }
    }
}

/// Returns the mutants that the errors are about.
fn blamed(errors: &[CompileError], placed: &BTreeMap<PathBuf, Vec<Placed>>) -> BTreeSet<usize> {
    let none = Vec::new();
    let mut blamed = BTreeSet::new();
    for error in errors {
        let near = |spans: &[(PathBuf, Range<usize>)], is_near: NearTest| -> BTreeSet<usize> {
            let of_span = |(file, span): &(PathBuf, Range<usize>)| {
                let placed = placed.get(file).unwrap_or(&none);
                let found: Vec<&Placed> = placed
                    .iter()
                    .filter(|placed| is_near(placed, span))
                    .collect();
                // The smallest ones, where one stands inside another.
                let least = found.iter().map(|placed| placed.whole.len()).min();
                let found = found
                    .iter()
                    .filter(|placed| Some(placed.whole.len()) == least);
                found.map(|placed| placed.number).collect::<Vec<_>>()
            };
            spans.iter().flat_map(of_span).collect()
        };
        let tests: [(&[_], NearTest); 6] = [
            (&error.primary, |placed, span| contains(&placed.range, span)),
            (&error.others, |placed, span| contains(&placed.range, span)),
            (&error.primary, |placed, span| overlaps(&placed.range, span)),
            (&error.primary, |placed, span| contains(&placed.whole, span)),
            (&error.others, |placed, span| overlaps(&placed.range, span)),
            (&error.others, |placed, span| contains(&placed.whole, span)),
        ];
        let first = tests.iter().map(|(spans, is_near)| near(spans, *is_near));
        blamed.extend(
            first
                .into_iter()
                .find(|found| !found.is_empty())
                .unwrap_or_default(),
        );
    }
    blamed
}

type NearTest = fn(&Placed, &Range<usize>) -> bool;

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn overlaps(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}
