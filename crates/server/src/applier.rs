//! Commits that no connection asks for: of a thread that follows another system's server.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use service::Shared;
use store::durable::{Durable, Mailbox};
use store::{Decision, Outcomes, Refusal, Store, WriteBatch};

use crate::Server;
use crate::clock::TimeSource;
use crate::storage::Unticked;

/// How long outcomes are waited for before it is looked whether the server stops.
const OUTCOME_LOOK: Duration = Duration::from_secs(1);

/// Has commits carried out for one thread, which waits for them.
pub struct BlockingApplier {
    shared: Arc<Shared>,
    time: Arc<dyn TimeSource>,
    durable: Option<DurablePart>,
}

/// What carries out the commits of databases with a log.
struct DurablePart {
    durable: Arc<Durable>,
    mailbox: Mailbox,
    woken: mpsc::Receiver<()>,
}

impl BlockingApplier {
    fn new(
        shared: &Arc<Shared>,
        time: &Arc<dyn TimeSource>,
        durable: Option<&Arc<Durable>>,
    ) -> BlockingApplier {
        let durable = durable.map(|durable| {
            // One wake-up that was not heard yet is as good as many.
            let (waker, woken) = mpsc::sync_channel(1);
            DurablePart {
                durable: Arc::clone(durable),
                mailbox: durable.register(Box::new(move || {
                    let _ = waker.try_send(());
                })),
                woken,
            }
        });
        BlockingApplier {
            shared: Arc::clone(shared),
            time: Arc::clone(time),
            durable,
        }
    }

    /// Its store.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Returns whether the server stops.
    pub fn is_stopping(&self) -> bool {
        self.shared.health.is_stopping()
    }

    /// Has commits carried out, all on databases with a log or all on others, and waits until they
    /// are visible. The batch is empty then. May wait for the device.
    ///
    /// # Errors
    /// Why one was refused; others may have been carried out.
    pub fn apply(&self, batch: &mut WriteBatch) -> Result<(), Refusal> {
        let mut outcomes = Outcomes::new();
        let Some(part) = self.durable.as_ref().filter(|_| batch.logged_len() > 0) else {
            let mut clock = Unticked(Arc::clone(&self.time));
            let mut committer = self.shared.store.committer();
            drop(committer.run(batch, &mut clock, &mut outcomes));
            batch.clear();
            return check(&outcomes);
        };
        let mut left = batch.len();
        batch.read_ahead();
        part.mailbox.submit(batch);
        let mut result = Ok(());
        while left > 0 {
            if part.mailbox.take(&mut outcomes) {
                result = result.and(check(&outcomes));
                left = left.saturating_sub(outcomes.len());
            } else if part.woken.recv_timeout(OUTCOME_LOOK).is_err() && self.is_stopping() {
                // The committer's thread may have ended: then there are no outcomes.
                return Err(Refusal::OutcomeUnknown);
            }
        }
        result
    }

    /// Waits until everything that was carried out is on the device, as far as its databases have a
    /// log. Returns whether it is.
    pub fn sync(&self) -> bool {
        (self.durable.as_ref()).is_none_or(|part| part.durable.sync())
    }
}

/// An operation that changes nothing is as good as any.
fn check(outcomes: &Outcomes) -> Result<(), Refusal> {
    for outcome in outcomes.iter() {
        match outcome.decision {
            Decision::Applied => {}
            Decision::Refused(why) => return Err(why),
            Decision::Failed { .. } => return Err(Refusal::OutcomeUnknown),
        }
    }
    Ok(())
}

impl Server {
    /// Returns what carries out commits that no connection asks for.
    pub fn applier(&self) -> BlockingApplier {
        let parts = &self.parts;
        BlockingApplier::new(&parts.shared, &parts.time, parts.durable.as_ref())
    }
}
