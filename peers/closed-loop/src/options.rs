//! The flags: see peers/README.md.

use std::str::FromStr;
use std::time::Duration;

use lexopt::prelude::*;

const USAGE: &str = "\
usage: CLIENT [OPTION ...]

Options
  --address HOST:PORT       the server (127.0.0.1:1978)
  --method get|ping         what is called (get)
  --in-flight N             calls in flight, over all channels (1)
  --channels N              channels (1)
  --channel-args same|distinct
                            no difference here: each channel has its own connection (same)
  --face NAME               how a client calls that knows several ways
  --threads N               threads of such a client (1)
  --keys N                  get: keys are numbered from 0 to N-1 (100000)
  --warm-up SECONDS         run so long before measuring (0.5)
  --seconds SECONDS         measure so long (2)
  --server-pid PID          count the CPU time of this process, too
";

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A key of the store.
    Get,
    /// An empty message.
    Ping,
}

impl Method {
    /// As the flag has it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "get",
            Method::Ping => "ping",
        }
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(word: &str) -> Result<Method, String> {
        match word {
            "get" => Ok(Method::Get),
            "ping" => Ok(Method::Ping),
            _ => Err(format!("neither get nor ping: {word}")),
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Host and port of the server.
    pub address: String,
    /// What is called.
    pub method: Method,
    /// Calls in flight, over all channels.
    pub in_flight: usize,
    /// Channels.
    pub channels: usize,
    /// `same` or `distinct`; only repeated in the result.
    pub channel_args: String,
    /// How a client calls that knows several ways; empty: not said.
    pub face: String,
    /// Threads of such a client.
    pub threads: usize,
    /// Keys are numbered from 0 to this less 1.
    pub keys: u64,
    /// Time before measuring.
    pub warm_up: Duration,
    /// Time to measure.
    pub duration: Duration,
    /// Process whose CPU time is counted, too.
    pub server_pid: Option<u32>,
}

/// Reads the command line; `--help` ends the program.
pub fn parse() -> Result<Options, lexopt::Error> {
    let mut options = Options {
        address: "127.0.0.1:1978".into(),
        method: Method::Get,
        in_flight: 1,
        channels: 1,
        channel_args: "same".into(),
        face: String::new(),
        threads: 1,
        keys: 100_000,
        warm_up: Duration::from_millis(500),
        duration: Duration::from_secs(2),
        server_pid: None,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("address") => options.address = parser.value()?.string()?,
            Long("method") => options.method = parser.value()?.parse()?,
            Long("in-flight") => options.in_flight = parser.value()?.parse()?,
            Long("channels") => options.channels = parser.value()?.parse()?,
            Long("channel-args") => options.channel_args = parser.value()?.parse_with(args)?,
            Long("face") => options.face = parser.value()?.string()?,
            Long("threads") => options.threads = parser.value()?.parse()?,
            Long("keys") => options.keys = parser.value()?.parse()?,
            Long("warm-up") => options.warm_up = parser.value()?.parse_with(seconds)?,
            Long("seconds") => options.duration = parser.value()?.parse_with(seconds)?,
            Long("server-pid") => options.server_pid = Some(parser.value()?.parse()?),
            Short('h') | Long("help") => {
                print!("{USAGE}");
                std::process::exit(0);
            }
            other => return Err(other.unexpected()),
        }
    }
    let counts = [options.in_flight, options.channels, options.threads];
    if counts.contains(&0) || options.keys == 0 {
        return Err("numbers begin at 1".into());
    }
    Ok(options)
}

fn args(word: &str) -> Result<String, String> {
    match word {
        "same" | "distinct" => Ok(word.into()),
        _ => Err(format!("neither same nor distinct: {word}")),
    }
}

fn seconds(word: &str) -> Result<Duration, String> {
    let count: f64 = word.parse().map_err(|_| format!("no number: {word}"))?;
    Duration::try_from_secs_f64(count).map_err(|error| error.to_string())
}
