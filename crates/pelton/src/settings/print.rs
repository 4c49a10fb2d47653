//! Settings as they are printed: a configuration file that says where each of them comes from.

use std::fmt;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::{Settings, SettingsFile};

/// Where a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSource {
    Flag,
    Environment,
    /// A variable of OpenTelemetry.
    Variable(&'static str),
    File,
    Default,
}

/// The text of a setting that may be left out.
pub(super) fn optional(value: &Option<impl fmt::Display>) -> Option<String> {
    (value.as_ref()).map(|value| format!("{:?}", value.to_string()))
}

/// The text of a setting that has one.
pub(super) fn text(value: &dyn fmt::Display) -> Option<String> {
    Some(format!("{:?}", value.to_string()))
}

/// The same of a file or folder that may be left out.
pub(super) fn path(path: &Option<PathBuf>) -> Option<String> {
    path.as_ref().and_then(|path| text(&path.display()))
}

/// A number, or whether something is so: without quotes.
fn number(value: &dyn fmt::Display) -> Option<String> {
    Some(value.to_string())
}

/// What may be a secret, so that it is not printed in a form that could be read back.
const HEADERS: &str = "otlp-header";

/// A name that is too long for its line.
const SERVER_NAME: &str = "follow-tls-server-name";

impl Settings {
    /// Name and value of every setting, as the file would say it; `None`: left to the kernel or to
    /// what is measured.
    pub fn lines(&self) -> Vec<(&'static str, Option<String>)> {
        let mut lines = self.lines_of_data();
        lines.extend(self.engine.lines());
        lines.extend(self.lines_of_service());
        lines.extend(self.lines_of_spans_and_log());
        lines
    }

    /// Those of spans and of the log.
    fn lines_of_spans_and_log(&self) -> [(&'static str, Option<String>); 9] {
        let list = |texts: Vec<String>| {
            let quoted = texts.iter().map(|text| format!("{text:?}"));
            let quoted: Vec<_> = quoted.collect();
            (!quoted.is_empty()).then(|| format!("[{}]", quoted.join(", ")))
        };
        let headers = self.otlp.headers.names().map(|name| format!("{name}=…"));
        let attributes = self.otlp.attributes.iter();
        let attributes = attributes.map(|(key, value)| format!("{key}={value}"));
        [
            ("otlp-endpoint", optional(&self.otlp.endpoint)),
            (
                "otlp-ca",
                optional(&self.otlp.ca.as_deref().map(Path::display)),
            ),
            (HEADERS, list(headers.collect())),
            (
                "otlp-header-file",
                optional(&self.otlp.header_file.as_deref().map(Path::display)),
            ),
            ("otlp-service-name", text(&self.otlp.service_name)),
            ("otlp-resource-attribute", list(attributes.collect())),
            ("otlp-sample", text(&self.otlp.sample)),
            ("log-format", text(&self.log_format)),
            ("log-level", text(&self.log_level)),
        ]
    }

    /// Those of listeners, and of what is kept where.
    fn lines_of_data(&self) -> Vec<(&'static str, Option<String>)> {
        let listen: Vec<_> = self
            .listen
            .iter()
            .map(|address| format!("{:?}", address.to_string()))
            .collect();
        vec![
            ("listen", Some(format!("[{}]", listen.join(", ")))),
            ("original-ports", optional(&self.original_ports)),
            ("tls-cert", path(&self.tls_cert)),
            ("tls-key", path(&self.tls_key)),
            ("client-ca", path(&self.client_ca)),
            ("client-auth", text(&self.client_auth)),
            ("tls-self-signed", path(&self.tls_self_signed)),
            ("init-admin", number(&self.init_admin)),
            ("init-admin-file", path(&self.init_admin_file)),
            ("admin-token-file", path(&self.admin_token_file)),
            ("data", optional(&self.folder().map(Path::display))),
            ("durability", text(&self.durability)),
            ("kind", optional(&self.kind)),
            ("log-segment", text(&self.log_segment)),
            ("keep-log", text(&self.keep_log)),
            ("replicas-acked", number(&self.replicas_acked)),
            ("replicas-acked-timeout", text(&self.replicas_acked_timeout)),
            ("disk-cache", text(&self.disk_cache)),
            ("follow", optional(&self.follow)),
            ("max-lag", optional(&self.max_lag)),
            ("follow-token-file", path(&self.follow_token_file)),
            ("follow-tls", number(&self.follow_tls)),
            ("follow-tls-ca", path(&self.follow_tls_ca)),
            ("follow-tls-cert", path(&self.follow_tls_cert)),
            ("follow-tls-key", path(&self.follow_tls_key)),
            (SERVER_NAME, optional(&self.follow_tls_server_name)),
            ("backup-root", path(&self.backup_root)),
            ("blob-quota", optional(&self.blob_quota)),
            ("keep-uploads", text(&self.keep_uploads)),
        ]
    }

    /// Those of sockets, threads, memory and services.
    fn lines_of_service(&self) -> Vec<(&'static str, Option<String>)> {
        let pin = (!self.pin.0.is_empty()).then_some(&self.pin);
        vec![
            ("driver", text(&self.driver)),
            ("threads", number(&self.threads)),
            ("pin", optional(&pin)),
            ("memory-limit", text(&self.memory_limit)),
            ("max-value", text(&self.max_value)),
            ("max-streams", number(&self.max_streams)),
            ("max-connections", number(&self.max_connections)),
            (
                "max-connections-per-address",
                number(&self.max_connections_per_address),
            ),
            ("limit-loopback", number(&self.limit_loopback)),
            ("tcp-send-buffer", optional(&self.tcp_send_buffer)),
            ("tcp-receive-buffer", optional(&self.tcp_receive_buffer)),
            ("stream-window", optional(&self.stream_window)),
            ("connection-window", optional(&self.connection_window)),
            ("drain-timeout", text(&self.drain_timeout)),
            ("write-stall-timeout", text(&self.write_stall_timeout)),
            ("unix-mode", text(&self.unix_mode)),
            ("interop", number(&self.interop)),
            ("kvstore-database", text(&self.kvstore_database)),
            ("simulate", optional(&self.simulate)),
            ("discard-uploads", number(&self.discard_uploads)),
            ("metrics-listen", optional(&self.metrics_listen)),
            ("slow-call", optional(&self.slow_call)),
            ("slow-call-keys", text(&self.slow_call_keys)),
        ]
    }

    /// Returns what differs from `other`: the name, the value here, and that of `other`.
    pub fn changes(&self, other: &Settings) -> Vec<(&'static str, String, String)> {
        let text = |value: Option<String>| value.unwrap_or_else(|| "not set".into());
        let (ours, theirs) = (self.lines().into_iter(), other.lines().into_iter());
        ours.zip(theirs)
            .filter(|(ours, theirs)| ours != theirs)
            .map(|((name, ours), (_, theirs))| (name, text(ours), text(theirs)))
            .collect()
    }

    /// All settings as a configuration file, each with its source as a comment.
    pub fn to_toml(&self, matches: &ArgMatches, file: &SettingsFile) -> String {
        let mut out = String::new();
        for (name, value) in self.lines() {
            let source = self.source(name, matches, file);
            let line = match value {
                Some(value) if name == HEADERS => format!("# {name} = {value}"),
                Some(value) => format!("{name} = {value}"),
                None => format!("# {name} is not set"),
            };
            writeln!(out, "{line:<50} # {source}").expect("a String takes what is written");
        }
        out
    }

    /// Where the setting `name` comes from.
    fn source(&self, name: &str, matches: &ArgMatches, file: &SettingsFile) -> SettingSource {
        let variable = self.otlp.by_variables.iter().find(|(one, _)| *one == name);
        match variable {
            Some((_, variable)) => SettingSource::Variable(variable),
            None => source(name, matches, file),
        }
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettingSource::Flag => "flag",
            SettingSource::Environment => "environment",
            SettingSource::Variable(name) => name,
            SettingSource::File => "file",
            SettingSource::Default => "default",
        })
    }
}

/// Where the setting `name` comes from, variables of OpenTelemetry aside.
fn source(name: &str, matches: &ArgMatches, file: &SettingsFile) -> SettingSource {
    match matches.value_source(&name.replace('-', "_")) {
        Some(ValueSource::CommandLine) => SettingSource::Flag,
        Some(ValueSource::EnvVariable) => SettingSource::Environment,
        _ if file.names.iter().any(|there| there == name) => SettingSource::File,
        _ => SettingSource::Default,
    }
}
