//! The command line as a table. Help, the checks of every flag, and docs/cli.md come from it.

mod backup;
mod blob;
mod bulk;
mod client_auth;
mod credentials;
mod database;
mod forget_replicas;
mod given;
mod lab;
mod lab_scenario;
mod load;
mod load_operations;
mod load_rate;
mod load_services;
mod number;
mod other_tools;
mod otlp;
mod profile;
mod promote;
mod role;
mod self_check;
mod serve;
mod server_address;
mod storage_engine;
mod store;
mod sweep;
mod tips;
mod tkrzw_server;
mod tls;
mod token;

pub use backup::{BackupArguments, RestoreArguments, SnapshotArguments};
pub use blob::{
    BlobArguments, BlobCommand, BlobPlaceArguments, DeleteBlobArguments, DownloadArguments,
    ListBlobsArguments, TransferArguments, UploadArguments, UploadsArguments,
};
pub use bulk::{
    BatchArguments, BatchModeArgument, ExportArguments, ExportFormat, ImportArguments,
    TransactArguments,
};
pub use client_auth::ClientAuth;
pub use credentials::{CredentialArguments, TOKEN_FILE_VARIABLE};
pub use database::{
    ConvertDatabaseArguments, CreateDatabaseArguments, DatabaseCommand, DropDatabaseArguments,
    KindArgument, ListDatabasesArguments, NewKindArgument, OrderArgument, PromiseArgument,
};
pub use forget_replicas::ForgetReplicasArguments;
pub use given::first_given;
pub use lab::{AgentArguments, DiagnoseArguments, HistogramArguments, LabCommand, TapArguments};
pub use lab_scenario::{ScenarioArguments, ScenarioName};
pub use load::{LoadArguments, LoadArrivals, LoadMode, LoadProtocol, LoadRequestOrder};
pub use load_rate::LoadRate;
pub use load_services::{
    GuploadLoadArguments, KvstoreLoadArguments, LoadFormat, LoadKeys, LoadService, LoadTarget,
    PingConnections, PingLoadArguments, TkrzwLoadArguments, TkrzwLoadOperation,
};
pub use otlp::{OtlpHeaderText, OtlpResourceAttribute};
pub use profile::ProfileArguments;
pub use promote::PromoteArguments;
pub use role::{DropRoleArguments, ListRolesArguments, RoleCommand, SetRoleArguments};
pub use self_check::SelfCheckArguments;
pub use serve::{
    CpuList, DriverChoice, FollowAddress, LogFormat, LogLevel, ServeArguments,
    SlowCallKeysArgument, UnixMode,
};
pub use server_address::server_address;
pub use storage_engine::{
    ContactAddresses, InitStoreArguments, StoreAccessArguments, StoreArgument, StoreCommand,
};
pub use store::{
    AppendArguments, ConditionArguments, ConnectionArguments, CountArguments, DatabaseArguments,
    DeleteArguments, EchoArguments, GetArguments, IncrementArguments, KeyEncoding, LsArguments,
    OutputFormat, Point, PutArguments, RangeArguments, ReportOutput, ScanArguments,
    StatusArguments, TopArguments, ValueArguments, WatchArguments,
};

pub use sweep::{CompareArguments, SweepArguments, SweptLoad, flags_of_sweep};
pub use tips::{quoted, with_tip, word_like};
pub use tkrzw_server::TkrzwServerArguments;
pub use tls::TlsArguments;
pub use token::{
    CreateTokenArguments, ListTokensArguments, NewTokenArguments, RevokeTokenArguments,
    RotateTokenArguments, TokenCommand,
};

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, Parser, Subcommand};

/// What stands below the help of `pelton` itself.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    a miss: what the command is about is not there (a key, a blob, a
       database to drop or convert), or a condition was not met; the server
       is not ready (status); there is a problem (self-check); calls failed,
       the result is void, --rate was not reached or --require was missed (load)
  2    wrong usage: a flag, a variable or the configuration file; the message
       says which, and the right form
  3    it could not be done: the server was not reached, it refused, there is
       no such database or file to work with, or a file could not be read or
       written
  130  interrupted by Ctrl-C (SIGINT), 143: by SIGTERM, 129: by SIGHUP; the
       message says how far it came. Only `pelton serve` ends with 0 after
       SIGINT and SIGTERM: it stops as it should

Documentation: docs/start.md and docs/cli.md beside the source; `pelton man DIR`
writes man pages";

/// A key-value and blob server over gRPC, and its client.
#[derive(Debug, Parser)]
#[command(name = "pelton", version, about, after_help = EXIT_CODES)]
#[command(propagate_version = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// What pelton can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a server
    ///
    /// Every setting can be given as a flag, as an environment variable, or in a file; a flag is
    /// stronger than a variable, a variable is stronger than the file, and the file is stronger
    /// than the default. In the file the names are those of the flags, without the dashes in front:
    /// `max-value = "2MiB"`. Only `--accept-loss` is a flag alone.
    Serve(Box<ServeArguments>),

    /// Start a server in the place of a tkrzw_server
    ///
    /// It takes the command line of tkrzw_server, listens on its port, and serves its clients,
    /// which need not be changed: docs/migrate.md says what differs. It is a server as any other,
    /// with all services.
    TkrzwServer(Box<TkrzwServerArguments>),

    /// Write the value of a key
    #[command(visible_alias = "set")]
    Put(PutArguments),

    /// Read the value of a key
    ///
    /// The value is printed as it is, byte by byte; on a terminal a line end is added, and what is
    /// no text is refused. With --number, the value of `pelton incr` is printed in digits. A miss
    /// exits with code 1.
    Get(GetArguments),

    /// Remove a key, or all keys of a range
    ///
    /// A key that is not there is a miss: exit code 1. With --prefix or --all, all keys of the
    /// range are removed, in groups of at most 1000, and their number is printed; a range without
    /// keys is none. This is not one step: others see keys go group by group, and a command that is
    /// interrupted says how many it has removed.
    #[command(visible_alias = "del")]
    Delete(DeleteArguments),

    /// Add bytes at the end of the value of a key
    ///
    /// A missing key counts as an empty value. The expiry of the entry stays.
    Append(AppendArguments),

    /// Add to a number, and print the new one
    ///
    /// A number is a value of 8 bytes: signed, big-endian. A value of another length, and a sum
    /// that does not fit, are a miss: exit code 1. The expiry of the entry stays.
    #[command(name = "incr")]
    Increment(IncrementArguments),

    /// Do many operations from a file or a pipe, one JSON object a line
    ///
    /// With --mode atomic all or none takes effect; there may be at most 10 000. With --mode
    /// independent there may be any number: they are sent in groups while the input is read, and
    /// take effect in their order, each for itself. Exit code 1: a condition was not met, or a
    /// number could not be added to. docs/json.md describes the lines.
    Batch(BatchArguments),

    /// Compare keys, then do one of two lists of operations, all as one atomic step
    ///
    /// The input is a JSON object with the lists `comparisons`, `when_met` and `when_unmet`, see
    /// docs/json.md. Exit code 1: a comparison was not met (whatever `when_unmet` did), or the
    /// chosen list had no effect.
    Transact(TransactArguments),

    /// Write all entries of a database into a file or to standard output
    ///
    /// Each page of entries is read at one moment, the whole is not a snapshot. The file appears
    /// under its name when it is complete. docs/export.md describes both formats.
    Export(ExportArguments),

    /// Write all entries of an export, or of a running tkrzw_server, into a database
    ///
    /// The format is recognised. Entries that are there under other keys stay. A file is read and
    /// checked to its end before anything is written; what comes from a pipe is checked as it is
    /// read. Records of a tkrzw_server go into an empty database.
    Import(ImportArguments),

    /// Print keys and values in the order of the keys
    ///
    /// One entry a line, key and value separated by a tab. What could be mistaken (line ends, tabs,
    /// backslashes, control characters, bytes that are not UTF-8, blanks at either end) is written
    /// as \n, \t, \\ or \xNN, which --key-encoding escape reads back. With --output json every line
    /// is one object.
    Scan(ScanArguments),

    /// Print keys in their order, one a line: `pelton scan --keys-only`
    Ls(LsArguments),

    /// Print what is changed in a database, until it is interrupted
    ///
    /// One change a line: the sequence of its commit, what became of the key (set, delete, expire,
    /// or clear: all keys were removed), the key, and the value, separated by tabs and written as
    /// `pelton scan` does. A line of `set` that ends behind the key: the value was left out, since
    /// the commit has more than 64 MiB; `pelton get` reads it. With --output json every line is a
    /// commit, and has the point behind it.
    ///
    /// It goes on by itself after a broken connection, tries again while there is no server, and
    /// prints no commit twice, also where the server was started anew meanwhile. What came in
    /// between it has from its log, which holds what --keep-log of `pelton serve` says; a volatile
    /// database has none. If some of that is gone, the command says so and ends with code 3.
    /// `pelton scan` reads what is there: begin to watch first, so that nothing is missed.
    ///
    /// `pelton watch --prefix city/ --previous` shows values before and after. `pelton watch
    /// --prefix leader --limit 1` waits for the next change. `pelton watch --keys-only | cut -f 3`
    /// prints the keys that are changed.
    Watch(WatchArguments),

    /// Count keys; prints the bare number
    Count(CountArguments),

    /// Store files as blobs
    ///
    /// An upload goes on by itself after a broken connection, and where it stopped if the command
    /// is given again and the file is the same. Each chunk and the whole are compared by checksum.
    Upload(UploadArguments),

    /// Fetch blobs into files
    ///
    /// A download goes on by itself after a broken connection. The file appears under its name when
    /// it is complete and its checksum is right.
    Download(DownloadArguments),

    /// List, describe and remove blobs
    #[command(subcommand)]
    Blob(BlobCommand),

    /// Create, list, remove and convert databases
    ///
    /// All but listing takes the right `admin`, which callers without a token usually have on the
    /// machine of the server only; from another machine it goes over TLS.
    #[command(subcommand)]
    Database(DatabaseCommand),

    /// Make, list, revoke and rotate tokens, with which callers prove who they are
    ///
    /// docs/security.md says what rights there are, and how the first token is made.
    #[command(subcommand)]
    Token(TokenCommand),

    /// Make, change, list and drop roles: named sets of rights that tokens can have
    #[command(subcommand)]
    Role(RoleCommand),

    /// Have a running server copy all its databases into a folder on its machine
    ///
    /// This takes the right `admin`, from another machine over TLS.
    ///
    /// The copy shows everything as it was at one commit, while writes go on. It appears under
    /// --backup-root of the server. Of volatile databases only the description is in it. Ctrl-C
    /// gives it up and leaves nothing behind.
    Backup(BackupArguments),

    /// Make a data folder of a backup; needs no server
    ///
    /// Every checksum is checked, and the result is opened once as a server would. It begins a new
    /// history: places in the history of the old server mean nothing in it. If anything is wrong,
    /// nothing is left behind.
    Restore(RestoreArguments),

    /// Have a running server write a snapshot now, so that it needs less of its log
    ///
    /// The server does so by itself as the log grows. This takes the right `admin`, from another
    /// machine over TLS.
    Snapshot(SnapshotArguments),

    /// Make a storage engine of several machines ready, for servers that have their databases there
    #[command(subcommand)]
    Store(StoreCommand),

    /// Have a replica take the place of its leader, which is lost or is to be stopped
    ///
    /// It succeeds if nothing is missing that the leader has answered, and the leader can answer
    /// nothing more: that takes --replicas-acked at the leader, and so many of its replicas that it
    /// cannot reach the number without them. Name the other ones with --confirm. The server starts
    /// anew by itself, and takes writes. This takes the right `admin`, from another machine over
    /// TLS. docs/operations.md says what to do when a leader is lost.
    Promote(PromoteArguments),

    /// Have a leader count replicas no more that are lost for good
    ///
    /// With --replicas-acked a leader counts each replica that has ever followed it, and a
    /// promotion needs most of them. A replica whose folder is gone never comes back: it is
    /// forgotten here. Nothing that was answered is lost with that; one that comes back counts
    /// again. It takes --replicas-acked replicas that are connected, and the right `admin`.
    ForgetReplicas(ForgetReplicasArguments),

    /// Send bytes to the server and back, to see what a call costs
    Echo(EchoArguments),

    /// Ask a server whether it is ready, what it is, and, where the caller has the right, how far
    /// away, and what it holds
    Status(StatusArguments),

    /// Watch what a server does: calls, connections, databases, log, blobs and replicas
    ///
    /// A new picture each second, with what happened since the one before. Where standard output is
    /// no terminal, one picture after the other; with --output json, a line for each. Asks for the
    /// server's statistics, which takes a right on it, and makes five calls of Echo for the round
    /// trip.
    Top(TopArguments),

    /// Load a running gRPC server, and measure it
    ///
    /// Sends operations to a Pelton server, or calls any method of another one, as fast as answers
    /// come (closed loop) or at a --rate (open loop). If the generator was the limit and not the
    /// server, the first line of the result says VOID; if --rate was not reached, it says BEHIND.
    /// docs/measuring.md says what each figure means. Exit code 1: the result is void, the rate was
    /// not reached, calls failed, or the run missed what --require asks for.
    #[command(args_conflicts_with_subcommands = true)]
    Load(Box<LoadArguments>),

    /// Find out what a gRPC service waits for
    #[command(subcommand)]
    Lab(LabCommand),

    /// Look at the log in a data folder that no server uses
    #[command(subcommand)]
    Log(LogCommand),

    /// Say what this machine gives a server, and what to change
    ///
    /// One line for each part of it: `ok`, `note` or `problem`, what it is, its value, and what to
    /// do. Needs no server. It looks as the user, and with the limits, of the shell that starts it:
    /// those of a container are seen there only, and those of a unit with --service. Exit code 1:
    /// there is a problem.
    SelfCheck(SelfCheckArguments),

    /// Write the .proto files of the server's API into a folder
    Proto(ProtoArguments),

    /// Print the completions of a shell, to be sourced or put where it looks for them
    Completions(CompletionsArguments),

    /// Write the man pages of all commands into a folder
    Man(ManArguments),

    /// Look at the settings of `pelton serve` without starting it
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// `pelton log …`
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print what stands in the log: one line for each group, what one write to the device covered
    Inspect(InspectLogArguments),

    /// Read the log, snapshots and databases on disk and check every checksum; exit code 3 if
    /// something durable is missing
    Verify(LogArguments),
}

/// Which log.
#[derive(Debug, Args)]
pub struct LogArguments {
    /// The data folder
    #[arg(value_name = "DIR", env = "PELTON_DATA", default_value = crate::settings::DEFAULT_FOLDER)]
    pub folder: PathBuf,

    /// How to print what is found
    #[arg(
        long,
        value_name = "FORMAT",
        env = "PELTON_OUTPUT",
        value_enum,
        default_value_t = OutputFormat::Text
    )]
    pub output: OutputFormat,
}

/// `pelton log inspect`
#[derive(Debug, Args)]
pub struct InspectLogArguments {
    #[command(flatten)]
    pub log: LogArguments,

    /// Also print each record: what became of which key
    #[arg(long)]
    pub records: bool,
}

/// `pelton config …`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every setting as it would be used, and where it comes from
    ///
    /// The output is a valid configuration file.
    Print(Box<ServeArguments>),

    /// Check flags, environment and file, and say nothing if all is well
    Check(Box<ServeArguments>),
}

/// `pelton completions`
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
}

/// `pelton man`
#[derive(Debug, Args)]
pub struct ManArguments {
    /// The folder; it is made if it does not exist
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// `pelton proto`
#[derive(Debug, Args)]
pub struct ProtoArguments {
    /// The folder; it is made if it does not exist
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,

    /// Overwrite files whose content differs
    #[arg(long)]
    pub force: bool,
}

/// How failures are printed: as `--output` or its `variable` says, also where the rest of the
/// command line is wrong.
pub fn output_format(
    words: impl IntoIterator<Item = OsString>,
    variable: Option<OsString>,
) -> OutputFormat {
    let mut format = variable;
    let mut is_value = false;
    for word in words.into_iter().take_while(|word| word != "--") {
        if is_value {
            format = Some(word.clone());
        } else if let Some(value) = word
            .to_str()
            .and_then(|word| word.strip_prefix("--output="))
        {
            format = Some(value.into());
        }
        is_value = !is_value && word == "--output";
    }
    match format {
        Some(json) if json == "json" => OutputFormat::Json,
        _ => OutputFormat::Text,
    }
}

/// The same error; where a value comes from a variable, with the name of that, since nobody wrote
/// the flag.
pub fn with_variable(
    mut error: clap::Error,
    words: impl IntoIterator<Item = OsString>,
) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (shown, value) = (
        text(ContextKind::InvalidArg),
        text(ContextKind::InvalidValue),
    );
    let flag = shown.split([' ', '=']).next().unwrap_or_default();
    let Some(name) = flag.strip_prefix("--") else {
        return error;
    };
    let is_flag = |word: &OsString| {
        let rest = word.to_string_lossy();
        rest.strip_prefix(flag)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    if words
        .into_iter()
        .take_while(|word| word != "--")
        .any(|word| is_flag(&word))
    {
        return error;
    }
    let is_given = |variable: &String| {
        std::env::var_os(variable).is_some_and(|given| given.to_string_lossy().contains(&value))
    };
    if let Some(variable) = variables(&Arguments::command(), name)
        .into_iter()
        .find(is_given)
    {
        let shown = format!("{shown}, which the variable {variable} gives");
        error.insert(ContextKind::InvalidArg, ContextValue::String(shown));
    }
    error
}

/// Whether an argument of the chosen command (the innermost: `load kvstore`) stands on the command
/// line, and does not come from a variable.
pub fn is_on_command_line(matches: &ArgMatches, id: &str) -> bool {
    let mut chosen = matches;
    while let Some((_, inner)) = chosen.subcommand() {
        chosen = inner;
    }
    // Without a command no argument has a value, and asking for one that is not known panics.
    chosen.try_contains_id(id).is_ok() && chosen.value_source(id) == Some(ValueSource::CommandLine)
}

/// The same commands, for which a variable that is set to nothing is not set: so scripts and files
/// of services write that they have no value for it.
pub fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |argument: &clap::Arg| {
        let value = argument.get_env().and_then(std::env::var_os);
        value.is_some_and(|value| value.is_empty())
    };
    command
        .mut_args(|argument| match is_empty(&argument) {
            true => argument.env(None::<&'static str>),
            false => argument,
        })
        .mut_subcommands(without_empty_variables)
}

/// The commands, as `main` reads them: a number or a time may begin with a dash, so that it is
/// refused with what is right and not as a flag that is not known.
pub fn command() -> clap::Command {
    fn with_dashes(command: clap::Command) -> clap::Command {
        let names = |argument: &clap::Arg| -> Vec<String> {
            let names = argument.get_value_names().unwrap_or_default();
            names.iter().map(ToString::to_string).collect()
        };
        let is_one_of = |argument: &clap::Arg, words: &[&str]| {
            let takes_value = argument.get_action().takes_values() && !argument.is_positional();
            takes_value
                && names(argument)
                    .iter()
                    .any(|name| words.contains(&name.as_str()))
        };
        command
            .mut_args(|argument| match &argument {
                number if is_one_of(number, &["NUMBER", "N", "VERSION"]) => {
                    argument.allow_negative_numbers(true)
                }
                span if is_one_of(span, &["TIME", "SIZE"]) => argument.allow_hyphen_values(true),
                _ => argument,
            })
            .mut_subcommands(with_dashes)
    }
    with_dashes(Arguments::command())
}

/// The variables of all flags of this name: that of `pelton serve` may be another one than that of
/// a client.
fn variables(command: &clap::Command, flag: &str) -> Vec<String> {
    let here = command
        .get_arguments()
        .filter(|one| one.get_long() == Some(flag));
    let here = here.filter_map(|one| one.get_env().map(|name| name.to_string_lossy().into()));
    let below = command
        .get_subcommands()
        .flat_map(|one| variables(one, flag));
    here.chain(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_printed_as_output_says() {
        let json = |line: &str| {
            let words = line.split_whitespace().map(OsString::from);
            output_format(words, None) == OutputFormat::Json
        };
        let variable = |line: &str| {
            let words = line.split_whitespace().map(OsString::from);
            output_format(words, Some("json".into()))
        };
        assert_eq!(variable("pelton get k"), OutputFormat::Json);
        assert_eq!(variable("pelton get k --output text"), OutputFormat::Text);
        assert!(json("pelton get k --output json"));
        assert!(json("pelton get --output=json --wrong"));
        assert!(!json("pelton get json"));
        assert!(!json("pelton get --output text json"));
        assert!(!json("pelton put -- --output json"));
    }

    #[test]
    fn the_table_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// A flag without a word of help is of no use to anybody.
    #[test]
    fn every_argument_is_explained() {
        fn check(command: &clap::Command, path: &str) {
            assert!(command.get_about().is_some(), "{path} has no description");
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{path} {} has no help",
                    argument.get_id()
                );
            }
            for sub in command.get_subcommands() {
                check(sub, &format!("{path} {}", sub.get_name()));
            }
        }
        check(&Arguments::command(), "pelton");
    }

    fn refusal(line: &str) -> String {
        let words = line.split_whitespace();
        command()
            .try_get_matches_from(words)
            .expect_err(line)
            .to_string()
    }

    /// Each wrong line is refused, and the message has the other text.
    fn refuses(cases: &[(&str, &str)]) {
        for (line, expected) in cases {
            let message = refusal(line);
            assert!(
                message.contains(expected),
                "{line}: {expected:?} is missing in\n{message}"
            );
        }
    }

    /// Every wrong flag: the message names it, and says what is right.
    #[test]
    fn wrong_usage_of_serve_is_explained() {
        refuses(&[
            ("pelton serv", "'serve'"),
            (
                "pelton serve --thread 3",
                "similar argument exists: '--threads'",
            ),
            ("pelton serve --threads none", "--threads"),
            ("pelton serve --listen 127.0.0.1", "write host:port"),
            ("pelton serve --listen :1978", "0.0.0.0:1978"),
            ("pelton serve --memory-limit 4G", "4GiB"),
            ("pelton serve --memory-limit 170%", "1% to 100%"),
            ("pelton serve --max-value big", "64KiB"),
            ("pelton serve --drain-timeout 10", "10s"),
            ("pelton serve --pin 3-1", "3-1"),
            ("pelton serve --unix-mode 999", "octal"),
            ("pelton serve --log-level loud", "possible values"),
            ("pelton serve --durability fast", "interval=100ms"),
        ]);
    }

    #[test]
    fn wrong_usage_of_commands_is_explained() {
        refuses(&[
            ("pelton get", "<KEY>"),
            ("pelton delete", "<KEY"),
            ("pelton delete key --prefix k", "cannot be used with"),
            (
                "pelton delete --prefix k --if-version 3",
                "cannot be used with",
            ),
            ("pelton delete --all --prefix k", "cannot be used with"),
            ("pelton delete key --limit 3", "cannot be used with"),
            (
                "pelton delete --limit 3",
                "delete --limit <NUMBER> <KEY|--prefix <KEY>|--all>\n",
            ),
            (
                "pelton get key --address http://127.0.0.1:1978",
                "write 127.0.0.1:1978",
            ),
            (
                "pelton get key --address https://db/x",
                "write db:PORT, and --tls",
            ),
            ("pelton get key --timeout 1m5", "1m5s"),
            ("pelton get key --output xml", "possible values: text, json"),
            ("pelton get key --address nowhere", "write host:port"),
            ("pelton get key --timeout 5", "5s"),
            (
                "pelton put key value --if-absent --if-present",
                "cannot be used with",
            ),
            (
                "pelton put key value --if-absent --if-version 3",
                "cannot be used with",
            ),
            ("pelton put key value --file f", "cannot be used with"),
            ("pelton scan --prefix a --start b", "cannot be used with"),
            ("pelton scan --limit 0", "--limit"),
            ("pelton delete key --if-version 0", "--if-version"),
            ("pelton echo --count 0", "--count"),
            (
                "pelton export --format xml",
                "possible values: jsonl, binary",
            ),
            (
                "pelton batch --mode both",
                "possible values: atomic, independent",
            ),
            ("pelton incr key many", "[DELTA]"),
            (
                "pelton put key value --if-absent --if-value x",
                "cannot be used with",
            ),
            (
                "pelton put key value --ttl 5m --keep-ttl",
                "cannot be used with",
            ),
            ("pelton put key value --ttl 99999d", "at most 100 years"),
            ("pelton put key value --ttl 0s", "at least 1ms"),
            ("pelton put key value --ttl 5", "5s"),
        ]);
    }

    #[test]
    fn a_number_that_cannot_be_is_refused_with_what_can() {
        for (line, expected) in [
            (
                "pelton scan --limit -1",
                "at least 1; without it there is no limit",
            ),
            (
                "pelton scan --limit 0",
                "at least 1; without it there is no limit",
            ),
            (
                "pelton ls --limit x",
                "at least 1; without it there is no limit",
            ),
            (
                "pelton blob list --limit -1",
                "without it there is no limit",
            ),
            ("pelton put k v --ttl -1s", "`-1s` is no span of time"),
            (
                "pelton put k v --if-version -1",
                "a version is a whole number",
            ),
            ("pelton upload f --if-version 0", "has version 0"),
            ("pelton upload f --parallel -1", "from 1 to 64"),
            ("pelton serve --threads -1", "from 1 to 1024"),
            ("pelton serve --threads many", "from 1 to 1024"),
            ("pelton serve --max-value -1", "`-1` is no size"),
            ("pelton load --rate -1", "above 0 and at most"),
            ("pelton load --keys 0", "'--keys <NUMBER>'"),
            ("pelton load --calls 0", "at least 1"),
            ("pelton echo --count 0", "from 1 to 1000000"),
            (
                "pelton incr n abc",
                "a whole number from -9223372036854775808 to 9223372036854775807",
            ),
            (
                "pelton incr n 99999999999999999999",
                "from -9223372036854775808 to",
            ),
            ("pelton get k --timeout 0s", "at least 1ms"),
        ] {
            let message = refusal(line);
            assert!(
                message.contains(expected),
                "{line}: {expected:?} is missing in\n{message}"
            );
            for foreign in ["digit found", "target type", "not in 1.."] {
                assert!(!message.contains(foreign), "{line}: {message}");
            }
        }
    }

    #[test]
    fn negative_numbers_are_values() {
        let words = ["pelton", "put", "temperature", "-5"];
        let Command::Put(put) = Arguments::try_parse_from(words).expect("valid").command else {
            panic!("put is put");
        };
        assert_eq!(put.value.value.as_deref(), Some("-5".as_ref()));
    }
}
