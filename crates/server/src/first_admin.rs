//! The first administrator's token, made before a server serves.

use std::sync::{Arc, mpsc};

use service::identities::{FIRST_ADMIN, Token, UsableBindings};
use service::limits::IDENTITIES_MAX;
use service::{Code, Shared};
use store::durable::Durable;
use store::{DatabaseConfig, Decision, Outcomes, Refusal, Store, WriteBatch};

use crate::audit_record::{AuditCaller, AuditEvent, AuditRecord};
use crate::clock::TimeSource;
use crate::storage::Unticked;
use crate::{Log, Server, StartError, load_identities};

/// Where the token of the first administrator comes from: asked only if there is none. What it has
/// written somewhere must be there before the server knows the token.
pub type AskForToken = dyn FnOnce() -> Result<Token, String> + Send;

/// Whether the first administrator's token was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FirstAdmin {
    /// Nobody asked for one.
    #[default]
    NotWanted,
    /// It was made.
    Made,
    /// There is one already.
    Exists,
    /// The token was that of the first administrator, and was revoked: it was not made.
    Revoked,
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
    /// Somebody else has the name.
    #[error(
        "there is a token `{FIRST_ADMIN}` without the right admin, which stays as it is, and no \
         token with that right: start once with `--listen unix:PATH` and without this, and there \
         either revoke it (`pelton token revoke {FIRST_ADMIN} --address unix:PATH`), or make an \
         administrator of another name (`pelton token create NAME --rights admin --address \
         unix:PATH`)"
    )]
    NameTaken,
    /// There are as many identities as there can be.
    #[error(
        "there is no room for the token `{FIRST_ADMIN}` beside {IDENTITIES_MAX} others, none of \
         which has the right admin: start once with `--listen unix:PATH` and without this, and \
         revoke one there (`pelton token revoke NAME --address unix:PATH`)"
    )]
    NoRoom,
    /// The log cannot take it.
    #[error("the token of `{FIRST_ADMIN}` cannot be kept: {0}")]
    Refused(Refusal),
}

/// Makes the token if there is no administrator.
pub(crate) fn make(
    ask: Option<Box<AskForToken>>,
    shared: &Shared,
    (durable, bindings): (Option<&Durable>, UsableBindings),
    time: &Arc<dyn TimeSource>,
    log: &dyn Log,
) -> Result<FirstAdmin, FirstAdminError> {
    let Some(ask) = ask else {
        return Ok(FirstAdmin::NotWanted);
    };
    let (store, identities) = (&shared.store, &shared.identities);
    let now_ms = store.clock_ms(time.wall_ms());
    if identities.has_admin(bindings, now_ms) {
        return Ok(FirstAdmin::Exists);
    }
    if store.secret().is_none() {
        let why = "there is no room on the disk to note the secret of the data folder";
        return Err(FirstAdminError::NoToken(why.into()));
    }
    if identities.is_first_admin_taken(now_ms) {
        return Err(FirstAdminError::NameTaken);
    }
    if !identities.has_room_for_first_admin() {
        return Err(FirstAdminError::NoRoom);
    }
    let token = ask().map_err(FirstAdminError::NoToken)?;
    if let Some(name) = identities
        .name_of(&token)
        .filter(|name| name != FIRST_ADMIN)
    {
        return Err(FirstAdminError::Taken(name));
    }
    if identities.was_revoked(store, &token) {
        return Ok(FirstAdmin::Revoked);
    }
    let batch = identities.first_admin(store, &token, now_ms);
    let mut batch = batch.map_err(|error| FirstAdminError::NoToken(error.to_string()))?;
    commit(&mut batch, store, durable, time).map_err(FirstAdminError::Refused)?;
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

/// Looks whether tokens are hashed under the secret of the data folder. If not, none of them is
/// good: with `accepts_loss` they are noted as such, else the server does not start.
pub(crate) fn check_key(
    accepts_loss: bool,
    shared: &Shared,
    durable: Option<&Durable>,
    time: &Arc<dyn TimeSource>,
    log: &dyn Log,
) -> Result<(), StartError> {
    let (store, identities) = (&shared.store, &shared.identities);
    let count = match identities.of_other_key(store) {
        // Without a secret there was no room for one, and the next start has it.
        count if count == 0 || store.secret().is_none() => return Ok(()),
        count if !accepts_loss => return Err(StartError::OtherSecret(count)),
        count => count,
    };
    let mut batch = identities.invalidate(store);
    commit(&mut batch, store, durable, time).map_err(StartError::NotInvalidated)?;
    load_identities(identities, store, store.clock_ms(time.wall_ms()), log);
    log.storage(&format!(
        "the data folder has another secret than that under which tokens were hashed: {count} \
         tokens have become invalid, until each is rotated"
    ));
    Ok(())
}

impl Server {
    /// Has a database made if there is none of this name: before the server serves.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn ensure_database(&self, name: &str, config: &DatabaseConfig) -> Result<(), Refusal> {
        let (parts, store) = (&self.parts, &self.parts.shared.store);
        if store.database(name).is_some() {
            return Ok(());
        }
        let mut batch = store.write_batch();
        batch.create_database(0, name, config);
        commit(&mut batch, store, parts.durable.as_deref(), &parts.time)
    }
}

/// Has commits carried out, and waits until they are on the device.
pub(crate) fn commit(
    batch: &mut WriteBatch,
    store: &Store,
    durable: Option<&Durable>,
    time: &Arc<dyn TimeSource>,
) -> Result<(), Refusal> {
    let mut left = batch.len();
    let mut outcomes = Outcomes::new();
    let Some(durable) = durable else {
        let mut clock = Unticked(Arc::clone(time));
        drop(store.committer().run(batch, &mut clock, &mut outcomes));
        return check_applied(&outcomes);
    };
    let (waker, woken) = mpsc::channel();
    let mailbox = durable.register(Box::new(move || {
        let _ = waker.send(());
    }));
    mailbox.submit(batch);
    while left > 0 {
        if mailbox.take(&mut outcomes) {
            check_applied(&outcomes)?;
            left = left.saturating_sub(outcomes.len());
        } else if woken.recv().is_err() {
            // The committer's thread has ended: there are no outcomes.
            return Err(Refusal::OutcomeUnknown);
        }
    }
    Ok(())
}

fn check_applied(outcomes: &Outcomes) -> Result<(), Refusal> {
    for outcome in outcomes.iter() {
        match outcome.decision {
            Decision::Applied => {}
            Decision::Refused(why) => return Err(why),
            Decision::Failed { .. } => return Err(Refusal::OutcomeUnknown),
        }
    }
    Ok(())
}
