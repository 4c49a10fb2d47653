//! The requests of a loop to an engine that has the databases of the server, and their answers.

use std::collections::VecDeque;
use std::sync::Arc;

use store::remote::{RemoteDone, RemoteHealth, RemoteLoop, RemoteShape, RemoteSink, RemoteStore};
use store::tree::ReadPlan;
use store::{DatabaseId, WriteBatch};

use crate::inbox::Inbox;
use crate::{SharedWaker, limits};

/// See the module.
pub(crate) struct RemoteRequests {
    requests: RemoteLoop,
    inbox: Arc<Inbox<RemoteDone>>,
    /// Answers that were taken out of the inbox.
    taken: VecDeque<RemoteDone>,
    /// When this loop looks next at how the engine is; `None`: another one does.
    look_ns: Option<u64>,
}

/// Puts answers into the inbox of a loop.
struct InboxSink(Arc<Inbox<RemoteDone>>);

impl RemoteSink for InboxSink {
    fn put(&self, done: RemoteDone) {
        self.0.put(done);
    }
}

impl RemoteRequests {
    /// Requests of a loop that is woken for their answers, and that looks now and then at how the
    /// engine is if it is to.
    pub fn new(remote: Arc<RemoteStore>, waker: SharedWaker, looks: bool) -> RemoteRequests {
        let inbox = Inbox::new(waker);
        let sink = Arc::new(InboxSink(Arc::clone(&inbox)));
        RemoteRequests {
            requests: RemoteLoop::new(remote, sink),
            inbox,
            taken: VecDeque::new(),
            look_ns: looks.then_some(0),
        }
    }

    /// Carries out the commits of a batch, which is empty afterwards.
    pub fn submit(&mut self, batch: &mut WriteBatch) {
        self.requests.submit(batch);
    }

    /// Reads for the calls of a plan, which are taken out of it.
    pub fn fetch(&mut self, database: DatabaseId, shape: RemoteShape, plan: &mut ReadPlan) {
        self.requests.fetch(database, shape, plan);
    }

    /// A call has ended, by its deadline or otherwise: what is not under way for it is dropped, and
    /// the rest does not go on further than it must.
    pub fn abandon(&mut self, tag: u64) {
        self.requests.abandon(tag);
    }

    /// Returns the next answer that has come.
    pub fn next(&mut self) -> Option<RemoteDone> {
        if self.taken.is_empty() {
            self.inbox.take(&mut self.taken);
        }
        let done = self.taken.pop_front()?;
        match &done {
            RemoteDone::Commit(outcomes) => self.requests.arrived(outcomes),
            RemoteDone::Read(read) => self.requests.read_arrived(read),
        }
        Some(done)
    }

    /// Whether no commit is under way, and no answer waits.
    pub fn is_idle(&self) -> bool {
        self.requests.is_idle() && !self.has_answers()
    }

    fn has_answers(&self) -> bool {
        !self.taken.is_empty() || self.inbox.has_some()
    }

    /// Returns when the loop is to tick although nothing comes in: at once if answers wait.
    pub fn next_tick_ns(&self) -> Option<u64> {
        match self.has_answers() {
            true => Some(0),
            false => self.look_ns,
        }
    }

    /// Looks at how the engine is, and which databases it has, if it is time to.
    pub fn look(&mut self, now_ns: u64) -> Option<RemoteHealth> {
        self.look_ns.filter(|&look_ns| look_ns <= now_ns)?;
        self.look_ns = Some(now_ns + limits::REMOTE_LOOK_MS * 1_000_000);
        let remote = self.requests.remote();
        remote.refresh();
        Some(remote.backend().health())
    }
}
