//! The files of a log.

#![no_main]

#[path = "../../crates/wal/tests/corpus.rs"]
mod corpus;

libfuzzer_sys::fuzz_target!(|data: &[u8]| corpus::fuzz_log(data));
