//! Operations, comparisons and bytes as JSON describes them. docs/json.md is the description for
//! users.

use api::keyvalue::{
    AppendOperation, Comparand, Condition, DeleteOperation, Expiry, GetOperation,
    IncrementOperation, Operation, OperationBody, PutOperation,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use service::limits::TIME_TO_LIVE_MS_MAX;

use crate::encoding::decode_hex;

/// How the bytes of a field are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JsonEncoding {
    #[default]
    Text,
    Hex,
    Base64,
}

/// The bytes of the field `name`.
pub fn decode(name: &str, text: String, encoding: JsonEncoding) -> Result<Vec<u8>, String> {
    match encoding {
        JsonEncoding::Text => Ok(text.into_bytes()),
        JsonEncoding::Hex => decode_hex(text.as_bytes())
            .ok_or_else(|| format!("`{name}` is not hexadecimal with two digits a byte")),
        JsonEncoding::Base64 => BASE64
            .decode(text.as_bytes())
            .map_err(|_| format!("`{name}` is not base64 with its padding")),
    }
}

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JsonOperationKind {
    Get,
    Put,
    Delete,
    Append,
    Increment,
}

impl JsonOperationKind {
    pub fn name(self) -> &'static str {
        match self {
            JsonOperationKind::Get => "get",
            JsonOperationKind::Put => "put",
            JsonOperationKind::Delete => "delete",
            JsonOperationKind::Append => "append",
            JsonOperationKind::Increment => "increment",
        }
    }
}

/// An operation as it is written, with the fields of all kinds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationJson {
    operation: JsonOperationKind,
    key: String,
    #[serde(default)]
    key_encoding: JsonEncoding,
    value: Option<String>,
    #[serde(default)]
    value_encoding: JsonEncoding,
    delta: Option<i64>,
    initial: Option<i64>,
    if_version: Option<u64>,
    if_exists: Option<bool>,
    if_value: Option<String>,
    #[serde(default)]
    if_value_encoding: JsonEncoding,
    return_previous: Option<bool>,
    time_to_live_ms: Option<u64>,
    keep_time_to_live: Option<bool>,
}

impl OperationJson {
    /// The operation, if all its fields belong to it.
    pub fn decode(self) -> Result<OwnedOperation, String> {
        self.check_fields()?;
        let kind = self.operation;
        let value = match self.value {
            Some(value) => decode("value", value, self.value_encoding)?,
            None if matches!(kind, JsonOperationKind::Put | JsonOperationKind::Append) => {
                return Err(format!(
                    "`value` is missing in the operation `{}`",
                    kind.name()
                ));
            }
            None => Vec::new(),
        };
        Ok(OwnedOperation {
            kind,
            key: decode("key", self.key, self.key_encoding)?,
            value,
            condition: condition(
                kind,
                self.if_version,
                self.if_exists,
                self.if_value
                    .map(|value| decode("if_value", value, self.if_value_encoding))
                    .transpose()?,
            )?,
            expiry: expiry(self.time_to_live_ms, self.keep_time_to_live)?,
            want_previous: self.return_previous.unwrap_or(false),
            delta: self.delta.unwrap_or(1),
            initial: self.initial.unwrap_or(0),
        })
    }

    /// A field that would be passed over in silence is surely not what the writer meant.
    fn check_fields(&self) -> Result<(), String> {
        use JsonOperationKind::{Append, Delete, Get, Increment, Put};
        let kind = self.operation;
        let belongs = |kinds: &[JsonOperationKind]| kinds.contains(&kind);
        let fields = [
            ("value", self.value.is_some(), belongs(&[Put, Append])),
            ("delta", self.delta.is_some(), belongs(&[Increment])),
            ("initial", self.initial.is_some(), belongs(&[Increment])),
            ("if_version", self.if_version.is_some(), kind != Get),
            ("if_exists", self.if_exists.is_some(), kind != Get),
            ("if_value", self.if_value.is_some(), kind != Get),
            (
                "return_previous",
                self.return_previous.is_some(),
                belongs(&[Put, Delete]),
            ),
            (
                "time_to_live_ms",
                self.time_to_live_ms.is_some(),
                belongs(&[Put]),
            ),
            (
                "keep_time_to_live",
                self.keep_time_to_live.is_some(),
                belongs(&[Put]),
            ),
        ];
        match fields.iter().find(|(_, given, belongs)| *given && !belongs) {
            Some((name, ..)) => Err(format!(
                "`{name}` does not belong to the operation `{}`",
                kind.name()
            )),
            None => Ok(()),
        }
    }
}

fn condition(
    kind: JsonOperationKind,
    if_version: Option<u64>,
    if_exists: Option<bool>,
    if_value: Option<Vec<u8>>,
) -> Result<OwnedCondition, String> {
    let absent = || "a key that is not there cannot be deleted".to_owned();
    match (if_version, if_exists, if_value) {
        (None, None, None) => Ok(OwnedCondition::None),
        (Some(0), None, None) if kind == JsonOperationKind::Delete => Err(absent()),
        (Some(version), None, None) => Ok(OwnedCondition::VersionIs(version)),
        (None, Some(false), None) if kind == JsonOperationKind::Delete => Err(absent()),
        (None, Some(false), None) => Ok(OwnedCondition::Absent),
        (None, Some(true), None) => Ok(OwnedCondition::Present),
        (None, None, Some(value)) => Ok(OwnedCondition::ValueIs(value)),
        _ => Err("there may be one condition: if_version, if_exists or if_value".into()),
    }
}

fn expiry(time_to_live_ms: Option<u64>, keep: Option<bool>) -> Result<Option<Expiry>, String> {
    match (time_to_live_ms, keep.unwrap_or(false)) {
        (Some(_), true) => Err("time_to_live_ms and keep_time_to_live exclude each other".into()),
        (Some(ms), false) if (1..=TIME_TO_LIVE_MS_MAX).contains(&ms) => {
            Ok(Some(Expiry::TimeToLiveMs(ms)))
        }
        (Some(ms), false) => Err(format!(
            "`time_to_live_ms` is {ms}; it may be 1 to {TIME_TO_LIVE_MS_MAX} (100 years)"
        )),
        (None, true) => Ok(Some(Expiry::KeepTimeToLive(true))),
        (None, false) => Ok(None),
    }
}

/// A condition with its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedCondition {
    None,
    Absent,
    Present,
    VersionIs(u64),
    ValueIs(Vec<u8>),
}

impl OwnedCondition {
    /// The condition of an operation.
    fn borrow(&self) -> Option<Condition<'_>> {
        match self {
            OwnedCondition::None => None,
            OwnedCondition::Absent => Some(Condition::IfExists(false)),
            OwnedCondition::Present => Some(Condition::IfExists(true)),
            OwnedCondition::VersionIs(version) => Some(Condition::IfVersion(*version)),
            OwnedCondition::ValueIs(value) => Some(Condition::IfValue(value)),
        }
    }

    /// The condition of a comparison.
    pub fn comparand(&self) -> Option<Comparand<'_>> {
        match self {
            OwnedCondition::None => None,
            OwnedCondition::Absent => Some(Comparand::Exists(false)),
            OwnedCondition::Present => Some(Comparand::Exists(true)),
            OwnedCondition::VersionIs(version) => Some(Comparand::Version(*version)),
            OwnedCondition::ValueIs(value) => Some(Comparand::Value(value)),
        }
    }
}

/// An operation with its own bytes.
#[derive(Clone, Debug)]
pub struct OwnedOperation {
    pub kind: JsonOperationKind,
    key: Vec<u8>,
    value: Vec<u8>,
    condition: OwnedCondition,
    expiry: Option<Expiry>,
    want_previous: bool,
    delta: i64,
    initial: i64,
}

impl OwnedOperation {
    /// Writes a value, in any case.
    pub fn put(key: Vec<u8>, value: Vec<u8>, expiry: Option<Expiry>) -> OwnedOperation {
        OwnedOperation {
            kind: JsonOperationKind::Put,
            key,
            value,
            condition: OwnedCondition::None,
            expiry,
            want_previous: false,
            delta: 0,
            initial: 0,
        }
    }

    /// The operation for a request.
    pub fn borrow(&self) -> Operation<'_> {
        let (key, value, condition) = (&self.key[..], &self.value[..], self.condition.borrow());
        let (return_previous, unserved) = (self.want_previous, 0);
        Operation::from(match self.kind {
            JsonOperationKind::Get => OperationBody::Get(GetOperation { key, unserved }),
            JsonOperationKind::Put => OperationBody::Put(PutOperation {
                key,
                value,
                return_previous,
                condition,
                expiry: self.expiry,
                unserved,
            }),
            JsonOperationKind::Delete => OperationBody::Delete(DeleteOperation {
                key,
                return_previous,
                condition,
                unserved,
            }),
            JsonOperationKind::Append => OperationBody::Append(AppendOperation {
                key,
                value,
                condition,
                unserved,
            }),
            JsonOperationKind::Increment => OperationBody::Increment(IncrementOperation {
                key,
                delta: self.delta,
                initial: self.initial,
                condition,
                unserved,
            }),
        })
    }

    /// About how many bytes it takes in a request.
    pub fn request_bytes(&self) -> usize {
        let expected = match &self.condition {
            OwnedCondition::ValueIs(value) => value.len(),
            _ => 0,
        };
        self.key.len() + self.value.len() + expected + 64
    }

    /// Whether its result may carry a value.
    pub fn wants_value(&self) -> bool {
        self.kind == JsonOperationKind::Get || self.want_previous
    }

    /// Whether its condition is one of the value.
    pub fn compares_value(&self) -> bool {
        matches!(self.condition, OwnedCondition::ValueIs(_))
    }

    /// Whether it does something only if a condition is met.
    pub fn is_conditional(&self) -> bool {
        self.condition != OwnedCondition::None
    }
}

/// A comparison of a Transact as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparisonJson {
    key: String,
    #[serde(default)]
    key_encoding: JsonEncoding,
    version: Option<u64>,
    exists: Option<bool>,
    value: Option<String>,
    #[serde(default)]
    value_encoding: JsonEncoding,
}

impl ComparisonJson {
    /// The key, and what must hold for it.
    pub fn decode(self) -> Result<(Vec<u8>, OwnedCondition), String> {
        let value = self
            .value
            .map(|value| decode("value", value, self.value_encoding))
            .transpose()?;
        let condition = match (self.version, self.exists, value) {
            (Some(version), None, None) => OwnedCondition::VersionIs(version),
            (None, Some(true), None) => OwnedCondition::Present,
            (None, Some(false), None) => OwnedCondition::Absent,
            (None, None, Some(value)) => OwnedCondition::ValueIs(value),
            _ => return Err("there must be one of `version`, `exists` and `value`".into()),
        };
        Ok((decode("key", self.key, self.key_encoding)?, condition))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_text::read_line;

    fn operation(line: &str) -> Result<OwnedOperation, String> {
        read_line::<OperationJson>(line.as_bytes())?.decode()
    }

    #[test]
    fn operations_are_read() {
        let put = operation(
            r#"{"operation":"put","key":"AP8=","key_encoding":"base64","value":"ff00",
                "value_encoding":"hex","if_exists":false,"time_to_live_ms":5,
                "return_previous":true}"#,
        )
        .expect("valid");
        let expected = OperationBody::Put(PutOperation {
            key: &[0x00, 0xff],
            value: &[0xff, 0x00],
            return_previous: true,
            condition: Some(Condition::IfExists(false)),
            expiry: Some(Expiry::TimeToLiveMs(5)),
            unserved: 0,
        });
        assert_eq!(put.borrow(), Operation::from(expected));
        let increment =
            operation(r#"{"operation":"increment","key":"n","initial":-3}"#).expect("valid");
        let expected = OperationBody::Increment(IncrementOperation {
            key: b"n",
            delta: 1,
            initial: -3,
            ..IncrementOperation::default()
        });
        assert_eq!(increment.borrow(), Operation::from(expected));
    }

    #[test]
    fn wrong_operations_are_explained() {
        for (line, expected) in [
            ("{", "column 1"),
            ("[]", "write one object a line"),
            (r#"{"key":"k"}"#, "the field `operation` is missing"),
            (r#"{"operation":"get"}"#, "the field `key` is missing"),
            (
                r#"{"operation":"set","key":"k"}"#,
                "`set` is not one of `get`, `put`",
            ),
            (
                r#"{"operation":"get","key":"k","ttl":1}"#,
                "there is no field `ttl`; write `time_to_live_ms`",
            ),
            (
                r#"{"operation":"get","key":1}"#,
                "a string belongs here, not integer `1`",
            ),
            (
                r#"{"operation":"get","operation":"get","key":"k"}"#,
                "the field `operation` stands there twice",
            ),
            (r#"{"operation":"put","key":"k"}"#, "`value` is missing"),
            (
                r#"{"operation":"get","key":"k","value":"v"}"#,
                "`value` does not belong to the operation `get`",
            ),
            (
                r#"{"operation":"delete","key":"k","if_version":0}"#,
                "cannot be deleted",
            ),
            (
                r#"{"operation":"put","key":"k","value":"v","if_version":1,"if_exists":true}"#,
                "one condition",
            ),
            (
                r#"{"operation":"put","key":"k","value":"v","time_to_live_ms":0}"#,
                "1 to",
            ),
            (
                r#"{"operation":"put","key":"k","value":"A","value_encoding":"base64"}"#,
                "`value` is not base64",
            ),
            (
                r#"{"operation":"get","key":"0","key_encoding":"hex"}"#,
                "`key` is not hexadecimal",
            ),
        ] {
            let error = operation(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
            assert!(
                !error.contains(" at line "),
                "the caller knows the line: {error}"
            );
        }
    }

    #[test]
    fn comparisons_have_one_condition() {
        let comparison = |line: &str| read_line::<ComparisonJson>(line.as_bytes())?.decode();
        assert_eq!(
            comparison(r#"{"key":"k","version":0}"#),
            Ok((b"k".to_vec(), OwnedCondition::VersionIs(0)))
        );
        assert_eq!(
            comparison(r#"{"key":"k","value":""}"#),
            Ok((b"k".to_vec(), OwnedCondition::ValueIs(Vec::new())))
        );
        for line in [r#"{"key":"k"}"#, r#"{"key":"k","version":1,"exists":true}"#] {
            assert!(comparison(line).expect_err(line).contains("one of"));
        }
    }
}
