//! A small load generator for unary gRPC calls to `pelton.v1.KeyValue` (and Puts to etcd): closed
//! loop, one thread, hardly any work per call, so that it is not the bottleneck it looks for.
//! Results are one line of JSON.

mod closed_loop;
mod connection;
mod echo;
mod frames;
mod head;
mod moments;
mod processor;
mod random;
mod stalls;
mod tkrzw_stream;
mod workload;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lexopt::prelude::*;

use crate::closed_loop::{Outcome, Plan};
use crate::head::Variation;
use crate::stalls::Stalls;
use crate::workload::{KeyForm, Operation, ValueSizes, Workload};

const USAGE: &str = "\
usage: probe COMMAND [OPTION ...] [-- PROGRAM [ARGUMENT ...]]

Commands
  get      read random keys
  put      write the keys in turn
  etcd-put the same, to etcd
  batch    write random keys, --records in one call; with --new-keys keys never written before
  tkrzw-echo, tkrzw-set, tkrzw-multi
           Echo, Set and SetMulti of --records of Tkrzw-RPC; the keys in turn
  tkrzw-stream
           Sets in one Stream of each connection, --in-flight at a time; with --omit-responses none
           of them is answered but one in a thousand, which is waited for
  echo     send --bytes to a server that sends them back, one message at a time
  idle     memory of the server for each of --connections idle connections
  start    start PROGRAM, and measure until it has answered a Get; it prints `listening on ADDRESS`
  meter    CPU time of --server-pid while PROGRAM runs
  stalls   for --duration-ms look at the clock and do nothing else: how long the machine lets nobody run

Options
  --address HOST:PORT   the server (127.0.0.1:1978)
  --connections N       connections (1)
  --in-flight N         calls in flight on each connection (100)
  --keys N              keys are numbered from 0 to N-1 (100000)
  --value-bytes N[-M]   bytes of a value, or from N to M (32)
  --miss-percent N      of 100 Gets, so many ask for a missing key (0)
  --vary none|indexed|literal
                        a different grpc-timeout and traceparent in each call (none)
  --records N           records of a batch (100)
  --new-keys            batches of keys never written before
  --key-form hex|digits|spread
                        keys of Tkrzw-RPC: 16 hexadecimal digits, 8 decimal ones in order, or 8
                        bytes in no order (hex)
  --omit-responses      see tkrzw-stream
  --bytes N             of an echo (100)
  --warm-up-ms N        run so long before measuring (500)
  --duration-ms N       measure so long (2000)
  --calls N             stop after N calls, whatever the time
  --settle-ms N         how long connections idle before memory is read (3000)
  --server-pid PID      count the CPU time of this process
  --seed N              begins the random numbers (1)
";

struct Options {
    command: String,
    address: String,
    connections: usize,
    in_flight: usize,
    keys: u64,
    values: ValueSizes,
    miss_percent: u64,
    variation: Variation,
    records: u64,
    new_keys: bool,
    key_form: KeyForm,
    omit_responses: bool,
    bytes: usize,
    warm_up: Duration,
    duration: Duration,
    calls: u64,
    settle: Duration,
    server_pid: Option<u32>,
    seed: u64,
    program: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            command: String::new(),
            address: "127.0.0.1:1978".into(),
            connections: 1,
            in_flight: 100,
            keys: 100_000,
            values: ValueSizes { min: 32, max: 32 },
            miss_percent: 0,
            variation: Variation::None,
            records: 100,
            new_keys: false,
            key_form: KeyForm::Hex,
            omit_responses: false,
            bytes: 100,
            warm_up: Duration::from_millis(500),
            duration: Duration::from_millis(2000),
            calls: 0,
            settle: Duration::from_millis(3000),
            server_pid: None,
            seed: 1,
            program: Vec::new(),
        }
    }
}

fn parse_options() -> Result<Options, lexopt::Error> {
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("address") => options.address = parser.value()?.string()?,
            Long("connections") => options.connections = parser.value()?.parse()?,
            Long("in-flight") => options.in_flight = parser.value()?.parse()?,
            Long("keys") => options.keys = parser.value()?.parse()?,
            Long("value-bytes") => options.values = parser.value()?.parse_with(value_sizes)?,
            Long("miss-percent") => options.miss_percent = parser.value()?.parse()?,
            Long("vary") => options.variation = parser.value()?.parse_with(variation)?,
            Long("records") => options.records = parser.value()?.parse()?,
            Long("new-keys") => options.new_keys = true,
            Long("key-form") => options.key_form = parser.value()?.parse_with(key_form)?,
            Long("omit-responses") => options.omit_responses = true,
            Long("bytes") => options.bytes = parser.value()?.parse()?,
            Long("warm-up-ms") => options.warm_up = Duration::from_millis(parser.value()?.parse()?),
            Long("duration-ms") => {
                options.duration = Duration::from_millis(parser.value()?.parse()?)
            }
            Long("calls") => options.calls = parser.value()?.parse()?,
            Long("settle-ms") => options.settle = Duration::from_millis(parser.value()?.parse()?),
            Long("server-pid") => options.server_pid = Some(parser.value()?.parse()?),
            Long("seed") => options.seed = parser.value()?.parse()?,
            Short('h') | Long("help") => {
                print!("{USAGE}");
                std::process::exit(0);
            }
            Value(word) if options.command.is_empty() => {
                options.command = word.string()?;
                if matches!(options.command.as_str(), "-h" | "help") {
                    return Err("see probe --help".into());
                }
            }
            // What follows `--` is the program; lexopt hands it over word by word.
            Value(word) => {
                options.program.push(word.string()?);
                for rest in parser.raw_args()? {
                    options.program.push(rest.string()?);
                }
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

fn value_sizes(text: &str) -> Result<ValueSizes, String> {
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| {
        text.parse()
            .map_err(|_| format!("{text:?} is not a number of bytes"))
    };
    let sizes = ValueSizes {
        min: number(min)?,
        max: number(max)?,
    };
    if sizes.min > sizes.max {
        return Err(format!("{text:?} has its larger bound first"));
    }
    Ok(sizes)
}

fn key_form(text: &str) -> Result<KeyForm, String> {
    match text {
        "hex" => Ok(KeyForm::Hex),
        "digits" => Ok(KeyForm::Digits),
        "spread" => Ok(KeyForm::Spread),
        _ => Err(format!("{text:?} is none of hex, digits, spread")),
    }
}

fn variation(text: &str) -> Result<Variation, String> {
    match text {
        "none" => Ok(Variation::None),
        "indexed" => Ok(Variation::Indexed),
        "literal" => Ok(Variation::Literal),
        _ => Err(format!("{text:?} is none of none, indexed, literal")),
    }
}

fn main() -> ExitCode {
    let options = match parse_options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("probe: {error}; see probe --help");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("probe {}: {error}", options.command);
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<String, String> {
    let batch = if options.new_keys {
        Operation::BatchInsert {
            records: options.records,
        }
    } else {
        Operation::BatchOverwrite {
            records: options.records,
        }
    };
    match options.command.as_str() {
        "get" => run_calls(options, Operation::Get),
        "put" => run_calls(options, Operation::Put),
        "etcd-put" => run_calls(options, Operation::EtcdPut),
        "batch" => run_calls(options, batch),
        "tkrzw-echo" => run_calls(options, Operation::TkrzwEcho),
        "tkrzw-set" => run_calls(options, Operation::TkrzwSet),
        "tkrzw-multi" => run_calls(
            options,
            Operation::TkrzwSetMulti {
                records: options.records,
            },
        ),
        "tkrzw-stream" => run_stream(options),
        "echo" => run_echo(options),
        "idle" => {
            let mut workload = workload(options, Operation::Get);
            let pid = options.server_pid.ok_or("idle needs --server-pid")?;
            let bytes = moments::idle_bytes(
                &options.address,
                options.connections,
                options.settle,
                pid,
                &mut workload,
            )?;
            Ok(format!(
                "{{\"connections\":{},\"bytes_per_connection\":{bytes}}}",
                options.connections
            ))
        }
        "start" => {
            let elapsed =
                moments::start_to_answer(&options.program, &mut workload(options, Operation::Get))?;
            Ok(format!(
                "{{\"start_ms\":{:.3}}}",
                elapsed.as_secs_f64() * 1e3
            ))
        }
        "meter" => {
            let pid = options.server_pid.ok_or("meter needs --server-pid")?;
            let (used_ns, elapsed) = moments::metered(&options.program, pid)?;
            Ok(format!(
                "{{\"server_ns\":{used_ns},\"elapsed_s\":{:.6}}}",
                elapsed.as_secs_f64()
            ))
        }
        "stalls" => Ok(watch_stalls(options)),
        "" => Err("which command? See probe --help".into()),
        other => Err(format!("there is no command {other:?}; see probe --help")),
    }
}

fn watch_stalls(options: &Options) -> String {
    let begin = Instant::now();
    let stalls = Stalls::watch(options.duration, || begin.elapsed());
    format!(
        "{{\"seconds\":{:.6},\"stalls\":{},\"stalled_ms\":{:.3},\"longest_ms\":{:.3}}}",
        stalls.watched.as_secs_f64(),
        stalls.count,
        stalls.stalled.as_secs_f64() * 1e3,
        stalls.longest.as_secs_f64() * 1e3,
    )
}

fn workload(options: &Options, operation: Operation) -> Workload {
    let mut workload = Workload::new(
        operation,
        options.keys,
        options.miss_percent,
        options.values,
        options.seed,
    );
    workload.key_form = options.key_form;
    workload
}

fn run_stream(options: &Options) -> Result<String, String> {
    let plan = tkrzw_stream::StreamPlan {
        address: options.address.clone(),
        in_flight: options.in_flight as u64,
        omits_responses: options.omit_responses,
        warm_up: options.warm_up,
        duration: options.duration,
        calls: options.calls,
        server_pid: options.server_pid,
    };
    // Each connection has keys of its own.
    let workloads = (0..options.connections as u64).map(|index| {
        let seed = options.seed.wrapping_add(index);
        let mut workload = workload(options, Operation::TkrzwSet);
        workload.begin_at(index * options.keys / options.connections as u64, seed);
        workload
    });
    let outcome = tkrzw_stream::run(&plan, workloads.collect())?;
    let per_message_us = |ns: u64| ns as f64 / 1e3 / outcome.messages.max(1) as f64;
    let mut line = format!(
        "{{\"calls\":{},\"calls_per_s\":{:.0},\"own_us\":{:.4}",
        outcome.messages,
        outcome.messages as f64 / (outcome.elapsed_ns as f64 / 1e9),
        per_message_us(outcome.own_ns),
    );
    if let Some(server_ns) = outcome.server_ns {
        line += &format!(",\"server_us\":{:.4}", per_message_us(server_ns));
    }
    Ok(line + "}")
}

fn run_calls(options: &Options, operation: Operation) -> Result<String, String> {
    let mut workload = workload(options, operation);
    let counted = options.calls != 0;
    let plan = Plan {
        address: options.address.clone(),
        connections: options.connections,
        in_flight: options.in_flight,
        variation: options.variation,
        warm_up: if counted {
            Duration::ZERO
        } else {
            options.warm_up
        },
        duration: if counted {
            Duration::from_secs(3600)
        } else {
            options.duration
        },
        calls: options.calls,
        server_pid: options.server_pid,
        seed: options.seed,
    };
    let outcome = closed_loop::run(&plan, &mut workload)?;
    Ok(describe(&outcome, workload.records_per_call()))
}

fn run_echo(options: &Options) -> Result<String, String> {
    let outcome = echo::run(
        &options.address,
        options.bytes,
        options.warm_up,
        options.duration,
        options.server_pid,
    )?;
    let per_message_us = |ns: u64| ns as f64 / 1e3 / outcome.messages.max(1) as f64;
    let mut line = format!(
        "{{\"messages\":{},\"messages_per_s\":{:.0},\"own_us\":{:.4}",
        outcome.messages,
        outcome.messages as f64 / (outcome.elapsed_ns as f64 / 1e9),
        per_message_us(outcome.own_ns),
    );
    if let Some(server_ns) = outcome.server_ns {
        line += &format!(",\"server_us\":{:.4}", per_message_us(server_ns));
    }
    Ok(line + &quantiles(&outcome.latency_ns) + "}")
}

fn describe(outcome: &Outcome, records_per_call: u64) -> String {
    let per_call_us = |ns: u64| ns as f64 / 1e3 / outcome.calls.max(1) as f64;
    let mut line = format!(
        "{{\"calls\":{},\"failures\":{},\"hits\":{},\"calls_per_s\":{:.0},\"own_us\":{:.4},\"machine_us\":{:.4},\"from_wall_ms\":{},\"to_wall_ms\":{}",
        outcome.calls,
        outcome.failures,
        outcome.hits,
        outcome.calls as f64 / (outcome.elapsed_ns as f64 / 1e9),
        per_call_us(outcome.own_ns),
        per_call_us(outcome.machine_ns),
        outcome.from_wall_ms,
        outcome.to_wall_ms,
    );
    if let Some(server_ns) = outcome.server_ns {
        let server_us = per_call_us(server_ns);
        line += &format!(
            ",\"server_us\":{server_us:.4},\"server_us_per_record\":{:.4}",
            server_us / records_per_call as f64
        );
    }
    line + &quantiles(&outcome.latency_ns) + "}"
}

fn quantiles(latency_ns: &Histogram<u64>) -> String {
    let at_us = |quantile: f64| latency_ns.value_at_quantile(quantile) as f64 / 1e3;
    format!(
        ",\"p50_us\":{:.1},\"p99_us\":{:.1},\"p999_us\":{:.1},\"longest_us\":{:.1}",
        at_us(0.5),
        at_us(0.99),
        at_us(0.999),
        latency_ns.max() as f64 / 1e3,
    )
}
