//! What callers submit to the combining thread.

use std::sync::Arc;

use net::OutgoingEndpoint;

use super::call::SharedCall;
use super::stream::SharedStream;

/// What the name of an address stands for, or why that is not known.
#[derive(Debug)]
pub(super) struct FoundEndpoints {
    /// The number of the address.
    pub(super) address: usize,
    pub(super) found: Result<Vec<OutgoingEndpoint>, String>,
}

/// What callers submit.
#[derive(Debug)]
pub(super) enum Submission {
    Begin(Arc<SharedCall>),
    Cancel(Arc<SharedCall>),
    /// A call is given up by a thread that waits for its end.
    Abort(Arc<SharedCall>),
    BeginStream(Arc<SharedStream>),
    /// Messages of a stream wait to be sent, or its caller's side has ended.
    Send(Arc<SharedStream>),
    /// Messages of a stream were consumed.
    Release(Arc<SharedStream>),
    CancelStream(Arc<SharedStream>),
    /// Where an address is by now.
    Endpoints(Box<FoundEndpoints>),
    Close {
        grace_ns: u64,
    },
}
