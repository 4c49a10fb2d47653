//! `pelton lab tap`

use std::path::Path;
use std::time::{Duration, Instant};

use lab::machine::OnMachine;
use lab::tap::{Bottleneck, Conditions, Tap, TapError, TapPlan, TapReport, TapTarget, TapTotals};
use net::Address;

use super::client_command::ClientCommand;
use super::listen_tls::listen_tls;
use super::print_report;
use crate::arguments::TapArguments;
use crate::command::load_machine::load_machine;
use crate::command::page_file::PageFile;
use crate::command::tls::client_tls;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::note;

/// After the client's end: how long its last connections may take to close.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Relays until the client, the time or the user ends it, and prints what was seen.
pub fn tap(arguments: &TapArguments) -> Result<Exit, Failure> {
    let plan = TapPlan {
        listen: arguments.listen.clone(),
        listen_tls: listen_tls(
            arguments.listen_tls_cert.as_ref(),
            arguments.listen_tls_key.as_ref(),
        )?,
        target: TapTarget {
            address: arguments.target.clone(),
            tls: client_tls(&arguments.tls)?,
        },
        conditions: Conditions {
            delay_ns: arguments.delay.ms.saturating_mul(1_000_000),
            bandwidth: arguments.bandwidth.map(|size| size.0),
            packets_per_second: arguments.packets_per_second,
            stream_limit: arguments.stream_limit,
        },
    };
    let interrupt = Interrupt::listen();
    let machine = load_machine(&arguments.target);
    let tap = Tap::bind(plan).map_err(not_begun)?;
    note(format_args!(
        "pelton lab tap: listening on {}, forwarding to {}",
        tap.address(),
        arguments.target
    ));
    let page = PageFile::check("--timeline", arguments.timeline.as_deref())?;
    let mut client = match arguments.command.as_slice() {
        [] => None,
        words => Some(ClientCommand::start(words, tap.address())?),
    };
    let mut end = TapEnd::new(
        arguments
            .duration
            .map(|span| Duration::from_millis(span.ms)),
    );
    let summary = tap
        .run(&mut |totals| end.has_come(client.as_mut(), totals, &interrupt))
        .map_err(|error| Failure::Failed(format!("the relay had to end: {error}")))?;
    let (text, has_failed) = client.map_or((None, false), ClientCommand::end);
    if let Some(text) = text {
        note(format_args!("pelton lab tap: {text}"));
    }
    let report = TapReport::new(tap.address().clone(), arguments.target.clone(), summary)
        .on_machine(machine);
    page.write_and_print(
        || drawn(&report, arguments.timeline.as_deref()),
        || print_report(arguments.output, &report.text(), || report.fields()),
    )?;
    let is_seen = report.verdict().bottleneck != Bottleneck::NothingSeen;
    Ok(match is_seen && !has_failed {
        _ if interrupt.is_set() => Exit::of_signal(),
        true => Exit::Done,
        false => Exit::Miss,
    })
}

/// When a tap is over.
struct TapEnd {
    begin: Instant,
    duration: Option<Duration>,
    client_ended: Option<Instant>,
}

impl TapEnd {
    fn new(duration: Option<Duration>) -> TapEnd {
        TapEnd {
            begin: Instant::now(),
            duration,
            client_ended: None,
        }
    }

    fn has_come(
        &mut self,
        client: Option<&mut ClientCommand>,
        totals: &TapTotals,
        interrupt: &Interrupt,
    ) -> bool {
        if client.is_some_and(ClientCommand::has_ended) {
            let ended = *self.client_ended.get_or_insert_with(Instant::now);
            let is_quiet = totals.begun == totals.ended;
            return is_quiet || ended.elapsed() >= LAST_WORDS || interrupt.is_set();
        }
        let is_late = |duration| self.begin.elapsed() >= duration;
        interrupt.is_set() || self.duration.is_some_and(is_late)
    }
}

/// Says why there is no tap, and what helps.
pub(super) fn not_begun(error: TapError) -> Failure {
    let hint = match &error {
        TapError::Target { .. } => {
            "; is the server running? --target says where it listens".to_owned()
        }
        TapError::Listen {
            address: Address::Tcp { .. },
            ..
        } => "; --listen 127.0.0.1:0 takes a free port".to_owned(),
        _ => String::new(),
    };
    Failure::Failed(format!("{error}{hint}"))
}

/// A page, or the picture alone where the name ends so.
fn drawn(report: &TapReport, path: Option<&Path>) -> String {
    let ending = path.and_then(Path::extension);
    match ending.is_some_and(|ending| ending == "svg") {
        true => report.timeline_svg(),
        false => report.timeline_html(),
    }
}
