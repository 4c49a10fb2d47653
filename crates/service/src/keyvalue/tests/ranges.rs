//! Scan and Count.

use super::*;
use crate::limits::{COUNT_SLICE_ROWS, HELD_KEY_BYTES, SCAN_PAGE_BYTES, SCAN_PAGE_ROWS};
use api::keyvalue::*;
use testkit::keyvalue::*;

const SCAN: ScanRequest<'static> = ScanRequest {
    database: "",
    direction: 0,
    keys_only: false,
    limit: 0,
    start_after: None,
    keys: None,
    unserved: 0,
};

type Found = Vec<(Vec<u8>, Vec<u8>)>;

impl Bench {
    fn scan(&mut self, request: ScanRequest<'_>) -> (Found, Ended) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let ended = self.call(Method::Scan, &bytes);
        assert_eq!(ended.status, Status::OK);
        let mut found = Vec::new();
        for (index, message) in ended.messages.iter().enumerate() {
            let page = ScanPage::decode(message).expect("it is a page");
            assert_eq!(page.last, index + 1 == ended.messages.len());
            assert_eq!(api::history_id(page.history_id), HISTORY_ID);
            for entry in &page.entries {
                let entry = entry.expect("it is an entry");
                assert!(entry.version > 0);
                found.push((entry.key.to_vec(), entry.value.to_vec()));
            }
        }
        (found, ended)
    }

    fn keys(&mut self, request: ScanRequest<'_>) -> Vec<String> {
        let text = |(key, _)| String::from_utf8(key).expect("keys are text here");
        self.scan(request).0.into_iter().map(text).collect()
    }

    pub(super) fn count(&mut self, keys: Option<Keys<'_>>) -> CountResponse<'static> {
        let mut bytes = Vec::new();
        CountRequest {
            keys,
            ..CountRequest::default()
        }
        .encode(&mut bytes);
        let ended = self.call(Method::Count, &bytes);
        let response = CountResponse::decode(ended.answer()).expect("it is a message");
        assert_eq!(api::history_id(response.history_id), HISTORY_ID);
        CountResponse {
            count: response.count,
            exact: response.exact,
            views: response.views,
            sequence: response.sequence,
            history_id: &[],
        }
    }

    pub(super) fn fill(&mut self, keys: impl IntoIterator<Item = String>, value: &[u8]) {
        for key in keys {
            self.put(key.as_bytes(), value);
        }
    }
}

#[test]
pub(super) fn ranges_and_prefixes_both_ways() {
    let mut bench = Bench::new();
    bench.fill(["a", "b", "ba", "bb", "c"].map(String::from), b"v");
    let cases: [(Option<Keys<'_>>, &[&str]); 7] = [
        (None, &["a", "b", "ba", "bb", "c"]),
        (Some(Keys::Prefix(b"b")), &["b", "ba", "bb"]),
        (Some(Keys::Prefix(b"")), &["a", "b", "ba", "bb", "c"]),
        (Some(Keys::Prefix(b"d")), &[]),
        (
            Some(Keys::Range(KeyRange {
                start: b"b",
                end: b"bb",
            })),
            &["b", "ba"],
        ),
        (
            Some(Keys::Range(KeyRange {
                start: b"bb",
                end: b"",
            })),
            &["bb", "c"],
        ),
        (
            Some(Keys::Range(KeyRange {
                start: b"b",
                end: b"b",
            })),
            &[],
        ),
    ];
    for (keys, expected) in cases {
        assert_eq!(bench.keys(ScanRequest { keys, ..SCAN }), expected);
        let backward = ScanRequest {
            keys,
            direction: Direction::Backward.number(),
            ..SCAN
        };
        let reversed: Vec<_> = expected.iter().rev().copied().collect();
        assert_eq!(bench.keys(backward), reversed);
        let count = bench.count(keys);
        assert_eq!(
            (count.count, count.exact, count.views),
            (expected.len() as u64, true, 1)
        );
    }
}

#[test]
pub(super) fn limits_and_cursors() {
    let mut bench = Bench::new();
    bench.fill(["a", "b", "c", "d"].map(String::from), b"v");
    for limit in 1..6 {
        let expected = &["a", "b", "c", "d"][..4.min(limit)];
        assert_eq!(
            bench.keys(ScanRequest {
                limit: limit as u64,
                ..SCAN
            }),
            expected
        );
    }
    let backward = ScanRequest {
        direction: Direction::Backward.number(),
        ..SCAN
    };
    assert_eq!(
        bench.keys(ScanRequest {
            start_after: Some(b"b"),
            ..SCAN
        }),
        ["c", "d"]
    );
    assert_eq!(
        bench.keys(ScanRequest {
            start_after: Some(b"bb"),
            ..SCAN
        }),
        ["c", "d"]
    );
    assert_eq!(
        bench.keys(ScanRequest {
            start_after: Some(b""),
            ..SCAN
        }),
        ["a", "b", "c", "d"]
    );
    assert_eq!(
        bench.keys(ScanRequest {
            start_after: Some(b"c"),
            ..backward
        }),
        ["b", "a"]
    );
    assert!(
        bench
            .keys(ScanRequest {
                start_after: Some(b""),
                ..backward
            })
            .is_empty()
    );
    let keys = Some(Keys::Prefix(b"b"));
    let mut outside = Vec::new();
    ScanRequest {
        keys,
        start_after: Some(b"c"),
        ..SCAN
    }
    .encode(&mut outside);
    let ended = bench.call(Method::Scan, &outside);
    assert!(
        ended
            .refusal(Code::InvalidArgument)
            .contains("start_after lies outside")
    );
}

/// A limit counts the entries of all pages, also where it is met at the end of one.
#[test]
fn limits_hold_beyond_a_page() {
    let mut bench = Bench::new();
    let rows = u64::from(SCAN_PAGE_ROWS);
    let count = 2 * rows + 1;
    bench.fill((0..count).map(|number| format!("{number:05}")), b"");
    for limit in [rows - 1, rows, rows + 1, 2 * rows, count, count + 1] {
        let (found, ended) = bench.scan(ScanRequest { limit, ..SCAN });
        let expected = limit.min(count);
        assert_eq!(found.len() as u64, expected);
        assert_eq!(ended.messages.len() as u64, expected.div_ceil(rows));
    }
}

#[test]
pub(super) fn keys_only_leaves_values_out() {
    let mut bench = Bench::new();
    bench.put(b"k", &vec![b'x'; 2 * SCAN_PAGE_BYTES]);
    let (found, ended) = bench.scan(ScanRequest {
        keys_only: true,
        ..SCAN
    });
    assert_eq!(found, [(b"k".to_vec(), vec![])]);
    assert!(ended.messages[0].len() < 100);
}

#[test]
pub(super) fn pages_end_by_bytes_and_by_rows() {
    let mut bench = Bench::new();
    bench.fill(
        (0..40).map(|number| format!("{number:02}")),
        &[b'x'; 100_000],
    );
    let (found, ended) = bench.scan(SCAN);
    assert_eq!(found.len(), 40);
    assert_eq!(ended.messages.len(), 20, "two of them fit");
    assert!(
        ended
            .messages
            .iter()
            .all(|page| page.len() <= SCAN_PAGE_BYTES)
    );

    let mut bench = Bench::new();
    let rows = SCAN_PAGE_ROWS as usize;
    bench.fill((0..2 * rows + 1).map(|number| format!("{number:05}")), b"");
    let (found, ended) = bench.scan(SCAN);
    assert!(found.is_sorted());
    assert_eq!((found.len(), ended.messages.len()), (2 * rows + 1, 3));
}

#[test]
pub(super) fn large_entries_stand_alone() {
    let mut bench = Bench::new();
    let large = vec![b'x'; SCAN_PAGE_BYTES];
    bench.put(b"a", b"small");
    bench.put(b"b", &large);
    bench.put(b"c", &large);
    bench.put(b"d", b"small");
    let (found, ended) = bench.scan(SCAN);
    let sizes: Vec<_> = found.iter().map(|(_, value)| value.len()).collect();
    assert_eq!(sizes, [5, large.len(), large.len(), 5]);
    assert_eq!(ended.messages.len(), 4);
    let (found, ended) = bench.scan(ScanRequest {
        start_after: Some(b"a"),
        limit: 1,
        ..SCAN
    });
    assert_eq!((found.len(), ended.messages.len()), (1, 1));
}

#[test]
pub(super) fn a_scan_sends_only_when_it_may() {
    let mut bench = Bench::new();
    bench.room = 1;
    let rows = SCAN_PAGE_ROWS as usize;
    bench.fill((0..3 * rows).map(|number| format!("{number:05}")), b"");
    let (found, ended) = bench.scan(SCAN);
    assert_eq!(found.len(), 3 * rows);
    assert!(ended.ticks > ended.messages.len(), "it waited in between");
}

/// What is kept of long keys between two pages is told, each time; and before it is kept, the call
/// asks.
#[test]
fn a_scan_and_a_count_tell_what_they_keep() {
    let mut bench = Bench::new();
    bench.room = 1;
    let key = |number: usize| format!("{number:05}{}", "k".repeat(60_000));
    bench.fill((0..9).map(key), b"");
    let (found, ended) = bench.scan(SCAN);
    assert_eq!((found.len(), ended.messages.len()), (9, 3));
    assert_eq!(ended.begins, 1, "before the first page only");
    assert_eq!(ended.held.len(), 2, "after each page but the last");
    assert!(ended.held.iter().all(|bytes| *bytes >= 2 * 60_000));
    let (start, end) = (key(0), key(3));
    let range = ScanRequest {
        keys: Some(Keys::Range(KeyRange {
            start: start.as_bytes(),
            end: end.as_bytes(),
        })),
        ..SCAN
    };
    let (_, ended) = bench.scan(range);
    assert!(ended.held[0] >= 4 * 60_000, "{:?}", ended.held);
    let short = (0..2 * COUNT_SLICE_ROWS).map(|number| format!("a{number}"));
    bench.fill(short, b"");
    let mut request = Vec::new();
    CountRequest {
        keys: Some(Keys::Prefix(key(1).as_bytes())),
        ..CountRequest::default()
    }
    .encode(&mut request);
    assert!(bench.call(Method::Count, &request).held[0] >= 4 * 60_000);
    assert_eq!(
        bench
            .scan(ScanRequest {
                keys: Some(Keys::Prefix(b"a")),
                ..SCAN
            })
            .1
            .held,
        []
    );
}

/// Keys are counted from a length on, and that to the byte: twice, as they are copied for a disk.
#[test]
fn keys_are_counted_from_a_length_on() {
    let mut bench = Bench::new();
    let long = [b'k'; HELD_KEY_BYTES];
    let half = HELD_KEY_BYTES / 2;
    for (start_bytes, end_bytes, held) in [
        (half - 1, 0, &[][..]),
        (half, 0, &[HELD_KEY_BYTES]),
        (half / 2 - 1, half / 2, &[]),
        (half / 2, half / 2, &[HELD_KEY_BYTES]),
    ] {
        let keys = Some(Keys::Range(KeyRange {
            start: &long[..start_bytes],
            end: &long[..end_bytes],
        }));
        let (_, ended) = bench.scan(ScanRequest { keys, ..SCAN });
        assert_eq!(ended.held, held);
        let mut request = Vec::new();
        CountRequest {
            keys,
            ..CountRequest::default()
        }
        .encode(&mut request);
        assert_eq!(bench.call(Method::Count, &request).held, held);
    }
}

/// What fills a page by itself is shared with the database, and comes when there is memory for it.
#[test]
fn a_large_entry_is_not_copied_and_waits_for_memory() {
    let mut bench = Bench::new();
    for (bytes, shared_bytes) in [
        (SCAN_PAGE_BYTES - 1, 0),
        (SCAN_PAGE_BYTES, SCAN_PAGE_BYTES),
        (SCAN_PAGE_BYTES + 1, SCAN_PAGE_BYTES + 1),
    ] {
        bench.put(b"a", &vec![b'x'; bytes]);
        let (found, ended) = bench.scan(SCAN);
        assert_eq!(found[0].1.len(), bytes);
        assert_eq!((ended.shared_bytes, ended.claims.len()), (shared_bytes, 0));
    }
    bench.put(b"b", b"small");
    for (message_bytes, refusals, claims) in [
        (SCAN_PAGE_BYTES + 1, 0, &[][..]),
        // What it sends is shared, so that it takes no memory for it.
        (SCAN_PAGE_BYTES, 0, &[0]),
        (SCAN_PAGE_BYTES, 2, &[0, 0, 0]),
    ] {
        bench.memory = Memory {
            message_bytes,
            refusals,
        };
        let (found, ended) = bench.scan(SCAN);
        assert_eq!(found.len(), 2);
        assert_eq!(ended.claims, claims);
    }
}

#[test]
fn pages_are_small_while_memory_is_short() {
    let mut bench = Bench::new();
    bench.fill((0..20).map(|number| format!("{number:02}")), &[b'x'; 400]);
    bench.memory.message_bytes = 1_000;
    let (found, ended) = bench.scan(SCAN);
    assert_eq!((found.len(), ended.messages.len()), (20, 10));
    assert!(ended.messages.iter().all(|page| page.len() <= 1_000));
    assert_eq!(ended.claims, []);
}

#[test]
pub(super) fn expired_entries_are_not_shown() {
    let mut bench = Bench::new();
    let operation = store::Operation::Put {
        key: b"b",
        value: b"",
        condition: store::Condition::None,
        expiry: store::Expiry::AfterMs(10),
        want_previous: false,
    };
    let mut request = Vec::new();
    OperationRequest {
        database: "",
        operation,
    }
    .encode(&mut request);
    bench.call(Method::Put, &request).answer();
    bench.fill(["a", "c"].map(String::from), b"");
    assert_eq!(bench.keys(SCAN), ["a", "b", "c"]);
    assert_eq!(bench.count(None).count, 3);
    bench.now_ms += 10;
    assert_eq!(bench.keys(SCAN), ["a", "c"]);
    assert_eq!(bench.count(None).count, 2);
}

#[test]
fn a_long_count_is_cut_into_slices() {
    let mut bench = Bench::new();
    let keys = COUNT_SLICE_ROWS as usize + 10;
    bench.fill((0..keys).map(|number| format!("{number:06}")), b"");
    // All of a database is counted at once; a range of it is walked.
    assert_eq!(bench.count(None).views, 1);
    assert!(
        bench
            .shared
            .store
            .order_keys(DatabaseId::DEFAULT, &mut || true)
    );
    let count = bench.count(Some(Keys::Range(KeyRange {
        start: b"0",
        end: b"9",
    })));
    assert_eq!(
        (count.count, count.exact, count.views),
        (keys as u64, true, 2)
    );
    assert!(count.sequence >= keys as u64);
}

#[test]
fn a_range_must_not_end_before_it_starts() {
    let mut request = Vec::new();
    ScanRequest {
        keys: Some(Keys::Range(KeyRange {
            start: b"b",
            end: b"a",
        })),
        ..SCAN
    }
    .encode(&mut request);
    for method in [Method::Scan, Method::Count] {
        let ended = Bench::new().call(method, &request);
        let words = ended.refusal(Code::InvalidArgument);
        assert!(
            words.contains("field range has an end below its start"),
            "{words}"
        );
    }
}
