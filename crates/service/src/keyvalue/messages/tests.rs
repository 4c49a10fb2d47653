//! What the decoders make of requests, for operations of each kind.

use api::keyvalue::{self, OperationKind};
use protobuf::{Embedded, List, writer};
use store::{Condition, Expiry, Mode, Operation};
use testkit::keyvalue::{encode_batch, encode_operation, encode_transact};
use testkit::{OnFailure, Random};

use super::*;

/// The bytes that a random operation borrows.
struct Material {
    key: Vec<u8>,
    value: Vec<u8>,
    expected: Vec<u8>,
}

impl Material {
    fn new(random: &mut Random) -> Material {
        // Around the length at which a length prefix grows, and shorter.
        let mut bytes = || {
            let most = [1, 40, 131][random.below(3) as usize];
            (0..random.below(most))
                .map(|_| random.number() as u8)
                .collect()
        };
        Material {
            key: bytes(),
            value: bytes(),
            expected: bytes(),
        }
    }

    /// An operation of the kind whose field has the number `field`.
    fn operation(&self, field: u64, random: &mut Random) -> Operation<'_> {
        let Material {
            key,
            value,
            expected,
        } = self;
        let condition = match random.below(5) {
            0 => Condition::VersionIs(random.number() | 1),
            // A missing key cannot be deleted.
            1 if field != 3 => Condition::Absent,
            2 => Condition::Present,
            3 => Condition::ValueIs(expected),
            _ => Condition::None,
        };
        let want_previous = random.once_in(2);
        let expiry = match random.below(3) {
            0 => Expiry::Keep,
            1 => Expiry::AfterMs(1 + random.below(3_153_600_000_000)),
            _ => Expiry::None,
        };
        let (delta, initial) = (
            random.number().cast_signed(),
            random.number().cast_signed() >> 20,
        );
        match field {
            1 => Operation::Get { key },
            2 => Operation::Put {
                key,
                value,
                condition,
                expiry,
                want_previous,
            },
            3 => Operation::Delete {
                key,
                condition,
                want_previous,
            },
            4 => Operation::Append {
                key,
                value,
                condition,
            },
            _ => Operation::Increment {
                key,
                delta,
                initial,
                condition,
            },
        }
    }
}

const KINDS: [OperationKind; 5] = [
    OperationKind::Get,
    OperationKind::Put,
    OperationKind::Delete,
    OperationKind::Append,
    OperationKind::Increment,
];

/// Operations are compared by their words: the store has no other use for their equality.
fn words(operation: &Operation<'_>) -> String {
    format!("{operation:?}")
}

#[test]
fn an_operation_is_read_as_it_was_meant_alone_and_in_a_batch() {
    for seed in 0..2_000 {
        let _on_failure = OnFailure::of_seed(seed);
        let mut random = Random::new(seed);
        let material = Material::new(&mut random);
        let kind = KINDS[random.below(5) as usize];
        let operation = material.operation(kind as u64, &mut random);
        let request = testkit::keyvalue::OperationRequest {
            database: "ä",
            operation,
        };
        let mut message = Vec::new();
        request.encode(&mut message);
        let decoded = Request::decode(kind, &message).expect("it is valid");
        assert_eq!(decoded.database, "ä");
        assert_eq!(words(&decoded.operation), words(&operation));
        if let Operation::Get { key } = operation {
            assert_eq!(decode_get(&message), Ok(("ä", key)));
        }

        let mut message = Vec::new();
        encode_operation(&operation, &mut message);
        let (found, decoded) = decode_operation(&message).expect("it is valid");
        assert_eq!((found, words(&decoded)), (kind, words(&operation)));
        // The long way leads to the same, and a field of a later version changes nothing.
        writer::uint64(&mut message, 100, 1);
        let (found, decoded) = decode_operation(&message).expect("it is valid");
        assert_eq!((found, words(&decoded)), (kind, words(&operation)));
    }
}

fn found<'a>(list: &List<'a, Embedded<keyvalue::Operation<'a>>>) -> Vec<String> {
    operations(list)
        .map(|operation| words(&operation.expect("it is valid").1))
        .collect()
}

#[test]
fn lists_keep_their_order() {
    for seed in 0..500 {
        let _on_failure = OnFailure::of_seed(seed);
        let mut random = Random::new(seed);
        let materials: Vec<_> = (0..random.below(8))
            .map(|_| Material::new(&mut random))
            .collect();
        let given: Vec<_> = materials
            .iter()
            .map(|material| material.operation(1 + random.below(5), &mut random))
            .collect();
        let expected: Vec<_> = given.iter().map(words).collect();
        let mut message = Vec::new();
        encode_batch(&mut message, "ä", Mode::Independent, 7, &given);
        let (request, mode) = decode_batch(&message).expect("it is valid");
        assert_eq!((request.database, mode), ("ä", Mode::Independent));
        assert_eq!(request.max_answer_bytes, 7);
        assert_eq!(found(&request.operations), expected);

        let compared: Vec<_> = materials
            .iter()
            .map(|material| (&material.key[..], Condition::ValueIs(&material.expected)))
            .collect();
        let mut message = Vec::new();
        encode_transact(
            &mut message,
            "",
            0,
            &compared,
            &given[..given.len() / 2],
            &given,
        );
        let request = decode_transact(&message).expect("it is valid");
        assert_eq!(found(&request.when_met), expected[..given.len() / 2]);
        assert_eq!(found(&request.when_unmet), expected);
        assert_eq!(request.comparisons.len(), compared.len());
        for (given, &(key, condition)) in request.comparisons.iter().zip(&compared) {
            let found = comparison(given.expect("it is valid")).expect("it is valid");
            assert_eq!(words(&found), words(&Operation::Compare { key, condition }));
        }
    }
}

/// Protobuf lets an embedded message come in pieces, which are merged; another member of a oneof
/// replaces it.
#[test]
fn an_operation_may_come_in_pieces() {
    let mut message = Vec::new();
    writer::message(&mut message, 2, |out| writer::bytes(out, 2, b"k"));
    writer::message(&mut message, 2, |out| writer::bytes(out, 3, b"v"));
    let (kind, operation) = decode_operation(&message).expect("it is valid");
    assert_eq!(kind, OperationKind::Put);
    let (key, value) = (b"k", b"v");
    let expected = Operation::Put {
        key,
        value,
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous: false,
    };
    assert_eq!(words(&operation), words(&expected));
    writer::message(&mut message, 1, |out| writer::bytes(out, 2, b"other"));
    let (kind, operation) = decode_operation(&message).expect("it is valid");
    assert_eq!(kind, OperationKind::Get);
    assert_eq!(words(&operation), words(&Operation::Get { key: b"other" }));
}

#[test]
fn what_is_wrong_with_an_operation_is_named() {
    let inside = |field: u32, bytes: &[u8]| {
        let mut message = Vec::new();
        writer::bytes_always(&mut message, field, bytes);
        message
    };
    for (message, field, word) in [
        (Vec::new(), "operation", "not set"),
        (inside(100, b""), "operation", "not set"),
        (vec![0x10, 0x01], "put", "wire type"),
        (vec![0x12, 0x05], "put", "in the middle"),
        // The key as a number.
        (inside(2, &[0x10, 0x01]), "key", "wire type"),
        (inside(2, &[0x40, 0x00]), "time_to_live_ms", "is 0"),
        (inside(2, &[0x48, 0x00]), "keep_time_to_live", "is false"),
        (inside(3, &[0x20, 0x00]), "if_version", "is 0"),
        (inside(3, &[0x28, 0x00]), "if_exists", "is false"),
        (inside(4, &[0x60, 0x00]), "snapshot", "not served"),
    ] {
        let invalid = decode_operation(&message).expect_err(field);
        assert_eq!(invalid.field, field);
        let text = invalid.to_string();
        assert!(text.contains(word), "{text}");
    }
    let nothing = api::keyvalue::Comparison::default();
    assert_eq!(
        comparison(nothing).expect_err("it compares nothing").field,
        "condition"
    );
}
