//! What came of a sample, as text and as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::mutant::Mutant;
use crate::run::Baseline;

/// What the tests made of a mutant.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// A test failed, or the program with the tests ended.
    Caught { by: String },
    /// The tests did not end in time.
    TimedOut { by: String },
    /// All tests passed, some of which reach the mutant's place.
    Survived,
    /// No test reaches the mutant's place.
    Unreached,
}

/// What is known of one sample.
pub struct Report<'a> {
    pub package: &'a str,
    pub seed: u64,
    /// All mutants that could have been drawn.
    pub candidates: usize,
    /// Of the drawn ones before the last one that was run, those that do not compile.
    pub not_compiled: usize,
    pub baselines: &'a [Baseline],
    pub mutants: Vec<(&'a Mutant, Fate)>,
}

impl Report<'_> {
    fn count(&self, is_counted: fn(&Fate) -> bool) -> usize {
        self.mutants
            .iter()
            .filter(|(_, fate)| is_counted(fate))
            .count()
    }

    /// Returns the number of mutants that the tests noticed.
    pub fn noticed(&self) -> usize {
        self.count(|fate| matches!(fate, Fate::Caught { .. } | Fate::TimedOut { .. }))
    }

    /// Writes the report for people; `root` is where the sources are.
    pub fn text(&self, root: &Path) -> String {
        let total = self.mutants.len();
        let mut text = format!(
            "{}: seed {}, {total} mutants of {} ({} more do not compile)\n",
            self.package, self.seed, self.candidates, self.not_compiled
        );
        text += &format!(
            "caught {} (of these {} by time), survived {}, unreached {}: {:.1} % caught\n",
            self.noticed(),
            self.count(|fate| matches!(fate, Fate::TimedOut { .. })),
            self.count(|fate| *fate == Fate::Survived),
            self.count(|fate| *fate == Fate::Unreached),
            100.0 * self.noticed() as f64 / total.max(1) as f64
        );
        for baseline in self.baselines {
            text += &format!(
                "tests {}/{}: {:.1} s, reach {}",
                baseline.program.package,
                baseline.program.name,
                baseline.duration.as_secs_f64(),
                baseline.reached.len()
            );
            if !baseline.skipped.is_empty() {
                text += &format!("; fail without a mutant: {}", baseline.skipped.join(", "));
            }
            text.push('\n');
        }
        let mut survivors: BTreeMap<&Path, Vec<(&Mutant, &Fate)>> = BTreeMap::new();
        for (mutant, fate) in &self.mutants {
            if matches!(fate, Fate::Survived | Fate::Unreached) {
                survivors
                    .entry(&mutant.file)
                    .or_default()
                    .push((mutant, fate));
            }
        }
        for (file, mut survivors) in survivors {
            let source = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            survivors.sort_by_key(|(mutant, _)| (mutant.line, mutant.column));
            for (mutant, fate) in survivors {
                let fate = if *fate == Fate::Unreached {
                    "unreached"
                } else {
                    "survived"
                };
                let line = source.lines().nth(mutant.line - 1).unwrap_or_default();
                text += &format!("{fate}: {}\n    {}\n", mutant.name(), line.trim());
            }
        }
        text
    }

    /// Returns the report for `--retry` and for other programs.
    pub fn json(&self) -> Value {
        let mutants = self.mutants.iter().map(|(mutant, fate)| {
            let (fate, by) = match fate {
                Fate::Caught { by } => ("caught", Some(by)),
                Fate::TimedOut { by } => ("timed out", Some(by)),
                Fate::Survived => ("survived", None),
                Fate::Unreached => ("unreached", None),
            };
            json!({
                "file": mutant.file.to_string_lossy(),
                "line": mutant.line,
                "column": mutant.column,
                "function": mutant.function,
                "description": mutant.description,
                "fate": fate,
                "by": by,
            })
        });
        json!({
            "package": self.package,
            "seed": self.seed,
            "candidates": self.candidates,
            "not_compiled": self.not_compiled,
            "noticed": self.noticed(),
            "mutants": mutants.collect::<Vec<_>>(),
        })
    }
}
