//! One run of a load, and why one could not begin.

use lab::{LoadOutcome, LoadPlan, LoadRunError};

use super::live_line::{LiveLine, LiveWork};
use crate::command::CONNECT_HINT;
use crate::command::tls::TLS_HINT;
use crate::exit::{CallFailure, Failure};
use crate::interrupt::Interrupt;

/// Runs a plan, with a line on standard error that says how far it is.
pub(super) fn run<W: lab::Workload>(
    plan: &LoadPlan,
    make: impl Fn(usize) -> W + Sync,
    interrupt: &Interrupt,
) -> Result<LoadOutcome, Failure> {
    run_shown(plan, make, interrupt, LiveLine::new(LiveWork::Loading))
}

/// Runs a plan, with this line.
pub(super) fn run_shown<W: lab::Workload>(
    plan: &LoadPlan,
    make: impl Fn(usize) -> W + Sync,
    interrupt: &Interrupt,
    mut line: LiveLine,
) -> Result<LoadOutcome, Failure> {
    let outcome = lab::run(plan, make, &mut |progress| {
        line.show(progress);
        !interrupt.is_set()
    });
    outcome.map_err(|error| match error {
        LoadRunError::Connect(text) => not_connected(plan, text),
        LoadRunError::BadRequest(_) => Failure::Usage(error.to_string()),
        LoadRunError::System(_) => Failure::Failed(error.to_string()),
        LoadRunError::Stopped => Failure::Interrupted(format!(
            "interrupted while it connected to {}: no call was made",
            plan.address
        )),
    })
}

/// Why not all connections stand, and what helps.
fn not_connected(plan: &LoadPlan, what: String) -> Failure {
    let is_full = [
        "connections of this thread were open",
        "as many connections as it takes",
    ];
    let is_full = is_full.iter().any(|part| what.contains(part));
    let hint = match other_protocol_hint(&what) {
        Some(hint) => hint.into(),
        None if is_full => format!(
            "{} were asked for: take fewer --connections, or a larger --max-connections of the \
             server",
            plan.connections
        ),
        // A server that is full and has no time says nothing, or not in time.
        None if plan.connections > 1 && may_be_full(&what) => format!(
            "{CONNECT_HINT}; {} connections were asked for: a server that has fewer places \
             (--max-connections) does this too",
            plan.connections
        ),
        None => CONNECT_HINT.into(),
    };
    let failure = CallFailure {
        what,
        address: plan.address.to_string(),
        status: None,
        hint,
        names_nothing: false,
        is_miss: false,
    };
    failure.into()
}

/// The flag by which a server can be called that speaks another protocol than was taken.
fn other_protocol_hint(what: &str) -> Option<&'static str> {
    let hints = [
        (client::SERVER_SPEAKS_TLS, TLS_HINT),
        ("the server speaks HTTP/2", "--protocol grpc calls it"),
        (
            "the server speaks baidu_std",
            "--protocol baidu_std calls it",
        ),
        ("the server speaks SRPC", "--protocol srpc calls it"),
    ];
    let hint = hints.iter().find(|(reason, _)| what.contains(reason));
    hint.map(|(_, hint)| *hint)
}

/// Whether a server that has no place for a connection may look like this.
fn may_be_full(what: &str) -> bool {
    let ends = [
        "the server closed it",
        "the server reset it",
        "no answer in time",
    ];
    ends.iter().any(|end| what.contains(end))
}
