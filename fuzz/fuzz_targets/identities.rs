//! Rights, and entries of the index of identities.

#![no_main]

#[path = "../../crates/service/tests/identities_corpus.rs"]
mod corpus;

libfuzzer_sys::fuzz_target!(|data: &[u8]| corpus::fuzz_identities(data));
