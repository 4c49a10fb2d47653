//! Watch: what is told, when, and in which form.

use api::keyvalue::{
    Change as ChangeMessage, ChangeKind, KeyRange, Keys, ResumePoint, WatchRequest, WatchResponse,
};
use std::sync::Arc;

use store::durable::CommitLoop;
use store::{
    Condition, Durability, Expiry, LogReadError, Mode, Operation, Store, StoreConfig, WatchError,
};
use wal::{LogConfig, LogId};

use super::*;
use crate::fake::{Fake, Sent, shared};
use crate::limits::{
    WATCH_HEARTBEAT_MS, WATCH_KEY_BYTES, WATCH_LOG_BYTES, WATCH_MESSAGE_BYTES,
    WATCH_MESSAGE_BYTES_MIN,
};

const WATCH: WatchRequest<'static> = WatchRequest {
    database: "",
    resume: None,
    keys_only: false,
    with_previous: false,
    max_answer_bytes: 0,
    keys: None,
};

/// A change in words: what became of which key, with how many bytes of value.
type Told = (i32, Vec<u8>, usize, bool);

/// A response in words.
#[derive(Debug, PartialEq)]
struct Response {
    commits: Vec<(u64, Vec<Told>, bool)>,
    through: u64,
    bytes: usize,
}

impl Response {
    fn of(message: &[u8]) -> Response {
        let decoded = WatchResponse::decode(message).expect("it is a response");
        let told = |change: ChangeMessage<'_>| {
            let entry = change.entry.unwrap_or_default();
            let left_out = change.value_left_out;
            (change.kind, entry.key.to_vec(), entry.value.len(), left_out)
        };
        let commits = decoded.commits.iter().map(|commit| {
            let commit = commit.expect("it is a commit");
            let changes = commit.changes.iter();
            let changes = changes.map(|change| told(change.expect("it is a change")));
            (commit.sequence, changes.collect(), commit.continued)
        });
        Response {
            commits: commits.collect(),
            through: decoded.resume.expect("it always says where it is").sequence,
            bytes: message.len(),
        }
    }

    fn sequences(&self) -> Vec<u64> {
        self.commits
            .iter()
            .map(|(sequence, ..)| *sequence)
            .collect()
    }
}

/// Someone who watches, and a database to be changed.
struct Watched {
    fake: Fake,
    shared: Shared,
}

impl Watched {
    fn new(request: WatchRequest<'_>) -> Watched {
        let shared = shared();
        let mut watched = Watched {
            fake: Fake::new(Method::Watch, &shared),
            shared,
        };
        watched.ask(request);
        watched
    }

    fn ask(&mut self, request: WatchRequest<'_>) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.fake.message(&bytes, true, &self.shared);
    }

    fn commit(&mut self, operations: &[Operation<'_>]) -> u64 {
        let store = &self.shared.store;
        let (mut batch, mut outcomes) = (store.write_batch(), Outcomes::new());
        let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
        for operation in operations {
            commit.push(operation).expect("it fits");
        }
        commit.submit();
        drop(
            store
                .committer()
                .run(&mut batch, &mut Now(1_000), &mut outcomes),
        );
        outcomes.get(0).sequence
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> u64 {
        self.commit(&[put(key, value)])
    }

    /// Something has changed: the call takes all the steps that it wants.
    fn wake(&mut self) -> Vec<Response> {
        self.fake.woken(&self.shared);
        self.go_on()
    }

    fn go_on(&mut self) -> Vec<Response> {
        while !self.fake.actions.is_over && std::mem::take(&mut self.fake.actions.wants_step) {
            self.fake.woken(&self.shared);
        }
        let sent = self.fake.take_sent().into_iter().map(|sent| match sent {
            Sent::Message(bytes) => Response::of(&bytes),
            other => panic!("{other:?}"),
        });
        sent.collect()
    }
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous: false,
    }
}

fn set(key: &[u8], bytes: usize) -> Told {
    (ChangeKind::Set as i32, key.to_vec(), bytes, false)
}

#[test]
fn a_watcher_is_told_at_once_where_it_is_and_then_every_change() {
    let mut watched = Watched::new(WATCH);
    assert!(watched.fake.actions.watched.is_some());
    let first = watched.go_on();
    assert_eq!((first.len(), first[0].through), (1, 0));
    assert_eq!(first[0].commits, []);
    for _ in 0..2 {
        assert_eq!(watched.wake(), [], "another database has changed");
        let one = watched.put(b"a", b"1");
        let two = watched.commit(&[put(b"b", b"22"), put(b"c", b"")]);
        let told = watched.wake();
        assert_eq!(told.len(), 1, "what came together goes together");
        let expected = [
            (one, vec![set(b"a", 1)], false),
            (two, vec![set(b"b", 2), set(b"c", 0)], false),
        ];
        assert_eq!(told[0].commits, expected);
        assert_eq!(told[0].through, two);
    }
    assert_eq!(watched.shared.waiting.count(), 1);
    drop(watched.fake);
    assert_eq!(watched.shared.waiting.count(), 0);
}

#[test]
fn a_watcher_that_hears_nothing_is_told_where_it_is_now_and_then() {
    let mut watched = Watched::new(WatchRequest {
        keys: Some(Keys::Prefix(b"mine/")),
        ..WATCH
    });
    watched.go_on();
    const HEARTBEAT_NS: u64 = WATCH_HEARTBEAT_MS * 1_000_000;
    for _ in 0..3 {
        let began_ns = watched.fake.actions.now_ns;
        let elsewhere = watched.put(b"yours", b"");
        assert_eq!(watched.wake(), []);
        watched.fake.wake_in_time(&watched.shared);
        let told = watched.go_on();
        assert_eq!(watched.fake.actions.now_ns - began_ns, HEARTBEAT_NS);
        assert_eq!(told.len(), 1);
        assert_eq!(
            (&told[0].commits[..], told[0].through),
            (&[][..], elsewhere)
        );
        // A change puts it off.
        watched.fake.actions.now_ns += HEARTBEAT_NS / 2;
        watched.put(b"mine/1", b"");
        assert_eq!(watched.wake().len(), 1);
        watched.fake.wake_in_time(&watched.shared);
        assert_eq!(watched.go_on(), []);
        watched.fake.wake_in_time(&watched.shared);
        assert_eq!(watched.go_on().len(), 1);
        assert_eq!(watched.fake.actions.now_ns - began_ns, 5 * HEARTBEAT_NS / 2);
    }
}

/// Nothing is put together for it, and nothing is missing when it goes on.
#[test]
fn a_watcher_that_does_not_read_is_told_all_when_it_does() {
    let mut watched = Watched::new(WATCH);
    watched.go_on();
    for _ in 0..2 {
        let room = std::mem::take(&mut watched.fake.actions.room);
        let sequences: Vec<_> = (0..5).map(|_| watched.put(b"k", b"v")).collect();
        assert_eq!(watched.wake(), []);
        assert!(!watched.fake.actions.wants_step);
        watched.fake.actions.room = room;
        watched.fake.writable(&watched.shared);
        let told = watched.go_on();
        assert_eq!((told.len(), told[0].sequences()), (1, sequences));
    }
}

#[test]
fn commits_share_a_message_while_it_is_small() {
    let mut watched = Watched::new(WATCH);
    watched.go_on();
    let value = vec![7; WATCH_MESSAGE_BYTES / 3];
    for memory in [usize::MAX, 10] {
        watched.fake.actions.message_bytes = memory;
        let sequences: Vec<_> = (0..5).map(|_| watched.put(b"k", &value)).collect();
        let told = watched.wake();
        let sizes: Vec<_> = told.iter().map(|response| response.commits.len()).collect();
        match memory {
            10 => assert_eq!(sizes, [1; 5]),
            _ => assert_eq!(sizes, [2, 2, 1]),
        }
        let all: Vec<_> = told.iter().flat_map(Response::sequences).collect();
        assert_eq!(all, sequences);
        for response in &told {
            assert_eq!(Some(&response.through), response.sequences().last());
        }
    }
}

#[test]
fn only_the_keys_of_the_range_are_told_and_a_clear_always_is() {
    let mut watched = Watched::new(WatchRequest {
        keys: Some(Keys::Range(KeyRange {
            start: b"b",
            end: b"d",
        })),
        keys_only: true,
        ..WATCH
    });
    watched.go_on();
    for _ in 0..2 {
        let keys = [b"a", b"b", b"c", b"d"];
        let last = watched.commit(&keys.map(|key| put(key, b"value")));
        let told = watched.wake();
        let expected = [(last, vec![set(b"b", 0), set(b"c", 0)], false)];
        assert_eq!(told[0].commits, expected);
        let cleared = watched.commit(&[Operation::Clear]);
        let clear = (ChangeKind::Clear as i32, Vec::new(), 0, false);
        assert_eq!(watched.wake()[0].commits, [(cleared, vec![clear], false)]);
    }
}

/// The largest first, and no more than must be.
#[test]
fn what_does_not_fit_is_told_without_what_is_largest() {
    let mut watched = Watched::new(WatchRequest {
        max_answer_bytes: WATCH_MESSAGE_BYTES_MIN as u64,
        with_previous: true,
        ..WATCH
    });
    watched.go_on();
    let values = [40_000, 60_000, 50_000, 60_000, 0].map(|bytes| vec![7; bytes]);
    let keys = [b"a", b"b", b"c", b"d", b"e"];
    let kept = |count: usize| {
        [40_000, 60_000, 50_000, 60_000, 0].map(|bytes| {
            let largest = [60_000, 50_000, 40_000];
            let is_left_out = bytes > 0 && largest[..count].contains(&bytes);
            (bytes, is_left_out)
        })
    };
    for (count, left_out) in [(1, 0), (2, 0), (3, 1), (4, 1), (5, 1)] {
        let operations: Vec<_> = (0..count).map(|n| put(keys[n], &values[n])).collect();
        for _ in 0..2 {
            watched.commit(&operations);
            let told = watched.wake();
            assert_eq!(told.len(), 1);
            assert!(
                told[0].bytes <= WATCH_MESSAGE_BYTES_MIN,
                "{}",
                told[0].bytes
            );
            let expected = kept(left_out).into_iter().zip(keys).take(count);
            let expected: Vec<_> = expected
                .map(|((bytes, is_left_out), key)| {
                    let (kind, key, bytes, _) = set(key, if is_left_out { 0 } else { bytes });
                    (kind, key, bytes, is_left_out)
                })
                .collect();
            assert_eq!(told[0].commits[0].1, expected);
            assert!(!told[0].commits[0].2);
        }
    }
}

#[test]
fn a_commit_whose_keys_do_not_fit_comes_in_parts_between_which_nobody_resumes() {
    let mut watched = Watched::new(WatchRequest {
        max_answer_bytes: WATCH_MESSAGE_BYTES_MIN as u64,
        ..WATCH
    });
    watched.go_on();
    let keys: Vec<_> = (0..7).map(|n| vec![b'a' + n; 60_000]).collect();
    let mut before = 0;
    for room in [usize::MAX, 10] {
        let operations: Vec<_> = keys.iter().map(|key| put(key, b"value")).collect();
        let first = watched.put(b"small", b"");
        let large = watched.commit(&operations);
        let next = watched.put(b"next", b"");
        // What is more than the peer's windows let out goes one by one, and not into one message.
        watched.fake.actions.room = room;
        let is_narrow = room == 10;
        let mut told = Vec::new();
        for _ in 0..6 {
            watched.fake.actions.sends_left = if is_narrow { 1 } else { usize::MAX };
            let before = told.len();
            watched.fake.writable(&watched.shared);
            told.extend(watched.go_on());
            assert!(!is_narrow || told.len() == before + 1);
        }
        let sequences: Vec<_> = told.iter().map(Response::sequences).collect();
        let part = || vec![large];
        let mut expected = vec![vec![first], part(), part(), part(), part(), vec![next]];
        let mut through = vec![first, first, first, first, large, next];
        if !is_narrow {
            expected.truncate(4);
            expected.push(vec![large, next]);
            through.remove(4);
        }
        assert_eq!(sequences, expected);
        assert!(
            told.iter()
                .all(|response| response.bytes <= WATCH_MESSAGE_BYTES_MIN)
        );
        let found: Vec<_> = told.iter().map(|response| response.through).collect();
        assert_eq!(found, through);
        let parts = told[1..5].iter().map(|response| &response.commits[0]);
        let parts: Vec<_> = parts.collect();
        let continued: Vec<_> = parts.iter().map(|part| part.2).collect();
        assert_eq!(continued, [true, true, true, false]);
        let told: Vec<_> = parts.iter().flat_map(|part| &part.1).collect();
        let found: Vec<_> = told.iter().map(|change| &change.1).collect();
        assert_eq!(found, keys.iter().collect::<Vec<_>>());
        assert!(told.iter().all(|change| change.3 && change.2 == 0));
        assert!(first > before);
        before = next;
    }
}

/// Values that would fit into what is left of a part are left out as in the other parts.
#[test]
fn the_parts_of_a_commit_keep_to_the_bound_whatever_the_values_are() {
    let mut watched = Watched::new(WatchRequest {
        max_answer_bytes: WATCH_MESSAGE_BYTES_MIN as u64,
        with_previous: true,
        ..WATCH
    });
    watched.go_on();
    let entries: Vec<_> = (0..7_u8)
        .map(|n| {
            let value = vec![n; 100_000 + 3_000 * usize::from(n)];
            (vec![b'a' + n; 60_000], value)
        })
        .collect();
    for _ in 0..2 {
        let operations = entries.iter().map(|(key, value)| put(key, value));
        let operations: Vec<_> = operations.collect();
        watched.commit(&operations);
        let told = watched.wake();
        assert!(told.len() > 2);
        let bytes: Vec<_> = told.iter().map(|response| response.bytes).collect();
        let is_within = |bytes: &usize| *bytes <= WATCH_MESSAGE_BYTES_MIN;
        assert!(bytes.iter().all(is_within), "{bytes:?}");
        let changes: Vec<_> = told.iter().flat_map(|one| &one.commits[0].1).collect();
        assert_eq!(changes.len(), 7);
        assert!(changes.iter().all(|change| change.3 && change.2 == 0));
    }
}

fn at(history_id: &[u8]) -> WatchRequest<'_> {
    let sequence = 0;
    WatchRequest {
        resume: Some(ResumePoint {
            history_id,
            sequence,
        }),
        ..WATCH
    }
}

fn of<'a>(keys: Keys<'a>) -> WatchRequest<'a> {
    WatchRequest {
        keys: Some(keys),
        ..WATCH
    }
}

fn within(max_answer_bytes: u64) -> WatchRequest<'static> {
    WatchRequest {
        max_answer_bytes,
        ..WATCH
    }
}

#[test]
fn what_is_wrong_with_a_point_a_bound_or_a_range_is_said() {
    let long = [7; WATCH_KEY_BYTES + 1];
    let range = |start, end| Keys::Range(KeyRange { start, end });
    for (request, code) in [
        (at(b"12345678"), Code::OutOfRange),
        (at(b"1234567"), Code::InvalidArgument),
        (of(Keys::Prefix(&long)), Code::InvalidArgument),
        (of(range(b"", &long)), Code::InvalidArgument),
        (of(range(&long, b"")), Code::InvalidArgument),
        (within(131_071), Code::InvalidArgument),
        (within((64 << 20) + 1), Code::InvalidArgument),
    ] {
        let mut watched = Watched::new(request);
        let status = watched.fake.take_status().expect("it has ended");
        assert_eq!(status.code(), code, "{status:?}");
        assert_eq!(watched.shared.waiting.count(), 0);
    }
    for keys in [Keys::Prefix(&long[1..]), range(b"", &long[1..])] {
        assert_eq!(Watched::new(of(keys)).go_on().len(), 1);
    }
}

/// The server allows less than the caller can receive; what is more than usual is claimed.
#[test]
fn what_the_server_allows_bounds_a_response_too() {
    let mut shared = shared();
    shared.answer_bytes_max = WATCH_MESSAGE_BYTES_MIN as u64;
    let mut watched = Watched {
        fake: Fake::new(Method::Watch, &shared),
        shared,
    };
    watched.ask(WATCH);
    watched.go_on();
    watched.fake.actions.message_bytes = 1_000;
    for _ in 0..2 {
        watched.commit(&[put(b"a", &[7; 100_000]), put(b"b", &[7; 90_000])]);
        watched.fake.actions.can_send = false;
        assert_eq!(watched.wake(), [], "there is no memory for a large one");
        watched.fake.actions.can_send = true;
        watched.fake.writable(&watched.shared);
        let told = watched.go_on();
        assert!(told[0].bytes <= WATCH_MESSAGE_BYTES_MIN);
        assert!(told[0].commits[0].1[0].3, "the larger value is left out");
    }
}

/// A timer that is set stays: whoever is woken by others' changes sets no further ones.
#[test]
fn a_watcher_has_one_timer_at_a_time() {
    let mut watched = Watched::new(WATCH);
    watched.go_on();
    let timer_ns = watched.fake.actions.wake_at_ns.take();
    assert!(timer_ns.is_some());
    for n in 0..5 {
        watched.fake.actions.now_ns += 1_000_000;
        if n % 2 == 0 {
            watched.put(b"k", b"v");
        }
        watched.wake();
        assert_eq!(watched.fake.actions.wake_at_ns, None);
    }
    // It expires early: the last word was later.
    watched.fake.actions.now_ns = timer_ns.expect("it was set");
    assert_eq!(watched.wake(), []);
    let next_ns = watched.fake.actions.wake_at_ns.expect("it is set anew");
    assert!(next_ns > watched.fake.actions.now_ns);
    watched.fake.actions.now_ns = next_ns;
    assert_eq!(watched.wake().len(), 1);
}

#[test]
fn a_watcher_ends_with_its_database_with_the_server_or_when_it_has_lost_its_place() {
    let mut watched = Watched::new(WatchRequest {
        resume: Some(ResumePoint {
            history_id: b"",
            sequence: 9,
        }),
        ..WATCH
    });
    let status = watched.fake.take_status().expect("it has ended");
    assert_eq!(status.code(), Code::OutOfRange);

    watched.fake = Fake::new(Method::Watch, &watched.shared);
    watched.ask(WATCH);
    watched.go_on();
    watched.shared.health.stop();
    watched.fake.woken(&watched.shared);
    let status = watched.fake.take_status().expect("it has ended");
    assert_eq!(status.code(), Code::Unavailable);

    let mut watched = Watched::new(WatchRequest {
        database: "no such one",
        ..WATCH
    });
    let status = watched.fake.take_status().expect("it has ended");
    assert_eq!(status.code(), Code::NotFound);
}

#[test]
fn a_second_request_ends_the_call() {
    let mut watched = Watched::new(WATCH);
    watched.go_on();
    watched.ask(WATCH);
    let status = watched.fake.take_status().expect("it has ended");
    assert_eq!(status.code(), Code::Unimplemented);
}

/// Five commits of a store that is opened anew, so that none of them is in memory.
fn logged() -> (Store, Vec<u64>) {
    let keys = [b"a", b"b", b"c", b"d", b"e"];
    logged_commits(&keys.map(|key| vec![put(key, &[7; 50_000])]))
}

fn logged_commits(commits: &[Vec<Operation<'_>>]) -> (Store, Vec<u64>) {
    let disk = testkit::simulated_disk(1);
    let id = LogId {
        history: 1,
        secret: 2,
    };
    let open = || {
        let mut config = StoreConfig::new(1);
        config.default_database.durability = Durability::Synced;
        let opened = Store::open(config, Arc::new(disk.clone()), &LogConfig::new(id, 1));
        let opened = opened.expect("the disk is well");
        (opened.store, CommitLoop::new(opened.committer))
    };
    let (store, mut commit_loop) = open();
    let mailbox = commit_loop.register(Box::new(|| ()));
    let mut batch = store.write_batch();
    for operations in commits {
        let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
        for operation in operations {
            commit.push(operation).expect("it fits");
        }
        commit.submit();
    }
    mailbox.submit(&mut batch);
    while commit_loop.round(&mut Now(1)) {}
    let mut outcomes = Outcomes::new();
    assert!(mailbox.take(&mut outcomes));
    let sequences = outcomes.iter().map(|one| one.sequence).collect();
    drop((commit_loop, mailbox, store));
    let (store, mut commit_loop) = open();
    while commit_loop.round(&mut Now(1)) {}
    (store, sequences)
}

#[test]
fn what_memory_does_not_have_is_read_from_the_log_and_not_kept_for_a_peer_that_does_not_read() {
    let (store, sequences) = logged();
    let shared = Shared { store, ..shared() };
    let mut watched = Watched {
        fake: Fake::new(Method::Watch, &shared),
        shared,
    };
    watched.ask(at(b""));
    let begin = watched.go_on();
    assert_eq!((begin.len(), begin[0].through), (1, 0));
    let asked = |watched: &mut Watched| watched.fake.actions.log_reading.take();
    let (mut reading, bytes) = asked(&mut watched).expect("the log has what comes next");
    assert!(bytes <= WATCH_LOG_BYTES);
    // Meanwhile nothing is asked for twice, and a heartbeat is on time.
    assert_eq!(watched.wake(), []);
    watched.fake.actions.now_ns += WATCH_HEARTBEAT_MS * 1_000_000;
    let heartbeats = watched.wake();
    assert_eq!((heartbeats.len(), heartbeats[0].through), (1, 0));
    assert!(asked(&mut watched).is_none());
    for _ in 0..2 {
        let read = reading.run(bytes, usize::MAX);
        let room = std::mem::take(&mut watched.fake.actions.room);
        watched.fake.log_read(reading, read, &watched.shared);
        assert_eq!(watched.go_on(), [], "the peer takes nothing");
        assert!(
            asked(&mut watched).is_none(),
            "nothing is read for it either"
        );
        watched.fake.actions.room = room;
        watched.fake.writable(&watched.shared);
        (reading, _) = asked(&mut watched).expect("it is read again");
    }
    // Others come first: it is tried again a little later.
    watched
        .fake
        .log_read(reading, Err(LogReadError::Busy), &watched.shared);
    assert!(asked(&mut watched).is_none());
    watched.fake.wake_in_time(&watched.shared);
    let (mut reading, _) = asked(&mut watched).expect("it is read again");
    let mut told = Vec::new();
    loop {
        let read = reading.run(120_000, usize::MAX);
        watched.fake.log_read(reading, read, &watched.shared);
        told.extend(watched.go_on().iter().flat_map(Response::sequences));
        match asked(&mut watched) {
            Some((next, _)) => reading = next,
            None => break,
        }
    }
    assert_eq!(told, sequences);
    // What follows comes from memory; here nothing does.
    assert_eq!(watched.wake(), []);
}

/// Also where the rest of a commit is read in pieces, and a heartbeat comes between two of them.
#[test]
fn the_parts_of_a_commit_that_is_read_from_the_log_are_told_once_each() {
    let keys: Vec<_> = (0..7).map(|n| vec![b'a' + n; 60_000]).collect();
    let large = keys.iter().map(|key| put(key, b"value")).collect();
    let commits = [vec![put(b"small", b"")], large, vec![put(b"z", b"")]];
    for piece_bytes in [1, 70_000, 1_000_000] {
        // The last part may turn out to be empty.
        for end in [&b""[..], b"d"] {
            let (store, sequences) = logged_commits(&commits);
            let shared = Shared { store, ..shared() };
            let mut watched = Watched {
                fake: Fake::new(Method::Watch, &shared),
                shared,
            };
            watched.ask(WatchRequest {
                keys: Some(Keys::Range(KeyRange { start: b"", end })),
                max_answer_bytes: WATCH_MESSAGE_BYTES_MIN as u64,
                ..at(b"")
            });
            watched.go_on();
            let (mut told, mut heartbeats) = (Vec::new(), 0);
            // One message at a time, so that what is left is read once more.
            watched.fake.actions.room = 10;
            while let Some((mut reading, _)) = watched.fake.actions.log_reading.take() {
                watched.fake.actions.now_ns += WATCH_HEARTBEAT_MS * 1_000_000;
                watched.fake.actions.sends_left = 1;
                heartbeats += watched.wake().len();
                let read = reading.run(piece_bytes, usize::MAX);
                watched.fake.actions.sends_left = 1;
                watched.fake.log_read(reading, read, &watched.shared);
                told.extend(watched.go_on());
                watched.fake.actions.sends_left = 1;
                watched.fake.writable(&watched.shared);
                told.extend(watched.go_on());
            }
            assert!(heartbeats > 1, "{heartbeats}");
            let commits = told.iter().flat_map(|response| &response.commits);
            let of_large = commits.filter(|commit| commit.0 == sequences[1]);
            let parts: Vec<_> = of_large.collect();
            let last = parts.last().expect("there is one");
            assert!(!last.2 && parts.iter().rev().skip(1).all(|part| part.2));
            let found = parts
                .iter()
                .flat_map(|part| &part.1)
                .map(|change| &change.1);
            let wanted = if end.is_empty() {
                &keys[..]
            } else {
                &keys[..3]
            };
            assert!(found.eq(wanted));
        }
    }
}

#[test]
fn a_log_that_cannot_be_read_ends_the_call() {
    let (store, _) = logged();
    let shared = Shared { store, ..shared() };
    for (error, code) in [
        (WatchError::Unreadable("why".into()), Code::OutOfRange),
        (
            WatchError::Lost {
                asked: 1,
                present: 2,
            },
            Code::OutOfRange,
        ),
    ] {
        let mut fake = Fake::new(Method::Watch, &shared);
        let mut bytes = Vec::new();
        at(b"").encode(&mut bytes);
        fake.message(&bytes, true, &shared);
        while std::mem::take(&mut fake.actions.wants_step) {
            fake.woken(&shared);
        }
        drop(fake.take_sent());
        let (reading, _) = fake.actions.log_reading.take().expect("it is to be read");
        fake.log_read(reading, Err(LogReadError::Failed(error)), &shared);
        assert_eq!(fake.take_status().map(|status| status.code()), Some(code));
    }
}
