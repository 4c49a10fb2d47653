//! Mutation testing of one crate of a workspace. All mutants of a sample are compiled at once,
//! each behind a switch; the tests then run once for each mutant with its switch on. See
//! docs/internals/mutation.md.

#![allow(
    clippy::disallowed_methods,
    reason = "a tool may end with a panic where the system has no threads; the list is the server's"
)]

mod clock;
mod compile;
mod examine;
mod find;
mod mutant;
mod render;
mod report;
mod run;
mod sample;
mod sources;
mod values;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Mutates a random sample of a crate's code and reports the mutants that no test notices.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// The crate, by the name of its package or its library.
    package: String,
    /// The seed of the sample; by default taken from the clock, and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// How many mutants are drawn.
    #[arg(long, default_value_t = 100)]
    sample: usize,
    /// Crates whose tests run too, for mutants that survive those of the crate itself.
    #[arg(long, value_delimiter = ',')]
    wider: Vec<String>,
    /// Only mutants in files with one of these in their names.
    #[arg(long, value_delimiter = ',')]
    files: Vec<String>,
    /// Leaves out test programs by name: `wire/allocations`.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Examines again what survived in this report (its .json file) or was caught by time only,
    /// and nothing else.
    #[arg(long)]
    retry: Option<PathBuf>,
    /// How many mutants are examined at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// A run that takes five times what it takes without a mutant, and these seconds, is given up.
    /// Time in which the machine had no processor for it does not count.
    #[arg(long, default_value_t = 5)]
    grace: u64,
    /// Prints the mutants that could be drawn, and ends.
    #[arg(long)]
    list: bool,
    /// The root of the workspace.
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// The folder for the copy of the workspace, what is built from it, and the reports.
    #[arg(long, default_value = "target/mutants")]
    scratch: PathBuf,
}

fn main() -> ExitCode {
    match examine::examine(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}
