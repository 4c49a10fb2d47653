//! What is fetched against what there is.

use std::ops::{Bound, ControlFlow};

use testkit::Random;

use super::*;
use crate::range::Direction;
use crate::read_view::ReadView;
use crate::store::{Store, StoreConfig};
use crate::tree::tests::{
    Content, GENERATION, Logged, TempFolder, apply, content, random_commit, random_key, small,
};
use crate::tree::{TreeWriter, Trees};

const NOW_MS: u64 = 1000;

/// A tree with some content, part of it in tables.
struct Bench {
    writer: TreeWriter,
    store: Store,
    log: Vec<Logged>,
    random: Random,
    _folder: TempFolder,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let mut bench = Bench::empty(seed);
        bench.commits(30);
        bench
    }

    fn empty(seed: u64) -> Bench {
        let folder = TempFolder::new("fetch");
        let trees = Trees::open(&folder.0, small()).expect("the folder is new");
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        store.clock_ms(NOW_MS);
        Bench {
            writer: trees.create(GENERATION).expect("there is room"),
            store,
            log: Vec::new(),
            random: Random::new(seed),
            _folder: folder,
        }
    }

    fn commit(&mut self) {
        let last = self.log.last();
        let last = last.map_or(GENERATION.sequence, |commit| commit.sequence);
        let commit = random_commit(&mut self.random, last);
        apply(&mut self.writer, &commit);
        self.log.push(commit);
        if self.random.once_in(8) && self.writer.seal(u64::MAX) {
            self.writer.index().flush().expect("there is room");
        }
    }

    fn commits(&mut self, count: usize) {
        (0..count).for_each(|_| self.commit());
    }

    /// What a reader can see, in order.
    fn live(&self) -> Content {
        let mut content = content(&self.log);
        content.retain(|_, entry| !is_expired(entry.2, NOW_MS));
        content
    }

    fn fetch(&self, plan: &mut ReadPlan) -> Vec<Fetched> {
        let mut fetch = Fetch::new(self.writer.index().clone(), plan);
        let mut parts = Vec::new();
        while !fetch.is_done() {
            parts.push(fetch.run(&self.store, usize::MAX).expect("it may need all"));
        }
        parts
    }

    fn range(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let mut bound = || {
            let key = random_key(&mut self.random);
            match self.random.below(3) {
                0 => Bound::Unbounded,
                1 => Bound::Included(key),
                _ => Bound::Excluded(key),
            }
        };
        (bound(), bound())
    }
}

/// Seeds, each with a number of commits.
fn rounds() -> impl Iterator<Item = (u64, usize)> {
    (0..60).map(|seed| (seed, seed as usize * 2))
}

fn borrowed(range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Range<'_> {
    Range {
        start: range.0.as_ref().map(Vec::as_slice),
        end: range.1.as_ref().map(Vec::as_slice),
    }
}

fn shown<'a>(fetched: &'a FetchedCall<'a>) -> ReadView<'a> {
    ReadView::fetched(fetched).expect("the tree is whole")
}

#[test]
fn keys_of_several_calls_are_what_they_are() {
    for (seed, round) in rounds() {
        let mut bench = Bench::new(seed);
        bench.commits(round);
        let live = bench.live();
        let mut plan = ReadPlan::default();
        let calls: Vec<Vec<Vec<u8>>> = (0..1 + bench.random.below(20))
            .map(|_| {
                let keys = bench.random.below(5);
                (0..keys).map(|_| random_key(&mut bench.random)).collect()
            })
            .collect();
        for (tag, keys) in calls.iter().enumerate() {
            plan.begin(tag as u64, b"kept");
            plan.keys(usize::MAX, keys.iter().map(Vec::as_slice));
        }
        let parts = bench.fetch(&mut plan);
        assert!(plan.is_empty());
        let fetched = parts.iter().flat_map(Fetched::calls);
        let mut seen = 0;
        for (tag, (call, keys)) in fetched.zip(&calls).enumerate() {
            assert_eq!((call.tag(), call.kept()), (tag as u64, &b"kept"[..]));
            let shown = shown(&call);
            let last = bench.log.last().expect("there are commits");
            assert_eq!(shown.sequence(), last.sequence);
            // In another order too.
            for key in keys.iter().chain(keys.iter().rev()) {
                let found = shown.get(key, 0, NOW_MS).expect("it was planned");
                let found = found.map(|one| (one.value.to_vec(), one.version, one.expires_ms));
                assert_eq!(found.as_ref(), live.get(key), "seed {seed}");
            }
            assert_eq!(shown.get(b"not planned", 0, NOW_MS), Err(NotFetched));
            seen += 1;
        }
        assert_eq!(seen, calls.len());
    }
}

/// What needs no reader is the same as what a reader would have prefetched.
#[test]
fn what_is_there_at_once_is_what_is_there() {
    let mut served = 0;
    for (seed, round) in rounds() {
        let mut bench = Bench::new(seed);
        for _ in 0..round {
            if bench.random.once_in(3) {
                bench.commit();
            }
            let keys: Vec<Vec<u8>> = (0..6).map(|_| random_key(&mut bench.random)).collect();
            let mut plan = ReadPlan::default();
            for (tag, keys) in keys.chunks(1 + bench.random.below(2)).enumerate() {
                plan.begin(tag as u64, &keys[0]);
                plan.keys(usize::MAX, keys.iter().map(Vec::as_slice));
            }
            let calls = plan.len();
            let cached = Fetched::from_cache(bench.writer.index(), &mut plan, &bench.store);
            served += cached.as_ref().map_or(0, |fetched| fetched.calls.len());
            let parts: Vec<Fetched> = cached.into_iter().chain(bench.fetch(&mut plan)).collect();
            let live = bench.live();
            let last = bench.log.last().expect("there are commits").sequence;
            let shown_calls = parts.iter().flat_map(Fetched::calls).inspect(|call| {
                let shown = shown(call);
                assert_eq!(shown.sequence(), last);
                let found = shown.get(call.kept(), 0, NOW_MS).expect("it was planned");
                let found = found.map(|one| (one.value.to_vec(), one.version, one.expires_ms));
                assert_eq!(found.as_ref(), live.get(call.kept()), "seed {seed}");
            });
            let mut tags: Vec<u64> = shown_calls.map(|call| call.tag()).collect();
            tags.sort_unstable();
            assert_eq!(tags, (0..calls as u64).collect::<Vec<_>>());
        }
    }
    assert!(served > 500, "{served}");
}

#[test]
fn pages_make_up_the_whole_range() {
    for (seed, round) in rounds() {
        let mut bench = Bench::new(seed);
        bench.commits(round);
        let bounds = bench.range();
        let page = PageRequest {
            direction: bench
                .random
                .pick(&[Direction::Forward, Direction::Backward]),
            keys_only: bench.random.once_in(2),
            rows: 1 + bench.random.below(50) as u32,
            entries: bench.random.pick(&[u64::MAX, 3, 1]),
            bytes: bench.random.pick(&[1, 100, 1 << 20]),
        };
        let live = bench.live();
        let mut expected: Vec<_> = live
            .into_iter()
            .filter(|(key, _)| borrowed(&bounds).contains(key))
            .collect();
        if page.direction == Direction::Backward {
            expected.reverse();
        }
        if page.keys_only {
            expected.iter_mut().for_each(|(_, entry)| entry.0.clear());
        }
        let found = walk(&bench, &bounds, page);
        assert_eq!(found, expected, "seed {seed}, {page:?}");
    }
}

type Entries = Vec<(Vec<u8>, (Vec<u8>, u64, u64))>;

/// All pages of a range.
fn walk(bench: &Bench, bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>), page: PageRequest) -> Entries {
    let (mut found, mut passed) = (Entries::new(), None::<Vec<u8>>);
    loop {
        let range = borrowed(bounds);
        let range = match &passed {
            Some(key) => range.beyond(key, page.direction),
            None => range,
        };
        let mut plan = ReadPlan::default();
        plan.begin(7, b"");
        plan.page(&range, page);
        let parts = bench.fetch(&mut plan);
        let call = parts[0].calls().next().expect("one was begun");
        let shown = shown(&call);
        let (mut entries, mut bytes) = (0, 0);
        let end = shown.scan(&range, page.direction, NOW_MS, u32::MAX, &mut |entry| {
            entries += 1;
            bytes += entry.key.len() + entry.value.len();
            let rest = (entry.value.to_vec(), entry.version, entry.expires_ms);
            found.push((entry.key.to_vec(), rest));
            ControlFlow::Continue(())
        });
        assert!(entries <= page.entries && entries <= u64::from(page.rows));
        assert!(bytes <= page.bytes || entries <= 1);
        match end.expect("it was planned") {
            crate::ScanEnd::Complete => return found,
            crate::ScanEnd::BudgetSpent(key) => passed = Some(key.to_vec()),
            crate::ScanEnd::Stopped => unreachable!("nobody stops"),
        }
        let other = Range::new(b"other", None);
        let refused = shown.scan(&other, page.direction, NOW_MS, 1, &mut |_| {
            ControlFlow::Continue(())
        });
        assert_eq!(refused, Err(NotFetched));
    }
}

#[test]
fn counts_add_up_and_estimates_are_near() {
    for (seed, round) in rounds() {
        let mut bench = Bench::new(seed);
        bench.commits(round);
        let bounds = bench.range();
        let rows = 1 + bench.random.below(60) as u32;
        let live = bench.live();
        let expected = live.keys().filter(|key| borrowed(&bounds).contains(key));
        let expected = expected.count() as u64;
        let (mut count, mut passed) = (0, None::<Vec<u8>>);
        loop {
            let range = borrowed(&bounds);
            let range = match &passed {
                Some(key) => range.beyond(key, Direction::Forward),
                None => range,
            };
            let slice = counted(&bench, &range, rows, false);
            assert!(!slice.2);
            count += slice.0;
            passed = slice.1;
            if passed.is_none() {
                break;
            }
        }
        assert_eq!(count, expected, "seed {seed}");
        let (count, passed, is_estimate) = counted(&bench, &borrowed(&bounds), rows, true);
        assert_eq!(passed, None, "an estimate comes at once");
        assert!(is_estimate || count == expected);
    }
}

fn counted(
    bench: &Bench,
    range: &Range<'_>,
    rows: u32,
    may_estimate: bool,
) -> (u64, Option<Vec<u8>>, bool) {
    let mut plan = ReadPlan::default();
    plan.begin(7, b"");
    plan.count(range, rows, may_estimate);
    let parts = bench.fetch(&mut plan);
    let call = parts[0].calls().next().expect("one was begun");
    let shown = shown(&call);
    let counted = shown.count(range, NOW_MS, rows).expect("it was planned");
    let passed = counted.passed.map(<[u8]>::to_vec);
    (counted.count, passed, counted.is_estimate)
}

#[test]
fn few_entries_behind_many_removed_ones_are_counted_exactly() {
    let mut bench = Bench::empty(1);
    let removed = 2 * limits::WALK_PASSED_OVER;
    let key = |number: u32| format!("key-{number:06}").into_bytes();
    for round in 0..2 {
        let last = (key(removed), Some((b"value".to_vec(), 0)));
        let changes = (0..removed).map(|number| (key(number), None));
        let logged = Logged {
            sequence: GENERATION.sequence + 1 + round,
            changes: changes.chain([last]).collect(),
        };
        apply(&mut bench.writer, &logged);
        let (mut passed, mut steps, mut count) = (None::<Vec<u8>>, 0, 0);
        loop {
            let range = match &passed {
                Some(key) => Range::ALL.beyond(key, Direction::Forward),
                None => Range::ALL,
            };
            let slice = counted(&bench, &range, 10, true);
            assert!(!slice.2, "an estimate would count what was removed");
            (count, steps) = (count + slice.0, steps + 1);
            passed = slice.1;
            if passed.is_none() {
                break;
            }
        }
        assert_eq!(count, 1);
        assert!(steps > 2, "{steps}");
    }
}

#[test]
fn an_estimate_of_many_entries_is_near() {
    let mut bench = Bench::empty(1);
    for commit in 0..200 {
        let key = |number: u64| format!("key-{:05}", commit * 100 + number).into_bytes();
        let change = |number| (key(number), Some((b"value".to_vec(), 0)));
        let logged = Logged {
            sequence: GENERATION.sequence + 1 + commit,
            changes: (0..100).map(change).collect(),
        };
        apply(&mut bench.writer, &logged);
    }
    bench.writer.seal(u64::MAX);
    bench.writer.index().flush().expect("there is room");
    let (count, _, is_estimate) = counted(&bench, &Range::ALL, 10, true);
    assert!(is_estimate);
    assert_eq!(count, 20_000);
    let half = Range::new(b"key-10000", None);
    let (count, ..) = counted(&bench, &half, 10, true);
    assert!((9_000..11_000).contains(&count), "{count}");
    // What was walked is there.
    let (count, ..) = counted(
        &bench,
        &Range::new(b"key-00000", Some(b"key-00020")),
        19,
        true,
    );
    assert!((19..200).contains(&count), "{count}");
}

#[test]
fn a_prefetch_has_a_bound_in_bytes() {
    let mut bench = Bench::new(2);
    let value = vec![7; 1 << 20];
    let sequence = bench.log.last().expect("there are commits").sequence + 1;
    let keys: Vec<Vec<u8>> = (0..12).map(|number| vec![200, number]).collect();
    let change = |key: &Vec<u8>| (key.clone(), Some((value.clone(), 0)));
    let changes = keys.iter().map(change).collect();
    let commit = Logged { sequence, changes };
    apply(&mut bench.writer, &commit);
    let mut plan = ReadPlan::default();
    for key in &keys {
        plan.begin(1, key);
        plan.key(key);
    }
    let parts = bench.fetch(&mut plan);
    assert!(parts.len() > 2, "{}", parts.len());
    for part in &parts {
        assert!(part.bytes() <= limits::FETCHED_BYTES + value.len());
        for call in part.calls() {
            let shown = shown(&call);
            let found = shown.get(call.kept(), 0, NOW_MS).expect("it was planned");
            let found = found.expect("it was put").value;
            assert!(matches!(found, crate::Value::Shared(bytes) if bytes.len() == value.len()));
        }
    }
    // One call gets no more than it can use.
    plan.begin(1, b"");
    plan.keys((3 << 20) - 1, keys.iter().map(Vec::as_slice));
    let parts = bench.fetch(&mut plan);
    assert_eq!(parts[0].bytes(), 3 << 20);
    let call = parts[0].calls().next().expect("one was begun");
    assert!(shown(&call).get(&keys[2], 0, NOW_MS).is_ok());
    assert_eq!(shown(&call).get(&keys[3], 0, NOW_MS), Err(NotFetched));
}

#[test]
fn keys_and_ranges_that_no_tree_can_hold_are_answered() {
    let bench = Bench::new(3);
    let mut plan = ReadPlan::default();
    let long = vec![0; crate::limits::KEY_BYTES + 1];
    plan.begin(1, b"");
    plan.keys(usize::MAX, [&long[..], &[1; 65_535]].into_iter());
    plan.begin(2, b"");
    plan.count(&Range::new(&long, Some(&[255; 70_000])), u32::MAX, false);
    let parts = bench.fetch(&mut plan);
    let calls: Vec<_> = parts[0].calls().collect();
    assert_eq!(shown(&calls[0]).get(&long, 0, NOW_MS), Ok(None));
    assert_eq!(shown(&calls[0]).get(&[1; 65_535], 0, NOW_MS), Ok(None));
    let range = Range::new(&long, Some(&[255; 70_000]));
    let seen = shown(&calls[1]);
    let counted = seen.count(&range, NOW_MS, u32::MAX);
    let all = bench
        .live()
        .keys()
        .filter(|key| range.contains(key))
        .count();
    assert_eq!(counted.expect("it was planned").count, all as u64);
}

#[test]
fn a_call_that_planned_nothing_finds_nothing() {
    let bench = Bench::new(4);
    let mut plan = ReadPlan::default();
    plan.begin(1, b"");
    let parts = bench.fetch(&mut plan);
    let call = parts[0].calls().next().expect("one was begun");
    assert_eq!(shown(&call).get(b"", 0, NOW_MS), Err(NotFetched));
    assert_eq!(shown(&call).count(&Range::ALL, NOW_MS, 1), Err(NotFetched));
}

const LARGE: usize = 1_000_000;

/// Large values among small ones, all in one table.
fn with_large_values() -> Bench {
    let mut bench = Bench::empty(5);
    let small = (0..100).map(|number| (vec![1, number], Some((vec![1; 300], 0))));
    let large = (0..4).map(|number| (vec![2, number], Some((vec![2; LARGE], 0))));
    let commit = Logged {
        sequence: GENERATION.sequence + 1,
        changes: small.chain(large).collect(),
    };
    apply(&mut bench.writer, &commit);
    bench
}

/// What a fetch brings with so many bytes: how many calls, or what it needs.
fn brings(bench: &Bench, plan: &mut ReadPlan, most_bytes: usize) -> Result<usize, usize> {
    let mut fetch = Fetch::new(bench.writer.index().clone(), plan);
    let fetched = fetch.run(&bench.store, most_bytes);
    let fetched = fetched.map_err(|NeedsBytes(bytes)| bytes)?;
    assert_eq!(fetch.next, fetched.calls().count());
    Ok(fetched.calls().count())
}

/// A large block is read only if there is room for it, which is told before.
#[test]
fn a_call_that_needs_more_than_there_is_says_how_much() {
    let mut bench = with_large_values();
    let page = PageRequest {
        direction: Direction::Forward,
        keys_only: false,
        rows: 1_000,
        entries: 1_000,
        bytes: 64 << 10,
    };
    let one = LARGE..LARGE + 16_384;
    for is_in_table in [false, true] {
        if is_in_table {
            bench.writer.seal(u64::MAX);
            bench.writer.index().flush().expect("there is room");
        }
        for _ in 0..2 {
            let mut plan = ReadPlan::default();
            plan.begin(1, b"");
            plan.key(&[2, 3]);
            let needed = brings(&bench, &mut plan, LARGE / 2).expect_err("it is large");
            assert!(one.contains(&needed), "{needed}");
            for key in [&[1, 50][..], &[2, 3]] {
                plan.begin(1, b"");
                plan.key(key);
            }
            assert_eq!(brings(&bench, &mut plan, LARGE / 2), Ok(1), "the small one");
            for number in 0..4 {
                plan.begin(1, b"");
                plan.key(&[2, number]);
            }
            assert_eq!(brings(&bench, &mut plan, 2 * one.end), Ok(2));
        }
    }
    for _ in 0..2 {
        let mut plan = ReadPlan::default();
        plan.begin(1, b"");
        plan.keys(
            3 * LARGE,
            (0..4)
                .map(|number| [2, number])
                .collect::<Vec<_>>()
                .iter()
                .map(|key| &key[..]),
        );
        let needed = brings(&bench, &mut plan, limits::FETCHED_BYTES / 2);
        let needed = needed.expect_err("three are more, and end the call");
        assert!((3 * one.start..3 * one.end).contains(&needed), "{needed}");
        let walks: [fn(&mut ReadPlan, PageRequest); 2] = [
            |plan, page| plan.page(&Range::ALL, page),
            |plan, _| plan.count(&Range::ALL, 1_000, false),
        ];
        for walk in walks {
            for (most_bytes, is_enough) in [(0, false), (1, true)] {
                plan.begin(1, b"");
                walk(&mut plan, page);
                let most_bytes = limits::WALK_BYTES + most_bytes * one.end;
                assert_eq!(brings(&bench, &mut plan, most_bytes).is_ok(), is_enough);
            }
        }
    }
}

/// Where no block is large, a walk needs no more than what it may read; that is noticed anew when
/// the tables have changed.
#[test]
fn a_walk_over_small_blocks_needs_nothing_beside() {
    let mut bench = Bench::new(6);
    for large in [false, true] {
        bench.commits(100);
        if large {
            let last = bench.log.last().expect("there are commits");
            let commit = Logged {
                sequence: last.sequence + 1,
                changes: [(vec![3], Some((vec![3; LARGE], 0)))].into(),
            };
            apply(&mut bench.writer, &commit);
            bench.log.push(commit);
        }
        bench.writer.seal(u64::MAX);
        bench.writer.index().flush().expect("there is room");
        for _ in 0..2 {
            assert_eq!(bench.writer.index().view().has_large_blocks(), large);
            let mut plan = ReadPlan::default();
            plan.begin(1, b"");
            plan.count(&Range::ALL, 1_000, false);
            let is_enough = brings(&bench, &mut plan, limits::WALK_BYTES).is_ok();
            assert_eq!(is_enough, !large);
        }
    }
}
