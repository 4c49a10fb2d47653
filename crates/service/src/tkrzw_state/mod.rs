//! What calls of Tkrzw-RPC share: who waits for what, and which keys are being removed.
//!
//! Apart from the calls, as it is among the settings of the services, which all calls have.

mod claims;
mod wait_lists;

pub(crate) use claims::{Claim, Claims};
pub(crate) use wait_lists::{WaitLists, WaitTicket, WaitTopic};

/// What the calls of the service share.
#[derive(Debug, Default)]
pub struct TkrzwState {
    /// Keys that calls of PopFirst are removing.
    pub(crate) claims: Claims,
    /// Calls that wait for others.
    pub(crate) waiting: WaitLists,
}
