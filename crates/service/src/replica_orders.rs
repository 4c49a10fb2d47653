//! What an operator wants of a replica, on its way to the thread that follows, and the answer.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::{EpochPlace, ReplicaId};

use crate::status::{Code, Status};

/// What an operator wants of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaOrder {
    /// To confirm an epoch for a candidate.
    Confirm(EpochProposal),
    /// To take the place of its leader.
    Promote(PromotionOrder),
}

/// An epoch for which a replica is the candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochProposal {
    /// The history of the candidate.
    pub history_id: u64,
    /// The epoch.
    pub epoch: u64,
    /// The candidate.
    pub candidate: ReplicaId,
    /// Where clients reach it.
    pub address: String,
}

/// What a replica has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochConfirmation {
    /// The replica.
    pub replica: ReplicaId,
    /// The epoch.
    pub epoch: u64,
    /// For which candidate.
    pub candidate: ReplicaId,
    /// Where its log ends.
    pub place: EpochPlace,
}

/// How a replica is to take the place of its leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromotionOrder {
    /// Although writes may be lost that the leader has answered.
    pub force: bool,
    /// Where clients reach it.
    pub address: String,
    /// The epoch is this one at least.
    pub least_epoch: u64,
    /// What others have confirmed.
    pub confirmations: Vec<EpochConfirmation>,
}

/// What has come of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderReport {
    /// What is confirmed now.
    Confirmed(EpochConfirmation),
    /// Whether it takes the place of its leader.
    Promotion(PromotionReport),
}

/// Whether a replica takes the place of its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromotionReport {
    /// It does.
    pub promoted: bool,
    /// The epoch.
    pub epoch: u64,
    /// The replica.
    pub replica: ReplicaId,
    /// Its history.
    pub history_id: u64,
    /// It has everything up to this sequence.
    pub sequence: u64,
    /// The same of the leader, as it said last.
    pub leader_sequence: u64,
    /// Why not, or what was passed over.
    pub problem: String,
    /// Others must confirm.
    pub needs_confirmations: bool,
}

/// One order at a time, and its answer.
#[derive(Debug, Default)]
pub struct ReplicaOrders {
    state: Mutex<OrderState>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct OrderState {
    last_ticket: u64,
    /// It was not taken.
    order: Option<(u64, ReplicaOrder)>,
    /// It was taken, and is not answered.
    is_under_way: bool,
    answer: Option<(u64, Result<OrderReport, Status>)>,
}

impl ReplicaOrders {
    /// Hands over an order; returns the ticket for its answer.
    ///
    /// # Errors
    /// If another one is under way.
    pub fn submit(&self, order: ReplicaOrder) -> Result<u64, Status> {
        let mut state = self.lock();
        if state.order.is_some() || state.is_under_way {
            return Err(Status::new(
                Code::Aborted,
                "this replica is asked to confirm an epoch, or to be promoted, just now: try again",
            ));
        }
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.order = Some((ticket, order));
        state.answer = None;
        self.arrived.notify_all();
        Ok(ticket)
    }

    /// Returns the answer to an order, if it is there.
    pub fn take_answer(&self, ticket: u64) -> Option<Result<OrderReport, Status>> {
        let mut state = self.lock();
        let is_of = |answer: &mut (u64, _)| answer.0 == ticket;
        state.answer.take_if(is_of).map(|(_, answer)| answer)
    }

    /// Takes back an order whose caller has left, if it was not taken.
    pub fn withdraw(&self, ticket: u64) {
        self.lock().order.take_if(|order| order.0 == ticket);
    }

    /// Returns whether there is an order.
    pub fn is_waiting(&self) -> bool {
        self.lock().order.is_some()
    }

    /// Takes the order, if there is one, and has it carried out.
    pub fn carry_out(&self, carry: impl FnOnce(ReplicaOrder) -> Result<OrderReport, Status>) {
        let mut state = self.lock();
        let Some((ticket, order)) = state.order.take() else {
            return;
        };
        state.is_under_way = true;
        drop(state);
        let answer = carry(order);
        let mut state = self.lock();
        state.is_under_way = false;
        state.answer = Some((ticket, answer));
    }

    /// Waits for so long, or until there is an order.
    pub fn wait(&self, most: Duration) {
        let state = self.lock();
        let waited = (self.arrived).wait_timeout_while(state, most, |state| state.order.is_none());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, OrderState> {
        // Each change of it is whole, whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    fn report(sequence: u64) -> OrderReport {
        OrderReport::Confirmed(EpochConfirmation {
            replica: [1; 16],
            epoch: 2,
            candidate: [2; 16],
            place: EpochPlace { epoch: 1, sequence },
        })
    }

    fn order() -> ReplicaOrder {
        ReplicaOrder::Promote(PromotionOrder::default())
    }

    #[test]
    fn one_order_is_carried_out_at_a_time_and_its_caller_alone_gets_the_answer() {
        let orders = ReplicaOrders::default();
        for round in 0..2 {
            let ticket = orders.submit(order()).expect("nothing is under way");
            assert!(orders.is_waiting());
            let second = orders.submit(order()).expect_err("one at a time");
            assert_eq!(second.code(), Code::Aborted);
            orders.wait(Duration::from_secs(60));
            orders.carry_out(|taken| {
                assert_eq!(taken, order());
                assert!(orders.submit(order()).is_err() && !orders.is_waiting());
                Ok(report(round))
            });
            assert_eq!(orders.take_answer(ticket + 1), None);
            assert_eq!(orders.take_answer(ticket), Some(Ok(report(round))));
            assert_eq!(orders.take_answer(ticket), None);
        }
        let ticket = orders.submit(order()).expect("nothing is under way");
        orders.withdraw(ticket - 1);
        assert!(orders.is_waiting(), "whoever has left takes back its own");
        orders.withdraw(ticket);
        orders.carry_out(|_| panic!("it was taken back"));
        orders.submit(order()).expect("nothing is under way");
    }

    #[test]
    fn whoever_waits_for_an_order_is_woken_by_it() {
        let orders = Arc::new(ReplicaOrders::default());
        for round in 0..2 {
            let (woken, is_woken) = mpsc::channel();
            let waiting = Arc::clone(&orders);
            let thread = thread::spawn(move || {
                // Longer than this test may take.
                waiting.wait(Duration::from_secs(3_600));
                waiting.carry_out(|_| Ok(report(round)));
                woken.send(()).expect("somebody looks");
            });
            // By now it waits, most likely: else it finds this without being woken.
            thread::sleep(Duration::from_millis(100));
            let ticket = orders.submit(order()).expect("nothing is under way");
            is_woken
                .recv_timeout(Duration::from_secs(60))
                .expect("it is woken");
            thread.join().expect("it has ended");
            assert_eq!(orders.take_answer(ticket), Some(Ok(report(round))));
        }
    }
}
