//! The first administrator's token, made before a server serves.

use std::sync::{Arc, mpsc};

use service::identities::{FIRST_ADMIN, Token};
use service::{Code, Shared};
use store::durable::Durable;
use store::{Decision, Outcomes, Refusal, WriteBatch};

use crate::audit_record::{AuditCaller, AuditEvent, AuditRecord};
use crate::clock::TimeSource;
use crate::storage::Unticked;
use crate::{Log, load_identities};

/// Where the token of the first administrator comes from: asked only if there is none. What it has
/// written somewhere must be there before the server knows the token.
pub type AskForToken = dyn FnOnce() -> Result<Token, String> + Send;

/// What came of the wish for an administrator's token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FirstAdmin {
    /// Nobody wished for one.
    #[default]
    NotWanted,
    /// It was made.
    Made,
    /// There is one already.
    Exists,
}

/// Why there is no administrator's token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FirstAdminError {
    /// Where it comes from.
    #[error("{0}")]
    NoToken(String),
    /// Two identities cannot have the same token.
    #[error("the token given for `{FIRST_ADMIN}` is that of `{0}` already: give another one")]
    Taken(String),
    /// The log cannot take it.
    #[error("the token of `{FIRST_ADMIN}` cannot be kept: {0}")]
    Refused(Refusal),
}

/// Makes the token if there is no administrator.
pub(crate) fn make(
    ask: Option<Box<AskForToken>>,
    shared: &Shared,
    durable: Option<&Durable>,
    time: &Arc<dyn TimeSource>,
    log: &dyn Log,
) -> Result<FirstAdmin, FirstAdminError> {
    let Some(ask) = ask else {
        return Ok(FirstAdmin::NotWanted);
    };
    let (store, identities) = (&shared.store, &shared.identities);
    let now_ms = store.clock_ms(time.wall_ms());
    if identities.has_admin(now_ms) {
        return Ok(FirstAdmin::Exists);
    }
    if store.secret().is_none() {
        let why = "there is no room on the disk to note the secret of the data folder";
        return Err(FirstAdminError::NoToken(why.into()));
    }
    let token = ask().map_err(FirstAdminError::NoToken)?;
    if let Some(name) = identities
        .name_of(&token)
        .filter(|name| name != FIRST_ADMIN)
    {
        return Err(FirstAdminError::Taken(name));
    }
    let batch = identities.first_admin(store, &token, now_ms);
    let mut batch = batch.map_err(|error| FirstAdminError::NoToken(error.to_string()))?;
    let outcomes = match durable {
        Some(durable) => commit(&mut batch, durable),
        None => {
            let mut outcomes = Outcomes::new();
            let mut clock = Unticked(Arc::clone(time));
            drop(store.committer().run(&mut batch, &mut clock, &mut outcomes));
            outcomes
        }
    };
    match outcomes.iter().next().map(|outcome| outcome.decision) {
        Some(Decision::Applied) => {
            load_identities(identities, store, now_ms, log);
            log.audit(&AuditRecord {
                event: AuditEvent::Token,
                method: "serve",
                subject: FIRST_ADMIN,
                caller: AuditCaller::Operator,
                peer: None,
                code: Code::Ok,
                detail: "admin",
                suppressed: 0,
            });
            Ok(FirstAdmin::Made)
        }
        Some(Decision::Refused(why)) => Err(FirstAdminError::Refused(why)),
        _ => Err(FirstAdminError::Refused(Refusal::OutcomeUnknown)),
    }
}

/// Has a commit carried out, and waits until it is on the device.
fn commit(batch: &mut WriteBatch, durable: &Durable) -> Outcomes {
    let (waker, woken) = mpsc::channel();
    let mailbox = durable.register(Box::new(move || {
        let _ = waker.send(());
    }));
    mailbox.submit(batch);
    let mut outcomes = Outcomes::new();
    while !mailbox.take(&mut outcomes) {
        // The committer's thread has ended: there are no outcomes.
        if woken.recv().is_err() {
            break;
        }
    }
    outcomes
}
