//! How the calls of a streaming method go.

/// How the calls of a streaming method go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPlan {
    /// One request, many responses.
    Server {
        /// After so many responses the call is cancelled, and has succeeded; `None`: the server
        /// ends it.
        responses: Option<u64>,
    },
    /// Many requests, one response.
    Client {
        /// Requests of a call, at least one.
        requests: u64,
    },
    /// Many requests, each answered by a response, in order.
    Bidirectional {
        /// Requests of a call, at least one.
        requests: u64,
        /// Requests that wait for their response at a time.
        in_flight: usize,
    },
    /// Many requests, none of which has a response.
    Unanswered {
        /// Requests of a call, at least one.
        requests: u64,
    },
}

impl StreamPlan {
    /// Requests of a call.
    pub(crate) fn requests(self) -> u64 {
        match self {
            StreamPlan::Server { .. } => 1,
            StreamPlan::Client { requests }
            | StreamPlan::Bidirectional { requests, .. }
            | StreamPlan::Unanswered { requests } => requests,
        }
    }

    /// Requests that may wait for their response at a time.
    pub(crate) fn window(self) -> usize {
        match self {
            StreamPlan::Bidirectional { in_flight, .. } => in_flight,
            StreamPlan::Server { .. }
            | StreamPlan::Client { .. }
            | StreamPlan::Unanswered { .. } => usize::MAX,
        }
    }
}
