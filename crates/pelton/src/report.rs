//! Failures and warnings, as they are told on standard error.

use serde_json::{Map, Value};

use crate::arguments::OutputFormat;
use crate::exit::{Exit, Failure};
use crate::output::{note, object};

impl Failure {
    /// Tells it on standard error.
    pub fn report(&self, format: OutputFormat) {
        match format {
            OutputFormat::Text => note(format_args!("pelton: {self}")),
            OutputFormat::Json => note(Value::Object(self.fields())),
        }
    }

    /// The failure as an object, for `--output json`.
    pub fn fields(&self) -> Map<String, Value> {
        let exit_code = self.exit() as u8;
        let Failure::Call(failure) = self else {
            return object([
                ("error", self.to_string().into()),
                ("exit_code", exit_code.into()),
            ]);
        };
        let mut fields = object([
            ("error", failure.what.as_str().into()),
            ("address", failure.address.as_str().into()),
        ]);
        if let Some(code) = failure.status {
            fields.insert("status".into(), code.name().into());
        }
        if !failure.hint.is_empty() {
            fields.insert("hint".into(), failure.hint.as_str().into());
        }
        fields.insert("exit_code".into(), exit_code.into());
        fields
    }
}

/// Tells something on standard error that is no failure.
pub fn warn(text: &str, format: OutputFormat) {
    match format {
        OutputFormat::Text => note(format_args!("pelton: {text}")),
        OutputFormat::Json => note(Value::Object(object([("warning", text.into())]))),
    }
}

/// What is wrong with a command line, as an object for `--output json`.
pub fn usage_fields(error: &clap::Error) -> Map<String, Value> {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let first = paragraphs.next().unwrap_or_default();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut fields = object([("error", words(first.trim_start_matches("error: ")).into())]);
    let rest: Vec<String> = paragraphs.map(words).collect();
    let after = |word: &str| rest.iter().find_map(|one| one.strip_prefix(word));
    let hint = match (after("tip: "), after("Usage: ")) {
        (Some(tip), _) => tip.replace(" tip: ", "; "),
        (None, Some(usage)) => format!("write `{usage}`"),
        (None, None) => "--help shows what can be written".into(),
    };
    fields.insert("hint".into(), hint.into());
    fields.insert("exit_code".into(), (Exit::Usage as u8).into());
    fields
}

#[cfg(test)]
mod tests {
    use client::Code;

    use super::*;
    use crate::exit::CallFailure;

    fn call(hint: &str) -> Failure {
        let failure = CallFailure {
            what: "Get on a:1: NOT_FOUND: no".into(),
            address: "a:1".into(),
            status: Some(Code::NotFound),
            hint: hint.into(),
            names_nothing: true,
            is_miss: false,
        };
        failure.into()
    }

    #[test]
    fn what_was_interrupted_ends_as_a_shell_says_it() {
        let failure = Failure::Interrupted("interrupted".into())
            .with("2 done")
            .about("copy");
        assert_eq!(failure.to_string(), "copy: interrupted; 2 done");
        assert_eq!(failure.exit(), Exit::Interrupted);
        assert_eq!(failure.fields()["exit_code"], 130);
    }

    #[test]
    fn the_hint_of_wrong_usage_is_what_to_write() {
        let hint = |line: &str| {
            let error = crate::arguments::command()
                .try_get_matches_from(line.split_whitespace())
                .expect_err(line);
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let fields = usage_fields(&crate::arguments::with_tip(error, &words));
            fields["hint"].as_str().expect("text").to_owned()
        };
        let tip = "flags go behind the command: `pelton get --output json a`";
        assert_eq!(hint("pelton --output json get a"), tip);
        assert_eq!(hint("pelton nonsense"), "write `pelton <COMMAND>`");
        let general = "--help shows what can be written";
        assert_eq!(hint("pelton scan --limit 0"), general);
        assert_eq!(
            hint("pelton sttaus"),
            "a similar subcommand exists: 'status'"
        );
    }

    #[test]
    fn failures_say_the_same_as_text_and_as_an_object() {
        let failure = call("look").with("again").about("file");
        let text = "file: Get on a:1: NOT_FOUND: no; look; again";
        assert_eq!(failure.to_string(), text);
        let expected = object([
            ("error", "file: Get on a:1: NOT_FOUND: no".into()),
            ("address", "a:1".into()),
            ("status", "NOT_FOUND".into()),
            ("hint", "look; again".into()),
            ("exit_code", 3.into()),
        ]);
        assert_eq!(failure.fields(), expected);
        assert_eq!(call("").to_string(), "Get on a:1: NOT_FOUND: no");
        assert_eq!(call("").fields().get("hint"), None);
        assert_eq!(
            call("").exit(),
            Exit::Failed,
            "it may be the database that is missing"
        );
        let miss = call("").or_miss("there is no x");
        assert_eq!(miss.exit(), Exit::Miss);
        assert_eq!(miss.to_string(), "there is no x");
        let usage = Failure::Usage("write x".into()).fields();
        let expected = object([("error", "write x".into()), ("exit_code", 2.into())]);
        assert_eq!(usage, expected);
    }
}
