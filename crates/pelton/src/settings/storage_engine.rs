//! The storage engine that has the databases of a server, and what goes with it.

use std::path::PathBuf;

use super::print::{optional, path, text};
use super::{ABANDONED, ACKED_TIMEOUT, Settings, SettingsError};
use crate::arguments::{ContactAddresses, ServeArguments, StoreArgument, first_given};
use crate::durability::DurabilityArgument;
use crate::limits::{KEEP_LOG_BYTES, STORE_TIMEOUT_MAX_MS, STORE_TIMEOUT_MIN_MS};
use crate::size::{KeptAmount, Size, Span};

/// How long the engine has for a request by default.
const TIMEOUT: Span = Span {
    ms: store::remote::limits::TIMEOUT_MS,
};

/// Where the databases are, if not here.
#[derive(Clone, Debug)]
pub struct StorageEngineSettings {
    /// `None`: the databases are here.
    pub store: Option<StoreArgument>,
    /// Each as `HOST:PORT`.
    pub contacts: Vec<String>,
    pub keyspace: Option<String>,
    /// `None`: all are alike.
    pub datacenter: Option<String>,
    /// `None`: the nodes ask for none.
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    /// `None`: no TLS to the nodes.
    pub ca: Option<PathBuf>,
    pub timeout: Span,
}

impl StorageEngineSettings {
    /// Flags and environment over the file over the defaults.
    pub(super) fn resolve(strong: &ServeArguments, given: &ServeArguments) -> Self {
        macro_rules! pick {
            ($name:ident) => {
                strong.$name.clone().or_else(|| given.$name.clone())
            };
        }
        StorageEngineSettings {
            store: pick!(store),
            contacts: pick!(contact).map_or_else(Vec::new, ContactAddresses::all),
            keyspace: pick!(keyspace),
            datacenter: pick!(datacenter),
            user: pick!(store_user),
            password_file: pick!(store_password_file),
            ca: pick!(store_ca),
            timeout: pick!(store_timeout).unwrap_or(TIMEOUT),
        }
    }

    /// Name and value of each, as the file would say it.
    pub(super) fn lines(&self) -> [(&'static str, Option<String>); 8] {
        let contacts: Vec<_> = self.contacts.iter().map(|one| format!("{one:?}")).collect();
        let contacts = (!contacts.is_empty()).then(|| format!("[{}]", contacts.join(", ")));
        [
            ("store", optional(&self.store)),
            ("contact", contacts),
            ("keyspace", optional(&self.keyspace)),
            ("datacenter", optional(&self.datacenter)),
            ("store-user", optional(&self.user)),
            ("store-password-file", path(&self.password_file)),
            ("store-ca", path(&self.ca)),
            ("store-timeout", text(&self.timeout)),
        ]
    }

    /// The first setting of an engine that is given.
    fn first_of_engine(&self) -> Option<&'static str> {
        let given = [
            ("contact", !self.contacts.is_empty()),
            ("keyspace", self.keyspace.is_some()),
            ("datacenter", self.datacenter.is_some()),
            ("store-user", self.user.is_some()),
            ("store-password-file", self.password_file.is_some()),
            ("store-ca", self.ca.is_some()),
            ("store-timeout", self.timeout.ms != TIMEOUT.ms),
        ];
        first_given(given)
    }
}

impl Settings {
    /// Whether a server with a storage engine is told what it needs, and nothing that only a server
    /// with a data folder can do, and the other way round.
    pub(super) fn check_engine(&self) -> Result<(), SettingsError> {
        let wrong = |message: String| Err(SettingsError::Contradiction(message));
        let engine = &self.engine;
        let timeout_ms = engine.timeout.ms;
        if !(STORE_TIMEOUT_MIN_MS..=STORE_TIMEOUT_MAX_MS).contains(&timeout_ms) {
            return wrong("store-timeout must be 100ms to 5m".into());
        }
        let Some(store) = engine.store else {
            return match engine.first_of_engine() {
                Some(name) => wrong(format!(
                    "{name} is about a storage engine, and this server has none: write store = \
                     \"cassandra\" (--store cassandra), or leave {name} out"
                )),
                None => Ok(()),
            };
        };
        if engine.contacts.is_empty() {
            return wrong(format!(
                "store {store} needs contact, one or more nodes to begin with, such as db1:9042"
            ));
        }
        if engine.keyspace.is_none() {
            return wrong(format!(
                "store {store} needs keyspace, the one that `pelton store init` has made ready"
            ));
        }
        if engine.user.is_some() != engine.password_file.is_some() {
            return wrong("store-user and store-password-file go together: name both".into());
        }
        if let Some(name) = self.first_of_folder() {
            return wrong(format!(
                "{name} is about a data folder, and with store {store} this server has none: leave \
                 {name} out"
            ));
        }
        if let Some(name) = self.first_of_made_tokens() {
            return wrong(format!(
                "{name} makes a token that this server would forget at its end, as no data folder \
                 keeps it: give all servers on the keyspace the same by admin-token-file"
            ));
        }
        Ok(())
    }

    /// The first setting that has a meaning only with a data folder, and is not at its default:
    /// defaults stand in each file that was printed.
    fn first_of_folder(&self) -> Option<&'static str> {
        let kept_log = KeptAmount::Size(Size(KEEP_LOG_BYTES));
        first_given([
            ("data", self.data.is_some()),
            ("durability", self.durability != DurabilityArgument::Synced),
            ("kind", self.kind.is_some()),
            (
                "log-segment",
                self.log_segment.0 != wal::limits::SEGMENT_BYTES,
            ),
            ("keep-log", self.keep_log != kept_log),
            ("replicas-acked", self.replicas_acked != 0),
            (
                "replicas-acked-timeout",
                self.replicas_acked_timeout != ACKED_TIMEOUT,
            ),
            (
                "disk-cache",
                self.disk_cache.0 != store::tree::limits::CACHE_BYTES,
            ),
            ("follow", self.follow.is_some()),
            ("max-lag", self.max_lag.is_some()),
            ("follow-token-file", self.follow_token_file.is_some()),
            ("follow-tls", self.follow_tls),
            ("follow-tls-ca", self.follow_tls_ca.is_some()),
            ("follow-tls-cert", self.follow_tls_cert.is_some()),
            ("follow-tls-key", self.follow_tls_key.is_some()),
            (
                "follow-tls-server-name",
                self.follow_tls_server_name.is_some(),
            ),
            ("backup-root", self.backup_root.is_some()),
            ("blob-quota", self.blob_quota.is_some()),
            ("keep-uploads", self.keep_uploads != ABANDONED),
            ("accept-loss", self.accept_loss),
        ])
    }

    /// The first setting by which a token is made.
    fn first_of_made_tokens(&self) -> Option<&'static str> {
        first_given([
            ("init-admin", self.init_admin),
            ("init-admin-file", self.init_admin_file.is_some()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SettingsFile;

    const GATEWAY: &str = "store = 'cassandra'\ncontact = 'db1, db2:9043'\nkeyspace = 'pelton'\n";

    fn settings(text: &str) -> Result<Settings, String> {
        let file = SettingsFile::parse(text).expect(text);
        let settings = Settings::resolve(&ServeArguments::default(), &file);
        settings.map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_with_a_storage_engine_has_no_folder() {
        let settings = settings(GATEWAY).expect("valid");
        assert_eq!(settings.folder(), None);
        assert_eq!(settings.engine.contacts, ["db1:9042", "db2:9043"]);
        assert_eq!(settings.engine.timeout, Span { ms: 10_000 });
    }

    #[test]
    fn what_only_a_folder_can_do_is_refused_by_its_name() {
        for line in [
            "data = '/x'",
            "durability = 'volatile'",
            "kind = 'disk'",
            "log-segment = '1MiB'",
            "keep-log = 0",
            "replicas-acked = 1",
            "replicas-acked-timeout = '1s'",
            "disk-cache = '1MiB'",
            "follow = 'a:1'",
            "max-lag = '2s'",
            "follow-token-file = '/x'",
            "follow-tls = true",
            "backup-root = '/x'",
            "blob-quota = '1GiB'",
            "keep-uploads = '1h'",
        ] {
            let name = line.split(' ').next().expect("it has a name");
            let message = settings(&format!("{GATEWAY}{line}")).expect_err(line);
            let expected = format!("{name} is about a data folder, and with store cassandra");
            assert!(message.starts_with(&expected), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
        for line in ["init-admin = true", "init-admin-file = '/x'"] {
            let message = settings(&format!("{GATEWAY}{line}")).expect_err(line);
            assert!(
                message.contains("the same by admin-token-file"),
                "{message}"
            );
        }
        assert!(settings(&format!("{GATEWAY}admin-token-file = '/x'")).is_ok());
    }

    #[test]
    fn what_an_engine_needs_is_named() {
        for (text, expected) in [
            ("store = 'cassandra'", "store cassandra needs contact"),
            (
                "store = 'cassandra'\ncontact = 'a'",
                "store cassandra needs keyspace",
            ),
            (
                &format!("{GATEWAY}store-user = 'u'"),
                "go together: name both",
            ),
            (
                &format!("{GATEWAY}store-password-file = '/x'"),
                "go together: name both",
            ),
            (
                &format!("{GATEWAY}store-timeout = '99ms'"),
                "must be 100ms to 5m",
            ),
            (
                &format!("{GATEWAY}store-timeout = '6m'"),
                "must be 100ms to 5m",
            ),
            (&format!("{GATEWAY}store-ca = ''"), "store-ca is empty"),
        ] {
            let message = settings(text).expect_err(text);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn without_an_engine_its_settings_are_refused() {
        for line in [
            "contact = 'a'",
            "keyspace = 'a'",
            "datacenter = 'a'",
            "store-user = 'a'",
            "store-password-file = '/x'",
            "store-ca = '/x'",
            "store-timeout = '1s'",
        ] {
            let name = line.split(' ').next().expect("it has a name");
            let message = settings(line).expect_err(line);
            let expected = format!("{name} is about a storage engine, and this server has none");
            assert!(message.starts_with(&expected), "{message}");
        }
    }
}
