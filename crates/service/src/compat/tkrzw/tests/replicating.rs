//! What followers get, and when.

use std::sync::Arc;

use api::tkrzw::{
    ChangeMasterRequest, ReplicateRequest, ReplicateResponse, ReplicatedOperation as Op,
};
use store::durable::{CommitLoop, Mailbox};
use store::{
    DatabaseConfig, DatabaseId, Durability, LogReadError, Mode, Operation, Outcomes, Store,
    StoreConfig, WatchError, WriteBatch,
};
use testkit::suite::{StandingClock, delete, put};
use wal::{LogConfig, LogId};

use super::{bench, encoded};
use crate::call::Shared;
use crate::fake::{Fake, Sent, shared};
use crate::limits::{
    FOLLOWERS_MAX, TKRZW_REPLICATE_STEP_UPDATES, TKRZW_REPLICATE_WAIT_MS_MIN, WATCH_LOG_RETRY_MS,
};
use crate::method::Method;
use crate::status::Code;
use crate::tkrzw_state::MasterOrders;

/// The number of the server.
const OWN: i32 = 5;

/// A server with an update log.
struct Logged {
    shared: Shared,
    commit_loop: CommitLoop,
    mailbox: Mailbox,
    clock: StandingClock,
}

/// What a response says.
type Told = (i32, i64, i32, i32, Vec<u8>, Vec<u8>);

impl Logged {
    fn new(durability: Durability) -> Logged {
        let id = LogId {
            history: 7,
            secret: 8,
        };
        let disk = Arc::new(testkit::simulated_disk(1));
        let mut config = StoreConfig::new(1);
        config.default_database.durability = durability;
        let opened = Store::open(config, disk, &LogConfig::new(id, 1));
        let opened = opened.expect("an empty disk is well");
        let commit_loop = CommitLoop::new(opened.committer);
        let mailbox = commit_loop.register(Box::new(|| ()));
        let mut shared = Shared {
            store: opened.store,
            ..shared()
        };
        shared.settings.tkrzw.has_update_log = true;
        shared.settings.tkrzw.server_id = OWN;
        Logged {
            shared,
            commit_loop,
            mailbox,
            clock: StandingClock { now_ms: 1_000 },
        }
    }

    /// Commits operations that were made on a server, in a group of their own.
    fn commit(&mut self, origin: u32, operations: &[Operation<'_>]) {
        self.clock.now_ms += 1;
        let mut batch = self.shared.store.write_batch();
        batch.set_origin(origin);
        let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
        for operation in operations {
            commit.push(operation).expect("it fits");
        }
        commit.submit();
        self.submit(&mut batch);
    }

    fn submit(&mut self, batch: &mut WriteBatch) {
        self.mailbox.submit(batch);
        while self.commit_loop.round(&mut self.clock) {}
        while self.mailbox.take(&mut Outcomes::new()) {}
    }

    fn follow(&self, min_timestamp: i64, server_id: i32, wait_time: f64) -> Fake {
        let mut fake = Fake::new(Method::TkrzwReplicate, &self.shared);
        let request = ReplicateRequest {
            min_timestamp,
            server_id,
            wait_time,
        };
        fake.message(&encoded(&request), true, &self.shared);
        fake
    }

    /// Reads and steps until nothing more is wanted, and returns what was told.
    fn received(&self, fake: &mut Fake) -> Vec<Told> {
        let mut told = Vec::new();
        loop {
            let has_read = fake.read_replica(&self.shared);
            let sent = fake.take_sent();
            if !has_read && sent.is_empty() {
                return told;
            }
            for sent in sent {
                let Sent::Message(message) = sent else {
                    panic!("nothing else is sent: {sent:?}");
                };
                let response = ReplicateResponse::decode(&message).expect("it is one");
                told.push((
                    response.status.unwrap_or_default().code,
                    response.timestamp,
                    response.server_id,
                    response.op_type,
                    response.key.to_vec(),
                    response.value.to_vec(),
                ));
            }
        }
    }
}

fn update(timestamp: i64, server_id: i32, op: Op, key: &[u8], value: &[u8]) -> Told {
    (
        0,
        timestamp,
        server_id,
        op.number(),
        key.into(),
        value.into(),
    )
}

fn greeting() -> Told {
    update(0, OWN, Op::Noop, b"", b"")
}

fn nothing_since(timestamp: i64) -> Told {
    (9, timestamp, 0, 0, Vec::new(), Vec::new())
}

#[test]
fn a_follower_gets_every_update_of_others_once_and_in_order() {
    let mut server = Logged::new(Durability::Synced);
    server.commit(0, &[put(b"a", b"1"), put(b"b", b"2"), put(b"a", b"3")]);
    server.commit(7, &[put(b"c", b"of seven")]);
    let mut fake = server.follow(0, 7, -1.0);
    let told = server.received(&mut fake);
    let expected = [
        greeting(),
        // As a commit leaves it: each key once.
        update(1_001, OWN, Op::Set, b"a", b"3"),
        update(1_001, OWN, Op::Set, b"b", b"2"),
    ];
    assert_eq!(told, expected);
    for round in 0..2 {
        let at = i64::try_from(server.clock.now_ms).expect("it is small");
        server.commit(0, &[delete(b"b"), delete(b"unknown")]);
        server.commit(9, &[Operation::Clear]);
        server.commit(0, &[put(b"b", b"2")]);
        fake.woken(&server.shared);
        let expected = [
            update(at + 1, OWN, Op::Remove, b"b", b""),
            update(at + 2, 9, Op::Clear, b"", b""),
            update(at + 3, OWN, Op::Set, b"b", b"2"),
        ];
        assert_eq!(server.received(&mut fake), expected, "{round}");
    }
    assert_eq!(fake.actions.wake_at_ns, None, "it waits for ever");
    // From the last timestamp on, that of the caller itself.
    let last = i64::try_from(server.clock.now_ms).expect("it is small");
    for (since, updates) in [(last - 1, 2), (last, 1), (last + 1, 0), (i64::MAX, 0)] {
        let mut again = server.follow(since, 7, -1.0);
        assert_eq!(server.received(&mut again).len(), 1 + updates, "{since}");
    }
    server.shared.health.stop();
    fake.woken(&server.shared);
    let code = fake.take_status().map(|status| status.code());
    assert_eq!(code, Some(Code::Unavailable));
}

#[test]
fn who_waits_hears_that_nothing_has_come_and_from_where_to_ask_again() {
    let mut server = Logged::new(Durability::Synced);
    server.commit(0, &[put(b"a", b"1")]);
    let mut fake = server.follow(5, 7, 2.0);
    let begun_ns = fake.actions.now_ns;
    assert_eq!(server.received(&mut fake).len(), 2);
    for _ in 0..2 {
        fake.wake_in_time(&server.shared);
        assert_eq!(server.received(&mut fake), [nothing_since(1_001)]);
    }
    assert_eq!(fake.actions.now_ns, begun_ns + 4_000_000_000);
    // An update begins the time anew.
    fake.actions.now_ns += 1_500_000_000;
    server.commit(0, &[put(b"a", b"2")]);
    fake.woken(&server.shared);
    assert_eq!(server.received(&mut fake).len(), 1);
    let at_ns = fake.actions.now_ns;
    while server.received(&mut fake).is_empty() {
        fake.wake_in_time(&server.shared);
        if fake.actions.now_ns < at_ns + 2_000_000_000 {
            assert!(
                server.received(&mut fake).is_empty(),
                "a timer may expire early"
            );
        } else {
            assert_eq!(server.received(&mut fake), [nothing_since(1_002)]);
            break;
        }
    }
    assert_eq!(fake.actions.now_ns, at_ns + 2_000_000_000);
    // Who does not want to wait hears it at once, and then not without end.
    for wait_time in [0.0, f64::NAN] {
        let mut fake = server.follow(2_000, 7, wait_time);
        assert_eq!(
            server.received(&mut fake),
            [greeting(), nothing_since(2_000)]
        );
        let before_ns = fake.actions.now_ns;
        fake.wake_in_time(&server.shared);
        assert_eq!(server.received(&mut fake), [nothing_since(2_000)]);
        let waited_ns = fake.actions.now_ns - before_ns;
        assert_eq!(waited_ns, TKRZW_REPLICATE_WAIT_MS_MIN * 1_000_000);
    }
}

/// Else a tool that stops when it has everything would miss what its user has just written.
#[test]
fn nothing_has_come_only_when_all_that_readers_see_was_sent() {
    let mut server = Logged::new(Durability::Written);
    server.commit(0, &[put(b"a", b"1")]);
    let log = server.shared.store.log_statistics().expect("there is one");
    assert!(
        log.durable_sequence < log.written_sequence,
        "it is not synced"
    );
    let mut fake = server.follow(0, 7, 0.0);
    assert_eq!(server.received(&mut fake), [greeting()]);
    for _ in 0..2 {
        fake.wake_in_time(&server.shared);
        assert!(server.received(&mut fake).is_empty(), "it is on its way");
    }
    // Which databases there are is always synced.
    let mut batch = server.shared.store.write_batch();
    batch.create_database(1, "other", &DatabaseConfig::default());
    server.submit(&mut batch);
    fake.woken(&server.shared);
    let told = server.received(&mut fake);
    let expected = update(1_001, OWN, Op::Set, b"a", b"1");
    assert_eq!(told, [expected, nothing_since(1_001)]);
}

#[test]
fn what_a_peer_does_not_take_is_counted_and_sent_later() {
    let mut server = Logged::new(Durability::Synced);
    let large = vec![7; 100_000];
    server.commit(0, &[put(b"a", &large), put(b"b", &large), put(b"c", b"3")]);
    let mut fake = server.follow(0, 7, -1.0);
    fake.actions.sends_left = 1;
    assert_eq!(server.received(&mut fake).len(), 2);
    for left in [2, 1] {
        assert!(fake.actions.ready_bytes > left, "what waits is counted");
        fake.actions.sends_left = 1;
        fake.writable(&server.shared);
        assert_eq!(server.received(&mut fake).len(), 1);
    }
}

#[test]
fn a_large_update_waits_for_memory() {
    let mut server = Logged::new(Durability::Synced);
    let large = vec![7; 100_000];
    server.commit(0, &[put(b"a", b"1"), put(b"b", &large), put(b"c", b"3")]);
    let mut fake = server.follow(0, 7, -1.0);
    fake.actions.message_bytes = 10_000;
    for _ in 0..2 {
        fake.actions.has_large_room = false;
        let sent = server.received(&mut fake);
        assert!(sent.iter().all(|told| told.4 != b"b"));
        fake.writable(&server.shared);
        assert!(server.received(&mut fake).is_empty());
        assert!(fake.actions.ready_bytes > large.len());
    }
    fake.actions.has_large_room = true;
    fake.writable(&server.shared);
    let keys: Vec<_> = server
        .received(&mut fake)
        .into_iter()
        .map(|told| told.4)
        .collect();
    assert_eq!(keys, [b"b", b"c"]);
}

#[test]
fn what_cannot_be_read_now_is_read_soon_and_what_cannot_be_read_at_all_ends_the_call() {
    let mut server = Logged::new(Durability::Synced);
    server.commit(0, &[put(b"a", b"1")]);
    let mut fake = server.follow(0, 7, -1.0);
    for error in [LogReadError::Busy, LogReadError::Needs(1 << 20)] {
        assert!(fake.read_replica_with(&server.shared, |_, _| Err(error)));
        assert!(fake.actions.replica_reading.is_none(), "not at once");
        let at_ns = fake.actions.now_ns + WATCH_LOG_RETRY_MS * 1_000_000;
        assert_eq!(fake.actions.wake_at_ns, Some(at_ns));
        fake.wake_in_time(&server.shared);
    }
    assert_eq!(server.received(&mut fake).len(), 2);
    let lost = WatchError::Lost {
        asked: 0,
        present: 1,
    };
    let unreadable = WatchError::Unreadable("damage".into());
    for (error, expected) in [(lost, Code::OutOfRange), (unreadable, Code::Unavailable)] {
        let mut fake = server.follow(0, 7, -1.0);
        let _ = fake.take_sent();
        let failed = LogReadError::Failed(error);
        assert!(fake.read_replica_with(&server.shared, |_, _| Err(failed)));
        let code = fake.take_status().map(|status| status.code());
        assert_eq!(code, Some(expected));
    }
}

#[test]
fn a_large_group_takes_several_steps() {
    let mut server = Logged::new(Durability::Synced);
    let keys: Vec<[u8; 4]> = (0..1_000_u32).map(u32::to_be_bytes).collect();
    assert!(keys.len() > 3 * TKRZW_REPLICATE_STEP_UPDATES);
    let puts: Vec<_> = keys.iter().map(|key| put(key, b"v")).collect();
    server.commit(0, &puts);
    let mut fake = server.follow(0, 7, -1.0);
    let mut told = Vec::new();
    for _ in 0..8 {
        told.extend(server.received(&mut fake));
        fake.woken(&server.shared);
    }
    let sets = told.iter().filter(|told| told.3 == Op::Set.number());
    assert!(
        sets.map(|told| &told.4[..])
            .eq(keys.iter().map(|key| &key[..]))
    );
}

#[test]
fn who_cannot_follow_is_told_why() {
    let mut server = Logged::new(Durability::Synced);
    let mut fake = server.follow(0, OWN, 1.0);
    let status = fake.take_status().expect("it ends");
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "self server ID")
    );
    let followers: Vec<_> = (0..FOLLOWERS_MAX)
        .map(|_| server.shared.store.follow_log())
        .collect();
    let mut fake = server.follow(0, 7, 1.0);
    let code = fake.take_status().map(|status| status.code());
    assert_eq!(code, Some(Code::ResourceExhausted));
    drop(followers);
    let mut ending = server.follow(0, 7, 1.0);
    assert_eq!(server.received(&mut ending), [greeting()]);
    assert_eq!(server.shared.store.followers(), 1);
    drop(ending);
    assert_eq!(
        (
            server.shared.store.followers(),
            server.shared.waiting.count()
        ),
        (0, 0)
    );
    server.shared.settings.tkrzw.has_update_log = false;
    let mut fake = server.follow(0, 7, 1.0);
    let status = fake.take_status().expect("it ends");
    let expected = (Code::FailedPrecondition, "disabled update logging");
    assert_eq!((status.code(), status.message()), expected);
}

#[test]
fn another_master_is_an_order_for_the_thread_that_follows() {
    let mut bench = bench();
    let request = |master| ChangeMasterRequest {
        master,
        timestamp_skew: -7,
    };
    let method = Method::TkrzwChangeMaster;
    let ended = bench.call(method, &encoded(&request("h:1")));
    ended.refusal(Code::Unimplemented);
    let orders = Arc::new(MasterOrders::default());
    bench.shared.settings.tkrzw.master = Some(Arc::clone(&orders));
    for master in ["h:1", "unix:/tmp/s", ""] {
        assert_eq!(
            bench.tkrzw(method, &request(master)),
            b"",
            "the status is left out"
        );
        let order = orders.order();
        assert_eq!((order.address.as_str(), order.skew_ms), (master, -7));
    }
    let long = "x".repeat(crate::limits::TKRZW_MASTER_BYTES_MAX + 1);
    let ended = bench.call(method, &encoded(&request(&long)));
    ended.refusal(Code::InvalidArgument);
    bench.shared.settings.tkrzw.is_read_only = true;
    assert_eq!(bench.code(method, &request("h:1")), 4);
    assert_eq!(orders.order().version, 3);
}
