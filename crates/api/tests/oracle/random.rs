//! Random messages, made by the oracle from its own descriptors.

use prost_reflect::{
    Cardinality, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor,
};
use prost_reflect::{Value, prost::bytes::Bytes};

/// A seeded generator of messages, which prints its seed when a test fails.
pub struct Random {
    numbers: testkit::Random,
    seed: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        let numbers = testkit::Random::new(seed);
        Random { numbers, seed }
    }

    pub fn next(&mut self) -> u64 {
        self.numbers.number()
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.numbers.below(bound)
    }

    /// Numbers of all lengths, 0 and the largest among them.
    fn number(&mut self) -> u64 {
        match self.below(10) {
            0 => 0,
            1 => u64::MAX,
            _ => self.next() >> self.below(64),
        }
    }

    /// A length around which prefixes grow, but seldom.
    fn length(&mut self) -> u64 {
        match self.below(60) {
            0 => 16_380 + self.below(8),
            1..6 => 125 + self.below(6),
            6..12 => 0,
            _ => self.below(20),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.length()).map(|_| self.next() as u8).collect()
    }

    fn text(&mut self) -> String {
        let letters = ['a', '/', 'ä', '€', '𝄞', '\0'];
        let length = self.length();
        (0..length)
            .map(|_| letters[self.below(letters.len() as u64) as usize])
            .collect()
    }

    /// A message, in which messages are nested at most `depth` deep.
    pub fn message(&mut self, descriptor: &MessageDescriptor, depth: u32) -> DynamicMessage {
        let mut message = DynamicMessage::new(descriptor.clone());
        for field in descriptor.fields() {
            if self.below(4) > 0 {
                self.set(&mut message, &field, depth);
            }
        }
        message
    }

    fn set(&mut self, message: &mut DynamicMessage, field: &FieldDescriptor, depth: u32) {
        let is_nested = matches!(field.kind(), Kind::Message(_));
        if is_nested && depth == 0 {
            return;
        }
        let depth = depth.saturating_sub(u32::from(is_nested));
        let value = if field.is_map() {
            let Kind::Message(entry) = field.kind() else {
                unreachable!("a map has entries");
            };
            let value = entry.map_entry_value_field();
            let entries = (0..self.below(4))
                .map(|_| (MapKey::String(self.text()), self.value(&value, depth)))
                .collect();
            Value::Map(entries)
        } else if field.cardinality() == Cardinality::Repeated {
            let elements = (0..self.below(4)).map(|_| self.value(field, depth));
            Value::List(elements.collect())
        } else {
            self.value(field, depth)
        };
        message.set_field(field, value);
    }

    fn value(&mut self, field: &FieldDescriptor, depth: u32) -> Value {
        match field.kind() {
            Kind::Uint64 | Kind::Fixed64 => Value::U64(self.number()),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(self.number() as u32),
            Kind::Int32 => Value::I32(self.number() as i32),
            Kind::Sint64 | Kind::Int64 => Value::I64(self.number().cast_signed()),
            Kind::Bool => Value::Bool(self.below(2) == 1),
            Kind::Double => Value::F64(self.number().cast_signed() as f64 / 8.0),
            Kind::Bytes => Value::Bytes(Bytes::from(self.bytes())),
            Kind::String => Value::String(self.text()),
            Kind::Enum(_) => match self.below(4) {
                0 => Value::EnumNumber(self.number() as i32),
                _ => Value::EnumNumber(self.below(6) as i32),
            },
            Kind::Message(message) => Value::Message(self.message(&message, depth)),
            other => unimplemented!("{other:?} is in no file yet"),
        }
    }
}

impl Drop for Random {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}: PELTON_SEED={0} repeats it", self.seed);
        }
    }
}
