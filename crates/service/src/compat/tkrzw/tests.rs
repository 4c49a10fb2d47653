//! The service over a real store.

mod iterating;
mod large;
mod records;
mod replicating;
mod streaming;
mod waiting;

use api::tkrzw::StatusProto;
use protobuf::{Message, Reader, writer};
use store::DatabaseConfig;
use testkit::Random;

use crate::keyvalue::tests::{Bench, Ended, change};
use crate::method::Method;
use crate::settings::tkrzw::{DatabaseClass, TkrzwDatabase};
use crate::status::{Code, Status};

/// The index of a database whose records have no order.
const UNORDERED: i32 = 1;

/// A server with an ordered database, an unordered one, and a name of one that is not there.
fn bench() -> Bench {
    let mut bench = Bench::new();
    let store = bench.shared.store.clone();
    let config = DatabaseConfig::default();
    change(&store, |batch| batch.create_database(0, "other", &config));
    let database = |name: &str, path: &str, class| TkrzwDatabase {
        name: name.into(),
        path: path.into(),
        class,
    };
    bench.shared.settings.tkrzw.databases = Box::new([
        database("", "", DatabaseClass::Baby),
        database("other", "casket.tkh", DatabaseClass::Hash),
        database("gone", "", DatabaseClass::Tiny),
    ]);
    bench
}

fn encoded<'a>(message: &impl Message<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

/// The code in the field `status` of a response.
fn code_of(response: &[u8]) -> i32 {
    let mut reader = Reader::new(response);
    while let Ok(Some((number, value))) = reader.next_field() {
        if number == 1 {
            let bytes = value.bytes().expect("it is a message");
            return StatusProto::decode(bytes).expect("it is sound").code;
        }
    }
    panic!("there is a status, whatever it says");
}

impl Bench {
    /// The response to a request whose call goes well.
    fn tkrzw<'a>(&mut self, method: Method, request: &impl Message<'a>) -> Vec<u8> {
        self.call(method, &encoded(request)).answer().to_vec()
    }

    /// The code of the response to a request.
    fn code<'a>(&mut self, method: Method, request: &impl Message<'a>) -> i32 {
        code_of(&self.tkrzw(method, request))
    }

    /// How a call with several messages ends.
    fn talk(&mut self, method: Method, messages: Vec<Vec<u8>>) -> Ended {
        self.steps(method, |_, _, room| room.send_in_turn(messages))
    }
}

#[test]
fn an_index_without_a_database_is_an_error_of_the_call() {
    use Method as M;
    let mut bench = bench();
    for index in [-1, 3, i32::MIN, i32::MAX] {
        for &method in Method::ALL {
            let is_one = method.label().starts_with("tkrzw");
            let has_no_index = matches!(
                method,
                M::TkrzwEcho
                    | M::TkrzwBeforeEcho
                    | M::TkrzwReplicate
                    | M::TkrzwBeforeReplicate
                    | M::TkrzwChangeMaster
                    | M::TkrzwBeforeChangeMaster
                    | M::TkrzwStream
                    | M::TkrzwBeforeStream
            );
            let inspects = matches!(method, M::TkrzwInspect | M::TkrzwBeforeInspect);
            if !is_one || has_no_index || (inspects && index < 0) {
                continue;
            }
            let request = encoded(&api::tkrzw::CountRequest { dbm_index: index });
            let ended = bench.call(method, &request);
            let words = ended.refusal(Code::InvalidArgument);
            assert_eq!(words, "dbm_index is out of range", "{method:?}");
        }
    }
}

#[test]
fn a_database_that_was_dropped_is_no_missing_record() {
    let mut bench = bench();
    let request = encoded(&api::tkrzw::CountRequest { dbm_index: 2 });
    let ended = bench.call(Method::TkrzwCount, &request);
    assert!(ended.refusal(Code::FailedPrecondition).contains("\"gone\""));
}

#[test]
fn what_is_no_request_is_an_error_of_the_call() {
    let mut bench = bench();
    for &method in Method::ALL {
        if !method.label().starts_with("tkrzw") {
            continue;
        }
        // A field that is longer than the message.
        let ended = bench.call(method, &[0x0a, 9]);
        let words = ended.refusal(Code::InvalidArgument);
        assert!(
            words.contains(method.service_label()),
            "{method:?}: {words}"
        );
    }
}

#[test]
fn replication_is_refused_as_without_an_update_log() {
    let mut bench = bench();
    for (method, code) in [
        (Method::TkrzwReplicate, Code::FailedPrecondition),
        (Method::TkrzwBeforeReplicate, Code::FailedPrecondition),
        (Method::TkrzwChangeMaster, Code::Unimplemented),
        (Method::TkrzwBeforeChangeMaster, Code::Unimplemented),
    ] {
        let ended = bench.call(method, b"");
        assert!(!ended.refusal(code).is_empty());
    }
    let ended = bench.call(Method::TkrzwReplicate, b"");
    assert_eq!(
        ended.status,
        Status::new(Code::FailedPrecondition, "disabled update logging")
    );
}

/// A message with the low field numbers and small values that all requests here have, nested at
/// times; damaged at times.
fn anything(random: &mut Random, depth: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.below(6) {
        let field = 1 + random.below(8);
        match random.below(5) {
            0 => writer::uint64(&mut out, field, random.below(13)),
            1 => writer::uint64(&mut out, field, 0),
            2 if depth > 0 => {
                let inside = anything(random, depth - 1);
                writer::bytes_always(&mut out, field, &inside);
            }
            _ => {
                let text =
                    random.pick(&["", "k", "a", "contain", "edit", "regex", "begin", "lower"]);
                writer::bytes_always(&mut out, field, text.as_bytes());
            }
        }
    }
    if random.once_in(6) && !out.is_empty() {
        let at = random.below(out.len());
        out[at] = random.number() as u8;
    }
    out
}

#[test]
fn whatever_is_asked_for_a_call_ends_once() {
    let of_service = |method: &&Method| method.label().starts_with("tkrzw");
    let methods: Vec<_> = Method::ALL.iter().filter(of_service).collect();
    let mut bench = bench();
    for seed in 0..6_000 {
        let mut random = Random::new(seed);
        let method = *random.pick(&methods);
        let request = anything(&mut random, 2);
        let ended = bench.call(method, &request);
        let is_known = [
            Code::Ok,
            Code::InvalidArgument,
            Code::FailedPrecondition,
            Code::Unimplemented,
        ];
        assert!(
            is_known.contains(&ended.status.code()),
            "seed {seed}: {:?}",
            ended.status
        );
        assert_eq!(bench.shared.waiting.count(), 0, "seed {seed}");
    }
    assert_eq!(bench.shared.settings.tkrzw.state.claims.len(), 0);
}
