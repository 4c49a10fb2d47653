//! In the steady state a request allocates nothing in the server: not in the protocol, not in the
//! service, not in the store.

mod common;

use allocation_counter::measure;
use api::keyvalue::{GetResponse, PutResponse};
use common::{Caller, Host, MILLISECOND_NS, Options};
use service::identities::{Identity, IssuedToken, NEVER_MS, TOKEN_BYTES, Token};
use service::rights::Rights;
use store::{Condition, Expiry, Mode, Operation};
use testkit::keyvalue::{OperationRequest, encode_batch};
use wire::RequestHead;
use wire::grpc::{Code, Metadata};

const GET: &str = "/pelton.v1.KeyValue/Get";
const PUT: &str = "/pelton.v1.KeyValue/Put";

/// Calls that are in flight at once: all in one read.
const IN_FLIGHT: usize = 100;
const WARM_UP_ROUNDS: usize = 100;
const COUNTED_ROUNDS: usize = 150;

fn encoded(operation: Operation<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    OperationRequest {
        database: "",
        operation,
    }
    .encode(&mut out);
    out
}

fn get(key: &[u8]) -> Vec<u8> {
    encoded(Operation::Get { key })
}

fn put(key: &[u8], value: &[u8]) -> Vec<u8> {
    encoded(Operation::Put {
        key,
        value,
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous: false,
    })
}

fn key(number: usize) -> [u8; 16] {
    *format!("key {number:012}")
        .as_bytes()
        .first_chunk()
        .expect("16 bytes")
}

/// A server with a thousand keys, and a connection to it.
fn filled() -> (Host, Caller) {
    let mut host = Host::new(&Options::default());
    let mut caller = Caller::new(&mut host);
    for number in 0..1_000 {
        caller.call(PUT, &put(&key(number), &[7; 32]));
        if number % 100 == 99 {
            caller.exchange(&mut host);
        }
    }
    assert!(caller.heard.values().all(|heard| heard.code() == Code::Ok));
    caller.heard.clear();
    (host, caller)
}

/// How often the handler allocates in the counted rounds, each of which has a read with `IN_FLIGHT`
/// calls.
fn allocations(
    host: &mut Host,
    caller: &mut Caller,
    mut begin: impl FnMut(&mut Caller, usize),
    check: impl Fn(&[u8]),
) -> u64 {
    let mut allocations = 0;
    for round in 0..WARM_UP_ROUNDS + COUNTED_ROUNDS {
        for number in 0..IN_FLIGHT {
            begin(caller, round * IN_FLIGHT + number);
        }
        let sent = std::mem::take(&mut caller.out);
        host.advance_ms(1);
        host.push(caller.id, &sent);
        let counted = measure(|| host.serve(caller.id));
        if round >= WARM_UP_ROUNDS {
            allocations += counted.count_total;
        }
        let received = host.take_output(caller.id);
        caller.receive(&received, host.now_ns);
        assert_eq!(caller.heard.len(), IN_FLIGHT);
        for heard in caller.heard.values() {
            assert_eq!(heard.code(), Code::Ok);
            check(&heard.messages[0]);
        }
        caller.heard.clear();
    }
    allocations
}

fn is_found(message: &[u8]) {
    let response = GetResponse::decode(message).expect("a GetResponse");
    assert!(response.found && response.value == [7; 32]);
}

#[test]
fn a_get_that_finds_allocates_nothing() {
    let (mut host, mut caller) = filled();
    let begin = |caller: &mut Caller, number| {
        caller.call(GET, &get(&key(number * 7 % 1_000)));
    };
    assert_eq!(allocations(&mut host, &mut caller, begin, is_found), 0);
}

#[test]
fn a_get_that_misses_allocates_nothing() {
    let (mut host, mut caller) = filled();
    let begin = |caller: &mut Caller, number| {
        caller.call(GET, &get(&key(1_000 + number)));
    };
    let is_missed =
        |message: &[u8]| assert_eq!(GetResponse::decode(message), Ok(GetResponse::default()));
    assert_eq!(allocations(&mut host, &mut caller, begin, is_missed), 0);
}

/// Has a token made that may do everything, and returns the value of its header.
fn authorization(host: &Host) -> String {
    let (identities, token) = (&host.shared.identities, Token::new([7; TOKEN_BYTES]));
    let issued = IssuedToken {
        hash: identities.key().hash(&token),
        expires_ms: NEVER_MS,
    };
    let made = Identity::new("all", Rights::everything(), NEVER_MS, vec![issued]);
    let replaced = identities.replace(vec![made.expect("it is sound")], 0);
    replaced.expect("there is one");
    format!("Bearer {}", *token.text())
}

/// Every head differs from the others, so that none is remembered.
#[test]
fn deadlines_and_metadata_that_differ_cost_no_allocation() {
    let (mut host, mut caller) = filled();
    let authorization = authorization(&host);
    let begin = |caller: &mut Caller, number: usize| {
        let mut metadata = Metadata::new();
        let trace = format!("00-{number:032x}-{number:016x}-01");
        metadata.push_ascii("traceparent", &trace).expect("valid");
        metadata
            .push_ascii("authorization", &authorization)
            .expect("valid");
        let head = RequestHead {
            timeout_ns: Some((1_000 + number as u64) * MILLISECOND_NS + number as u64 * 1_000),
            metadata: Some(&metadata),
            ..RequestHead::call("test", GET)
        };
        caller.call_head(&head, &get(&key(number * 7 % 1_000)));
    };
    assert_eq!(allocations(&mut host, &mut caller, begin, is_found), 0);
}

#[test]
fn a_put_that_keeps_the_length_allocates_nothing() {
    let (mut host, mut caller) = filled();
    let begin = |caller: &mut Caller, number: usize| {
        caller.call(PUT, &put(&key(number * 7 % 1_000), &[number as u8; 32]));
    };
    let is_applied = |message: &[u8]| {
        assert!(PutResponse::decode(message).expect("a PutResponse").applied);
    };
    assert_eq!(allocations(&mut host, &mut caller, begin, is_applied), 0);
}

/// It is gathered in a buffer that grows to twice its size at a time, which then is the value's: a
/// copy would come to three times its bytes.
#[test]
fn a_large_put_keeps_its_value_where_it_was_gathered() {
    let (mut host, mut caller) = filled();
    let value = vec![9; 100_000];
    for round in 0..4 {
        let key = key(round % 2);
        caller.call(PUT, &put(&key, &value));
        let mut allocated_bytes = 0;
        while caller.heard.values().all(|heard| heard.status.is_none()) {
            let sent = std::mem::take(&mut caller.out);
            host.push(caller.id, &sent);
            allocated_bytes += measure(|| host.serve(caller.id)).bytes_total;
            let received = host.take_output(caller.id);
            caller.receive(&received, host.now_ns);
        }
        for heard in caller.heard.values() {
            assert_eq!(heard.code(), Code::Ok, "{heard:?}");
        }
        caller.heard.clear();
        assert!(allocated_bytes < 250_000, "{round}: {allocated_bytes}");

        caller.call(GET, &get(&key));
        caller.exchange(&mut host);
        let heard = caller.heard.values().next().expect("one call");
        let response = GetResponse::decode(&heard.messages[0]).expect("a GetResponse");
        assert!(response.found && response.value == value);
        caller.heard.clear();
    }
}

#[test]
fn what_is_counted_are_the_servers_allocations() {
    let (mut host, mut caller) = filled();
    let mut batch = Vec::new();
    let key = key(1);
    let gets = [Operation::Get { key: &key }];
    encode_batch(&mut batch, "", Mode::Atomic, 0, &gets);
    let begin = |caller: &mut Caller, _| {
        caller.call("/pelton.v1.KeyValue/Batch", &batch);
    };
    assert!(
        allocations(&mut host, &mut caller, begin, |_| {}) > 0,
        "a batch keeps its request"
    );
}
