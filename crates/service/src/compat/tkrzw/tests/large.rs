//! What takes long: large requests, searches, streams that are left.

use super::*;
use crate::call::CallSteps;
use crate::keyvalue::tests::on_disk;
use crate::limits::{
    TKRZW_IDLE_MS, TKRZW_READ_SLICE_BYTES, TKRZW_READ_SLICE_KEYS, TKRZW_RUN_RECORDS,
    TKRZW_SEARCHES_AT_ONCE, TKRZW_SLICE_BYTES, TKRZW_SLICE_OPERATIONS, TKRZW_SLICES_UNDER_WAY,
};
use api::tkrzw::*;

use Method as M;

fn set_multi(records: &[(Vec<u8>, Vec<u8>)], overwrite: bool) -> Vec<u8> {
    let pairs: Vec<_> = records
        .iter()
        .map(|(first, second)| BytesPair { first, second })
        .collect();
    encoded(&SetMultiRequest {
        dbm_index: 0,
        records: pairs[..].into(),
        overwrite,
    })
}

/// In the order of keys, and of several with one key the first, as a small one.
#[test]
fn a_large_request_is_written_in_slices() {
    let mut bench = bench();
    let mut random = Random::new(1);
    let count = 4 * TKRZW_SLICE_OPERATIONS as u32;
    let mut records: Vec<_> = (0..count)
        .map(|number| (number.to_be_bytes().to_vec(), b"first".to_vec()))
        .collect();
    for place in (1..records.len()).rev() {
        records.swap(place, random.below(place as u64 + 1) as usize);
    }
    // The keys come once more, behind the first ones.
    records.extend((0..count).map(|number| (number.to_be_bytes().to_vec(), b"again".to_vec())));
    for code in [0, 10] {
        let request = set_multi(&records, false);
        let ended = bench.call(M::TkrzwSetMulti, &request);
        assert_eq!(code_of(ended.answer()), code);
        let runs = records.len() / TKRZW_RUN_RECORDS;
        assert!(ended.took_ticks() >= runs + 4 * 2, "{}", ended.took_ticks());
        assert_eq!(bench.shared.settings.tkrzw.state.slices.taken(), 0);
    }
    for key in [0, count / 2, count - 1] {
        assert_eq!(bench.value(&key.to_be_bytes()), Some(b"first".to_vec()));
    }
    let keys: Vec<_> = records.iter().map(|(key, _)| &key[..]).collect();
    for code in [0, 7] {
        let request = RemoveMultiRequest {
            dbm_index: 0,
            keys: keys[..].into(),
        };
        assert_eq!(bench.code(M::TkrzwRemoveMulti, &request), code);
        assert_eq!(bench.value(&0_u32.to_be_bytes()), None);
    }
}

/// Few records, each of which takes long to copy.
#[test]
fn large_values_are_slices_of_their_own() {
    let mut bench = bench();
    let value = vec![7; TKRZW_SLICE_BYTES / 2 + 1];
    let records = [b"c", b"a", b"b"].map(|key| (key.to_vec(), value.clone()));
    let ended = bench.call(M::TkrzwSetMulti, &set_multi(&records, true));
    assert_eq!((code_of(ended.answer()), ended.took_ticks()), (0, 7));
    for (key, _) in records {
        assert_eq!(bench.value(&key).as_deref(), Some(&value[..]));
    }
}

/// It waits while as many slices are under way as there may be, and goes on.
#[test]
fn a_large_request_waits_for_the_slices_of_others() {
    let mut bench = bench();
    let records: Vec<_> = (0..2 * TKRZW_SLICE_OPERATIONS as u32)
        .map(|number| (number.to_be_bytes().to_vec(), Vec::new()))
        .collect();
    let places = bench.shared.settings.tkrzw.state.slices.clone();
    let taken: Vec<_> = std::iter::from_fn(|| places.take()).collect();
    assert_eq!(taken.len(), TKRZW_SLICES_UNDER_WAY);
    let mut taken = Some(taken);
    let request = set_multi(&records, true);
    let ended = bench.steps(M::TkrzwSetMulti, |call, shared, room| {
        room.bring(call, &request, true, shared);
        for _ in 0..10 {
            call.woken(shared, room);
        }
        assert!(!room.has_writes(), "all places are taken");
        taken = None;
    });
    assert_eq!(code_of(ended.answer()), 0);
    assert_eq!(places.taken(), 0);
}

/// Keys that are there, others between them that are not, and some of both twice.
fn many_keys_are_read() {
    let mut bench = bench();
    let mut random = Random::new(1);
    let count = 3 * TKRZW_READ_SLICE_KEYS as u32;
    let records: Vec<_> = (0..count)
        .map(|number| (number.to_be_bytes().to_vec(), vec![number as u8; 3]))
        .collect();
    bench.call(M::TkrzwSetMulti, &set_multi(&records, true));
    let mut keys: Vec<_> = records.iter().map(|(key, _)| &key[..]).collect();
    let missing: Vec<_> = (0..count)
        .map(|number| [&number.to_be_bytes()[..], b"x"].concat())
        .collect();
    keys.extend(missing.iter().map(|key| &key[..]));
    keys.extend_from_within(..keys.len() / 2);
    for place in (1..keys.len()).rev() {
        keys.swap(place, random.below(place as u64 + 1) as usize);
    }
    for (keys, code) in [
        (&keys, 7),
        (&records.iter().map(|(key, _)| &key[..]).collect(), 0),
    ] {
        let request = encoded(&GetMultiRequest {
            dbm_index: 0,
            keys: keys[..].into(),
        });
        let ended = bench.call(M::TkrzwGetMulti, &request);
        let response = GetMultiResponse::decode(ended.answer()).expect("it is sound");
        assert_eq!(response.status.expect("there is one").code, code);
        let found = response.records.iter().map(|one| one.expect("sound"));
        let found = found.map(|one| (one.first.to_vec(), one.second.to_vec()));
        assert!(found.eq(records.iter().cloned()));
        // Each step has so many keys at most.
        let distinct = if code == 0 { count } else { 2 * count } as usize;
        let (runs, slices) = (
            keys.len().div_ceil(TKRZW_RUN_RECORDS),
            distinct / TKRZW_READ_SLICE_KEYS,
        );
        assert_eq!(ended.took_ticks(), runs + slices);
        // What is set aside before anything is done is given back bit by bit.
        let reserved = ended.reserved();
        assert!(
            reserved.is_sorted_by(|one, next| one > next),
            "{reserved:?}"
        );
        assert_eq!((reserved.len(), reserved.last()), (1 + slices, Some(&0)));
    }
}

#[test]
fn a_large_request_is_read_in_slices() {
    many_keys_are_read();
    on_disk(many_keys_are_read);
}

#[test]
fn large_values_end_a_slice() {
    let mut bench = bench();
    let value = vec![7; store::limits::SHARED_VALUE_BYTES - 1];
    let count = TKRZW_READ_SLICE_KEYS as u32 + 1;
    let records: Vec<_> = (0..count)
        .map(|number| (number.to_be_bytes().to_vec(), value.clone()))
        .collect();
    bench.call(M::TkrzwSetMulti, &set_multi(&records, true));
    let keys: Vec<_> = records.iter().map(|(key, _)| &key[..]).collect();
    let request = encoded(&GetMultiRequest {
        dbm_index: 0,
        keys: keys[..].into(),
    });
    let ended = bench.call(M::TkrzwGetMulti, &request);
    let response = GetMultiResponse::decode(ended.answer()).expect("it is sound");
    assert_eq!(response.records.iter().count(), records.len());
    let slices = TKRZW_READ_SLICE_KEYS * value.len() / TKRZW_READ_SLICE_BYTES + 1;
    assert_eq!(
        (ended.took_ticks(), ended.shares()),
        (1 + slices + 1, (0, 0))
    );
}

#[test]
fn a_search_leaves_its_turn_when_it_ends() {
    let mut bench = bench();
    for number in 0..2_000_u32 {
        bench.set(format!("key {number}").as_bytes(), b"");
    }
    let request = SearchRequest {
        mode: "edit",
        pattern: b"key 77",
        capacity: 1,
        ..SearchRequest::default()
    };
    for _ in 0..2 * TKRZW_SEARCHES_AT_ONCE {
        let response = bench.tkrzw(M::TkrzwSearch, &request);
        let response = SearchResponse::decode(&response).expect("it is sound");
        let found: Vec<_> = response
            .matched
            .iter()
            .map(|one| one.expect("sound"))
            .collect();
        assert_eq!(found, [b"key 77"]);
        let state = &bench.shared.settings.tkrzw.state;
        assert_eq!(
            (state.searches.len(), bench.shared.waiting.count()),
            ((0, 0), 0)
        );
    }
}

#[test]
fn a_stream_that_is_left_ends() {
    let mut bench = bench();
    let idle_ns = TKRZW_IDLE_MS * 1_000_000;
    let get = encoded(&IterateRequest {
        operation: 1,
        ..IterateRequest::default()
    });
    let echo = encoded(&StreamRequest {
        omit_response: true,
        request_oneof: Some(StreamedRequest::Echo(EchoRequest { message: "x" })),
    });
    for (method, message) in [
        (M::TkrzwIterate, &get),
        (M::TkrzwBeforeIterate, &get),
        (M::TkrzwStream, &echo),
        (M::TkrzwBeforeStream, &echo),
    ] {
        let ended = bench.steps(method, |_, _, _| {});
        assert_eq!(ended.waited_ns, idle_ns);
        assert!(ended.refusal(Code::Unavailable).contains("TKRZW_IDLE_MS"));
        // One that has moved has a time more.
        let ended = bench.steps(method, |call, shared, room| {
            room.bring(call, message, false, shared);
        });
        assert_eq!(ended.waited_ns, 2 * idle_ns);
        assert_eq!(ended.status.code(), Code::Unavailable);
    }
}

#[test]
fn a_time_that_is_no_key_is_refused() {
    let mut bench = bench();
    for wtime in [f64::INFINITY, f64::NAN, 1e300, 184_467_440_738.0] {
        let request = encoded(&PushLastRequest {
            wtime,
            ..PushLastRequest::default()
        });
        let ended = bench.call(M::TkrzwPushLast, &request);
        assert!(ended.refusal(Code::InvalidArgument).contains("wtime"));
    }
    // The last keys that there can be.
    let last = PushLastRequest {
        wtime: 184_467_440_737.095_5,
        ..PushLastRequest::default()
    };
    assert_eq!(bench.code(M::TkrzwPushLast, &last), 0);
    bench.set(&u64::MAX.to_be_bytes(), b"");
    let state = &bench.shared.settings.tkrzw.state;
    assert_eq!(state.pushes.len(), 0);
}
