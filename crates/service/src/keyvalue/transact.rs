//! Transact: comparisons choose one of two lists of operations, all in one commit.

use api::keyvalue::{OperationKind, TransactRequest, TransactResponse};
use protobuf::writer;
use store::{Commit, CommitOutcome, Decision, Mode, TransactList};

use super::batch::{
    Filled, answer_bound, check_operations, encode_outcome, push_all, refused, submit_with_room,
    values_bytes,
};
use super::messages::{Invalid, comparison, decode_transact, operations};
use super::{PushedOperation, refuse};
use crate::actions::{DatabaseAccess, Permissions, ResponseMemory, Responses};
use crate::call::Shared;
use crate::limits::{FAILURE_BYTES, TRANSACT_FRAME_BYTES};
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

const METHOD: Method = Method::Transact;

/// A transaction that is with the committer.
pub(super) struct Transact {
    when_met: Box<[PushedOperation]>,
    when_unmet: Box<[PushedOperation]>,
    max_answer_bytes: u64,
}

impl Transact {
    /// Takes up a request; `None`: it comes once more, when there is memory for the values in its
    /// answer.
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions + ResponseMemory),
    ) -> Result<Option<Transact>, Status> {
        let request = decode_transact(bytes).map_err(|invalid| refuse::invalid(METHOD, invalid))?;
        let database = refuse::find_database(Right::Read, request.database, shared, actions)?;
        let both = request
            .when_met
            .encoded()
            .chain(request.when_unmet.encoded());
        check_operations(request.database, both, shared, actions)?;
        let max_answer_bytes = answer_bound(METHOD, request.max_answer_bytes, shared)?;
        let limits = shared.store.limits(database).unwrap_or_default();
        let lists = [request.when_met.len(), request.when_unmet.len()];
        let (given, allowed) = (
            request.comparisons.len() + lists[0] + lists[1],
            limits.commit_operations,
        );
        if given > allowed {
            return Err(refuse::too_many_parts(METHOD, given, allowed));
        }
        let submitted = submit_with_room((database, Mode::Transact), actions, |commit| {
            let (when_met, when_unmet) = push_parts(&request, commit)?;
            let [met_bytes, unmet_bytes] = [&when_met, &when_unmet]
                .map(|list| values_bytes(list, database, max_answer_bytes, shared));
            Ok(Filled {
                values_bytes: met_bytes.max(unmet_bytes),
                results_bytes: results_bytes(max_answer_bytes, &when_met, &when_unmet),
                kept: (when_met, when_unmet),
            })
        })?;
        Ok(submitted.map(|(when_met, when_unmet)| Transact {
            when_met: when_met.into(),
            when_unmet: when_unmet.into(),
            max_answer_bytes,
        }))
    }

    /// Answers with what became of the commit.
    pub(super) fn committed(
        &self,
        outcome: &CommitOutcome<'_>,
        shared: &Shared,
        actions: &mut impl Responses,
    ) {
        if let Decision::Refused(refusal) = outcome.decision {
            return actions.finish(refused(METHOD, refusal, self.max_answer_bytes));
        }
        let pushed = match outcome.unmet_compare {
            None => &self.when_met,
            Some(_) => &self.when_unmet,
        };
        actions.respond(|out| {
            TransactResponse {
                met: outcome.unmet_compare.is_none(),
                // It fits: the comparisons of a commit are far fewer than 2^32.
                unmet_comparison: outcome.unmet_compare.unwrap_or(0) as u32,
                batch: None,
            }
            .encode(out);
            writer::message(out, TransactResponse::NUMBERS.batch, |out| {
                encode_outcome(out, pushed, outcome, shared)
            });
        });
    }
}

/// Pushes comparisons and both lists, which are returned.
fn push_parts(
    request: &TransactRequest<'_>,
    commit: &mut Commit<'_>,
) -> Result<(Vec<PushedOperation>, Vec<PushedOperation>), Status> {
    for (index, given) in request.comparisons.iter().enumerate() {
        let comparison = given
            .map_err(Invalid::from)
            .and_then(comparison)
            .map_err(|invalid| refuse::invalid_operation(METHOD, "comparisons", index, invalid))?;
        commit
            .push(&comparison)
            .map_err(|error| refuse::push_error(METHOD, error))?;
    }
    let (mut when_met, mut when_unmet) = (Vec::new(), Vec::new());
    commit.list(TransactList::Then);
    let list = (METHOD, "when_met");
    let operations_met = operations(&request.when_met);
    push_all(list, operations_met, commit, |one| when_met.push(one))?;
    commit.list(TransactList::Otherwise);
    let list = (METHOD, "when_unmet");
    let operations_unmet = operations(&request.when_unmet);
    push_all(list, operations_unmet, commit, |one| when_unmet.push(one))?;
    Ok((when_met, when_unmet))
}

/// Returns what results may come to, in bytes.
fn results_bytes(
    max_answer_bytes: u64,
    when_met: &[PushedOperation],
    when_unmet: &[PushedOperation],
) -> u64 {
    // At most one result is a failure in words: what fails ends the list.
    let may_fail_in_words =
        |list: &[PushedOperation]| list.iter().any(|one| one.kind == OperationKind::Append);
    let words = may_fail_in_words(when_met) || may_fail_in_words(when_unmet);
    let frame_bytes = TRANSACT_FRAME_BYTES + if words { FAILURE_BYTES } else { 0 };
    max_answer_bytes.saturating_sub(frame_bytes)
}
