//! Mailboxes that come and go, as those of threads do that serve one connection.

use store::durable::{CommitLoop, Mailbox, Opened, open_folder};
use store::{DatabaseId, Durability, Mode, Outcomes, Store, StoreConfig};
use testkit::suite::{StandingClock, put};
use wal::{LogConfig, LogId};

use crate::folder::TestFolder;

#[test]
fn each_gets_the_outcomes_of_its_own_commits() {
    let folder = TestFolder::new("mailboxes");
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
    let mut rounds = CommitLoop::new(committer);
    let mut clock = StandingClock { now_ms: 1 };
    let mut gone = rounds.register(Box::new(|| ()));
    for round in 1..=4_u64 {
        let mailboxes: Vec<Mailbox> = (0..round * 5)
            .map(|_| rounds.register(Box::new(|| ())))
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
        gone = rounds.register(Box::new(|| ()));
        while rounds.round(&mut clock) {}
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
