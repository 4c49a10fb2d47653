//! Messages of all services.

#![no_main]

#[path = "../../crates/api/tests/corpus.rs"]
mod corpus;

libfuzzer_sys::fuzz_target!(|data: &[u8]| corpus::fuzz_messages(data));
