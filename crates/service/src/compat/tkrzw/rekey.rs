//! Rekey: gives a record another key.
//!
//! The store has no operation that moves a value from key to key, so it is read, and both records
//! are changed in one commit if the old one still is what was read. Whoever is overtaken tries
//! again. The record keeps its expiry, which only calls of `pelton.v1` can have given to it.

use api::tkrzw::RekeyRequest;
use store::{
    CommitOutcome, Condition, DatabaseId, Decision, Expiry, KeyState, Mode, Operation,
    TransactList, Value,
};

use super::decode::decode;
use super::pop::too_many_tries;
use super::result::RequestResult;
use super::single::delete;
use super::target::target;
use super::{TkrzwActions, TkrzwStep};
use crate::actions::{DatabaseAccess, Responses};
use crate::call::Shared;
use crate::keyvalue;
use crate::limits::TKRZW_TRIES;
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

const METHOD: Method = Method::TkrzwRekey;

/// The place of the comparison of the new key, behind that of the old one.
const NEW_KEY: usize = 1;

/// A Rekey.
pub(super) struct Rekey {
    /// Decoded again for each try.
    request: Box<[u8]>,
    database: DatabaseId,
    step: RekeyStep,
    tries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RekeyStep {
    /// The old record is read.
    Reading,
    /// Both are written.
    Writing,
}

impl Rekey {
    /// Takes up a request.
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        let request: RekeyRequest<'_> = decode(METHOD, bytes)?;
        let target = target(request.dbm_index, Right::Write, shared, actions)?;
        if shared.settings.tkrzw.is_read_only {
            actions.respond(|out| RequestResult::READ_ONLY.encode(out));
            return Ok(None);
        }
        keyvalue::check_key(request.new_key)?;
        read(target.id, request.old_key, actions)?;
        actions.hold_request(bytes.len());
        Ok(Some(TkrzwStep::Rekey(Box::new(Rekey {
            request: bytes.into(),
            database: target.id,
            step: RekeyStep::Reading,
            tries: 0,
        }))))
    }

    /// Goes on with what was read or written.
    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        actions: &mut (impl DatabaseAccess + Responses),
    ) {
        if let Decision::Refused(refusal) = outcome.decision {
            return actions.finish(keyvalue::refusal(refusal));
        }
        let advanced = match self.step {
            RekeyStep::Reading => self.write(outcome, actions),
            RekeyStep::Writing => self.settle(outcome, actions),
        };
        match advanced {
            Ok(None) => {}
            Ok(Some(result)) => actions.respond(|out| result.encode(out)),
            Err(status) => actions.finish(status),
        }
    }

    /// The old record was read.
    fn write(
        &mut self,
        outcome: &CommitOutcome<'_>,
        actions: &mut impl DatabaseAccess,
    ) -> Result<Option<RequestResult>, Status> {
        let request: RekeyRequest<'_> = decode(METHOD, &self.request)?;
        let read = outcome.first().filter(|one| one.existed());
        let Some((old, value)) = read.and_then(|one| Some((one.before, one.value?))) else {
            return Ok(Some(RequestResult::NOT_FOUND));
        };
        if request.old_key == request.new_key {
            return Ok(Some(match request.overwrite {
                true => RequestResult::SUCCESS,
                false => RequestResult::DUPLICATION,
            }));
        }
        self.step = RekeyStep::Writing;
        submit(&request, self.database, (old, value), actions)?;
        Ok(None)
    }

    /// Both were written, or one was not as it had to be.
    fn settle(
        &mut self,
        outcome: &CommitOutcome<'_>,
        actions: &mut impl DatabaseAccess,
    ) -> Result<Option<RequestResult>, Status> {
        match outcome.unmet_compare {
            None => return Ok(Some(RequestResult::SUCCESS)),
            Some(NEW_KEY) => return Ok(Some(RequestResult::DUPLICATION)),
            Some(_) => {}
        }
        self.tries += 1;
        if self.tries >= TKRZW_TRIES {
            return Err(too_many_tries());
        }
        let request: RekeyRequest<'_> = decode(METHOD, &self.request)?;
        self.step = RekeyStep::Reading;
        read(self.database, request.old_key, actions)?;
        Ok(None)
    }
}

fn read(database: DatabaseId, key: &[u8], actions: &mut impl DatabaseAccess) -> Result<(), Status> {
    let mut commit = actions.write(database, Mode::Independent);
    let pushed = commit.push(&Operation::Get { key });
    pushed.map_err(|error| keyvalue::push_error(METHOD, error))?;
    commit.submit();
    Ok(())
}

fn submit(
    request: &RekeyRequest<'_>,
    database: DatabaseId,
    (read, value): (KeyState, Value<'_>),
    actions: &mut impl DatabaseAccess,
) -> Result<(), Status> {
    let (old, new) = (request.old_key, request.new_key);
    let mut commit = actions.write(database, Mode::Transact);
    let mut push = |list: TransactList, operation: &Operation<'_>| {
        commit.list(list);
        let pushed = commit.push(operation);
        pushed.map_err(|error| keyvalue::push_error(METHOD, error))
    };
    let (key, condition) = (old, Condition::VersionIs(read.version));
    push(
        TransactList::Compares,
        &Operation::Compare { key, condition },
    )?;
    if !request.overwrite {
        let (key, condition) = (new, Condition::Absent);
        push(
            TransactList::Compares,
            &Operation::Compare { key, condition },
        )?;
    }
    let put = Operation::Put {
        key: new,
        value: value.bytes(),
        condition: Condition::None,
        expiry: Expiry::AtMs(read.expires_ms),
        want_previous: false,
    };
    push(TransactList::Then, &put)?;
    if !request.copying {
        push(TransactList::Then, &delete(old, Condition::None))?;
    }
    commit.submit();
    Ok(())
}
