//! The thread that frees what was dropped, cleared or converted: nothing that a write waits for is
//! done by it.

use std::io;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::event::StorageEvent;
use super::mailbox::Hub;
use crate::background::Background;
use crate::garbage::Garbage;
use crate::limits;
use crate::store::Store;

/// The thread, seen from the committer's.
pub(super) struct Reclaim {
    store: Store,
    /// `None`: it was told to end.
    queue: Option<SyncSender<Garbage>>,
    /// Closed when the thread has nothing more to do with folders.
    done_with_folders: Receiver<()>,
}

impl Reclaim {
    /// Starts the thread. It ends when this is [finished](Reclaim::finish), or dropped.
    pub(super) fn start(store: &Store, hub: &Arc<Hub>) -> io::Result<Reclaim> {
        let (queue, waiting) = sync_channel(limits::RECLAIM_QUEUE);
        let (folders, done_with_folders) = sync_channel(0);
        let worker = Worker {
            store: store.clone(),
            // The hub belongs to those who use it.
            hub: Arc::downgrade(hub),
            waiting,
            folders: Some(folders),
        };
        thread::Builder::new()
            .name("pelton-reclaim".into())
            .spawn(move || {
                if let Err(error) = Background::Bulk.enter()
                    && let Some(hub) = worker.hub.upgrade()
                {
                    hub.tell(Some(StorageEvent::NoPriority(error.to_string())));
                }
                worker.run();
            })?;
        Ok(Reclaim {
            store: store.clone(),
            queue: Some(queue),
            done_with_folders,
        })
    }

    /// Hands over what is to be freed. What the queue has no room for comes back: it is to be
    /// brought again.
    pub(super) fn take(&self, garbage: Garbage) -> Garbage {
        let Some(queue) = self.queue.as_ref().filter(|_| !garbage.is_empty()) else {
            return garbage;
        };
        let entries = garbage.entries() as u64;
        self.store.add_reclaiming(entries);
        match queue.try_send(garbage) {
            Ok(()) => Garbage::default(),
            Err(TrySendError::Full(garbage) | TrySendError::Disconnected(garbage)) => {
                self.store.sub_reclaiming(entries);
                garbage
            }
        }
    }

    /// Ends the thread when the folders that were handed over are removed, or a bound on that time
    /// is over, which holds for what is discarded later too.
    pub(super) fn finish(mut self) {
        if let Some(trees) = self.store.trees() {
            trees.close_cleanly();
        }
        self.end();
    }

    fn end(&mut self) {
        self.queue = None;
        // It is closed, and never sent to.
        let _ = self.done_with_folders.recv();
    }
}

impl Drop for Reclaim {
    /// Waits until no folder is touched any more, for as long as it takes to remove one file. What
    /// is in memory is freed behind that, or goes with the process.
    fn drop(&mut self) {
        if self.queue.is_none() {
            return;
        }
        if let Some(trees) = self.store.trees() {
            trees.close();
        }
        self.end();
    }
}

struct Worker {
    store: Store,
    hub: Weak<Hub>,
    waiting: Receiver<Garbage>,
    folders: Option<SyncSender<()>>,
}

impl Worker {
    fn run(mut self) {
        let mut contents = Garbage::default();
        let mut gives_back = false;
        loop {
            match self.next(contents.is_empty(), gives_back) {
                Next::Garbage(garbage) => {
                    contents.append(garbage);
                    // There is room for what the committer may have kept.
                    if let Some(hub) = self.hub.upgrade() {
                        hub.signal().wake();
                    }
                }
                Next::Nothing => {}
                Next::Rested => {
                    give_back();
                    gives_back = false;
                    continue;
                }
                // Folders first: somebody waits for them.
                Next::End => {
                    while contents.has_trees() {
                        contents.free(0);
                    }
                    self.folders = None;
                    if contents.is_empty() {
                        return;
                    }
                }
            }
            let before = contents.entries();
            contents.free(limits::RECLAIM_SLICE);
            let freed = before.saturating_sub(contents.entries());
            self.store.sub_reclaiming(freed as u64);
            gives_back = true;
            thread::yield_now();
        }
    }

    /// Looks for more to free, and waits for it if there is nothing to do meanwhile.
    fn next(&self, is_idle: bool, gives_back: bool) -> Next {
        if !is_idle {
            return match self.waiting.try_recv() {
                Ok(garbage) => Next::Garbage(garbage),
                Err(TryRecvError::Empty) => Next::Nothing,
                Err(TryRecvError::Disconnected) => Next::End,
            };
        }
        if !gives_back {
            return self.waiting.recv().map_or(Next::End, Next::Garbage);
        }
        let rest = Duration::from_millis(limits::GIVE_BACK_MS);
        match self.waiting.recv_timeout(rest) {
            Ok(garbage) => Next::Garbage(garbage),
            Err(RecvTimeoutError::Timeout) => Next::Rested,
            Err(RecvTimeoutError::Disconnected) => Next::End,
        }
    }
}

/// What the thread does next.
enum Next {
    Garbage(Garbage),
    /// It goes on with what it has.
    Nothing,
    /// There was nothing to do for a while.
    Rested,
    End,
}

/// Has the allocator give back what was free for long.
fn give_back() {
    drop(std::hint::black_box(vec![1_u8; limits::GIVE_BACK_BYTES]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHasher;
    use crate::memory::MemoryIndex;
    use crate::store::StoreConfig;
    use crate::value::{Entry, Value};

    /// What a full queue turns away is not counted as waiting to be freed, nor what comes when the
    /// thread has ended.
    #[test]
    fn what_comes_back_is_not_counted() {
        let store = Store::new(StoreConfig::new(1), true, None).expect("the defaults are well");
        let (queue, waiting) = sync_channel(limits::RECLAIM_QUEUE);
        let (folders, done_with_folders) = sync_channel(0);
        let reclaim = Reclaim {
            store: store.clone(),
            queue: Some(queue),
            done_with_folders,
        };
        let room = limits::RECLAIM_QUEUE as u64;
        for _ in 0..2 {
            for _ in 0..room {
                assert!(reclaim.take(garbage()).is_empty());
            }
            for _ in 0..2 {
                assert_eq!(reclaim.take(garbage()).entries(), 1);
                assert_eq!(store.reclaiming_entries(), room);
            }
            for garbage in waiting.try_iter() {
                store.sub_reclaiming(garbage.entries() as u64);
            }
            assert_eq!(store.reclaiming_entries(), 0);
        }
        drop((waiting, folders));
        assert_eq!(reclaim.take(garbage()).entries(), 1);
        assert_eq!(store.reclaiming_entries(), 0);
    }

    /// One entry.
    fn garbage() -> Garbage {
        let mut index = MemoryIndex::new(KeyHasher::new(1));
        let entry = Entry {
            key: b"key",
            value: Value::Inline(b"value"),
            version: 1,
            expires_ms: 0,
        };
        index.put(index.hash(entry.key), &entry);
        Garbage::of(index)
    }
}
