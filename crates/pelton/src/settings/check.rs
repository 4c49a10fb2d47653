//! Whether a server can run with its settings.

use std::path::PathBuf;

use net::Address;
use service::limits::FOLLOWERS_MAX;

use super::{Settings, SettingsError};
use crate::arguments::{ClientAuth, KindArgument, SlowCallKeysArgument};
use crate::durability::DurabilityArgument;
use crate::limits::{
    COUNT_SETTING_MAX, DISK_CACHE_MAX_BYTES, DISK_CACHE_MIN_BYTES, LOG_SEGMENT_MAX_BYTES,
    LOG_SEGMENT_MIN_BYTES, MAX_LAG_MAX_MS, MAX_LAG_MIN_MS, MEMORY_LIMIT_MAX_BYTES,
    MEMORY_LIMIT_MIN_BYTES, REPLICAS_ACKED_TIMEOUT_MAX_MS, REPLICAS_ACKED_TIMEOUT_MIN_MS,
    TCP_BUFFER_MAX_BYTES, TCP_BUFFER_MIN_BYTES, WINDOW_MAX_BYTES, WINDOW_MIN_BYTES,
};
use crate::listen::{ListenAddress, OriginalPorts};
use crate::size::{MemoryLimit, Size};

impl Settings {
    /// Whether there can be such a default database.
    fn check_kind(&self) -> Result<(), SettingsError> {
        if self.kind != Some(KindArgument::Disk) || self.durability != DurabilityArgument::Volatile
        {
            return Ok(());
        }
        Err(SettingsError::OutOfRange {
            name: "kind",
            value: "disk".into(),
            allowed: "with durability volatile write memory, or choose another durability".into(),
        })
    }

    /// Whether what is to be logged of slow calls is of any that are logged.
    fn check_slow_calls(&self) -> Result<(), SettingsError> {
        match (self.slow_call, self.slow_call_keys) {
            // The default: a file that was printed has it in any case.
            (Some(_), _) | (None, SlowCallKeysArgument::Length) => Ok(()),
            (None, _) => Err(SettingsError::Contradiction(
                "slow-call-keys says what is logged of slow calls, and slow-call is not given, so \
                 that none is logged: write slow-call with a time such as 100ms, or leave both out"
                    .into(),
            )),
        }
    }

    /// Whether backups have a folder of their own: the data folder is the server's alone.
    fn check_backup_root(&self) -> Result<(), SettingsError> {
        match (self.folder(), &self.backup_root) {
            (Some(data), Some(root)) if root.starts_with(data) => {
                Err(SettingsError::Contradiction(
                    "backup-root is the data folder or in it, and nothing but data may be there: \
                     name another folder"
                        .into(),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Whether each address is there once: the server would find its own socket in the way, and say
    /// that another process listens there.
    fn check_addresses(&self) -> Result<(), SettingsError> {
        let named = |setting: &'static str, one: &ListenAddress| (setting, one.address.clone());
        let listen = self.listen.iter().map(|one| named("listen", one));
        let original = (self.original_ports.iter()).flat_map(OriginalPorts::addresses);
        let original = original.map(|one| named("original-ports", &one));
        let metrics = self.metrics_listen.iter().map(|one| {
            let (host, port) = (one.host.clone(), one.port);
            ("metrics-listen", Address::Tcp { host, port })
        });
        let all: Vec<_> = listen.chain(original).chain(metrics).collect();
        let is_any_port = |address: &Address| matches!(address, Address::Tcp { port: 0, .. });
        for (place, (setting, address)) in all.iter().enumerate() {
            let mut before = all[..place].iter();
            if let Some((other, _)) = before.find(|(_, other)| other == address)
                && !is_any_port(address)
            {
                return Err(SettingsError::Contradiction(format!(
                    "{setting} and {other} both name {address}: an address can be used once"
                )));
            }
        }
        Ok(())
    }

    /// Whether each path names something: the configuration file can have an empty text.
    fn check_paths(&self) -> Result<(), SettingsError> {
        let paths = [
            ("data", &self.data),
            ("backup-root", &self.backup_root),
            ("follow-token-file", &self.follow_token_file),
            ("follow-tls-ca", &self.follow_tls_ca),
            ("follow-tls-cert", &self.follow_tls_cert),
            ("follow-tls-key", &self.follow_tls_key),
            ("tls-cert", &self.tls_cert),
            ("tls-key", &self.tls_key),
            ("tls-self-signed", &self.tls_self_signed),
            ("client-ca", &self.client_ca),
            ("init-admin-file", &self.init_admin_file),
            ("admin-token-file", &self.admin_token_file),
            ("otlp-ca", &self.otlp.ca),
            ("otlp-header-file", &self.otlp.header_file),
            ("store-password-file", &self.engine.password_file),
            ("store-ca", &self.engine.ca),
        ];
        let is_empty = |path: &Option<PathBuf>| {
            (path.as_ref()).is_some_and(|path| path.as_os_str().is_empty())
        };
        match paths.into_iter().find(|(_, path)| is_empty(path)) {
            Some((name, _)) => Err(SettingsError::OutOfRange {
                name,
                value: "empty".into(),
                allowed: "write a path, or leave the setting out".into(),
            }),
            None => Ok(()),
        }
    }

    /// Whether the first administrator's token has one source, or none.
    fn check_init_admin(&self) -> Result<(), SettingsError> {
        match (&self.init_admin_file, &self.admin_token_file) {
            (Some(_), Some(_)) => Err(SettingsError::Contradiction(
                "admin-token-file gives the administrator's token, and init-admin-file has one \
                 made: take one of the two"
                    .into(),
            )),
            _ => Ok(()),
        }
    }

    /// Whether there can be what commits are to wait for.
    fn check_replicas_acked(&self) -> Result<(), SettingsError> {
        let wrong = |message: &str| Err(SettingsError::Contradiction(message.into()));
        let replicas = self.replicas_acked as u64;
        between_counts("replicas-acked", replicas, 0, FOLLOWERS_MAX as u64)?;
        let timeout_ms = self.replicas_acked_timeout.ms;
        if !(REPLICAS_ACKED_TIMEOUT_MIN_MS..=REPLICAS_ACKED_TIMEOUT_MAX_MS).contains(&timeout_ms) {
            return wrong("replicas-acked-timeout must be 10ms to 10m");
        }
        if self.replicas_acked == 0 {
            return Ok(());
        }
        if self.folder().is_none() {
            return wrong(
                "replicas-acked needs a data folder, as replicas follow the log in it: name one \
                 with data, or leave replicas-acked out",
            );
        }
        Ok(())
    }

    /// Whom a replica follows.
    fn follow_address(&self) -> Option<&Address> {
        self.follow.as_ref().map(|follow| &follow.0)
    }

    /// Whether a replica is told nothing that its leader decides.
    fn check_follow(&self) -> Result<(), SettingsError> {
        let wrong = |message: &str| Err(SettingsError::Contradiction(message.into()));
        if self.follow_tls_cert.is_some() != self.follow_tls_key.is_some() {
            return wrong("follow-tls-cert and follow-tls-key go together: name both");
        }
        if let Some(max_lag) = self.max_lag
            && !(MAX_LAG_MIN_MS..=MAX_LAG_MAX_MS).contains(&max_lag.ms)
        {
            return wrong("max-lag must be 1s to 1d");
        }
        if self.follow.is_none() {
            return match self.max_lag {
                None => Ok(()),
                Some(_) => wrong(
                    "max-lag is about a replica, and this server follows nobody: name its leader \
                     with follow, or leave max-lag out",
                ),
            };
        }
        if self.durability == DurabilityArgument::Volatile {
            return wrong("follow needs a data folder, and durability is volatile: leave it out");
        }
        let is_own = |listen: &ListenAddress| Some(&listen.address) == self.follow_address();
        if self.addresses().iter().any(is_own) {
            return wrong(
                "follow names this server itself, as listen has the same address: name the \
                 leader with follow, or listen elsewhere",
            );
        }
        if self.kind.is_some() {
            return wrong(
                "follow makes the default database what that of the leader is: leave kind out",
            );
        }
        if self.accept_loss {
            return wrong(
                "follow gets everything from the leader: instead of accept-loss move the data \
                 folder away, and a new copy is taken",
            );
        }
        if self.init_admin || self.init_admin_file.is_some() || self.admin_token_file.is_some() {
            return wrong(
                "follow gets the tokens of the leader, and makes none: leave init-admin, \
                 init-admin-file and admin-token-file out",
            );
        }
        Ok(())
    }

    /// Whether what is said about TLS makes sense together.
    fn check_tls(&self) -> Result<(), SettingsError> {
        let wrong = |message: &str| Err(SettingsError::Contradiction(message.into()));
        match (&self.tls_cert, &self.tls_key, &self.tls_self_signed) {
            (Some(_), None, _) => {
                return wrong("tls-cert needs tls-key, the private key of that certificate");
            }
            (None, Some(_), _) => {
                return wrong("tls-key needs tls-cert, the certificate of that key");
            }
            (Some(_), _, Some(_)) => {
                return wrong(
                    "tls-self-signed makes a certificate, and tls-cert names one: take one of the \
                     two",
                );
            }
            _ => {}
        }
        let has_certificate = self.certificate().is_some();
        if !has_certificate && let Some(listen) = self.listen.iter().find(|one| one.asks_for_tls())
        {
            return wrong(&format!(
                "listen has {listen}, and there is no certificate: tls-cert and tls-key name one, \
                 tls-self-signed makes one"
            ));
        }
        if !has_certificate && self.client_ca.is_some() {
            return wrong(
                "client-ca needs TLS: tls-cert and tls-key name a certificate of the server",
            );
        }
        if self.client_ca.is_none() && self.client_auth == ClientAuth::Optional {
            return wrong(
                "client-auth needs client-ca, which names the authorities of the clients",
            );
        }
        if has_certificate && !self.addresses().iter().any(|one| one.has_tls(true)) {
            return wrong(
                "there is a certificate, and no address in listen with TLS: write host:port \
                 without plain: in front",
            );
        }
        Ok(())
    }

    /// Whether a server can run with all of it.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        if self.listen.is_empty() {
            let allowed = "write at least one address, such as 127.0.0.1:1978".into();
            return Err(SettingsError::OutOfRange {
                name: "listen",
                value: "empty".into(),
                allowed,
            });
        }
        self.check_paths()?;
        self.check_engine()?;
        self.check_addresses()?;
        self.check_tls()?;
        self.check_kind()?;
        self.check_backup_root()?;
        self.check_slow_calls()?;
        self.otlp.check()?;
        self.check_init_admin()?;
        self.check_follow()?;
        self.check_replicas_acked()?;
        self.check_ranges()
    }

    /// Whether numbers and sizes are within their bounds.
    fn check_ranges(&self) -> Result<(), SettingsError> {
        between_counts(
            "threads",
            self.threads as u64,
            1,
            net::limits::MAX_THREADS as u64,
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
            LOG_SEGMENT_MIN_BYTES,
            LOG_SEGMENT_MAX_BYTES,
        )?;
        between(
            "disk-cache",
            self.disk_cache.0,
            DISK_CACHE_MIN_BYTES,
            DISK_CACHE_MAX_BYTES,
        )?;
        let counts = [
            ("max-streams", u64::from(self.max_streams), 1),
            ("max-connections", self.max_connections as u64, 1),
            (
                "max-connections-per-address",
                self.max_connections_per_address as u64,
                0,
            ),
        ];
        for (name, count, least) in counts {
            between_counts(name, count, least, COUNT_SETTING_MAX)?;
        }
        if let MemoryLimit::Bytes(size) = self.memory_limit {
            between(
                "memory-limit",
                size.0,
                MEMORY_LIMIT_MIN_BYTES,
                MEMORY_LIMIT_MAX_BYTES,
            )?;
        }
        let buffers = [
            ("tcp-send-buffer", self.tcp_send_buffer),
            ("tcp-receive-buffer", self.tcp_receive_buffer),
        ];
        for (name, size) in buffers {
            size.map_or(Ok(()), |size| {
                between(name, size.0, TCP_BUFFER_MIN_BYTES, TCP_BUFFER_MAX_BYTES)
            })?;
        }
        let windows = [
            ("stream-window", self.stream_window),
            ("connection-window", self.connection_window),
        ];
        for (name, size) in windows {
            size.map_or(Ok(()), |size| {
                between(name, size.0, WINDOW_MIN_BYTES, WINDOW_MAX_BYTES)
            })?;
        }
        Ok(())
    }
}

fn out_of_range(
    name: &'static str,
    value: String,
    least: &str,
    most: &str,
) -> Result<(), SettingsError> {
    Err(SettingsError::OutOfRange {
        name,
        value,
        allowed: format!("write {least} to {most}"),
    })
}

/// Checks a number of bytes.
fn between(name: &'static str, value: u64, least: u64, most: u64) -> Result<(), SettingsError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let text = |bytes| Size(bytes).to_string();
    out_of_range(name, text(value), &text(least), &text(most))
}

/// Checks a number of things, not of bytes.
fn between_counts(
    name: &'static str,
    value: u64,
    least: u64,
    most: u64,
) -> Result<(), SettingsError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    out_of_range(
        name,
        value.to_string(),
        &least.to_string(),
        &most.to_string(),
    )
}
