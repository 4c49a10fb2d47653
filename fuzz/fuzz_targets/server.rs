//! Bytes of a client, for a server.

#![no_main]
#![allow(dead_code, reason = "the tests use the rest")]

#[path = "../../crates/wire/tests/http2/corpus.rs"]
mod corpus;
#[path = "../../crates/wire/tests/http2/fuzz.rs"]
mod fuzz;
#[path = "../../crates/wire/tests/http2/support.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|data: &[u8]| corpus::fuzz_server(data));
