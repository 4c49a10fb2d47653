//! Bytes of a server of baidu_std or SRPC, for a client.

#![no_main]

#[path = "../../crates/wire/tests/framed/client_corpus.rs"]
mod client_corpus;

libfuzzer_sys::fuzz_target!(|data: &[u8]| client_corpus::fuzz_framed_client(data));
