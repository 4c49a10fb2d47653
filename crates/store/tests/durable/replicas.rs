//! A replica that takes the log of its leader: whatever happens to either of them, what it has is
//! what the leader had at some commit, and the same once it has caught up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use store::backup::{RestoreConfig, restore};
use store::durable::{CommitLoop, FollowError, FollowedGroups, Opened};
use store::log::FollowedGroup;
use store::{
    DatabaseId, Decision, FollowRefusal, GroupReading, KeepLog, LogReadError, Mode, Outcomes,
    Refusal, Store, WatchError,
};
use testkit::Random;
use testkit::suite::{MachineClock, StandingClock, put};
use wal::LogConfig;
use wal::disk::{Disk, Fault, SimulatedDisk, Step};

use crate::backups::{Client, config};
use crate::bench::{Durable, log_config, verify};
use crate::crash::state_of;
use crate::plan::Planner;

/// A store on a disk that follows another one.
pub struct Replica {
    pub store: Store,
    pub commit_loop: CommitLoop,
    pub clock: MachineClock,
    disk: SimulatedDisk,
}

impl Replica {
    pub fn open(disk: &SimulatedDisk) -> Replica {
        Replica::open_at(disk, MachineClock::new(1))
    }

    /// Opens it on a machine whose clock shows something else.
    pub fn open_at(disk: &SimulatedDisk, clock: MachineClock) -> Replica {
        let log_config = LogConfig {
            follows: true,
            now_ms: clock.wall_ms,
            ..log_config()
        };
        let opened = Store::open(config(), Arc::new(disk.clone()), &log_config);
        let Opened {
            store,
            committer,
            recovered,
            ..
        } = opened.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(recovered.next_sequence, recovered.last_sequence + 1);
        Replica {
            store,
            commit_loop: CommitLoop::new(committer),
            clock,
            disk: disk.clone(),
        }
    }

    /// Ends in one way or another, and starts again.
    pub fn restart(self, way: usize) -> Replica {
        let disk = self.disk.clone();
        let mut clock = self.clock;
        match way {
            0 => self.commit_loop.close(&mut clock).expect("nothing fails"),
            1 => disk.kill(),
            _ => disk.lose_power(),
        }
        Replica::open_at(&disk, clock)
    }

    fn follow(&mut self, groups: Vec<FollowedGroup>) -> Result<u64, FollowError> {
        let gone = BTreeSet::new();
        let groups = FollowedGroups { groups, gone };
        let report = self.commit_loop.follow(groups, &mut self.clock)?;
        assert_eq!(report.sequence, self.commit_loop.log_sequence());
        Ok(report.sequence)
    }

    /// Takes what another store has, at most so many bytes at a time.
    pub fn take_from(&mut self, leader: &Store, bytes: usize) -> Result<u64, FollowError> {
        let mut reading =
            read_behind(leader, self.commit_loop.log_sequence()).expect("it is there");
        loop {
            let before = reading.position();
            let groups = reading.run(bytes, usize::MAX).expect("it can be read");
            if groups.is_empty() && before == reading.position() {
                return Ok(before);
            }
            self.follow(groups)?;
        }
    }
}

fn read_behind(leader: &Store, sequence: u64) -> Result<GroupReading, FollowRefusal> {
    let follower = leader.follow_log().expect("it has a log");
    assert_eq!(leader.followers(), 1);
    follower.read_behind(sequence)
}

fn is_all_durable(store: &Store) -> bool {
    let log = store.log_statistics().expect("there is a log");
    log.durable_sequence == log.written_sequence
}

#[test]
fn a_replica_has_what_its_leader_has_whatever_happens_to_either() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        println!("{random:?}");
        let (disk, own) = (
            testkit::simulated_disk(seed),
            testkit::simulated_disk(seed + 99),
        );
        let (mut leader, mut replica) = (Client::open(&disk), Replica::open(&own));
        let mut compared = 0;
        // In every other world somebody sets the clocks.
        let (mut ahead, are_set) = (MachineClock::new(0), seed % 2 > 0);
        for mut turn in Planner::new(seed).plan(4_000) {
            if are_set && random.once_in(8) {
                ahead.jump(&mut random);
                replica.clock.jump(&mut random);
            }
            turn.now_ms += ahead.wall_ms;
            leader.sweep(turn.now_ms);
            leader.commit(&turn, 0..turn.commits.len());
            if random.once_in(3) {
                let bytes = 1 << random.below(18);
                let taken = replica.take_from(&leader.durable.store, bytes);
                let sequence = taken.expect("everything can be followed");
                verify(&replica.store);
                if is_all_durable(&leader.durable.store) {
                    compared += 1;
                    let written = leader.durable.commit_loop.log_sequence();
                    assert_eq!(sequence, written);
                    assert_eq!(state_of(&replica.store), state_of(&leader.durable.store));
                }
            }
            if random.once_in(12) {
                replica = replica.restart(random.below(3));
            }
            if random.once_in(20) {
                drop(leader);
                match random.once_in(2) {
                    true => disk.lose_power(),
                    false => disk.kill(),
                }
                leader = Client::open(&disk);
            }
        }
        assert!(compared > 3, "they were compared {compared} times");
        assert_eq!(leader.durable.store.followers(), 0);
    }
}

/// The groups of a replica are other ones than those of its leader.
#[test]
fn a_replica_of_a_replica_can_go_on_with_the_first_leader_and_back() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let disks = [0, 1, 2].map(|disk| testkit::simulated_disk(100 * seed + disk));
        let mut leader = Client::open(&disks[0]);
        let mut middle = Replica::open(&disks[1]);
        let mut last = Replica::open(&disks[2]);
        for turn in Planner::new(seed).plan(1_500) {
            leader.commit(&turn, 0..turn.commits.len());
            if random.once_in(3) {
                let taken = middle.take_from(&leader.durable.store, 1 << random.below(18));
                taken.expect("everything can be followed");
            }
            // It may be ahead of the one in the middle: then that has nothing for it.
            let source = match random.below(4) {
                0 => &leader.durable.store,
                1 if last.commit_loop.log_sequence() <= middle.commit_loop.log_sequence() => {
                    &middle.store
                }
                _ => continue,
            };
            let taken = last.take_from(source, 1 << random.below(18));
            taken.expect("everything can be followed");
        }
        let taken = middle.take_from(&leader.durable.store, 1 << 20);
        taken.expect("everything can be followed");
        last = last.restart(random.below(3));
        let taken = last.take_from(&middle.store, 1 << 20);
        taken.expect("everything can be followed");
        assert_eq!(state_of(&middle.store), state_of(&last.store));
    }
}

#[test]
fn a_replica_decides_nothing() {
    let mut replica = Replica::open(&testkit::simulated_disk(1));
    let mailbox = replica.commit_loop.register(Box::new(|| ()));
    for _ in 0..2 {
        let mut batch = replica.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&put(b"key", b"value")).expect("it fits");
        commit.submit();
        mailbox.submit(&mut batch);
        while replica.commit_loop.round(&mut replica.clock) {}
        let mut outcomes = Outcomes::new();
        assert!(mailbox.take(&mut outcomes));
        assert_eq!(
            outcomes.get(0).decision,
            Decision::Refused(Refusal::Replica)
        );
        assert_eq!(replica.commit_loop.log_sequence(), 0);
        replica.store.sweep(u64::MAX / 2, &mut batch);
        assert_eq!((batch.len(), replica.store.sweep_due_ms()), (0, u64::MAX));
    }
}

fn group(first: u64, last: u64, body: &[u8], records: u32) -> FollowedGroup {
    FollowedGroup {
        first_sequence: first,
        last_sequence: last,
        wall_ms: 5,
        records,
        body: body.to_vec().into(),
    }
}

#[test]
fn groups_that_do_not_fit_are_refused_and_leave_nothing() {
    let mut replica = Replica::open(&testkit::simulated_disk(1));
    for round in 0..2 {
        let last = 10 * round;
        let gap = replica.follow(vec![group(last + 2, last + 3, b"", 0)]);
        let expected = last + 1;
        let found = last + 2;
        assert_eq!(gap, Err(FollowError::Gap { expected, found }));
        let nonsense = replica.follow(vec![
            group(last + 1, last + 4, b"", 0),
            group(last + 5, last + 6, b"nonsense", 1),
        ]);
        assert!(nonsense.is_err_and(|error| error.needs_copy()));
        assert_eq!(replica.commit_loop.log_sequence(), last);
        let sound = replica.follow(vec![
            group(last + 1, last + 4, b"", 0),
            group(last + 5, last + 10, b"", 0),
        ]);
        assert_eq!(sound, Ok(last + 10));
    }
}

#[test]
fn what_is_not_there_is_said() {
    let disk = testkit::simulated_disk(1);
    let mut durable = Durable::open(config(), &disk).unwrap_or_else(|error| panic!("{error}"));
    let mut clock = StandingClock { now_ms: 1000 };
    let fill = |durable: &mut Durable, clock: &mut StandingClock| {
        for number in 0..200_u32 {
            let mut batch = durable.store.write_batch();
            let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
            let value = [7; 2_000];
            (commit.push(&put(&number.to_be_bytes(), &value))).expect("it fits");
            commit.submit();
            durable.submit(&mut batch, clock, &mut Outcomes::new());
            while durable.commit_loop.round(clock) {}
        }
    };
    fill(&mut durable, &mut clock);
    let present = durable.commit_loop.log_sequence();
    let ahead = read_behind(&durable.store, present + 1).expect_err("it is not there yet");
    let asked = present + 1;
    assert_eq!(ahead, FollowRefusal::Ahead { asked, present });
    let mut reading = read_behind(&durable.store, 0).expect("it is there");
    let first = reading.run(1, usize::MAX).expect("it is there");
    assert_eq!(first.len(), 1);
    let needs = reading.run(1, 100).expect_err("more memory is needed");
    let LogReadError::Needs(bytes) = needs else {
        panic!("{needs:?}");
    };
    let mut again = read_behind(&durable.store, reading.position()).expect("it is there");
    assert_eq!(again.run(1, bytes - 1).expect_err("it is less"), needs);
    let second = again.run(1, bytes).expect("it is enough");
    assert_eq!(second.len(), 1);
    assert!(
        bytes >= 2 * second[0].body.len(),
        "with the buffer of the reader"
    );
    durable.commit_loop.ask_for_snapshot();
    while durable.commit_loop.step_snapshot(&mut clock) {}
    fill(&mut durable, &mut clock);
    assert_eq!(KeepLog::NONE, config().keep_log);
    let lost = read_behind(&durable.store, 0).expect_err("it has gone");
    assert_eq!(lost, FollowRefusal::Lost { asked: 0 });
    let lost = reading.run(1, usize::MAX).expect_err("it has gone");
    assert!(
        matches!(lost, LogReadError::Failed(WatchError::Lost { .. })),
        "{lost}"
    );
}

/// What a first copy is made of: a backup, whose log goes on with that of the leader.
#[test]
fn who_follows_is_woken_when_more_is_on_the_device() {
    let disk = testkit::simulated_disk(3);
    let mut durable = Durable::open(config(), &disk).unwrap_or_else(|error| panic!("{error}"));
    let (mut clock, woken) = (
        StandingClock { now_ms: 1000 },
        Arc::new(AtomicUsize::new(0)),
    );
    let counted = Arc::clone(&woken);
    let wake = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let _waker = durable.store.wake_at_changes(Arc::new(wake));
    for round in 0..4_u8 {
        let follower = (round % 2 > 0).then(|| durable.store.follow_log());
        let follower = follower.map(|follower| follower.expect("it has a log"));
        let before = woken.load(Ordering::Relaxed);
        let changes = follower.as_ref().map(|one| one.news().changes());
        let mut batch = durable.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&put(&[round], b"v")).expect("it fits");
        commit.submit();
        durable.submit(&mut batch, &mut clock, &mut Outcomes::new());
        while durable.commit_loop.round(&mut clock) {}
        assert!(is_all_durable(&durable.store));
        let is_woken = woken.load(Ordering::Relaxed) > before;
        assert_eq!(is_woken, follower.is_some(), "nobody watches beside");
        let after = follower.as_ref().map(|one| one.news().changes());
        assert!(after > changes || follower.is_none());
    }
}

#[test]
fn whether_a_content_is_there_is_not_guessed() {
    let disk = testkit::simulated_disk(4);
    let durable = Durable::open(config(), &disk).unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..2 {
        assert!(!durable.store.has_content(1).expect("nothing fails"));
        for fault in [Fault::Error, Fault::NoDescriptor] {
            disk.plan_next(Step::Open, 0, fault);
            durable.store.has_content(1).expect_err("nobody knows");
        }
    }
}

#[test]
fn a_restored_copy_goes_on_with_the_log_of_its_leader() {
    for seed in 0..4 {
        let (disk, own) = (
            testkit::simulated_disk(seed),
            testkit::simulated_disk(seed + 50),
        );
        let place = testkit::simulated_disk(seed + 90);
        let mut leader = Client::open(&disk);
        let turns = Planner::new(seed).plan(300);
        let (early, late) = turns.split_at(turns.len() / 2);
        for turn in early {
            leader.commit(turn, 0..turn.commits.len());
        }
        let mut job = leader.begin(&place).expect("it begins");
        while let std::ops::ControlFlow::Continue(next) = leader.step(job).expect("it goes on") {
            job = next;
        }
        let restore_config = RestoreConfig {
            store: config(),
            log: LogConfig {
                follows: true,
                ..log_config()
            },
            trees: None,
        };
        let target: Arc<dyn Disk> = Arc::new(own.clone());
        let mut clock = StandingClock { now_ms: 1 };
        let watch = &mut |_, _| std::ops::ControlFlow::Continue(());
        let restored = restore(&place, &target, &restore_config, &mut clock, watch);
        let restored = restored.expect("it is whole");
        let history_id = leader.durable.store.history_id();
        assert_eq!(restored.history_id, history_id, "that of the leader");
        drop(target);
        let mut replica = Replica::open(&own);
        assert_eq!(
            replica.commit_loop.log_sequence(),
            restored.manifest.cut.sequence
        );
        for turn in late {
            leader.commit(turn, 0..turn.commits.len());
            let taken = replica.take_from(&leader.durable.store, 1 << 12);
            taken.expect("everything can be followed");
        }
        replica = replica.restart(2);
        if is_all_durable(&leader.durable.store) {
            let states = [&replica.store, &leader.durable.store].map(state_of);
            let [own, of_leader] = states.map(|state| crate::crash::without_identities(&state));
            assert_eq!(own, of_leader);
        }
    }
}

/// Reads the keys of all that was written since a time, with the times of their groups.
fn keys_since(store: &Store, since_ms: u64) -> Result<Vec<(u64, Vec<u8>)>, LogReadError> {
    let follower = store.follow_log().expect("it has a log");
    let mut reading = follower.read_since(since_ms);
    let mut keys = Vec::new();
    loop {
        let before = reading.position();
        let mut groups = reading.run(1 << 12, usize::MAX)?;
        if groups.is_empty() && before == reading.position() {
            return Ok(keys);
        }
        for group in &mut groups {
            while let Some((record, bytes)) = group.first().expect("it is sound") {
                if !record.key.is_empty() {
                    keys.push((group.wall_ms, record.key.to_vec()));
                }
                group.pass_first(bytes);
            }
            assert_eq!((group.records, group.body.len()), (0, 0));
        }
    }
}

#[test]
fn what_was_written_since_a_time_is_read_whole_or_said_to_be_lost() {
    let disk = testkit::simulated_disk(1);
    let mut durable = Durable::open(config(), &disk).unwrap_or_else(|error| panic!("{error}"));
    let mut clock = StandingClock { now_ms: 1000 };
    let mut written: Vec<(u64, Vec<u8>)> = Vec::new();
    for round in 0..2_u32 {
        for number in 0..200_u32 {
            // Some share their time.
            clock.now_ms += 10 * u64::from(number % 3);
            let mut batch = durable.store.write_batch();
            let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
            let key = (1000 * round + number).to_be_bytes();
            commit.push(&put(&key, &[7; 2_000])).expect("it fits");
            commit.submit();
            durable.submit(&mut batch, &mut clock, &mut Outcomes::new());
            while durable.commit_loop.round(&mut clock) {}
            written.push((clock.now_ms, key.to_vec()));
        }
        let (mut whole, mut lost) = (0, 0);
        for since_ms in (0..20).chain(980..clock.now_ms + 20) {
            let expected = written.iter().filter(|(at_ms, _)| *at_ms >= since_ms);
            match keys_since(&durable.store, since_ms) {
                Ok(keys) => {
                    assert!(keys.iter().eq(expected), "{since_ms}");
                    whole += 1;
                }
                Err(LogReadError::Failed(WatchError::Lost { .. })) => {
                    assert_eq!(whole, 0, "what is younger is there");
                    lost += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(whole > 100 && (lost > 0) == (round > 0), "{whole} {lost}");
        durable.commit_loop.ask_for_snapshot();
        while durable.commit_loop.step_snapshot(&mut clock) {}
    }
}

/// Else two servers that follow each other would send each other what they got from there.
#[test]
fn records_name_the_server_on_which_a_commit_was_made() {
    let disk = testkit::simulated_disk(1);
    let mut durable = Durable::open(config(), &disk).unwrap_or_else(|error| panic!("{error}"));
    let mut clock = StandingClock { now_ms: 1000 };
    let mut expected = Vec::new();
    let large = [7; 100_000];
    for origin in [0, 7, u32::MAX, 0] {
        for operation in [
            put(b"small", b"value"),
            put(b"large", &large),
            testkit::suite::delete(b"small"),
            store::Operation::Clear,
        ] {
            let mut batch = durable.store.write_batch();
            batch.set_origin(origin);
            let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
            commit.push(&operation).expect("it fits");
            commit.submit();
            durable.submit(&mut batch, &mut clock, &mut Outcomes::new());
            while durable.commit_loop.round(&mut clock) {}
            expected.push(origin);
        }
    }
    let mut replica = Replica::open(&testkit::simulated_disk(2));
    let taken = replica.take_from(&durable.store, 1 << 20);
    taken.expect("everything can be followed");
    for store in [&durable.store, &replica.store] {
        let groups = (store.follow_log().expect("it has a log"))
            .read_since(0)
            .run(1 << 30, usize::MAX)
            .expect("it is there");
        let records = groups.iter().flat_map(|group| group.read().expect("sound"));
        let records = records.filter(|record| record.kind != store::log::RecordKind::Mark);
        let origins: Vec<u32> = records.map(|record| record.origin).collect();
        assert_eq!(origins, expected);
    }
}
