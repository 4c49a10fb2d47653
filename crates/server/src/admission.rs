//! Who may begin a call. Refusals come before any work, with a status that makes a retry safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use service::{Code, Status};

use crate::limits;

/// The bytes that all loops of the server buffer for their peers, and how many may be.
#[derive(Debug)]
pub(crate) struct Budget {
    buffered: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub fn new(limit: usize) -> Budget {
        Budget {
            buffered: AtomicUsize::new(0),
            limit,
        }
    }

    /// A connection's share went from `before` to `after` bytes.
    pub fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.buffered.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.buffered.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    pub fn is_exceeded(&self) -> bool {
        self.buffered.load(Ordering::Relaxed) > self.limit
    }
}

/// The bounds on running work of one loop.
pub(crate) struct Admission {
    pub budget: Arc<Budget>,
    pub calls_per_connection: usize,
    pub calls_per_loop: usize,
}

impl Admission {
    pub fn new(budget: Arc<Budget>, max_streams: u32) -> Admission {
        Admission {
            budget,
            calls_per_connection: max_streams as usize * limits::RUNNING_CALLS_PER_STREAM,
            calls_per_loop: limits::RUNNING_CALLS_PER_LOOP,
        }
    }

    /// Whether another call may begin, with so many running on its connection and in its loop.
    pub fn admit(&self, on_connection: usize, in_loop: usize) -> Result<(), Status> {
        if on_connection >= self.calls_per_connection {
            return Err(shed("too many calls of this connection are running"));
        }
        if in_loop >= self.calls_per_loop {
            return Err(shed("too many calls are running"));
        }
        if self.budget.is_exceeded() {
            return Err(shed(
                "the memory for requests and unsent answers is used up",
            ));
        }
        Ok(())
    }
}

/// The server stops.
pub(crate) fn stopping() -> Status {
    shed("the server is stopping")
}

/// The connection is one too many.
pub(crate) fn too_many_connections() -> Status {
    shed("the server has as many connections as it may have (--max-connections)")
}

fn shed(message: &'static str) -> Status {
    Status::new(Code::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Admission {
        Admission {
            budget: Arc::new(Budget::new(1000)),
            calls_per_connection: 2,
            calls_per_loop: 3,
        }
    }

    #[test]
    fn calls_above_each_bound_are_shed() {
        let admission = admission();
        assert_eq!(admission.admit(1, 2), Ok(()));
        assert_eq!(
            admission.admit(2, 2).expect_err("per connection").code,
            Code::Unavailable
        );
        assert_eq!(
            admission.admit(1, 3).expect_err("per loop").code,
            Code::Unavailable
        );
    }

    #[test]
    fn calls_are_shed_while_too_much_is_buffered() {
        let admission = admission();
        admission.budget.change(0, 600);
        admission.budget.change(0, 600);
        assert_eq!(
            admission.admit(0, 0).expect_err("over budget").code,
            Code::Unavailable
        );
        admission.budget.change(600, 400);
        assert_eq!(admission.admit(0, 0), Ok(()));
    }
}
