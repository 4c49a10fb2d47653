//! The file of a snapshot.

#![no_main]

#[path = "../../crates/store/tests/snapshot_corpus.rs"]
mod corpus;

libfuzzer_sys::fuzz_target!(|data: &[u8]| corpus::fuzz_snapshot(data));
