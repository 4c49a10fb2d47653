//! Iterators and searches, against models.

use std::collections::BTreeMap;

use api::tkrzw::*;
use testkit::Random;

use super::*;

use IterateOperation as Op;
use Method as M;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a response says: its code, key and value.
type Said = (i32, Vec<u8>, Vec<u8>);

fn request<'a>(operation: Op, key: &'a [u8], value: &'a [u8]) -> IterateRequest<'a> {
    IterateRequest {
        operation: operation.number(),
        key,
        value,
        ..IterateRequest::default()
    }
}

fn said(message: &[u8]) -> Said {
    let response = IterateResponse::decode(message).expect("it is sound");
    let code = response.status.expect("there is one").code;
    (code, response.key.to_vec(), response.value.to_vec())
}

/// An iterator as the facts describe it, that looks at each record.
struct Model {
    records: Records,
    position: Option<Vec<u8>>,
}

impl Model {
    fn current(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let position = self.position.clone()?;
        let (key, value) = self.records.range(position..).next()?;
        Some((key.clone(), value.clone()))
    }

    fn below(&self, key: &[u8], inclusive: bool) -> Option<Vec<u8>> {
        let is_below = |other: &&Vec<u8>| &other[..] < key || (inclusive && &other[..] == key);
        self.records.keys().rfind(is_below).cloned()
    }

    fn apply(&mut self, request: &IterateRequest<'_>) -> Said {
        let nothing = |code| (code, Vec::new(), Vec::new());
        let operation = Op::from_number(request.operation).expect("a known one");
        let current = self.current();
        let behind = |key: &[u8]| Some([key, b"\0"].concat());
        match operation {
            Op::None => {}
            Op::First => self.position = Some(Vec::new()),
            Op::Last => self.position = self.records.keys().next_back().cloned(),
            Op::Jump => self.position = Some(request.key.to_vec()),
            Op::JumpLower => self.position = self.below(request.key, request.jump_inclusive),
            Op::JumpUpper if request.jump_inclusive => self.position = Some(request.key.to_vec()),
            Op::JumpUpper => self.position = behind(request.key),
            _ => {
                let Some((key, value)) = current else {
                    return nothing(7);
                };
                let kept = |omit, bytes: &[u8]| if omit { Vec::new() } else { bytes.to_vec() };
                let shown = (
                    0,
                    kept(request.omit_key, &key),
                    kept(request.omit_value, &value),
                );
                match operation {
                    Op::Get => return shown,
                    Op::Step => {
                        self.position = behind(&key);
                        return shown;
                    }
                    Op::Next => self.position = behind(&key),
                    Op::Previous => self.position = self.below(&key, false),
                    Op::Set => {
                        self.records.insert(key.clone(), request.value.to_vec());
                        self.position = Some(key);
                    }
                    _ => {
                        self.records.remove(&key);
                        self.position = behind(&key);
                    }
                }
            }
        }
        nothing(0)
    }
}

#[test]
fn an_iterator_moves_as_one_that_looks_at_every_record() {
    let mut random = Random::new(1);
    for _ in 0..60 {
        let mut bench = bench();
        let mut model = Model {
            records: Records::new(),
            position: None,
        };
        for _ in 0..random.below(8) {
            let key = vec![b'a'; random.below(4)];
            let key = [&key[..], &[random.below(3) as u8]].concat();
            bench.set(&key, b"v");
            model.records.insert(key, b"v".to_vec());
        }
        let keys = [&b""[..], b"\0", b"a", b"a\x01", b"aa\x02", b"b"];
        let operations: Vec<_> = (0..40)
            .map(|_| IterateRequest {
                operation: random.below(12),
                key: random.pick(&keys),
                value: random.pick(&[&b"1"[..], b"22"]),
                jump_inclusive: random.once_in(2),
                omit_key: random.once_in(4),
                omit_value: random.once_in(4),
                ..IterateRequest::default()
            })
            .collect();
        let ended = bench.talk(M::TkrzwIterate, operations.iter().map(encoded).collect());
        assert_eq!(ended.status, Status::OK);
        assert_eq!(
            ended.messages.len(),
            operations.len(),
            "one response for each request"
        );
        for (operation, message) in operations.iter().zip(&ended.messages) {
            assert_eq!(said(message), model.apply(operation), "{operation:?}");
        }
        for (key, value) in &model.records {
            assert_eq!(bench.value(key).as_ref(), Some(value));
        }
    }
}

#[test]
fn an_unordered_database_has_no_ordered_iterator() {
    let mut bench = bench();
    let set = SetRequest {
        dbm_index: UNORDERED,
        key: b"k",
        value: b"v",
        overwrite: true,
    };
    assert_eq!(bench.code(M::TkrzwSet, &set), 0);
    let cases = [
        (request(Op::Last, b"", b""), 3),
        (request(Op::Previous, b"", b""), 3),
        (request(Op::JumpLower, b"k", b""), 3),
        (request(Op::JumpUpper, b"k", b""), 3),
        (request(Op::Jump, b"j", b""), 7),
        (request(Op::Get, b"", b""), 7),
        (request(Op::Jump, b"k", b""), 0),
        (request(Op::Get, b"", b""), 0),
        (request(Op::First, b"", b""), 0),
        (request(Op::Step, b"", b""), 0),
        (request(Op::Step, b"", b""), 7),
    ];
    let in_other = |(request, _): &(IterateRequest<'_>, i32)| {
        encoded(&IterateRequest {
            dbm_index: UNORDERED,
            ..*request
        })
    };
    for method in [M::TkrzwIterate, M::TkrzwBeforeIterate] {
        let ended = bench.talk(method, cases.iter().map(in_other).collect());
        let codes: Vec<_> = ended.messages.iter().map(|one| said(one).0).collect();
        assert_eq!(codes, cases.map(|(_, code)| code));
    }
}

#[test]
fn another_index_makes_another_iterator() {
    let mut bench = bench();
    bench.set(b"k", b"v");
    let other = IterateRequest {
        dbm_index: UNORDERED,
        ..request(Op::None, b"", b"")
    };
    let first = request(Op::First, b"", b"");
    let get = request(Op::Get, b"", b"");
    let all = [first, get, other, get, first, get];
    let ended = bench.talk(M::TkrzwIterate, all.iter().map(encoded).collect());
    let codes: Vec<_> = ended.messages.iter().map(|one| said(one).0).collect();
    assert_eq!(codes, [0, 0, 0, 7, 0, 0]);
}

#[test]
fn an_operation_that_there_is_not_ends_the_iterator() {
    let mut bench = bench();
    let unknown = IterateRequest {
        operation: 12,
        ..IterateRequest::default()
    };
    let all = [request(Op::First, b"", b""), unknown];
    let ended = bench.talk(M::TkrzwIterate, all.iter().map(encoded).collect());
    assert_eq!(ended.messages.len(), 1);
    assert_eq!(ended.status.code(), Code::InvalidArgument);
}

fn found(
    bench: &mut Bench,
    index: i32,
    mode: &str,
    pattern: &[u8],
    capacity: i32,
) -> (i32, Vec<Vec<u8>>) {
    let request = SearchRequest {
        dbm_index: index,
        mode,
        pattern,
        capacity,
    };
    let response = bench.tkrzw(M::TkrzwSearch, &request);
    let response = SearchResponse::decode(&response).expect("it is sound");
    let keys = response
        .matched
        .iter()
        .map(|key| key.expect("sound").to_vec());
    (response.status.expect("there is one").code, keys.collect())
}

/// The distance between two texts, by a table of all their beginnings.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut table = vec![vec![0; other.len() + 1]; one.len() + 1];
    for row in 0..=one.len() {
        for column in 0..=other.len() {
            table[row][column] = match (row, column) {
                (0, column) => column,
                (row, 0) => row,
                _ => {
                    let is_other = one[row - 1] != other[column - 1];
                    (table[row - 1][column - 1] + usize::from(is_other))
                        .min(table[row - 1][column] + 1)
                        .min(table[row][column - 1] + 1)
                }
            };
        }
    }
    table[one.len()][other.len()]
}

#[test]
fn a_search_finds_what_a_naive_one_finds() {
    let mut random = Random::new(1);
    let mut bench = bench();
    let mut keys = std::collections::BTreeSet::new();
    for _ in 0..1_500 {
        let key: Vec<u8> = (0..random.below(9))
            .map(|_| b"abc"[random.below(3)])
            .collect();
        bench.set(&key, b"v");
        keys.insert(key);
    }
    let contains = |key: &[u8], pattern: &[u8]| {
        pattern.is_empty() || key.windows(pattern.len()).any(|window| window == pattern)
    };
    for _ in 0..20 {
        let pattern: Vec<u8> = (0..random.below(4))
            .map(|_| b"abcA"[random.below(4)])
            .collect();
        let lower = pattern.to_ascii_lowercase();
        for capacity in [0, 3] {
            let most = if capacity == 0 { usize::MAX } else { 3 };
            let mut check = |mode: &str, expected: Vec<Vec<u8>>| {
                let expected: Vec<_> = expected.into_iter().take(most).collect();
                let found = found(&mut bench, 0, mode, &pattern, capacity);
                assert_eq!(found, (0, expected), "{mode} {}", pattern.escape_ascii());
            };
            let filtered = |keep: &dyn Fn(&[u8]) -> bool| -> Vec<Vec<u8>> {
                keys.iter().filter(|key| keep(key)).cloned().collect()
            };
            check("contain", filtered(&|key| contains(key, &pattern)));
            check("containcase", filtered(&|key| contains(key, &lower)));
            check("begin", filtered(&|key| key.starts_with(&pattern)));
            check("end", filtered(&|key| key.ends_with(&pattern)));
            check("regex", filtered(&|key| contains(key, &pattern)));
            let mut nearest: Vec<_> = keys.iter().cloned().collect();
            nearest.sort_by_key(|key| distance(key, &pattern));
            check("edit", nearest.clone());
            check("editbin", nearest);
            let ordered = |keys: Vec<Vec<u8>>| if capacity == 0 { Vec::new() } else { keys };
            check("upper", ordered(filtered(&|key| *key > *pattern)));
            check("upperinc", ordered(filtered(&|key| *key >= *pattern)));
            let reversed = |mut keys: Vec<Vec<u8>>| {
                keys.reverse();
                keys
            };
            check("lower", ordered(reversed(filtered(&|key| *key < *pattern))));
            check(
                "lowerinc",
                ordered(reversed(filtered(&|key| *key <= *pattern))),
            );
        }
    }
}

#[test]
fn a_search_that_cannot_be_made_says_why() {
    let mut bench = bench();
    bench.set(b"k", b"v");
    for (index, mode, pattern, code) in [
        (0, "no_such", &b""[..], 5),
        (0, "regex", b"(", 5),
        // Larger than an expression may be.
        (0, "regex", b"(((a{50}){50}){50}){50}", 5),
        // Small, and large only if it were about all letters of Unicode.
        (0, "regex", b"^\\w{49}\\W{49}x", 0),
        (0, "", b"", 5),
        (UNORDERED, "upper", b"", 3),
        (UNORDERED, "lowerinc", b"", 3),
        (UNORDERED, "begin", b"", 0),
    ] {
        assert_eq!(found(&mut bench, index, mode, pattern, 1).0, code, "{mode}");
    }
}

/// Long keys and a long pattern: each step looks at a part of a key.
#[test]
fn a_distance_to_long_keys_is_computed_in_many_steps() {
    let mut bench = bench();
    let key = vec![b'x'; 2_000];
    bench.set(&key, b"v");
    bench.set(b"y", b"v");
    let pattern = vec![b'x'; 900];
    let request = encoded(&SearchRequest {
        mode: "edit",
        pattern: &pattern,
        ..SearchRequest::default()
    });
    let ended = bench.call(M::TkrzwSearch, &request);
    assert!(ended.took_ticks() > 20, "{}", ended.took_ticks());
    let response = SearchResponse::decode(ended.answer()).expect("it is sound");
    let lengths: Vec<_> = (response.matched.iter())
        .map(|key| key.expect("sound").len())
        .collect();
    assert_eq!(lengths, [1, 2_000]);
}
