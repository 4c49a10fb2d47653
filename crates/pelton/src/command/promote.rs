//! `pelton promote`

use std::thread;
use std::time::{Duration, Instant};

use api::admin::{
    ConfirmEpochRequest, ConfirmEpochResponse, PromoteRequest, PromoteResponse, StatisticsRequest,
};
use api::rpc::admin::{ConfirmEpoch, Promote, Statistics};
use client::typed::Reply;

use super::Caller;
use crate::arguments::{ConnectionArguments, PromoteArguments};
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};

/// How often it is asked whether a replica has become a leader.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// How often the others are asked for a higher epoch, since one of them has confirmed that.
const EPOCH_TRIES: usize = 3;

/// Has a replica take the place of its leader.
pub fn promote(arguments: &PromoteArguments) -> Result<Exit, Failure> {
    let mut caller = Caller::connect(&arguments.connection)?;
    let address = caller.address.clone();
    let is_alone = arguments.confirm.is_empty();
    let first = ask(
        &mut caller,
        arguments,
        (0, &[]),
        arguments.force && is_alone,
    )?;
    if first.message().promoted {
        return say(arguments, &address, &first.message());
    }
    if is_alone || !(first.message().needs_confirmations || arguments.force) {
        return Err(not_promoted(&first.message()));
    }
    let mut proposal = first;
    for _ in 0..EPOCH_TRIES {
        let confirmed = confirm_all(arguments, &proposal.message())?;
        let confirmed: Vec<_> = confirmed.iter().map(Reply::message).collect();
        let highest = confirmed.iter().map(|one| one.epoch).max().unwrap_or(0);
        let told = proposal.message();
        let is_of_other = |one: &ConfirmEpochResponse<'_>| one.candidate_id != told.replica_id;
        if !confirmed.iter().any(is_of_other) {
            let epoch = told.epoch;
            let answer = ask(&mut caller, arguments, (epoch, &confirmed), arguments.force)?;
            return match answer.message().promoted {
                true => say(arguments, &address, &answer.message()),
                false => Err(not_promoted(&answer.message())),
            };
        }
        // Another candidate had it before.
        let least = highest.saturating_add(1);
        proposal = ask(&mut caller, arguments, (least, &[]), false)?;
    }
    Err(Failure::Failed(
        "not promoted: the other replicas have confirmed higher epochs again and again, as another \
         one is being promoted: see which it is, and try again"
            .into(),
    ))
}

fn ask(
    caller: &mut Caller,
    arguments: &PromoteArguments,
    (least_epoch, confirmations): (u64, &[ConfirmEpochResponse<'_>]),
    force: bool,
) -> Result<Reply<Promote>, Failure> {
    caller.call::<Promote>(&PromoteRequest {
        force,
        address: &arguments.connection.address.to_string(),
        least_epoch,
        confirmations: confirmations.into(),
    })
}

/// Has the other replicas confirm the epoch.
fn confirm_all(
    arguments: &PromoteArguments,
    proposal: &PromoteResponse<'_>,
) -> Result<Vec<Reply<ConfirmEpoch>>, Failure> {
    let address = arguments.connection.address.to_string();
    let request = ConfirmEpochRequest {
        history_id: proposal.history_id,
        epoch: proposal.epoch,
        candidate_id: proposal.replica_id,
        address: &address,
    };
    let mut confirmed = Vec::new();
    for other in &arguments.confirm {
        let connection = ConnectionArguments {
            address: other.clone(),
            ..arguments.connection.clone()
        };
        confirmed.push(Caller::connect(&connection)?.call::<ConfirmEpoch>(&request)?);
    }
    Ok(confirmed)
}

fn not_promoted(response: &PromoteResponse<'_>) -> Failure {
    Failure::Failed(format!(
        "not promoted, and nothing was done: {}. --force promotes it all the same: {}",
        response.problem,
        what_may_be_lost(response)
    ))
}

fn what_may_be_lost(response: &PromoteResponse<'_>) -> String {
    let PromoteResponse {
        sequence,
        leader_sequence,
        ..
    } = *response;
    let missing = match leader_sequence.saturating_sub(sequence) {
        0 => "what the leader has written since then is lost".to_owned(),
        missing => format!("{missing} sequences and what it has written since then are lost"),
    };
    format!(
        "this replica has everything up to sequence {sequence}, its leader had everything up to \
         {leader_sequence} when it was heard last, {missing}, and until the old leader hears of \
         the new one it may still answer"
    )
}

fn say(
    arguments: &PromoteArguments,
    address: &str,
    response: &PromoteResponse<'_>,
) -> Result<Exit, Failure> {
    let serves = wait_until_leader(arguments, response.epoch);
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        output.object(object([
            ("promoted", true.into()),
            ("epoch", response.epoch.into()),
            ("sequence", response.sequence.into()),
            ("leader_sequence", response.leader_sequence.into()),
            ("forced", (!response.problem.is_empty()).into()),
            ("serves", serves.into()),
        ]))?;
    } else {
        let state = match serves {
            true => "it takes writes",
            false => "it is starting anew, and then takes writes",
        };
        output.line(&format!(
            "{address} was promoted: {state}, in epoch {}, with everything up to sequence {}",
            response.epoch, response.sequence
        ))?;
        if !response.problem.is_empty() {
            output.line(&format!(
                "by force, as {}: {}",
                response.problem,
                what_may_be_lost(response)
            ))?;
        }
    }
    output.end()?;
    Ok(Exit::Done)
}

/// Waits until the server has started anew, and is a leader.
fn wait_until_leader(arguments: &PromoteArguments, epoch: u64) -> bool {
    let begin = Instant::now();
    let longest = Duration::from_millis(arguments.connection.timeout.ms);
    while begin.elapsed() < longest {
        thread::sleep(ASK_EVERY);
        let Ok(mut caller) = Caller::connect(&arguments.connection) else {
            continue;
        };
        let figures = caller.try_call::<Statistics>(&StatisticsRequest {});
        let is_leader = |figures: Reply<Statistics>| {
            let figures = figures.message();
            figures.replica.is_none() && figures.epoch >= epoch
        };
        if figures.is_ok_and(is_leader) {
            return true;
        }
    }
    false
}
