//! `pelton transact`

use std::io::Read;

use api::keyvalue::{Comparison, Operation, TransactRequest};
use api::rpc::keyvalue::Transact;
use serde::Deserialize;
use service::limits::ANSWER_BYTES_MAX;

use super::Caller;
use super::batch::{print_all, print_failed};
use super::results::{InputPlace, OperationVerdict, Unit};
use crate::arguments::TransactArguments;
use crate::exit::{Exit, Failure};
use crate::input::{self, LINE_BYTES_MAX, unreadable as unreadable_input};
use crate::json::{ComparisonJson, OperationJson, OwnedCondition, OwnedOperation};
use crate::json_text::{Object, read_text};
use crate::output::{Output, object};

/// A Transact as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransactJson {
    #[serde(default)]
    comparisons: Vec<Object<ComparisonJson>>,
    #[serde(default)]
    when_met: Vec<Object<OperationJson>>,
    #[serde(default)]
    when_unmet: Vec<Object<OperationJson>>,
}

/// Compares keys, then does one of two lists of operations.
pub fn transact(arguments: &TransactArguments) -> Result<Exit, Failure> {
    let input = input::open(arguments.file.as_deref())?;
    let (name, mut text) = (input.name, Vec::new());
    input
        .source
        .take(LINE_BYTES_MAX as u64)
        .read_to_end(&mut text)
        .map_err(|error| unreadable_input(&name, &error))?;
    if text.is_empty() {
        return Err(input::empty(&name, "`{}` does nothing and is no failure"));
    }
    let wrong = |error: String| Failure::Usage(format!("{name}: {error}"));
    let json: TransactJson = read_text(&text).map_err(wrong)?;
    let comparisons = comparisons(json.comparisons).map_err(wrong)?;
    let when_met = operations("when_met", json.when_met).map_err(wrong)?;
    let when_unmet = operations("when_unmet", json.when_unmet).map_err(wrong)?;

    let database = &arguments.database;
    let compared: Vec<Comparison<'_>> = comparisons
        .iter()
        .map(|(key, condition)| Comparison {
            key,
            condition: condition.comparand(),
        })
        .collect();
    let met: Vec<Operation<'_>> = when_met.iter().map(OwnedOperation::borrow).collect();
    let unmet: Vec<Operation<'_>> = when_unmet.iter().map(OwnedOperation::borrow).collect();
    let request = TransactRequest {
        database: &database.database,
        comparisons: compared[..].into(),
        when_met: met[..].into(),
        when_unmet: unmet[..].into(),
        max_answer_bytes: ANSWER_BYTES_MAX,
        ..TransactRequest::default()
    };
    let reply = Caller::connect(&database.connection)?.call::<Transact>(&request)?;
    let answer = reply.message();
    let chosen = if answer.met { &when_met } else { &when_unmet };
    let places: Vec<InputPlace> = (1..)
        .zip(chosen)
        .map(|(number, operation)| InputPlace::of(operation, number))
        .collect();
    let mut output = Output::new(database.connection.output);
    let unmet = (!answer.met).then_some(u64::from(answer.unmet_comparison) + 1);
    print_choice(&mut output, unmet)?;
    let batch = answer.batch.unwrap_or_default();
    let verdict = if batch.applied {
        print_all(&mut output, Unit::Operation, &places, &batch, false)?
    } else {
        print_failed(&mut output, Unit::Operation, &places, &batch)?
    };
    output.end()?;
    let chosen = if answer.met {
        OperationVerdict::Done
    } else {
        OperationVerdict::Unmet
    };
    Ok(verdict.max(chosen).exit())
}

/// Says which list was chosen; `unmet`: the first comparison that was not met, counted from 1.
fn print_choice(output: &mut Output, unmet: Option<u64>) -> Result<(), Failure> {
    match unmet {
        None => output.either("met", || object([("met", true.into())])),
        Some(number) => output.either(&format!("not met: comparison {number}"), || {
            object([("met", false.into()), ("unmet_comparison", number.into())])
        }),
    }
}

fn comparisons(
    written: Vec<Object<ComparisonJson>>,
) -> Result<Vec<(Vec<u8>, OwnedCondition)>, String> {
    (1..)
        .zip(written)
        .map(|(number, one)| {
            (one.0.decode()).map_err(|error| format!("comparison {number}: {error}"))
        })
        .collect()
}

fn operations(
    list: &str,
    written: Vec<Object<OperationJson>>,
) -> Result<Vec<OwnedOperation>, String> {
    (1..)
        .zip(written)
        .map(|(number, one)| {
            (one.0.decode()).map_err(|error| format!("{list}, operation {number}: {error}"))
        })
        .collect()
}

#[cfg(test)]
#[test]
fn an_array_of_fields_is_no_object() {
    for text in [
        r#"[[], [], []]"#,
        r#"{"comparisons": [["k", "text", 1]]}"#,
        r#"{"when_met": [["get", "k"]]}"#,
        r#"{"when_unmet": [["get", "k"]]}"#,
    ] {
        let error = read_text::<TransactJson>(text.as_bytes()).err();
        let error = error.expect(text);
        assert!(
            error.contains("an object belongs here, not an array, at line 1"),
            "{error}"
        );
    }
    let text = r#"{"comparisons": [{"key": "k", "exists": true}], "when_met": []}"#;
    assert!(read_text::<TransactJson>(text.as_bytes()).is_ok());
}
