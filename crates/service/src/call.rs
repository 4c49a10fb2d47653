//! A call as a state machine: what comes in ([`CallSteps`]) and what it asks for ([`Actions`]).
//!
//! The layer above makes a [`ServiceCall`](crate::ServiceCall) when a request head has arrived,
//! feeds it what the caller sends, and carries out what the call asks for. A call keeps no borrowed
//! bytes between two steps and never blocks. Once it has called [`Responses::respond`] or
//! [`Responses::finish`] it is over: the layer above drops it and brings it nothing more.

use std::sync::Arc;

use store::blob::BlobNews;
use store::tree::ReadPlan;
use store::{
    CommitOutcome, LogReadError, LogReading, NextCommits, ReadView, ReplicaPiece, ReplicaReading,
    Store,
};

use crate::actions::RequestFlow;
#[cfg(doc)]
use crate::actions::{
    Actions, Administration, BlobAccess, CallClock, DatabaseAccess, Responses, SendRoom, Wakeups,
};
use crate::figures::Figures;
use crate::following::Following;
use crate::identities::{DrawToken, Identities};
use crate::serving::Registry;
use crate::settings::ServiceSettings;
use crate::task::TaskNews;
use crate::waiting::WaitingCalls;

/// What is known when a call begins.
#[derive(Clone, Copy)]
pub struct CallHead<'a> {
    /// When the caller gives up, on the clock of [`CallClock::now_ns`]; `u64::MAX` if it did not
    /// say. The layer above ends the call then; it is here for those who want to plan.
    pub deadline_ns: u64,
    /// The metadata that came with the request.
    pub metadata: &'a dyn Metadata,
}

/// The metadata of a request. Asking costs a walk over the headers; nothing is paid by those who do
/// not ask.
pub trait Metadata {
    /// Value of the first header `name` (lower case), as on the wire: base64 if `name` ends in
    /// `-bin`.
    fn first(&self, name: &[u8]) -> Option<&[u8]>;
}

/// What all calls of one server share. Immutable, apart from what guards itself.
pub struct Shared {
    /// The databases.
    pub store: Store,
    /// Name and version of the server, as greetings and statistics say it.
    pub server: ServerInfo,
    /// Which services are ready.
    pub health: Registry,
    /// Who may call, and what they may do.
    pub identities: Identities,
    /// Makes tokens of random bytes.
    pub draw_token: Box<DrawToken>,
    /// The places for calls that wait for something that may never come.
    pub waiting: WaitingCalls,
    /// What it has done so far.
    pub figures: Figures,
    /// What the answer to a batch may have at most, whatever its caller can receive, in bytes: see
    /// [`ANSWER_BYTES_MAX`](crate::limits::ANSWER_BYTES_MAX).
    pub answer_bytes_max: u64,
    /// How the services are to be.
    pub settings: ServiceSettings,
    /// Of a replica: whom it follows, and how far it has come.
    pub following: Option<Arc<Following>>,
}

/// Who this server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The name of the program.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
}

/// What a call will look at in its database.
pub trait PlanReads {
    /// Adds what [`CallSteps::read`] will look at to a plan: called only for calls whose database
    /// is on disk. `kept` is what was to be kept.
    fn plan_reads(&self, _kept: &[u8], _plan: &mut ReadPlan) {}

    /// Whether [`CallSteps::read`] will look at keys in their order.
    fn reads_in_order(&self) -> bool {
        false
    }
}

/// The steps of a call. Those that a kind of call never sees have nothing to do. `A` is what the
/// call may ask for: as few of the traits of [`crate::actions`] as it uses.
pub trait CallSteps<A> {
    /// One whole message of the caller. `last`: with it the caller has ended its side;
    /// [`CallSteps::half_closed`] does not follow.
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut A);

    /// Some of a message of a call that takes parts ([`RequestFlow::take_parts`]): `left` bytes of
    /// it are still to come. `last`: as for [`CallSteps::message`].
    fn part(&mut self, _bytes: &[u8], _left: usize, _last: bool, _shared: &Shared, actions: &mut A)
    where
        A: RequestFlow,
    {
        debug_assert!(false, "a call gets parts only if it takes them");
        actions.want_whole();
    }

    /// The caller ended its side without a further message.
    fn half_closed(&mut self, shared: &Shared, actions: &mut A);

    /// What [`DatabaseAccess::read`] or [`DatabaseAccess::read_long`] asked for. `kept` is what was
    /// to be kept.
    fn read(&mut self, _shown: &ReadView<'_>, _kept: &[u8], _shared: &Shared, _actions: &mut A) {}

    /// What became of the submitted write.
    fn committed(&mut self, _outcome: &CommitOutcome<'_>, _shared: &Shared, _actions: &mut A) {}

    /// News of the task that [`Administration::start_task`] began. Some of the progress may be left
    /// out.
    fn task(&mut self, _news: &TaskNews<'_>, _shared: &Shared, _actions: &mut A) {}

    /// What [`BlobAccess::blob`] asked for is done, or another stream has taken an upload over.
    fn blob(&mut self, _news: BlobNews, _shared: &Shared, _actions: &mut A) {}

    /// What [`Wakeups::read_replica`] asked for was read, or not.
    fn replica_read(
        &mut self,
        _reading: ReplicaReading,
        _read: Result<ReplicaPiece, LogReadError>,
        _shared: &Shared,
        _actions: &mut A,
    ) {
    }

    /// What [`Wakeups::read_log`] asked for was read, or not.
    fn log_read(
        &mut self,
        _reading: LogReading,
        _read: Result<NextCommits, LogReadError>,
        _shared: &Shared,
        _actions: &mut A,
    ) {
    }

    /// After [`SendRoom::can_send`] said no: now it says yes. Or there was no
    /// [`SendRoom::send_room`], and there may be some.
    fn writable(&mut self, _shared: &Shared, _actions: &mut A) {}

    /// The time of [`Wakeups::wake_at_ns`] has come, or a subscribed topic has changed.
    fn woken(&mut self, _shared: &Shared, _actions: &mut A) {}
}
