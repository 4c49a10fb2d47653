//! Work on blobs, which waits for the disk: some threads for all loops.

mod queue;
mod threads;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use net::ConnectionId;
use store::blob::{
    BlobNews, BlobPermit, BlobStore, CallJob, ContentReadError, LostUpload, Observer, Owner,
    Sealed, UploadError, UploadPeer, Work,
};
use store::{CommitOutcome, Store, WriteBatch};

use crate::SharedWaker;
use crate::call_id::{CallId, joined};
use crate::inbox::Inbox;
use crate::settings::Log;

pub(crate) use threads::{BlobThreads, Threads};

/// A call that has an upload.
struct CallOwner {
    inbox: Arc<Inbox<(CallId, BlobNews)>>,
    call: CallId,
    peer: UploadPeer,
}

impl Owner for CallOwner {
    fn lost(&self, why: UploadError) {
        self.inbox.put((self.call, BlobNews::NotStored(why)));
    }

    fn peer(&self) -> UploadPeer {
        self.peer
    }
}

/// What a call wants done.
struct BlobJob {
    work: Work,
    blobs: Arc<BlobStore>,
    owner: CallOwner,
}

impl CallJob for BlobJob {
    fn is_forsaken(&self) -> bool {
        self.work.is_forsaken()
    }

    fn run(self: Box<BlobJob>, grant: Option<(usize, BlobPermit)>) {
        let BlobJob { work, blobs, owner } = *self;
        let (call, inbox) = (owner.call, Arc::clone(&owner.inbox));
        let owner: Arc<dyn Owner> = Arc::new(owner);
        inbox.put((call, work.run_granted(&blobs, &owner, grant)));
    }
}

/// Writes into the log what an operator should know of blobs.
pub(crate) struct BlobLog(pub Arc<dyn Log>);

impl Observer for BlobLog {
    fn upload_failed(&self, lost: &LostUpload) {
        let LostUpload {
            database,
            name,
            stored_bytes,
            source,
        } = lost;
        self.0.storage(&format!(
            "an upload was lost: the disk has failed ({source}); {stored_bytes} bytes of the blob \
             {name:?} in the database \
             with the number {database} are thrown away"
        ));
    }

    fn uploads_evicted(&self, count: u64) {
        self.0.storage(&format!(
            "{count} unfinished uploads were removed to make room for others; their addresses had \
             most of them"
        ));
    }

    fn content_lost(&self, why: &ContentReadError) {
        self.0.storage(&why.to_string());
    }
}

/// Blobs, seen from one loop.
pub(crate) struct LoopBlobs {
    /// Tells this loop from others.
    number: u32,
    blobs: Option<Arc<BlobStore>>,
    inbox: Arc<Inbox<(CallId, BlobNews)>>,
    /// What commits of this loop are to describe, by their tags.
    sealed: HashMap<u64, Box<Sealed>>,
}

impl LoopBlobs {
    pub fn new(blobs: Option<Arc<BlobStore>>, waker: SharedWaker) -> LoopBlobs {
        static LOOPS: AtomicU32 = AtomicU32::new(0);
        LoopBlobs {
            number: LOOPS.fetch_add(1, Ordering::Relaxed),
            blobs,
            inbox: Inbox::new(waker),
            sealed: HashMap::new(),
        }
    }

    /// Has work done for a call of a connection; its news come to the call.
    pub fn submit(&self, work: Work, call: CallId, from: ConnectionId, peer: UploadPeer) {
        let Some(blobs) = self.blobs.clone() else {
            debug_assert!(false, "calls ask only where there are blobs");
            return;
        };
        let read_bytes = work.read_bytes();
        let owner = CallOwner {
            inbox: Arc::clone(&self.inbox),
            call,
            peer,
        };
        let job = Box::new(BlobJob {
            work,
            blobs: Arc::clone(&blobs),
            owner,
        });
        let source = joined(self.number, from.slot);
        match read_bytes {
            Some(bytes) => blobs.runner().run_read(source, bytes, job),
            None => blobs.runner().run_for(source, job),
        }
    }

    /// Keeps what the commit of this tag is to describe.
    pub fn keep_sealed(&mut self, tag: u64, sealed: Box<Sealed>) {
        self.sealed.insert(tag, sealed);
    }

    /// Has descriptions removed whose time has come, and files that nothing describes.
    pub fn collect(&self, store: &Store, now_ms: u64, writes: &mut WriteBatch) {
        if let Some(blobs) = &self.blobs {
            blobs.collect(store, now_ms, writes);
        }
    }

    /// Returns when something is to be collected, on the store's clock; `u64::MAX`: never.
    pub fn collect_due_ms(&self) -> u64 {
        (self.blobs.as_ref()).map_or(u64::MAX, |blobs| blobs.collect_due_ms())
    }

    /// Returns whether uploads wait for their descriptions to be decided.
    #[cfg(test)]
    pub fn has_sealed(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// Takes the news that have come.
    pub fn take_news(&self) -> VecDeque<(CallId, BlobNews)> {
        self.inbox.take_all()
    }

    /// Whether no news can come any more.
    pub fn is_idle(&self) -> bool {
        self.inbox.is_over() && self.sealed.is_empty()
    }

    /// Whatever becomes of the call that asked for it, blobs take notice of what was decided.
    pub fn settle(&mut self, outcome: &CommitOutcome<'_>) {
        let sealed = self.sealed.remove(&outcome.tag);
        if let Some(blobs) = &self.blobs {
            blobs.settle(outcome, sealed.map(|sealed| *sealed));
        }
    }
}

impl Drop for LoopBlobs {
    /// News that nobody takes any more would keep their uploads: those have their calls, these the
    /// inbox, and that the news. So the uploads that are being worked on when the loop ends are
    /// given up, as those are that their calls have.
    fn drop(&mut self) {
        self.inbox.close();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use store::blob::{Begin, BlobInterest, BlobRunner, BlobUse, RunnerJob};
    use store::durable::Opened;
    use store::{DatabaseId, Store, StoreConfig};
    use wal::disk::Disk;
    use wal::{LogConfig, LogId};

    use super::*;
    use crate::pair::Keep;

    /// Keeps jobs until the test does them.
    #[derive(Default)]
    struct Later(Mutex<VecDeque<RunnerJob>>);

    impl BlobRunner for Later {
        fn run(&self, job: RunnerJob) {
            self.0.lock().expect("one thread").push_back(job);
        }
    }

    impl Later {
        /// Does the job that came first. Returns whether there was one.
        fn run_one(&self) -> bool {
            let job = self.0.lock().expect("one thread").pop_front();
            job.map(|job| job()).is_some()
        }
    }

    /// News of an upload come before its loop has ended, and are not taken, or after it.
    #[test]
    fn a_loop_that_ends_leaves_no_file_of_an_upload_that_is_worked_on() {
        let mut config = StoreConfig::new(1);
        config.blobs.free_bytes = 0;
        let id = LogId {
            history: 1,
            secret: 2,
        };
        let disk: Arc<dyn Disk> = Arc::new(testkit::simulated_disk(1));
        let opened = Store::open(config, Arc::clone(&disk), &LogConfig::new(id, 1));
        let Opened { store, .. } = opened.expect("an empty disk can be used");
        let blobs = store.blobs().expect("there is a log");
        let later = Arc::new(Later::default());
        blobs.set_runner(Arc::clone(&later) as _);
        let folder = disk.subfolder("blobs").expect("it is there");
        let from = ConnectionId {
            slot: 0,
            generation: 0,
        };
        for round in 0..4 {
            let of_loop = LoopBlobs::new(Some(Arc::clone(blobs)), Arc::new(|| ()));
            let interest = BlobInterest::default();
            let begin = Box::new(Begin {
                database: DatabaseId::DEFAULT,
                name: "name".into(),
                upload_id: Box::default(),
                offset: 0,
                size_bytes: None,
                content_type: "".into(),
                now_ms: round,
            });
            let work = Work::Begin {
                begin,
                interest: interest.clone(),
            };
            of_loop.submit(work, CallId::from_tag(7), from, UploadPeer::Local);
            if round % 2 == 0 {
                assert!(later.run_one());
                assert_eq!(folder.list().expect("no fault").len(), 1);
            }
            drop(of_loop);
            while later.run_one() {}
            drop(interest);
            assert_eq!(folder.list().expect("no fault"), [""; 0], "{round}");
            assert_eq!(blobs.statistics().used, BlobUse::default());
        }
    }

    /// Its upload may end while it does nothing: another caller takes it over, or the disk fails.
    #[test]
    fn a_call_hears_that_its_upload_is_lost() {
        let inbox = Inbox::new(Arc::new(|| {}));
        let call = CallId::from_tag(7);
        let owner = CallOwner {
            inbox: Arc::clone(&inbox),
            call,
            peer: UploadPeer::Local,
        };
        for _ in 0..2 {
            let source = Arc::new(io::Error::other("no luck"));
            owner.lost(UploadError::Device(source));
            let news = inbox.take_all();
            assert_eq!(news.len(), 1);
            assert!(
                matches!(&news[0], (of, BlobNews::NotStored(UploadError::Device(_))) if *of == call)
            );
        }
    }

    #[test]
    fn what_an_operator_should_know_of_blobs_comes_into_the_log() {
        let keep = Arc::new(Keep::default());
        let log = BlobLog(Arc::clone(&keep) as _);
        log.upload_failed(&LostUpload {
            database: DatabaseId::DEFAULT,
            name: "a blob".into(),
            stored_bytes: 77,
            source: Arc::new(io::Error::other("no luck")),
        });
        log.uploads_evicted(3);
        log.content_lost(&ContentReadError::Damaged {
            file: "blobs/5".to_owned(),
        });
        let said = keep.said.lock().expect("one thread");
        let words = [
            &["no luck", "77 bytes", "\"a blob\""][..],
            &["3 unfinished uploads were removed"],
            &["blobs/5", "damaged"],
        ];
        assert_eq!(said.len(), words.len());
        for (line, words) in said.iter().zip(words) {
            assert!(words.iter().all(|word| line.contains(word)), "{line}");
        }
    }
}
