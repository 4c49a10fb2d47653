//! A leader whose commits wait until followers hold them: nobody sees or hears of one before.

use std::ops::ControlFlow;
use std::sync::Arc;

use store::backup::{self, RestoreConfig};
use store::durable::{CommitLoop, Mailbox, Opened};
use store::{
    DatabaseConfig, DatabaseId, Decision, Durability, FollowerSession, Mode, Outcomes,
    REPLICA_ID_BYTES, Refusal, ReplicaId, ReplicasAcked, Store, StoreConfig,
};
use testkit::suite::{StandingClock, put};
use wal::disk::{Disk, Fault, SimulatedDisk, Step};
use wal::limits::SEQUENCE_RESERVE;

use crate::backups::config;
use crate::bench::log_config;

const ONE: ReplicaId = [1; REPLICA_ID_BYTES];
const TWO: ReplicaId = [2; REPLICA_ID_BYTES];
const TIMEOUT_MS: u64 = 100;

struct Leader {
    store: Store,
    rounds: CommitLoop,
    mailbox: Mailbox,
    clock: StandingClock,
}

impl Leader {
    /// Opens the store on a disk. What is there waits for so many followers.
    fn open(disk: &SimulatedDisk, replicas: usize) -> Leader {
        Leader::open_with(disk, replicas, config())
    }

    fn open_with(disk: &SimulatedDisk, replicas: usize, config: StoreConfig) -> Leader {
        let opened = Store::open(config, Arc::new(disk.clone()), &log_config());
        let Opened {
            store, committer, ..
        } = opened.unwrap_or_else(|error| panic!("{error}"));
        let rounds = CommitLoop::new(committer);
        store.require_replicas(ReplicasAcked {
            replicas,
            timeout_ms: TIMEOUT_MS,
        });
        Leader {
            mailbox: rounds.register(Box::new(|| ())),
            store,
            rounds,
            clock: StandingClock { now_ms: 1_000 },
        }
    }

    fn run(&mut self) {
        while self.rounds.round(&mut self.clock) {}
    }

    fn submit(&mut self, key: &[u8], value: &[u8]) {
        let mut batch = self.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&put(key, value)).expect("it fits");
        commit.submit();
        self.mailbox.submit(&mut batch);
        self.run();
    }

    /// What has been told since this was asked last.
    fn told(&mut self) -> Vec<Decision> {
        let (mut told, mut outcomes) = (Vec::new(), Outcomes::new());
        while self.mailbox.take(&mut outcomes) {
            told.extend(outcomes.iter().map(|outcome| outcome.decision));
        }
        told
    }

    fn entries(&self) -> u64 {
        let view = self.store.view(DatabaseId::DEFAULT);
        view.expect("it is there").statistics().entries
    }

    /// A follower is there that holds what the log has.
    fn follower(&mut self, replica: ReplicaId) -> FollowerSession {
        let sequence = self.rounds.log_sequence();
        let session = self.store.begin_follower_session(replica, sequence);
        self.run();
        session
    }

    fn acknowledge(&mut self, session: &FollowerSession) {
        session.acknowledge(self.rounds.log_sequence());
        self.run();
    }
}

#[test]
fn a_commit_is_visible_and_answered_when_enough_followers_hold_it() {
    let mut leader = Leader::open(&testkit::simulated_disk(1), 2);
    let (one, two) = (leader.follower(ONE), leader.follower(TWO));
    for round in 0..3 {
        leader.submit(&[round], b"value");
        assert_eq!(leader.told(), []);
        assert!(!leader.rounds.has_work(), "it waits without a busy loop");
        leader.acknowledge(&one);
        assert_eq!(
            (leader.told(), leader.entries()),
            (vec![], u64::from(round))
        );
        // What comes meanwhile is in the next group.
        leader.submit(&[100], b"value");
        assert_eq!(leader.told(), []);
        leader.acknowledge(&two);
        assert_eq!(leader.told(), [Decision::Applied]);
        leader.acknowledge(&one);
        leader.acknowledge(&two);
        assert_eq!(leader.told(), [Decision::Applied]);
        let count = leader.entries();
        assert_eq!(count, u64::from(round) + 2);
        leader.remove(&[100]);
        leader.acknowledge(&one);
        leader.acknowledge(&two);
        assert_eq!(leader.told(), [Decision::Applied]);
    }
}

impl Leader {
    fn remove(&mut self, key: &[u8]) {
        let mut batch = self.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
        let delete = store::Operation::Delete {
            key,
            condition: store::Condition::None,
            want_previous: false,
        };
        commit.push(&delete).expect("it fits");
        commit.submit();
        self.mailbox.submit(&mut batch);
        self.run();
    }
}

#[test]
fn what_waits_too_long_ends_as_unknown_and_is_visible_when_followers_are_back() {
    let mut leader = Leader::open(&testkit::simulated_disk(2), 1);
    drop(leader.follower(ONE));
    for round in 0..2 {
        let before = leader.entries();
        leader.submit(&[round, 1], b"value");
        leader.submit(&[round, 2], b"value");
        assert_eq!(leader.told(), []);
        assert_eq!(
            leader.rounds.due_ns(),
            (leader.clock.now_ms + TIMEOUT_MS) * 1_000_000
        );
        leader.clock.now_ms += TIMEOUT_MS;
        leader.run();
        let unknown = Decision::Refused(Refusal::NotAcknowledged);
        let missing = Decision::Refused(Refusal::ReplicasMissing);
        assert_eq!(leader.told(), [unknown, missing]);
        leader.submit(&[round, 3], b"value");
        assert_eq!(leader.told(), [missing], "nothing piles up behind it");
        assert_eq!(leader.entries(), before);
        assert!(leader.store.acknowledged().is_late);
        let _back = leader.follower(ONE);
        assert_eq!(leader.entries(), before + 1);
        assert_eq!(leader.told(), []);
        assert!(!leader.store.acknowledged().is_late);
    }
}

#[test]
fn nothing_is_read_after_a_start_before_followers_hold_what_the_log_has() {
    let disk = testkit::simulated_disk(3);
    for way in 0..3 {
        let mut leader = Leader::open(&disk, 1);
        leader.run();
        assert!(leader.store.awaits_replicas());
        leader.submit(&[way, 1], b"value");
        assert_eq!(leader.told(), []);
        let sequence = leader.rounds.log_sequence() - 1;
        let behind = leader.store.begin_follower_session(ONE, sequence);
        leader.run();
        assert!(leader.store.awaits_replicas());
        leader.acknowledge(&behind);
        assert!(!leader.store.awaits_replicas());
        assert_eq!(leader.told(), [], "it is in the log, and waits");
        leader.acknowledge(&behind);
        assert_eq!(leader.told(), [Decision::Applied]);
        // One more that nobody holds: the next start waits for it.
        leader.submit(&[way, 2], b"value");
        assert_eq!(leader.told(), []);
        let mut clock = leader.clock;
        match way {
            0 => leader.rounds.close(&mut clock).expect("nothing fails"),
            1 => disk.kill(),
            _ => disk.lose_power(),
        }
    }
    let leader = Leader::open(&disk, 0);
    assert!(!leader.store.awaits_replicas());
    assert_eq!(leader.entries(), 6);
}

#[test]
fn a_copy_that_is_made_while_a_commit_waits_has_everything_before_it() {
    let disk = testkit::simulated_disk(4);
    let mut leader = Leader::open(&disk, 1);
    let one = leader.follower(ONE);
    leader.submit(b"visible", b"value");
    leader.acknowledge(&one);
    let visible_sequence = leader.rounds.log_sequence();
    leader.submit(b"waiting", b"value");
    assert_eq!(leader.entries(), 1);
    let target: Arc<dyn Disk> = Arc::new(testkit::simulated_disk(5));
    let (clock, rounds) = (&mut leader.clock, &mut leader.rounds);
    let mut job = rounds.begin_backup(Arc::clone(&target), "test", clock);
    let report = loop {
        match rounds.step_backup(job.expect("it can be made"), clock) {
            Ok(backup::BackupStep::Complete(report)) => break report,
            Ok(backup::BackupStep::Worked(next) | backup::BackupStep::Synced(next)) => {
                job = Ok(next);
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(report.sequence, visible_sequence);
    // A snapshot that begins now is good for a start, which finds what waits in the log.
    leader.rounds.ask_for_snapshot();
    while leader.rounds.step_snapshot(&mut leader.clock) {}
    let restored: Arc<dyn Disk> = Arc::new(testkit::simulated_disk(6));
    let restore_config = RestoreConfig {
        store: config(),
        log: log_config(),
        trees: None,
    };
    let watch = &mut |_, _| ControlFlow::Continue(());
    let clock = &mut leader.clock;
    let found = backup::restore(&*target, &restored, &restore_config, clock, watch);
    assert_eq!(found.expect("it is whole").entries, 1);
    leader.acknowledge(&one);
    assert_eq!(leader.entries(), 2);
    disk.lose_power();
    assert_eq!(Leader::open(&disk, 0).entries(), 2);
}

#[test]
fn every_database_with_a_log_waits_whatever_its_durability() {
    for durability in [Durability::Written, Durability::Interval { ms: 1 }] {
        let mut config = config();
        config.default_database.durability = durability;
        let mut leader = Leader::open_with(&testkit::simulated_disk(7), 1, config);
        let one = leader.follower(ONE);
        leader.submit(b"key", b"value");
        assert_eq!((leader.told(), leader.entries()), (vec![], 0));
        leader.acknowledge(&one);
        assert_eq!(leader.told(), [Decision::Applied]);
        // Two that follow, of which one is enough, and the other one comes later.
        let two = leader.follower(TWO);
        leader.submit(b"other", b"value");
        leader.acknowledge(&two);
        assert_eq!(leader.told(), [Decision::Applied]);
    }
}

impl Leader {
    /// Opens the store on a disk with a volatile database, and a follower that holds everything.
    fn with_volatile(disk: &SimulatedDisk) -> (Leader, DatabaseId, FollowerSession) {
        let mut leader = Leader::open(disk, 1);
        let one = leader.follower(ONE);
        let mut batch = leader.store.write_batch();
        let volatile = DatabaseConfig {
            durability: Durability::Volatile,
            ..DatabaseConfig::default()
        };
        batch.create_database(1, "volatile", &volatile);
        leader.mailbox.submit(&mut batch);
        leader.run();
        assert_eq!(
            (leader.told(), leader.store.database("volatile")),
            (vec![], None)
        );
        leader.acknowledge(&one);
        assert_eq!(leader.told(), [Decision::Applied]);
        let id = leader.store.database("volatile").expect("it was made");
        (leader, id, one)
    }

    /// Uses up so many sequences in a volatile database; returns what became of the last one.
    fn use_up(&mut self, volatile: DatabaseId, sequences: u64) -> Option<Decision> {
        let mut committer = self.store.committer();
        let (mut batch, mut outcomes) = (self.store.write_batch(), Outcomes::new());
        for _ in 0..sequences / 10_000 {
            for _ in 0..10_000 {
                batch.begin(0, volatile, Mode::Atomic).submit();
            }
            drop(committer.run(&mut batch, &mut self.clock, &mut outcomes));
            self.run();
        }
        outcomes.iter().last().map(|outcome| outcome.decision)
    }
}

#[test]
fn volatile_databases_go_on_while_a_commit_waits() {
    let disk = testkit::simulated_disk(8);
    let (mut leader, volatile, one) = Leader::with_volatile(&disk);
    for round in 0..2 {
        leader.submit(&[round], b"value");
        let last = leader.use_up(volatile, 2 * SEQUENCE_RESERVE);
        assert_eq!(last, Some(Decision::Applied));
        assert_eq!(leader.told(), []);
        leader.acknowledge(&one);
        assert_eq!(leader.told(), [Decision::Applied]);
        assert_eq!(leader.entries(), u64::from(round) + 1);
    }
    disk.lose_power();
    assert_eq!(Leader::open(&disk, 0).entries(), 2);
}

#[test]
fn a_log_that_fails_while_a_commit_waits_leaves_its_outcome_unknown() {
    let disk = testkit::simulated_disk(9);
    let (mut leader, volatile, one) = Leader::with_volatile(&disk);
    leader.submit(b"key", b"value");
    disk.plan_next(Step::Sync, 0, Fault::Error);
    leader.use_up(volatile, SEQUENCE_RESERVE);
    assert!(leader.rounds.has_failed());
    let unknown = Decision::Refused(Refusal::OutcomeUnknown);
    assert_eq!(leader.told(), [unknown]);
    leader.acknowledge(&one);
    assert_eq!(leader.entries(), 0);
    leader.submit(b"key", b"value");
    assert_eq!(leader.told(), [Decision::Refused(Refusal::LogFailed)]);
}
