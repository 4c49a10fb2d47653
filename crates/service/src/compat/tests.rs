//! The drop-in services, over a real store.

use store::{DatabaseConfig, DatabaseLimits};

use crate::fake::{Fake, Sent, shared};
use crate::keyvalue::tests::{Bench, change};
use crate::method::Method;
use crate::settings::simulate::{Delays, Simulator};
use crate::status::{Code, Status};
use protobuf::writer;

use Method::{KvstoreCreate, KvstoreDelete, KvstoreRetrieve, KvstoreUpdate};

fn request(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    writer::bytes(&mut out, 1, key);
    writer::bytes(&mut out, 2, value);
    out
}

impl Bench {
    /// How a call of the key-value example ends.
    fn kvstore(&mut self, method: Method, key: &[u8], value: &[u8]) -> Result<Vec<u8>, Code> {
        let ended = self.call(method, &request(key, value));
        if ended.status == Status::OK {
            return Ok(ended.answer().to_vec());
        }
        assert_eq!(ended.status.message(), "", "the original says nothing");
        assert!(ended.messages.is_empty());
        Err(ended.status.code())
    }
}

fn answer(value: &[u8]) -> Result<Vec<u8>, Code> {
    let mut out = Vec::new();
    writer::bytes(&mut out, 1, value);
    Ok(out)
}

#[test]
fn keys_are_created_changed_and_deleted() {
    let mut bench = Bench::new();
    let empty = || Ok(Vec::new());
    assert_eq!(
        bench.kvstore(KvstoreRetrieve, b"k", b""),
        Err(Code::NotFound)
    );
    assert_eq!(
        bench.kvstore(KvstoreUpdate, b"k", b"0"),
        Err(Code::NotFound)
    );
    assert_eq!(
        bench.kvstore(KvstoreRetrieve, b"k", b""),
        Err(Code::NotFound),
        "a refused Update stores nothing"
    );
    assert_eq!(bench.kvstore(KvstoreDelete, b"k", b""), empty());
    assert_eq!(bench.kvstore(KvstoreCreate, b"k", b"one"), empty());
    assert_eq!(
        bench.kvstore(KvstoreCreate, b"k", b"two"),
        Err(Code::AlreadyExists)
    );
    assert_eq!(bench.kvstore(KvstoreRetrieve, b"k", b""), answer(b"one"));
    assert_eq!(bench.kvstore(KvstoreUpdate, b"k", b"three"), empty());
    assert_eq!(bench.kvstore(KvstoreRetrieve, b"k", b""), answer(b"three"));
    assert_eq!(bench.kvstore(KvstoreDelete, b"k", b""), empty());
    assert_eq!(
        bench.kvstore(KvstoreRetrieve, b"k", b""),
        Err(Code::NotFound)
    );
}

#[test]
fn values_of_any_size_come_back_whole() {
    let mut bench = Bench::new();
    for bytes in [0, 1, 65_536, 4_000_000] {
        let value = vec![b'v'; bytes];
        let key = bytes.to_string();
        let created = bench.kvstore(KvstoreCreate, key.as_bytes(), &value);
        assert_eq!(created, Ok(Vec::new()));
        let found = bench.kvstore(KvstoreRetrieve, key.as_bytes(), b"");
        assert!(found == answer(&value), "{bytes} bytes");
    }
}

/// A large value is not copied, and comes when there is memory for it.
#[test]
fn a_large_value_waits_for_memory() {
    let mut bench = Bench::new();
    let bytes = store::limits::SHARED_VALUE_BYTES;
    let created = bench.kvstore(KvstoreCreate, b"k", &vec![b'v'; bytes]);
    assert_eq!(created, Ok(Vec::new()));
    for (message_bytes, reads_again) in [(bytes, 0), (bytes - 1, 1)] {
        bench.limit_messages(message_bytes);
        let ended = bench.call(KvstoreRetrieve, &request(b"k", b""));
        assert_eq!(ended.shares(), (reads_again, bytes));
    }
}

#[test]
fn what_only_this_server_refuses_has_words() {
    let mut bench = Bench::new();
    let long = vec![b'k'; store::limits::KEY_BYTES + 1];
    let large = vec![b'v'; store::limits::VALUE_BYTES + 1];
    for (method, request, code) in [
        (KvstoreCreate, request(&long, b"v"), Code::ResourceExhausted),
        (
            KvstoreRetrieve,
            request(&long, b""),
            Code::ResourceExhausted,
        ),
        (
            KvstoreUpdate,
            request(b"k", &large),
            Code::ResourceExhausted,
        ),
        (KvstoreDelete, vec![0x0a, 5], Code::InvalidArgument),
        (KvstoreRetrieve, vec![0x08, 1], Code::InvalidArgument),
        (KvstoreCreate, vec![0x10, 1], Code::InvalidArgument),
    ] {
        for delays in [None, Some((1, false))] {
            bench.shared.settings.kvstore.simulator =
                delays.map(|(ms, serial)| simulator(ms, serial));
            let ended = bench.call(method, &request);
            assert!(ended.refusal(code).len() > 10, "{method:?}");
        }
    }
}

#[test]
fn another_database_may_hold_the_keys() {
    let mut bench = Bench::new();
    bench.shared.settings.kvstore.database = "other".into();
    let ended = bench.call(KvstoreCreate, &request(b"k", b"v"));
    let words = ended.refusal(Code::FailedPrecondition);
    assert!(words.contains("\"other\"") && words.contains("--kvstore-database"));
    let config = DatabaseConfig {
        limits: DatabaseLimits::for_values(10),
        ..DatabaseConfig::default()
    };
    let store = bench.shared.store.clone();
    change(&store, |batch| batch.create_database(0, "other", &config));
    assert_eq!(bench.kvstore(KvstoreCreate, b"k", b"v"), Ok(Vec::new()));
    bench.shared.settings.kvstore.database = "".into();
    assert_eq!(
        bench.kvstore(KvstoreRetrieve, b"k", b""),
        Err(Code::NotFound)
    );
}

fn simulator(ms: u64, serial: bool) -> Simulator {
    let delays = Delays {
        read_ms: ms,
        write_ms: 5 * ms,
        serial,
    };
    Simulator::new(delays, 1 << 30)
}

#[test]
fn simulated_work_delays_an_operation() {
    let mut bench = Bench::new();
    bench.shared.settings.kvstore.simulator = Some(simulator(10, false));
    for (method, ms, code) in [
        (KvstoreCreate, 50, Code::Ok),
        (KvstoreRetrieve, 10, Code::Ok),
        (KvstoreUpdate, 50, Code::Ok),
        (KvstoreCreate, 50, Code::AlreadyExists),
        (KvstoreDelete, 50, Code::Ok),
        (KvstoreRetrieve, 10, Code::NotFound),
    ] {
        let ended = bench.call(method, &request(b"k", b"v"));
        assert_eq!(ended.status.code(), code, "{method:?}");
        assert_eq!(ended.waited_ns, ms * 1_000_000, "{method:?}");
        assert_eq!(bench.shared.waiting.count(), 0);
    }
}

/// One after the other, and the second one sees what the first one did.
#[test]
fn serial_work_is_done_in_the_order_of_arrival() {
    let mut bench = Bench::new();
    bench.shared.settings.kvstore.simulator = Some(simulator(10, true));
    let first = bench.call(KvstoreCreate, &request(b"k", b"v"));
    let second = bench.call(KvstoreRetrieve, &request(b"k", b""));
    assert_eq!(first.waited_ns, 50_000_000);
    assert_eq!(second.waited_ns, 60_000_000);
    assert_eq!(second.status, Status::OK);
}

#[test]
fn a_call_takes_one_request() {
    for delays in [None, Some(simulator(10, false))] {
        let mut shared = shared();
        shared.settings.kvstore.simulator = delays;
        let is_simulated = shared.settings.kvstore.simulator.is_some();
        for method in [KvstoreCreate, KvstoreRetrieve, Method::YdbPingUnary] {
            let mut none = Fake::new(method, &shared);
            none.half_closed(&shared);
            let status = none.take_status().expect("ended");
            assert_eq!(status.code(), Code::Unimplemented);
        }
        if is_simulated {
            let mut two = Fake::new(KvstoreCreate, &shared);
            two.message(&request(b"k", b"v"), false, &shared);
            two.woken(&shared);
            assert_eq!(two.take_sent(), [], "too early");
            assert_eq!(shared.waiting.count(), 1);
            let kept_bytes = request(b"k", b"v").len();
            assert_eq!(two.actions.kept_bytes, kept_bytes, "it is charged");
            two.message(&request(b"k", b"v"), true, &shared);
            let status = two.take_status().expect("ended");
            assert_eq!(status.code(), Code::Unimplemented);
        }
        assert_eq!(shared.waiting.count(), 0);
    }
}

#[test]
fn a_plain_ping_is_answered_with_nothing() {
    let shared = shared();
    let mut fake = Fake::new(Method::YdbPingUnary, &shared);
    fake.message(b"", true, &shared);
    assert_eq!(fake.take_sent(), [Sent::Response(Vec::new())]);
}

#[test]
fn a_stream_of_pings_is_answered_with_times_in_order() {
    let shared = shared();
    let mut fake = Fake::new(Method::YdbPingStream, &shared);
    let time = |us: u64| {
        let mut out = Vec::new();
        writer::uint64(&mut out, 1, us);
        Sent::Message(out)
    };
    fake.message(b"", false, &shared);
    fake.actions.now_ms += 7;
    // An unknown field is passed over.
    fake.message(&[0x10, 1], false, &shared);
    assert_eq!(
        fake.take_sent(),
        [time(1_700_000_000_000_001), time(1_700_000_000_007_001)]
    );
    fake.actions.can_send = false;
    fake.message(b"", false, &shared);
    assert!(fake.actions.is_held, "who reads nothing is slowed down");
    fake.actions.can_send = true;
    fake.writable(&shared);
    assert!(!fake.actions.is_held);
    fake.message(b"", true, &shared);
    let sent = fake.take_sent();
    assert_eq!(sent.len(), 3);
    assert_eq!(sent[2], Sent::Status(Status::OK));
}

#[test]
fn what_is_no_ping_is_refused() {
    let shared = shared();
    for method in [Method::YdbPingUnary, Method::YdbPingStream] {
        let mut fake = Fake::new(method, &shared);
        fake.message(&[0x0a, 9], false, &shared);
        let status = fake.take_status().expect("ended");
        assert_eq!(status.code(), Code::InvalidArgument);
    }
    let mut fake = Fake::new(Method::YdbPingStream, &shared);
    fake.half_closed(&shared);
    assert_eq!(fake.take_sent(), [Sent::Status(Status::OK)]);
}

#[test]
fn an_echo_of_brpc_comes_back_with_its_attachment_and_must_have_its_field() {
    let shared = shared();
    for message in [&b"\x0a\x05hello"[..], b"\x0a\0"] {
        let mut fake = Fake::new(Method::BrpcEcho, &shared);
        assert!(fake.actions.echoes_attachment);
        fake.message(message, true, &shared);
        assert_eq!(fake.take_sent(), [Sent::Response(message.to_vec())]);
    }
    for message in [&b""[..], b"\x0a\x05hell", b"\x0a\x01\xff"] {
        let mut fake = Fake::new(Method::BrpcEcho, &shared);
        fake.message(message, true, &shared);
        let status = fake.take_status().expect("ended");
        assert_eq!(status.code(), Code::InvalidArgument);
        let end = format!("request_size={}", message.len());
        assert!(
            status
                .message()
                .starts_with("Fail to parse request=example.EchoRequest")
        );
        assert!(status.message().ends_with(&end), "{}", status.message());
    }
}

#[test]
fn the_benchmark_of_srpc_is_answered_with_nothing_at_once_or_later() {
    let shared = shared();
    for _ in 0..2 {
        let mut fake = Fake::new(Method::SrpcEchoPb, &shared);
        fake.message(b"\x0a\x02rr", true, &shared);
        assert_eq!(fake.take_sent(), [Sent::Response(Vec::new())]);
        let mut fake = Fake::new(Method::SrpcSlowPb, &shared);
        fake.message(b"\x0a\x02rr", true, &shared);
        assert_eq!((fake.take_sent().len(), shared.waiting.count()), (0, 1));
        fake.actions.now_ns += 14_999_999;
        fake.woken(&shared);
        assert_eq!(fake.take_sent().len(), 0);
        fake.actions.now_ns += 1;
        fake.woken(&shared);
        assert_eq!(fake.take_sent(), [Sent::Response(Vec::new())]);
        assert_eq!(shared.waiting.count(), 0);
    }
    let mut fake = Fake::new(Method::SrpcEchoPb, &shared);
    fake.message(b"\x0a\x02r", true, &shared);
    let status = fake.take_status().expect("ended");
    assert_eq!(status.code(), Code::InvalidArgument);
}
