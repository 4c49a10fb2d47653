//! Compares the descriptors with a committed baseline: clients that were made from it must go on
//! working.

use std::collections::BTreeMap;
use std::path::Path;

use prost_reflect::{
    Cardinality, DescriptorPool, FieldDescriptor, FileDescriptor, MethodDescriptor,
};
use protox::file::{File, FileResolver};

/// What `proto/` compiles to now; another test proves it current.
const DESCRIPTOR_SET: &[u8] = include_bytes!("../src/descriptor_set.bin");

/// The descriptors of commit d9449d1, and after it of each release.
const BASELINE: &[u8] = include_bytes!("descriptor_baseline.bin");

/// What a client relies on: a name, and what is said of it.
type Facts = BTreeMap<String, String>;

fn facts(pool: &DescriptorPool) -> Facts {
    let mut facts = Facts::new();
    for file in pool.files() {
        facts.insert(format!("file {}", file.name()), describe_file(&file));
    }
    for message in pool.all_messages() {
        let file = message.parent_file();
        facts.insert(
            format!("message {}", message.full_name()),
            file.name().into(),
        );
        for field in message.fields() {
            facts.insert(
                format!("field {}", field.full_name()),
                describe_field(&field),
            );
        }
    }
    for kind in pool.all_enums() {
        let file = kind.parent_file();
        facts.insert(format!("enum {}", kind.full_name()), file.name().into());
        for value in kind.values() {
            let name = format!("value {}.{}", kind.full_name(), value.name());
            facts.insert(name, value.number().to_string());
        }
    }
    for service in pool.services() {
        let file = service.parent_file();
        facts.insert(
            format!("service {}", service.full_name()),
            file.name().into(),
        );
        for method in service.methods() {
            facts.insert(
                format!("method {}", method.full_name()),
                describe_method(&method),
            );
        }
    }
    facts
}

/// Package and syntax, and the names under which other languages import what is generated.
fn describe_file(file: &FileDescriptor) -> String {
    let options = file
        .file_descriptor_proto()
        .options
        .clone()
        .unwrap_or_default();
    format!(
        "package {}, {:?}, Go {:?}, Java {:?} {:?}",
        file.package_name(),
        file.syntax(),
        options.go_package,
        options.java_package,
        options.java_multiple_files,
    )
}

/// `number 4: Uint64, singular, in the oneof condition`
fn describe_field(field: &FieldDescriptor) -> String {
    let label = match field.cardinality() {
        Cardinality::Repeated => "repeated",
        Cardinality::Required => "required",
        Cardinality::Optional if field.supports_presence() => "singular with presence",
        Cardinality::Optional => "singular",
    };
    let oneof = match field.containing_oneof() {
        Some(oneof) if !oneof.is_synthetic() => format!(", in the oneof {}", oneof.name()),
        _ => String::new(),
    };
    format!(
        "number {}: {:?}, {label}, JSON {}{oneof}",
        field.number(),
        field.kind(),
        field.json_name(),
    )
}

fn describe_method(method: &MethodDescriptor) -> String {
    let stream = |is_streaming| if is_streaming { "stream " } else { "" };
    format!(
        "({}{}) returns ({}{})",
        stream(method.is_client_streaming()),
        method.input().full_name(),
        stream(method.is_server_streaming()),
        method.output().full_name(),
    )
}

/// What a client of the baseline relies on and does not find, in words. What was added is nobody's
/// harm, except under a number that was reserved for something else.
fn violations(baseline: &DescriptorPool, current: &DescriptorPool) -> Vec<String> {
    let now = facts(current);
    let mut found = Vec::new();
    for (name, before) in facts(baseline) {
        match now.get(&name) {
            None => found.push(format!("{name} was removed: {before}")),
            Some(after) if *after != before => {
                found.push(format!("{name} was changed from {before} to {after}"));
            }
            Some(_) => {}
        }
    }
    found.extend(reserved_and_taken(baseline, current));
    found
}

/// Fields with a reserved number that have none of the names that were reserved with it.
fn reserved_and_taken(baseline: &DescriptorPool, current: &DescriptorPool) -> Vec<String> {
    let mut found = Vec::new();
    for before in baseline.all_messages() {
        let Some(now) = current.get_message_by_name(before.full_name()) else {
            continue;
        };
        for field in now.fields() {
            let is_reserved = before
                .reserved_ranges()
                .any(|range| range.contains(&field.number()));
            if is_reserved && !before.reserved_names().any(|name| name == field.name()) {
                let (name, number) = (field.full_name(), field.number());
                found.push(format!(
                    "field {name} takes number {number}, which is reserved"
                ));
            }
        }
    }
    found
}

#[test]
fn nothing_that_a_client_relies_on_was_removed_or_changed() {
    let decode = |bytes| DescriptorPool::decode(bytes).expect("descriptors");
    let current = decode(DESCRIPTOR_SET);
    let found = violations(&decode(BASELINE), &current);
    assert!(found.is_empty(), "{}", found.join("\n"));
    // After a release, so that what it has added is kept from then on.
    if std::env::var_os("RENEW_BASELINE").is_some() {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/descriptor_baseline.bin");
        std::fs::write(target, DESCRIPTOR_SET).expect("it can be written");
    }
}

/// A file with one of everything.
const SOURCE: &str = r#"
syntax = "proto3";
package sample;
option go_package = "sample;samplev1";

service Store {
  rpc Get(Request) returns (Reply);
  rpc Scan(Request) returns (stream Reply);
}
message Request {
  string database = 1;
  bytes key = 2;
  repeated uint32 numbers = 3;
  optional uint64 version = 4;
  oneof condition {
    bool exists = 5;
    bytes value = 6;
  }
  reserved 9;
  reserved "lease";
  message Inner {
    Mode mode = 1;
  }
}
message Reply {
  Request.Inner inner = 1;
}
enum Mode {
  MODE_UNSPECIFIED = 0;
  MODE_FAST = 1;
}
"#;

/// A file that is nowhere but in memory.
struct Sample(String);

impl FileResolver for Sample {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        File::from_source(name, &self.0)
    }
}

fn compile(source: &str) -> DescriptorPool {
    let mut compiler = protox::Compiler::with_file_resolver(Sample(source.into()));
    let compiled = compiler.open_file("sample.proto");
    compiled.unwrap_or_else(|error| panic!("{error}: {source}"));
    compiler.descriptor_pool()
}

/// The violations after one text in the sample was replaced by another.
fn violations_with(from: &str, to: &str) -> Vec<String> {
    assert_eq!(SOURCE.matches(from).count(), 1, "{from}");
    violations(&compile(SOURCE), &compile(&SOURCE.replace(from, to)))
}

#[test]
fn every_kind_of_violation_is_noticed() {
    for (from, to, noticed) in [
        (
            "  bytes key = 2;\n",
            "",
            "field sample.Request.key was removed",
        ),
        (
            "bytes key = 2",
            "bytes name = 2",
            "field sample.Request.key was removed",
        ),
        (
            "bytes key = 2",
            "bytes key = 7",
            "field sample.Request.key was changed",
        ),
        (
            "bytes key = 2",
            "string key = 2",
            "field sample.Request.key was changed",
        ),
        (
            "bytes key = 2",
            "repeated bytes key = 2",
            "field sample.Request.key was changed",
        ),
        (
            "bytes key = 2",
            "optional bytes key = 2",
            "field sample.Request.key was changed",
        ),
        (
            "repeated uint32",
            "uint32",
            "field sample.Request.numbers was changed",
        ),
        (
            "optional uint64",
            "uint64",
            "field sample.Request.version was changed",
        ),
        (
            "optional uint64",
            "optional sint64",
            "field sample.Request.version was changed",
        ),
        (
            "  oneof condition {\n    bool exists = 5;\n",
            "  bool exists = 5;\n  oneof condition {\n",
            "sample.Request.exists was changed",
        ),
        (
            "Mode mode = 1",
            "int32 mode = 1",
            "field sample.Request.Inner.mode was changed",
        ),
        (
            "Request.Inner inner",
            "Request inner",
            "field sample.Reply.inner was changed",
        ),
        (
            "MODE_FAST = 1",
            "MODE_FAST = 2",
            "value sample.Mode.MODE_FAST was changed",
        ),
        (
            "  MODE_FAST = 1;\n",
            "",
            "value sample.Mode.MODE_FAST was removed",
        ),
        (
            "MODE_FAST = 1",
            "MODE_QUICK = 1",
            "value sample.Mode.MODE_FAST was removed",
        ),
        (
            "(stream Reply)",
            "(Reply)",
            "method sample.Store.Scan was changed",
        ),
        (
            "Scan(Request)",
            "Scan(stream Request)",
            "method sample.Store.Scan was changed",
        ),
        (
            "Get(Request)",
            "Get(Reply)",
            "method sample.Store.Get was changed",
        ),
        (
            "Get(Request) returns (Reply)",
            "Get(Request) returns (Request)",
            "Store.Get was changed",
        ),
        (
            "  rpc Get(Request) returns (Reply);\n",
            "",
            "method sample.Store.Get was removed",
        ),
        (
            "service Store",
            "service Stores",
            "service sample.Store was removed",
        ),
        (
            "package sample",
            "package samples",
            "message sample.Request was removed",
        ),
        (
            "sample;samplev1",
            "sample;samplev2",
            "file sample.proto was changed",
        ),
        (
            "  reserved 9;\n",
            "  bytes owner = 9;\n",
            "takes number 9, which is reserved",
        ),
    ] {
        let found = violations_with(from, to);
        assert!(
            found.iter().any(|violation| violation.contains(noticed)),
            "{from} -> {to}: {found:?}"
        );
    }
    let removed = SOURCE.split("enum Mode").next().expect("it begins so");
    let without_enum = removed.replace("Mode mode = 1;", "");
    let found = violations(&compile(SOURCE), &compile(&without_enum));
    assert!(
        found
            .iter()
            .any(|text| text == "enum sample.Mode was removed: sample.proto")
    );
    let without_file = violations(&compile(SOURCE), &DescriptorPool::new());
    assert!(
        without_file
            .iter()
            .any(|text| text.starts_with("file sample.proto was removed"))
    );
}

#[test]
fn additions_are_no_violations() {
    for (from, to) in [
        ("bytes key = 2;", "bytes key = 2; bytes owner = 20;"),
        ("MODE_FAST = 1;", "MODE_FAST = 1; MODE_SLOW = 2;"),
        ("message Reply {", "message Other {} message Reply {"),
        (
            "service Store {",
            "service Other {} service Store { rpc Put(Request) returns (Reply);",
        ),
        ("bytes value = 6;", "bytes value = 6; uint64 other = 21;"),
        // What was reserved for this very field.
        (
            "  reserved 9;\n  reserved \"lease\";\n",
            "  bytes lease = 9;\n",
        ),
    ] {
        assert_eq!(
            violations_with(from, to),
            Vec::<String>::new(),
            "{from} -> {to}"
        );
    }
}
