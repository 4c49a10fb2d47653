//! The hand-written message formats against an independent implementation of protobuf (prost) that
//! knows nothing but the `.proto` files: each reads what the other has written, field by field and
//! by name.

mod broken;
mod requests;
mod responses;
mod several;

use std::sync::LazyLock;

use prost_reflect::prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, Value};
use store::{Condition, Direction, Expiry, Mode, Operation};
use testkit::OnFailure;

/// Random messages of each kind.
const ROUNDS: u64 = 2_000;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    let mut compiler = protox::Compiler::new([proto]).expect("the folder is there");
    let files = [
        "pelton/v1/kv.proto",
        "pelton/v1/blob.proto",
        "pelton/v1/admin.proto",
        "pelton/v1/echo.proto",
    ];
    compiler.open_files(files).expect("the files compile");
    compiler.descriptor_pool()
});

/// A message of `pelton.v1` as the oracle sees it; fields that are `None` are left out.
fn message<const N: usize>(name: &str, fields: [(&str, Option<Value>); N]) -> DynamicMessage {
    let descriptor = POOL
        .get_message_by_name(&format!("pelton.v1.{name}"))
        .expect("there is such a message");
    let mut message = DynamicMessage::new(descriptor);
    for (field, value) in fields {
        if let Some(value) = value {
            message.set_field_by_name(field, value);
        }
    }
    message
}

/// `ours` says to the oracle what `expected` says. (Compared as the oracle writes them, which
/// leaves out defaults.)
#[track_caller]
fn assert_same(name: &str, ours: &[u8], expected: &DynamicMessage) {
    let descriptor = POOL
        .get_message_by_name(&format!("pelton.v1.{name}"))
        .expect("there is such a message");
    let ours = DynamicMessage::decode(descriptor, ours).expect("what we encode is a message");
    assert_eq!(ours.encode_to_vec(), expected.encode_to_vec(), "{ours}");
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn bytes(value: &[u8]) -> Option<Value> {
    Some(Value::Bytes(value.to_vec().into()))
}

fn text(value: &str) -> Option<Value> {
    Some(Value::String(value.to_string()))
}

fn number(value: u64) -> Option<Value> {
    Some(Value::U64(value))
}

/// Random numbers and bytes of all lengths, which name their seed when a test fails.
struct Random {
    numbers: testkit::Random,
    _on_failure: OnFailure,
}

impl Random {
    fn new(seed: u64) -> Random {
        Random {
            numbers: testkit::Random::new(seed),
            _on_failure: OnFailure::of_seed(seed),
        }
    }

    fn next(&mut self) -> u64 {
        self.numbers.number()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.numbers.below(bound)
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Numbers of all lengths, 0 and the largest among them.
    fn number(&mut self) -> u64 {
        match self.below(10) {
            0 => 0,
            1 => u64::MAX,
            _ => self.next() >> self.below(64),
        }
    }

    /// Bytes around the lengths at which length prefixes grow.
    fn bytes(&mut self) -> Vec<u8> {
        let length = match self.below(10) {
            0 => 0,
            1 => 125 + self.below(6),
            2 => 16_380 + self.below(8),
            _ => self.below(40),
        };
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// The bytes that a random operation borrows.
struct Material {
    key: Vec<u8>,
    value: Vec<u8>,
    expected: Vec<u8>,
}

impl Material {
    fn new(random: &mut Random) -> Material {
        Material {
            key: random.bytes(),
            value: random.bytes(),
            expected: random.bytes(),
        }
    }

    fn operation(&self, kind: u64, random: &mut Random) -> Operation<'_> {
        let Material {
            key,
            value,
            expected,
        } = self;
        let condition = match random.below(5) {
            0 => Condition::VersionIs(random.number() | 1),
            1 if kind != 2 => Condition::Absent,
            2 => Condition::Present,
            3 => Condition::ValueIs(expected),
            _ => Condition::None,
        };
        let want_previous = random.flag();
        let expiry = match random.below(3) {
            0 => Expiry::Keep,
            1 => Expiry::AfterMs(1 + random.below(3_153_600_000_000)),
            _ => Expiry::None,
        };
        match kind {
            0 => Operation::Get { key },
            1 => Operation::Put {
                key,
                value,
                condition,
                expiry,
                want_previous,
            },
            2 => Operation::Delete {
                key,
                condition,
                want_previous,
            },
            3 => Operation::Append {
                key,
                value,
                condition,
            },
            _ => {
                let (delta, initial) =
                    (random.number().cast_signed(), random.number().cast_signed());
                Operation::Increment {
                    key,
                    delta,
                    initial,
                    condition,
                }
            }
        }
    }
}

#[test]
fn every_enum_begins_with_unspecified() {
    let mut count = 0;
    for file in POOL.files() {
        let nested = file
            .messages()
            .flat_map(|message| message.child_enums().collect::<Vec<_>>());
        for descriptor in file.enums().chain(nested) {
            let zero = descriptor.get_value(0).expect("proto3 demands a 0");
            assert!(
                zero.name().ends_with("_UNSPECIFIED"),
                "{}",
                zero.full_name()
            );
            count += 1;
        }
    }
    assert_eq!(count, 8);
}

#[test]
fn every_method_of_the_files_has_a_route_and_the_other_way_round() {
    let mut paths = Vec::new();
    for descriptor in POOL.services() {
        for method in descriptor.methods() {
            let path = format!("{}/{}", descriptor.full_name(), method.name());
            let kind = match (method.is_client_streaming(), method.is_server_streaming()) {
                (false, false) => api::CallKind::Unary,
                (false, true) => api::CallKind::ServerStreaming,
                (true, false) => api::CallKind::ClientStreaming,
                (true, true) => api::CallKind::Bidirectional,
            };
            let routed = service::route(format!("/{path}").as_bytes());
            assert_eq!(routed.and_then(service::Method::kind), Some(kind), "{path}");
            paths.push(path);
        }
    }
    let ours = service::Method::ALL.iter().map(|method| method.path());
    for path in ours.filter(|path| path.starts_with("pelton.")) {
        assert!(
            paths.iter().any(|known| known == path),
            "{path} is in no file"
        );
    }
}
