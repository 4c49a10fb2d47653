//! Who may begin a call. Refusals come before any work, with a status that makes a retry safe.

use std::sync::Arc;

use service::{Code, RefusedFor, Status};

use crate::account::{Account, Holding};
use crate::limits;

/// Why a call is refused before anybody asks whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShedFor {
    /// The server stops.
    Stopping,
    /// Its connection is one too many.
    Connections,
    /// Its connection is one too many from its address.
    AddressConnections,
    /// Too many calls are running.
    RunningCalls,
    /// The memory for requests and unsent answers is used up.
    Buffers,
}

impl From<ShedFor> for RefusedFor {
    fn from(reason: ShedFor) -> RefusedFor {
        match reason {
            ShedFor::Stopping => RefusedFor::Stopping,
            ShedFor::Connections => RefusedFor::Connections,
            ShedFor::AddressConnections => RefusedFor::AddressConnections,
            ShedFor::RunningCalls => RefusedFor::RunningCalls,
            ShedFor::Buffers => RefusedFor::Buffers,
        }
    }
}

/// The bounds on running work of one loop.
pub(crate) struct Admission {
    pub account: Arc<Account>,
    pub calls_per_loop: usize,
    /// Bytes of writes that may wait in one loop for the committer; one request may go beyond it.
    pub waiting_write_bytes: usize,
}

impl Admission {
    pub fn new(account: Arc<Account>) -> Admission {
        Admission {
            waiting_write_bytes: account.limit_bytes() / limits::WAITING_WRITES_SHARE,
            account,
            calls_per_loop: limits::RUNNING_CALLS_PER_LOOP,
        }
    }

    /// Whether another call may begin, with so many running in its loop, and so many of them on its
    /// connection. The less is left, the fewer one connection may have, so that a few cannot use up
    /// what all share; a few calls it may have always. A stream counts until its call has ended,
    /// also if the peer has long reset it. An overfull account refuses only those who have sent
    /// much that is not ended: the others wait at most.
    pub fn admit(
        &self,
        in_loop: usize,
        on_connection: usize,
        holding: &Holding,
    ) -> Result<(), ShedFor> {
        let left = self.calls_per_loop.saturating_sub(in_loop);
        let most = (left / limits::LEFT_CALLS_SHARE).max(limits::CALLS_IN_ANY_CASE);
        if on_connection >= most {
            return Err(ShedFor::RunningCalls);
        }
        if self.account.is_overfull() && holding.has_sent_much() {
            return Err(ShedFor::Buffers);
        }
        Ok(())
    }

    /// Whether a token may have another call, with so many calls running in its loop, and so many
    /// of them its own.
    #[inline]
    pub fn admit_identity(&self, in_loop: usize, of_identity: usize) -> Result<(), ShedFor> {
        let left = self.calls_per_loop.saturating_sub(in_loop);
        let share = left / limits::LEFT_CALLS_IDENTITY_SHARE;
        match of_identity >= share.max(limits::IDENTITY_CALLS_IN_ANY_CASE) {
            true => Err(ShedFor::RunningCalls),
            false => Ok(()),
        }
    }

    /// Whether a plain request that is no call may be answered on a connection with so many open
    /// streams. Its answer waits for nothing but its peer's windows: where not even small callers
    /// can be let in, those who hold more than a little get none.
    pub fn admit_plain(&self, streams: usize, holding: &Holding) -> Result<(), ShedFor> {
        let holds_much = streams > limits::CALLS_IN_ANY_CASE || !holding.is_small();
        match self.account.is_overfull() && holds_much {
            true => Err(ShedFor::Buffers),
            false => Ok(()),
        }
    }

    /// Returns how much a connection may have sent that its calls have not seen: a little while not
    /// even small callers can be let in, so that what streams send that were opened before is
    /// bounded too.
    pub fn gather_bound(&self) -> usize {
        match self.account.is_overfull() {
            true => limits::OVERFULL_GATHERED_BYTES,
            false => usize::MAX,
        }
    }
}

/// What a call is told that may not begin.
#[cold]
pub(crate) fn status(reason: ShedFor) -> Status {
    match reason {
        ShedFor::Stopping => stopping(),
        ShedFor::Connections => shed(
            "the server has as many connections as it may have (--max-connections), or no thread \
             for another one",
        ),
        ShedFor::AddressConnections => shed(
            "there are as many connections from this address as there may be \
             (--max-connections-per-address)",
        ),
        ShedFor::RunningCalls => shed("too many calls are running"),
        ShedFor::Buffers => shed("the memory for requests and unsent answers is used up"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::HeldBytes;
    use crate::pair::Pair;
    use wire::Event;

    #[test]
    fn those_who_have_sent_much_are_shed_when_the_account_is_overfull() {
        let account = Account::new(1000);
        let wake: crate::SharedWaker = Arc::new(|| {});
        let mut large = account.open(&net::PeerAddress::Unix, &wake);
        let small = account.open(&net::PeerAddress::Unix, &wake);
        let admission = Admission::new(account);
        for _ in 0..2 {
            assert_eq!(admission.admit(2, 2, &large), Ok(()));
            let held = HeldBytes {
                charged_bytes: 100_000,
                all_bytes: 100_000,
                ..HeldBytes::default()
            };
            large.change(held, 0);
            assert_eq!(admission.admit(0, 0, &large), Err(ShedFor::Buffers));
            assert_eq!(admission.admit(0, 0, &small), Ok(()));
            large.change(HeldBytes::default(), 0);
        }
    }

    #[test]
    fn plain_requests_of_those_who_hold_much_are_shed_when_the_account_is_overfull() {
        let account = Account::new(1_000_000);
        let wake: crate::SharedWaker = Arc::new(|| {});
        let mut asks = account.open(&net::PeerAddress::Unix, &wake);
        let mut others = account.open(&net::PeerAddress::Unix, &wake);
        let admission = Admission::new(account);
        let unsent = |bytes| HeldBytes {
            charged_bytes: bytes,
            all_bytes: bytes,
            unsent_bytes: bytes,
            ..HeldBytes::default()
        };
        let refused = Err(ShedFor::Buffers);
        let few = limits::CALLS_IN_ANY_CASE;
        for _ in 0..2 {
            others.change(unsent(1_000_000), 0);
            asks.change(unsent(100_000), 0);
            assert_eq!(
                admission.admit_plain(few + 1, &asks),
                Ok(()),
                "not overfull"
            );
            others.change(unsent(2_000_000), 0);
            assert_eq!(admission.admit_plain(few, &asks), refused);
            asks.change(unsent(1_000), 0);
            assert_eq!(admission.admit_plain(few, &asks), Ok(()));
            assert_eq!(admission.admit_plain(few + 1, &asks), refused);
        }
    }

    #[test]
    fn writes_that_wait_have_a_quarter_of_the_account() {
        for limit_bytes in [1_000, 1 << 30] {
            let admission = Admission::new(Account::new(limit_bytes));
            assert_eq!(admission.waiting_write_bytes, limit_bytes / 4);
        }
    }

    #[test]
    fn what_calls_have_not_seen_is_bounded_while_the_account_is_overfull() {
        let account = Account::new(1_000_000);
        let wake: crate::SharedWaker = Arc::new(|| {});
        let mut others = account.open(&net::PeerAddress::Unix, &wake);
        let admission = Admission::new(account);
        for _ in 0..2 {
            // An eighth beyond the limit is there for small callers.
            for (charged_bytes, bound) in [
                (1_125_000, usize::MAX),
                (1_125_001, limits::OVERFULL_GATHERED_BYTES),
            ] {
                let held = HeldBytes {
                    charged_bytes,
                    all_bytes: charged_bytes,
                    ..HeldBytes::default()
                };
                others.change(held, 0);
                assert_eq!(admission.gather_bound(), bound);
            }
        }
    }

    /// Connections that open all streams they can leave the others their share, whoever comes
    /// first.
    #[test]
    fn a_few_connections_do_not_use_up_the_calls_of_a_loop() {
        let account = Account::new(1 << 30);
        let wake: crate::SharedWaker = Arc::new(|| {});
        let holding = account.open(&net::PeerAddress::Unix, &wake);
        let admission = Admission::new(account);
        let all = limits::RUNNING_CALLS_PER_LOOP;
        let greedy = |count: usize, mut in_loop: usize| {
            let mut calls = vec![0; count];
            loop {
                let before = in_loop;
                for one in &mut calls {
                    if *one < 4_096 && admission.admit(in_loop, *one, &holding).is_ok() {
                        *one += 1;
                        in_loop += 1;
                    }
                }
                if in_loop == before {
                    return (calls, in_loop);
                }
            }
        };
        for _ in 0..2 {
            assert_eq!(greedy(16, 0).0, [4_096; 16], "as many as there are streams");
            let (calls, in_loop) = greedy(140, 0);
            assert!(
                calls.iter().all(|&one| one.abs_diff(calls[0]) <= 1),
                "equal shares"
            );
            assert!(in_loop < all - all / 16, "{in_loop} leave something");
            let (newcomer, _) = greedy(1, in_loop);
            assert!(newcomer[0] >= 1_000, "{}", newcomer[0]);
            let (calls, _) = greedy(5_000, 0);
            assert!(calls.iter().all(|&one| one == limits::CALLS_IN_ANY_CASE));
            let (newcomer, _) = greedy(1, all);
            assert_eq!(newcomer, [limits::CALLS_IN_ANY_CASE]);
        }
    }

    /// However many connections it has.
    #[test]
    fn a_token_does_not_use_up_the_calls_of_a_loop() {
        let admission = Admission::new(Account::new(1 << 30));
        let all = limits::RUNNING_CALLS_PER_LOOP;
        let greedy = |others: usize| {
            let mut calls = 0;
            while admission.admit_identity(others + calls, calls).is_ok() {
                calls += 1;
            }
            calls
        };
        for _ in 0..2 {
            let first = greedy(0);
            assert!(first.abs_diff(all / 3) <= 1, "{first}: a third");
            let second = greedy(first);
            assert!(
                second.abs_diff(all / 3 * 2 / 3) <= 2,
                "{second}: of what is left"
            );
            assert_eq!(greedy(all), limits::IDENTITY_CALLS_IN_ANY_CASE);
        }
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
        let _overfull = shed.overfill();
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

    /// A client that is told to try again does so on the connection that it has.
    #[test]
    fn calls_refused_by_the_thousand_keep_their_connection() {
        let mut pair = Pair::open();
        for _ in 0..2 {
            let overfull = pair.overfill();
            for _ in 0..5_000 {
                let stream = pair.call("/pelton.v1.Echo/Unary", b"");
                assert_eq!(end(&mut pair).0, Code::Unavailable as u8);
                pair.client.forget(stream);
            }
            drop(overfull);
            let stream = pair.call("/pelton.v1.Echo/Unary", b"");
            assert_eq!(end(&mut pair), (Code::Ok as u8, None));
            pair.client.forget(stream);
        }
    }
}
