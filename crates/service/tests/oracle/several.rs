//! Transact and Pipe: requests and answers.

use service::keyvalue::messages::*;

use super::requests::{NAMES, same, set_operation};
use super::responses::{history_id, in_batch, random_point, random_result};
use super::*;

/// An `Operation` as the oracle sees it.
fn operation_value(operation: &Operation<'_>) -> Value {
    let kind = OperationKind::of(operation).expect("it is one of the API's");
    let name = NAMES[kind as usize - 1];
    let mut inner = message(&format!("Operation.{name}"), []);
    set_operation(&mut inner, operation);
    let field = name.to_lowercase();
    Value::Message(message(
        "Operation",
        [(&field, Some(Value::Message(inner)))],
    ))
}

fn operation_list(operations: &[Operation<'_>]) -> Option<Value> {
    Some(Value::List(
        operations.iter().map(operation_value).collect(),
    ))
}

fn materials(random: &mut Random) -> Vec<Material> {
    (0..random.below(5))
        .map(|_| Material::new(random))
        .collect()
}

fn random_operations<'a>(materials: &'a [Material], random: &mut Random) -> Vec<Operation<'a>> {
    materials
        .iter()
        .map(|material| material.operation(random.below(5), random))
        .collect()
}

fn comparison_value(key: &[u8], condition: Condition<'_>) -> Value {
    let (field, value) = match condition {
        Condition::VersionIs(version) => ("version", number(version)),
        Condition::Present => ("exists", Some(Value::Bool(true))),
        Condition::Absent => ("exists", Some(Value::Bool(false))),
        Condition::ValueIs(value) => ("value", bytes(value)),
        Condition::None => unreachable!("no comparison without a condition is made here"),
    };
    Value::Message(message("Comparison", [("key", bytes(key)), (field, value)]))
}

#[test]
fn transact_requests() {
    for seed in 0..ROUNDS / 4 {
        let mut random = Random::new(seed);
        let (met, unmet, compared) = (
            materials(&mut random),
            materials(&mut random),
            materials(&mut random),
        );
        let when_met = random_operations(&met, &mut random);
        let when_unmet = random_operations(&unmet, &mut random);
        let comparisons: Vec<(&[u8], Condition<'_>)> = compared
            .iter()
            .map(|material| {
                let condition = match random.below(4) {
                    0 => Condition::VersionIs(random.number()),
                    1 => Condition::Absent,
                    2 => Condition::Present,
                    _ => Condition::ValueIs(&material.expected),
                };
                (&material.key[..], condition)
            })
            .collect();
        let max_answer_bytes = random.number();
        let as_values = comparisons
            .iter()
            .map(|&(key, condition)| comparison_value(key, condition));
        let expected = message(
            "TransactRequest",
            [
                ("database", text("ä")),
                ("comparisons", Some(Value::List(as_values.collect()))),
                ("when_met", operation_list(&when_met)),
                ("when_unmet", operation_list(&when_unmet)),
                ("max_answer_bytes", number(max_answer_bytes)),
            ],
        );
        let ours = encoded(|out| {
            TransactRequest::encode(
                out,
                "ä",
                max_answer_bytes,
                &comparisons,
                &when_met,
                &when_unmet,
            )
        });
        assert_same("TransactRequest", &ours, &expected);

        let theirs = expected.encode_to_vec();
        let decoded = TransactRequest::decode(&theirs).expect("it is a message");
        assert_eq!(
            (decoded.database, decoded.max_answer_bytes),
            ("ä", max_answer_bytes)
        );
        let count = comparisons.len() + when_met.len() + when_unmet.len();
        assert_eq!(decoded.part_count, count);
        let found: Result<Vec<_>, _> = decoded.comparisons().collect();
        for (found, &(key, condition)) in found.expect("messages").iter().zip(&comparisons) {
            assert!(same(found, &Operation::Compare { key, condition }));
        }
        assert_eq!(decoded.comparisons().count(), comparisons.len());
        let lists: [(Vec<_>, _); 2] = [
            (decoded.when_met().collect(), &when_met),
            (decoded.when_unmet().collect(), &when_unmet),
        ];
        for (found, expected) in lists {
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.into_iter().zip(expected) {
                let (kind, found) = found.expect("it is a message");
                assert_eq!(Some(kind), OperationKind::of(expected));
                assert!(same(&found, expected), "{found:?} {expected:?}");
            }
        }
    }
}

/// A `BatchResponse` that was applied.
fn applied(results: &[OperationResult<'_>], point: ResumePoint) -> Option<Value> {
    Some(Value::Message(message(
        "BatchResponse",
        [
            ("applied", Some(Value::Bool(true))),
            ("sequence", number(point.sequence)),
            ("history_id", history_id(point)),
            (
                "results",
                Some(Value::List(results.iter().map(in_batch).collect())),
            ),
        ],
    )))
}

fn random_results<'a>(materials: &'a [Material], random: &mut Random) -> Vec<OperationResult<'a>> {
    materials
        .iter()
        .map(|material| random_result(material, random))
        .collect()
}

fn all_results<'a>(batch: &BatchResponse<'a>) -> Vec<OperationResult<'a>> {
    let known = batch.results().collect::<Result<Option<Vec<_>>, _>>();
    known.expect("they are messages").expect("they are known")
}

#[test]
fn transact_responses() {
    for seed in 0..ROUNDS / 4 {
        let mut random = Random::new(seed);
        let materials = materials(&mut random);
        let results = random_results(&materials, &mut random);
        let point = random_point(&mut random);
        let unmet = random.flag().then(|| random.next() as u32);
        let expected = message(
            "TransactResponse",
            [
                ("met", Some(Value::Bool(unmet.is_none()))),
                ("unmet_comparison", Some(Value::U32(unmet.unwrap_or(0)))),
                ("batch", applied(&results, point)),
            ],
        );
        let ours = encoded(|out| {
            TransactResponse::encode(out, unmet, |out| {
                BatchResponse::encode_applied(out, point, results.iter().copied())
            })
        });
        assert_same("TransactResponse", &ours, &expected);
        let theirs = expected.encode_to_vec();
        let decoded = TransactResponse::decode(&theirs).expect("it is a message");
        assert_eq!(
            (decoded.met, decoded.unmet_comparison),
            (unmet.is_none(), unmet.unwrap_or(0))
        );
        assert_eq!((decoded.batch.applied, decoded.batch.point), (true, point));
        assert_eq!(all_results(&decoded.batch), results);
    }
}

#[test]
fn pipe_requests() {
    for seed in 0..ROUNDS / 4 {
        let mut random = Random::new(seed);
        let materials = materials(&mut random);
        let operations = random_operations(&materials, &mut random);
        let (answers, answers_number) =
            [(PipeAnswers::All, 1), (PipeAnswers::FailuresOnly, 2)][random.below(2) as usize];
        let (mode, mode_number) =
            [(Mode::Atomic, 1), (Mode::Independent, 2)][random.below(2) as usize];
        let max_answer_bytes = random.number();
        let expected = message(
            "PipeRequest",
            [
                ("database", text("d")),
                ("mode", Some(Value::EnumNumber(mode_number))),
                ("operations", operation_list(&operations)),
                ("max_answer_bytes", number(max_answer_bytes)),
                ("answers", Some(Value::EnumNumber(answers_number))),
            ],
        );
        let ours = encoded(|out| {
            PipeRequest::encode(out, "d", answers, mode, max_answer_bytes, &operations)
        });
        assert_same("PipeRequest", &ours, &expected);
        let theirs = expected.encode_to_vec();
        let decoded = PipeRequest::decode(&theirs).expect("it is a message");
        assert_eq!(decoded.answers, answers);
        let batch = decoded.batch;
        assert_eq!(
            (batch.database, batch.mode, batch.max_answer_bytes),
            ("d", mode, max_answer_bytes)
        );
        assert_eq!(batch.operation_count, operations.len());
        for (found, expected) in batch.operations().zip(&operations) {
            let (_, found) = found.expect("it is a message");
            assert!(same(&found, expected), "{found:?} {expected:?}");
        }
    }
}

#[test]
fn pipe_responses() {
    for seed in 0..ROUNDS / 4 {
        let mut random = Random::new(seed);
        let materials = materials(&mut random);
        let results = random_results(&materials, &mut random);
        let (done, point) = (random.number(), random_point(&mut random));
        let indexes: Vec<u32> = results.iter().map(|_| random.next() as u32).collect();
        let expected = message(
            "PipeResponse",
            [
                ("done", number(done)),
                ("batch_number", number(done)),
                ("batch", applied(&results, point)),
                (
                    "result_indexes",
                    Some(Value::List(
                        indexes.iter().map(|&index| Value::U32(index)).collect(),
                    )),
                ),
            ],
        );
        let ours = encoded(|out| {
            PipeResponse::encode_batch(out, done, |out| {
                BatchResponse::encode_applied(out, point, results.iter().copied())
            });
            PipeResponse::encode_result_indexes(out, indexes.iter().copied());
        });
        assert_same("PipeResponse", &ours, &expected);
        let theirs = expected.encode_to_vec();
        let decoded = PipeResponse::decode(&theirs).expect("it is a message");
        assert_eq!((decoded.done, decoded.batch_number), (done, done));
        assert_eq!(decoded.failure, None);
        let batch = decoded.batch.expect("it is about a batch");
        assert_eq!(all_results(&batch), results);
        assert_eq!(decoded.result_indexes(), Ok(indexes));
    }
}

#[test]
fn pipe_responses_without_a_batch() {
    let failure = Failure {
        code: 3,
        message: "größer",
    };
    let failure_value = message(
        "Failure",
        [("code", Some(Value::U32(3))), ("message", text("größer"))],
    );
    let expected = message(
        "PipeResponse",
        [
            ("done", number(7)),
            ("batch_number", number(7)),
            ("failure", Some(Value::Message(failure_value))),
        ],
    );
    let ours = encoded(|out| PipeResponse::encode_failure(out, 7, &failure));
    assert_same("PipeResponse", &ours, &expected);
    let theirs = expected.encode_to_vec();
    let decoded = PipeResponse::decode(&theirs).expect("it is a message");
    assert_eq!((decoded.failure, decoded.batch), (Some(failure), None));

    let expected = message("PipeResponse", [("done", number(9))]);
    let ours = encoded(|out| PipeResponse::encode_done(out, 9));
    assert_same("PipeResponse", &ours, &expected);
    let decoded = PipeResponse::decode(&ours).expect("it is a message");
    assert_eq!((decoded.done, decoded.batch_number), (9, 0));

    // A sender may leave repeated numbers unpacked.
    let unpacked = [0x20, 0x05, 0x20, 0x96, 0x01, 0x22, 0x01, 0x07];
    let decoded = PipeResponse::decode(&unpacked).expect("it is a message");
    assert_eq!(decoded.result_indexes(), Ok(vec![5, 150, 7]));
}
