//! What decoding a request and encoding its answer costs, beside the store:
//! `cargo run --profile quick --example message_cost`.

use std::hint::black_box;
use std::time::Instant;

use api::keyvalue::{
    BatchRequest, GetRequest, GetResponse, Operation, OperationBody, OperationKind, PutOperation,
    PutRequest, PutResponse,
};
use service::keyvalue::messages::{Request, decode_get, decode_operation};

const ROUNDS: u32 = 5_000_000;

/// Prints the cheapest of several runs: whatever disturbs a run makes it dearer, never cheaper.
fn measure(what: &str, per: u32, mut step: impl FnMut(&mut Vec<u8>)) {
    let mut best_ns = f64::MAX;
    let mut out = Vec::with_capacity(1 << 16);
    for _ in 0..7 {
        let begin = Instant::now();
        for _ in 0..ROUNDS / per / 7 {
            if out.len() > 1 << 15 {
                out.clear();
            }
            step(&mut out);
        }
        let rounds = f64::from(ROUNDS / per / 7);
        best_ns = best_ns.min(begin.elapsed().as_secs_f64() * 1e9 / rounds / f64::from(per));
    }
    println!("{best_ns:7.1} ns  {what}");
}

fn main() {
    let (key, value) = (*b"key-000000012345", [b'v'; 32]);
    let mut get = Vec::new();
    GetRequest {
        key: &key,
        ..GetRequest::default()
    }
    .encode(&mut get);
    measure("Get: decode the request, encode the answer", 1, |out| {
        let (database, key) = decode_get(black_box(&get)).expect("it is valid");
        black_box((database, key));
        let value = black_box(&value);
        GetResponse {
            found: true,
            value,
            version: 123_456_789,
            expires_at_ms: 0,
        }
        .encode(out);
    });
    measure("Get: decode the request", 1, |_| {
        black_box(decode_get(black_box(&get)).expect("it is valid"));
    });
    let mut request = Vec::new();
    PutRequest {
        key: &key,
        value: &value,
        ..PutRequest::default()
    }
    .encode(&mut request);
    measure("Put: decode the request, encode the answer", 1, |out| {
        black_box(Request::decode(OperationKind::Put, black_box(&request)).expect("it is valid"));
        PutResponse {
            applied: true,
            version: black_box(123_456_789),
            previous: None,
        }
        .encode(out);
    });
    let put = Operation::from(OperationBody::Put(PutOperation {
        key: &key,
        value: &value,
        ..PutOperation::default()
    }));
    let mut request = Vec::new();
    BatchRequest {
        operations: (&[put; 100]).into(),
        ..BatchRequest::default()
    }
    .encode(&mut request);
    measure("one of 100 operations of a Batch: decode", 100, |_| {
        let request = BatchRequest::decode(black_box(&request)).expect("it is valid");
        request.operations.encoded().for_each(|operation| {
            black_box(decode_operation(operation).expect("it is valid"));
        });
    });
}
