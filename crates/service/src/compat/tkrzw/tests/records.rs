//! Methods with one request and one response.

use api::tkrzw::*;
use api::tkrzw_before;

use super::*;

use Method as M;

fn pair<'a>(first: &'a [u8], second: &'a [u8]) -> BytesPair<'a> {
    BytesPair { first, second }
}

fn state<'a>(key: &'a [u8], value: Option<&'a [u8]>) -> RecordState<'a> {
    RecordState {
        existence: value.is_some(),
        key,
        value: value.unwrap_or_default(),
        any_value: false,
    }
}

impl Bench {
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) {
        let request = SetRequest {
            key,
            value,
            overwrite: true,
            ..SetRequest::default()
        };
        assert_eq!(self.code(M::TkrzwSet, &request), 0);
    }

    pub(super) fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let request = GetRequest {
            key,
            ..GetRequest::default()
        };
        let response = self.tkrzw(M::TkrzwGet, &request);
        let response = GetResponse::decode(&response).expect("it is sound");
        match response.status.expect("there is one").code {
            0 => Some(response.value.to_vec()),
            code => {
                assert_eq!((code, response.value), (7, &b""[..]));
                None
            }
        }
    }

    fn counted(&mut self) -> i64 {
        let response = self.tkrzw(M::TkrzwCount, &CountRequest::default());
        CountResponse::decode(&response).expect("it is sound").count
    }

    fn exchange(&mut self, request: CompareExchangeRequest<'_>) -> (i32, bool, Vec<u8>) {
        let response = self.tkrzw(M::TkrzwCompareExchange, &request);
        let response = CompareExchangeResponse::decode(&response).expect("it is sound");
        let code = response.status.expect("there is one").code;
        (code, response.found, response.actual.to_vec())
    }

    fn increment(&mut self, key: &[u8], increment: i64, initial: i64) -> i64 {
        let request = IncrementRequest {
            key,
            increment,
            initial,
            ..IncrementRequest::default()
        };
        let response = self.tkrzw(M::TkrzwIncrement, &request);
        assert_eq!(code_of(&response), 0);
        IncrementResponse::decode(&response)
            .expect("it is sound")
            .current
    }
}

#[test]
fn records_are_set_read_and_removed() {
    let mut bench = bench();
    assert_eq!(bench.value(b"k"), None);
    for value in [&b"one"[..], b"", b"two"] {
        bench.set(b"k", value);
        assert_eq!(bench.value(b"k").as_deref(), Some(value));
    }
    let again = SetRequest {
        key: b"k",
        value: b"three",
        ..SetRequest::default()
    };
    assert_eq!(bench.code(M::TkrzwSet, &again), 10);
    assert_eq!(bench.value(b"k"), Some(b"two".to_vec()));
    let omitted = GetRequest {
        key: b"k",
        omit_value: true,
        ..GetRequest::default()
    };
    let response = bench.tkrzw(M::TkrzwGet, &omitted);
    assert_eq!(
        GetResponse::decode(&response).expect("it is sound").value,
        b""
    );
    let remove = RemoveRequest {
        key: b"k",
        ..RemoveRequest::default()
    };
    for code in [0, 7] {
        assert_eq!(bench.code(M::TkrzwRemove, &remove), code);
    }
    // An empty key is one like any other.
    bench.set(b"", b"empty");
    assert_eq!(bench.value(b""), Some(b"empty".to_vec()));
}

#[test]
fn large_values_come_back_whole_and_are_not_copied() {
    let mut bench = bench();
    let value = vec![b'v'; 1_000_000];
    bench.set(b"k", &value);
    assert_eq!(bench.value(b"k"), Some(value.clone()));
    let get = encoded(&GetRequest {
        key: b"k",
        ..GetRequest::default()
    });
    assert_eq!(bench.call(M::TkrzwGet, &get).shares(), (0, value.len()));
    let exchange = CompareExchangeRequest {
        key: b"k",
        get_actual: true,
        ..CompareExchangeRequest::default()
    };
    assert_eq!(bench.exchange(exchange), (9, true, value));
}

#[test]
fn several_records_are_read_in_order_and_each_once() {
    let mut bench = bench();
    for key in [&b"b"[..], b"a", b"c"] {
        bench.set(key, key);
    }
    for (keys, found, code) in [
        (&[&b"c"[..], b"a", b"c"][..], &[&b"a"[..], b"c"][..], 0),
        (&[b"x", b"b", b"a"], &[b"a", b"b"], 7),
        (&[b"x"], &[], 7),
        (&[], &[], 0),
    ] {
        for method in [M::TkrzwGetMulti, M::TkrzwBeforeGetMulti] {
            let request = GetMultiRequest {
                dbm_index: 0,
                keys: keys.into(),
            };
            let response = bench.tkrzw(method, &request);
            let response = GetMultiResponse::decode(&response).expect("it is sound");
            let records: Vec<_> = response
                .records
                .iter()
                .map(|one| one.expect("sound"))
                .collect();
            let expected: Vec<_> = found.iter().map(|key| pair(key, key)).collect();
            assert_eq!(records, expected);
            assert_eq!(response.status.expect("there is one").code, code);
        }
    }
}

/// Also of so many that a sort which is not stable would move them.
#[test]
fn of_many_records_with_one_key_the_first_is_written() {
    let values: Vec<_> = (0..200_u8).map(|number| [number]).collect();
    let records: Vec<_> = values
        .iter()
        .map(|value| pair([b"a", &b"b"[..], b"c"][usize::from(value[0] % 3)], value))
        .collect();
    assert!(records.len() < crate::limits::TKRZW_SLICE_OPERATIONS);
    let mut bench = bench();
    for method in [M::TkrzwSetMulti, M::TkrzwAppendMulti] {
        bench.code(M::TkrzwClear, &ClearRequest::default());
        let request = SetMultiRequest {
            dbm_index: 0,
            records: records[..].into(),
            overwrite: true,
        };
        let append = AppendMultiRequest {
            records: records[..].into(),
            ..AppendMultiRequest::default()
        };
        let code = match method {
            M::TkrzwSetMulti => bench.code(method, &request),
            _ => bench.code(method, &append),
        };
        assert_eq!(code, 0);
        let found = [&b"a"[..], b"b", b"c"].map(|key| bench.value(key));
        assert_eq!(found, [0, 1, 2].map(|number| Some(vec![number])));
    }
}

#[test]
fn of_several_records_with_one_key_the_first_is_written() {
    let mut bench = bench();
    bench.set(b"b", b"old");
    let records = [
        pair(b"c", b"3"),
        pair(b"a", b"1"),
        pair(b"b", b"2"),
        pair(b"a", b"4"),
    ];
    for (overwrite, code, b) in [(false, 10, &b"old"[..]), (true, 0, b"2")] {
        let request = SetMultiRequest {
            dbm_index: 0,
            records: records[..].into(),
            overwrite,
        };
        assert_eq!(bench.code(M::TkrzwSetMulti, &request), code);
        let found = [&b"a"[..], b"b", b"c"].map(|key| bench.value(key));
        assert_eq!(
            found,
            [&b"1"[..], b, b"3"].map(|value| Some(value.to_vec()))
        );
    }
    let append = AppendMultiRequest {
        dbm_index: 0,
        records: records[..].into(),
        delim: b",",
    };
    assert_eq!(bench.code(M::TkrzwAppendMulti, &append), 0);
    assert_eq!(bench.value(b"a"), Some(b"1,1".to_vec()));
    for code in [7, 7] {
        let keys = [&b"a"[..], b"x", b"a", b"b"];
        let request = RemoveMultiRequest {
            dbm_index: 0,
            keys: keys[..].into(),
        };
        assert_eq!(bench.code(M::TkrzwRemoveMulti, &request), code);
        assert_eq!(bench.counted(), 1);
    }
}

/// A request has more records than a commit may have: nothing is said about that to the caller.
#[test]
fn many_records_become_several_commits() {
    let mut bench = bench();
    let keys: Vec<_> = (0..25_000_u32).map(u32::to_be_bytes).collect();
    let records: Vec<_> = keys.iter().map(|key| pair(key, b"v")).collect();
    let set = SetMultiRequest {
        dbm_index: 0,
        records: records[..].into(),
        overwrite: false,
    };
    for code in [0, 10] {
        assert_eq!(bench.code(M::TkrzwSetMulti, &set), code);
    }
    assert_eq!(bench.counted(), 25_000);
    let append = AppendMultiRequest {
        dbm_index: 0,
        records: records[..].into(),
        delim: b"-",
    };
    assert_eq!(bench.code(M::TkrzwAppendMulti, &append), 0);
    assert_eq!(
        bench.value(&24_999_u32.to_be_bytes()),
        Some(b"v-v".to_vec())
    );
    // One that no commit can take: nothing is written.
    let large = vec![0; store::limits::VALUE_BYTES + 1];
    let records = [pair(b"first", b"v"), pair(b"second", &large)];
    let request = encoded(&SetMultiRequest {
        dbm_index: 0,
        records: records[..].into(),
        overwrite: true,
    });
    let ended = bench.call(M::TkrzwSetMulti, &request);
    assert!(ended.refusal(Code::ResourceExhausted).contains("value"));
    assert_eq!(bench.value(b"first"), None);
}

#[test]
fn a_delimiter_stands_between_what_was_there_and_what_is_added() {
    let mut bench = bench();
    for (delim, value) in [(&b","[..], &b"x"[..]), (b",", b"x,x"), (b"", b"x,xx")] {
        let request = AppendRequest {
            key: b"k",
            value: b"x",
            delim,
            ..AppendRequest::default()
        };
        assert_eq!(bench.code(M::TkrzwAppend, &request), 0);
        assert_eq!(bench.value(b"k").as_deref(), Some(value));
    }
    bench.set(b"k", &vec![0; store::limits::VALUE_BYTES]);
    let request = encoded(&AppendRequest {
        key: b"k",
        value: b"",
        delim: b",",
        ..AppendRequest::default()
    });
    let ended = bench.call(M::TkrzwAppend, &request);
    assert!(ended.refusal(Code::ResourceExhausted).contains("larger"));
}

/// Every row of both tables: what is expected of a record that is or is not there, and what is
/// done.
#[test]
fn a_record_is_exchanged_if_it_is_as_expected() {
    let expectations = [
        (false, false, &b"old"[..], [true, false, false]),
        (false, true, b"", [true, false, false]),
        (true, true, b"", [false, true, true]),
        (true, false, b"old", [false, true, false]),
        (true, false, b"", [false, false, true]),
    ];
    let desires = [
        (true, true, None),
        (true, false, None),
        (false, false, Some(None)),
        (false, true, Some(Some(b"new".to_vec()))),
    ];
    let before = [None, Some(b"old".to_vec()), Some(Vec::new())];
    let mut bench = bench();
    for (expected_existence, expect_any_value, expected_value, met) in expectations {
        for (desire_no_update, desired_existence, after) in &desires {
            for ((before, met), get_actual) in before
                .iter()
                .zip(met)
                .flat_map(|one| [(one, true), (one, false)])
            {
                match before {
                    Some(value) => bench.set(b"k", value),
                    None => drop(bench.tkrzw(M::TkrzwClear, &ClearRequest::default())),
                }
                let exchanged = bench.exchange(CompareExchangeRequest {
                    key: b"k",
                    expected_existence,
                    expected_value,
                    expect_any_value,
                    desired_existence: *desired_existence,
                    desired_value: b"new",
                    desire_no_update: *desire_no_update,
                    get_actual,
                    ..CompareExchangeRequest::default()
                });
                let actual = before.clone().filter(|_| get_actual).unwrap_or_default();
                let code = if met { 0 } else { 9 };
                assert_eq!(exchanged, (code, before.is_some(), actual));
                let expected = match (met, after) {
                    (true, Some(after)) => after,
                    _ => before,
                };
                assert_eq!(&bench.value(b"k"), expected);
            }
        }
    }
}

#[test]
fn the_older_package_has_its_own_numbers_of_fields() {
    let mut bench = bench();
    let request = tkrzw_before::CompareExchangeRequest {
        key: b"k",
        desired_existence: true,
        desired_value: b"new",
        ..tkrzw_before::CompareExchangeRequest::default()
    };
    for code in [0, 9] {
        let response = bench.tkrzw(M::TkrzwBeforeCompareExchange, &request);
        let response = tkrzw_before::CompareExchangeResponse::decode(&response);
        assert_eq!(
            response.expect("it is sound").status.expect("one").code,
            code
        );
    }
    assert_eq!(bench.value(b"k"), Some(b"new".to_vec()));
    let echo = EchoRequest { message: "hello" };
    let response = bench.tkrzw(M::TkrzwBeforeEcho, &echo);
    assert_eq!(
        tkrzw_before::EchoResponse::decode(&response)
            .expect("sound")
            .echo,
        "hello"
    );
    let response = bench.tkrzw(M::TkrzwEcho, &echo);
    let response = EchoResponse::decode(&response).expect("sound");
    assert_eq!(
        (response.echo, response.status.expect("one").code),
        ("hello", 0)
    );
    let inspect = InspectRequest { dbm_index: 1 };
    let response = bench.tkrzw(M::TkrzwBeforeInspect, &inspect);
    let response = tkrzw_before::InspectResponse::decode(&response).expect("sound");
    let first = response.records.iter().next().expect("there are some");
    assert_eq!(first.expect("sound").first, "class");
    // There, no record is expected to have any value.
    let any = RecordState {
        any_value: true,
        ..state(b"k", Some(b"other"))
    };
    let expected = [any];
    let request = CompareExchangeMultiRequest {
        dbm_index: 0,
        expected: expected[..].into(),
        desired: [][..].into(),
    };
    assert_eq!(bench.code(M::TkrzwBeforeCompareExchangeMulti, &request), 9);
    assert_eq!(bench.code(M::TkrzwCompareExchangeMulti, &request), 0);
}

#[test]
fn several_records_are_exchanged_all_or_none() {
    let mut bench = bench();
    // The original takes the record with the empty key for one that must not be there.
    bench.set(b"", b"stays");
    bench.set(b"a", b"1");
    let mut exchange = |expected: &[RecordState<'_>], desired: &[RecordState<'_>]| {
        let request = CompareExchangeMultiRequest {
            dbm_index: 0,
            expected: expected.into(),
            desired: desired.into(),
        };
        bench.code(M::TkrzwCompareExchangeMulti, &request)
    };
    let desired = [state(b"a", None), state(b"b", Some(b"2"))];
    assert_eq!(
        exchange(
            &[state(b"a", Some(b"1")), state(b"b", Some(b"2"))],
            &desired
        ),
        9
    );
    assert_eq!(exchange(&[state(b"a", None)], &desired), 9);
    assert_eq!(exchange(&[], &[]), 0);
    assert_eq!(
        exchange(&[state(b"a", Some(b"1")), state(b"b", None)], &desired),
        0
    );
    assert_eq!(exchange(&[state(b"b", Some(b"2"))], &[]), 0);
    assert_eq!(exchange(&[], &[state(b"c", Some(b"3"))]), 0);
    let found = [&b""[..], b"a", b"b", b"c"].map(|key| bench.value(key));
    let expected = [Some(&b"stays"[..]), None, Some(b"2"), Some(b"3")];
    assert_eq!(found, expected.map(|value| value.map(<[u8]>::to_vec)));
}

#[test]
fn numbers_are_those_of_the_original() {
    let mut bench = bench();
    assert_eq!(bench.increment(b"n", i64::MIN, 7), 7);
    assert_eq!(bench.value(b"n"), None, "a read makes nothing");
    assert_eq!(bench.increment(b"n", 5, 100), 105);
    assert_eq!(bench.increment(b"n", 5, 100), 110);
    assert_eq!(bench.increment(b"n", i64::MIN, 7), 110);
    assert_eq!(bench.value(b"n"), Some(110_i64.to_be_bytes().to_vec()));
    for (value, read) in [
        (&b""[..], 0),
        (b"\xff", 255),
        (b"\x01\x00", 256),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff", -1),
        (b"\x00\x00\x00\x00\x00\x00\x00\x05rest", 5),
    ] {
        bench.set(b"n", value);
        assert_eq!(bench.increment(b"n", i64::MIN, 9), read);
        assert_eq!(bench.increment(b"n", -2, 9), read - 2);
        assert_eq!(bench.value(b"n"), Some((read - 2).to_be_bytes().to_vec()));
    }
    bench.set(b"n", &i64::MAX.to_be_bytes());
    assert_eq!(bench.increment(b"n", 1, 0), i64::MIN);
}

#[test]
fn a_record_gets_another_key() {
    for (overwrite, copying) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut bench = bench();
        let rekey = |bench: &mut Bench, old_key: &[u8], new_key: &[u8]| {
            let request = RekeyRequest {
                dbm_index: 0,
                old_key,
                new_key,
                overwrite,
                copying,
            };
            bench.code(M::TkrzwRekey, &request)
        };
        assert_eq!(rekey(&mut bench, b"a", b"b"), 7);
        bench.set(b"a", b"1");
        bench.set(b"there", b"2");
        assert_eq!(rekey(&mut bench, b"a", b"new"), 0);
        assert_eq!(bench.value(b"new"), Some(b"1".to_vec()));
        assert_eq!(bench.value(b"a").is_some(), copying);
        let (code, value) = if overwrite { (0, b"1") } else { (10, b"2") };
        assert_eq!(rekey(&mut bench, b"new", b"there"), code);
        assert_eq!(bench.value(b"there"), Some(value.to_vec()));
        assert_eq!(bench.value(b"new").is_some(), copying || !overwrite);
        assert_eq!(rekey(&mut bench, b"there", b"there"), code);
        assert_eq!(bench.value(b"there"), Some(value.to_vec()));
    }
}

/// Only calls of `pelton.v1` give one.
#[test]
fn a_record_keeps_its_expiry_under_another_key() {
    for copying in [false, true] {
        let mut bench = bench();
        let put = api::keyvalue::PutRequest {
            key: b"old",
            value: b"v",
            expiry: Some(api::keyvalue::Expiry::TimeToLiveMs(500)),
            ..api::keyvalue::PutRequest::default()
        };
        bench.call(M::Put, &encoded(&put)).answer();
        bench.now_ms += 100;
        let rekey = RekeyRequest {
            old_key: b"old",
            new_key: b"new",
            copying,
            ..RekeyRequest::default()
        };
        assert_eq!(bench.code(M::TkrzwRekey, &rekey), 0);
        bench.now_ms += 399;
        assert_eq!(bench.value(b"new"), Some(b"v".to_vec()));
        assert_eq!(bench.value(b"old").is_some(), copying);
        bench.now_ms += 1;
        assert_eq!(bench.value(b"new"), None);
    }
}

#[test]
fn a_database_is_counted_and_cleared() {
    let mut bench = bench();
    assert_eq!(bench.counted(), 0);
    for number in 0..5_000_u32 {
        let key = number.to_be_bytes();
        bench.set(&key, b"v");
    }
    assert_eq!(bench.counted(), 5_000);
    assert_eq!(bench.code(M::TkrzwClear, &ClearRequest::default()), 0);
    assert_eq!(bench.counted(), 0);
}

#[test]
fn what_would_maintain_a_file_has_little_to_do() {
    let mut bench = bench();
    let (in_memory, with_file) = (0, UNORDERED);
    for (index, code) in [(in_memory, 4), (with_file, 0)] {
        let size = GetFileSizeRequest { dbm_index: index };
        assert_eq!(bench.code(M::TkrzwGetFileSize, &size), code);
    }
    assert_eq!(
        bench.code(M::TkrzwShouldBeRebuilt, &ShouldBeRebuiltRequest::default()),
        0
    );
    for (name, code) in [("num_buckets", 0), ("no_such", 5)] {
        let params = [StringPair {
            first: name,
            second: "1",
        }];
        let request = RebuildRequest {
            dbm_index: 0,
            params: params[..].into(),
        };
        assert_eq!(bench.code(M::TkrzwRebuild, &request), code);
    }
    for (index, name, code) in [
        (0, "reducer", 0),
        (0, "make_backup", 9),
        (1, "make_backup", 3),
    ] {
        let params = [StringPair {
            first: name,
            second: "",
        }];
        let request = SynchronizeRequest {
            dbm_index: index,
            hard: true,
            params: params[..].into(),
        };
        assert_eq!(bench.code(M::TkrzwSynchronize, &request), code);
    }
}

#[test]
fn a_database_and_the_server_are_described() {
    let mut bench = bench();
    for (index, expected) in [
        (
            -1,
            &[
                "version",
                "process_id",
                "num_dbms",
                "dbm_0_path",
                "dbm_0_count",
            ][..],
        ),
        (0, &["class", "num_records"]),
        (
            1,
            &["class", "healthy", "auto_restored", "path", "num_records"],
        ),
    ] {
        let response = bench.tkrzw(M::TkrzwInspect, &InspectRequest { dbm_index: index });
        let response = InspectResponse::decode(&response).expect("it is sound");
        let names: Vec<_> = response
            .records
            .iter()
            .map(|one| one.expect("sound").first)
            .collect();
        assert_eq!(names[..expected.len()], *expected);
    }
}

#[test]
fn a_server_that_can_only_be_read_changes_nothing() {
    let mut bench = bench();
    bench.set(b"k", b"v");
    bench.shared.settings.tkrzw.is_read_only = true;
    let key = &b"k"[..];
    let set = SetRequest {
        key,
        ..SetRequest::default()
    };
    let increment = IncrementRequest {
        key,
        increment: 1,
        ..IncrementRequest::default()
    };
    let exchange = CompareExchangeRequest {
        key,
        ..CompareExchangeRequest::default()
    };
    let records = [pair(key, b"")];
    let set_multi = SetMultiRequest {
        records: records[..].into(),
        ..SetMultiRequest::default()
    };
    assert_eq!(bench.code(M::TkrzwSet, &set), 4);
    assert_eq!(bench.code(M::TkrzwIncrement, &increment), 4);
    assert_eq!(bench.code(M::TkrzwCompareExchange, &exchange), 4);
    assert_eq!(bench.code(M::TkrzwSetMulti, &set_multi), 4);
    assert_eq!(bench.code(M::TkrzwClear, &ClearRequest::default()), 4);
    assert_eq!(bench.code(M::TkrzwRekey, &RekeyRequest::default()), 4);
    assert_eq!(bench.code(M::TkrzwPopFirst, &PopFirstRequest::default()), 4);
    assert_eq!(bench.code(M::TkrzwPushLast, &PushLastRequest::default()), 4);
    assert_eq!(bench.code(M::TkrzwRebuild, &RebuildRequest::default()), 4);
    assert_eq!(bench.increment(key, i64::MIN, 0), i64::from(b'v'));
    assert_eq!(bench.value(key), Some(b"v".to_vec()));
}
