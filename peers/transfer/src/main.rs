//! Moves files, and nothing else: what the kernel and the disk take for themselves when a file goes
//! from one process to another. Beside it a relay that delays, and a client for plain HTTP/2.
//! Results are told by the time it takes: each command ends when the work is done.

mod bare;
mod http2;
mod relay;

use std::process::ExitCode;
use std::time::Duration;

use lexopt::prelude::*;

const USAGE: &str = "\
usage: transfer COMMAND [FILE] [OPTION ...]

Commands
  serve      take files into --folder and send them from there, one connection after the other
  put FILE   send a file to `serve`, which answers when it is on the device; with --discard it is thrown away there
  get FILE   fetch a file of that name from `serve` into --to, and have it on the device
  write FILE copy a file to --to on this machine, and have it on the device
  http-put FILE
             PUT a file to --path over plain HTTP/2, in writes of --write-bytes
  grpc-put FILE
             the same as a call of gRPC to --path, each write a message with bytes in field 1
  relay      pass connections on to --address, each byte after --delay-us, both ways

Options
  --listen HOST:PORT   where to listen (127.0.0.1:0); prints `listening on ADDRESS`
  --address HOST:PORT  the other side
  --folder FOLDER      where files lie
  --to FILE            the copy
  --path PATH          of the request
  --write-bytes N      a write of the client (16384)
  --delay-us N         delay in one direction (2500)
  --discard            throw away instead of keeping
";

#[derive(Default)]
struct Options {
    command: String,
    file: String,
    listen: String,
    address: String,
    folder: String,
    to: String,
    path: String,
    write_bytes: usize,
    delay: Duration,
    discards: bool,
}

fn parse_options() -> Result<Options, lexopt::Error> {
    let mut options = Options {
        listen: "127.0.0.1:0".into(),
        write_bytes: 16_384,
        delay: Duration::from_micros(2_500),
        ..Options::default()
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("listen") => options.listen = parser.value()?.string()?,
            Long("address") => options.address = parser.value()?.string()?,
            Long("folder") => options.folder = parser.value()?.string()?,
            Long("to") => options.to = parser.value()?.string()?,
            Long("path") => options.path = parser.value()?.string()?,
            Long("write-bytes") => {
                options.write_bytes = parser.value()?.parse::<std::num::NonZero<usize>>()?.get()
            }
            Long("delay-us") => options.delay = Duration::from_micros(parser.value()?.parse()?),
            Long("discard") => options.discards = true,
            Short('h') | Long("help") => {
                print!("{USAGE}");
                std::process::exit(0);
            }
            Value(word) if options.command.is_empty() => options.command = word.string()?,
            Value(word) if options.file.is_empty() => options.file = word.string()?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match parse_options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("transfer: {error}; see transfer --help");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("transfer {}: {error}", options.command);
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    match options.command.as_str() {
        "serve" => bare::serve(&options.listen, options.folder.as_ref())?,
        "put" => bare::put(&options.address, options.file.as_ref(), options.discards)?,
        "get" => bare::get(&options.address, &options.file, options.to.as_ref())?,
        "write" => bare::write(options.file.as_ref(), options.to.as_ref())?,
        "http-put" => http_put(options, http2::Form::Put)?,
        "grpc-put" => http_put(options, http2::Form::Chunks)?,
        "relay" => relay::run(&options.listen, &options.address, options.delay)?,
        other => return Err(format!("there is no command {other:?}; see transfer --help").into()),
    }
    Ok(())
}

fn http_put(options: &Options, form: http2::Form) -> std::io::Result<()> {
    let file = options.file.as_ref();
    http2::put(
        &options.address,
        &options.path,
        file,
        options.write_bytes,
        form,
    )
}
