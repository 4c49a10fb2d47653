//! Bytes of a client, for a server of baidu_std or SRPC.

#![no_main]

#[path = "../../crates/wire/tests/framed/corpus.rs"]
mod corpus;

libfuzzer_sys::fuzz_target!(|data: &[u8]| corpus::fuzz_framed(data));
