//! Whose uploads make room for others.

use std::sync::Arc;

use store::blob::{Begin, Upload, UploadBound, UploadError, UploadPeer};
use wal::disk::{Fault, Step};

use super::{Bench, DATABASE, Told, begin, chunk, config, content};

const PLACES: usize = 10;
const STALLED_MS: u64 = store::blob::limits::STALLED_UPLOAD_MS;
const STALLED_FOR_NEWCOMER_MS: u64 = store::blob::limits::STALLED_FOR_NEWCOMER_MS;
const PACE_BYTES: usize = store::blob::limits::UPLOAD_PACE_BYTES as usize;
const ABANDONED_MS: u64 = store::blob::limits::ABANDONED_MS;

fn peer(number: u8) -> UploadPeer {
    UploadPeer::with_address([192, 0, 2, number].into())
}

fn few_places() -> store::StoreConfig {
    let mut config = config();
    config.blobs.uploads_per_database = PLACES;
    config
}

fn start(
    bench: &Bench,
    name: &str,
    of: u8,
    now_ms: u64,
) -> (Result<Upload, UploadError>, Arc<Told>) {
    let owner = Told::of(peer(of));
    let begin = Begin {
        now_ms,
        ..begin(name, "id", 0)
    };
    let upload = bench.blobs().begin_upload(&begin, owner.clone());
    (upload, owner)
}

/// Begins an upload and leaves it behind with so many bytes.
fn leave_half(bench: &Bench, name: &str, of: u8, bytes: usize, now_ms: u64) {
    let upload = start(bench, name, of, now_ms).0.expect("there is room");
    let data = content(1, bytes);
    upload
        .write(&data, &[chunk(&data)], now_ms)
        .expect("it fits");
}

fn names(bench: &Bench) -> Vec<String> {
    let uploads = bench.blobs().uploads(DATABASE);
    uploads
        .iter()
        .map(|upload| upload.name.to_string())
        .collect()
}

#[test]
fn half_uploads_of_the_peer_with_most_make_room_oldest_first() {
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(few_places(), &disk).expect("it is empty");
    for round in 0..2_u64 {
        let at = |ms: u64| round * 1_000_000 + ms;
        // Peer 2 is there first, with the oldest ones.
        leave_half(&bench, "b0", 2, 10, at(1));
        leave_half(&bench, "b1", 2, 10, at(2));
        for number in 0..PLACES - 2 {
            leave_half(&bench, &format!("a{number}"), 1, 10, at(10 + number as u64));
        }
        assert_eq!(bench.files(&disk).len(), PLACES);
        // Neither peer 3 nor the one with most takes anything from peer 2.
        leave_half(&bench, "c", 3, 10, at(100));
        leave_half(&bench, "a8", 1, 10, at(101));
        let expected = ["a2", "a3", "a4", "a5", "a6", "a7", "a8", "b0", "b1", "c"];
        assert_eq!(names(&bench), expected, "round {round}");
        assert_eq!(bench.files(&disk).len(), PLACES);
        assert_eq!(bench.blobs().used(DATABASE).bytes, 10 * PLACES as u64);
        for name in expected {
            assert_eq!(bench.blobs().discard_uploads(DATABASE, name, b"id"), 1);
            assert_eq!(bench.blobs().discard_uploads(DATABASE, name, b"id"), 0);
        }
        assert_eq!(bench.files(&disk), Vec::<String>::new());
        assert_eq!(bench.blobs().used(DATABASE).bytes, 0);
    }
    assert_eq!(bench.blobs().statistics().evicted_uploads, 4);
}

#[test]
fn uploads_of_an_earlier_run_count_as_those_of_one_peer() {
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(few_places(), &disk).expect("it is empty");
    for number in 0..PLACES {
        let of = number as u8;
        leave_half(&bench, &format!("a{number}"), of, 10, 10 + number as u64);
    }
    drop(bench);
    let bench = Bench::open(few_places(), &disk).expect("it was closed");
    let is_unknown = |peer| peer == UploadPeer::Unknown;
    assert!(
        bench
            .blobs()
            .uploads(DATABASE)
            .iter()
            .all(|upload| is_unknown(upload.peer))
    );
    for number in 0..4 {
        leave_half(&bench, &format!("c{number}"), 7, 10, 1_000);
    }
    let expected = ["a4", "a5", "a6", "a7", "a8", "a9", "c0", "c1", "c2", "c3"];
    assert_eq!(names(&bench), expected);
    // Whoever goes on with one has it.
    let begin = begin("a4", "id", 10);
    let resumed = bench.blobs().begin_upload(&begin, Told::of(peer(9)));
    drop(resumed.expect("it goes on"));
    leave_half(&bench, "d", 8, 10, 2_000);
    assert_eq!(names(&bench)[..2], ["a4", "a6"]);
}

#[test]
fn open_uploads_make_room_only_when_they_stand_still_and_their_peer_has_most() {
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(few_places(), &disk).expect("it is empty");
    let (mut open, mut owners) = (Vec::new(), Vec::new());
    for of in 1..=4 {
        for number in 0..PLACES {
            match start(&bench, &format!("{of}-{number}"), of, 1_000) {
                (Ok(upload), owner) => {
                    open.push(upload);
                    owners.push(owner);
                }
                (Err(_), _) => break,
            }
        }
    }
    assert_eq!(open.len(), PLACES);
    let refused = start(&bench, "c", 5, 2_000).0;
    assert!(
        matches!(
            refused,
            Err(UploadError::TooMany {
                uploads: PLACES,
                of: UploadBound::Database,
            })
        ),
        "{refused:?}"
    );
    // One upload of peer 1 goes on; all others stand still.
    let now_ms = 1_000 + STALLED_MS;
    let data = content(1, PACE_BYTES);
    open[0]
        .write(&data, &[chunk(&data)], now_ms)
        .expect("it fits");
    let (upload, _owner) = start(&bench, "c", 5, now_ms);
    let upload = upload.expect("one has made room");
    let told: Vec<usize> = (0..PLACES)
        .filter(|&at| !owners[at].take().is_empty())
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    let victim = told[0];
    // Peer 1 has most.
    assert!((1..PLACES / 2).contains(&victim), "{victim}");
    let written = open[victim].write(b"a", &[chunk(b"a")], now_ms);
    assert!(matches!(written, Err(UploadError::Evicted)), "{written:?}");
    drop(upload);
    drop(open);
    // One that can be gone on with goes before any that stands still.
    assert_eq!(names(&bench).len(), PLACES);
}

/// A few peers that hold all places with a byte now and then leave one to each newcomer, and not a
/// second one.
#[test]
fn a_newcomer_takes_the_place_of_an_upload_that_hardly_moves() {
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(few_places(), &disk).expect("it is empty");
    let (mut open, mut now_ms) = (Vec::new(), 1_000);
    for of in 1..=4 {
        open_as_many_at(&bench, of, &mut open, now_ms);
    }
    assert_eq!(open.len(), PLACES);
    // One upload of the first peer goes on; all others dribble.
    let begun_ms = now_ms;
    while now_ms < begun_ms + STALLED_FOR_NEWCOMER_MS {
        now_ms += 1_000;
        let data = content(1, PACE_BYTES / 8);
        open[0].write(&data, &[chunk(&data)], now_ms).expect("fits");
        for upload in &open[1..] {
            upload.write(b"a", &[chunk(b"a")], now_ms).expect("it fits");
        }
        let is_soon = now_ms < begun_ms + STALLED_FOR_NEWCOMER_MS;
        assert!(!is_soon || start(&bench, "soon", 5, now_ms).0.is_err());
    }
    let newcomer = start(&bench, "new", 5, now_ms).0.expect("room is made");
    let more = start(&bench, "more", 5, now_ms).0;
    assert!(more.is_err(), "it has one, and others are not idle for it");
    let data = content(1, 10);
    open[0]
        .write(&data, &[chunk(&data)], now_ms)
        .expect("goes on");
    let evicted = open[1].write(b"a", &[chunk(b"a")], now_ms);
    assert!(matches!(evicted, Err(UploadError::Evicted)), "{evicted:?}");
    for upload in &open[PLACES / 2..] {
        let written = upload.write(b"a", &[chunk(b"a")], now_ms);
        written.expect("these peers have fewer");
    }
    drop(newcomer);
}

/// The same for the file descriptors of open uploads, of which those of all databases share some.
#[test]
fn a_newcomer_gets_the_descriptor_of_an_upload_that_hardly_moves() {
    let disk = testkit::simulated_disk(3);
    let mut few_open = config();
    few_open.blobs.open_uploads = PLACES;
    let bench = Bench::open(few_open, &disk).expect("it is empty");
    // Left behind, without a descriptor: of no use to whoever needs one.
    leave_half(&bench, "half", 9, 10, 500);
    let mut open = Vec::new();
    for of in 1..=4 {
        open_as_many_at(&bench, of, &mut open, 1_000);
    }
    assert_eq!(open.len(), PLACES);
    let refused = start(&bench, "new", 5, 2_000).0.map(drop);
    assert!(
        matches!(refused, Err(UploadError::Descriptors { .. })),
        "{refused:?}"
    );
    let now_ms = 1_000 + STALLED_FOR_NEWCOMER_MS;
    start(&bench, "new", 5, now_ms).0.expect("room is made");
    assert!(names(&bench).contains(&"half".to_string()));
}

#[test]
fn a_peer_has_half_of_the_places_for_open_uploads() {
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(few_places(), &disk).expect("it is empty");
    for _ in 0..2 {
        let open: Vec<Upload> = (0..PLACES / 2)
            .map(|number| start(&bench, &format!("a{number}"), 1, 1_000).0)
            .map(|upload| upload.expect("there is room"))
            .collect();
        let refused = start(&bench, "b", 1, 1_000).0;
        assert!(
            matches!(
                refused,
                Err(UploadError::TooMany {
                    uploads: 5,
                    of: UploadBound::Peer
                })
            ),
            "{refused:?}"
        );
        let other = start(&bench, "b", 2, 1_000).0;
        drop(other.expect("others have their places"));
        drop(open);
    }
}

/// How many uploads a peer can have open, of so many that it begins with names of its own.
fn open_as_many(bench: &Bench, of: u8, open: &mut Vec<Upload>) -> usize {
    open_as_many_at(bench, of, open, 1_000)
}

fn open_as_many_at(bench: &Bench, of: u8, open: &mut Vec<Upload>, now_ms: u64) -> usize {
    let begun = (0..2 * PLACES).map_while(|number| {
        let name = format!("{of}/{number}");
        start(bench, &name, of, now_ms).0.ok()
    });
    let before = open.len();
    open.extend(begun);
    open.len() - before
}

#[test]
fn two_peers_cannot_take_all_places() {
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(few_places(), &disk).expect("it is empty");
    for _ in 0..2 {
        let mut open = Vec::new();
        let shares = [1, 2, 3, 4, 5].map(|of| open_as_many(&bench, of, &mut open));
        assert_eq!(shares, [5, 3, 1, 1, 0]);
        // The first may have none in place of one that has ended, since others have come.
        open.remove(0);
        let refused = start(&bench, "more", 1, 1_000)
            .0
            .expect_err("it has its share");
        assert!(
            matches!(
                refused,
                UploadError::TooMany {
                    uploads: 3,
                    of: UploadBound::Peer
                }
            ),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("this address"), "{refused}");
        assert_eq!(open_as_many(&bench, 5, &mut open), 1);
        let refused = start(&bench, "more", 6, 1_000)
            .0
            .expect_err("all is used up");
        assert!(!refused.to_string().contains("most"), "{refused}");
        drop(open);
        for upload in bench.blobs().uploads(DATABASE) {
            bench.blobs().discard_uploads(DATABASE, &upload.name, b"id");
        }
    }
}

#[test]
fn uploads_that_are_gone_on_with_count_as_those_that_begin() {
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(few_places(), &disk).expect("it is empty");
    for number in 0..PLACES {
        leave_half(&bench, &format!("a{number}"), 2, 10, 10 + number as u64);
    }
    let resume = |number: usize, of: u8| {
        let begin = begin(&format!("a{number}"), "id", 10);
        bench.blobs().begin_upload(&begin, Told::of(peer(of)))
    };
    for _ in 0..2 {
        let open: Vec<Upload> = (0..PLACES / 2)
            .map(|number| resume(number, 1).expect("it has its share"))
            .collect();
        let refused = resume(PLACES / 2, 1).map(drop);
        assert!(
            matches!(
                refused,
                Err(UploadError::TooMany {
                    uploads: 5,
                    of: UploadBound::Peer
                })
            ),
            "{refused:?}"
        );
        // It takes what it has from itself, and what others have.
        drop(resume(0, 1).expect("it has it"));
        drop(resume(1, 3).expect("another has its share"));
        drop(resume(PLACES / 2, 1).expect("it has fewer now"));
        drop(open);
    }
    assert_eq!(names(&bench).len(), PLACES);
}

/// The file descriptors of open uploads are those of all databases.
#[test]
fn a_peer_has_half_of_the_open_uploads_of_all_databases() {
    let disk = testkit::simulated_disk(3);
    let mut few_open = config();
    few_open.blobs.open_uploads = 8;
    let bench = Bench::open(few_open, &disk).expect("it is empty");
    let start = |of: u8, number: u32| {
        let begin = Begin {
            database: [DATABASE, store::DatabaseId::BLOBS][number as usize % 2],
            ..begin(&format!("{of}/{number}"), "id", 0)
        };
        bench.blobs().begin_upload(&begin, Told::of(peer(of)))
    };
    for _ in 0..2 {
        let mut open = Vec::new();
        for (of, share) in [(1, 4), (2, 2), (3, 1), (4, 1)] {
            open.extend((0..share).map(|number| start(of, number).expect("it has its share")));
            let refused = start(of, 100).map(drop);
            let Err(UploadError::Descriptors { limit: 8, allowed }) = refused else {
                panic!("{refused:?}");
            };
            let is_all = open.len() == 8;
            assert_eq!(allowed, if is_all { 8 } else { share as usize });
        }
        drop(open);
    }
}

#[test]
fn uploads_that_begin_at_once_do_not_take_the_same_place() {
    const BEGINNERS: usize = 8;
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(few_places(), &disk).expect("it is empty");
    for round in 0..100 {
        let meeting = std::sync::Barrier::new(BEGINNERS);
        let begun: Vec<Upload> = std::thread::scope(|scope| {
            let beginners: Vec<_> = (0..BEGINNERS)
                .map(|number| {
                    let (bench, meeting) = (&bench, &meeting);
                    scope.spawn(move || {
                        meeting.wait();
                        start(bench, &format!("{round}/{number}"), 1, 1_000).0
                    })
                })
                .collect();
            let ended = beginners.into_iter().map(|beginner| beginner.join());
            ended
                .filter_map(|begun| begun.expect("no panic").ok())
                .collect()
        });
        assert_eq!(begun.len(), PLACES / 2, "round {round}");
        let unfinished = bench.blobs().used(DATABASE).unfinished;
        assert!(unfinished <= PLACES as u64, "round {round}: {unfinished}");
    }
}

#[test]
fn idle_uploads_make_room_for_bytes_but_not_for_those_of_a_peer_with_more() {
    let disk = testkit::simulated_disk(3);
    let mut small = few_places();
    small.blobs.quota_bytes = 1_000;
    let bench = Bench::open(small, &disk).expect("it is empty");
    for number in 0..3 {
        leave_half(&bench, &format!("a{number}"), 1, 250, 10 + number);
    }
    leave_half(&bench, "b", 2, 200, 1);
    let upload = start(&bench, "c", 3, 100).0.expect("there is a place");
    let data = content(2, 300);
    upload
        .write(&data, &[chunk(&data)], 100)
        .expect("room is made");
    assert_eq!(names(&bench), ["a1", "a2", "b", "c"]);
    // With 200 more it would have as much as the peer with most, and that is as far as it goes.
    let data = content(2, 200);
    upload
        .write(&data, &[chunk(&data)], 100)
        .expect("room is made");
    assert_eq!(names(&bench), ["a2", "b", "c"]);
    let refused = upload.write(&data, &[chunk(&data)], 100);
    assert!(
        matches!(refused, Err(UploadError::Quota { .. })),
        "{refused:?}"
    );
    assert_eq!(names(&bench), ["a2", "b", "c"], "none goes in vain");
    // One that announces what nobody could have takes nothing.
    let greedy = Begin {
        size_bytes: Some(u64::MAX),
        ..begin("d", "id", 0)
    };
    let refused = bench.blobs().begin_upload(&greedy, Told::of(peer(4)));
    assert!(refused.is_err());
    assert_eq!(names(&bench), ["a2", "b", "c"]);
    assert_eq!(bench.blobs().used(DATABASE).bytes, 250 + 200 + 500);
}

#[test]
fn a_full_disk_takes_idle_uploads_of_the_peer_with_most() {
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(few_places(), &disk).expect("it is empty");
    for round in 0..2 {
        leave_half(&bench, "a", 1, 300_000, 10);
        disk.set_capacity_bytes(disk.used_bytes() + 100_000);
        let data = content(2, 90_000);
        let upload = start(&bench, "c", 3, 100).0.expect("there is a place");
        upload
            .write(&data, &[chunk(&data)], 100)
            .expect("there is room");
        assert_eq!(names(&bench), ["a", "c"], "round {round}");
        upload
            .write(&data, &[chunk(&data)], 100)
            .expect("room is made");
        assert_eq!(names(&bench), ["c"], "round {round}");
        drop(upload);
        bench.blobs().discard_uploads(DATABASE, "c", b"id");
        disk.set_capacity_bytes(u64::MAX);
    }
}

#[test]
fn idle_uploads_keep_bounded_bytes_beside_the_largest() {
    let disk = testkit::simulated_disk(3);
    let mut small = few_places();
    small.blobs.idle_upload_bytes = 500;
    let bench = Bench::open(small, &disk).expect("it is empty");
    leave_half(&bench, "large", 2, 5_000, 1);
    leave_half(&bench, "b", 2, 300, 2);
    leave_half(&bench, "c", 3, 200, 3);
    assert_eq!(names(&bench), ["b", "c", "large"]);
    leave_half(&bench, "d", 3, 250, 4);
    assert_eq!(
        names(&bench),
        ["c", "d", "large"],
        "the peer with most is 2"
    );
    leave_half(&bench, "e", 3, 100, 5);
    assert_eq!(names(&bench), ["d", "e", "large"]);
    assert_eq!(bench.files(&disk).len(), 3);
}

#[test]
fn an_upload_that_was_gone_on_with_is_not_abandoned() {
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(few_places(), &disk).expect("it is empty");
    leave_half(&bench, "a", 1, 10, 1_000);
    let day_ms = 24 * 60 * 60 * 1_000;
    let resumed = Begin {
        now_ms: day_ms,
        ..begin("a", "id", 10)
    };
    drop(bench.start(&resumed).expect("it goes on"));
    let collect = |now_ms| {
        let mut batch = bench.durable.store.write_batch();
        bench
            .blobs()
            .collect(&bench.durable.store, now_ms, &mut batch);
    };
    collect(day_ms + 100_000);
    assert_eq!(names(&bench), ["a"]);
    collect(2 * day_ms + 100_000);
    assert_eq!(names(&bench), Vec::<String>::new());
}

/// How an upload that was left behind ends.
#[derive(Clone, Copy, Debug)]
enum Way {
    Evicted,
    Discarded,
    BegunAnew,
    Abandoned,
}

impl Way {
    /// Ends the upload `a`, which has 900 of 1000 bytes, and has `b` take its room.
    fn end(self, bench: &Bench) {
        let blobs = bench.blobs();
        let mut now_ms = 12;
        match self {
            Way::Evicted => {}
            Way::Discarded => assert_eq!(blobs.discard_uploads(DATABASE, "a", b"id"), 1),
            Way::BegunAnew => drop(start(bench, "a", 1, now_ms).0.expect("there is a place")),
            Way::Abandoned => {
                now_ms = ABANDONED_MS + 12;
                let mut batch = bench.durable.store.write_batch();
                blobs.collect(&bench.durable.store, now_ms, &mut batch);
            }
        }
        let resumed = blobs.begin_upload(&begin("b", "id", 50), Told::of(peer(2)));
        let upload = resumed.expect("it goes on");
        let data = content(1, 550);
        upload
            .write(&data, &[chunk(&data)], now_ms)
            .expect("there is room");
    }
}

/// Whatever changes of names a loss of power takes back.
#[test]
fn the_room_of_ended_uploads_is_free_only_when_their_removal_is_durable() {
    let mut small = few_places();
    small.blobs.quota_bytes = 1_000;
    for way in [Way::Evicted, Way::Discarded, Way::BegunAnew, Way::Abandoned] {
        for seed in 0..20 {
            let disk = testkit::simulated_disk(seed);
            let bench = Bench::open(small, &disk).expect("it is empty");
            // The name of `b` is on the device before it needs the room of `a`.
            leave_half(&bench, "b", 2, 50, ABANDONED_MS + 10);
            leave_half(&bench, "a", 1, 900, 11);
            way.end(&bench);
            assert_eq!(
                bench.blobs().used(DATABASE).bytes,
                600,
                "{way:?}, seed {seed}"
            );
            disk.lose_power();
            drop(bench);
            let bench = Bench::open(small, &disk).expect("it opens");
            let uploads = bench.blobs().uploads(DATABASE);
            let of_a = uploads.iter().filter(|upload| *upload.name == *"a");
            let bytes: u64 = of_a.map(|upload| upload.stored_bytes).sum();
            assert_eq!(bytes, 0, "{way:?}, seed {seed}: it is back");
            assert_eq!(
                bench.blobs().used(DATABASE).bytes,
                600,
                "{way:?}, seed {seed}"
            );
        }
    }
}

/// The room counts as taken until a restart, and no further upload ends in vain.
#[test]
fn an_upload_whose_removal_is_not_durable_makes_no_room() {
    for fault in [Step::Remove, Step::SyncFolder] {
        let disk = testkit::simulated_disk(3);
        let mut small = few_places();
        small.blobs.quota_bytes = 1_000;
        let bench = Bench::open(small, &disk).expect("it is empty");
        leave_half(&bench, "a0", 1, 400, 10);
        leave_half(&bench, "a1", 1, 400, 11);
        let (upload, _owner) = start(&bench, "b", 2, 12);
        let upload = upload.expect("there is a place");
        let data = content(1, 300);
        let write = || upload.write(&data, &[chunk(&data)], 13);
        disk.folder("blobs").plan_next(fault, 0, Fault::Error);
        let refused = write();
        assert!(
            matches!(refused, Err(UploadError::Quota { .. })),
            "{fault:?}: {refused:?}"
        );
        assert_eq!(names(&bench), ["a1", "b"], "{fault:?}");
        assert_eq!(bench.blobs().used(DATABASE).bytes, 800, "{fault:?}");
        // The next attempt has another one removed.
        write().expect("room is made");
        assert_eq!(names(&bench), ["b"], "{fault:?}");
        assert_eq!(bench.blobs().used(DATABASE).bytes, 700, "{fault:?}");
    }
}
