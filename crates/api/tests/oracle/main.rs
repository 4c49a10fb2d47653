//! The descriptions of all messages against an independent implementation of protobuf
//! (prost-reflect) that knows nothing but the files below `proto/`, which users copy, and below
//! `crates/api/proto/`, of what others define and no Pelton serves as a service.

mod cases;
mod descriptions;
mod random;
mod rpcs;
mod wire;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MessageDescriptor};

use cases::{CASES, Case};

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [crate_folder.join("../../proto"), crate_folder.join("proto")];
    let mut files = Vec::new();
    for folder in &folders {
        add_files_below(folder, &mut files);
    }
    let mut compiler = protox::Compiler::new(&folders).expect("the folders are there");
    compiler.open_files(files).expect("the files compile");
    compiler.descriptor_pool()
});

fn add_files_below(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            add_files_below(&path, files);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            files.push(path);
        }
    }
}

fn descriptor(case: &Case) -> MessageDescriptor {
    POOL.get_message_by_name(case.name)
        .unwrap_or_else(|| panic!("{} is in no file", case.name))
}

#[test]
fn every_message_of_the_files_has_a_case() {
    let in_files: BTreeSet<String> = POOL
        .all_messages()
        .map(|message| message.full_name().to_owned())
        .collect();
    let in_cases: BTreeSet<String> = CASES.iter().map(|case| case.name.to_owned()).collect();
    assert_eq!(in_files, in_cases);
    assert_eq!(in_cases.len(), CASES.len(), "each once");
}

/// Those that a newer version adds, or an encoder writes twice, are not too many.
#[test]
fn a_message_without_lists_has_at_most_half_of_the_fields_that_are_read() {
    for message in POOL.all_messages() {
        let has_list = message
            .fields()
            .any(|field| field.is_list() || field.is_map());
        let count = message.fields().len() as u32;
        let name = message.full_name();
        assert!(
            has_list || 2 * count <= protobuf::limits::MESSAGE_FIELDS_MAX,
            "{name} has {count} fields"
        );
    }
}
