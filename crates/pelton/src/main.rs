//! The `pelton` binary: a key-value and blob server over gRPC, and its client on the command line.

// What ships does not panic: docs/internals/panics.md.
#![cfg_attr(
    not(test),
    warn(
        clippy::disallowed_methods,
        clippy::panic,
        clippy::print_stderr,
        clippy::print_stdout,
        clippy::todo,
        clippy::unimplemented,
        clippy::unwrap_used
    )
)]

mod activity;
mod arguments;
mod certificate;
mod command;
mod cpus;
mod credentials;
mod durability;
mod encoding;
mod exit;
mod export_format;
mod follow;
mod generate;
mod in_place;
mod init_admin;
mod input;
mod interrupt;
mod json;
mod json_text;
mod limits;
mod listen;
mod log;
mod memory;
mod metrics;
mod notify;
mod otlp;
mod otlp_sample;
mod output;
mod own_files;
#[cfg(test)]
mod pages;
mod parent_process;
mod process_memory;
mod profile;
mod progress;
mod randomness;
mod reload;
mod report;
mod secrets;
mod self_check;
mod serve;
mod server_log;
mod settings;
mod simulation;
mod size;
mod start;
mod start_signals;
mod storage_engine;
#[cfg(test)]
mod test_machine;
mod time_source;
mod tkrzw_server;
mod watchdog;

use std::io;
use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches};
use serde_json::Value;
use service::redact::contains_token;

use crate::arguments::{
    Arguments, BlobCommand, Command, ConfigCommand, DatabaseCommand, LogCommand, OutputFormat,
    RoleCommand, ServeArguments, StoreCommand, TokenCommand,
};
use crate::exit::{Exit, Failure};
use crate::output::{Output, note};
use crate::start_signals::StartSignals;

// Memtables are freed on another thread than they were filled on:
// docs/internals/event-loop.md, "The allocator".
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;
use crate::settings::{Settings, SettingsFile, warning_of_variables};

fn main() -> ExitCode {
    parent_process::end_with_parent();
    // Before the command line is read, which takes longer than the rest of this.
    let is_server = std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "serve" || word == "tkrzw-server");
    let signals = is_server.then(StartSignals::listen);
    interrupt::ignore_file_size_signal();
    let format = arguments::output_format(std::env::args_os(), std::env::var_os("PELTON_OUTPUT"));
    let mut command = commands();
    let matches = matches(&mut command, format);
    let matches = match profile::of_command(&command, &matches) {
        Ok(None) => matches,
        Ok(Some((profile, left_out))) => {
            if let Some(warning) = left_out {
                report::warn(&warning, format);
            }
            // Without the profile they were right.
            let command = profile::with_defaults(commands(), &profile);
            match command.try_get_matches_from(std::env::args_os()) {
                Ok(matches) => matches,
                Err(error) => return end(profile.bad_value(&error), format),
            }
        }
        Err(error) => return end(error.into(), format),
    };
    let arguments =
        Arguments::from_arg_matches(&matches).unwrap_or_else(|error| end_usage(&error, format));
    // Completions are made wherever a shell starts; the server tells of its own.
    let is_silent = matches!(
        arguments.command,
        Command::Serve(_)
            | Command::TkrzwServer(_)
            | Command::Config(_)
            | Command::Completions(_)
            | Command::Man(_)
    );
    if !is_silent && let Some(warning) = settings::warning_of_misspelt_variables() {
        report::warn(&warning, format);
    }
    if !is_silent {
        interrupt::end_at_signal(format);
    }
    let ended = run(&arguments.command, &matches, signals);
    otlp::finish(format);
    match ended {
        Ok(exit) => exit.into(),
        Err(Failure::BrokenPipe) => Failure::BrokenPipe.exit().into(),
        Err(failure) => end(failure, format),
    }
}

/// Returns the commands, as they are read from this process's command line.
fn commands() -> clap::Command {
    arguments::without_empty_variables(arguments::command())
}

/// Reads the command line. Wrong usage and --help end the program, with codes 2 and 0.
fn matches(command: &mut clap::Command, format: OutputFormat) -> ArgMatches {
    command
        .try_get_matches_from_mut(std::env::args_os())
        .map_err(|error| arguments::with_variable(error, std::env::args_os()))
        .map_err(|error| arguments::with_tip(error, &words()))
        .unwrap_or_else(|error| end_usage(&error, format))
}

/// Says what has failed, and returns the code for it.
fn end(failure: Failure, format: OutputFormat) -> ExitCode {
    failure.report(format);
    failure.exit().into()
}

/// The command line, to look for words in it.
fn words() -> Vec<String> {
    let words = std::env::args_os();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Ends the program: wrong usage, or what was asked for by --help or --version.
fn end_usage(error: &clap::Error, format: OutputFormat) -> ! {
    if format == OutputFormat::Json && error.use_stderr() {
        note(Value::Object(report::usage_fields(error)));
        std::process::exit(Exit::Usage as i32);
    }
    let text = error.render().to_string();
    if error.use_stderr() && contains_token(&text) {
        // Without colours: what is printed is not the text itself.
        note(text.trim_end());
        std::process::exit(error.exit_code());
    }
    match error.print() {
        Err(failed) if !error.use_stderr() => {
            note(format_args!("pelton: {}", Failure::output(failed)));
            std::process::exit(Exit::Failed as i32)
        }
        _ => std::process::exit(error.exit_code()),
    }
}

/// Returns what ends a server while it starts, whose files are its own.
fn server_signals(signals: Option<io::Result<StartSignals>>) -> Result<StartSignals, Failure> {
    let signals = signals.unwrap_or_else(StartSignals::listen);
    own_files::deny_others();
    signals.map_err(Failure::signals)
}

fn run(
    command: &Command,
    matches: &ArgMatches,
    signals: Option<io::Result<StartSignals>>,
) -> Result<Exit, Failure> {
    match command {
        Command::Serve(arguments) => serve::serve(arguments, server_signals(signals)?),
        Command::TkrzwServer(arguments) => {
            let signals = server_signals(signals)?;
            let (plan, settings) = tkrzw_server::prepare(arguments, serve::is_of_network)?;
            let ended = serve::serve_as(&settings, Some(&plan), signals);
            ended.map_err(tkrzw_server::in_own_flags)
        }
        Command::Put(arguments) => command::put(arguments),
        Command::Get(arguments) => command::get(arguments),
        Command::Delete(arguments) => command::delete(arguments),
        Command::Append(arguments) => command::append(arguments),
        Command::Increment(arguments) => command::increment(arguments),
        Command::Batch(arguments) => command::batch(arguments),
        Command::Transact(arguments) => command::transact(arguments),
        Command::Export(arguments) => command::export(arguments),
        Command::Import(arguments) => command::import(arguments),
        Command::Upload(arguments) => command::upload(arguments),
        Command::Download(arguments) => command::download(arguments),
        Command::Blob(BlobCommand::List(arguments)) => command::list_blobs(arguments),
        Command::Blob(BlobCommand::Stat(arguments)) => command::stat_blob(arguments),
        Command::Blob(BlobCommand::Delete(arguments)) => command::delete_blob(arguments),
        Command::Blob(BlobCommand::Uploads(arguments)) => command::uploads(arguments),
        Command::Database(DatabaseCommand::Create(arguments)) => {
            command::create_database(arguments)
        }
        Command::Database(DatabaseCommand::List(arguments)) => command::list_databases(arguments),
        Command::Database(DatabaseCommand::Drop(arguments)) => command::drop_database(arguments),
        Command::Database(DatabaseCommand::Convert(arguments)) => {
            command::convert_database(arguments)
        }
        Command::Token(command) => run_token(command),
        Command::Role(command) => run_role(command),
        Command::Backup(arguments) => command::backup(arguments),
        Command::Restore(arguments) => command::restore(arguments),
        Command::Snapshot(arguments) => command::snapshot(arguments),
        Command::Store(StoreCommand::Init(arguments)) => command::init_store(arguments),
        Command::Promote(arguments) => command::promote(arguments),
        Command::ForgetReplicas(arguments) => command::forget_replicas(arguments),
        Command::Scan(arguments) => command::scan(arguments),
        Command::Ls(arguments) => command::scan(&arguments.as_scan()),
        Command::Watch(arguments) => command::watch(arguments),
        Command::Count(arguments) => command::count(arguments),
        Command::Echo(arguments) => command::echo(arguments),
        Command::Load(arguments) => command::load(
            arguments,
            arguments::is_on_command_line(matches, "token_file"),
        ),
        Command::Lab(command) => command::lab(command, matches),
        Command::Status(arguments) => command::status(arguments),
        Command::Top(arguments) => command::top(arguments),
        Command::Log(LogCommand::Inspect(arguments)) => command::inspect_log(arguments),
        Command::Log(LogCommand::Verify(arguments)) => command::verify_log(arguments),
        Command::SelfCheck(arguments) => command::self_check(arguments),
        Command::Proto(arguments) => command::write_proto_files(arguments),
        Command::Completions(arguments) => generate::completions(arguments.shell),
        Command::Man(arguments) => generate::man_pages(&arguments.folder),
        Command::Config(ConfigCommand::Print(arguments)) => print_config(arguments, matches),
        Command::Config(ConfigCommand::Check(arguments)) => check_config(arguments),
    }
}

fn run_token(command: &TokenCommand) -> Result<Exit, Failure> {
    match command {
        TokenCommand::Create(arguments) => command::create_token(arguments),
        TokenCommand::List(arguments) => command::list_tokens(arguments),
        TokenCommand::Revoke(arguments) => command::revoke_token(arguments),
        TokenCommand::Rotate(arguments) => command::rotate_token(arguments),
    }
}

fn run_role(command: &RoleCommand) -> Result<Exit, Failure> {
    match command {
        RoleCommand::Set(arguments) => command::set_role(arguments),
        RoleCommand::List(arguments) => command::list_roles(arguments),
        RoleCommand::Drop(arguments) => command::drop_role(arguments),
    }
}

/// Loads the settings to look at them, and warns of variables that are none.
fn load_settings(arguments: &ServeArguments) -> Result<(Settings, SettingsFile), Failure> {
    let (settings, file) = Settings::load(arguments)?;
    let of_spans = settings.otlp.warnings();
    for warning in warning_of_variables().into_iter().chain(of_spans) {
        note(format_args!("pelton: {warning}"));
    }
    Ok((settings, file))
}

/// Checks the settings, and the files that they name.
fn check_config(arguments: &ServeArguments) -> Result<Exit, Failure> {
    let (settings, _) = load_settings(arguments)?;
    certificate::ServerCertificate::check(&settings)?;
    otlp::check(&settings)?;
    storage_engine::check(&settings)?;
    Ok(Exit::Done)
}

fn print_config(arguments: &ServeArguments, matches: &ArgMatches) -> Result<Exit, Failure> {
    let (settings, file) = load_settings(arguments)?;
    let matches = matches
        .subcommand()
        .and_then(|(_, config)| config.subcommand())
        .map(|(_, print)| print);
    let toml = settings.to_toml(matches.expect("`config print` was chosen"), &file);
    let mut output = Output::new(OutputFormat::Text);
    output.line(toml.trim_end())?;
    output.end()?;
    Ok(Exit::Done)
}
