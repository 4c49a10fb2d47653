//! The whole way: find, draw, build, run, report.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::Arguments;
use crate::compile::{Build, TestProgram};
use crate::mutant::Mutant;
use crate::report::{Fate, Report};
use crate::run::{self, Baseline, Outcome, Run};
use crate::{sample, sources, workspace};

/// The longest run of a test program without a mutant.
const BASELINE_TIMEOUT: Duration = Duration::from_secs(1800);

/// Examines a sample and writes the report.
pub fn examine(arguments: &Arguments) -> Result<(), String> {
    let named = |error| format!("{}: {error}", arguments.root.display());
    let root = fs::canonicalize(&arguments.root).map_err(named)?;
    let packages = workspace::packages(&root)?;
    let package = workspace::find(&packages, &arguments.package)?;
    let library = package
        .library
        .clone()
        .ok_or("the package has no library")?;
    let mut mutants = asked_mutants(arguments, &root, &library)?;
    if arguments.list {
        mutants
            .iter()
            .for_each(|mutant| println!("{}", mutant.name()));
        return Ok(());
    }
    let seed = arguments.seed.unwrap_or_else(seed_of_now);
    println!("{}: {} mutants, seed {seed}", package.name, mutants.len());
    let candidates = mutants.len();
    let mut wanted = arguments.sample;
    if let Some(report) = &arguments.retry {
        mutants = retried(report, &mutants)?;
        wanted = mutants.len();
    } else {
        sample::shuffle(&mut mutants, seed);
    }

    let scratch = std::path::absolute(root.join(&arguments.scratch)).map_err(named)?;
    let mut wider = Vec::new();
    for name in &arguments.wider {
        wider.push(workspace::find(&packages, name)?.name.clone());
    }
    let build = Build {
        root: &root,
        scratch: &scratch,
        package: &package.name,
        library: library.strip_prefix(&root).unwrap_or(&library),
        wider: &wider,
    };
    let (programs, active) = draw(&build, &mutants, wanted)?;
    let drawn: Vec<usize> = active.iter().copied().take(wanted).collect();
    let programs = keep_programs(programs, &scratch, &arguments.without)?;
    let own = library
        .ancestors()
        .nth(2)
        .and_then(Path::file_name)
        .map(|name| name.to_os_string());
    let baselines = all_baselines(&programs, &scratch, own.as_deref().and_then(OsStr::to_str))?;

    let fates = all_fates(arguments, &drawn, &mutants, &baselines, &scratch)?;
    let last = drawn.last().map_or(0, |last| last + 1);
    let report = Report {
        package: &package.name,
        seed,
        candidates,
        not_compiled: last - drawn.len(),
        baselines: &baselines,
        mutants: drawn
            .iter()
            .map(|&number| &mutants[number])
            .zip(fates)
            .collect(),
    };
    write_report(&report, &root, &scratch, arguments.retry.is_some())
}

/// The mutants of a library: those of the files that the caller names, or of all files that are not
/// excluded.
fn asked_mutants(
    arguments: &Arguments,
    root: &Path,
    library: &Path,
) -> Result<Vec<Mutant>, String> {
    if arguments.files.is_empty() {
        return sources::mutants(root, library, &sources::exclusions());
    }
    let mut mutants = sources::mutants(root, library, &[])?;
    mutants.retain(|mutant| {
        let name = mutant.file.to_string_lossy();
        let mut parts = arguments.files.iter();
        parts.any(|part| name.contains(part.as_str()))
    });
    Ok(mutants)
}

fn seed_of_now() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    now.as_secs() ^ u64::from(now.subsec_nanos())
}

/// Runs each program without a mutant. Those of the package `own` come first, and the quick ones
/// first.
fn all_baselines(
    programs: &[TestProgram],
    scratch: &Path,
    own: Option<&str>,
) -> Result<Vec<Baseline>, String> {
    let mut baselines = Vec::new();
    for program in programs {
        let baseline = run::baseline(program, &scratch.join("run"), BASELINE_TIMEOUT)?;
        println!(
            "tests {}/{}: {:.1} s, reach {} mutants{}",
            program.package,
            program.name,
            baseline.duration.as_secs_f64(),
            baseline.reached.len(),
            if baseline.skipped.is_empty() {
                ""
            } else {
                "; some fail without a mutant"
            },
        );
        baselines.push(baseline);
    }
    baselines.sort_by_key(|baseline| {
        let is_own = Some(baseline.program.package.as_str()) == own;
        (!is_own, baseline.duration)
    });
    Ok(baselines)
}

/// Builds with at least as many mutants as are wanted, if there are that many that compile.
fn draw(
    build: &Build<'_>,
    mutants: &[Mutant],
    wanted: usize,
) -> Result<(Vec<TestProgram>, BTreeSet<usize>), String> {
    let mut tried = 0;
    let mut active = BTreeSet::new();
    loop {
        let missing = wanted - active.len().min(wanted);
        let next = (tried + missing + missing / 2 + 10).min(mutants.len());
        active.extend(tried..next);
        tried = next;
        let programs = build.build(mutants, &mut active)?;
        if active.len() >= wanted || tried == mutants.len() {
            return Ok((programs, active));
        }
    }
}

/// Copies the programs to a place where a later build does not replace them.
fn keep_programs(
    programs: Vec<TestProgram>,
    scratch: &Path,
    without: &[String],
) -> Result<Vec<TestProgram>, String> {
    let folder = scratch.join("programs");
    let named = |error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(named)?;
    }
    fs::create_dir_all(&folder).map_err(named)?;
    let mut kept = Vec::new();
    for (index, mut program) in programs.into_iter().enumerate() {
        let name = format!("{}/{}", program.package, program.name);
        if without.contains(&name) {
            continue;
        }
        let copy = folder.join(format!("{index}-{}", program.name));
        fs::copy(&program.executable, &copy).map_err(named)?;
        program.executable = copy;
        kept.push(program);
    }
    Ok(kept)
}

/// Examines the drawn mutants, some at a time.
fn all_fates(
    arguments: &Arguments,
    drawn: &[usize],
    mutants: &[Mutant],
    baselines: &[Baseline],
    scratch: &Path,
) -> Result<Vec<Fate>, String> {
    let next = AtomicUsize::new(0);
    let fates = Mutex::new(vec![Err("not examined".to_owned()); drawn.len()]);
    std::thread::scope(|scope| {
        for job in 0..arguments.jobs.max(1) {
            let folder = scratch.join(format!("run/job-{job}"));
            let (next, fates) = (&next, &fates);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&number) = drawn.get(index) else {
                        return;
                    };
                    let fate = fate(
                        number,
                        baselines,
                        &folder,
                        Duration::from_secs(arguments.grace),
                    );
                    println!("{index} {fate:?}: {}", mutants[number].name());
                    if let Ok(mut fates) = fates.lock() {
                        fates[index] = fate;
                    }
                }
            });
        }
    });
    let fates = fates.into_inner().map_err(|error| error.to_string())?;
    fates.into_iter().collect()
}

/// Runs the tests that reach a mutant, until one notices it.
fn fate(
    number: usize,
    baselines: &[Baseline],
    folder: &Path,
    grace: Duration,
) -> Result<Fate, String> {
    let mut is_reached = false;
    for baseline in baselines
        .iter()
        .filter(|baseline| baseline.reached.contains(&number))
    {
        is_reached = true;
        if let Some(fate) = fate_by(number, baseline, folder, grace)? {
            return Ok(fate);
        }
    }
    Ok(if is_reached {
        Fate::Survived
    } else {
        Fate::Unreached
    })
}

/// Runs one program with a mutant; returns how it is noticed, if it is.
fn fate_by(
    number: usize,
    baseline: &Baseline,
    folder: &Path,
    grace: Duration,
) -> Result<Option<Fate>, String> {
    let program = &baseline.program;
    let timeout = baseline.duration * 5 + grace;
    let run = |arguments: Vec<String>| {
        let folder = folder.to_owned();
        let variable = Some(("MUTANT", number.to_string()));
        let run = Run {
            program,
            folder,
            variable,
            arguments,
            timeout,
            stop_at_failure: true,
        };
        run.run().map(|(outcome, _)| outcome)
    };
    let name = |test: &str| format!("{}/{} {test}", program.package, program.name);
    let skipped = run::skip_arguments(&baseline.skipped);
    match run(skipped.clone())? {
        Outcome::Passed => Ok(None),
        Outcome::TimedOut => Ok(Some(Fate::TimedOut { by: name("") })),
        Outcome::Failed(tests) => {
            // A test that fails now and then by itself must not be taken for one that notices.
            let again = match tests.first() {
                Some(test) => vec!["--exact".to_owned(), test.clone()],
                None => skipped,
            };
            let is_noticed = run(again)? != Outcome::Passed;
            let by = name(tests.first().map_or("ended early", String::as_str));
            Ok(is_noticed.then_some(Fate::Caught { by }))
        }
    }
}

/// Finds the mutants of a report again that no test caught, or only by its time; lines may have
/// moved since.
fn retried(report: &Path, mutants: &[Mutant]) -> Result<Vec<Mutant>, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", report.display());
    let text = fs::read_to_string(report).map_err(|error| named(&error))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| named(&error))?;
    let old = report["mutants"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut found = Vec::new();
    let is_open = |old: &&Value| {
        ["survived", "unreached", "timed out"].contains(&old["fate"].as_str().unwrap_or_default())
    };
    for old in old.iter().filter(is_open) {
        let text = |name: &str| old[name].as_str().unwrap_or_default();
        let line = old["line"].as_u64().unwrap_or_default() as usize;
        let column = old["column"].as_u64().unwrap_or_default() as usize;
        let same = mutants.iter().filter(|mutant| {
            mutant.file.to_string_lossy() == text("file")
                && mutant.function == text("function")
                && mutant.description == text("description")
        });
        let nearest =
            same.min_by_key(|mutant| (mutant.line.abs_diff(line), mutant.column.abs_diff(column)));
        match nearest {
            Some(mutant) => found.push(mutant.clone()),
            None => println!("gone: {} {}: {}", text("file"), line, text("description")),
        }
    }
    Ok(found)
}

fn write_report(
    report: &Report<'_>,
    root: &Path,
    scratch: &Path,
    is_retry: bool,
) -> Result<(), String> {
    let text = report.text(root);
    println!("\n{text}");
    let retry = if is_retry { "-retry" } else { "" };
    let base = scratch.join("reports");
    fs::create_dir_all(&base).map_err(|error| format!("{}: {error}", base.display()))?;
    let base = base.join(format!("{}-{}{retry}", report.package, report.seed));
    let write = |extension: &str, text: &str| -> Result<PathBuf, String> {
        let file = base.with_extension(extension);
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(file)
    };
    write("txt", &text)?;
    let file = write("json", &format!("{:#}\n", report.json()))?;
    println!("report: {}", file.display());
    Ok(())
}
