//! Memory for what is read for servers that follow this one is taken before it is read.

use api::replication::{ReadContentRequest, ReadContentResponse};
use bytes::Bytes;
use service::Method;
use wire::StreamKey;

use super::charges::{Waiting, reopen, store_blob};
use super::path;
use super::stop::Bench;
use crate::limits;

const BLOB_BYTES: usize = 600_000;
/// Their first pieces together are more than all calls may hold.
const CALLS: usize = 90;

/// Stores a blob, and returns the number of its content.
fn with_content(bench: &mut Bench) -> u64 {
    let content: Bytes = (0..BLOB_BYTES).map(|at| at as u8).collect();
    store_blob(bench, &Waiting::default(), &content);
    let store = bench.pair.handler.shared().store.clone();
    let mut numbers = (0..100).filter(|&number| store.has_content(number).unwrap_or_default());
    numbers.next().expect("it has a file")
}

/// What came on a stream.
fn received(bench: &Bench, call: StreamKey) -> Vec<u8> {
    let of_it = bench.pair.messages.iter().filter(|(of, _)| *of == call);
    let data = of_it.map(|(_, message)| {
        let decoded = ReadContentResponse::decode(message);
        decoded.expect("it is one").data
    });
    data.collect::<Vec<_>>().concat()
}

/// Many ask at once, while nothing waits to be sent yet, and take nothing for a while.
#[test]
fn contents_for_many_are_read_as_far_as_there_is_memory() {
    let mut bench = Bench::new();
    let number = with_content(&mut bench);
    let limit_bytes = bench.pair.handler.account().limit_bytes();
    let request = ReadContentRequest { number };
    let mut message = Vec::new();
    request.encode(&mut message);
    for _ in 0..2 {
        reopen(&mut bench, 1 << 30);
        bench.ended.clear();
        bench.pair.messages.clear();
        let path = path(Method::ReplicationReadContent);
        let calls = [(); CALLS].map(|()| bench.pair.call(&path, &message));
        for _ in 0..50 {
            bench.pair.serve();
            bench.pair.now_ns += 10_000_000;
        }
        let charged_bytes = bench.pair.handler.account().charged_bytes();
        let little_bytes = CALLS * limits::CALL_BYTES + limits::SMALL_HOLDING_BYTES;
        assert!(
            charged_bytes <= limit_bytes + little_bytes,
            "{charged_bytes} of {limit_bytes}"
        );
        assert!(charged_bytes > limit_bytes / 16, "they are being served");

        let mut turns = 0;
        while bench.ended.len() < CALLS {
            bench.turn();
            bench.pair.now_ns += 100_000_000;
            turns += 1;
            assert!(turns < 10_000, "{} have ended", bench.ended.len());
        }
        let first = received(&bench, calls[0]);
        assert!(first.len() > BLOB_BYTES, "it is the whole file");
        assert!(calls.iter().all(|&call| received(&bench, call) == first));
        let account = bench.pair.handler.account();
        assert_eq!((account.charged_bytes(), account.claimed_bytes()), (0, 0));
    }
}
