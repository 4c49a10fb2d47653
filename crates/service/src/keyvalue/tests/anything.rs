//! Whatever is sent, a call ends once, with a status that the table of `kv.proto` knows.

use store::{Condition, Expiry, Operation};
use testkit::{OnFailure, Random};

use super::*;
use api::keyvalue::{Direction, Keys, ScanRequest};
use testkit::keyvalue::{OperationRequest, encode_batch, encode_transact};

/// Calls made with one seed.
const CALLS: u64 = 20_000;

/// A request that makes sense for some method, though perhaps not for the one that it is sent to.
fn sensible(random: &mut Random) -> Vec<u8> {
    let key = &b"abc"[..random.below(4) as usize];
    let condition =
        [Condition::None, Condition::Present, Condition::VersionIs(3)][random.below(3) as usize];
    let put = Operation::Put {
        key,
        value: &[b'v'; 90],
        condition,
        expiry: Expiry::None,
        want_previous: true,
    };
    let append = Operation::Append {
        key,
        value: b"more bytes",
        condition,
    };
    let operations = [Operation::Get { key }, put, append];
    let operation = operations[random.below(3) as usize];
    let database = ["", "small"][random.below(2) as usize];
    let mut out = Vec::new();
    match random.below(5) {
        3 => encode_transact(
            &mut out,
            database,
            random.below(400),
            &[(key, Condition::Present), (b"b", Condition::VersionIs(3))],
            &operations,
            &[operation],
        ),
        0 => encode_batch(
            &mut out,
            database,
            Mode::Independent,
            random.below(400),
            &operations,
        ),
        1 => encode_batch(&mut out, database, Mode::Atomic, 0, &[operation; 3]),
        2 => {
            ScanRequest {
                database,
                direction: Direction::Backward.number(),
                limit: random.below(3),
                keys: Some(Keys::Prefix(key)),
                ..ScanRequest::default()
            }
            .encode(&mut out);
        }
        _ => OperationRequest {
            database,
            operation,
        }
        .encode(&mut out),
    }
    out
}

#[test]
fn every_call_ends_once_and_as_the_table_says() {
    let seed = 4;
    let _on_failure = OnFailure::of_seed(seed);
    let mut random = Random::new(seed);
    let mut bench = Bench::new();
    bench.room = 2;
    let mut went_well = 0;
    for _ in 0..CALLS {
        // The unary methods and Scan; Pipe has tests of its own.
        let method = Method::ALL[random.below(9) as usize];
        let mut request = sensible(&mut random);
        for _ in 0..random.below(3) {
            let at = random.below(request.len() as u64 + 1) as usize;
            match random.below(3) {
                0 => request.truncate(at),
                1 => request.insert(at, random.below(256) as u8),
                _ => request.extend_from_within(at..),
            }
        }
        let ended = bench.call(method, &request);
        let words = ended.status.message();
        match ended.status.code() {
            Code::Ok => went_well += 1,
            Code::InvalidArgument
            | Code::NotFound
            | Code::ResourceExhausted
            | Code::Unimplemented => {
                assert!(words.len() > 10 && words.len() < 500, "{words}");
            }
            code => panic!("{method:?} ended with {code:?}: {words}"),
        }
    }
    assert!(went_well > CALLS / 10, "{went_well} calls went well");
}
