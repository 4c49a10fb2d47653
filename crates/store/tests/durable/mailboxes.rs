//! Mailboxes that come and go, as those of threads do that serve one connection.

use store::durable::{CommitLoop, Mailbox, Opened, open_folder};
use store::{
    DatabaseConfig, DatabaseId, Decision, Durability, Mode, Outcomes, Refusal, Store, StoreConfig,
    WriteBatch,
};
use testkit::suite::{StandingClock, put};
use wal::{LogConfig, LogId};

use crate::folder::TestFolder;

/// A store whose default database is synced, and its commit loop.
fn open(folder: &TestFolder) -> (Store, CommitLoop) {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    let id = LogId {
        history: 1,
        secret: 2,
    };
    let disk = open_folder(&folder.0).expect("it is empty");
    let Opened {
        store, committer, ..
    } = Store::open(config, disk, &LogConfig::new(id, 1)).expect("it is empty");
    (store, CommitLoop::new(committer))
}

/// A commit that is put together when its database is gone: nothing is known of that any more.
#[test]
fn a_commit_on_a_database_that_is_gone_is_refused_by_the_committer() {
    let folder = TestFolder::new("gone-database");
    let (store, mut commit_loop) = open(&folder);
    let mailbox = commit_loop.register(Box::new(|| ()));
    let mut clock = StandingClock { now_ms: 1 };
    let mut run = |fill: &dyn Fn(&mut WriteBatch)| {
        let mut batch = store.write_batch();
        fill(&mut batch);
        assert_eq!(batch.logged_len(), 1, "there is one who refuses it");
        mailbox.submit(&mut batch);
        while commit_loop.round(&mut clock) {}
        let mut outcomes = Outcomes::new();
        assert!(mailbox.take(&mut outcomes) && mailbox.is_idle());
        (outcomes.get(0).decision, outcomes.get(0).database)
    };
    for _ in 0..2 {
        let config = DatabaseConfig::default();
        let (created, id) = run(&|batch| batch.create_database(1, "short-lived", &config));
        assert_eq!(created, Decision::Applied);
        assert_eq!(
            run(&|batch| batch.drop_database(1, id)).0,
            Decision::Applied
        );
        let (late, _) = run(&|batch| {
            let mut commit = batch.begin(1, id, Mode::Atomic);
            commit.push(&put(b"key", b"value")).expect("it fits");
            commit.submit();
        });
        assert_eq!(late, Decision::Refused(Refusal::UnknownDatabase));
    }
}

#[test]
fn each_gets_the_outcomes_of_its_own_commits() {
    let folder = TestFolder::new("mailboxes");
    let (store, mut commit_loop) = open(&folder);
    let mut clock = StandingClock { now_ms: 1 };
    let mut gone = commit_loop.register(Box::new(|| ()));
    for round in 1..=4_u64 {
        let mailboxes: Vec<Mailbox> = (0..round * 5)
            .map(|_| commit_loop.register(Box::new(|| ())))
            .collect();
        let mut batch = store.write_batch();
        // One goes with a commit under way, whose outcome is for nobody.
        for (number, mailbox) in (0..).zip(&mailboxes).chain([(99, &gone)]) {
            for part in 0..3 {
                let tag = round * 1_000 + number * 10 + part;
                let mut commit = batch.begin(tag, DatabaseId::DEFAULT, Mode::Atomic);
                commit.push(&put(&tag.to_be_bytes(), b"v")).expect("fits");
                commit.submit();
                if part != 1 {
                    mailbox.submit(&mut batch);
                }
            }
            assert!(!mailbox.is_idle());
        }
        gone = commit_loop.register(Box::new(|| ()));
        while commit_loop.round(&mut clock) {}
        for (number, mailbox) in (0..).zip(&mailboxes) {
            let (mut outcomes, mut tags) = (Outcomes::new(), Vec::new());
            while mailbox.take(&mut outcomes) {
                tags.extend(outcomes.iter().map(|outcome| outcome.tag));
            }
            let first = round * 1_000 + number * 10;
            assert_eq!(tags, [first, first + 1, first + 2]);
            assert!(mailbox.is_idle());
            mailbox.rest();
        }
        assert!(gone.is_idle() && !gone.take(&mut Outcomes::new()));
    }
}
