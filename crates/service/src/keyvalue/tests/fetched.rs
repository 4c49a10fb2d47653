//! Reads of databases on disk: what a call plan is all that it looks at. Before each read the
//! content of the store is put into a tree, and the call is shown what is fetched from there.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use store::tree::{Fetch, Generation, ReadPlan, TreeConfig, TreeIndex, Trees};
use store::{Direction, Entry, IndexView, Range, View};
use testkit::suite::StandingClock;

use super::*;

thread_local! {
    static ON_DISK: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test once more, with reads from trees.
pub(crate) fn on_disk(test: impl FnOnce()) {
    ON_DISK.set(true);
    test();
    ON_DISK.set(false);
}

/// What a call is shown in this test; for one on disk only what it has planned.
pub(super) fn read(
    call: &mut ServiceCall,
    (database, kept): (DatabaseId, &[u8]),
    shared: &Shared,
    room: &mut Room<'_>,
    copy: &mut Option<Copy>,
) {
    if let IndexView::Disk(tree) = shared.store.index_view(database) {
        show(call, kept, tree, shared, room);
        return;
    }
    let view = shared.store.view(database);
    let view = view.expect("no database is dropped here");
    if !ON_DISK.get() {
        return call.read(&ReadView::memory(&view), kept, shared, room);
    }
    let is_old = |copy: &Copy| copy.of != (database, view.sequence());
    if copy.as_ref().is_none_or(is_old) {
        *copy = Some(Copy::of(database, &view));
    }
    let tree = copy.as_ref().expect("it was just made").tree.clone();
    let sequence = view.sequence();
    let shown = show(call, kept, tree, shared, room);
    assert_eq!(shown, sequence);
}

/// Shows a call what it plans to read of a tree; returns the last commit in there.
fn show(
    call: &mut ServiceCall,
    kept: &[u8],
    tree: TreeIndex,
    shared: &Shared,
    room: &mut Room<'_>,
) -> u64 {
    // What is fetched is fetched by the clock of the store.
    shared.store.clock_ms(room.now_ms);
    let mut plan = ReadPlan::default();
    plan.begin(1, kept);
    call.plan_reads(kept, &mut plan);
    let mut fetch = Fetch::new(tree, &mut plan);
    let fetched = fetch
        .run(&shared.store, usize::MAX)
        .expect("it may need all");
    assert!(fetch.is_done());
    let brought = fetched.calls().next().expect("there is one call");
    assert_eq!((brought.tag(), brought.kept()), (1, kept));
    let view = ReadView::fetched(&brought).expect("the tree is whole");
    call.read(&view, brought.kept(), shared, room);
    view.sequence()
}

/// A tree with the content of a database in memory.
pub(super) struct Copy {
    /// The database, and its last commit.
    of: (DatabaseId, u64),
    tree: TreeIndex,
    _folder: Folder,
}

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pelton-service-{}-{number}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Copy {
    fn of(database: DatabaseId, view: &View<'_>) -> Copy {
        let folder = Folder::new();
        let trees = Trees::open(&folder.0, TreeConfig::default()).expect("there is room");
        let generation = Generation {
            database: DatabaseId::DEFAULT,
            sequence: 0,
        };
        let mut writer = trees.create(generation).expect("there is room");
        let mut entries: Vec<Entry<'_>> = Vec::new();
        view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
            entries.push(*entry);
            std::ops::ControlFlow::Continue(())
        });
        entries.sort_by_key(|entry| entry.version);
        for alike in entries.chunk_by(|one, other| one.version == other.version) {
            alike.iter().for_each(|entry| writer.put(entry));
            writer.end_commit(alike[0].version);
        }
        writer.end_commit(view.sequence());
        Copy {
            of: (database, view.sequence()),
            tree: writer.index().clone(),
            _folder: folder,
        }
    }
}

/// A bench whose default database is on disk, with values of at most this many bytes, and no
/// entries.
fn bench_on_disk(value_bytes: usize) -> (Bench, Folder) {
    let folder = Folder::new();
    let default_database = DatabaseConfig {
        limits: DatabaseLimits::for_values(value_bytes),
        ..DatabaseConfig::default()
    };
    let config = StoreConfig {
        default_database,
        ..StoreConfig::new(1)
    };
    let mut clock = StandingClock { now_ms: 1_000_000 };
    let (store, _rounds) = testkit::store_on_disk(&folder.0, config, 1 << 20, &mut clock);
    let mut bench = Bench::new();
    bench.batch = store.write_batch();
    bench.committer = store.committer();
    bench.shared.store = store;
    (bench, folder)
}

/// Memory for all that may be fetched is taken before anything is done, and set aside until it is
/// answered.
#[test]
fn a_batch_of_reads_takes_memory_for_what_is_fetched() {
    let (mut bench, _folder) = bench_on_disk(100_000);
    for (count, bound, server_bound, fetched_bytes) in [
        (0, 0, u64::MAX, 0),
        (3, 0, u64::MAX, 300_000),
        (3, 300_001, u64::MAX, 300_000),
        (3, 299_999, u64::MAX, 299_999),
        (3, 299_999, 200_000, 200_000),
        (3, 0, 200_000, 200_000),
    ] {
        let mut request = Vec::new();
        let operations = vec![batches::get(b"a"); count];
        let mode = Mode::Independent;
        testkit::keyvalue::encode_batch(&mut request, "", mode, bound, &operations);
        bench.shared.answer_bytes_max = server_bound;
        let ended = bench.steps(Method::Batch, |call, shared, room| {
            room.bring(call, &request, true, shared);
            assert_eq!(room.asked_bytes, request.len() + fetched_bytes);
            assert_eq!(room.reserved_bytes, request.len() + fetched_bytes);
            // Nothing is left to ask for when it is answered.
            room.room = usize::from(count == 0);
        });
        let response = api::keyvalue::BatchResponse::decode(ended.answer());
        let response = response.expect("it is a message");
        assert_eq!(batches::results(&response).len(), count);
        assert_eq!(ended.claims, []);
    }
}

#[test]
fn single_reads() {
    on_disk(single::what_was_put_is_found);
    on_disk(single::large_values_come_back_whole);
    on_disk(single::a_time_to_live_ends);
}

#[test]
fn batches_of_reads() {
    on_disk(batches::reads_come_from_one_view);
    on_disk(batches::an_answer_that_could_be_too_large_is_refused_before_anything_happens);
    on_disk(batches::the_answer_keeps_to_its_bound_at_every_bound);
}

#[test]
fn scans() {
    on_disk(ranges::ranges_and_prefixes_both_ways);
    on_disk(ranges::limits_and_cursors);
    on_disk(ranges::keys_only_leaves_values_out);
    on_disk(ranges::pages_end_by_bytes_and_by_rows);
    on_disk(ranges::large_entries_stand_alone);
    on_disk(ranges::a_scan_sends_only_when_it_may);
    on_disk(ranges::expired_entries_are_not_shown);
}

#[test]
fn counts_walk_and_estimates_come_at_once() {
    on_disk(|| {
        let mut bench = Bench::new();
        let keys = crate::limits::COUNT_SLICE_ROWS as usize + 10;
        bench.fill((0..keys).map(|number| format!("{number:06}")), b"");
        let count = bench.count(None);
        assert_eq!(
            (count.count, count.exact, count.views),
            (keys as u64, true, 2)
        );
        let mut request = Vec::new();
        api::keyvalue::CountRequest {
            precision: api::keyvalue::CountPrecision::Estimate.number(),
            ..api::keyvalue::CountRequest::default()
        }
        .encode(&mut request);
        let ended = bench.call(Method::Count, &request);
        let count = api::keyvalue::CountResponse::decode(ended.answer()).expect("it is a message");
        // Few enough to be counted although nobody asked for it.
        assert_eq!(
            (count.count, count.exact, count.views),
            (keys as u64, true, 1)
        );
    });
}
