//! What a replica confirms, and how it takes the place of its leader. The thread that follows does
//! this between two groups, so that nothing is acknowledged meanwhile.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use net::StopHandle;
use server::Replica;
use service::following::Following;
use service::replica_orders::{
    EpochConfirmation, EpochProposal, OrderReport, PromotionOrder, PromotionReport, ReplicaOrder,
};
use service::{Code, Status};
use store::{EpochPlace, QuorumError};
use wal::disk::RealDisk;

use super::mark::{Promotion, ReplicaMark};
use super::promise::{EpochPromise, NOBODY};
use super::renewal::Renewal;
use crate::encoding::encode_hex;
use crate::limits::EPOCH_STEP_MAX;

/// What a replica has confirmed, for the thread that follows.
pub struct EpochKeeper {
    replica: Replica,
    following: Arc<Following>,
    folder: PathBuf,
    renewal: Renewal,
    stop: StopHandle,
    promise: Option<EpochPromise>,
    /// The highest epoch in which a leader of this history was heard.
    heard_epoch: u64,
    is_promoted: bool,
}

/// A candidate, and why it may not take the place of its leader.
struct Candidacy {
    epoch: u64,
    place: EpochPlace,
    problem: Option<QuorumError>,
}

impl EpochKeeper {
    /// Reads what was confirmed.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn new(
        (replica, following): (Replica, Arc<Following>),
        folder: PathBuf,
        (renewal, stop): (Renewal, StopHandle),
    ) -> io::Result<EpochKeeper> {
        Ok(EpochKeeper {
            promise: EpochPromise::read(&RealDisk::open(&folder)?)?,
            replica,
            following,
            folder,
            renewal,
            stop,
            heard_epoch: 0,
            is_promoted: false,
        })
    }

    /// The highest epoch that was confirmed, or is in the log here: a leader of an older one is not
    /// followed.
    pub fn epoch(&self) -> u64 {
        let promised = self.promise().map_or(0, |promise| promise.epoch);
        promised.max(self.replica.store().epoch())
    }

    /// What was confirmed in the history that is followed: in another one it says nothing.
    fn promise(&self) -> Option<&EpochPromise> {
        let history_id = self.replica.store().history_id();
        (self.promise.as_ref()).filter(|promise| promise.is_of(history_id))
    }

    /// Takes notice of the epoch of a leader of this history.
    pub fn note_heard(&mut self, epoch: u64) {
        self.heard_epoch = self.heard_epoch.max(epoch);
    }

    /// Where the leader of that epoch is, if that is known.
    pub fn address(&self) -> &str {
        let epoch = self.epoch();
        let promise = self.promise().filter(|promise| promise.epoch == epoch);
        promise.map_or("", |promise| &promise.address)
    }

    /// Where the log here ends, on the device.
    pub fn place(&self) -> EpochPlace {
        EpochPlace {
            epoch: self.replica.store().epoch(),
            sequence: self.replica.durable_sequence(),
        }
    }

    /// Does what an operator wants, if there is something.
    pub fn carry_out_order(&mut self) {
        let following = Arc::clone(&self.following);
        following.orders().carry_out(|order| match order {
            ReplicaOrder::Confirm(proposal) => self.confirm(&proposal),
            ReplicaOrder::Promote(order) => self.promote(&order),
        });
        if self.is_promoted {
            self.renewal.ask();
            self.stop.stop();
        }
    }

    /// Whether this replica takes the place of its leader: nothing is followed any more.
    pub fn is_promoted(&self) -> bool {
        self.is_promoted
    }

    fn confirm(&mut self, proposal: &EpochProposal) -> Result<OrderReport, Status> {
        if proposal.history_id != self.replica.store().history_id() {
            return Err(refused(
                "the candidate has another history than this replica, which is none of its fellows",
            ));
        }
        let is_free = proposal.epoch > self.epoch();
        if is_free {
            self.check_step(proposal.epoch)?;
            self.note(proposal.epoch, proposal.candidate, &proposal.address)?;
        }
        let candidate = (self.promise()).filter(|promise| promise.epoch == self.epoch());
        Ok(OrderReport::Confirmed(EpochConfirmation {
            replica: *self.following.id(),
            epoch: self.epoch(),
            candidate: candidate.map_or(NOBODY, |promise| promise.candidate),
            // Read behind the promise: nothing beyond it was or will be acknowledged.
            place: self.place(),
        }))
    }

    /// Refuses an epoch behind which there would soon be none.
    fn check_step(&self, epoch: u64) -> Result<(), Status> {
        let own = self.epoch();
        match epoch.saturating_sub(own) > EPOCH_STEP_MAX {
            false => Ok(()),
            true => Err(refused(&format!(
                "epoch {epoch} is too far above {own}, in which this replica is"
            ))),
        }
    }

    fn note(&mut self, epoch: u64, candidate: [u8; 16], address: &str) -> Result<(), Status> {
        let promise = EpochPromise {
            history_id: Some(self.replica.store().history_id()),
            epoch,
            candidate,
            address: address.to_owned(),
        };
        let written = RealDisk::open(&self.folder).and_then(|disk| promise.write(&disk));
        written.map_err(|error| not_noted(&error))?;
        tracing::warn!(
            "epoch {epoch} is confirmed: nothing is taken of a leader of an older one any more"
        );
        self.promise = Some(promise);
        Ok(())
    }

    /// The epoch that this replica would lead: that for which it is a candidate already, or a new
    /// one.
    fn next_epoch(&self, least_epoch: u64) -> u64 {
        let highest = self.epoch().max(self.heard_epoch);
        let own = self.promise().filter(|promise| {
            promise.candidate == *self.following.id() && promise.epoch == highest
        });
        let is_begun = |promise: &&EpochPromise| promise.epoch > self.replica.store().epoch();
        let next = match own.filter(is_begun) {
            Some(own) => own.epoch,
            None => highest.saturating_add(1),
        };
        next.max(least_epoch)
    }

    fn promote(&mut self, order: &PromotionOrder) -> Result<OrderReport, Status> {
        if self.replica.has_failed_log() {
            return Err(refused(
                "the log of this replica has failed, and nobody knows what is on its device: start \
                 it anew first",
            ));
        }
        let candidacy = self.candidacy(order)?;
        let is_passed_over = candidacy.problem.is_none() || order.force;
        if is_passed_over {
            // Before what it is for: whoever has confirmed is not asked again.
            self.check_step(candidacy.epoch)?;
            self.note(candidacy.epoch, *self.following.id(), &order.address)?;
            self.note_promotion(&candidacy)
                .map_err(|error| not_noted(&error))?;
            self.is_promoted = true;
        }
        let state = self.following.state();
        Ok(OrderReport::Promotion(PromotionReport {
            promoted: is_passed_over,
            epoch: candidacy.epoch,
            replica: *self.following.id(),
            history_id: self.replica.store().history_id(),
            sequence: candidacy.place.sequence,
            leader_sequence: state.leader_sequence,
            problem: candidacy
                .problem
                .map_or_else(String::new, |problem| problem.to_string()),
            needs_confirmations: matches!(candidacy.problem, Some(QuorumError::TooFew { .. })),
        }))
    }

    /// Looks whether so many have confirmed that nothing is lost.
    fn candidacy(&self, order: &PromotionOrder) -> Result<Candidacy, Status> {
        let (id, place) = (*self.following.id(), self.place());
        let epoch = self.next_epoch(order.least_epoch);
        let mut confirmed = BTreeSet::from([id]);
        for one in &order.confirmations {
            if (one.epoch, one.candidate) != (epoch, id) {
                continue;
            }
            if one.place > place && !order.force {
                return Err(refused(&format!(
                    "the replica {} has everything up to sequence {} of epoch {}, and this one up \
                     to {} of {}: promote that one, so that nothing is lost",
                    encode_hex(&one.replica),
                    one.place.sequence,
                    one.place.epoch,
                    place.sequence,
                    place.epoch
                )));
            }
            confirmed.insert(one.replica);
        }
        let checked = self
            .replica
            .store()
            .replica_set()
            .check_quorum(&id, &confirmed);
        Ok(Candidacy {
            epoch,
            place,
            problem: checked.err(),
        })
    }

    /// From now on each start of the folder is that of a leader.
    fn note_promotion(&self, candidacy: &Candidacy) -> io::Result<()> {
        let promotion = Promotion {
            epoch: candidacy.epoch,
            end: candidacy.place.sequence,
            begins_history: candidacy.problem.is_some(),
            old_history: self.replica.store().history_id(),
        };
        tracing::warn!(
            "this replica takes the place of its leader, in epoch {}, with everything up to \
             sequence {}: the server starts anew",
            promotion.epoch,
            promotion.end
        );
        ReplicaMark::Promoted(promotion).write(&RealDisk::open(&self.folder)?)
    }
}

fn refused(what: &str) -> Status {
    Status::new(
        Code::FailedPrecondition,
        format!("{what}; nothing was done"),
    )
}

fn not_noted(error: &io::Error) -> Status {
    Status::new(
        Code::Unavailable,
        format!("the epoch cannot be noted in the data folder: {error}; try again"),
    )
}
