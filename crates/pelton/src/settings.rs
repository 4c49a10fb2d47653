//! The settings that a server runs with: flags over environment over file over defaults, checked as a whole.

use std::fmt;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;
use drive::Address;

use crate::arguments::{CpuList, Driver, LogFormat, LogLevel, ServeArguments, UnixMode};
use crate::durability::Durability;
use crate::metrics::MetricsAddress;
use crate::size::{MemoryLimit, Size, Span};

/// The port that Pelton listens on unless told otherwise: the year in which Pelton wheels had been around for a century.
pub const DEFAULT_PORT: u16 = 1978;

/// The data folder unless told otherwise, in the folder in which the server is started.
pub const DEFAULT_FOLDER: &str = "pelton-data";

/// Share of the memory this process may use that keys and values may take by default, in percent. The rest is for
/// connections, for the allocator's slack, and for whatever else runs there.
const MEMORY_SHARE_PERCENT: u8 = 70;

/// Least memory limit that makes sense: below it not even the tables of an empty server would fit.
const MEMORY_LIMIT_MIN: u64 = 1 << 20;

/// Largest window of HTTP/2 (RFC 9113 section 6.9.1: 2^31-1 octets).
const WINDOW_MAX: u64 = (1 << 31) - 1;

/// Smallest window that can be chosen: HTTP/2's own initial one. A smaller one would only slow clients down.
const WINDOW_MIN: u64 = 65_535;

/// Smallest file of the log that can be chosen: each change to the next one costs a sync or two.
const LOG_SEGMENT_MIN: u64 = 64 * 1024;

/// Largest file of the log that can be chosen: it is filled with zeros at the first start, before anything is answered.
const LOG_SEGMENT_MAX: u64 = 1 << 30;

/// What a server runs with. Every value is checked.
#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: Vec<Address>,
    /// `None`: no folder was named.
    pub data: Option<PathBuf>,
    pub durability: Durability,
    pub log_segment: Size,
    /// `None`: backups are refused.
    pub backup_root: Option<PathBuf>,
    pub accept_loss: bool,
    pub driver: Driver,
    pub threads: usize,
    pub pin: CpuList,
    pub memory_limit: MemoryLimit,
    pub max_value: Size,
    pub max_streams: u32,
    pub max_connections: usize,
    pub tcp_send_buffer: Option<Size>,
    pub tcp_receive_buffer: Option<Size>,
    pub stream_window: Option<Size>,
    pub connection_window: Option<Size>,
    pub drain_timeout: Span,
    pub write_stall_timeout: Span,
    pub unix_mode: UnixMode,
    pub interop: bool,
    /// `None`: no metrics are served.
    pub metrics_listen: Option<MetricsAddress>,
    pub log_format: LogFormat,
    pub log_level: LogLevel,
}

/// Where a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Flag,
    Environment,
    File,
    Default,
}

/// Why there are no settings to run with. Each names the file or the flag and says what is right.
#[derive(Debug)]
pub enum SettingsError {
    /// The configuration file cannot be read.
    Unreadable {
        path: PathBuf,
        error: std::io::Error,
    },
    /// The configuration file is not what it should be.
    BadFile { path: PathBuf, message: String },
    /// A setting has a value that no server can run with.
    OutOfRange {
        name: &'static str,
        value: String,
        allowed: String,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::Unreadable { path, error } => {
                write!(
                    f,
                    "cannot read the configuration file {}: {error}",
                    path.display()
                )
            }
            SettingsError::BadFile { path, message } => {
                write!(
                    f,
                    "the configuration file {} is wrong: {}",
                    path.display(),
                    message.trim_end()
                )
            }
            SettingsError::OutOfRange {
                name,
                value,
                allowed,
            } => {
                write!(
                    f,
                    "{name} is {value}, which is not possible: {allowed} (see pelton serve --help)"
                )
            }
        }
    }
}

impl std::error::Error for SettingsError {}

/// What the configuration file says.
#[derive(Debug, Default)]
pub struct SettingsFile {
    arguments: ServeArguments,
    /// The names that stand in it, to tell what comes from where.
    names: Vec<String>,
}

impl SettingsFile {
    /// Reads the file that the arguments name; without one it says nothing.
    fn read(arguments: &ServeArguments) -> Result<SettingsFile, SettingsError> {
        let Some(path) = &arguments.config else {
            return Ok(SettingsFile::default());
        };
        let text = fs::read_to_string(path).map_err(|error| SettingsError::Unreadable {
            path: path.clone(),
            error,
        })?;
        SettingsFile::parse(&text).map_err(|error| SettingsError::BadFile {
            path: path.clone(),
            message: error.to_string(),
        })
    }

    fn parse(text: &str) -> Result<SettingsFile, toml::de::Error> {
        let arguments = toml::from_str(text)?;
        let names = toml::from_str::<toml::Table>(text)?
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        Ok(SettingsFile { arguments, names })
    }
}

impl Settings {
    /// The settings that the arguments and the file they name make together, and that file.
    pub fn load(arguments: &ServeArguments) -> Result<(Settings, SettingsFile), SettingsError> {
        let file = SettingsFile::read(arguments)?;
        let settings = Settings::resolve(arguments, &file)?;
        Ok((settings, file))
    }

    /// Flags and environment (which clap has put in order) over the file over the defaults.
    fn resolve(strong: &ServeArguments, file: &SettingsFile) -> Result<Settings, SettingsError> {
        macro_rules! pick {
            ($name:ident) => {
                strong
                    .$name
                    .clone()
                    .or_else(|| file.arguments.$name.clone())
            };
        }
        let loops = drive::LoopConfig::default();
        let driver = pick!(driver).unwrap_or(Driver::EventLoop);
        let default_listen = || {
            vec![Address::Tcp {
                host: "127.0.0.1".into(),
                port: DEFAULT_PORT,
            }]
        };
        let settings = Settings {
            listen: pick!(listen).unwrap_or_else(default_listen),
            data: pick!(data),
            durability: pick!(durability).unwrap_or(Durability::Synced),
            log_segment: pick!(log_segment).unwrap_or(Size(store::log::limits::SEGMENT_BYTES)),
            backup_root: pick!(backup_root),
            accept_loss: strong.accept_loss,
            driver,
            threads: pick!(threads).unwrap_or(match driver {
                Driver::EventLoop => loops.threads,
                Driver::Blocking => drive::limits::BLOCKING_THREADS,
            }),
            pin: pick!(pin).unwrap_or_default(),
            memory_limit: pick!(memory_limit).unwrap_or(MemoryLimit::Percent(MEMORY_SHARE_PERCENT)),
            max_value: pick!(max_value).unwrap_or(Size(store::limits::VALUE_BYTES as u64)),
            max_streams: pick!(max_streams).unwrap_or(wire::limits::MAX_STREAMS),
            max_connections: pick!(max_connections).unwrap_or(loops.max_connections),
            tcp_send_buffer: pick!(tcp_send_buffer),
            tcp_receive_buffer: pick!(tcp_receive_buffer),
            stream_window: pick!(stream_window),
            connection_window: pick!(connection_window),
            drain_timeout: pick!(drain_timeout).unwrap_or(Span { ms: loops.drain_ms }),
            write_stall_timeout: pick!(write_stall_timeout).unwrap_or(Span {
                ms: loops.write_stall_ms,
            }),
            unix_mode: pick!(unix_mode).unwrap_or(UnixMode(loops.unix_mode)),
            interop: pick!(interop).unwrap_or(false),
            metrics_listen: pick!(metrics_listen),
            log_format: pick!(log_format).unwrap_or(LogFormat::Text),
            log_level: pick!(log_level).unwrap_or(LogLevel::Info),
        };
        settings.check()?;
        Ok(settings)
    }

    /// The folder for what lasts; `None`: nothing does.
    pub fn folder(&self) -> Option<&Path> {
        match &self.data {
            Some(folder) => Some(folder),
            None if self.durability == Durability::Volatile => None,
            None => Some(Path::new(DEFAULT_FOLDER)),
        }
    }

    fn check(&self) -> Result<(), SettingsError> {
        let between = |name, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let (value, least, most) = (Size(value).to_string(), Size(least), Size(most));
            Err(SettingsError::OutOfRange {
                name,
                value,
                allowed: format!("write {least} to {most}"),
            })
        };
        if self.listen.is_empty() {
            let allowed = "write at least one address, such as 127.0.0.1:1978".into();
            return Err(SettingsError::OutOfRange {
                name: "listen",
                value: "empty".into(),
                allowed,
            });
        }
        between(
            "threads",
            self.threads as u64,
            1,
            drive::limits::MAX_THREADS as u64,
        )?;
        between(
            "max-value",
            self.max_value.0,
            1,
            store::limits::VALUE_BYTES_MAX as u64,
        )?;
        between(
            "log-segment",
            self.log_segment.0,
            LOG_SEGMENT_MIN,
            LOG_SEGMENT_MAX,
        )?;
        between("max-streams", u64::from(self.max_streams), 1, 1 << 20)?;
        between("max-connections", self.max_connections as u64, 1, 1 << 20)?;
        if let MemoryLimit::Bytes(size) = self.memory_limit {
            between("memory-limit", size.0, MEMORY_LIMIT_MIN, 1 << 50)?;
        }
        let buffers = [
            ("tcp-send-buffer", self.tcp_send_buffer),
            ("tcp-receive-buffer", self.tcp_receive_buffer),
        ];
        for (name, size) in buffers {
            size.map_or(Ok(()), |size| between(name, size.0, 1 << 12, 1 << 30))?;
        }
        let windows = [
            ("stream-window", self.stream_window),
            ("connection-window", self.connection_window),
        ];
        for (name, size) in windows {
            size.map_or(Ok(()), |size| between(name, size.0, WINDOW_MIN, WINDOW_MAX))?;
        }
        Ok(())
    }

    /// Name and value of every setting, as the file would say it; `None`: left to the kernel or to what is measured.
    fn lines(&self) -> Vec<(&'static str, Option<String>)> {
        let text = |value: &dyn fmt::Display| Some(format!("{:?}", value.to_string()));
        let number = |value: &dyn fmt::Display| Some(value.to_string());
        let size = |size: Option<Size>| size.and_then(|size| text(&size));
        let listen: Vec<_> = self
            .listen
            .iter()
            .map(|address| format!("{:?}", address.to_string()))
            .collect();
        vec![
            ("listen", Some(format!("[{}]", listen.join(", ")))),
            (
                "data",
                self.folder().and_then(|folder| text(&folder.display())),
            ),
            ("durability", text(&self.durability)),
            ("log-segment", text(&self.log_segment)),
            (
                "backup-root",
                self.backup_root
                    .as_ref()
                    .and_then(|folder| text(&folder.display())),
            ),
            ("driver", text(&self.driver)),
            ("threads", number(&self.threads)),
            (
                "pin",
                if self.pin.0.is_empty() {
                    None
                } else {
                    text(&self.pin)
                },
            ),
            ("memory-limit", text(&self.memory_limit)),
            ("max-value", text(&self.max_value)),
            ("max-streams", number(&self.max_streams)),
            ("max-connections", number(&self.max_connections)),
            ("tcp-send-buffer", size(self.tcp_send_buffer)),
            ("tcp-receive-buffer", size(self.tcp_receive_buffer)),
            ("stream-window", size(self.stream_window)),
            ("connection-window", size(self.connection_window)),
            ("drain-timeout", text(&self.drain_timeout)),
            ("write-stall-timeout", text(&self.write_stall_timeout)),
            ("unix-mode", text(&self.unix_mode)),
            ("interop", number(&self.interop)),
            (
                "metrics-listen",
                self.metrics_listen
                    .as_ref()
                    .and_then(|address| text(address)),
            ),
            ("log-format", text(&self.log_format)),
            ("log-level", text(&self.log_level)),
        ]
    }

    /// All settings as a configuration file, each with its source as a comment.
    pub fn to_toml(&self, matches: &ArgMatches, file: &SettingsFile) -> String {
        let mut out = String::new();
        for (name, value) in self.lines() {
            let source = source(name, matches, file);
            let line = match value {
                Some(value) => format!("{name} = {value}"),
                None => format!("# {name} is not set"),
            };
            writeln!(out, "{line:<50} # {source}").expect("a String takes what is written");
        }
        out
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Flag => "flag",
            Source::Environment => "environment",
            Source::File => "file",
            Source::Default => "default",
        })
    }
}

/// Where the setting `name` comes from.
fn source(name: &str, matches: &ArgMatches, file: &SettingsFile) -> Source {
    match matches.value_source(&name.replace('-', "_")) {
        Some(ValueSource::CommandLine) => Source::Flag,
        Some(ValueSource::EnvVariable) => Source::Environment,
        _ if file.names.iter().any(|there| there == name) => Source::File,
        _ => Source::Default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::CommandFactory;

    fn file(text: &str) -> SettingsFile {
        SettingsFile::parse(text).expect(text)
    }

    #[test]
    fn flags_are_stronger_than_the_file() {
        let flags = ServeArguments {
            threads: Some(3),
            ..ServeArguments::default()
        };
        let settings =
            Settings::resolve(&flags, &file("threads = 2\nmax-streams = 7")).expect("valid");
        assert_eq!((settings.threads, settings.max_streams), (3, 7));
        assert_eq!(
            settings.max_connections,
            drive::limits::MAX_CONNECTIONS,
            "untouched: the default"
        );
    }

    #[test]
    fn the_file_takes_numbers_and_texts() {
        let text = r#"
            listen = ["127.0.0.1:0", "unix:/run/x.sock"]
            memory-limit = 1073741824
            max-value = "2MiB"
            pin = "0,1"
            interop = true
            drain-timeout = "3s"
            log-level = "debug"
        "#;
        let settings = Settings::resolve(&ServeArguments::default(), &file(text)).expect("valid");
        assert_eq!(settings.listen.len(), 2);
        assert_eq!(settings.memory_limit, MemoryLimit::Bytes(Size(1 << 30)));
        assert_eq!(settings.max_value, Size(2 << 20));
        assert_eq!(settings.pin.0, [0, 1]);
        assert!(settings.interop);
        assert_eq!(settings.drain_timeout.ms, 3_000);
        assert_eq!(settings.log_level, LogLevel::Debug);
        let one = file("listen = 'localhost:1'");
        assert_eq!(
            one.arguments.listen.map(|list| list.len()),
            Some(1),
            "one address needs no list"
        );
    }

    #[test]
    fn where_data_are_kept() {
        let folder = |text: &str| {
            let settings = Settings::resolve(&ServeArguments::default(), &file(text));
            let folder = settings.expect(text).folder().map(Path::to_owned);
            folder.map(|folder| folder.display().to_string())
        };
        assert_eq!(folder("").as_deref(), Some("pelton-data"));
        assert_eq!(folder("data = '/x'").as_deref(), Some("/x"));
        assert_eq!(folder("durability = 'volatile'"), None);
        assert_eq!(
            folder("durability = 'volatile'\ndata = 'y'").as_deref(),
            Some("y"),
            "for the other databases"
        );
    }

    #[test]
    fn a_wrong_file_is_explained() {
        for (text, expected) in [
            ("thread = 3", "unknown field `thread`"),
            ("threads = 'many'", "threads = 'many'"),
            ("max-value = '4G'", "4GiB"),
            ("listen = ['nowhere']", "write host:port"),
            ("memory-limit = true", "a text or a number"),
            ("drain-timeout = 10", "10s"),
            ("threads = ", "line 1"),
            ("durability = 'fast'", "interval=100ms"),
        ] {
            let message = SettingsFile::parse(text).expect_err(text).to_string();
            assert!(
                message.contains(expected),
                "{text}: {expected:?} is missing in\n{message}"
            );
        }
    }

    #[test]
    fn what_no_server_can_run_with_is_refused() {
        for (text, expected) in [
            ("threads = 0", "threads is 0"),
            ("listen = []", "at least one address"),
            ("max-value = '2GiB'", "write 1 to 1GiB"),
            ("max-streams = 0", "max-streams"),
            ("max-connections = 0", "max-connections"),
            ("memory-limit = '1KiB'", "memory-limit"),
            ("stream-window = 1", "stream-window"),
            ("log-segment = 1", "log-segment is 1"),
            ("log-segment = '2GiB'", "write 64KiB to 1GiB"),
            ("connection-window = '4GiB'", "connection-window"),
            ("tcp-send-buffer = 1", "tcp-send-buffer"),
        ] {
            let error = Settings::resolve(&ServeArguments::default(), &file(text)).expect_err(text);
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
    }

    /// Nearly every flag of `serve` is a setting, and is printed under its own name.
    #[test]
    fn what_is_printed_is_what_there_is() {
        let settings = Settings::resolve(&ServeArguments::default(), &file("")).expect("valid");
        let printed: Vec<&str> = settings.lines().iter().map(|(name, _)| *name).collect();
        let command = Arguments::command();
        let serve = command
            .find_subcommand("serve")
            .expect("serve is a command");
        let flags: Vec<&str> = serve
            .get_arguments()
            .filter_map(|argument| argument.get_long())
            .collect();
        // What concerns a single start only is no setting.
        let is_setting = |name: &&str| !["config", "accept-loss"].contains(name);
        let flags: Vec<&str> = flags.into_iter().filter(is_setting).collect();
        assert_eq!(printed, flags);
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let text = "threads = 5\nmax-value = '3MiB'\npin = '0-2'\ntcp-send-buffer = '64KiB'";
        let before = Settings::resolve(&ServeArguments::default(), &file(text)).expect("valid");
        let matches = Arguments::command()
            .try_get_matches_from(["pelton", "config", "print"])
            .expect("valid");
        let matches = matches
            .subcommand()
            .and_then(|(_, config)| config.subcommand())
            .expect("print")
            .1;
        let printed = before.to_toml(matches, &file(text));
        let after = Settings::resolve(&ServeArguments::default(), &file(&printed)).expect("valid");
        assert_eq!(before.lines(), after.lines());
        let line = |name: &str| {
            printed
                .lines()
                .find(|line| line.starts_with(name))
                .expect("printed")
        };
        assert!(line("threads").ends_with("# file"), "{printed}");
        assert!(line("max-streams").ends_with("# default"), "{printed}");
    }
}
