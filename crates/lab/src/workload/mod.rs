//! What is called, with what, and what the answers must look like.

mod experiment_calls;
mod follow_up;
mod kept;
mod kvstore;
mod mix;
mod pelton;
mod ping;
mod requests;
mod same;
mod tickets;
mod tkrzw;

pub(crate) use experiment_calls::ExperimentCalls;
pub(crate) use kept::KeptAnswers;
pub use kvstore::{
    KINDS as KVSTORE_KINDS, KeyUse, KvstoreDeletes, KvstoreLeft, KvstoreLoad, KvstoreWorkload,
};
pub use mix::{Mix, MixError, MixOperation, Ycsb};
pub use pelton::{PeltonLoad, PeltonWorkload, Shape as PeltonShape};
pub use ping::Ping;
pub use requests::{MethodRequests, RequestOrder};
pub use same::SameRequest;
pub use tkrzw::{TkrzwLoad, TkrzwOperation, TkrzwShape, TkrzwWorkload};

use client::SharedBytes;

use crate::failure::FailureKind;
use crate::stream_plan::StreamPlan;
use crate::verdict::Verdict;

/// The calls of one thread.
pub trait Workload {
    /// The paths of the methods that are called, by kind.
    fn paths(&self) -> Vec<String>;

    /// Whether requests are messages of one long call on each connection, which answers them in
    /// order; its kind is 0.
    fn is_pipe(&self) -> bool {
        false
    }

    /// With [`Workload::is_pipe`]: whether each call in flight has such a long call of its own.
    fn has_pipe_for_each(&self) -> bool {
        false
    }

    /// How calls go whose method streams; `None`: calls are unary, or messages of a Pipe. Requests
    /// are its messages: each is chosen and encoded by itself.
    fn streaming(&self) -> Option<StreamPlan> {
        None
    }

    /// Chooses the next call: its kind.
    fn choose(&mut self) -> usize;

    /// Appends the request of the call chosen last.
    fn encode(&mut self, out: &mut Vec<u8>);

    /// Whether requests are so large that [`Workload::encode_shared`] is worth its while.
    fn is_large(&self) -> bool {
        false
    }

    /// As [`Workload::encode`], but the last part of the request may be one that all requests
    /// share: it is returned, and not appended.
    fn encode_shared(&mut self, out: &mut Vec<u8>) -> Option<SharedBytes> {
        self.encode(out);
        None
    }

    /// What the call chosen last is called until it has [ended](Workload::ended), for workloads
    /// that keep an account of each; all others say 0.
    fn ticket(&self) -> u32 {
        0
    }

    /// Looks at an answer with status OK.
    fn judge(&self, kind: usize, ticket: u32, answer: &[u8]) -> Verdict;

    /// What an answer with status OK says of why it took no effect; `None`: it says nothing.
    fn refusal(&self, _kind: usize, _answer: &[u8]) -> Option<String> {
        None
    }

    /// A call has ended, or could not begin. `outcome`: a success, a miss or not, or a failure.
    /// Returns how it counts.
    #[inline]
    fn ended(
        &mut self,
        _kind: usize,
        _ticket: u32,
        outcome: Result<bool, FailureKind>,
    ) -> Result<bool, FailureKind> {
        outcome
    }

    /// Records that one call reads or writes.
    fn records_per_call(&self) -> u64 {
        1
    }
}
