//! The reads of a tick: shown the index of a database in memory, or what was fetched of one on
//! disk or elsewhere.

use net::{ConnectionId, Connections};
use service::services::{no_reader, reads_wait};
use store::remote::{RemoteDone, RemoteShape};
use store::tree::{Fetch, Fetched, ReadPlan, TreeIndex};
use store::{
    DatabaseId, IndexView, LogReadError, NextCommits, ReadView, ReplicaPiece, Store, View,
    WatchError,
};

use super::LoopState;
use super::handler::LoopHandler;
use crate::actions::StepAgain;
use crate::batch::{LongWork, TickRead, TickReads, are_of_one, jobs_of};
use crate::call_id::CallId;
use crate::limits;
use crate::readers::{DoneRead, Full, ReadingConnection, WhyFull};
use crate::remote_requests::RemoteRequests;
use crate::watchers::{LogRead, ReplicaRead};

impl LoopHandler {
    /// Serves the short reads of this tick, each database in memory from one view; those on disk
    /// are asked for.
    pub(super) fn serve_reads(&mut self, connections: &mut dyn Connections) {
        let reads = self.state.context.batch.take_reads();
        let store = self.state.shared.store.clone();
        let mut rest = &reads.list[..];
        while let Some(first) = rest.first() {
            let alike = rest
                .iter()
                .take_while(|read| read.database == first.database)
                .count();
            let (these, others) = rest.split_at(alike);
            match store.index_view(first.database) {
                IndexView::Memory(view) => self.serve_from_view(connections, &view, &reads, these),
                IndexView::Disk(tree) => self.fetch(connections, &tree, &reads, these),
                IndexView::Remote(shape) => self.fetch_elsewhere(shape, &reads, these),
                IndexView::Gone => self.serve_all(connections, None, &reads, these),
            }
            rest = others;
        }
        self.state.context.batch.give_reads(reads);
    }

    fn serve_from_view(
        &mut self,
        connections: &mut dyn Connections,
        view: &View<'_>,
        reads: &TickReads,
        these: &[TickRead],
    ) {
        let read_view = ReadView::memory(view);
        for these in these.chunks(limits::READS_WARMED_TOGETHER) {
            view.warm(these.iter().map(|read| read.hash));
            self.serve_all(connections, Some(&read_view), reads, these);
        }
    }

    /// Reads of one connection mostly stand together: the connection is looked up once for those
    /// that do.
    fn serve_all(
        &mut self,
        connections: &mut dyn Connections,
        read_view: Option<&ReadView<'_>>,
        reads: &TickReads,
        these: &[TickRead],
    ) {
        for alike in these.chunk_by(|one, other| one.connection == other.connection) {
            self.serve_connection(connections, read_view, reads, alike);
        }
    }

    fn serve_connection(
        &mut self,
        connections: &mut dyn Connections,
        read_view: Option<&ReadView<'_>>,
        reads: &TickReads,
        alike: &[TickRead],
    ) {
        let id = alike[0].connection;
        let Some(io) = connections.io(id) else {
            return;
        };
        let Some(rpc) = Self::rpc_of(&mut self.slots, id) else {
            return;
        };
        rpc.refresh_pause();
        for read in alike {
            let kept = reads.kept(read);
            let has_capacity = rpc.connection.has_capacity();
            if has_capacity {
                let again = self.state.read(rpc, io, read.call, read_view, kept);
                self.state.note_growth(rpc, io);
                if again != StepAgain::ReadWhenLarge {
                    continue;
                }
            }
            let read = (read.database, read.call);
            rpc.deferred_reads.push(read, kept, has_capacity);
        }
        self.state.after_step(rpc, io);
    }

    /// Serves reads of a database on disk: what was read lately at once, the rest is fetched.
    fn fetch(
        &mut self,
        connections: &mut dyn Connections,
        tree: &TreeIndex,
        reads: &TickReads,
        these: &[TickRead],
    ) {
        for these in jobs_of(these) {
            let mut plan = self.plan_reads(reads, these);
            let store = &self.state.shared.store;
            if let Some(fetched) = Fetched::from_cache(tree, &mut plan, store) {
                self.deliver_fetched(connections, &fetched);
            }
            if !plan.is_empty() {
                let job = Fetch::new(tree.clone(), &mut plan);
                let connection = these[0].connection;
                let asked = match are_of_one(these) {
                    true => {
                        let reader = self.reader(connection);
                        self.state.readers.fetch_own(reader, job)
                    }
                    false => self.state.readers.fetch(connection, job),
                };
                if let Err(full) = asked {
                    self.refuse_reads(connections, &full);
                }
            }
        }
    }

    /// Plans what these calls read, which is not in memory.
    fn plan_reads(&mut self, reads: &TickReads, these: &[TickRead]) -> ReadPlan {
        let mut plan = ReadPlan::default();
        for read in these {
            let calls = &mut self.state.calls;
            calls.set_reads_from(read.call, read.database);
            calls.note_reading(&self.state.context, read.call);
            calls.plan_read(read.call, reads.kept(read), &mut plan);
        }
        plan
    }

    /// Has an engine elsewhere read for calls.
    #[cold]
    fn fetch_elsewhere(&mut self, shape: RemoteShape, reads: &TickReads, these: &[TickRead]) {
        let mut plan = self.plan_reads(reads, these);
        for read in these {
            self.state.calls.note_reading_elsewhere(read.call);
        }
        if let (Some(remote), Some(first)) = (self.state.writes.remote(), these.first()) {
            remote.fetch(first.database, shape, &mut plan);
        }
    }

    /// The same for the next slice of a long read.
    #[cold]
    fn fetch_slice_elsewhere(&mut self, (id, shape): (DatabaseId, RemoteShape), call: CallId) {
        let mut plan = ReadPlan::default();
        self.state.calls.plan_read(call, &[], &mut plan);
        self.state.calls.note_reading_elsewhere(call);
        if let Some(remote) = self.state.writes.remote() {
            remote.fetch(id, shape, &mut plan);
        }
    }

    /// Brings calls the answers of an engine elsewhere, until their share of the tick is used up.
    #[cold]
    pub(super) fn handle_remote_answers(&mut self, connections: &mut dyn Connections) {
        let until_ns = self.state.context.clock.read_ns() + limits::LONG_READS_PER_TICK_US * 1_000;
        while let Some(done) = self.state.writes.remote().and_then(RemoteRequests::next) {
            match done {
                RemoteDone::Read(read) => self.deliver_fetched(connections, read.fetched()),
                RemoteDone::Commit(outcomes) => self.answer_writes(connections, &outcomes),
            }
            if self.state.context.clock.read_ns() >= until_ns {
                break;
            }
        }
    }

    /// Tells calls that there is no place among those that wait for a reader.
    #[cold]
    fn refuse_reads(&mut self, connections: &mut dyn Connections, Full(job, why): &Full<Fetch>) {
        for tag in job.plan().tags() {
            let call = CallId::from_tag(tag);
            self.with_call(connections, call, |state, rpc, io, call| {
                let status = match why {
                    WhyFull::Jobs => reads_wait(),
                    WhyFull::NoThread => no_reader(),
                };
                state.end(rpc, io, call, status)
            });
        }
    }

    /// Handles results of readers, until their share of the tick is used up.
    pub(super) fn handle_reader_results(&mut self, connections: &mut dyn Connections) {
        let Some(mut result) = self.state.readers.next() else {
            return;
        };
        let until_ns = self.state.context.clock.read_ns() + limits::LONG_READS_PER_TICK_US * 1_000;
        loop {
            match result.take() {
                Some(DoneRead::Fetched(fetched)) => self.deliver_fetched(connections, &fetched),
                Some(DoneRead::Ahead { id, batch, read }) => {
                    self.state.read_ahead_is_done(id, batch, read);
                }
                Some(DoneRead::Swept { batch, failure }) => self.state.swept(batch, failure),
                Some(DoneRead::Log(read, commits)) => self.deliver_log(connections, read, commits),
                Some(DoneRead::Replica(read, piece)) => {
                    self.deliver_replica(connections, *read, piece);
                }
                None => debug_assert!(false, "what was prefetched is taken once"),
            }
            if self.state.context.clock.read_ns() >= until_ns {
                break;
            }
            match self.state.readers.next() {
                Some(next) => result = next,
                None => break,
            }
        }
    }

    /// Has read from the log what calls have asked for in this tick.
    pub(super) fn read_log(&mut self) {
        while let Some(read) = self.state.context.watchers.take_log_read() {
            if let Some(connection) = self.state.calls.connection(read.call) {
                let reader = self.reader(connection);
                self.state.readers.read_log(reader, Box::new(read));
            }
        }
        while let Some(read) = self.state.context.watchers.take_replica_read() {
            if let Some(connection) = self.state.calls.connection(read.call) {
                let reader = self.reader(connection);
                self.state.readers.read_replica(reader, Box::new(read));
            }
        }
    }

    /// Delivers to a call what was read for its server, unless it is gone.
    fn deliver_replica(
        &mut self,
        connections: &mut dyn Connections,
        read: ReplicaRead,
        piece: Result<ReplicaPiece, LogReadError>,
    ) {
        let ReplicaRead {
            call,
            reading,
            memory,
        } = read;
        if let Err(LogReadError::Failed(WatchError::Unreadable(why))) = &piece {
            let what = "what a server that follows this one asks for";
            self.state.tell_unread(what, why);
        }
        self.with_call(connections, call, |state, rpc, io, call| {
            state.replica_read(rpc, io, call, reading, piece);
        });
        // What the call keeps is charged.
        drop(memory);
    }

    /// Delivers to a call what was read from the log for it, unless it is gone.
    fn deliver_log(
        &mut self,
        connections: &mut dyn Connections,
        read: Box<LogRead>,
        commits: Result<NextCommits, LogReadError>,
    ) {
        let LogRead { call, reading, .. } = *read;
        if let Err(LogReadError::Failed(WatchError::Unreadable(why))) = &commits {
            self.state
                .tell_unread("the log, for a call that watches,", why);
        }
        self.with_call(connections, call, |state, rpc, io, call| {
            state.log_read(rpc, io, call, reading, commits);
        });
    }

    /// Delivers to calls what was fetched for them. Calls that are gone get nothing.
    fn deliver_fetched(&mut self, connections: &mut dyn Connections, fetched: &Fetched) {
        for fetched in fetched.calls() {
            let call = CallId::from_tag(fetched.tag());
            self.with_call(connections, call, |state, rpc, io, call| {
                state.deliver_fetched(rpc, io, call, &fetched)
            });
        }
    }

    /// Serves long reads and other long work, one slice of each in turn, until their share of the
    /// tick is used up. If they are few, those that go on get some more.
    pub(super) fn serve_long_reads(&mut self, connections: &mut dyn Connections) {
        let waiting = self.state.context.batch.long_len();
        if waiting == 0 {
            return;
        }
        let store = self.state.shared.store.clone();
        let until_ns = self.state.context.clock.read_ns() + limits::LONG_READS_PER_TICK_US * 1_000;
        for _ in 0..waiting.max(limits::LONG_READ_SLICES) {
            let takes_requests = self.state.may_take_requests();
            let Some((work, call)) = self.state.context.batch.next_long(takes_requests) else {
                break;
            };
            match work {
                LongWork::Read(database) => {
                    if self.is_in_order(&store, database, call, until_ns) {
                        let index = store.index_view(database);
                        self.serve_long_read(connections, (database, index), call);
                    } else {
                        self.read_long_later(database, call);
                        break;
                    }
                }
                LongWork::Step => self.with_call(connections, call, LoopState::wake),
                LongWork::Request => self.with_call(connections, call, LoopState::take_up_request),
            }
            if self.state.context.clock.read_ns() >= until_ns {
                break;
            }
        }
    }

    /// Has the next tick go on with a long read.
    fn read_long_later(&mut self, database: DatabaseId, call: CallId) {
        if let Some(connection) = self.state.calls.connection(call) {
            let identity = self.reader(connection).identity;
            let long_work = &mut self.state.context.batch.long_work;
            long_work.push_of(connection, identity, (LongWork::Read(database), call));
        }
    }

    /// Whether a call finds the keys of a database as it reads them. Until then they are put in
    /// order, for the rest of the time of this tick.
    fn is_in_order(
        &self,
        store: &Store,
        database: DatabaseId,
        call: CallId,
        until_ns: u64,
    ) -> bool {
        let view = store.view(database);
        if view.is_none_or(|view| view.is_ordered()) || !self.state.calls.reads_in_order(call) {
            return true;
        }
        let clock = &self.state.context.clock;
        store.order_keys(database, &mut || clock.read_ns() < until_ns)
    }

    fn serve_long_read(
        &mut self,
        connections: &mut dyn Connections,
        (id, index): (DatabaseId, IndexView<'_>),
        call: CallId,
    ) {
        let read_view = match &index {
            IndexView::Memory(view) => Some(ReadView::memory(view)),
            IndexView::Gone => None,
            IndexView::Disk(tree) => {
                return self.fetch_slice(connections, tree, call);
            }
            IndexView::Remote(shape) => return self.fetch_slice_elsewhere((id, *shape), call),
        };
        self.with_call(connections, call, |state, rpc, io, call| {
            state.read(rpc, io, call, read_view.as_ref(), &[]);
        });
    }

    fn reader(&mut self, connection: ConnectionId) -> ReadingConnection {
        let rpc = Self::rpc_of(&mut self.slots, connection);
        ReadingConnection {
            connection,
            identity: rpc.and_then(|rpc| rpc.link.holding.counted_key()),
        }
    }

    /// Has the next slice of a long read fetched.
    fn fetch_slice(&mut self, connections: &mut dyn Connections, tree: &TreeIndex, call: CallId) {
        let Some(connection) = self.state.calls.connection(call) else {
            return;
        };
        let mut plan = ReadPlan::default();
        self.state.calls.plan_read(call, &[], &mut plan);
        if !plan.is_empty() {
            let job = Fetch::new(tree.clone(), &mut plan);
            let reader = self.reader(connection);
            if let Err(full) = self.state.readers.fetch_slice(reader, job) {
                self.refuse_reads(connections, &full);
            }
        }
    }
}
