//! Responses: single results, batches, pages, counts.

use service::keyvalue::messages::*;

use super::*;

fn entry(entry: &EntryMessage<'_>) -> Option<Value> {
    let EntryMessage {
        key,
        value,
        version,
        expires_at_ms,
    } = *entry;
    Some(Value::Message(message(
        "Entry",
        [
            ("key", bytes(key)),
            ("value", bytes(value)),
            ("version", number(version)),
            ("expires_at_ms", number(expires_at_ms)),
        ],
    )))
}

/// The name of the message, the name of its field in `OperationResult`, and the message.
fn alone(result: &OperationResult<'_>) -> (&'static str, &'static str, DynamicMessage) {
    let flag = |value| Some(Value::Bool(value));
    match *result {
        OperationResult::Get(GetResponse {
            found,
            value,
            version,
            expires_at_ms,
        }) => {
            let fields = [
                ("found", flag(found)),
                ("value", bytes(value)),
                ("version", number(version)),
                ("expires_at_ms", number(expires_at_ms)),
            ];
            ("GetResponse", "get", message("GetResponse", fields))
        }
        OperationResult::Put(PutResponse {
            applied,
            version,
            previous,
        }) => {
            let previous = previous.as_ref().and_then(entry);
            let fields = [
                ("applied", flag(applied)),
                ("version", number(version)),
                ("previous", previous),
            ];
            ("PutResponse", "put", message("PutResponse", fields))
        }
        OperationResult::Delete(DeleteResponse {
            deleted,
            version,
            previous,
            sequence,
        }) => {
            let fields = [
                ("deleted", flag(deleted)),
                ("version", number(version)),
                ("previous", previous.as_ref().and_then(entry)),
                ("sequence", number(sequence)),
            ];
            (
                "DeleteResponse",
                "delete",
                message("DeleteResponse", fields),
            )
        }
        OperationResult::Append(AppendResponse {
            applied,
            version,
            length,
        }) => {
            let fields = [
                ("applied", flag(applied)),
                ("version", number(version)),
                ("length", number(length)),
            ];
            (
                "AppendResponse",
                "append",
                message("AppendResponse", fields),
            )
        }
        OperationResult::Increment(IncrementResponse {
            applied,
            value,
            version,
            refusal,
        }) => {
            let fields = [
                ("applied", flag(applied)),
                ("value", Some(Value::I64(value))),
                ("version", number(version)),
                (
                    "refusal",
                    Some(Value::EnumNumber(
                        refusal.map_or(0, |refusal| refusal as i32),
                    )),
                ),
            ];
            (
                "IncrementResponse",
                "increment",
                message("IncrementResponse", fields),
            )
        }
        OperationResult::Failure(Failure {
            code,
            message: words,
        }) => {
            let fields = [("code", Some(Value::U32(code))), ("message", text(words))];
            ("Failure", "failure", message("Failure", fields))
        }
    }
}

pub(super) fn in_batch(result: &OperationResult<'_>) -> Value {
    let (_, field, alone) = alone(result);
    Value::Message(message(
        "OperationResult",
        [(field, Some(Value::Message(alone)))],
    ))
}

fn random_entry<'a>(material: &'a Material, random: &mut Random) -> EntryMessage<'a> {
    let (version, expires_at_ms) = (random.number(), random.number());
    EntryMessage {
        key: &material.key,
        value: &material.value,
        version,
        expires_at_ms,
    }
}

pub(super) fn random_result<'a>(
    material: &'a Material,
    random: &mut Random,
) -> OperationResult<'a> {
    let version = random.number();
    let applied = random.flag();
    let previous = random.flag().then(|| random_entry(material, random));
    match random.below(6) {
        0 => OperationResult::Get(GetResponse {
            found: applied,
            value: &material.value,
            version,
            expires_at_ms: random.number(),
        }),
        1 => OperationResult::Put(PutResponse {
            applied,
            version,
            previous,
        }),
        2 => OperationResult::Delete(DeleteResponse {
            deleted: applied,
            version,
            previous,
            sequence: random.number(),
        }),
        3 => OperationResult::Append(AppendResponse {
            applied,
            version,
            length: random.number(),
        }),
        4 => {
            use IncrementRefusal as R;
            let refusal = [
                None,
                Some(R::Condition),
                Some(R::NotANumber),
                Some(R::Overflow),
            ][random.below(4) as usize];
            let value = random.number().cast_signed();
            OperationResult::Increment(IncrementResponse {
                applied,
                value,
                version,
                refusal,
            })
        }
        _ => OperationResult::Failure(Failure {
            code: random.next() as u32,
            message: "größer",
        }),
    }
}

fn decode_alone<'a>(result: &OperationResult<'_>, bytes: &'a [u8]) -> Option<OperationResult<'a>> {
    use OperationResult as R;
    Some(match result {
        R::Get(_) => R::Get(GetResponse::decode(bytes).expect("it is a message")),
        R::Put(_) => R::Put(PutResponse::decode(bytes).expect("it is a message")),
        R::Delete(_) => R::Delete(DeleteResponse::decode(bytes).expect("it is a message")),
        R::Append(_) => R::Append(AppendResponse::decode(bytes).expect("it is a message")),
        R::Increment(_) => R::Increment(IncrementResponse::decode(bytes).expect("it is a message")),
        R::Failure(_) => return None,
    })
}

#[test]
fn single_results() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let material = Material::new(&mut random);
        let result = random_result(&material, &mut random);
        let (name, _, expected) = alone(&result);
        assert_same(name, &encoded(|out| result.encode_alone(out)), &expected);
        let theirs = expected.encode_to_vec();
        if let Some(decoded) = decode_alone(&result, &theirs) {
            assert_eq!(decoded, result);
        }
        let Value::Message(expected) = in_batch(&result) else {
            unreachable!("it is a message")
        };
        assert_same(
            "OperationResult",
            &encoded(|out| result.encode(out)),
            &expected,
        );
        assert_eq!(
            OperationResult::decode(&expected.encode_to_vec()),
            Ok(Some(result))
        );
    }
}

#[test]
fn a_value_that_follows_its_head_is_the_same_message() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let value = random.bytes();
        let (version, expires_at_ms) = (random.number(), random.number());
        let response = GetResponse {
            found: true,
            value: &value,
            version,
            expires_at_ms,
        };
        let mut bytes = encoded(|out| response.encode_head(out, value.len()));
        bytes.extend_from_slice(&value);
        assert_eq!(bytes, encoded(|out| response.encode(out)));
    }
}

pub(crate) fn random_point(random: &mut Random) -> ResumePoint {
    ResumePoint {
        history_id: random.number(),
        sequence: random.number(),
    }
}

/// 8 bytes, big-endian; left out if unknown.
pub(crate) fn history_id(point: ResumePoint) -> Option<Value> {
    let known = (point.history_id != 0).then_some(point.history_id)?;
    Some(Value::Bytes(known.to_be_bytes().to_vec().into()))
}

#[test]
fn batches() {
    for seed in 0..ROUNDS / 4 {
        let mut random = Random::new(seed);
        let materials: Vec<_> = (0..random.below(8))
            .map(|_| Material::new(&mut random))
            .collect();
        let results: Vec<_> = materials
            .iter()
            .map(|material| random_result(material, &mut random))
            .collect();
        let point = random_point(&mut random);
        let expected = message(
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
        );
        let ours =
            encoded(|out| BatchResponse::encode_applied(out, point, results.iter().copied()));
        assert_same("BatchResponse", &ours, &expected);
        let theirs = expected.encode_to_vec();
        let decoded = BatchResponse::decode(&theirs).expect("it is a message");
        assert_eq!(
            (decoded.applied, decoded.point, decoded.failed_result),
            (true, point, None)
        );
        let all: Result<Option<Vec<_>>, _> = decoded.results().collect();
        assert_eq!(all, Ok(Some(results.clone())));

        let Some(failed) = results.first() else {
            continue;
        };
        let index = random.next() as u32;
        let expected = message(
            "BatchResponse",
            [
                ("sequence", number(point.sequence)),
                ("history_id", history_id(point)),
                ("failed_operation", Some(Value::U32(index))),
                ("failed_result", Some(in_batch(failed))),
            ],
        );
        let ours = encoded(|out| BatchResponse::encode_failed(out, point, index, failed));
        assert_same("BatchResponse", &ours, &expected);
        let theirs = expected.encode_to_vec();
        let decoded = BatchResponse::decode(&theirs).expect("it is a message");
        assert_eq!(
            (
                decoded.applied,
                decoded.failed_operation,
                decoded.failed_result
            ),
            (false, index, Some(*failed))
        );
    }
}

#[test]
fn pages() {
    for seed in 0..ROUNDS / 4 {
        let mut random = Random::new(seed);
        let materials: Vec<_> = (0..random.below(8))
            .map(|_| Material::new(&mut random))
            .collect();
        let entries: Vec<_> = materials
            .iter()
            .map(|material| random_entry(material, &mut random))
            .collect();
        let (point, last) = (random_point(&mut random), random.flag());
        let expected = message(
            "ScanPage",
            [
                (
                    "entries",
                    Some(Value::List(entries.iter().filter_map(entry).collect())),
                ),
                ("sequence", number(point.sequence)),
                ("history_id", history_id(point)),
                ("last", Some(Value::Bool(last))),
            ],
        );
        let ours = encoded(|out| ScanPage::encode(out, point, last, entries.iter().copied()));
        assert_same("ScanPage", &ours, &expected);
        let theirs = expected.encode_to_vec();
        let decoded = ScanPage::decode(&theirs).expect("it is a message");
        assert_eq!((decoded.point, decoded.last), (point, last));
        assert_eq!(
            decoded.entries().collect::<Result<Vec<_>, _>>(),
            Ok(entries)
        );
    }
}

#[test]
fn counts() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let (count, exact, views, point) = (
            random.number(),
            random.flag(),
            random.number(),
            random_point(&mut random),
        );
        let response = CountResponse {
            count,
            exact,
            views,
            point,
        };
        let expected = message(
            "CountResponse",
            [
                ("count", number(count)),
                ("exact", Some(Value::Bool(exact))),
                ("views", number(views)),
                ("sequence", number(point.sequence)),
                ("history_id", history_id(point)),
            ],
        );
        assert_same(
            "CountResponse",
            &encoded(|out| response.encode(out)),
            &expected,
        );
        assert_eq!(
            CountResponse::decode(&expected.encode_to_vec()),
            Ok(response)
        );
    }
}
