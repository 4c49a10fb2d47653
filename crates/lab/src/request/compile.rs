//! A request in JSON with placeholders becomes parts of a message, by the type of the message.

use std::collections::HashSet;

use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::message::{NumberEncoding, NumberValue, RequestPart, RequestTemplate, most_bytes};
use super::placeholder::{self, Placeholder, StringPart};
use crate::limits;

/// Reads a request of this type: JSON (the JSON mapping of Protocol Buffers), with placeholders.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn compile(message: &MessageDescriptor, json: &str) -> Result<RequestTemplate, String> {
    let (text, placeholders) = placeholder::take_out(json)?;
    if placeholders.is_empty() {
        return compile_fixed(message, json);
    }
    let value: Value = serde_json::from_str(&text).map_err(|error| {
        // Where it is is told of the text with marks, which nobody has written.
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default();
        format!("{reason}; each placeholder stands for a value, or within a string")
    })?;
    let Value::Object(fields) = &value else {
        return Err("it is no JSON object".into());
    };
    let compiler = Compiler {
        placeholders: &placeholders,
    };
    let mut parts = RequestParts::default();
    compiler.message(message, fields, "", &mut parts)?;
    check_size(most_bytes(&parts.0))?;
    Ok(RequestTemplate::of_parts(parts.0))
}

fn compile_fixed(message: &MessageDescriptor, json: &str) -> Result<RequestTemplate, String> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let request = DynamicMessage::deserialize(message.clone(), &mut deserializer)
        .map_err(|error| error.to_string())?;
    deserializer.end().map_err(|error| error.to_string())?;
    let bytes = request.encode_to_vec();
    check_size(bytes.len())?;
    Ok(RequestTemplate::fixed(bytes))
}

fn check_size(bytes: usize) -> Result<(), String> {
    match bytes > limits::MAX_REQUEST_BYTES {
        true => Err(format!("it has {bytes} bytes, too many")),
        false => Ok(()),
    }
}

/// MessageParts of a message; equal ones that follow each other are one.
#[derive(Default)]
struct RequestParts(Vec<RequestPart>);

impl RequestParts {
    fn fixed(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            Some(RequestPart::Fixed(before)) => before.extend_from_slice(bytes),
            _ if bytes.is_empty() => {}
            _ => self.0.push(RequestPart::Fixed(bytes.to_vec())),
        }
    }

    fn tag(&mut self, field: &FieldDescriptor, wire_type: u32) {
        let mut bytes = Vec::new();
        protobuf::writer::varint(&mut bytes, u64::from(field.number() << 3 | wire_type));
        self.fixed(&bytes);
    }

    fn delimited(&mut self, field: &FieldDescriptor, parts: RequestParts) {
        self.tag(field, LENGTH_DELIMITED);
        self.0.push(RequestPart::Delimited(parts.0));
    }
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

struct Compiler<'a> {
    placeholders: &'a [Placeholder],
}

impl Compiler<'_> {
    /// Compiles the fields of a message. `path`: where it is, for messages.
    fn message(
        &self,
        message: &MessageDescriptor,
        fields: &Map<String, Value>,
        path: &str,
        parts: &mut RequestParts,
    ) -> Result<(), String> {
        let (mut same, mut varying) = (Map::new(), Vec::new());
        let mut numbers = HashSet::new();
        let mut oneofs = HashSet::new();
        for (name, value) in fields {
            if placeholder::is_marked(name) && find(message, name).is_none() {
                return Err(format!(
                    "the name `{}` of a field cannot vary",
                    placeholder::readable(name, self.placeholders)
                ));
            }
            if let Some(field) = find(message, name).filter(|_| !value.is_null()) {
                let oneof = field
                    .containing_oneof()
                    .map(|oneof| oneof.name().to_owned());
                if !numbers.insert(field.number()) || oneof.is_some_and(|it| !oneofs.insert(it)) {
                    return Err(format!(
                        "the field {} is given twice, or beside another one of its oneof",
                        within(path, &field)
                    ));
                }
                if is_varying(value) {
                    varying.push((field, value));
                    continue;
                }
            }
            same.insert(name.clone(), value.clone());
        }
        let same = DynamicMessage::deserialize(message.clone(), Value::Object(same))
            .map_err(|error| at(path, &error.to_string()))?;
        parts.fixed(&same.encode_to_vec());
        for (field, value) in varying {
            self.field(&field, value, path, parts)?;
        }
        Ok(())
    }

    fn field(
        &self,
        field: &FieldDescriptor,
        value: &Value,
        path: &str,
        parts: &mut RequestParts,
    ) -> Result<(), String> {
        let path = within(path, field);
        match value {
            Value::Object(entries) if field.is_map() => self.map(field, entries, &path, parts),
            Value::Array(values) if field.is_list() => {
                // Numbers that could share a length have a tag each, which every reader takes.
                for value in values {
                    self.value(field, value, &path, parts)?;
                }
                Ok(())
            }
            _ if field.is_map() => Err(format!("{path} is a map: it takes a JSON object")),
            _ if field.is_list() => Err(format!("{path} is repeated: it takes a JSON array")),
            _ => self.value(field, value, &path, parts),
        }
    }

    fn map(
        &self,
        field: &FieldDescriptor,
        entries: &Map<String, Value>,
        path: &str,
        parts: &mut RequestParts,
    ) -> Result<(), String> {
        let Kind::Message(entry) = field.kind() else {
            return Err(format!("{path} is a map of a kind that cannot vary"));
        };
        let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        for (key, value) in entries {
            let mut inner = RequestParts::default();
            let key = match (key_field.kind(), key.as_str()) {
                (Kind::Bool, "true") => Value::Bool(true),
                (Kind::Bool, "false") => Value::Bool(false),
                _ => Value::String(key.clone()),
            };
            self.value(&key_field, &key, path, &mut inner)?;
            self.value(&value_field, value, path, &mut inner)?;
            parts.delimited(field, inner);
        }
        Ok(())
    }

    /// Compiles one value of a field.
    fn value(
        &self,
        field: &FieldDescriptor,
        value: &Value,
        path: &str,
        parts: &mut RequestParts,
    ) -> Result<(), String> {
        if !is_varying(value) {
            return fixed_value(field, value, path, parts);
        }
        match (field.kind(), value) {
            (Kind::Message(inner), _) => self.inner(field, &inner, value, path, parts),
            (Kind::String, Value::String(text)) => {
                let mut filled = RequestParts::default();
                for part in placeholder::parts(text, self.placeholders) {
                    self.text_part(part, path, &mut filled)?;
                }
                parts.delimited(field, filled);
                Ok(())
            }
            (Kind::Bytes, Value::String(text)) => {
                let filled = self.bytes(text, path)?;
                parts.delimited(field, filled);
                Ok(())
            }
            (kind, Value::String(text)) => {
                let [StringPart::Filled(placeholder)] =
                    placeholder::parts(text, self.placeholders)[..]
                else {
                    return Err(format!(
                        "{path} is {kind:?}: one placeholder alone fits there"
                    ));
                };
                number(field, &kind, placeholder, path, parts)
            }
            (kind, _) => Err(format!("{path} is {kind:?}, which no object or array fits")),
        }
    }

    /// Compiles a message that is the value of a field.
    fn inner(
        &self,
        field: &FieldDescriptor,
        message: &MessageDescriptor,
        value: &Value,
        path: &str,
        parts: &mut RequestParts,
    ) -> Result<(), String> {
        if field.is_group() {
            return Err(format!("{path} is a group, in which nothing can vary"));
        }
        let mut inner = RequestParts::default();
        let name = message.full_name();
        match value {
            _ if WRAPPERS.contains(&name) => {
                let Some(wrapped) = message.get_field(1) else {
                    return Err(format!("{path} is a {name} without its field"));
                };
                self.value(&wrapped, value, path, &mut inner)?;
            }
            _ if name.starts_with("google.protobuf.") => {
                return Err(format!("{path} is a {name}, in which nothing can vary"));
            }
            Value::Object(fields) => self.message(message, fields, path, &mut inner)?,
            _ => return Err(format!("{path} is a {name}: it takes a JSON object")),
        }
        parts.delimited(field, inner);
        Ok(())
    }

    fn text_part(
        &self,
        part: StringPart<'_>,
        path: &str,
        parts: &mut RequestParts,
    ) -> Result<(), String> {
        match part {
            StringPart::Text(text) => parts.fixed(text.as_bytes()),
            StringPart::Filled(Placeholder::RandomBytes { .. }) => {
                return Err(format!(
                    "{path} is text, and {{{{random_bytes}}}} is none; write {{{{random_text}}}}"
                ));
            }
            StringPart::Filled(Placeholder::Utf8) => {
                return Err(format!(
                    "{path}: {{{{utf8}}}} stands only first in a field of bytes"
                ));
            }
            StringPart::Filled(placeholder) => parts.0.push(RequestPart::Filled(placeholder)),
        }
        Ok(())
    }

    /// Compiles the string of a field of bytes: random bytes alone, or text after `{{utf8}}`.
    fn bytes(&self, text: &str, path: &str) -> Result<RequestParts, String> {
        let mut filled = RequestParts::default();
        match placeholder::parts(text, self.placeholders).as_slice() {
            [StringPart::Filled(bytes @ Placeholder::RandomBytes { .. })] => {
                filled.0.push(RequestPart::Filled(*bytes));
            }
            [StringPart::Filled(Placeholder::Utf8), rest @ ..] => {
                for part in rest {
                    match part {
                        StringPart::Filled(bytes @ Placeholder::RandomBytes { .. }) => {
                            filled.0.push(RequestPart::Filled(*bytes));
                        }
                        part => self.text_part(*part, path, &mut filled)?,
                    }
                }
            }
            _ => {
                return Err(format!(
                    "{path} is bytes, which JSON has as base64; begin it with {{{{utf8}}}} if its \
                     text is the bytes themselves"
                ));
            }
        }
        Ok(filled)
    }
}

/// Types whose JSON is that of their only field.
const WRAPPERS: [&str; 9] = [
    "google.protobuf.BoolValue",
    "google.protobuf.BytesValue",
    "google.protobuf.DoubleValue",
    "google.protobuf.FloatValue",
    "google.protobuf.Int32Value",
    "google.protobuf.Int64Value",
    "google.protobuf.StringValue",
    "google.protobuf.UInt32Value",
    "google.protobuf.UInt64Value",
];

fn find(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    let by_json = message.get_field_by_json_name(name);
    by_json.or_else(|| message.get_field_by_name(name))
}

/// Whether there is a placeholder in a value.
fn is_varying(value: &Value) -> bool {
    match value {
        Value::String(text) => placeholder::is_marked(text),
        Value::Array(values) => values.iter().any(is_varying),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| placeholder::is_marked(name) || is_varying(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn within(path: &str, field: &FieldDescriptor) -> String {
    match path {
        "" => field.json_name().to_owned(),
        path => format!("{path}.{}", field.json_name()),
    }
}

fn at(path: &str, reason: &str) -> String {
    match path {
        "" => reason.to_owned(),
        path => format!("{path}: {reason}"),
    }
}

/// Compiles a value that is the same in each request, beside others that are not: a message that
/// has only this field is what the type of the field makes of it.
fn fixed_value(
    field: &FieldDescriptor,
    value: &Value,
    path: &str,
    parts: &mut RequestParts,
) -> Result<(), String> {
    let value = match field.is_list() {
        true => Value::Array(vec![value.clone()]),
        false => value.clone(),
    };
    let fields = Map::from_iter([(field.json_name().to_owned(), value)]);
    let only = DynamicMessage::deserialize(field.parent_message().clone(), Value::Object(fields))
        .map_err(|error| at(path, &error.to_string()))?;
    parts.fixed(&only.encode_to_vec());
    Ok(())
}

/// The range of a kind of number, and how it is written.
fn number_kind(kind: &Kind) -> Option<(i128, i128, NumberEncoding, u32)> {
    let (least, most, encoding, wire_type) = match kind {
        Kind::Int32 | Kind::Enum(_) => (
            i32::MIN.into(),
            i32::MAX.into(),
            NumberEncoding::Varint,
            VARINT,
        ),
        Kind::Int64 => (
            i64::MIN.into(),
            i64::MAX.into(),
            NumberEncoding::Varint,
            VARINT,
        ),
        Kind::Uint32 => (0, u32::MAX.into(), NumberEncoding::Varint, VARINT),
        Kind::Uint64 => (0, u64::MAX.into(), NumberEncoding::Varint, VARINT),
        Kind::Sint32 => (
            i32::MIN.into(),
            i32::MAX.into(),
            NumberEncoding::ZigZag,
            VARINT,
        ),
        Kind::Sint64 => (
            i64::MIN.into(),
            i64::MAX.into(),
            NumberEncoding::ZigZag,
            VARINT,
        ),
        Kind::Fixed32 => (0, u32::MAX.into(), NumberEncoding::Fixed32, FIXED32),
        Kind::Sfixed32 => (
            i32::MIN.into(),
            i32::MAX.into(),
            NumberEncoding::Fixed32,
            FIXED32,
        ),
        Kind::Fixed64 => (0, u64::MAX.into(), NumberEncoding::Fixed64, FIXED64),
        Kind::Sfixed64 => (
            i64::MIN.into(),
            i64::MAX.into(),
            NumberEncoding::Fixed64,
            FIXED64,
        ),
        // The whole numbers that they have exactly.
        Kind::Float => (-(1 << 24), 1 << 24, NumberEncoding::Float, FIXED32),
        Kind::Double => (-(1 << 53), 1 << 53, NumberEncoding::Double, FIXED64),
        Kind::Bool | Kind::String | Kind::Bytes | Kind::Message(_) => return None,
    };
    Some((least, most, encoding, wire_type))
}

fn number(
    field: &FieldDescriptor,
    kind: &Kind,
    placeholder: Placeholder,
    path: &str,
    parts: &mut RequestParts,
) -> Result<(), String> {
    let does_not_fit = || {
        format!(
            "{path} is {kind:?}, which {} does not fit",
            placeholder.name()
        )
    };
    let (least, most, encoding, wire_type) = number_kind(kind).ok_or_else(does_not_fit)?;
    let value = match placeholder {
        Placeholder::Counter => NumberValue::Counter {
            last: most.unsigned_abs() as u64,
        },
        Placeholder::Random {
            least: from,
            most: to,
        } if i128::from(from) >= least && i128::from(to) <= most => NumberValue::Random {
            least: from,
            most: to,
        },
        Placeholder::Random { .. } => {
            return Err(format!(
                "{path} is {kind:?}: its numbers go from {least} to {most}, and those of \
                 {{{{random}}}} beyond"
            ));
        }
        _ => return Err(does_not_fit()),
    };
    parts.tag(field, wire_type);
    parts.0.push(RequestPart::Number { value, encoding });
    Ok(())
}
