//! JSON objects as people write them, and what is wrong with them in plain words.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// What some editors put in front of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Fields that others have, and what stands here instead.
const FIELDS_OF_OTHERS: [(&str, &str); 9] = [
    ("`op`", "write `operation`"),
    ("`ttl`", "write `time_to_live_ms`, in milliseconds"),
    ("`if_absent`", "write `\"if_exists\": false`"),
    ("`if_present`", "write `\"if_exists\": true`"),
    ("`compare`", "write `comparisons`"),
    ("`if`", "write `comparisons`"),
    ("`then`", "write `when_met`"),
    ("`else`", "write `when_unmet`"),
    ("`format`", "if this is an export, `pelton import` reads it"),
];

/// A value that is written as an object. What is derived for a struct takes an array of its fields,
/// too, which nobody means.
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// Reads an object that stands on one line. The error does not name the line, which the caller
/// knows better.
pub fn read_line<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    let read = serde_json::from_slice::<Object<T>>(line);
    read.map(|object| object.0).map_err(|error| {
        let place = format!("column {}", error.column());
        match line.first() {
            Some(b'[') => {
                "an array stands here; write one object a line, and nothing around them".into()
            }
            Some(b'{') if error.is_eof() => {
                format!("the object does not end on this line, at {place}; write one object a line")
            }
            _ => explain(line, &error, &place),
        }
    })
}

/// Reads an object that may stand on several lines.
pub fn read_text<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    let read = serde_json::from_slice::<Object<T>>(text);
    read.map(|object| object.0).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        match error.is_eof() {
            true => format!("the JSON ends too early, at {place}"),
            false => explain(text, &error, &place),
        }
    })
}

fn explain(text: &[u8], error: &serde_json::Error, place: &str) -> String {
    if text.starts_with(BYTE_ORDER_MARK) {
        return "a byte order mark stands at its beginning, which JSON does not have; save it as \
                UTF-8 without one"
            .into();
    }
    let whole = error.to_string();
    let what = (whole.rsplit_once(" at line ")).map_or(whole.as_str(), |(what, _)| what);
    match error.is_data() {
        true => format!("{}, at {place}", in_plain_words(what)),
        false => format!("this is not JSON, at {place}: {what}"),
    }
}

/// What a decoder says of a field, as somebody would say it who has not written a decoder.
fn in_plain_words(what: &str) -> String {
    let (first, expected) = match what.rsplit_once(", expected ") {
        Some((first, expected)) => (first, Some(expected)),
        None => (what, None),
    };
    let after = |words: &str| first.strip_prefix(words);
    if let Some(name) = after("missing field ") {
        return format!("the field {name} is missing");
    }
    if let Some(name) = after("duplicate field ") {
        return format!("the field {name} stands there twice");
    }
    let Some(expected) = expected else {
        return what.to_owned();
    };
    if let Some(name) = after("unknown field ") {
        if let Some((_, instead)) = FIELDS_OF_OTHERS.iter().find(|(other, _)| *other == name) {
            return format!("there is no field {name}; {instead}");
        }
        let names = expected.trim_start_matches("one of ");
        return format!("there is no field {name}; the fields are {names}");
    }
    if let Some(name) = after("unknown variant ") {
        return format!("{name} is not {expected}");
    }
    let expected = plain_type(expected);
    if let Some(found) = after("invalid type: ").or(after("invalid value: ")) {
        return format!("{expected} belongs here, not {}", plain_type(found));
    }
    format!("{expected} belongs here")
}

/// The name of a type of JSON for what a decoder calls it.
fn plain_type(name: &str) -> &str {
    match name {
        "u64" => "a whole number from 0",
        "i64" => "a whole number",
        "a sequence" | "sequence" => "an array",
        "map" => "an object",
        "a boolean" => "true or false",
        other => other.strip_prefix("floating point ").unwrap_or(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Written {
        #[serde(rename = "number")]
        _number: Option<u64>,
        #[serde(rename = "signed")]
        _signed: Option<i64>,
        #[serde(rename = "list", default)]
        _list: Vec<Value>,
    }

    #[test]
    fn what_is_wrong_with_a_line_is_told_in_plain_words() {
        for (line, expected) in [
            (&b"[1]"[..], "an array stands here; write one object a line"),
            (b"{", "does not end on this line, at column 1; write one"),
            (b"{\"number\":1,", "does not end on this line"),
            (b"5", "an object belongs here, not integer `5`, at column 1"),
            (b"\xef\xbb\xbf{}", "a byte order mark"),
            (b"{\"op\":1}", "there is no field `op`; write `operation`"),
            (b"{\"format\":1}", "`pelton import` reads it"),
            (
                b"{\"other\":1}",
                "the fields are `number`, `signed`, `list`",
            ),
            (
                b"{\"number\":\"1\"}",
                "a whole number from 0 belongs here, not string \"1\"",
            ),
            (
                b"{\"signed\":1.5}",
                "a whole number belongs here, not `1.5`",
            ),
            (b"{\"list\":{}}", "an array belongs here, not an object"),
        ] {
            let error = read_line::<Written>(line).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        read_line::<Written>(b"{}").expect("no field is needed");
    }

    #[test]
    fn what_is_wrong_with_a_text_has_its_line() {
        for (text, expected) in [
            (
                &b"{\n\"number\": {}}"[..],
                "not an object, at line 2, column",
            ),
            (b"{\n", "the JSON ends too early, at line 2, column 0"),
            (b"{\n\"then\": 1}", "write `when_met`, at line 2"),
            (b"[]", "an object belongs here, not an array, at line 1"),
            (b"{\n;", "this is not JSON, at line 2, column 1"),
        ] {
            let error = read_text::<Written>(text).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        read_text::<Written>(b"{\n}\n").expect("no field is needed");
    }
}
