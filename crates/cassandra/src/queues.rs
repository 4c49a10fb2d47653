//! Queues of commits: those of one partition wait for each other here.
//!
//! At the nodes their Paxos rounds would only disturb each other. A queue has a longest length, so
//! that one hot bucket leaves the requests of the gateway to the others.

use std::sync::atomic::{AtomicUsize, Ordering};

use store::remote::RemoteError;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use crate::caller_error::BUSY;
use crate::limits;
use crate::partition::BucketPartition;

/// All queues of a gateway. Partitions share them by chance.
#[derive(Debug)]
pub(crate) struct PartitionQueues {
    queues: Vec<PartitionQueue>,
}

#[derive(Debug, Default)]
struct PartitionQueue {
    turn: Mutex<()>,
    /// Commits that have their turn, or wait for it.
    commits: AtomicUsize,
}

/// The turn of a commit. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct PartitionTurn<'a> {
    _turn: MutexGuard<'a, ()>,
    _place: QueuePlace<'a>,
}

/// A place in a queue.
#[derive(Debug)]
struct QueuePlace<'a>(&'a AtomicUsize);

impl PartitionQueues {
    pub(crate) fn new(count: usize) -> PartitionQueues {
        let queues = (0..count.max(1)).map(|_| PartitionQueue::default());
        PartitionQueues {
            queues: queues.collect(),
        }
    }

    /// Waits for the turn of a commit on a partition.
    ///
    /// # Errors
    ///
    /// If too many wait already, or the deadline comes first. Nothing was sent yet.
    pub(crate) async fn turn(
        &self,
        partition: &BucketPartition,
        deadline: Instant,
    ) -> Result<PartitionTurn<'_>, RemoteError> {
        let queue = self.queues.get(partition.queue(self.queues.len()));
        // There is one for each number that is smaller than their count.
        let queue = queue.ok_or(RemoteError::Refused)?;
        // Before it waits: those that come later must see it.
        let before = queue.commits.fetch_add(1, Ordering::Relaxed);
        let place = QueuePlace(&queue.commits);
        if before > limits::PARTITION_WAITING {
            return Err(BUSY);
        }
        let turn = timeout_at(deadline, queue.turn.lock()).await;
        Ok(PartitionTurn {
            _turn: turn.map_err(|_| RemoteError::TimedOut)?,
            _place: place,
        })
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::join_all;
    use store::DatabaseId;

    use super::*;
    use crate::partition::EntryTable;
    use crate::paused_time::run;

    fn partition(bucket: u16) -> BucketPartition {
        BucketPartition {
            table: EntryTable::Linearizable,
            database: DatabaseId::DEFAULT,
            bucket,
        }
    }

    #[test]
    fn a_partition_that_many_wait_for_refuses_more_and_leaves_others_alone() {
        run(async {
            let queues = PartitionQueues::new(limits::PARTITION_QUEUES);
            let deadline = Instant::now() + Duration::from_secs(10);
            let turn = queues.turn(&partition(1), deadline).await.unwrap();
            let more = limits::PARTITION_WAITING + 3;
            let waiting = (0..more).map(|_| async {
                let turn = queues.turn(&partition(1), deadline).await;
                turn.map(drop)
            });
            let ends = join_all(waiting).await;
            let busy = ends
                .iter()
                .filter(|end| matches!(end, Err(RemoteError::Busy { .. })));
            assert_eq!(busy.count(), 3);
            let timed_out = ends
                .iter()
                .filter(|&end| *end == Err(RemoteError::TimedOut));
            assert_eq!(timed_out.count(), limits::PARTITION_WAITING);
            let deadline = Instant::now() + Duration::from_secs(1);
            assert!(queues.turn(&partition(2), deadline).await.is_ok());
            drop(turn);
            let free = &queues.queues[partition(1).queue(limits::PARTITION_QUEUES)];
            assert_eq!(free.commits.load(Ordering::Relaxed), 0);
            assert!(queues.turn(&partition(1), deadline).await.is_ok());
        });
    }
}
