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
    promote_confirmed(&mut caller, arguments, first)
}

/// The same with what the other replicas confirm.
fn promote_confirmed(
    caller: &mut Caller,
    arguments: &PromoteArguments,
    first: Reply<Promote>,
) -> Result<Exit, Failure> {
    let address = caller.address.clone();
    let mut proposal = first;
    for _ in 0..EPOCH_TRIES {
        let asked = confirm_all(arguments, &proposal.message());
        let confirmed: Vec<_> = asked.confirmed.iter().map(Reply::message).collect();
        let highest = confirmed.iter().map(|one| one.epoch).max().unwrap_or(0);
        let told = proposal.message();
        let is_of_other = |one: &ConfirmEpochResponse<'_>| one.candidate_id != told.replica_id;
        if !confirmed.iter().any(is_of_other) {
            let epoch = told.epoch;
            let answer = ask(caller, arguments, (epoch, &confirmed), arguments.force);
            let answer = answer.map_err(|failure| asked.told(failure))?;
            return match answer.message().promoted {
                true => say(arguments, &address, &answer.message()),
                false => Err(asked.told(not_promoted(&answer.message()))),
            };
        }
        // Another candidate had it before.
        let least = highest.saturating_add(1);
        proposal = ask(caller, arguments, (least, &[]), false)?;
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

/// What has come of asking the other replicas.
struct AskedReplicas {
    confirmed: Vec<Reply<ConfirmEpoch>>,
    /// Those that have confirmed.
    addresses: Vec<String>,
    /// Why others have not.
    failures: Vec<String>,
}

impl AskedReplicas {
    /// Adds to a failure what was done all the same, and who has not confirmed.
    fn told(&self, failure: Failure) -> Failure {
        let mut failure = failure;
        for why in &self.failures {
            failure = failure.with(&format!("not confirmed: {why}"));
        }
        if self.addresses.is_empty() {
            return failure;
        }
        failure.with(&format!(
            "{} have confirmed the epoch, and take nothing of the old leader any more, which takes \
             no writes once it hears of that: promote one of the replicas",
            self.addresses.join(", ")
        ))
    }
}

/// Has the other replicas confirm the epoch. One that cannot be asked may not be needed.
fn confirm_all(arguments: &PromoteArguments, proposal: &PromoteResponse<'_>) -> AskedReplicas {
    let address = arguments.connection.address.to_string();
    let request = ConfirmEpochRequest {
        history_id: proposal.history_id,
        epoch: proposal.epoch,
        candidate_id: proposal.replica_id,
        address: &address,
    };
    let mut asked = AskedReplicas {
        confirmed: Vec::new(),
        addresses: Vec::new(),
        failures: Vec::new(),
    };
    for other in &arguments.confirm {
        let connection = ConnectionArguments {
            address: other.clone(),
            ..arguments.connection.clone()
        };
        let called = Caller::connect(&connection);
        match called.and_then(|mut caller| caller.call::<ConfirmEpoch>(&request)) {
            Ok(reply) => {
                asked.confirmed.push(reply);
                asked.addresses.push(other.to_string());
            }
            Err(failure) => asked.failures.push(failure.to_string()),
        }
    }
    asked
}

fn not_promoted(response: &PromoteResponse<'_>) -> Failure {
    Failure::Failed(format!(
        "not promoted: {}. --force promotes it all the same: {}",
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
    let waits_for = wait_until_leader(arguments, response.epoch);
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        output.object(object([
            ("promoted", true.into()),
            ("epoch", response.epoch.into()),
            ("sequence", response.sequence.into()),
            ("leader_sequence", response.leader_sequence.into()),
            ("forced", (!response.problem.is_empty()).into()),
            ("serves", waits_for.is_some().into()),
        ]))?;
    } else {
        let state = match waits_for {
            Some(0) => "it takes writes".to_owned(),
            Some(replicas) => {
                format!("it takes writes as soon as --replicas-acked {replicas} replicas follow it")
            }
            None => "it is starting anew, and then takes writes".to_owned(),
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

/// Waits until the server has started anew, and is a leader; returns for how many replicas it waits
/// before it takes writes; `None`: it does not serve yet.
fn wait_until_leader(arguments: &PromoteArguments, epoch: u64) -> Option<u32> {
    let begin = Instant::now();
    let longest = Duration::from_millis(arguments.connection.timeout.ms);
    while begin.elapsed() < longest {
        thread::sleep(ASK_EVERY);
        let Ok(mut caller) = Caller::connect(&arguments.connection) else {
            continue;
        };
        let Ok(figures) = caller.try_call::<Statistics>(&StatisticsRequest {}) else {
            continue;
        };
        let figures = figures.message();
        if figures.replica.is_none() && figures.epoch >= epoch {
            let late = figures
                .acknowledged
                .filter(|acknowledged| acknowledged.late);
            return Some(late.map_or(0, |acknowledged| acknowledged.required));
        }
    }
    None
}
