//! Values of the header `authorization`, and tokens.

#![no_main]

#[path = "../../crates/service/tests/authorization_corpus.rs"]
mod corpus;

libfuzzer_sys::fuzz_target!(|data: &[u8]| corpus::fuzz_authorization(data));
