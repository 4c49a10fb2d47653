//! The tool on a small workspace: what is noticed, what survives, what is never reached.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn examined(name: &str, more: &[&str]) -> Value {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let arguments = [
        "plain", "--seed", "5", "--sample", "1000", "--grace", "2", "--root",
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_pelton-mutants"))
        .args(arguments)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixture"))
        .arg("--scratch")
        .arg(&scratch)
        .args(more)
        .output()
        .expect("the tool starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: PathBuf = text
        .lines()
        .find_map(|line| line.strip_prefix("report: "))
        .map(PathBuf::from)
        .expect("the report is named");
    serde_json::from_str(&std::fs::read_to_string(report).expect("the report")).expect("JSON")
}

/// Returns the mutants with this fate, each as "function: description", sorted.
fn with_fate(report: &Value, fate: &str) -> Vec<String> {
    let mutants = report["mutants"].as_array().expect("a list");
    let mut found: Vec<String> = mutants
        .iter()
        .filter(|mutant| mutant["fate"] == fate)
        .map(|mutant| {
            let text = |name: &str| mutant[name].as_str().expect("text");
            format!("{}: {}", text("function"), text("description"))
        })
        .collect();
    found.sort();
    found
}

#[test]
fn each_mutant_meets_the_fate_that_its_tests_deserve() {
    let narrow = examined("narrow", &[]);
    assert_eq!(
        with_fate(&narrow, "survived"),
        ["weakly_tested: replace < with <="]
    );
    assert_eq!(
        with_fate(&narrow, "unreached"),
        [
            "tested_elsewhere: remove !",
            "tested_elsewhere: replace && with ||",
            "tested_elsewhere: replace the body with false",
            "tested_elsewhere: replace the body with true",
            "untested: replace + with *",
            "untested: replace + with -",
            "untested: replace the body with 0",
            "untested: replace the body with 1",
        ]
    );
    assert_eq!(
        with_fate(&narrow, "timed out"),
        ["counts_down: replace -= with /="]
    );
    let caught = with_fate(&narrow, "caught");
    for expected in [
        "well_tested: replace >= with <",
        "well_tested: replace >= with >",
        "well_tested: replace the body with true",
        "weakly_tested: replace < with ==",
        "weakly_tested: replace < with >",
        "counts_down: replace += with -=",
        "counts_down: replace the body with 0",
        "colour: delete the match arm 1",
        "colour: replace the match guard with true",
        "colour: replace the match guard with false",
        "colour: replace > with >=",
        "negated: negate the condition",
        "first_or: replace != with ==",
    ] {
        assert!(
            caught.iter().any(|name| name == expected),
            "{expected}: {caught:#?}"
        );
    }
    // `colour` cannot return a default value.
    assert_eq!(narrow["not_compiled"], 1, "{narrow:#}");

    // The tests of the other crate reach one function more; the copy is used again.
    let wider = examined("narrow", &["--wider", "fixture-user"]);
    assert!(
        with_fate(&wider, "unreached")
            .iter()
            .all(|name| name.starts_with("untested"))
    );
    assert_eq!(with_fate(&wider, "unreached").len(), 4);
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("narrow/reports/fixture-plain-5.json");
    let again = examined(
        "narrow",
        &["--retry", report.to_str().expect("a name in UTF-8")],
    );
    // Five that no test caught, and one that ran out of time.
    assert_eq!(again["mutants"].as_array().map(Vec::len), Some(6));
    assert_eq!(
        with_fate(&again, "survived"),
        ["weakly_tested: replace < with <="]
    );
}
