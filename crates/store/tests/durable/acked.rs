//! A leader whose commits wait until followers hold them: nobody sees or hears of one before.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use store::backup::{self, RestoreConfig};
use store::durable::{CommitLoop, Mailbox, Opened};
use store::limits::COMMIT_OPERATIONS;
use store::{
    Condition, DatabaseConfig, DatabaseId, Decision, Durability, Expiry, FollowerSession, Mode,
    Operation, Outcomes, REPLICA_ID_BYTES, Refusal, ReplicaId, ReplicaSetChange, ReplicasAcked,
    Store, StoreConfig,
};
use testkit::Random;
use testkit::suite::{StandingClock, put};
use wal::disk::{Disk, Fault, SimulatedDisk, Step};
use wal::limits::SEQUENCE_RESERVE;

use crate::backups::config;
use crate::bench::{log_config, verify};
use crate::replicas::Replica;

const ONE: ReplicaId = [1; REPLICA_ID_BYTES];
const TWO: ReplicaId = [2; REPLICA_ID_BYTES];
const TIMEOUT_MS: u64 = 100;

struct Leader {
    store: Store,
    commit_loop: CommitLoop,
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
        let mut commit_loop = CommitLoop::new(committer);
        let mut clock = StandingClock { now_ms: 1_000 };
        count_from_the_start(&store, &mut commit_loop, &mut clock);
        let required = ReplicasAcked {
            replicas,
            timeout_ms: TIMEOUT_MS,
        };
        store.require_replicas(required, store.replica_set().required());
        Leader {
            mailbox: commit_loop.register(Box::new(|| ())),
            store,
            commit_loop,
            clock,
        }
    }

    /// The same, and notes in the log how many are required, as a server does.
    fn open_noting(disk: &SimulatedDisk, replicas: usize) -> Leader {
        let mut leader = Leader::open(disk, 0);
        let before = leader.store.replica_set().required();
        if replicas > before {
            let mut batch = leader.store.write_batch();
            let change = ReplicaSetChange::Require(replicas);
            let noted = leader.store.change_replica_set(&mut batch, &[change]);
            assert_eq!(noted, Ok(()));
            leader.mailbox.submit(&mut batch);
            leader.run();
            assert_eq!(leader.told(), [Decision::Applied]);
        }
        let required = ReplicasAcked {
            replicas,
            timeout_ms: TIMEOUT_MS,
        };
        leader.store.require_replicas(required, before);
        leader.run();
        leader
    }

    fn run(&mut self) {
        while self.commit_loop.round(&mut self.clock) {}
    }

    fn submit(&mut self, key: &[u8], value: &[u8]) {
        let mut batch = self.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&put(key, value)).expect("it fits");
        commit.submit();
        self.mailbox.submit(&mut batch);
        self.run();
    }

    fn remove(&mut self, key: &[u8]) {
        let mut batch = self.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
        let delete = Operation::Delete {
            key,
            condition: Condition::None,
            want_previous: false,
        };
        commit.push(&delete).expect("it fits");
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
        let sequence = self.commit_loop.log_sequence();
        let session = self.store.begin_follower_session(replica, sequence);
        self.run();
        session
    }

    fn acknowledge(&mut self, session: &FollowerSession) {
        session.acknowledge(self.commit_loop.log_sequence());
        self.run();
    }
}

/// Has both replicas count, as if they had followed for a time.
fn count_from_the_start(store: &Store, commit_loop: &mut CommitLoop, clock: &mut StandingClock) {
    if store.replica_set().members().len() == 2 {
        return;
    }
    let mailbox = commit_loop.register(Box::new(|| ()));
    let mut batch = store.write_batch();
    let [one, two] = [ONE, TWO].map(ReplicaSetChange::Add);
    let changes = [one, two, ReplicaSetChange::Settle];
    let added = store.change_replica_set(&mut batch, &changes);
    assert_eq!(added, Ok(()));
    mailbox.submit(&mut batch);
    while commit_loop.round(clock) {}
}

#[test]
fn a_commit_is_visible_and_answered_when_enough_followers_hold_it() {
    let mut leader = Leader::open(&testkit::simulated_disk(1), 2);
    let (one, two) = (leader.follower(ONE), leader.follower(TWO));
    for round in 0..3 {
        leader.submit(&[round], b"value");
        assert_eq!(leader.told(), []);
        assert!(
            !leader.commit_loop.has_work(),
            "it waits without a busy loop"
        );
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
            leader.commit_loop.due_ns(),
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
        let sequence = leader.commit_loop.log_sequence() - 1;
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
            0 => leader.commit_loop.close(&mut clock).expect("nothing fails"),
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
    let visible_sequence = leader.commit_loop.log_sequence();
    leader.submit(b"waiting", b"value");
    assert_eq!(leader.entries(), 1);
    let target: Arc<dyn Disk> = Arc::new(testkit::simulated_disk(5));
    let (clock, commit_loop) = (&mut leader.clock, &mut leader.commit_loop);
    let mut job = commit_loop.begin_backup(Arc::clone(&target), "test", clock);
    let report = loop {
        match commit_loop.step_backup(job.expect("it can be made"), clock) {
            Ok(backup::BackupStep::Complete(report)) => break report,
            Ok(backup::BackupStep::Worked(next) | backup::BackupStep::Synced(next)) => {
                job = Ok(next);
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(report.sequence, visible_sequence);
    // A snapshot that begins now is good for a start, which finds what waits in the log.
    leader.commit_loop.ask_for_snapshot();
    while leader.commit_loop.step_snapshot(&mut leader.clock) {}
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
    assert!(leader.commit_loop.has_failed());
    let unknown = Decision::Refused(Refusal::OutcomeUnknown);
    assert_eq!(leader.told(), [unknown]);
    leader.acknowledge(&one);
    assert_eq!(leader.entries(), 0);
    leader.submit(b"key", b"value");
    assert_eq!(leader.told(), [Decision::Refused(Refusal::LogFailed)]);
}

#[test]
fn removals_of_what_has_expired_do_not_pile_up_behind_a_commit_that_waits() {
    let mut leader = Leader::open(&testkit::simulated_disk(10), 1);
    let one = leader.follower(ONE);
    let mut batch = leader.store.write_batch();
    let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
    for key in 0..200_u8 {
        let with_expiry = Operation::Put {
            key: &[key],
            value: b"value",
            condition: Condition::None,
            expiry: Expiry::AfterMs(10),
            want_previous: false,
        };
        commit.push(&with_expiry).expect("it fits");
    }
    commit.submit();
    leader.mailbox.submit(&mut batch);
    leader.run();
    leader.acknowledge(&one);
    assert_eq!(leader.told(), [Decision::Applied]);
    leader.submit(b"waiting", b"value");
    leader.clock.now_ms += 300;
    let mut removed = 0;
    for _ in 0..500 {
        leader.clock.now_ms += 1;
        removed += leader.store.sweep(leader.clock.now_ms, &mut batch);
    }
    assert_eq!(removed, 0);
    leader.run();
    leader.acknowledge(&one);
    leader.clock.now_ms += 300;
    assert!(leader.store.sweep(leader.clock.now_ms, &mut batch) > 0);
}

pub fn has(store: &Store, key: &[u8]) -> bool {
    let view = store.view(DatabaseId::DEFAULT).expect("it is there");
    view.get(key, store.hasher().hash(key), 1_000).is_some()
}

/// A leader and a replica that it waits for, each of which may end at any moment.
struct Pair {
    random: Random,
    disk: SimulatedDisk,
    leader: Leader,
    replica: Replica,
    session: Option<FollowerSession>,
    /// Keys of commits, by whether their callers were told that they are there.
    answered: Vec<[u8; 8]>,
    /// Submitted, in their order, and not answered.
    waiting: VecDeque<[u8; 8]>,
    submitted: u64,
    unknown: u64,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let disk = testkit::simulated_disk(seed);
        Pair {
            random: Random::new(seed),
            leader: Leader::open(&disk, 1),
            disk,
            replica: Replica::open(&testkit::simulated_disk(seed + 77)),
            session: None,
            answered: Vec::new(),
            waiting: VecDeque::new(),
            submitted: 0,
            unknown: 0,
        }
    }

    fn submit(&mut self) {
        let key = self.submitted.to_be_bytes();
        self.submitted += 1;
        self.waiting.push_back(key);
        self.leader.submit(&key, b"value");
    }

    /// Takes what was told, and checks that it is where it must be.
    fn hear(&mut self) {
        for decision in self.leader.told() {
            let key = self.waiting.pop_front().expect("one outcome for each");
            match decision {
                Decision::Applied => {
                    assert!(has(&self.leader.store, &key), "an answer is visible");
                    assert!(has(&self.replica.store, &key), "and on the replica");
                    self.answered.push(key);
                }
                Decision::Refused(Refusal::NotAcknowledged) => self.unknown += 1,
                Decision::Refused(Refusal::ReplicasMissing) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Has the replica take some of the log, and say so.
    fn follow(&mut self) {
        let bytes = 1 << self.random.below(14);
        let taken = self.replica.take_from(&self.leader.store, bytes);
        let sequence = taken.expect("everything can be followed");
        match &self.session {
            Some(session) => session.acknowledge(sequence),
            None => {
                let session = self.leader.store.begin_follower_session(ONE, sequence);
                self.session = Some(session);
            }
        }
        self.leader.run();
    }

    fn end_leader(&mut self) {
        self.hear();
        self.session = None;
        self.waiting.clear();
        let spare = Leader::open(&testkit::simulated_disk(0), 0);
        let Leader {
            commit_loop, clock, ..
        } = std::mem::replace(&mut self.leader, spare);
        match self.random.below(3) {
            0 => commit_loop.close(&mut { clock }).expect("nothing fails"),
            1 => self.disk.kill(),
            _ => self.disk.lose_power(),
        }
        self.leader = Leader::open(&self.disk, 1);
        self.leader.clock = clock;
        self.leader.run();
        assert!(self.leader.store.awaits_replicas());
    }

    fn end_replica(mut self) -> Pair {
        self.session = None;
        let way = self.random.below(3) as usize;
        self.replica = self.replica.restart(way);
        self
    }

    /// Whatever a reader of the leader may see is on the replica.
    fn check(&self) {
        verify(&self.leader.store);
        if self.leader.store.awaits_replicas() {
            return;
        }
        for key in (0..self.submitted).map(u64::to_be_bytes) {
            let is_missing = has(&self.leader.store, &key) && !has(&self.replica.store, &key);
            assert!(!is_missing, "{key:?} is seen, and on one device");
        }
    }
}

#[test]
fn what_was_answered_or_seen_is_on_the_replica_whoever_ends_and_when() {
    let (mut answered, mut unknown) = (0, 0);
    for seed in 0..30 {
        let mut pair = Pair::new(seed);
        println!("{:?}", pair.random);
        for _ in 0..400 {
            match pair.random.below(20) {
                0 => pair.end_leader(),
                1 => pair = pair.end_replica(),
                2 => {
                    pair.session = None;
                }
                3 => {
                    pair.leader.clock.now_ms += TIMEOUT_MS / 2;
                    pair.leader.run();
                }
                4..11 => pair.follow(),
                _ => pair.submit(),
            }
            pair.hear();
        }
        pair.check();
        for _ in 0..3 {
            pair.follow();
            pair.hear();
        }
        pair.check();
        for key in &pair.answered {
            assert!(has(&pair.leader.store, key) && has(&pair.replica.store, key));
        }
        answered += pair.answered.len();
        unknown += pair.unknown;
    }
    assert!(answered > 500 && unknown > 10, "{answered} {unknown}");
}

/// Who has heard of the higher number alone must not be promoted beside those that hold a commit.
#[test]
fn a_lower_requirement_holds_when_as_many_as_before_know_of_it_whatever_ends_meanwhile() {
    let disk = testkit::simulated_disk(91);
    let mut leader = Leader::open_noting(&disk, 2);
    let sessions = (leader.follower(ONE), leader.follower(TWO));
    assert!(!leader.store.awaits_replicas());
    drop((leader, sessions));
    for _ in 0..3 {
        disk.lose_power();
        let mut leader = Leader::open_noting(&disk, 1);
        let one = leader.follower(ONE);
        leader.acknowledge(&one);
        assert!(leader.store.awaits_replicas(), "one of two is not enough");
        assert_eq!(leader.store.replica_set().required(), 2);
    }
    disk.lose_power();
    let mut leader = Leader::open_noting(&disk, 1);
    let (one, two) = (leader.follower(ONE), leader.follower(TWO));
    assert!(!leader.store.awaits_replicas());
    assert_eq!(leader.store.acknowledged().required, 2, "it is on its way");
    leader.acknowledge(&one);
    assert_eq!(leader.store.acknowledged().required, 2);
    leader.acknowledge(&two);
    assert_eq!(leader.store.acknowledged().required, 1);
    assert_eq!(leader.store.replica_set().required(), 1);
    leader.submit(b"k", b"v");
    leader.acknowledge(&one);
    assert_eq!(leader.told(), [Decision::Applied]);
}

#[test]
fn a_lost_replica_is_forgotten_when_enough_of_the_others_hold_that_and_counts_when_it_is_back() {
    let disk = testkit::simulated_disk(92);
    let mut leader = Leader::open(&disk, 1);
    let members = |leader: &Leader| leader.store.replica_set().members().len();
    for _ in 0..2 {
        let (one, two) = (leader.follower(ONE), leader.follower(TWO));
        for _ in 0..2 {
            // The second time that the first one was acknowledged.
            leader.acknowledge(&one);
            leader.acknowledge(&two);
        }
        assert_eq!(members(&leader), 2);
        assert!(!leader.store.replica_set().is_unsettled());
        assert_eq!(leader.store.forget_replicas(&[ONE, TWO]), [ONE, TWO]);
        leader.run();
        assert_eq!(members(&leader), 2, "who is connected stays");
        drop(two);
        assert!(leader.store.forget_replicas(&[TWO]).is_empty());
        leader.run();
        assert_eq!(members(&leader), 2, "nobody holds it yet");
        leader.acknowledge(&one);
        assert_eq!(members(&leader), 1);
        assert!(leader.store.replica_set().is_unsettled());
        leader.acknowledge(&one);
        assert!(!leader.store.replica_set().is_unsettled());
        leader.submit(b"k", b"v");
        leader.acknowledge(&one);
        assert_eq!(leader.told(), [Decision::Applied]);
    }
}

/// Two changes in one group would let majorities of the sets before and behind it have nobody in
/// common.
#[test]
fn the_set_of_replicas_changes_by_one_replica_at_a_time() {
    let disk = testkit::simulated_disk(93);
    let mut leader = Leader::open(&disk, 1);
    let one = leader.follower(ONE);
    leader.acknowledge(&one);
    leader.commit_loop.set_group_operations(1);
    // They come behind writes of which each is a group.
    let mut batch = leader.store.write_batch();
    for number in 0..4_u8 {
        let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&put(&[number], b"v")).expect("it fits");
        commit.submit();
    }
    leader.mailbox.submit(&mut batch);
    let mut before = leader.store.replica_set();
    for number in 10..18 {
        let newcomer = [number; REPLICA_ID_BYTES];
        let session = leader.store.begin_follower_session(newcomer, 0);
        leader.acknowledge(&one);
        drop(session);
        if number == 11 {
            leader.commit_loop.set_group_operations(1_000);
        }
        let set = leader.store.replica_set();
        assert!(set.members().len() <= before.members().len() + 1);
        before = set;
    }
    assert!(before.members().len() > 2);
}

/// A leader writes that TWO counts too, and ends before anybody has that. Its next start waits for
/// ONE, who knows of itself alone: it could be promoted by itself else.
#[test]
fn changes_of_the_set_that_do_not_fit_into_a_commit_are_refused_whole() {
    let mut leader = Leader::open(&testkit::simulated_disk(8), 0);
    let mut batch = leader.store.write_batch();
    for count in [COMMIT_OPERATIONS + 1, 3 * COMMIT_OPERATIONS] {
        let many = vec![ReplicaSetChange::Settle; count];
        let changed = leader.store.change_replica_set(&mut batch, &many);
        assert!(changed.is_err() && batch.is_empty());
    }
    let before = leader.store.replica_set();
    leader.mailbox.submit(&mut batch);
    leader.run();
    assert_eq!(
        (leader.told(), leader.store.replica_set()),
        (vec![], before)
    );
}

#[test]
fn a_start_waits_for_those_who_lack_the_last_change_of_the_members_too() {
    let disk = testkit::simulated_disk(94);
    let mut leader = Leader::open(&disk, 1);
    for round in 0..2 {
        // Forgotten, so that it is to count again.
        let one = leader.follower(ONE);
        leader.acknowledge(&one);
        assert!(leader.store.forget_replicas(&[TWO]).is_empty());
        leader.run();
        for _ in 0..3 {
            leader.acknowledge(&one);
        }
        let set = leader.store.replica_set();
        assert_eq!(
            (set.members().len(), set.is_unsettled()),
            (1, false),
            "{round}"
        );
        let two = leader.follower(TWO);
        assert_eq!(
            leader.store.replica_set().members().len(),
            1,
            "nobody has it"
        );
        drop((one, two));
        drop(leader);
        disk.lose_power();
        leader = Leader::open_noting(&disk, 1);
        let set = leader.store.replica_set();
        assert_eq!((set.members().len(), set.is_unsettled()), (2, true));
        let two = leader.follower(TWO);
        leader.acknowledge(&two);
        assert!(
            leader.store.awaits_replicas(),
            "the newcomer alone is not enough"
        );
        let one = leader.follower(ONE);
        leader.acknowledge(&one);
        leader.acknowledge(&one);
        assert!(!leader.store.awaits_replicas());
        assert!(!leader.store.replica_set().is_unsettled());
        drop((one, two));
    }
}
