//! Names, numbers, kinds and labels.

use std::collections::BTreeSet;

use api::CallKind;
use prost_reflect::{Cardinality, FieldDescriptor, Kind, MethodDescriptor};
use protobuf::{FieldDescription, Label};

use crate::cases::{ENUMS, METHODS};
use crate::*;

/// A name without what styles change: case and underscores.
fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

fn kind(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Enum(_) => "enum".to_owned(),
        Kind::Message(message) => message.full_name().replace(".v1alpha.", ".v1."),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn label(field: &FieldDescriptor) -> Label {
    match (field.cardinality(), field.supports_presence()) {
        (Cardinality::Repeated, _) => Label::Repeated,
        (_, true) => Label::Optional,
        (_, false) => Label::Singular,
    }
}

/// The name of the oneof that the field is a member of; `optional` does not count as one.
fn oneof(field: &FieldDescriptor) -> Option<String> {
    let oneof = field.containing_oneof()?;
    (!oneof.is_synthetic()).then(|| plain(oneof.name()))
}

#[test]
fn every_field_is_described_as_in_its_file() {
    for case in CASES {
        let name = case.name;
        assert_eq!(case.described_name, name.replace(".v1alpha.", ".v1."));
        let in_oneofs = case.oneofs.iter().flat_map(|&(oneof, fields)| {
            fields.iter().map(move |field| (field, Some(plain(oneof))))
        });
        let ours = case.fields.iter().map(|field| (field, None));
        let ours: Vec<(&FieldDescription, Option<String>)> = ours.chain(in_oneofs).collect();
        let descriptor = descriptor(case);
        for (field, oneof_name) in &ours {
            let theirs = descriptor
                .get_field(field.number)
                .unwrap_or_else(|| panic!("{name} has no field {}", field.number));
            assert_eq!(plain(field.name), plain(theirs.name()), "{name}");
            assert_eq!(field.kind, kind(&theirs), "{name}.{}", field.name);
            assert_eq!(field.label, label(&theirs), "{name}.{}", field.name);
            assert_eq!(*oneof_name, oneof(&theirs), "{name}.{}", field.name);
            assert!(field.path.ends_with(field.name), "{name}.{}", field.path);
        }
        assert_eq!(
            ours.len(),
            descriptor.fields().len(),
            "{name}: all its fields"
        );
    }
}

#[test]
fn every_enum_has_the_values_of_its_file() {
    for described in ENUMS {
        let descriptor = POOL
            .get_enum_by_name(described.name)
            .unwrap_or_else(|| panic!("{} is in no file", described.name));
        assert_eq!(described.values.len(), descriptor.values().len());
        for &(number, name) in described.values {
            let theirs = descriptor.get_value(number).expect("it is in the file");
            let theirs = plain(theirs.name());
            assert!(theirs.ends_with(&plain(name)), "{}: {name}", described.name);
        }
    }
    assert_eq!(
        POOL.all_enums().len(),
        ENUMS.len(),
        "each has a description"
    );
}

#[test]
fn every_enum_of_pelton_begins_with_unspecified() {
    let ours = POOL
        .all_enums()
        .filter(|descriptor| descriptor.full_name().starts_with("pelton."));
    for descriptor in ours {
        let zero = descriptor.get_value(0).expect("proto3 demands a 0");
        assert!(
            zero.name().ends_with("_UNSPECIFIED"),
            "{}",
            zero.full_name()
        );
    }
}

pub fn kind_of(method: &MethodDescriptor) -> CallKind {
    match (method.is_client_streaming(), method.is_server_streaming()) {
        (false, false) => CallKind::Unary,
        (false, true) => CallKind::ServerStreaming,
        (true, false) => CallKind::ClientStreaming,
        (true, true) => CallKind::Bidirectional,
    }
}

#[test]
fn every_method_is_described_as_in_its_file() {
    let mut in_files = BTreeSet::new();
    for method in POOL
        .services()
        .flat_map(|service| service.methods().collect::<Vec<_>>())
    {
        let service = method.parent_service();
        if service.full_name() == "grpc.testing.UnimplementedService" {
            continue;
        }
        let kind = kind_of(&method);
        in_files.insert((
            format!("{}/{}", service.full_name(), method.name()),
            format!("{kind:?}"),
        ));
    }
    let ours: BTreeSet<(String, String)> = METHODS
        .iter()
        .flat_map(|methods| methods.iter())
        .map(|method| (method.path.to_owned(), format!("{:?}", method.kind)))
        .collect();
    assert_eq!(in_files, ours);
}
