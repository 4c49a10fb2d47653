//! `pelton lab sweep` and `pelton lab compare`

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use lab::sweep::{SweepAxis, SweepParameter, limits};

use super::load::LoadArguments;
use super::{ReportOutput, number};
use crate::size::{Size, Span};

/// `pelton lab sweep`
#[derive(Args, Debug)]
pub struct SweepArguments {
    #[command(flatten)]
    pub load: SweptLoad,

    /// What to sweep: in-flight, connections, mode, threads, rate, value-size, echo or batch, which
    /// are flags of a load, or delay (of each round trip) and stream-limit, which a relay between
    /// generator and server makes. Values are a list, or 1..128, which doubles from one to the
    /// other. Twice: all pairs of two parameters
    #[arg(
        long,
        value_name = "PARAMETER=VALUES",
        required = true,
        value_parser = parse_over
    )]
    pub over: Vec<SweepAxis>,

    /// Runs of each cell [default: as many as the budget allows, 3 if they are to be short]
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = number::whole::<usize>(1, limits::MAX_RUNS as i128)
    )]
    pub runs: Option<usize>,

    /// How long all of it may take: chooses --runs, --warm-up and --duration where they are not
    /// given
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1m",
        conflicts_with = "full",
        value_parser = number::timeout
    )]
    pub budget: Span,

    /// As long as it takes: 5 runs of each cell, each of 10 s after 1 s of warm-up, if nothing else
    /// is given
    #[arg(long)]
    pub full: bool,

    /// Begins the random order of the runs [default: another one each time]
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = number::whole::<u64>(0, u64::MAX.into())
    )]
    pub order_seed: Option<u64>,

    /// Keep each run in this file as soon as it is finished, a line of JSON for each
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Go on with the sweep of that file
    #[arg(long, requires = "save")]
    pub resume: bool,

    /// Draw the sweep into this file: one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `pelton lab compare`
#[derive(Args, Debug)]
pub struct CompareArguments {
    /// Results to compare with: a file of `pelton lab sweep --save`, or with one line of `pelton
    /// load --output json` for each run
    #[arg(value_name = "A")]
    pub one: PathBuf,

    /// Results that may be better or worse
    #[arg(value_name = "B")]
    pub other: PathBuf,

    /// Draw the comparison into this file: one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    #[command(flatten)]
    pub output: ReportOutput,
}

/// The flag of a load that a sweep has itself, for a page of all its runs.
const OWN_PAGE: &str = "html";

/// All flags of `pelton load`, without its subcommands.
#[derive(Debug)]
pub struct SweptLoad(pub LoadArguments);

impl FromArgMatches for SweptLoad {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SweptLoad, clap::Error> {
        LoadArguments::from_arg_matches(matches).map(SweptLoad)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Args for SweptLoad {
    fn augment_args(command: Command) -> Command {
        let load = LoadArguments::augment_args(Command::new("load"));
        let arguments = load
            .get_arguments()
            .filter(|argument| argument.get_id() != OWN_PAGE);
        let command = command.args(arguments.cloned());
        load.get_groups().cloned().fold(command, Command::group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        SweptLoad::augment_args(command)
    }
}

impl SweptLoad {
    /// Sets a parameter to a value, which is checked as that of its flag. Those of the relay
    /// change nothing here.
    ///
    /// # Errors
    /// If the value cannot be.
    pub fn set(&mut self, parameter: SweepParameter, value: &str) -> Result<(), String> {
        if parameter.is_of_relay() {
            return check_of_relay(parameter, value);
        }
        let parsed = parsed_alone(parameter, value)?;
        match parameter {
            SweepParameter::InFlight => self.0.in_flight = parsed.in_flight,
            SweepParameter::Connections => self.0.connections = parsed.connections,
            SweepParameter::Mode => self.0.mode = parsed.mode,
            SweepParameter::Threads => self.0.threads = parsed.threads,
            SweepParameter::Rate => self.0.rate = parsed.rate,
            SweepParameter::ValueSize => self.0.value_size = parsed.value_size,
            SweepParameter::Echo => self.0.echo = parsed.echo,
            SweepParameter::Batch => self.0.batch = parsed.batch,
            SweepParameter::Delay | SweepParameter::StreamLimit => {}
        }
        Ok(())
    }
}

/// A load with this flag alone.
fn parsed_alone(parameter: SweepParameter, value: &str) -> Result<LoadArguments, String> {
    let flag = format!("--{}={value}", parameter.name());
    // Variables are of the whole command, and have been read.
    let load = LoadArguments::augment_args(Command::new("load"));
    let load = load.mut_args(|argument| argument.env(None::<&'static str>));
    let matches = load.try_get_matches_from(["load", &flag]);
    let parsed = matches.and_then(|matches| LoadArguments::from_arg_matches(&matches));
    parsed.map_err(|error| reason(&error))
}

/// What a message of clap says, without its preface and its advice.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

fn check_of_relay(parameter: SweepParameter, value: &str) -> Result<(), String> {
    match parameter {
        SweepParameter::Delay => span(value).map(drop),
        _ => number::whole::<u32>(1, i128::from(i32::MAX))(value).map(drop),
    }
}

fn span(text: &str) -> Result<Span, String> {
    text.parse::<Span>().map_err(|error| error.to_string())
}

/// `in-flight=1,2,4` or `in-flight=1..128`.
fn parse_over(text: &str) -> Result<SweepAxis, String> {
    let names = SweepParameter::ALL.map(SweepParameter::name).join(", ");
    let Some((name, values)) = text.split_once('=') else {
        return Err(format!(
            "`{text}` has no values; write in-flight=1,2,4 or in-flight=1..128"
        ));
    };
    let parameter = SweepParameter::of_name(name)
        .ok_or_else(|| format!("`{name}` cannot be swept; these can: {names}"))?;
    let values = match values.split_once("..") {
        Some(ends) => doubled(parameter, ends)?,
        None => values.split(',').map(str::to_owned).collect(),
    };
    if values.len() > limits::MAX_AXIS_VALUES {
        return Err(format!(
            "{name} has {} values: {} at most",
            values.len(),
            limits::MAX_AXIS_VALUES
        ));
    }
    let values = ascending(parameter, values)?;
    Ok(SweepAxis { parameter, values })
}

/// From one value to the other, each twice the one before, and the last one itself.
fn doubled(parameter: SweepParameter, (first, last): (&str, &str)) -> Result<Vec<String>, String> {
    let name = parameter.name();
    let (first, last) = (amount(parameter, first)?, amount(parameter, last)?);
    let ends = first
        .zip(last)
        .filter(|(first, last)| *first > 0 && first <= last);
    let Some((first, last)) = ends else {
        return Err(format!(
            "the values of {name} cannot be doubled from one to the other; write the smaller one \
             first, above 0, such as 1..128, or a list"
        ));
    };
    let doubling = std::iter::successors(Some(first), |value| value.checked_mul(2));
    let mut values: Vec<u64> = doubling.take_while(|value| *value < last).collect();
    values.push(last);
    Ok(values
        .into_iter()
        .map(|value| written(parameter, value))
        .collect())
}

/// A value as a whole number; `None`: it is none.
fn amount(parameter: SweepParameter, text: &str) -> Result<Option<u64>, String> {
    match parameter {
        SweepParameter::Mode => Ok(None),
        SweepParameter::ValueSize | SweepParameter::Echo => {
            let size = text.parse::<Size>();
            match size {
                Ok(size) => Ok(Some(size.0)),
                // exp:MEAN, whose form the flag checks.
                Err(_) if text.contains(':') => Ok(None),
                Err(error) => Err(error.to_string()),
            }
        }
        SweepParameter::Delay => span(text).map(|span| Some(span.ms)),
        _ => Ok(text.replace('_', "").parse().ok()),
    }
}

fn written(parameter: SweepParameter, amount: u64) -> String {
    match parameter {
        SweepParameter::ValueSize | SweepParameter::Echo => Size(amount).to_string(),
        SweepParameter::Delay => Span { ms: amount }.to_string(),
        _ => amount.to_string(),
    }
}

/// Checks each value, and brings numbers into their order.
fn ascending(parameter: SweepParameter, values: Vec<String>) -> Result<Vec<String>, String> {
    let mut amounts = Vec::with_capacity(values.len());
    for value in values {
        match parameter.is_of_relay() {
            true => check_of_relay(parameter, &value)?,
            false => drop(parsed_alone(parameter, &value)?),
        }
        let amount = match parameter {
            // Rates may have fractions.
            SweepParameter::Rate => value.replace('_', "").parse::<f64>().ok(),
            _ => amount(parameter, &value)?.map(|amount| amount as f64),
        };
        if amounts.iter().any(|(_, known)| *known == value) {
            return Err(format!("{} has the value {value} twice", parameter.name()));
        }
        amounts.push((amount, value));
    }
    if amounts.iter().all(|(amount, _)| amount.is_some()) {
        let number = |amount: &Option<f64>| amount.unwrap_or(0.0);
        amounts.sort_by(|(one, _), (other, _)| number(one).total_cmp(&number(other)));
    }
    Ok(amounts.into_iter().map(|(_, value)| value).collect())
}

/// Flags that change where results go, and not what they are; a budget may be larger when a sweep
/// is gone on with, whose times are those of its file.
const OF_OUTPUT: [&str; 5] = ["save", "resume", "html", "format", "budget"];

/// Flags whose values are secrets, or may be: only that they are there is kept.
const SECRET: [&str; 2] = ["metadata", "token_file"];

/// The flags of a sweep as they stand on its command line, but for those of its output: two sweeps
/// with the same ones do the same.
pub fn flags_of_sweep(matches: &ArgMatches) -> Vec<String> {
    let table = SweepArguments::augment_args(Command::new("sweep"));
    let given = |id: &str| super::is_on_command_line(matches, id);
    let mut chosen = matches;
    while let Some((_, inner)) = chosen.subcommand() {
        chosen = inner;
    }
    let mut flags = Vec::new();
    for argument in table.get_arguments() {
        let (id, name) = (argument.get_id().as_str(), argument.get_long());
        let (Some(name), true, false) = (name, given(id), OF_OUTPUT.contains(&id)) else {
            continue;
        };
        let values = chosen.try_get_raw(id).ok().flatten().into_iter().flatten();
        let values: Vec<String> = values.map(shown).collect();
        let value = match SECRET.contains(&id) {
            true => "…".to_owned(),
            false => values.join(" "),
        };
        flags.push(format!("--{name} {value}"));
    }
    flags.sort_unstable();
    flags
}

fn shown(value: &OsStr) -> String {
    value.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Arguments;
    use super::super::LoadRate;
    use super::*;
    use clap::{CommandFactory, Parser};

    fn values(text: &str) -> Vec<String> {
        parse_over(text).expect(text).values
    }

    #[test]
    fn values_are_a_list_or_doubled() {
        assert_eq!(values("in-flight=1..16"), ["1", "2", "4", "8", "16"]);
        assert_eq!(values("in-flight=3..20"), ["3", "6", "12", "20"]);
        assert_eq!(values("connections=8,1,2"), ["1", "2", "8"]);
        assert_eq!(values("value-size=16..64"), ["16", "32", "64"]);
        assert_eq!(values("value-size=1KiB..4KiB"), ["1KiB", "2KiB", "4KiB"]);
        assert_eq!(values("value-size=4KiB,64"), ["64", "4KiB"]);
        assert_eq!(values("delay=1ms..4ms"), ["1ms", "2ms", "4ms"]);
        assert_eq!(values("rate=1.5,1000,20"), ["1.5", "20", "1000"]);
        assert_eq!(values("mode=short,multiplexed"), ["short", "multiplexed"]);
        assert_eq!(values("stream-limit=7..7"), ["7"]);
    }

    #[test]
    fn wrong_values_are_refused_with_what_is_right() {
        for (text, expected) in [
            ("in-flight", "has no values"),
            ("speed=1", "`speed` cannot be swept; these can: in-flight,"),
            ("in-flight=0", "write a number from 1 to"),
            ("in-flight=1,x", "write a number from 1 to"),
            ("in-flight=4..1", "the smaller one first"),
            ("in-flight=0..4", "above 0"),
            ("in-flight=1,1", "the value 1 twice"),
            ("mode=fast", "invalid value 'fast'"),
            ("mode=single..short", "cannot be doubled"),
            ("delay=5", "5ms"),
            ("stream-limit=0", "write a whole number from 1"),
            ("value-size=4K", "ambiguous"),
            ("rate=-1", "above 0"),
        ] {
            let message = parse_over(text).expect_err(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
        let many: Vec<String> = (1..=65).map(|value| value.to_string()).collect();
        let message = parse_over(&format!("in-flight={}", many.join(","))).expect_err("many");
        assert!(message.contains("64 at most"), "{message}");
    }

    fn matches(line: &str) -> ArgMatches {
        let command = Arguments::command();
        command
            .try_get_matches_from(line.split_whitespace())
            .expect(line)
    }

    #[test]
    fn a_sweep_takes_all_flags_of_a_load_and_none_of_its_commands() {
        let line = "pelton lab sweep --over in-flight=1,2 --keys 7 --mix put=100 --output csv";
        let parsed = Arguments::try_parse_from(line.split_whitespace());
        assert!(parsed.is_ok(), "{parsed:?}");
        for wrong in [
            "pelton lab sweep",
            "pelton lab sweep kvstore --over in-flight=1",
            "pelton lab sweep --over in-flight=1 --budget 1m --full",
            "pelton lab sweep --over in-flight=1 --resume",
            // The groups of a load are there too.
            "pelton lab sweep --over in-flight=1 --method a.B/C",
        ] {
            let parsed = Arguments::try_parse_from(wrong.split_whitespace());
            assert!(parsed.is_err(), "{wrong}");
        }
    }

    #[test]
    fn flags_are_the_same_in_any_order_and_hold_no_secret() {
        let one = flags_of_sweep(&matches(
            "pelton lab sweep --over in-flight=1,2 --keys 7 --save a --metadata k=secret",
        ));
        let other = flags_of_sweep(&matches(
            "pelton lab sweep --metadata k=v --keys 7 --html b --over in-flight=1,2 --save c",
        ));
        assert_eq!(one, other);
        assert_eq!(one, ["--keys 7", "--metadata …", "--over in-flight=1,2"]);
        let differing = flags_of_sweep(&matches("pelton lab sweep --over in-flight=1,2 --keys 8"));
        assert_ne!(differing, one);
    }

    #[test]
    fn each_parameter_can_be_set() {
        let line = matches("pelton lab sweep --over in-flight=1");
        let (_, lab) = line.subcommand().expect("lab");
        let (_, sweep) = lab.subcommand().expect("sweep");
        let mut load = SweptLoad::from_arg_matches(sweep).expect("a load");
        for (parameter, value) in [
            (SweepParameter::InFlight, "3"),
            (SweepParameter::Connections, "5"),
            (SweepParameter::Mode, "short"),
            (SweepParameter::Threads, "2"),
            (SweepParameter::Rate, "10.5"),
            (SweepParameter::ValueSize, "1KiB"),
            (SweepParameter::Echo, "7"),
            (SweepParameter::Batch, "9"),
            (SweepParameter::Delay, "5ms"),
            (SweepParameter::StreamLimit, "4"),
        ] {
            load.set(parameter, value).expect(value);
        }
        let load = &load.0;
        assert_eq!((load.in_flight, load.connections), (Some(3), 5));
        assert_eq!(
            (load.threads, load.rate),
            (2, Some(LoadRate::Constant(10.5)))
        );
        assert_eq!((load.echo, load.batch), (Some(7), Some(9)));
        assert_eq!(load.value_size.max_bytes(), 1_024);
        assert!(load.mode.is_some());
    }
}
