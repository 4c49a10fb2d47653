//! Whether a method may be called again and again without asking.

use prost_reflect::prost_types::method_options::IdempotencyLevel;

use super::descriptors::read_descriptors;
use super::{MethodError, MethodName};

/// Words with which the names of methods begin that only read.
const READING: &[&str] = &[
    "Check", "Count", "Describe", "Echo", "Exists", "Find", "Get", "Has", "Is", "List", "Lookup",
    "Ping", "Query", "Read", "Scan", "Search", "Show", "Stat", "Status", "Version",
];

impl MethodName {
    /// Whether the name says that the method only reads.
    pub fn is_evidently_reading(&self) -> bool {
        let method = &self.method;
        READING.iter().any(|word| {
            // `Listen` is no `List`.
            let rest = method.strip_prefix(word);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_lowercase()))
        })
    }

    /// Whether the descriptor says that a call may be repeated (`idempotency_level`).
    ///
    /// # Errors
    /// If there is no such unary method.
    pub fn is_declared_repeatable(&self, descriptor_set: &[u8]) -> Result<bool, MethodError> {
        let method = self.find(&read_descriptors(descriptor_set)?)?;
        let options = method.method_descriptor_proto().options.as_ref();
        let level = options.map(|options| options.idempotency_level());
        Ok(matches!(
            level,
            Some(IdempotencyLevel::NoSideEffects | IdempotencyLevel::Idempotent)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> MethodName {
        text.parse().expect(text)
    }

    #[test]
    fn a_name_says_that_a_method_only_reads() {
        for reading in [
            "a.B/Get",
            "a.B/GetUser",
            "a.B/List2",
            "B/PingPlainGrpc",
            "a/Is_up",
        ] {
            assert!(name(reading).is_evidently_reading(), "{reading}");
        }
        for other in [
            "a.B/Listen",
            "a.B/Put",
            "a.Get/Delete",
            "a.B/Getaway",
            "a.B/get",
        ] {
            assert!(!name(other).is_evidently_reading(), "{other}");
        }
    }

    #[test]
    fn a_descriptor_says_that_a_call_may_be_repeated() {
        let folder = std::env::temp_dir().join(format!("pelton-repeat-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder is ours");
        let text = "syntax = \"proto3\"; package t; message M {}
            service T {
                rpc Plain(M) returns (M);
                rpc Reads(M) returns (M) { option idempotency_level = NO_SIDE_EFFECTS; }
                rpc Repeats(M) returns (M) { option idempotency_level = IDEMPOTENT; }
            }";
        std::fs::write(folder.join("t.proto"), text).expect("it is written");
        let set = protox::compile(["t.proto"], [&folder]).expect("it is well formed");
        std::fs::remove_dir_all(&folder).expect("it was there");
        let set = prost_reflect::prost::Message::encode_to_vec(&set);
        let is_repeatable = |method: &str| name(method).is_declared_repeatable(&set);
        assert_eq!(is_repeatable("t.T/Plain"), Ok(false));
        assert_eq!(is_repeatable("t.T/Reads"), Ok(true));
        assert_eq!(is_repeatable("t.T/Repeats"), Ok(true));
        assert!(is_repeatable("t.T/Else").is_err());
    }
}
