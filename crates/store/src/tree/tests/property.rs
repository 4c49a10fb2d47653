//! Random histories: commits, seals, flushes, compactions, starts and clears, with views held
//! across them.

use super::*;
use crate::tree::Fate;
use crate::tree::key::given;
use crate::tree::walk::WalkBounds;

const NOW_MS: u64 = 1000;

struct Bench {
    random: Random,
    folder: TempFolder,
    writer: Option<TreeWriter>,
    log: Vec<Logged>,
    content: Content,
    views: Vec<(TreeView, Content)>,
    compactions: usize,
    starts: usize,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let folder = TempFolder::new("property");
        let trees = Trees::open(&folder.0, small()).expect("the folder is new");
        let writer = trees.create(GENERATION).expect("there is room");
        Bench {
            random: Random::new(seed),
            folder,
            writer: Some(writer),
            log: Vec::new(),
            content: Content::new(),
            views: Vec::new(),
            compactions: 0,
            starts: 0,
        }
    }

    fn writer(&mut self) -> &mut TreeWriter {
        self.writer
            .as_mut()
            .expect("it is put back after each start")
    }

    fn last(&self) -> u64 {
        self.log
            .last()
            .map_or(GENERATION.sequence, |commit| commit.sequence)
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..9 => {
                let last = self.last();
                let commit = random_commit(&mut self.random, last);
                apply(self.writer(), &commit);
                self.log.push(commit);
                self.content = content(&self.log);
            }
            9..11 => {
                let last = self.last();
                let durable = last - self.random.below(3) as u64;
                let could = self.writer().can_seal();
                let did = self.writer().seal(durable);
                assert!(could || !did);
                assert!(!could || did || durable < last, "nothing was in the way");
            }
            11..13 => drop(self.writer().index().flush().expect("there is room")),
            13..15 => {
                while self.writer().index().compact().expect("there is room") {
                    self.compactions += 1;
                }
            }
            15..17 => {
                if self.views.len() == 4 {
                    let place = self.random.below(4);
                    self.views.remove(place);
                }
                let view = self.writer().index().view();
                self.views.push((view, self.content.clone()));
            }
            17 if self.random.once_in(8) => self.start(),
            _ => self.check(),
        }
    }

    /// The process ends and begins again.
    fn start(&mut self) {
        self.views.clear();
        self.writer = None;
        let mut writer = open(&self.folder.0);
        assert!(writer.index().persisted_sequence() <= self.last());
        replay(&mut writer, &self.log);
        self.writer = Some(writer);
        self.starts += 1;
    }

    fn check(&mut self) {
        let view = self.writer().index().view();
        assert_eq!(view.sequence(), self.last());
        assert_eq!(all_of(&view), self.content);
        let key = random_key(&mut self.random);
        let writer = self
            .writer
            .as_ref()
            .expect("it is put back after each start");
        check_in_memory(writer, &key, &self.content);
        let is_known = |key: &Vec<u8>| writer.find_in_memory(key) != InMemory::Unknown;
        if let Some(last) = self.log.last()
            && writer.index().persisted_sequence() < last.sequence
        {
            // What is in no table is in a memtable.
            assert!(last.changes.keys().all(is_known));
        }
        for place in 0..self.views.len() {
            let (view, content) = &self.views[place];
            check_view(&mut self.random, view, content);
        }
    }
}

fn check_view(random: &mut Random, view: &TreeView, content: &Content) {
    for _ in 0..10 {
        let key = random_key(random);
        let found = view.find(&key).expect("the tree is whole");
        let found = found.map(|entry| (entry.value.to_vec(), entry.version, entry.expires_ms));
        assert_eq!(found.as_ref(), content.get(&key), "{key:?}");
        let live = view.get(&key, NOW_MS).expect("the tree is whole").is_some();
        let expected = content
            .get(&key)
            .is_some_and(|entry| entry.2 == 0 || entry.2 > NOW_MS);
        assert_eq!(live, expected);
    }
    let (one, two) = (random_key(random), random_key(random));
    let range = random.pick(&[
        Range::ALL,
        Range::new(&one, Some(&two)),
        Range::new(&one, None),
    ]);
    let is_live = |entry: &(Vec<u8>, u64, u64)| entry.2 == 0 || entry.2 > NOW_MS;
    let expected: Vec<_> = content
        .iter()
        .filter(|(key, entry)| range.contains(key) && is_live(entry))
        .map(|(key, _)| key.clone())
        .collect();
    check_scan(random, view, range, Direction::Forward, &expected);
    let reversed: Vec<_> = expected.iter().rev().cloned().collect();
    check_scan(random, view, range, Direction::Backward, &reversed);
    check_walks(random, view, range, content);
    check_count(random, view, range, expected.len() as u64);
    check_expired(random, view, range, content);
}

fn check_scan(
    random: &mut Random,
    view: &TreeView,
    range: Range<'_>,
    direction: Direction,
    expected: &[Vec<u8>],
) {
    let budget_rows = 1 + random.below(60) as u32;
    let stop_after = 1 + random.below(200);
    let (mut found, mut rest) = (Vec::new(), range);
    loop {
        let mut rows = 0;
        let end = view.scan(&rest, direction, NOW_MS, budget_rows, &mut |entry| {
            rows += 1;
            found.push(entry.key.to_vec());
            if found.len() == stop_after {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert!(rows <= budget_rows);
        match end.expect("the tree is whole") {
            ScanEnd::BudgetSpent(passed) => rest = rest.beyond(passed, direction),
            ScanEnd::Complete => return assert_eq!(found, expected),
            ScanEnd::Stopped => return assert_eq!(found, expected[..stop_after]),
        }
    }
}

/// Walks with bounds so narrow that most end among what is passed over, and among the versions of
/// a key.
fn check_walks(random: &mut Random, view: &TreeView, range: Range<'_>, content: &Content) {
    for direction in [Direction::Forward, Direction::Backward] {
        let bounds = WalkBounds {
            rows: 1 + random.below(60) as u32,
            passed_over: 1 + random.below(60) as u32,
            bytes: 1 + random.below(20_000),
        };
        let (mut found, mut passed) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let rest = match &passed {
                None => range,
                Some(passed) => range.beyond(passed, direction),
            };
            let mut rows = 0;
            let ended = view.walk_within(&rest, direction, bounds, &mut |key, _| {
                rows += 1;
                found.push(given(key).to_vec());
                Ok(ControlFlow::Continue(()))
            });
            assert!(rows <= bounds.rows);
            match ended.expect("the tree is whole") {
                Some(key) => passed = Some(given(&key).to_vec()),
                None => break,
            }
        }
        let in_range = content.keys().filter(|key| range.contains(key));
        let mut expected: Vec<_> = in_range.cloned().collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(found, expected);
    }
}

fn check_count(random: &mut Random, view: &TreeView, range: Range<'_>, expected: u64) {
    let budget_rows = 1 + random.below(60) as u32;
    let (mut count, mut rest) = (0, range);
    loop {
        let slice = view
            .count(&rest, NOW_MS, budget_rows)
            .expect("the tree is whole");
        count += slice.count;
        match slice.passed {
            Some(passed) => rest = rest.beyond(passed, Direction::Forward),
            None => return assert_eq!(count, expected),
        }
    }
}

fn check_expired(random: &mut Random, view: &TreeView, range: Range<'_>, content: &Content) {
    let budget_rows = 1 + random.below(60) as u32;
    let (mut found, mut rest) = (Vec::new(), range);
    while let Some(passed) = view
        .expired(&rest, NOW_MS, budget_rows, &mut |key, _| {
            found.push(key.to_vec())
        })
        .expect("the tree is whole")
    {
        rest = rest.beyond(passed, Direction::Forward);
    }
    let has_expired = |entry: &(Vec<u8>, u64, u64)| entry.2 != 0 && entry.2 <= NOW_MS;
    let expected: Vec<_> = content
        .iter()
        .filter(|(key, entry)| range.contains(key) && has_expired(entry))
        .map(|(key, _)| key.clone())
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn a_tree_equals_the_model() {
    let (mut compactions, mut starts) = (0, 0);
    for seed in 0..8 {
        println!("seed {seed}");
        let mut bench = Bench::new(seed);
        for _ in 0..400 {
            bench.step();
        }
        bench.check();
        compactions += bench.compactions;
        starts += bench.starts;
    }
    assert!(compactions > 15 && starts > 4, "{compactions} {starts}");
}

#[test]
fn the_longest_keys_and_large_values_survive() {
    let mut random = Random::new(1);
    let folder = TempFolder::new("longest");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    let mut writer = trees.create(GENERATION).expect("there is room");
    let long = crate::tree::limits::KEY_BYTES;
    let mut log = Vec::new();
    for (key, len) in [
        (vec![0; long], 0),
        (vec![0xff; long], 1),
        (vec![], 4_000_000),
        (b"key".to_vec(), 4_000_000),
    ] {
        let value = (0..len).map(|_| random.number() as u8).collect();
        let sequence = 6 + log.len() as u64;
        let changes = BTreeMap::from([(key, Some((value, 0)))]);
        log.push(Logged { sequence, changes });
        apply(&mut writer, &log[log.len() - 1]);
    }
    let expected = content(&log);
    assert_eq!(all_of(&writer.index().view()), expected);
    assert!(writer.seal(u64::MAX) && writer.index().flush().expect("there is room"));
    assert_eq!(all_of(&writer.index().view()), expected);
    drop(writer);
    let writer = open(&folder.0);
    assert_eq!(writer.index().persisted_sequence(), 9);
    assert_eq!(all_of(&writer.index().view()), expected);
}

/// Compaction may change the set of tables as often as it likes while nobody commits: later commits
/// are seen.
#[test]
fn numbers_between_commits_do_not_run_out() {
    let folder = TempFolder::new("numbers");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    let mut writer = trees.create(GENERATION).expect("there is room");
    let mut log = Vec::new();
    let mut random = Random::new(3);
    for round in 0..40 {
        let commit = random_commit(&mut random, 5 + 4 * round);
        apply(&mut writer, &commit);
        log.push(commit);
        writer.seal(u64::MAX);
        writer.index().flush().expect("there is room");
        while writer.index().compact().expect("there is room") {}
        writer.seal(u64::MAX);
        assert_eq!(all_of(&writer.index().view()), content(&log));
    }
    let statistics = writer.index().statistics();
    let known = writer.index().shared.tables.first_level_runs();
    assert_eq!(known, statistics.first_level_runs);
    // As if so many versions had come between two commits.
    let numbers = &writer.index().shared.counters.numbers;
    numbers.fetch_max(numbers.get() + crate::tree::limits::CHANGES_PER_COMMIT);
    assert!(!writer.index().compact().expect("there is room"));
}

/// Many versions of the set of tables between two commits, then a rotation between two more with
/// the next sequences: the last commit must be seen in the newest version, not looked for in one of
/// the many.
#[test]
fn a_commit_behind_many_versions_is_seen() {
    let folder = TempFolder::new("versions");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    let mut writer = trees.create(GENERATION).expect("there is room");
    let mut random = Random::new(5);
    let mut log = Vec::new();
    for sequence in 10..40 {
        let commit = Logged {
            sequence,
            ..random_commit(&mut random, sequence)
        };
        apply(&mut writer, &commit);
        log.push(commit);
        assert_eq!(
            all_of(&writer.index().view()),
            content(&log),
            "at {sequence}"
        );
        if sequence % 3 == 0 && writer.seal(u64::MAX) {
            writer.index().flush().expect("there is room");
            for _ in 0..8 {
                let tree = writer.index().shared.engine.get().expect("it is made");
                let merged = lsm_tree::AbstractTree::major_compact(tree, 1 << 20, 0);
                merged.expect("there is room");
            }
        } else if sequence % 3 == 1 {
            writer.seal(u64::MAX);
        }
        assert_eq!(
            all_of(&writer.index().view()),
            content(&log),
            "at {sequence}"
        );
    }
}

/// While the engine installs tables, a memtable can be sealed and commits go on. Versions that the
/// engine makes without knowing of them hide none of them, neither then nor afterwards.
#[test]
fn a_seal_does_not_wait_for_the_engine() {
    let folder = TempFolder::new("ahead");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    let mut writer = trees.create(GENERATION).expect("there is room");
    let mut random = Random::new(6);
    let mut log: Vec<Logged> = Vec::new();
    let mut commit = |writer: &mut TreeWriter, log: &mut Vec<Logged>| {
        let last = log.last().map_or(9, |commit| commit.sequence);
        let commit = random_commit(&mut random, last);
        apply(writer, &commit);
        log.push(commit);
    };
    for _ in 0..20 {
        for _ in 0..3 {
            commit(&mut writer, &mut log);
        }
        let index = writer.index().clone();
        {
            let _installing = index.hold_reads();
            assert!(writer.seal(u64::MAX) && index.wants_flush());
            commit(&mut writer, &mut log);
            assert_eq!(index.sequence(), log[log.len() - 1].sequence);
        }
        let (view, expected) = (index.view(), content(&log));
        assert_eq!(all_of(&view), expected);
        // As a flush does that ends now.
        index.shared.forget_flushed();
        assert!(index.wants_flush(), "it is not on the device");
        let tree = index.shared.engine.get().expect("it is made");
        let merged = lsm_tree::AbstractTree::major_compact(tree, 1 << 20, 0);
        merged.expect("there is room");
        assert_eq!(all_of(&view), expected, "in an older version");
        assert_eq!(all_of(&index.view()), expected, "in the new version");
        let statistics = index.statistics();
        index.hand_over();
        assert_eq!(index.statistics(), statistics);
        assert_eq!(all_of(&view), expected, "begun before it was handed over");
        assert_eq!(all_of(&index.view()), expected, "handed over");
        assert!(index.flush().expect("there is room") && !index.wants_flush());
        assert_eq!(all_of(&view), expected, "flushed");
        assert_eq!(all_of(&index.view()), expected, "begun behind the flush");
    }
}

#[test]
fn a_clear_is_another_generation() {
    let folder = TempFolder::new("clear");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    let mut random = Random::new(4);
    let mut writer = trees.create(GENERATION).expect("there is room");
    let commit = random_commit(&mut random, 10);
    apply(&mut writer, &commit);
    let view = writer.index().view();
    let cleared = Generation {
        sequence: 20,
        ..GENERATION
    };
    let new = trees.create(cleared).expect("there is room");
    assert_eq!(new.index().persisted_sequence(), 20);
    writer.index().discard();
    drop(writer);
    assert_eq!(
        trees.generations().expect("it can be read"),
        [GENERATION, cleared]
    );
    assert_eq!(all_of(&view), content(&[commit]));
    drop(view);
    assert_eq!(trees.generations().expect("it can be read"), [cleared]);
    assert!(all_of(&new.index().view()).is_empty());
}

#[test]
fn what_nobody_knows_is_removed_at_a_start() {
    let folder = TempFolder::new("others");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    let older = Generation {
        sequence: 2,
        ..GENERATION
    };
    drop(trees.create(older).expect("there is room"));
    drop(trees.create(GENERATION).expect("there is room"));
    for name in ["3-5.new", "9-1.new", "notes"] {
        std::fs::create_dir(folder.0.join(name)).expect("there is room");
    }
    let fate = |generation| match generation {
        GENERATION => Fate::Needed,
        _ => Fate::Ended,
    };
    trees.clear_away(&fate, 0).expect("it can be removed");
    let mut names: Vec<_> = std::fs::read_dir(&folder.0)
        .expect("it is there")
        .map(|file| file.expect("it is there").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["3-5", "notes"]);
    // One that is there already is from an attempt that nobody knows of.
    let mut writer = open(&folder.0);
    let commit = random_commit(&mut Random::new(1), 10);
    apply(&mut writer, &commit);
    assert!(writer.seal(u64::MAX) && writer.index().flush().expect("there is room"));
    drop(writer);
    let writer = trees.create(GENERATION).expect("there is room");
    assert!(all_of(&writer.index().view()).is_empty());
}

#[test]
fn only_what_is_durable_is_sealed() {
    let folder = TempFolder::new("durable");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    let mut writer = trees.create(GENERATION).expect("there is room");
    assert!(!writer.can_seal() && !writer.seal(u64::MAX));
    let changes = BTreeMap::from([(b"key".to_vec(), Some((vec![7; 5000], 0)))]);
    apply(
        &mut writer,
        &Logged {
            sequence: 10,
            changes,
        },
    );
    // A commit that changes nothing here holds nothing up.
    writer.end_commit(12);
    assert!(writer.wants_seal() && !writer.seal(9));
    assert!(!writer.index().wants_flush());
    assert!(writer.seal(10) && writer.index().wants_flush());
    assert!(!writer.wants_seal());
    assert!(writer.index().flush().expect("there is room"));
    assert!(!writer.index().wants_flush());
    assert_eq!(writer.index().persisted_sequence(), 10);
    assert_eq!(writer.find_in_memory(b"key"), InMemory::Unknown);
}
