//! Who may begin a call. Refusals come before any work, with a status that makes a retry safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use service::{Code, RefusedFor, Status};
use wire::{Connection, StreamKey};

use crate::actions::wire_status;
use crate::limits;

/// The bytes that all loops of the server buffer for their peers, and how many may be.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Shown to those who ask for statistics.
    buffered: Arc<AtomicUsize>,
    limit: usize,
    /// A connection receives a large message although there is no memory left for it.
    is_overdrawn: AtomicBool,
}

impl Budget {
    pub fn new(limit: usize) -> Budget {
        Budget {
            buffered: Arc::default(),
            limit,
            is_overdrawn: AtomicBool::new(false),
        }
    }

    /// Returns what large messages may still take before they come, in bytes.
    pub fn left_for_messages(&self) -> usize {
        let reserve = self.limit / limits::SMALL_CALLS_SHARE;
        (self.limit - reserve).saturating_sub(self.buffered.load(Ordering::Relaxed))
    }

    /// Lets one connection of the server receive one message beyond the limit, so that something
    /// always moves. To be followed by [`Budget::end_overdraft`] if it returns true.
    pub fn try_overdraft(&self) -> bool {
        !self.is_overdrawn.swap(true, Ordering::Relaxed)
    }

    /// Whether nobody receives a message beyond the limit.
    pub fn may_overdraw(&self) -> bool {
        !self.is_overdrawn.load(Ordering::Relaxed)
    }

    /// The message has come, or stands still.
    pub fn end_overdraft(&self) {
        self.is_overdrawn.store(false, Ordering::Relaxed);
    }

    /// The bytes that are buffered, to be read by others.
    pub fn counter(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.buffered)
    }

    /// A connection's share went from `before` to `after` bytes.
    pub fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.buffered.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.buffered.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub fn buffered(&self) -> usize {
        self.buffered.load(Ordering::Relaxed)
    }

    pub fn is_exceeded(&self) -> bool {
        self.buffered.load(Ordering::Relaxed) > self.limit
    }
}

/// The bounds on running work of one loop.
pub(crate) struct Admission {
    pub budget: Arc<Budget>,
    pub calls_per_loop: usize,
}

impl Admission {
    pub fn new(budget: Arc<Budget>) -> Admission {
        Admission {
            budget,
            calls_per_loop: limits::RUNNING_CALLS_PER_LOOP,
        }
    }

    /// Whether another call may begin, with so many running in its loop. Those of one connection are bounded by the
    /// protocol, which counts a stream until its call has ended, also if the peer has long reset it.
    pub fn admit(&self, in_loop: usize) -> Result<(), RefusedFor> {
        if in_loop >= self.calls_per_loop {
            return Err(RefusedFor::RunningCalls);
        }
        if self.budget.is_exceeded() {
            return Err(RefusedFor::Buffers);
        }
        Ok(())
    }
}

/// What a call is told that may not begin.
#[cold]
pub(crate) fn status(reason: RefusedFor) -> Status {
    match reason {
        RefusedFor::Stopping => stopping(),
        RefusedFor::Connections => shed(
            "the server has as many connections as it may have (--max-connections; --threads with --driver blocking)",
        ),
        RefusedFor::AddressConnections => shed(
            "there are as many connections from this address as there may be (--max-connections-per-address)",
        ),
        RefusedFor::RunningCalls => shed("too many calls are running"),
        RefusedFor::Buffers => shed("the memory for requests and unsent answers is used up"),
        RefusedFor::UnknownMethod => Status::unimplemented("there is no such method here"),
    }
}

/// The server stops.
pub(crate) fn stopping() -> Status {
    shed("the server is stopping")
}

/// The server stops, and a write of the call may be done or not: nothing that invites to repeat it.
pub(crate) fn stopped_in_commit() -> Status {
    Status::new(
        Code::Unknown,
        "outcome unknown: the server stopped before the write was answered",
    )
}

fn shed(message: &'static str) -> Status {
    Status::new(Code::Unavailable, message)
}

/// Ends a call that may not begin.
#[cold]
pub(crate) fn refuse(
    connection: &mut Connection,
    stream: StreamKey,
    output: &mut Vec<u8>,
    status: Status,
) {
    add_pushback(connection, stream);
    connection.finish(stream, output, &wire_status(status));
}

/// Says when to try again (gRPC proposal A6, "Pushback"). It goes with every UNAVAILABLE of this server, and with
/// nothing else: so a client can tell it from the UNAVAILABLE that its own library makes of a broken connection.
#[cold]
pub(crate) fn add_pushback(connection: &mut Connection, stream: StreamKey) {
    let pushback_ms = limits::RETRY_PUSHBACK_MS.to_string();
    connection.add_trailer(stream, b"grpc-retry-pushback-ms", pushback_ms.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::Pair;
    use wire::Event;

    fn admission() -> Admission {
        Admission {
            budget: Arc::new(Budget::new(1000)),
            calls_per_loop: 3,
        }
    }

    #[test]
    fn calls_above_each_bound_are_shed() {
        let admission = admission();
        assert_eq!(admission.admit(2), Ok(()));
        assert_eq!(admission.admit(3), Err(RefusedFor::RunningCalls));
    }

    #[test]
    fn calls_are_shed_while_too_much_is_buffered() {
        let admission = admission();
        admission.budget.change(0, 600);
        admission.budget.change(0, 600);
        assert_eq!(admission.admit(0), Err(RefusedFor::Buffers));
        admission.budget.change(600, 400);
        assert_eq!(admission.admit(0), Ok(()));
    }

    /// The code of the call that ended in this turn, and when to try again.
    fn end(pair: &mut Pair) -> (u8, Option<Vec<u8>>) {
        for _ in 0..4 {
            let events = pair.turn();
            if let Some(Event::Finished { .. }) = events.last() {
                let status = pair.client.status();
                let pushback = status
                    .metadata()
                    .and_then(|metadata| metadata.get("grpc-retry-pushback-ms"));
                return (status.code() as u8, pushback.map(<[u8]>::to_vec));
            }
        }
        panic!("the call has not ended");
    }

    #[test]
    fn every_unavailable_says_when_to_try_again() {
        let unavailable = (Code::Unavailable as u8, Some(b"100".to_vec()));

        let mut shed = Pair::open();
        shed.call("/pelton.v1.Echo/Unary", b"");
        assert_eq!(end(&mut shed), (Code::Ok as u8, None), "not too busy");
        shed.worker.budget().change(0, 1 << 30);
        shed.call("/pelton.v1.Echo/Unary", b"");
        assert_eq!(end(&mut shed), unavailable, "too busy");

        let mut refused = Pair::accepted(true);
        refused.client.start(&mut refused.sent);
        refused.call("/pelton.v1.Echo/Unary", b"");
        assert_eq!(end(&mut refused), unavailable, "too many connections");

        let mut stopping = Pair::open();
        stopping.stop();
        stopping.call("/pelton.v1.Echo/Unary", b"");
        assert_eq!(end(&mut stopping), unavailable, "stopping");

        let mut watching = Pair::open();
        watching.call("/grpc.health.v1.Health/Watch", b"");
        watching.turn();
        watching.stop();
        assert_eq!(end(&mut watching), unavailable, "ended by the stop");
    }
}
