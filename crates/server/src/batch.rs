//! What gathers in one tick: reads to be served from one view, and writes for the committer.

use std::ops::Range;

use net::ConnectionId;
use store::{DatabaseId, Source, WriteBatch};

use crate::call_id::CallId;
use crate::fair_queue::FairQueue;
use crate::limits;

/// One read that a call asked for.
#[derive(Clone)]
pub(crate) struct TickRead {
    pub database: DatabaseId,
    pub connection: ConnectionId,
    pub call: CallId,
    /// That of the key that is kept for it.
    pub hash: u64,
    kept: Range<usize>,
}

/// What a call has done in the time that a tick has for long work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LongWork {
    /// It is shown this database.
    Read(DatabaseId),
    /// It is woken.
    Step,
    /// It takes up its request, of many operations.
    Request,
}

/// The short reads of one tick, with the bytes kept for them. Taken out of the batch as a whole
/// while it is served.
#[derive(Default)]
pub(crate) struct TickReads {
    pub list: Vec<TickRead>,
    arena: Vec<u8>,
}

impl TickReads {
    pub fn kept(&self, read: &TickRead) -> &[u8] {
        &self.arena[read.kept.clone()]
    }
}

/// The tick's batch.
pub(crate) struct TickBatch {
    reads: TickReads,
    /// What may take long: connections take turns, and a call that goes on comes behind those of
    /// its connection that wait. A call has at most one place in it.
    pub long_work: FairQueue<ConnectionId, (LongWork, CallId)>,
    /// The same, of calls that take up a request: they wait for those before them as well.
    pub long_requests: FairQueue<ConnectionId, CallId>,
    /// Whose turn it is, if some of both wait.
    is_turn_of_request: bool,
    pub writes: WriteBatch,
    /// Those to databases on disk or elsewhere: what they wait for, the others need not.
    pub disk_writes: WriteBatch,
}

impl TickBatch {
    pub fn new(writes: WriteBatch, disk_writes: WriteBatch) -> TickBatch {
        TickBatch {
            reads: TickReads::default(),
            long_work: FairQueue::default(),
            long_requests: FairQueue::default(),
            is_turn_of_request: false,
            writes,
            disk_writes,
        }
    }

    /// Where the commits of a database go.
    #[inline]
    pub fn writes_to(&mut self, database: DatabaseId) -> &mut WriteBatch {
        if self.writes.is_outside_memory(database) {
            &mut self.disk_writes
        } else {
            &mut self.writes
        }
    }

    /// Says who asks for the commits to come.
    #[inline]
    pub fn set_source(&mut self, source: Source) {
        self.writes.set_source(source);
        self.disk_writes.set_source(source);
    }

    /// How many commits wait.
    #[inline]
    pub fn commits(&self) -> usize {
        self.writes.len() + self.disk_writes.len()
    }

    /// How many bytes the commits hold that wait.
    #[inline]
    pub fn write_bytes(&self) -> usize {
        self.writes.held_bytes() + self.disk_writes.held_bytes()
    }

    /// Drops the commits of calls that have ended, by their tags in order.
    pub fn remove_abandoned(&mut self, tags: &[u64]) {
        self.writes.remove_abandoned(tags);
        self.disk_writes.remove_abandoned(tags);
    }

    /// Whether something is to be written.
    pub fn has_writes(&self) -> bool {
        !self.writes.is_empty() || !self.disk_writes.is_empty()
    }

    /// Adds a read of a call, and the key with this hash that comes back with it.
    #[inline]
    pub fn add_read(
        &mut self,
        connection: ConnectionId,
        (database, call, hash): (DatabaseId, CallId, u64),
        key: &[u8],
    ) {
        let start = self.reads.arena.len();
        self.reads.arena.extend_from_slice(key);
        self.reads.list.push(TickRead {
            database,
            connection,
            call,
            hash,
            kept: start..start + key.len(),
        });
    }

    /// The short reads of this tick. Give them back with [`TickBatch::give_reads`], so that nothing
    /// is allocated anew.
    pub fn take_reads(&mut self) -> TickReads {
        std::mem::take(&mut self.reads)
    }

    /// `served` becomes the list of the next tick. What was asked for while it was served goes in
    /// front of that.
    pub fn give_reads(&mut self, mut served: TickReads) {
        served.list.clear();
        served.arena.clear();
        served.arena.shrink_to(limits::ARENA_KEPT_BYTES);
        let asked = std::mem::replace(&mut self.reads, served);
        for read in &asked.list {
            let kept = asked.kept(read);
            self.add_read(read.connection, (read.database, read.call, read.hash), kept);
        }
    }

    /// Returns how many calls wait with something long.
    #[inline]
    pub fn long_len(&self) -> usize {
        self.long_work.len() + self.long_requests.len()
    }

    /// Takes out what is next of what may take long: of requests if some may be taken up, and of
    /// the rest, one of each in turn.
    pub fn next_long(&mut self, takes_requests: bool) -> Option<(LongWork, CallId)> {
        let has_request = takes_requests && !self.long_requests.is_empty();
        let is_request = has_request && (self.is_turn_of_request || self.long_work.is_empty());
        self.is_turn_of_request = !is_request;
        match is_request {
            true => (self.long_requests.pop()).map(|call| (LongWork::Request, call)),
            false => self.long_work.pop(),
        }
    }

    /// Frees what is kept for the next tick, if nothing is under way.
    pub fn rest(&mut self, empty: impl Fn() -> WriteBatch) {
        if !self.has_work(true) {
            *self = TickBatch::new(empty(), empty());
        }
    }

    /// Whether another tick should follow at once; for requests of many operations only if some may
    /// be taken up.
    pub fn has_work(&self, takes_requests: bool) -> bool {
        !self.reads.list.is_empty()
            || !self.long_work.is_empty()
            || (takes_requests && !self.long_requests.is_empty())
            || self.has_writes()
    }
}

/// Whether all reads are of one connection, so that nobody else waits for them. Those of one
/// connection mostly stand together, but for what is asked for again behind the reads of a tick,
/// and stays for the next one.
pub(crate) fn are_of_one(reads: &[TickRead]) -> bool {
    reads
        .windows(2)
        .all(|pair| pair[0].connection == pair[1].connection)
}

/// Cuts reads, of which those of one connection mostly stand together, into what goes to one reader
/// at a time. A connection with many has jobs of its own, so that the others do not wait for all of
/// them.
pub(crate) fn jobs_of(mut reads: &[TickRead]) -> impl Iterator<Item = &[TickRead]> {
    std::iter::from_fn(move || {
        let mut taken = 0;
        for alike in reads.chunk_by(|one, other| one.connection == other.connection) {
            let is_many = alike.len() >= limits::READS_OF_OWN_JOB;
            if taken > 0 && (is_many || taken + alike.len() > limits::READS_PER_JOB) {
                break;
            }
            taken += alike.len().min(limits::READS_PER_JOB);
            if is_many {
                break;
            }
        }
        let (job, rest) = reads.split_at(taken);
        reads = rest;
        (!job.is_empty()).then_some(job)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job of one connection ends with it: what others have in such a job would never be read.
    #[test]
    fn a_job_is_of_one_connection_only_if_all_its_reads_are() {
        let read = |slot| TickRead {
            database: DatabaseId::DEFAULT,
            connection: ConnectionId {
                slot,
                generation: 0,
            },
            call: CallId {
                index: slot,
                generation: 0,
            },
            hash: 0,
            kept: 0..0,
        };
        for (slots, expected) in [
            (&[1][..], true),
            (&[1, 1, 1], true),
            (&[1, 2, 1], false),
            (&[1, 1, 2], false),
            (&[2, 1, 1], false),
        ] {
            let reads: Vec<_> = slots.iter().map(|&slot| read(slot)).collect();
            let jobs: Vec<_> = jobs_of(&reads).collect();
            assert_eq!(jobs.len(), 1, "{slots:?}");
            assert_eq!(are_of_one(jobs[0]), expected, "{slots:?}");
        }
    }

    #[test]
    fn what_waits_to_be_written_is_counted_wherever_it_goes() {
        let store = store::Store::in_memory(store::StoreConfig::new(1));
        let store = store.expect("the limits make sense");
        let mut batch = TickBatch::new(store.write_batch(), store.write_batch());
        assert_eq!((batch.commits(), batch.write_bytes()), (0, 0));
        assert!(!batch.has_writes() && !batch.has_work(true));
        fn put(writes: &mut WriteBatch, value: &[u8]) {
            let mut commit = writes.begin(0, DatabaseId::DEFAULT, store::Mode::Atomic);
            let put = testkit::suite::put(b"key", value);
            commit.push(&put).expect("it fits");
            commit.submit();
        }
        put(&mut batch.disk_writes, &[7; 100]);
        // With the records of commit and operation, of which a request may have thousands.
        let records = batch.write_bytes() - 103;
        assert!((100..400).contains(&records), "{records}");
        assert_eq!(batch.commits(), 1);
        assert!(batch.has_writes() && batch.has_work(true));
        put(&mut batch.writes, &[7; 1_000]);
        put(&mut batch.writes, &[7; 10]);
        assert_eq!(
            (batch.commits(), batch.write_bytes()),
            (3, 103 + 1_016 + 3 * records)
        );
        assert!(batch.has_writes() && batch.has_work(true));
        batch.disk_writes = store.write_batch();
        assert_eq!(
            (batch.commits(), batch.write_bytes()),
            (2, 1_016 + 2 * records)
        );
        assert!(batch.has_writes());
        // What waits is not freed with what is kept.
        batch.rest(|| store.write_batch());
        assert_eq!(batch.commits(), 2);
        batch.writes = store.write_batch();
        assert!(!batch.has_writes() && !batch.has_work(true));
    }

    #[test]
    fn whatever_waits_is_a_reason_for_another_tick() {
        let store = store::Store::in_memory(store::StoreConfig::new(1));
        let store = store.expect("the limits make sense");
        let mut batch = TickBatch::new(store.write_batch(), store.write_batch());
        let (call, connection) = (
            CallId::from_tag(0),
            ConnectionId {
                slot: 0,
                generation: 0,
            },
        );
        for _ in 0..2 {
            assert!(!batch.has_work(true));
            batch.add_read(connection, (DatabaseId::DEFAULT, call, 1), b"key");
            assert!(batch.has_work(true));
            let reads = batch.take_reads();
            assert_eq!(reads.kept(&reads.list[0]), b"key");
            assert!(!batch.has_work(true));
            // Asked for while these were served.
            batch.add_read(connection, (DatabaseId::DEFAULT, call, 2), b"next");
            batch.give_reads(reads);
            assert!(batch.has_work(true));
            let reads = batch.take_reads();
            let [read] = &reads.list[..] else {
                panic!("one read stays");
            };
            assert_eq!((reads.kept(read), read.hash), (&b"next"[..], 2));
            batch.give_reads(reads);
            assert!(!batch.has_work(true));
            batch.long_work.push(connection, (LongWork::Step, call));
            assert!(batch.has_work(true));
            assert!(batch.long_work.pop().is_some());
            assert!(!batch.has_work(true));
        }
    }

    #[test]
    fn long_work_and_requests_that_may_be_taken_up_are_next_in_turn() {
        let store = store::Store::in_memory(store::StoreConfig::new(1));
        let store = store.expect("the limits make sense");
        let mut batch = TickBatch::new(store.write_batch(), store.write_batch());
        let connection = ConnectionId {
            slot: 0,
            generation: 0,
        };
        let all = |batch: &mut TickBatch, takes_requests: bool| {
            let next = std::iter::from_fn(|| batch.next_long(takes_requests));
            let tagged = next.map(|(work, call)| (matches!(work, LongWork::Request), call.tag()));
            tagged.collect::<Vec<_>>()
        };
        for _ in 0..2 {
            for tag in 0..3 {
                let step = (LongWork::Step, CallId::from_tag(tag));
                batch.long_work.push(connection, step);
                batch.long_requests.push(connection, CallId::from_tag(tag));
            }
            assert_eq!(batch.long_len(), 6);
            let first = batch.next_long(true).map(|next| next.1.tag());
            assert_eq!(first, Some(0));
            let steps = all(&mut batch, false);
            assert!(steps.iter().all(|next| !next.0) && steps.len() >= 2);
            assert!(!batch.has_work(false) && batch.has_work(true));
            // They are not freed with what is kept.
            batch.rest(|| store.write_batch());
            assert_eq!(all(&mut batch, true).len(), 5 - steps.len());
            assert!(batch.long_len() == 0 && !batch.has_work(true));
            for tag in 0..2 {
                let step = (LongWork::Step, CallId::from_tag(tag));
                batch.long_work.push(connection, step);
                batch.long_requests.push(connection, CallId::from_tag(tag));
            }
            let mixed = all(&mut batch, true);
            let is_request = mixed.iter().map(|next| next.0).collect::<Vec<_>>();
            let first = is_request[0];
            assert_eq!(is_request, [first, !first, first, !first]);
        }
    }

    #[test]
    fn connections_with_many_reads_have_jobs_of_their_own() {
        let sizes = |of: &[u32]| {
            let mut reads = Vec::new();
            for (slot, count) in (0..).zip(of) {
                for _ in 0..*count {
                    reads.push(TickRead {
                        database: DatabaseId::DEFAULT,
                        connection: ConnectionId {
                            slot,
                            generation: 0,
                        },
                        call: CallId::from_tag(0),
                        hash: 0,
                        kept: 0..0,
                    });
                }
            }
            jobs_of(&reads).map(<[TickRead]>::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[1, 2, 3]), [6], "one for all");
        assert_eq!(sizes(&[1; 70]), [32, 32, 6]);
        assert_eq!(sizes(&[100]), [32, 32, 32, 4]);
        assert_eq!(sizes(&[1, 2, 100, 1, 1]), [3, 32, 32, 32, 6]);
        assert_eq!(sizes(&[7, 7, 7, 7, 7, 8, 8, 7]), [28, 7, 8, 8, 7]);
    }
}
