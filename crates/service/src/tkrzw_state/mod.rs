//! What calls of Tkrzw-RPC share: who waits for what, which keys are being removed or pushed, which
//! searches compute, and how many slices of large requests are being written.
//!
//! Apart from the calls, as it is among the settings of the services, which all calls have.

mod claims;
mod master_orders;
mod push_numbers;
mod search_turns;
mod slices;
mod wait_lists;

pub(crate) use claims::{Claims, KeyClaim};
pub use master_orders::{MasterOrder, MasterOrders};
pub(crate) use push_numbers::{PushNumbers, PushTicket};
pub(crate) use search_turns::{SearchTicket, SearchTurns};
pub(crate) use slices::{SlicePlace, SlicePlaces};
pub(crate) use wait_lists::{WaitLists, WaitTicket, WaitTopic};

/// What the calls of the service share.
#[derive(Debug, Default)]
pub struct TkrzwState {
    /// Keys that calls of PopFirst are removing.
    pub(crate) claims: Claims,
    /// Keys that calls of PushLast are trying.
    pub(crate) pushes: PushNumbers,
    /// Searches that compute, and those that wait for their turn.
    pub(crate) searches: SearchTurns,
    /// Slices of large requests that are with the committer.
    pub(crate) slices: SlicePlaces,
    /// Calls that wait for others.
    pub(crate) waiting: WaitLists,
}
