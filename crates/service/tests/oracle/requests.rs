//! Requests: operations, batches, scans, counts.

use service::keyvalue::messages::*;

use super::*;

pub(super) const NAMES: [&str; 5] = ["Get", "Put", "Delete", "Append", "Increment"];

fn kind(index: u64) -> OperationKind {
    OperationKind::from_field(index as u32 + 1).expect("there are five")
}

/// Sets the fields of `operation`, which have the same names alone and in a batch.
pub(super) fn set_operation(message: &mut DynamicMessage, operation: &Operation<'_>) {
    let mut set = |name: &str, value: Value| message.set_field_by_name(name, value);
    let bytes = |value: &[u8]| Value::Bytes(value.to_vec().into());
    let condition = match *operation {
        Operation::Get { key } => {
            set("key", bytes(key));
            Condition::None
        }
        Operation::Put {
            key,
            value,
            condition,
            expiry,
            want_previous,
        } => {
            set("key", bytes(key));
            set("value", bytes(value));
            set("return_previous", Value::Bool(want_previous));
            match expiry {
                Expiry::None => {}
                Expiry::Keep => set("keep_time_to_live", Value::Bool(true)),
                Expiry::AfterMs(time_to_live_ms) => {
                    set("time_to_live_ms", Value::U64(time_to_live_ms))
                }
            }
            condition
        }
        Operation::Delete {
            key,
            condition,
            want_previous,
        } => {
            set("key", bytes(key));
            set("return_previous", Value::Bool(want_previous));
            condition
        }
        Operation::Append {
            key,
            value,
            condition,
        } => {
            set("key", bytes(key));
            set("value", bytes(value));
            condition
        }
        Operation::Increment {
            key,
            delta,
            initial,
            condition,
        } => {
            set("key", bytes(key));
            set("delta", Value::I64(delta));
            set("initial", Value::I64(initial));
            condition
        }
        _ => unreachable!("no other operations are made here"),
    };
    match condition {
        Condition::None => {}
        Condition::Absent => set("if_exists", Value::Bool(false)),
        Condition::Present => set("if_exists", Value::Bool(true)),
        Condition::VersionIs(version) => set("if_version", Value::U64(version)),
        Condition::ValueIs(value) => set("if_value", bytes(value)),
    }
}

/// Operations are compared by their words: the store has no other use for their equality.
pub(super) fn same(left: &Operation<'_>, right: &Operation<'_>) -> bool {
    format!("{left:?}") == format!("{right:?}")
}

#[test]
fn single_operations() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let material = Material::new(&mut random);
        let index = random.below(5);
        let operation = material.operation(index, &mut random);
        let database = ["", "default", "ä"][random.below(3) as usize];
        let request = Request {
            database,
            operation,
        };

        let mut expected = message(
            &format!("{}Request", NAMES[index as usize]),
            [("database", text(database))],
        );
        set_operation(&mut expected, &operation);
        let ours = encoded(|out| request.encode(out));
        assert_same(
            &format!("{}Request", NAMES[index as usize]),
            &ours,
            &expected,
        );

        let theirs = expected.encode_to_vec();
        let decoded = Request::decode(kind(index), &theirs).expect("it is a message");
        assert_eq!(decoded.database, database);
        assert!(
            same(&decoded.operation, &operation),
            "{:?} {operation:?}",
            decoded.operation
        );
        if let Operation::Get { key } = operation {
            assert_eq!(decode_get(&theirs), Ok((database, key)));
        }
    }
}

#[test]
fn batches() {
    for seed in 0..ROUNDS / 4 {
        let mut random = Random::new(seed);
        let materials: Vec<_> = (0..random.below(8))
            .map(|_| Material::new(&mut random))
            .collect();
        let only_reads = random.flag();
        let mut kinds = Vec::new();
        let operations: Vec<_> = materials
            .iter()
            .map(|material| {
                kinds.push(if only_reads { 0 } else { random.below(5) });
                material.operation(kinds[kinds.len() - 1], &mut random)
            })
            .collect();
        let (mode, mode_number) =
            [(Mode::Atomic, 1), (Mode::Independent, 2)][random.below(2) as usize];
        let max_answer_bytes = random.number();

        let as_value = |(operation, &kind): (&Operation<'_>, &u64)| {
            let name = NAMES[kind as usize];
            let mut inner = message(&format!("Operation.{name}"), []);
            set_operation(&mut inner, operation);
            let field = name.to_lowercase();
            Value::Message(message(
                "Operation",
                [(&field, Some(Value::Message(inner)))],
            ))
        };
        let expected = message(
            "BatchRequest",
            [
                ("database", text("ä")),
                ("mode", Some(Value::EnumNumber(mode_number))),
                (
                    "operations",
                    Some(Value::List(
                        operations.iter().zip(&kinds).map(as_value).collect(),
                    )),
                ),
                ("max_answer_bytes", number(max_answer_bytes)),
            ],
        );
        let ours =
            encoded(|out| BatchRequest::encode(out, "ä", mode, max_answer_bytes, &operations));
        assert_same("BatchRequest", &ours, &expected);

        let theirs = expected.encode_to_vec();
        let decoded = BatchRequest::decode(&theirs).expect("it is a message");
        assert_eq!(
            (decoded.database, decoded.mode, decoded.max_answer_bytes),
            ("ä", mode, max_answer_bytes)
        );
        assert_eq!(decoded.operation_count, operations.len());
        assert_eq!(decoded.writes, kinds.iter().any(|&kind| kind != 0));
        for (decoded, operation) in decoded.operations().zip(&operations) {
            let (kind, decoded) = decoded.expect("it is a message");
            assert_eq!(Some(kind), OperationKind::of(operation));
            assert!(same(&decoded, operation), "{decoded:?} {operation:?}");
        }
    }
}

/// Random keys, and the name and value of the field that says them.
fn keys<'a>(
    random: &mut Random,
    start: &'a [u8],
    end: &'a [u8],
) -> (Keys<'a>, &'static str, Option<Value>) {
    match random.below(3) {
        0 => (Keys::All, "prefix", None),
        1 => (Keys::Prefix(start), "prefix", bytes(start)),
        _ => {
            let (start, end) = if end.is_empty() || start <= end {
                (start, end)
            } else {
                (end, start)
            };
            let range = message("KeyRange", [("start", bytes(start)), ("end", bytes(end))]);
            (
                Keys::Range { start, end },
                "range",
                Some(Value::Message(range)),
            )
        }
    }
}

#[test]
fn scans() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let (start, end, after) = (random.bytes(), random.bytes(), random.bytes());
        let (keys, field, value) = keys(&mut random, &start, &end);
        let (direction, direction_number) =
            [(Direction::Forward, 1), (Direction::Backward, 2)][random.below(2) as usize];
        let start_after = random.flag().then_some(&after[..]);
        let (keys_only, limit) = (random.flag(), random.number());
        let request = ScanRequest {
            database: "d",
            keys,
            direction,
            keys_only,
            limit,
            start_after,
        };
        let expected = message(
            "ScanRequest",
            [
                ("database", text("d")),
                (field, value),
                ("direction", Some(Value::EnumNumber(direction_number))),
                ("keys_only", Some(Value::Bool(keys_only))),
                ("limit", number(limit)),
                ("start_after", start_after.and_then(bytes)),
            ],
        );
        assert_same(
            "ScanRequest",
            &encoded(|out| request.encode(out)),
            &expected,
        );
        assert_eq!(ScanRequest::decode(&expected.encode_to_vec()), Ok(request));
    }
}

#[test]
fn counts() {
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let (start, end) = (random.bytes(), random.bytes());
        let (keys, field, value) = keys(&mut random, &start, &end);
        let estimate = random.flag();
        let request = CountRequest {
            database: "d",
            keys,
            estimate,
        };
        let precision = Some(Value::EnumNumber(if estimate { 2 } else { 0 }));
        let expected = message(
            "CountRequest",
            [
                ("database", text("d")),
                (field, value),
                ("precision", precision),
            ],
        );
        assert_same(
            "CountRequest",
            &encoded(|out| request.encode(out)),
            &expected,
        );
        assert_eq!(CountRequest::decode(&expected.encode_to_vec()), Ok(request));
    }
}

#[test]
fn parts_of_a_oneof_message_that_come_apart_are_put_together() {
    // Protobuf lets an embedded message come in pieces, which are merged.
    let two = |first: DynamicMessage, second: DynamicMessage| {
        let mut bytes = first.encode_to_vec();
        bytes.extend(second.encode_to_vec());
        bytes
    };
    let put = |name: &str, value: &[u8]| {
        let inner = message("Operation.Put", [(name, bytes(value))]);
        message("Operation", [("put", Some(Value::Message(inner)))])
    };
    let merged = two(put("key", b"k"), put("value", b"v"));
    let (kind, operation) = decode_operation(&merged).expect("it is a message");
    assert_eq!(kind, OperationKind::Put);
    assert!(matches!(
        operation,
        Operation::Put {
            key: b"k",
            value: b"v",
            ..
        }
    ));

    let get = message("Operation.Get", [("key", bytes(b"other"))]);
    let replaced = two(
        put("value", b"v"),
        message("Operation", [("get", Some(Value::Message(get)))]),
    );
    let (_, operation) = decode_operation(&replaced).expect("it is a message");
    assert!(matches!(operation, Operation::Get { key: b"other" }));

    let range = |name: &str, value: &[u8]| {
        let range = message("KeyRange", [(name, bytes(value))]);
        message("ScanRequest", [("range", Some(Value::Message(range)))])
    };
    let merged = two(range("start", b"a"), range("end", b"b"));
    let request = ScanRequest::decode(&merged).expect("it is a message");
    assert_eq!(
        request.keys,
        Keys::Range {
            start: b"a",
            end: b"b"
        }
    );
}
