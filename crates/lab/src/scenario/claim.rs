//! A claim of a publication, and what became of it.

use super::measurements::{MeasuredRun, Measurements};

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// The criterion is met.
    Reproduced,
    /// It is not.
    NotReproduced,
    /// It cannot be judged here, and why.
    CannotBeSeen(String),
}

impl ClaimVerdict {
    /// Words for the report.
    pub fn words(&self) -> String {
        match self {
            ClaimVerdict::Reproduced => "reproduced".into(),
            ClaimVerdict::NotReproduced => "not reproduced".into(),
            ClaimVerdict::CannotBeSeen(why) => format!("cannot be seen here, because {why}"),
        }
    }

    /// The word for programs.
    pub fn name(&self) -> &'static str {
        match self {
            ClaimVerdict::Reproduced => "reproduced",
            ClaimVerdict::NotReproduced => "not-reproduced",
            ClaimVerdict::CannotBeSeen(_) => "cannot-be-seen",
        }
    }
}

/// A claim of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What was published.
    pub text: &'static str,
    /// What has to be seen for it to hold, written down before anything is measured.
    pub criterion: &'static str,
    /// What became of it.
    pub verdict: ClaimVerdict,
    /// The figures behind that.
    pub figures: String,
}

/// A claim that is being judged: what was published, and by what it is judged.
#[derive(Clone, Copy)]
pub(super) struct Published {
    pub(super) text: &'static str,
    pub(super) criterion: &'static str,
}

impl Published {
    /// The claim with what was found, or why nothing was.
    pub(super) fn judged(self, found: Result<(bool, String), String>) -> Claim {
        let (verdict, figures) = match found {
            Ok((true, figures)) => (ClaimVerdict::Reproduced, figures),
            Ok((false, figures)) => (ClaimVerdict::NotReproduced, figures),
            Err(why) => (ClaimVerdict::CannotBeSeen(why), String::new()),
        };
        Claim {
            text: self.text,
            criterion: self.criterion,
            verdict,
            figures,
        }
    }
}

/// The median of a figure of a run.
///
/// # Errors
/// If there is none: why, for the report.
pub(super) fn needed(
    measured: &Measurements,
    run: &str,
    figure: impl Fn(&MeasuredRun) -> Option<f64>,
) -> Result<f64, String> {
    let found = measured.median(run, figure);
    found.ok_or_else(|| match measured.why_missing(run) {
        Some(why) => why.to_owned(),
        None => format!("the run `{run}` did not show it"),
    })
}

/// The median of what a client printed under a name. A run with nothing of it shows nothing: beside
/// 0 everything is more.
pub(super) fn printed(measured: &Measurements, run: &str, name: &str) -> Result<f64, String> {
    needed(measured, run, |run| {
        run.figure(name).filter(|figure| *figure > 0.0)
    })
}

/// Calls a second.
pub(super) fn rate(measured: &Measurements, run: &str) -> Result<f64, String> {
    printed(measured, run, "calls_per_s")
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::Value;

    use super::*;

    /// Adds one round of a run with these figures.
    pub(in super::super) fn add(measured: &mut Measurements, name: &str, figures: &[(&str, f64)]) {
        let figures = figures.iter();
        measured.add(MeasuredRun {
            name: name.into(),
            figures: figures
                .map(|(name, figure)| ((*name).to_owned(), Value::from(*figure)))
                .collect(),
            ..MeasuredRun::default()
        });
    }

    /// The names of the verdicts.
    pub(in super::super) fn verdicts(claims: &[Claim]) -> Vec<&'static str> {
        claims.iter().map(|claim| claim.verdict.name()).collect()
    }

    #[test]
    fn what_is_missing_says_why() {
        let mut measured = Measurements::default();
        measured.add_missing("a", "there is no client");
        let why = rate(&measured, "a").expect_err("nothing was measured");
        assert_eq!(why, "there is no client");
        let why = rate(&measured, "b").expect_err("nothing was measured");
        assert!(why.contains("`b`"), "{why}");
    }

    #[test]
    fn nothing_is_no_figure_to_compare_with() {
        let mut measured = Measurements::default();
        add(&mut measured, "a", &[("calls_per_s", 0.0)]);
        assert!(rate(&measured, "a").is_err());
        add(&mut measured, "a", &[("calls_per_s", 5.0)]);
        assert_eq!(rate(&measured, "a"), Ok(5.0));
    }
}
