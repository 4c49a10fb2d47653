//! In the steady state nothing is allocated: not by reads, and not by writes that keep a value's
//! length.

use std::ops::ControlFlow;

use allocation_counter::measure;
use store::{
    Clock, Condition, DatabaseId, Decision, Direction, Expiry, Mode, Operation, Outcomes, Range,
    Store, StoreConfig, VolatileCommitter, WriteBatch,
};

struct StandingClock;

impl Clock for StandingClock {
    fn now_ns(&mut self) -> u64 {
        0
    }

    fn now_ms(&mut self) -> u64 {
        1
    }
}

fn run(
    batch: &mut WriteBatch,
    committer: &mut VolatileCommitter,
    outcomes: &mut Outcomes,
    keys: &[[u8; 4]],
    commits: usize,
) {
    for keys in keys.chunks(keys.len() / commits) {
        let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
        for key in keys {
            let (condition, expiry) = (Condition::None, Expiry::None);
            let put = Operation::Put {
                key,
                value: &[7; 100],
                condition,
                expiry,
                want_previous: true,
            };
            commit.push(&put).expect("fits");
            commit.push(&Operation::Get { key }).expect("fits");
        }
        commit.submit();
    }
    drop(committer.run(batch, &mut StandingClock, outcomes));
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.decision == Decision::Applied)
    );
}

#[test]
fn the_steady_state_allocates_nothing() {
    let store = Store::in_memory(StoreConfig::new(1)).expect("the configuration is valid");
    let (mut batch, mut committer, mut outcomes) =
        (store.write_batch(), store.committer(), Outcomes::new());
    let keys: Vec<[u8; 4]> = (0..1000u32).map(u32::to_be_bytes).collect();
    for commits in [1, 10, 1000] {
        // The first run inserts, the second has room made for previous values.
        for _ in 0..2 {
            run(&mut batch, &mut committer, &mut outcomes, &keys, commits);
        }
        let writes = measure(|| run(&mut batch, &mut committer, &mut outcomes, &keys, commits));
        assert_eq!(writes.count_total, 0, "writes in {commits} commits");
    }
    assert!(store.order_keys(DatabaseId::DEFAULT, &mut || true));
    let reads = measure(|| {
        let view = store.view(DatabaseId::DEFAULT).expect("it always exists");
        for key in &keys {
            assert!(view.get(key, store.hasher().hash(key), 1).is_some());
        }
        let range = Range::new(&keys[100], None);
        view.scan(&range, Direction::Backward, 1, 100, &mut |_| {
            ControlFlow::Continue(())
        });
        assert_eq!(view.count(&range, 1, 1000).count, 900);
    });
    assert_eq!(reads.count_total, 0);
}

/// What travels to a committer's thread and back.
#[test]
fn batches_and_outcomes_can_travel() {
    fn travels<T: Send + 'static>() {}
    travels::<WriteBatch>();
    travels::<Outcomes>();
    travels::<VolatileCommitter>();
    travels::<store::Garbage>();
}
