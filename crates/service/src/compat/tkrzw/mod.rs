//! `tkrzw_rpc.DBMService` and its older form `tkrzw.DBMService`: the service of Tkrzw-RPC.
//!
//! Most requests are one commit of store operations, decided by the committer ([`single`],
//! [`multi`]). What no commit can decide alone reads first and commits on the condition that
//! nothing has changed ([`rekey`], [`pop`], [`push`]). An iterator is a key ([`iterate`]); a search
//! is a walk in slices ([`search`]). Calls that wait are woken by others ([`wait`]). Followers get
//! what the log of this server has ([`replicate`]).
//!
//! What came of a request is a field of the response, as in the original; statuses of gRPC are for
//! requests that are none. docs/internals/tkrzw.md says what differs from the original, and why.

mod count;
mod decode;
mod distance;
mod exchange;
mod get_multi;
mod idle;
mod inspect;
mod iterate;
mod maintain;
mod multi;
mod patterns;
mod pop;
mod position;
mod push;
mod rekey;
mod replicate;
mod replicated;
mod result;
mod search;
mod single;
mod sorted;
mod stream;
mod target;
#[cfg(test)]
mod tests;
mod wait;
mod walk;

use store::tree::{NotFetched, ReadPlan};
use store::{CommitOutcome, LogReadError, ReadView, ReplicaPiece, ReplicaReading};

use crate::actions::{
    CallClock, DatabaseAccess, Permissions, RequestFlow, ResponseMemory, Responses, SendRoom,
    Wakeups,
};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::keyvalue;
use crate::method::{Method, Service};
use crate::status::{self, Status};
use count::Count;
use exchange::WaitingExchange;
use get_multi::GetMulti;
use idle::IdleTimer;
use iterate::Iterate;
use maintain::Synchronize;
use multi::MultiWrite;
use pop::Pop;
use push::Push;
use rekey::Rekey;
use replicate::Replicate;
use search::Search;
use single::{GetOne, Pending};
use stream::TkrzwStream;

/// What calls of this service ask for.
pub(crate) trait TkrzwActions:
    DatabaseAccess
    + Permissions
    + Responses
    + SendRoom
    + ResponseMemory
    + RequestFlow
    + Wakeups
    + CallClock
{
}

impl<A> TkrzwActions for A where
    A: DatabaseAccess
        + Permissions
        + Responses
        + SendRoom
        + ResponseMemory
        + RequestFlow
        + Wakeups
        + CallClock
{
}

/// Which fields messages have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Package {
    /// `tkrzw_rpc`, since 0.9.4.
    Present,
    /// `tkrzw`, before.
    Before,
}

impl Package {
    fn of(method: Method) -> Package {
        match method.service() == Service::TkrzwBefore {
            true => Package::Before,
            false => Package::Present,
        }
    }
}

/// A call of the service.
pub struct TkrzwCall {
    method: Method,
    step: TkrzwStep,
}

/// How far a call has come.
enum TkrzwStep {
    /// The request has not arrived yet.
    Expecting,
    /// A Get waits for the tick's view; its key is kept by the layer above.
    Get(GetOne),
    /// A single write is with the committer.
    Write(Pending),
    /// A CompareExchange that may wait or wake others.
    Exchange(Box<WaitingExchange>),
    /// A GetMulti waits for a view.
    GetMulti(Box<GetMulti>),
    /// Writes of several records are with the committer.
    MultiWrite(Box<MultiWrite>),
    /// A Rekey reads or writes.
    Rekey(Box<Rekey>),
    /// A PushLast looks for its key or writes.
    Push(Box<Push>),
    /// A PopFirst reads, writes, or waits.
    Pop(Box<Pop>),
    /// A Count waits for a view.
    Count(Box<Count>),
    /// A Search waits for a view.
    Search(Box<Search>),
    /// A Synchronize waits for the device.
    Synchronize(Box<Synchronize>),
    /// Operations come and go.
    Stream(Box<TkrzwStream>),
    /// An iterator.
    Iterate(Box<Iterate>),
    /// Updates go out.
    Replicate(Box<Replicate>),
}

impl TkrzwCall {
    /// Begins a call of `method`.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        actions: &mut (impl Wakeups + CallClock),
    ) -> TkrzwCall {
        use Method as M;
        let package = Package::of(method);
        let step = match method {
            M::TkrzwStream | M::TkrzwBeforeStream => {
                let idle = IdleTimer::started(actions);
                TkrzwStep::Stream(Box::new(TkrzwStream::new(package, idle)))
            }
            M::TkrzwIterate | M::TkrzwBeforeIterate => {
                let idle = IdleTimer::started(actions);
                TkrzwStep::Iterate(Box::new(Iterate::new(method, idle)))
            }
            _ => TkrzwStep::Expecting,
        };
        TkrzwCall { method, step }
    }
}

impl PlanReads for TkrzwCall {
    fn plan_reads(&self, kept: &[u8], plan: &mut ReadPlan) {
        match &self.step {
            TkrzwStep::Get(_) => plan.key(kept),
            TkrzwStep::GetMulti(call) => call.plan_reads(plan),
            TkrzwStep::Push(call) => call.plan_reads(plan),
            TkrzwStep::Pop(call) => call.plan_reads(plan),
            TkrzwStep::Count(call) => call.plan_reads(plan),
            TkrzwStep::Search(call) => call.plan_reads(plan),
            TkrzwStep::Iterate(call) => call.plan_reads(plan),
            TkrzwStep::Expecting
            | TkrzwStep::Write(_)
            | TkrzwStep::Exchange(_)
            | TkrzwStep::MultiWrite(_)
            | TkrzwStep::Rekey(_)
            | TkrzwStep::Synchronize(_)
            | TkrzwStep::Replicate(_)
            | TkrzwStep::Stream(_) => {
                debug_assert!(false, "nothing was to be read");
            }
        }
    }

    fn reads_in_order(&self) -> bool {
        match &self.step {
            TkrzwStep::Push(_)
            | TkrzwStep::Pop(_)
            | TkrzwStep::Search(_)
            | TkrzwStep::Iterate(_) => true,
            TkrzwStep::Count(call) => call.reads_in_order(),
            TkrzwStep::Expecting
            | TkrzwStep::Get(_)
            | TkrzwStep::Write(_)
            | TkrzwStep::Exchange(_)
            | TkrzwStep::GetMulti(_)
            | TkrzwStep::MultiWrite(_)
            | TkrzwStep::Rekey(_)
            | TkrzwStep::Synchronize(_)
            | TkrzwStep::Replicate(_)
            | TkrzwStep::Stream(_) => false,
        }
    }
}

impl<A: TkrzwActions> CallSteps<A> for TkrzwCall {
    #[inline]
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut A) {
        match &mut self.step {
            TkrzwStep::Stream(stream) => return stream.message(bytes, last, shared, actions),
            TkrzwStep::Iterate(iterate) => return iterate.message(bytes, last, shared, actions),
            TkrzwStep::Expecting => {}
            TkrzwStep::Get(_)
            | TkrzwStep::Write(_)
            | TkrzwStep::Exchange(_)
            | TkrzwStep::GetMulti(_)
            | TkrzwStep::MultiWrite(_)
            | TkrzwStep::Rekey(_)
            | TkrzwStep::Push(_)
            | TkrzwStep::Pop(_)
            | TkrzwStep::Count(_)
            | TkrzwStep::Search(_)
            | TkrzwStep::Replicate(_)
            | TkrzwStep::Synchronize(_) => {
                return actions.finish(status::second_request(self.method.path()));
            }
        }
        match begin(self.method, bytes, shared, actions) {
            Ok(Some(step)) => self.step = step,
            // The call has ended, or the message comes once more.
            Ok(None) => {}
            Err(status) => actions.finish(status),
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        match &mut self.step {
            TkrzwStep::Expecting => actions.finish(status::no_request(self.method.path())),
            TkrzwStep::Stream(stream) => stream.half_closed(actions),
            TkrzwStep::Iterate(iterate) => iterate.half_closed(actions),
            TkrzwStep::Get(_)
            | TkrzwStep::Write(_)
            | TkrzwStep::Exchange(_)
            | TkrzwStep::GetMulti(_)
            | TkrzwStep::MultiWrite(_)
            | TkrzwStep::Rekey(_)
            | TkrzwStep::Push(_)
            | TkrzwStep::Pop(_)
            | TkrzwStep::Count(_)
            | TkrzwStep::Search(_)
            | TkrzwStep::Replicate(_)
            | TkrzwStep::Synchronize(_) => {}
        }
    }

    #[inline]
    fn read(&mut self, view: &ReadView<'_>, kept: &[u8], shared: &Shared, actions: &mut A) {
        let read = match &mut self.step {
            TkrzwStep::Get(get) => get.read(view, kept, actions),
            TkrzwStep::GetMulti(call) => call.read(view, shared, actions),
            TkrzwStep::Push(call) => call.read(view, actions),
            TkrzwStep::Pop(call) => call.read(view, shared, actions),
            TkrzwStep::Count(call) => call.read(view, actions),
            TkrzwStep::Search(call) => call.read(view, shared, actions),
            TkrzwStep::Iterate(call) => call.read(view, shared, actions),
            TkrzwStep::Expecting
            | TkrzwStep::Write(_)
            | TkrzwStep::Exchange(_)
            | TkrzwStep::MultiWrite(_)
            | TkrzwStep::Rekey(_)
            | TkrzwStep::Synchronize(_)
            | TkrzwStep::Replicate(_)
            | TkrzwStep::Stream(_) => {
                return debug_assert!(false, "nothing was to be read");
            }
        };
        if let Err(NotFetched) = read {
            debug_assert!(false, "a call plans all that it looks at");
            actions.finish(keyvalue::not_fetched());
        }
    }

    #[inline]
    fn committed(&mut self, outcome: &CommitOutcome<'_>, shared: &Shared, actions: &mut A) {
        match &mut self.step {
            TkrzwStep::Write(pending) => pending.respond(self.method, outcome, actions),
            TkrzwStep::Exchange(call) => call.committed(outcome, shared, actions),
            TkrzwStep::MultiWrite(call) => call.committed(outcome, actions),
            TkrzwStep::Rekey(call) => call.committed(outcome, actions),
            TkrzwStep::Push(call) => call.committed(outcome, shared, actions),
            TkrzwStep::Pop(call) => call.committed(outcome, actions),
            TkrzwStep::Stream(call) => call.committed(outcome, actions),
            TkrzwStep::Iterate(call) => call.committed(outcome, actions),
            TkrzwStep::Expecting
            | TkrzwStep::Get(_)
            | TkrzwStep::GetMulti(_)
            | TkrzwStep::Count(_)
            | TkrzwStep::Search(_)
            | TkrzwStep::Replicate(_)
            | TkrzwStep::Synchronize(_) => {
                debug_assert!(false, "nothing was submitted");
            }
        }
    }

    fn writable(&mut self, shared: &Shared, actions: &mut A) {
        match &mut self.step {
            TkrzwStep::Exchange(call) => call.writable(actions),
            TkrzwStep::GetMulti(call) => call.writable(actions),
            TkrzwStep::Stream(call) => call.go_on(actions),
            TkrzwStep::Iterate(call) => call.go_on(actions),
            TkrzwStep::Replicate(call) => call.go_on(shared, actions),
            TkrzwStep::Expecting
            | TkrzwStep::Get(_)
            | TkrzwStep::Write(_)
            | TkrzwStep::MultiWrite(_)
            | TkrzwStep::Rekey(_)
            | TkrzwStep::Push(_)
            | TkrzwStep::Pop(_)
            | TkrzwStep::Count(_)
            | TkrzwStep::Search(_)
            | TkrzwStep::Synchronize(_) => {}
        }
    }

    fn woken(&mut self, shared: &Shared, actions: &mut A) {
        match &mut self.step {
            TkrzwStep::Exchange(call) => call.woken(shared, actions),
            TkrzwStep::Pop(call) => call.woken(shared, actions),
            TkrzwStep::GetMulti(call) => call.woken(actions),
            TkrzwStep::MultiWrite(call) => call.woken(shared, actions),
            TkrzwStep::Search(call) => call.woken(shared, actions),
            TkrzwStep::Stream(call) => call.woken(actions),
            TkrzwStep::Iterate(call) => call.woken(actions),
            TkrzwStep::Synchronize(call) => call.go_on(shared, actions),
            TkrzwStep::Replicate(call) => call.go_on(shared, actions),
            TkrzwStep::Expecting
            | TkrzwStep::Get(_)
            | TkrzwStep::Write(_)
            | TkrzwStep::Rekey(_)
            | TkrzwStep::Push(_)
            | TkrzwStep::Count(_) => {}
        }
    }

    fn replica_read(
        &mut self,
        reading: ReplicaReading,
        read: Result<ReplicaPiece, LogReadError>,
        shared: &Shared,
        actions: &mut A,
    ) {
        match &mut self.step {
            TkrzwStep::Replicate(call) => call.replica_read(reading, read, shared, actions),
            _ => debug_assert!(false, "nothing was to be read"),
        }
    }
}

/// Takes up the request of a call with one; `None`: the call has ended, or the request comes once
/// more when there is memory.
#[inline]
fn begin(
    method: Method,
    bytes: &[u8],
    shared: &Shared,
    actions: &mut impl TkrzwActions,
) -> Result<Option<TkrzwStep>, Status> {
    use Method as M;
    match method {
        M::TkrzwGet | M::TkrzwBeforeGet => GetOne::begin(method, bytes, shared, actions),
        M::TkrzwSet
        | M::TkrzwBeforeSet
        | M::TkrzwRemove
        | M::TkrzwBeforeRemove
        | M::TkrzwAppend
        | M::TkrzwBeforeAppend
        | M::TkrzwIncrement
        | M::TkrzwBeforeIncrement
        | M::TkrzwBeforeCompareExchange => single::begin(method, bytes, shared, actions),
        M::TkrzwCompareExchange => WaitingExchange::begin(bytes, shared, actions),
        M::TkrzwGetMulti | M::TkrzwBeforeGetMulti => {
            GetMulti::begin(method, bytes, shared, actions)
        }
        M::TkrzwSetMulti
        | M::TkrzwBeforeSetMulti
        | M::TkrzwRemoveMulti
        | M::TkrzwBeforeRemoveMulti
        | M::TkrzwAppendMulti
        | M::TkrzwBeforeAppendMulti
        | M::TkrzwCompareExchangeMulti
        | M::TkrzwBeforeCompareExchangeMulti
        | M::TkrzwClear
        | M::TkrzwBeforeClear => MultiWrite::begin(method, bytes, shared, actions),
        M::TkrzwRekey => Rekey::begin(bytes, shared, actions),
        M::TkrzwPushLast => Push::begin(bytes, shared, actions),
        M::TkrzwPopFirst => Pop::begin(bytes, shared, actions),
        M::TkrzwCount | M::TkrzwBeforeCount => Count::begin(method, bytes, shared, actions),
        M::TkrzwSearch | M::TkrzwBeforeSearch => Search::begin(method, bytes, shared, actions),
        M::TkrzwSynchronize | M::TkrzwBeforeSynchronize => {
            Synchronize::begin(method, bytes, shared, actions)
        }
        M::TkrzwReplicate | M::TkrzwBeforeReplicate => {
            Replicate::begin(method, bytes, shared, actions)
        }
        M::TkrzwInspect | M::TkrzwBeforeInspect => {
            inspect::respond(method, bytes, shared, actions).map(|()| None)
        }
        M::TkrzwEcho
        | M::TkrzwBeforeEcho
        | M::TkrzwGetFileSize
        | M::TkrzwBeforeGetFileSize
        | M::TkrzwShouldBeRebuilt
        | M::TkrzwBeforeShouldBeRebuilt
        | M::TkrzwRebuild
        | M::TkrzwBeforeRebuild
        | M::TkrzwChangeMaster
        | M::TkrzwBeforeChangeMaster => {
            maintain::respond(method, bytes, shared, actions).map(|()| None)
        }
        _ => Err(Status::unimplemented(method.path())),
    }
}
