//! Bytes: each implementation reads what the other has written, and both refuse the same.

use prost_reflect::prost::Message as _;
use prost_reflect::{Cardinality, DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value};
use protobuf::limits::MESSAGE_FIELDS_MAX;
use protobuf::{FieldFault, writer};

use crate::random::Random;
use crate::*;

/// Random messages of each kind.
const ROUNDS: u64 = 60;

/// How deep messages are nested.
const DEPTH: u32 = 4;

/// Runs `test` for some seeds and each message, or for the seed that the environment names.
fn for_each_case(test: impl Fn(&Case, &mut Random)) {
    let named = std::env::var("PELTON_SEED").ok();
    let named = named.map(|seed| seed.parse().expect("PELTON_SEED is a number"));
    let seeds = named.map_or(0..ROUNDS, |seed: u64| seed..seed + 1);
    for seed in seeds {
        for case in CASES {
            test(case, &mut Random::new(seed));
        }
    }
}

fn random_bytes(case: &Case, random: &mut Random) -> Vec<u8> {
    random.message(&descriptor(case), DEPTH).encode_to_vec()
}

/// Asserts that both refuse `bytes`, or both read the same. Returns whether they read it.
#[track_caller]
fn assert_agreement(case: &Case, bytes: &[u8]) -> bool {
    let theirs = DynamicMessage::decode(descriptor(case), bytes);
    let ours = (case.recode)(bytes);
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => {
            let ours = DynamicMessage::decode(descriptor(case), &ours[..]);
            let ours = ours.expect("what was encoded is a message");
            let (theirs, ours) = (known(&theirs), known(&ours));
            // What is no number is not equal to itself, but reads the same.
            let has_nan = theirs.to_string().to_lowercase().contains("nan");
            let is_same = theirs == ours || (has_nan && theirs.to_string() == ours.to_string());
            assert!(is_same, "{}: {bytes:02x?}\n{theirs}\n{ours}", case.name);
            true
        }
        (Err(_), Err(_)) => false,
        // A group under the number of a field is skipped here like any other one.
        (Ok(_), Err(theirs)) if format!("{theirs:?}").contains("actual: StartGroup") => false,
        (ours, theirs) => panic!("{}: {bytes:02x?}\n{ours:?}\n{theirs:?}", case.name),
    }
}

/// The message without the fields that the oracle keeps although it does not know them.
fn known(message: &DynamicMessage) -> DynamicMessage {
    let mut known = DynamicMessage::new(message.descriptor());
    for (field, value) in message.fields() {
        known.set_field(&field, known_value(value));
    }
    known
}

fn known_value(value: &Value) -> Value {
    match value {
        Value::Message(message) => Value::Message(known(message)),
        Value::List(values) => Value::List(values.iter().map(known_value).collect()),
        Value::Map(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| (key.clone(), known_value(value)));
            Value::Map(entries.collect())
        }
        scalar => scalar.clone(),
    }
}

#[test]
fn random_messages_are_read_and_written_alike() {
    for_each_case(|case, random| {
        let bytes = random_bytes(case, random);
        assert!(assert_agreement(case, &bytes), "{}", case.name);
    });
}

#[test]
fn messages_given_in_pieces_are_merged() {
    for_each_case(|case, random| {
        let mut bytes = random_bytes(case, random);
        // Four, or as many as have no more fields together than a message may have.
        let has_list = descriptor(case).fields().any(|field| field.is_list());
        let fields = descriptor(case).fields().len().max(1) as u64;
        let pieces = match has_list {
            true => 4,
            false => (u64::from(MESSAGE_FIELDS_MAX) / fields).clamp(2, 4),
        };
        for _ in 0..1 + random.below(pieces - 1) {
            bytes.extend(random_bytes(case, random));
        }
        assert!(assert_agreement(case, &bytes), "{}", case.name);
    });
}

#[test]
fn unknown_fields_and_groups_are_skipped() {
    for_each_case(|case, random| {
        let known = random_bytes(case, random);
        let mut bytes = Vec::new();
        writer::uint64(&mut bytes, 900, u64::MAX);
        // Group 901 with a field and a group in it.
        for (number, wire_type) in [(901, 3), (1, 0), (1, 3), (1, 4), (901, 4)] {
            writer::varint(&mut bytes, number << 3 | wire_type);
            if wire_type == 0 {
                writer::varint(&mut bytes, 7);
            }
        }
        bytes.extend(&known);
        writer::fixed64(&mut bytes, 902, 1);
        writer::fixed32(&mut bytes, 903, 1);
        writer::bytes(&mut bytes, 904, &[0xff]);
        assert!(assert_agreement(case, &bytes), "{}", case.name);
        assert_eq!(
            (case.recode)(&bytes),
            (case.recode)(&known),
            "{}",
            case.name
        );
    });
}

#[test]
fn truncated_messages_are_refused_or_are_a_prefix() {
    for_each_case(|case, random| {
        let bytes = random_bytes(case, random);
        for end in 0..bytes.len().min(400) {
            assert_agreement(case, &bytes[..end]);
        }
    });
}

#[test]
fn damaged_messages_are_refused_or_read_alike() {
    let (mut read, mut refused) = (0, 0);
    for seed in 0..20 * ROUNDS {
        for case in CASES {
            let mut random = Random::new(seed);
            let mut bytes = random_bytes(case, &mut random);
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64 + 1) as usize;
                match random.below(4) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, random.next() as u8),
                    2 => bytes.extend_from_within(at..),
                    _ => bytes
                        .get_mut(at)
                        .map_or((), |byte| *byte = random.next() as u8),
                }
            }
            if is_in_too_many_pieces(case, &bytes) {
                continue;
            }
            match assert_agreement(case, &bytes) {
                true => read += 1,
                false => refused += 1,
            }
        }
    }
    assert!(
        read > 1_000 && refused > 1_000,
        "{read} read, {refused} refused"
    );
}

fn is_in_too_many_pieces(case: &Case, bytes: &[u8]) -> bool {
    (case.recode)(bytes).is_err_and(|error| error.fault == FieldFault::TooManyParts)
}

fn wire_type(field: &FieldDescriptor) -> u64 {
    match field.kind() {
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => 1,
        Kind::String | Kind::Bytes | Kind::Message(_) => 2,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => 5,
        _ => 0,
    }
}

#[test]
fn wrong_wire_types_are_refused() {
    let contents: [(u64, &[u8]); 4] = [(0, &[1]), (1, &[0; 8]), (2, &[0]), (5, &[0; 4])];
    for case in CASES {
        for field in descriptor(case).fields() {
            let is_packable =
                field.cardinality() == Cardinality::Repeated && wire_type(&field) != 2;
            for (given, content) in contents {
                let mut bytes = Vec::new();
                writer::varint(&mut bytes, u64::from(field.number()) << 3 | given);
                bytes.extend(content);
                let decoded = (case.recode)(&bytes);
                let is_right = given == wire_type(&field) || (given == 2 && is_packable);
                if is_right {
                    assert!(decoded.is_ok(), "{}: {decoded:?}", field.full_name());
                    continue;
                }
                let error = decoded.expect_err(field.full_name());
                assert_eq!(
                    error.fault,
                    FieldFault::WrongWireType,
                    "{}",
                    field.full_name()
                );
                assert_eq!(error.field, field.number(), "{}", field.full_name());
                let name = error.name.rsplit('.').next().unwrap_or_default();
                let plain = |name: &str| name.replace('_', "").to_lowercase();
                assert_eq!(plain(name), plain(field.name()), "{}", field.full_name());
            }
        }
    }
}

#[test]
fn strings_that_are_not_utf8_are_refused() {
    let mut count = 0;
    for case in CASES {
        for field in descriptor(case).fields() {
            if field.kind() == Kind::String {
                let mut bytes = Vec::new();
                writer::bytes(&mut bytes, field.number(), &[b'a', 0xff]);
                let error = (case.recode)(&bytes).expect_err(field.full_name());
                assert_eq!(error.fault, FieldFault::NotUtf8, "{}", field.full_name());
                count += 1;
            }
        }
    }
    assert!(count > 10, "{count}");
}

#[test]
fn repeated_numbers_are_read_packed_and_one_by_one() {
    let mut count = 0;
    for case in CASES {
        for field in descriptor(case).fields() {
            if field.cardinality() != Cardinality::Repeated || wire_type(&field) != 0 {
                continue;
            }
            let mut bytes = Vec::new();
            for number in [0, 1, 300] {
                writer::uint64_always(&mut bytes, field.number(), number);
                writer::bytes_always(&mut bytes, field.number(), &[9, 0x80, 1]);
                writer::bytes_always(&mut bytes, field.number(), &[]);
            }
            assert!(assert_agreement(case, &bytes), "{}", field.full_name());
            writer::bytes_always(&mut bytes, field.number(), &[9, 0x80]);
            assert!(!assert_agreement(case, &bytes), "{}", field.full_name());
            count += 1;
        }
    }
    assert!(count > 1, "{count}");
}
