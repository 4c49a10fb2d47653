//! `pelton top`

mod sample;
mod terminal;
mod view;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use api::admin::StatisticsRequest;
use api::rpc::admin::Statistics;
use serde_json::Value;

use super::{Caller, echo};
use crate::arguments::{OutputFormat, TopArguments};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{Output, object};
use sample::TopSample;
use terminal::Terminal;
use view::TopView;

/// Lines and columns where there is no terminal, which wraps nothing.
const NO_TERMINAL: (usize, usize) = (60, usize::MAX);

/// Round trips of a sample, of which the fastest counts: the others say more about this machine's
/// scheduler.
const ROUND_TRIPS: usize = 5;

/// Shows what a server does, again and again.
pub fn top(arguments: &TopArguments) -> Result<Exit, Failure> {
    let mut caller = Caller::connect(&arguments.connection)?;
    let mut before = sample(&mut caller)?;
    let interrupt = Interrupt::listen();
    let is_json = arguments.connection.output == OutputFormat::Json;
    let mut terminal = match std::io::stdout().is_terminal() && !is_json {
        true => Some(Terminal::open()),
        false => None,
    };
    let every = Duration::from_millis(arguments.every.ms);
    let mut shown = 0;
    while arguments.count.is_none_or(|count| shown < count) {
        if !rest(every, &interrupt, terminal.as_mut()) {
            break;
        }
        let now = sample(&mut caller)?;
        let view = TopView::new(&caller.address, &before, &now);
        match &mut terminal {
            Some(terminal) => terminal.draw(&view),
            None => print(arguments, &view, shown > 0)?,
        }
        before = now;
        shown += 1;
    }
    drop(terminal);
    Ok(match interrupt.is_set() {
        true => Exit::of_signal(),
        false => Exit::Done,
    })
}

/// Asks the server for its figures.
fn sample(caller: &mut Caller) -> Result<TopSample, Failure> {
    let round_trip = (0..ROUND_TRIPS).try_fold(Duration::MAX, |least, _| {
        echo::round_trip(caller, b"").map(|time| least.min(time))
    })?;
    let reply = caller.call::<Statistics>(&StatisticsRequest {})?;
    Ok(TopSample::new(&reply.message(), Instant::now(), round_trip))
}

/// How often it is looked whether the user wants no more.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits for the next picture. Returns false if the user wants no more.
fn rest(every: Duration, interrupt: &Interrupt, mut terminal: Option<&mut Terminal>) -> bool {
    let until = Instant::now() + every;
    loop {
        let left = until
            .saturating_duration_since(Instant::now())
            .min(LOOK_EVERY);
        let is_quit = match terminal.as_mut() {
            Some(terminal) => terminal.is_quit_within(left),
            None => {
                std::thread::sleep(left);
                false
            }
        };
        if is_quit || interrupt.is_set() {
            return false;
        }
        if Instant::now() >= until {
            return true;
        }
    }
}

/// Prints a picture where there is no terminal.
fn print(arguments: &TopArguments, view: &TopView<'_>, is_further: bool) -> Result<(), Failure> {
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        output.object(object([
            ("address", view.address().into()),
            ("seconds", view.seconds().into()),
            ("round_trip_us", view.round_trip_us().into()),
            ("figures", Value::Object(view.fields())),
        ]))?;
    } else {
        if is_further {
            output.line("")?;
        }
        for line in view.lines(NO_TERMINAL.0, NO_TERMINAL.1) {
            output.line(&line)?;
        }
    }
    output.end()
}
