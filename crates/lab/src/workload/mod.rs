//! What is called, with what, and what the answers must look like.

mod pelton;
mod same;

pub use pelton::{Mix, MixError, PeltonLoad, PeltonWorkload, Shape as PeltonShape};
pub use same::SameRequest;

/// The calls of one thread.
pub trait Workload {
    /// The paths of the methods that are called, by kind.
    fn paths(&self) -> Vec<String>;

    /// Whether requests are messages of one long call on each connection, which answers them in order; its kind is 0.
    fn is_pipe(&self) -> bool {
        false
    }

    /// Chooses the next call: its kind.
    fn choose(&mut self) -> usize;

    /// Appends the request of the call chosen last.
    fn encode(&mut self, out: &mut Vec<u8>);

    /// Looks at an answer with status OK.
    fn judge(&self, kind: usize, answer: &[u8]) -> Verdict;

    /// Records that one call reads or writes.
    fn records_per_call(&self) -> u64 {
        1
    }
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it should.
    Good,
    /// It did: there was no such key.
    Miss,
    /// It did not take effect.
    NoEffect,
    /// It is no answer to this request.
    Unreadable,
}
