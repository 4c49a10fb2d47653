//! Requests with placeholders, read again by their descriptors.

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value};

use super::*;
use crate::limits;

const PROTO: &str = r#"
syntax = "proto3";
package t;
import "google/protobuf/wrappers.proto";
import "google/protobuf/timestamp.proto";
message Inner { string name = 1; bytes raw = 2; Inner inner = 3; int32 number = 4; }
enum Color { NONE = 0; RED = 1; }
message Request {
  int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5; sint64 s64 = 6;
  fixed32 f32 = 7; fixed64 f64 = 8; sfixed32 sf32 = 9; sfixed64 sf64 = 10;
  float float = 11; double double = 12; bool flag = 13; string text = 14; bytes raw = 15;
  Inner inner = 16; Color color = 17; repeated int32 numbers = 18; repeated string texts = 19;
  repeated Inner inners = 20; map<string, Inner> by_name = 21; map<int32, int64> by_number = 22;
  oneof choice { string a = 23; int32 b = 24; }
  google.protobuf.Int64Value wrapped = 25; google.protobuf.Timestamp time = 26;
  map<bool, string> by_flag = 27;
}
"#;

/// `test`: tests run beside each other, each needs a folder of its own.
fn message(test: &str) -> MessageDescriptor {
    let name = format!("pelton-request-{test}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    std::fs::write(folder.join("t.proto"), PROTO).expect("it is written");
    let set = protox::compile(["t.proto"], [&folder]).expect("it is well formed");
    std::fs::remove_dir_all(&folder).expect("it was there");
    let pool = DescriptorPool::from_file_descriptor_set(set).expect("it is whole");
    pool.get_message_by_name("t.Request").expect("it is there")
}

/// The requests of the first calls of the only thread.
fn requests(message: &MessageDescriptor, json: &str, count: usize) -> Vec<DynamicMessage> {
    let template = compile(message, json).expect(json);
    let mut draws = RequestDraws::new((0, 1), 7);
    (0..count)
        .map(|_| {
            // What stands before it stays, whatever lengths are put in front of parts.
            let mut out = b"before".to_vec();
            template.encode(&mut draws, &mut out);
            draws.advance();
            let bytes = out.strip_prefix(b"before").expect("it is still there");
            assert!(bytes.len() <= template.most_bytes(), "{json}");
            DynamicMessage::decode(message.clone(), bytes).expect(json)
        })
        .collect()
}

fn field(message: &DynamicMessage, name: &str) -> Value {
    let field = message.get_field_by_name(name);
    field.expect(name).into_owned()
}

fn text(message: &DynamicMessage, name: &str) -> String {
    field(message, name).as_str().expect(name).to_owned()
}

#[test]
fn each_kind_of_number_is_filled_in() {
    let message = message("numbers");
    for name in [
        "i32", "i64", "u32", "u64", "s32", "s64", "f32", "f64", "sf32", "sf64", "float", "double",
        "color",
    ] {
        for json in [
            format!(r#"{{"{name}": {{{{counter}}}}}}"#),
            format!(r#"{{"{name}": "{{{{counter}}}}"}}"#),
        ] {
            let found = requests(&message, &json, 3);
            let numbers: Vec<String> = found
                .iter()
                .map(|request| number(&field(request, name)))
                .collect();
            assert_eq!(numbers, ["0", "1", "2"], "{json}");
        }
    }
    for name in [
        "i32", "i64", "s32", "s64", "sf32", "sf64", "float", "double",
    ] {
        let json = format!(r#"{{"{name}": {{{{random -9 -7}}}}}}"#);
        for request in requests(&message, &json, 50) {
            let number = number(&field(&request, name));
            assert!(["-9", "-8", "-7"].contains(&&*number), "{name}: {number}");
        }
    }
}

fn number(value: &Value) -> String {
    match value {
        Value::I32(number) => number.to_string(),
        Value::I64(number) => number.to_string(),
        Value::U32(number) => number.to_string(),
        Value::U64(number) => number.to_string(),
        Value::F32(number) => number.to_string(),
        Value::F64(number) => number.to_string(),
        Value::EnumNumber(number) => number.to_string(),
        other => panic!("{other:?} is no number"),
    }
}

#[test]
fn what_is_the_same_stands_beside_what_varies() {
    let message = message("beside");
    let json = r#"{"text": "user-{{counter}}-x", "i32": 7, "flag": true, "texts": ["a"],
                   "inner": {"name": "{{uuid}}", "number": 3, "inner": {"raw": "AAE="}}}"#;
    let found = requests(&message, json, 2);
    for (at, request) in found.iter().enumerate() {
        assert_eq!(text(request, "text"), format!("user-{at}-x"));
        assert_eq!(field(request, "i32"), Value::I32(7));
        assert_eq!(field(request, "flag"), Value::Bool(true));
        let inner = field(request, "inner");
        let inner = inner.as_message().expect("a message");
        assert_eq!(text(inner, "name").len(), 36);
        assert_eq!(field(inner, "number"), Value::I32(3));
        let innermost = field(inner, "inner");
        let raw = field(innermost.as_message().expect("a message"), "raw");
        assert_eq!(raw, Value::Bytes(vec![0, 1].into()));
    }
    assert_ne!(field(&found[0], "inner"), field(&found[1], "inner"));
}

/// A length of 128 bytes and more takes several bytes itself, at each of three depths.
#[test]
fn lengths_of_every_size_are_right() {
    let message = message("lengths");
    for bytes in [
        0, 1, 90, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 200, 16_383, 20_000,
    ] {
        let json = format!(
            r#"{{"inner": {{"inner": {{"name": "{{{{random_text {bytes}}}}}"}}, "number": 5}}}}"#
        );
        let found = requests(&message, &json, 1);
        let outer = field(&found[0], "inner");
        let outer = outer.as_message().expect("a message");
        assert_eq!(field(outer, "number"), Value::I32(5));
        let inner = field(outer, "inner");
        let name = text(inner.as_message().expect("a message"), "name");
        assert_eq!(name.len(), bytes);
    }
}

#[test]
fn bytes_are_random_or_text() {
    let message = message("bytes");
    let raw = |json: &str| match field(&requests(&message, json, 1)[0], "raw") {
        Value::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!(raw(r#"{"raw": "{{random_bytes 300}}"}"#).len(), 300);
    assert_eq!(raw(r#"{"raw": "{{utf8}}key-{{counter}}"}"#), &b"key-0"[..]);
    assert_eq!(raw(r#"{"raw": "{{utf8}}plain"}"#), &b"plain"[..]);
    let mixed = raw(r#"{"raw": "{{utf8}}{{counter}}:{{random_bytes 4}}"}"#);
    assert_eq!((&mixed[..2], mixed.len()), (&b"0:"[..], 6));
}

#[test]
fn lists_and_maps_have_their_entries() {
    let message = message("lists");
    let json = r#"{"numbers": [1, {{counter}}, 3], "texts": ["a", "{{counter}}b"],
                   "inners": [{"number": 1}, {"number": {{counter}}, "name": "x"}],
                   "byName": {"k{{counter}}": {"number": 4}, "same": {"name": "{{counter}}"}},
                   "by_number": {"5": {{counter}}, "6": 7},
                   "by_flag": {"true": "{{counter}}", "false": "n"}}"#;
    let request = &requests(&message, json, 2)[1];
    let shown = request.to_string();
    assert_eq!(
        field(request, "numbers"),
        Value::List([1, 1, 3].map(Value::I32).to_vec())
    );
    let texts = ["a", "1b"].map(|text| Value::String(text.into())).to_vec();
    assert_eq!(field(request, "texts"), Value::List(texts));
    for part in [
        "inners:[{number:1},{name:\"x\",number:1}]",
        "key:\"k1\",value{number:4}",
        "key:\"same\",value{name:\"1\"}",
        "key:5,value:1",
        "key:6,value:7",
        "key:true,value:\"1\"",
        "key:false,value:\"n\"",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn wrapped_numbers_and_one_of_several_fields_vary() {
    let message = message("wrapped");
    let json = r#"{"wrapped": {{counter}}, "b": "{{random 4 4}}", "time": "2026-11-28T18:00:00Z"}"#;
    let request = &requests(&message, json, 2)[1];
    let wrapped = field(request, "wrapped");
    let value = field(wrapped.as_message().expect("a message"), "value");
    assert_eq!(value, Value::I64(1));
    assert_eq!(field(request, "b"), Value::I32(4));
    assert!(request.has_field_by_name("time"));
}

#[test]
fn counters_of_small_numbers_begin_again() {
    let message = message("again");
    let template = compile(&message, r#"{"s32": {{counter}}, "u64": {{counter}}}"#);
    let template = template.expect("it is well formed");
    let thread = i32::MAX as usize + 5;
    let mut draws = RequestDraws::new((thread, thread + 1), 1);
    let mut out = Vec::new();
    template.encode(&mut draws, &mut out);
    let request = DynamicMessage::decode(message, &out[..]).expect("it is well formed");
    assert_eq!(field(&request, "s32"), Value::I32(4));
    assert_eq!(field(&request, "u64"), Value::U64(thread as u64));
}

#[test]
fn threads_have_other_numbers() {
    let message = message("threads");
    let template = compile(&message, r#"{"u64": {{counter}}}"#).expect("it is well formed");
    let mut seen = Vec::new();
    for thread in 0..3 {
        let mut draws = RequestDraws::new((thread, 3), 1);
        for _ in 0..2 {
            let mut out = Vec::new();
            template.encode(&mut draws, &mut out);
            draws.advance();
            let request = DynamicMessage::decode(message.clone(), &out[..]).expect("well formed");
            seen.push(number(&field(&request, "u64")));
        }
    }
    assert_eq!(seen, ["0", "3", "1", "4", "2", "5"]);
}

#[test]
fn a_request_without_placeholders_is_encoded_once() {
    let message = message("once");
    let template = compile(&message, r#"{"i32": 1}"#).expect("it is well formed");
    assert_eq!(
        template.bytes().map(|bytes| &bytes[..]),
        Some(&b"\x08\x01"[..])
    );
    let varying = compile(&message, r#"{"i32": {{counter}}}"#).expect("it is well formed");
    assert_eq!(varying.bytes(), None);
}

/// Each of these is refused, with a text that has this part.
fn assert_refused(message: &MessageDescriptor, refused: &[(&str, &str)]) {
    for (json, part) in refused {
        let error = compile(message, json).map(|_| ()).expect_err(json);
        assert!(error.contains(part), "{json}: {error}");
        let is_readable = !error.contains('\u{fdd0}') && !error.contains(" at line ");
        assert!(is_readable, "{error}");
    }
}

const ONE_ALONE: &str = "one placeholder alone fits there";

#[test]
fn a_value_that_does_not_fit_its_field_is_refused_before_any_call() {
    let bytes = limits::MAX_REQUEST_BYTES;
    let large = format!(r#"{{"raw": "{{{{random_bytes {bytes}}}}}"}}"#);
    let below = "its numbers go from -2147483648";
    let refused = [
        (r#"{"i32": {{random 1 5000000000}}}"#, below),
        (r#"{"u32": {{random -1 5}}}"#, "go from 0 to 4294967295"),
        (r#"{"float": {{random 0 16777217}}}"#, "its numbers go from"),
        (r#"{"i32": {{uuid}}}"#, "i32 is int32, which {{uuid}} does"),
        (r#"{"i32": "a{{counter}}"}"#, ONE_ALONE),
        (r#"{"i32": [{{counter}}]}"#, "no object or array fits"),
        (
            r#"{"flag": {{counter}}}"#,
            "flag is bool, which {{counter}}",
        ),
        (r#"{"text": "{{random_bytes 4}}"}"#, "text is text"),
        (r#"{"text": "{{utf8}}x"}"#, "only first in a field of bytes"),
        (r#"{"raw": "x{{counter}}"}"#, "begin it with {{utf8}}"),
        (r#"{"raw": "{{counter}}"}"#, "begin it with {{utf8}}"),
        (r#"{"time": "{{counter}}"}"#, "in which nothing can vary"),
        (&large, "too many"),
    ];
    assert_refused(&message("values"), &refused);
}

#[test]
fn a_shape_that_is_not_that_of_the_message_is_refused() {
    let object = "inner is a t.Inner: it takes a JSON object";
    let refused = [
        (r#"{"nothing": {{counter}}}"#, "nothing"),
        (r#"{"{{counter}}": 1}"#, "the name `{{counter}}` of a field"),
        (
            r#"{"inner": {"name": {"a": {{uuid}}}}}"#,
            "inner.name is string",
        ),
        (r#"{"inner": "{{counter}}"}"#, object),
        (
            r#"{"inner": {"number": "x", "name": "{{uuid}}"}}"#,
            "inner: ",
        ),
        (r#"{"numbers": {{counter}}}"#, "it takes a JSON array"),
        (
            r#"{"byName": ["{{uuid}}"]}"#,
            "is a map: it takes a JSON object",
        ),
        (r#"{"by_number": {"x{{counter}}": 1}}"#, ONE_ALONE),
        (
            r#"{"a": "{{counter}}", "b": 1}"#,
            "another one of its oneof",
        ),
        (
            r#"{"byName": {}, "by_name": {"{{uuid}}": {}}}"#,
            "given twice",
        ),
        (r#"{"text": "{{uuid}}"} {}"#, "trailing characters"),
        (r#"{"i32": {{counter}}{{counter}}}"#, "stands for a value"),
        (r#"["{{counter}}"]"#, "it is no JSON object"),
    ];
    assert_refused(&message("shapes"), &refused);
}
