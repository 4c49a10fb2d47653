//! Header blocks of one connection.

#![no_main]

#[path = "../../crates/wire/tests/hpack_corpus.rs"]
mod corpus;

libfuzzer_sys::fuzz_target!(|data: &[u8]| corpus::fuzz_hpack(data));
