//! `pelton tkrzw-server`: what the command line of tkrzw_server means for a server of this program.

mod database;
pub mod log_file;
mod master;
mod timestamp_file;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use net::{Address, THREAD_LIMITS};
use server::{Server, TimeSource};
use service::settings::tkrzw::{TkrzwDatabase, TkrzwSettings};
use service::tkrzw_state::{MasterOrders, TkrzwState};
use store::{DatabaseConfig, DatabaseLimits};

use crate::arguments::{DriverChoice, ServeArguments, TkrzwServerArguments};
use crate::durability::DurabilityArgument;
use crate::exit::Failure;
use crate::limits::{
    TKRZW_DATABASES, TKRZW_KEEP_LOG_BYTES, TKRZW_REPL_WAIT_S_MAX, TKRZW_SHUTDOWN_S_MAX,
};
use crate::listen::{ListenAddress, ListenAddresses};
use crate::settings::Settings;
use crate::size::{KeptAmount, Size, Span};
use crate::time_source::SystemTimeSource;
use database::PlannedDatabase;
use master::FollowerPlan;
use timestamp_file::TimestampFile;

/// What callers of its clients may do who can send no token.
const RIGHTS: &str = "service:tkrzw";

/// What stands behind the path of a database in the name of its folder.
const FOLDER_SUFFIX: &str = ".pelton";

/// What a start in the place of a tkrzw_server has beside the settings of a server.
#[derive(Debug)]
pub struct TkrzwPlan {
    databases: Vec<PlannedDatabase>,
    /// Of databases that last, when they are made.
    kind: store::Kind,
    is_read_only: bool,
    replication: ReplicationPlan,
    log_file: Option<PathBuf>,
    pid_file: Option<PathBuf>,
    /// Flags and parameters that have no effect.
    ignored: Vec<String>,
}

/// Whom the server follows, and whether others may follow it.
#[derive(Debug)]
struct ReplicationPlan {
    server_id: i32,
    has_update_log: bool,
    orders: Arc<MasterOrders>,
    wait_s: f64,
    timestamp_file: Option<PathBuf>,
}

/// A file with the number of the process, which goes when the server ends.
#[derive(Debug)]
pub struct PidFile(Option<PathBuf>);

/// Reads the command line, and opens the file of the log that it names. Returns also the settings
/// of the server. `is_of_network` says of an address whether other machines can reach it.
///
/// # Errors
/// If something in it is wrong, or means something that this server does not do.
pub fn prepare(
    arguments: &TkrzwServerArguments,
    is_of_network: impl Fn(&Address) -> bool,
) -> Result<(TkrzwPlan, ServeArguments), Failure> {
    let plan = TkrzwPlan::new(arguments)?;
    let settings = plan.serve_arguments(arguments, listen(arguments, is_of_network)?)?;
    if let Some(file) = &plan.log_file {
        log_file::open(file).map_err(|error| {
            let file = file.display();
            Failure::Failed(format!(
                "cannot write the log to {file} (--log_file): {error}"
            ))
        })?;
    }
    Ok((plan, settings))
}

impl TkrzwPlan {
    /// Reads the command line.
    ///
    /// # Errors
    /// If something in it is wrong, or means something that this server does not do.
    fn new(arguments: &TkrzwServerArguments) -> Result<TkrzwPlan, Failure> {
        refuse(arguments)?;
        let texts = &arguments.databases[..];
        if texts.len() > TKRZW_DATABASES {
            let count = texts.len();
            return Err(Failure::Usage(format!(
                "there are {count} databases, at most {TKRZW_DATABASES} are allowed"
            )));
        }
        let texts = match texts {
            [] => &[String::new()][..],
            texts => texts,
        };
        let mut databases: Vec<PlannedDatabase> = Vec::new();
        let replication = ReplicationPlan::new(arguments)?;
        let is_durable = arguments.durability != DurabilityArgument::Volatile;
        for (index, text) in texts.iter().enumerate() {
            let planned = PlannedDatabase::parse(text).map_err(Failure::Usage)?;
            planned.check_path().map_err(Failure::Failed)?;
            let has_log = replication.has_update_log;
            databases.push(planned.lasting(is_durable, has_log).named(index));
        }
        let has_folder = databases.iter().any(|planned| planned.lasts);
        if let Some(first) = databases.first_mut().filter(|_| !has_folder) {
            // Without a folder the default database is as volatile as the first one.
            first.name.clear();
        }
        check_names(&databases)?;
        let of_flags = ignored_flags(arguments);
        let of_databases = databases.iter().flat_map(|planned| planned.ignored.clone());
        Ok(TkrzwPlan {
            kind: arguments
                .kind
                .map_or(store::Kind::Memory, store::Kind::from),
            is_read_only: arguments.read_only,
            replication,
            log_file: given(&arguments.log_file),
            pid_file: given(&arguments.pid_file),
            ignored: of_flags.into_iter().chain(of_databases).collect(),
            databases,
        })
    }

    /// Returns the settings of the server.
    fn serve_arguments(
        &self,
        arguments: &TkrzwServerArguments,
        listen: ListenAddresses,
    ) -> Result<ServeArguments, Failure> {
        let first = self.databases.iter().find(|planned| planned.lasts);
        let has_path = |planned: &&PlannedDatabase| !planned.path.is_empty();
        let named_by = match self.databases.iter().find(has_path) {
            Some(planned) => planned.path.as_str(),
            None => arguments.ulog_prefix.as_deref().unwrap_or_default(),
        };
        let data = match (&arguments.data, first) {
            (_, None) => None,
            (Some(folder), Some(_)) => Some(folder.clone()),
            (None, Some(_)) => Some(format!("{named_by}{FOLDER_SUFFIX}").into()),
        };
        let keep_log = arguments.keep_log.or_else(|| {
            let has_log = self.replication.has_update_log;
            has_log.then_some(KeptAmount::Size(Size(TKRZW_KEEP_LOG_BYTES)))
        });
        let durability = match first {
            Some(_) => arguments.durability,
            None => DurabilityArgument::Volatile,
        };
        let driver = match arguments.is_async {
            true => DriverChoice::EventLoop,
            false => DriverChoice::Blocking,
        };
        let (tls_key, tls_cert, client_ca) = tls(arguments.auth.as_deref())?;
        Ok(ServeArguments {
            listen: Some(vec![listen]),
            tls_key,
            tls_cert,
            client_ca,
            data,
            durability: Some(durability),
            driver: Some(driver),
            threads: Some(arguments.threads),
            keep_log,
            memory_limit: arguments.memory_limit,
            max_value: arguments.max_value,
            max_connections: arguments.max_connections,
            max_connections_per_address: arguments.max_connections_per_address,
            drain_timeout: Some(drain_timeout(arguments.shutdown_wait)?),
            log_level: Some(arguments.log_level.into()),
            ..ServeArguments::default()
        })
    }

    /// Returns what the service is to be.
    pub fn settings(&self) -> TkrzwSettings {
        let database = |planned: &PlannedDatabase| TkrzwDatabase {
            name: planned.name.as_str().into(),
            path: planned.path.as_str().into(),
            class: planned.class,
        };
        TkrzwSettings {
            databases: self.databases.iter().map(database).collect(),
            is_read_only: self.is_read_only,
            server_id: self.replication.server_id,
            has_update_log: self.replication.has_update_log,
            master: Some(Arc::clone(&self.replication.orders)),
            start_us: SystemTimeSource.wall_ms() * 1_000,
            state: TkrzwState::default(),
        }
    }

    /// Returns the file of the log.
    pub fn log_file(&self) -> Option<&Path> {
        self.log_file.as_deref()
    }

    /// Makes the databases that are not there, before the server serves, and says what each is.
    ///
    /// # Errors
    /// If one cannot be made, or the file with the number of the process.
    pub fn begin(&self, server: &Server, settings: &Settings) -> Result<PidFile, Failure> {
        let limits =
            DatabaseLimits::for_values(usize::try_from(settings.max_value.0).unwrap_or(usize::MAX));
        for (index, planned) in self.databases.iter().enumerate() {
            let config = DatabaseConfig {
                durability: planned.durability(settings.durability),
                limits,
                ..DatabaseConfig::default()
            };
            let config = match planned.lasts {
                true => config.of_kind(self.kind),
                false => config,
            };
            let made = match planned.name.as_str() {
                "" => Ok(()),
                name => server.ensure_database(name, &config),
            };
            made.map_err(|refusal| {
                let name = &planned.name;
                Failure::Failed(format!("the database {name:?} cannot be made: {refusal}"))
            })?;
            planned.bound(&server.shared().store);
            planned.log(index, &server.shared().store);
        }
        if !self.ignored.is_empty() {
            let ignored = self.ignored.join(", ");
            tracing::warn!("these have no effect here: {ignored}");
        }
        self.follow(server, settings)?;
        PidFile::new(self.pid_file.as_deref())
    }
}

impl TkrzwPlan {
    /// Starts the thread that follows a master, as soon as one is named.
    fn follow(&self, server: &Server, settings: &Settings) -> Result<(), Failure> {
        let plan = &self.replication;
        let all_last = self.databases.iter().all(|planned| planned.lasts);
        let file = match (&plan.timestamp_file, settings.folder()) {
            (Some(path), _) => Some(TimestampFile::at(path)),
            (None, Some(folder)) if all_last => Some(TimestampFile::in_folder(folder)),
            (None, _) => None,
        };
        let file = file.transpose().map_err(|error| {
            let path = plan.timestamp_file.as_deref().unwrap_or(Path::new("."));
            let path = path.display();
            Failure::Failed(format!("{path} cannot be used (--repl_ts_file): {error}"))
        })?;
        // What is in memory begins empty, whatever was here before.
        let timestamp = match file.as_ref().filter(|_| all_last) {
            None => 0,
            Some(file) => file.read().map_err(|error| {
                Failure::Failed(format!(
                    "{} cannot be read: {error}. It says from which time on the master is followed \
                     (--repl_ts_file); remove it to get everything that the master has",
                    file.describe()
                ))
            })?,
        };
        let follower = FollowerPlan {
            orders: Arc::clone(&plan.orders),
            server_id: plan.server_id,
            databases: (self.databases.iter())
                .map(|planned| planned.name.clone())
                .collect(),
            wait_s: plan.wait_s,
            value_bytes_max: settings.max_value.0,
            file,
            timestamp,
        };
        master::start(server, follower).map_err(|error| {
            Failure::Failed(format!(
                "a thread that follows a master cannot be had: {error}; what limits threads: \
                 {THREAD_LIMITS}"
            ))
        })
    }
}

impl ReplicationPlan {
    fn new(arguments: &TkrzwServerArguments) -> Result<ReplicationPlan, Failure> {
        let prefix = arguments.ulog_prefix.as_deref();
        let has_update_log = prefix.is_some_and(|prefix| !prefix.is_empty());
        let master = arguments.repl_master.as_deref().unwrap_or_default();
        let wrong = |words: String| Err(Failure::Usage(words));
        if has_update_log && arguments.durability == DurabilityArgument::Volatile {
            let words = "--ulog_prefix and --durability volatile: what others follow is in the \
                         log; leave one of them out";
            return wrong(words.to_owned());
        }
        if arguments.read_only && !master.is_empty() {
            let words = "--read_only and --repl_master: nothing of the master could be written; \
                         leave one of them out";
            return wrong(words.to_owned());
        }
        if !master.is_empty()
            && let Err(error) = master.parse::<Address>()
        {
            return wrong(format!("--repl_master: {error}"));
        }
        let wait_s = arguments.repl_wait;
        if !(0.0..=TKRZW_REPL_WAIT_S_MAX).contains(&wait_s) {
            return wrong(format!(
                "--repl_wait is {wait_s}; it may be 0 to {TKRZW_REPL_WAIT_S_MAX} seconds"
            ));
        }
        Ok(ReplicationPlan {
            server_id: arguments.server_id,
            has_update_log,
            orders: Arc::new(MasterOrders::new(master, arguments.repl_ts_skew)),
            wait_s,
            timestamp_file: given(&arguments.repl_ts_file),
        })
    }
}

/// Returns what a flag names: an empty text is the same as no flag, as scripts write it.
fn given(file: &Option<PathBuf>) -> Option<PathBuf> {
    let file = file.as_ref();
    file.filter(|file| !file.as_os_str().is_empty()).cloned()
}

impl PidFile {
    fn new(file: Option<&Path>) -> Result<PidFile, Failure> {
        if let Some(file) = file {
            fs::write(file, format!("{}\n", std::process::id())).map_err(|error| {
                let file = file.display();
                Failure::Failed(format!("cannot write {file} (--pid_file): {error}"))
            })?;
        }
        Ok(PidFile(file.map(Path::to_owned)))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(file) = &self.0
            && let Err(error) = fs::remove_file(file)
        {
            tracing::warn!("cannot remove {} (--pid_file): {error}", file.display());
        }
    }
}

/// Refuses what would be missing without a word.
fn refuse(arguments: &TkrzwServerArguments) -> Result<(), Failure> {
    let refused = if arguments.daemon {
        "--daemon: the server stays in front; have a service manager run it behind \
         (docs/operations.md has a unit for systemd), or the shell: nohup … &"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(refused.to_owned()))
}

/// Returns the flags that have no effect.
fn ignored_flags(arguments: &TkrzwServerArguments) -> Vec<String> {
    let flags = [
        ("--log_date", arguments.log_date.is_some()),
        ("--log_td", arguments.log_td.is_some()),
        (
            "--ulog_max_file_size",
            arguments.ulog_max_file_size.is_some(),
        ),
        ("--repl_ts_from_dbm", arguments.repl_ts_from_dbm),
    ];
    let given = flags.into_iter().filter(|(_, is_given)| *is_given);
    given.map(|(name, _)| name.to_owned()).collect()
}

fn check_names(databases: &[PlannedDatabase]) -> Result<(), Failure> {
    for (index, planned) in databases.iter().enumerate() {
        let mut before = databases.iter().take(index);
        if let Some(other) = before.find(|other| other.name == planned.name) {
            let (path, other, name) = (&planned.path, &other.path, &planned.name);
            return Err(Failure::Usage(format!(
                "{path} and {other} would both be the database {name:?}, which is named by the \
                 file: name one of them otherwise"
            )));
        }
    }
    Ok(())
}

/// Returns where to listen, and what callers may do there.
fn listen(
    arguments: &TkrzwServerArguments,
    is_of_network: impl Fn(&Address) -> bool,
) -> Result<ListenAddresses, Failure> {
    let wrong = |error: String| Failure::Usage(format!("--address: {error}"));
    let address = &arguments.address;
    let plain: ListenAddress = address.parse().map_err(wrong)?;
    let text = match &arguments.anonymous {
        Some(rights) => format!("{address}+anonymous={rights}"),
        None if is_of_network(&plain.address) => format!("{address}+anonymous={RIGHTS}"),
        None => address.clone(),
    };
    text.parse().map_err(wrong)
}

type TlsPaths = (Option<PathBuf>, Option<PathBuf>, Option<PathBuf>);

/// Returns key, certificate and authority of clients that `--auth` names.
fn tls(auth: Option<&str>) -> Result<TlsPaths, Failure> {
    let Some(text) = auth.filter(|text| !text.is_empty()) else {
        return Ok((None, None, None));
    };
    let wrong = |what: &str| {
        let form = "ssl:key=FILE,cert=FILE,root=FILE";
        Failure::Usage(format!("--auth: {text:?} {what}; write {form}"))
    };
    let (mut key, mut cert, mut root) = (None, None, None);
    let fields = text.strip_prefix("ssl:");
    let fields = fields.ok_or_else(|| wrong("does not begin with ssl:"))?;
    for field in fields.split(',') {
        match field.split_once('=') {
            Some(("key", file)) => key = Some(file.into()),
            Some(("cert", file)) => cert = Some(file.into()),
            Some(("root", file)) => root = Some(file.into()),
            _ => {
                return Err(wrong(&format!(
                    "has {field:?}, which is none of its fields"
                )));
            }
        }
    }
    match (&key, &cert, &root) {
        (Some(_), Some(_), Some(_)) => Ok((key, cert, root)),
        (None, ..) => Err(wrong("names no key")),
        (_, None, _) => Err(wrong("names no cert")),
        (.., None) => Err(wrong(
            "names no root, the authority of the clients' certificates",
        )),
    }
}

fn drain_timeout(seconds: f64) -> Result<Span, Failure> {
    match seconds <= TKRZW_SHUTDOWN_S_MAX {
        // A conversion to an integer is bounded by its type: what is below 0 becomes that.
        true => Ok(Span {
            ms: ((seconds * 1_000.0) as u64).max(1),
        }),
        false => Err(Failure::Usage(format!(
            "--shutdown_wait is {seconds}; it may be up to {TKRZW_SHUTDOWN_S_MAX} seconds"
        ))),
    }
}

/// Names that flags of `pelton serve` have in what ends a start or a server, and what to write in
/// their places. The longer of two that begin alike comes first.
const FLAGS: &[(&str, &str)] = &[
    ("--tls-cert, --tls-key and --client-ca say", "--auth says"),
    ("--tls-cert", "--auth"),
    ("--listen", "--address"),
    ("--drain-timeout", "--shutdown_wait"),
    (
        "--accept-loss",
        "`pelton serve --accept-loss` with the same --data",
    ),
    ("pelton serve --help", "pelton tkrzw-server --help"),
];

/// Returns why a server ends, with the flags that its user knows.
pub fn in_own_flags(failure: Failure) -> Failure {
    let own = |text: String| {
        let mut text = text;
        for (flag, own) in FLAGS {
            text = text.replace(flag, own);
        }
        text
    };
    match failure {
        Failure::Usage(text) => Failure::Usage(own(text)),
        Failure::Failed(text) => Failure::Failed(own(text)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: TkrzwServerArguments,
    }

    fn read(words: &[&str]) -> Result<(TkrzwPlan, ServeArguments), Failure> {
        let words = ["tkrzw_server"].iter().chain(words);
        let line = CommandLine::try_parse_from(words).expect("clap takes it");
        let is_of_network = |address: &Address| match address {
            Address::Tcp { host, .. } => !["127.0.0.1", "::1"].contains(&&**host),
            Address::Unix(_) => false,
        };
        prepare(&line.arguments, is_of_network)
    }

    fn refused(words: &[&str]) -> String {
        match read(words).expect_err("it is wrong") {
            Failure::Usage(words) | Failure::Failed(words) => words,
            other => panic!("{other:?}"),
        }
    }

    fn listens(settings: &ServeArguments) -> String {
        let listen = ListenAddresses::all(settings.listen.clone().expect("it is set"));
        let texts: Vec<_> = listen.iter().map(ListenAddress::to_string).collect();
        texts.join(" ")
    }

    #[test]
    fn without_arguments_it_is_one_database_in_memory_open_to_everybody() {
        let (plan, settings) = read(&[]).expect("it is right");
        assert_eq!(listens(&settings), "0.0.0.0:1978+anonymous=service:tkrzw");
        assert_eq!(settings.durability, Some(DurabilityArgument::Volatile));
        assert_eq!((settings.data, settings.threads), (None, Some(1)));
        assert_eq!(settings.driver, Some(DriverChoice::Blocking));
        let (databases, ignored) = (plan.settings().databases, plan.ignored);
        assert_eq!(databases.len(), 1);
        assert_eq!(
            (&*databases[0].name, databases[0].class.name()),
            ("", "TinyDBM")
        );
        assert!(ignored.is_empty());
    }

    #[test]
    fn databases_with_a_path_last_in_a_folder_named_by_the_first() {
        let words = [
            "--async",
            "--threads",
            "3",
            "#dbm=cache",
            "x/a.tkh#num_buckets=1k",
            "b.tkt",
        ];
        let (plan, settings) = read(&words).expect("it is right");
        assert_eq!(settings.data, Some("x/a.tkh.pelton".into()));
        assert_eq!(
            settings.durability.map(|one| one.to_string()).as_deref(),
            Some("interval=100ms")
        );
        assert_eq!(
            (settings.driver, settings.threads),
            (Some(DriverChoice::EventLoop), Some(3))
        );
        let databases = plan.settings().databases;
        let names: Vec<_> = databases
            .iter()
            .map(|one| (&*one.name, one.class.name()))
            .collect();
        let expected = [
            ("memory-0", "CacheDBM"),
            ("a.tkh", "HashDBM"),
            ("b.tkt", "TreeDBM"),
        ];
        assert_eq!(names, expected);
        assert_eq!(plan.ignored, ["x/a.tkh#num_buckets"]);
        let (_, settings) =
            read(&["--data", "d", "--durability", "synced", "a.tkh"]).expect("right");
        assert_eq!(
            (settings.data, settings.durability),
            (Some("d".into()), Some(DurabilityArgument::Synced))
        );
        let (_, settings) = read(&["--durability", "volatile", "a.tkh"]).expect("right");
        assert_eq!(
            (settings.data, settings.durability),
            (None, Some(DurabilityArgument::Volatile))
        );
    }

    #[test]
    fn addresses_of_this_machine_are_not_opened_to_the_network() {
        for (address, expected) in [
            ("127.0.0.1:1978", "127.0.0.1:1978"),
            ("[::1]:1978", "[::1]:1978"),
            ("unix:/tmp/socket", "unix:/tmp/socket"),
            ("192.0.2.1:5", "192.0.2.1:5+anonymous=service:tkrzw"),
        ] {
            let (_, settings) = read(&["--address", address]).expect("it is right");
            assert_eq!(listens(&settings), expected);
        }
        let (_, settings) = read(&["--anonymous", "none"]).expect("it is right");
        assert_eq!(listens(&settings), "0.0.0.0:1978+anonymous=none");
    }

    #[test]
    fn what_would_be_missing_is_refused_and_what_has_no_effect_is_named() {
        for (words, said) in [
            (&["--daemon"][..], "service manager"),
            (&["--repl_master", "nowhere"], "--repl_master"),
            (&["--repl_master", "h:1", "--read_only"], "--read_only"),
            (
                &["--ulog_prefix", "x", "--durability", "volatile"],
                "--durability",
            ),
            (&["--repl_wait=-1"], "--repl_wait"),
            (&["--auth", "ssl:key=k"], "ssl:key=FILE,cert=FILE,root=FILE"),
            (&["--auth", "none"], "begin with ssl:"),
            (&["--auth", "ssl:key=k,cert=c"], "names no root"),
            (&["--auth", "ssl:key=k,ca=c"], "\"ca=c\""),
            (&["--shutdown_wait=1e9"], "--shutdown_wait"),
            (&["--address", "nowhere"], "--address"),
            (&["a.tkh#record_comp_mode=aes"], "encrypt"),
            (&["a.tkh#record_comp_mode=rc4"], "encrypt"),
            (&["a.unknown"], "class"),
            (&["a.tkh#dbm=unknown"], "\"unknown\" is no class"),
            (&["x/a.tkh", "y/a.tkh"], "x/a.tkh"),
        ] {
            let told = refused(words);
            assert!(told.contains(said), "{words:?}: {told}");
        }
        assert!(refused(&["#"; TKRZW_DATABASES + 1]).contains("at most 200"));
        let words = [
            "--log_date",
            "w3cdtf",
            "--log_td",
            "-3600",
            "--ulog_max_file_size",
            "1Gi",
            "--repl_ts_from_dbm",
        ];
        let (plan, _) = read(&words).expect("it is right");
        let ignored = [
            "--log_date",
            "--log_td",
            "--ulog_max_file_size",
            "--repl_ts_from_dbm",
        ];
        assert_eq!(plan.ignored, ignored);
        let auth = "ssl:key=k,cert=c,root=r";
        let (_, settings) = read(&["--auth", auth, "--shutdown_wait", "0.5"]).expect("right");
        let files = (settings.tls_key, settings.tls_cert, settings.client_ca);
        assert_eq!(
            files,
            (Some("k".into()), Some("c".into()), Some("r".into()))
        );
        assert_eq!(settings.drain_timeout, Some(Span { ms: 500 }));
        let (_, settings) = read(&["--shutdown_wait", "-1"]).expect("it is right");
        assert_eq!(settings.drain_timeout, Some(Span { ms: 1 }));
    }

    /// Scripts write it so where a variable is not set.
    #[test]
    fn an_empty_text_is_the_same_as_no_flag() {
        let flags = [
            "auth",
            "repl_master",
            "ulog_prefix",
            "log_file",
            "pid_file",
            "repl_ts_file",
        ];
        let words = flags.map(|flag| format!("--{flag}="));
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let (plan, settings) = read(&words).expect("it is right");
        assert_eq!((settings.data, settings.tls_key), (None, None));
        assert!(!plan.databases[0].lasts && !plan.settings().has_update_log);
        assert_eq!((plan.log_file, plan.pid_file), (None, None));
        assert_eq!(plan.replication.timestamp_file, None);
    }

    /// As the original has it.
    #[test]
    fn extensions_classes_and_levels_are_known_in_any_case() {
        let (plan, settings) =
            read(&["--log_level", "WARN", "a.TKT", "#dbm=HASHdbm"]).expect("it is right");
        let databases = plan.settings().databases;
        let classes: Vec<_> = databases.iter().map(|one| one.class.name()).collect();
        assert_eq!(classes, ["TreeDBM", "HashDBM"]);
        let level = settings.log_level.map(|level| format!("{level:?}"));
        assert_eq!(level.as_deref(), Some("Warn"));
    }

    #[test]
    fn with_an_update_log_all_databases_last() {
        let (plan, settings) = read(&["--ulog_prefix", "x/ulog"]).expect("it is right");
        assert!(plan.databases[0].lasts && plan.settings().has_update_log);
        assert_eq!(plan.databases[0].name, "memory-0");
        assert_eq!(settings.data, Some("x/ulog.pelton".into()));
        let kept = Some(KeptAmount::Size(Size(TKRZW_KEEP_LOG_BYTES)));
        assert_eq!(settings.keep_log, kept);
        let words = [
            "--ulog_prefix",
            "u",
            "--keep-log",
            "1h",
            "#dbm=tiny",
            "a.tkh",
        ];
        let (plan, settings) = read(&words).expect("it is right");
        assert!(plan.databases.iter().all(|planned| planned.lasts));
        assert_eq!(settings.data, Some("a.tkh.pelton".into()));
        let age = Some(KeptAmount::Age(Span { ms: 3_600_000 }));
        assert_eq!(settings.keep_log, age);
        let words = [
            "--repl_master",
            "h:1",
            "--repl_ts_skew",
            "-5",
            "--server_id",
            "2",
        ];
        let (plan, settings) = read(&words).expect("it is right");
        let order = plan.replication.orders.order();
        assert_eq!((order.address.as_str(), order.skew_ms), ("h:1", -5));
        assert_eq!((plan.settings().server_id, settings.keep_log), (2, None));
    }

    #[test]
    fn what_ends_a_server_names_flags_that_it_has() {
        let listen = "; choose another port with --listen 127.0.0.1:1979";
        let tls = "no TLS: x; --tls-cert, --tls-key and --client-ca say which files";
        for (text, own) in [
            (
                listen,
                "; choose another port with --address 127.0.0.1:1979",
            ),
            (tls, "no TLS: x; --auth says which files"),
            (
                "a when --drain-timeout was over",
                "a when --shutdown_wait was over",
            ),
        ] {
            let failure = in_own_flags(Failure::Failed(text.into()));
            assert_eq!(failure.to_string(), own);
        }
    }

    /// Its content is somebody's data.
    #[test]
    fn a_file_of_the_original_is_never_opened() {
        let folder = std::env::temp_dir().join(format!("pelton-tkrzw-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("there is room");
        let path = folder.join("casket.tkh");
        fs::write(&path, b"content").expect("there is room");
        let text = path.display().to_string();
        let told = refused(&[&text]);
        for said in [&text, "HashDBM", "import"] {
            assert!(told.contains(said), "{told}");
        }
        let told = refused(&[&format!("{}#dbm=hash", folder.display())]);
        assert!(
            told.contains("is a folder") && !told.contains("a file of"),
            "{told}"
        );
        assert_eq!(fs::read(&path).expect("it is there"), b"content");
        // One that is several files, of whatever number, and what only has a name like one.
        let shard = folder.join("s.tkt-00000-of-00003");
        fs::write(&shard, b"content").expect("there is room");
        fs::write(folder.join("t.tkt-00000-of-x"), b"").expect("there is room");
        let of = |name: &str| folder.join(name).display().to_string();
        for parameters in ["", "#num_shards=0", "#num_shards=3", "#num_shards=2"] {
            let told = refused(&[&format!("{}{parameters}", of("s.tkt"))]);
            assert!(told.contains(&shard.display().to_string()), "{told}");
        }
        for other in ["t.tkt", "s.tkh", "new/s.tkt"] {
            read(&[&of(other)]).expect("nothing is there");
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
