//! `pelton top`

mod sample;
mod sampler;
mod terminal;
mod view;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Caller;
use crate::arguments::{OutputFormat, TopArguments};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{Output, object};
use sampler::Sampler;
use terminal::Terminal;
use view::TopView;

/// Lines and columns where there is no terminal, which wraps nothing.
const NO_TERMINAL: (usize, usize) = (60, usize::MAX);

/// Shows what a server does, again and again.
pub fn top(arguments: &TopArguments) -> Result<Exit, Failure> {
    let caller = Caller::connect(&arguments.connection)?;
    let address = caller.address.clone();
    let sampler = Sampler::start(caller)?;
    let interrupt = Interrupt::listen();
    let Some(mut before) = sampler.take(LOOK_EVERY, &mut || interrupt.is_set())? else {
        return Ok(Exit::of_signal());
    };
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
        let mut is_unwanted = || {
            let is_quit = |terminal: &mut Terminal| terminal.is_quit_within(Duration::ZERO);
            interrupt.is_set() || terminal.as_mut().is_some_and(is_quit)
        };
        let Some(now) = sampler.take(LOOK_EVERY, &mut is_unwanted)? else {
            break;
        };
        let view = TopView::new(&address, &before, &now);
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
