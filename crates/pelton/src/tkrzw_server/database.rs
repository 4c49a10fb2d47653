//! A database as tkrzw_server's command line names it: `path#name=value,…`.

use std::fs;
use std::path::Path;

use service::settings::tkrzw::DatabaseClass;
use store::{DatabaseId, Store};

use crate::durability::Durability;

/// Values of `record_comp_mode` that encrypt.
const ENCRYPTIONS: [&str; 2] = ["rc4", "aes"];

/// A database that is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedDatabase {
    /// Empty: it is in memory.
    pub(super) path: String,
    pub(super) class: DatabaseClass,
    /// Of the database that holds its records; empty: the default one.
    pub(super) name: String,
    /// Whether it is there after the server has ended.
    pub(super) lasts: bool,
    /// Parameters that have no effect.
    pub(super) ignored: Vec<String>,
    shards: Option<u32>,
}

impl PlannedDatabase {
    /// Reads a text.
    ///
    /// # Errors
    /// If there is no such class, or its content would be encrypted.
    pub(super) fn parse(text: &str) -> Result<PlannedDatabase, String> {
        let (path, parameters) = text.split_once('#').unwrap_or((text, ""));
        let (mut class, mut ignored, mut shards) = (None, Vec::new(), None);
        for parameter in parameters.split(',').filter(|one| !one.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "dbm" => {
                    let found = DatabaseClass::of_name(value);
                    class = Some(found.ok_or_else(|| unknown_class(text))?);
                    continue;
                }
                "record_comp_mode" if ENCRYPTIONS.contains(&value) => {
                    return Err(format!(
                        "{text}: this server does not encrypt what it keeps; leave {parameter} \
                         out, and encrypt the device or the file system"
                    ));
                }
                "num_shards" => shards = value.parse().ok(),
                _ => {}
            }
            ignored.push(format!("{path}#{name}"));
        }
        let extension = Path::new(path).extension().and_then(|one| one.to_str());
        let of_path = || match path {
            "" => Some(DatabaseClass::Tiny),
            _ => extension.and_then(DatabaseClass::of_extension),
        };
        let class = class.or_else(of_path);
        Ok(PlannedDatabase {
            path: path.to_owned(),
            class: class.ok_or_else(|| unknown_class(text))?,
            name: String::new(),
            lasts: false,
            ignored,
            shards,
        })
    }

    /// Refuses a path at which something is: a file of the original is never opened.
    pub(super) fn check_path(&self) -> Result<(), String> {
        if self.path.is_empty() {
            return Ok(());
        }
        let shard = self
            .shards
            .map(|count| format!("{}-00000-of-{count:05}", self.path));
        let mut paths = [Some(self.path.clone()), shard].into_iter().flatten();
        let Some(path) = paths.find(|path| fs::symlink_metadata(path).is_ok()) else {
            return Ok(());
        };
        let is_folder = fs::metadata(&path).is_ok_and(|found| found.is_dir());
        let class = self.class.name();
        Err(match is_folder {
            true => format!(
                "{path} is a folder, and a database needs a name of its own: name a path there at \
                 which nothing is"
            ),
            false => format!(
                "{path} is there already, a file of class {class} of a tkrzw_server, which this \
                 server never opens: name another path here, and move the records from the \
                 running tkrzw_server with pelton import --tkrzw HOST:PORT"
            ),
        })
    }

    /// The same, which lasts if it has a path and is to be durable.
    pub(super) fn lasting(self, is_durable: bool) -> PlannedDatabase {
        PlannedDatabase {
            lasts: is_durable && !self.path.is_empty(),
            ..self
        }
    }

    /// The same with the name of a database: that of its file, so that the order of the command
    /// line may change.
    pub(super) fn named(self, index: usize) -> PlannedDatabase {
        let file = Path::new(&self.path)
            .file_name()
            .and_then(|name| name.to_str());
        let plain = |char: char| match char.is_ascii_alphanumeric() || "-_.".contains(char) {
            true => char,
            false => '_',
        };
        let file = file.unwrap_or_default();
        let mut name: String = file.chars().map(plain).collect();
        if name != file {
            // Two files that differ in such characters alone are two databases.
            name = format!("{name}-{:08x}", crc32c::crc32c(file.as_bytes()));
        }
        let is_good = store::is_database_name(&name) && name != "default";
        let kind = if self.path.is_empty() {
            "memory"
        } else {
            "tkrzw"
        };
        PlannedDatabase {
            name: if is_good {
                name
            } else {
                format!("{kind}-{index}")
            },
            ..self
        }
    }

    /// Returns when its writes count as done, if those that last do so at `durability`.
    pub(super) fn durability(&self, durability: Durability) -> store::Durability {
        match durability {
            _ if !self.lasts => store::Durability::Volatile,
            Durability::Synced => store::Durability::Synced,
            Durability::Interval(span) => store::Durability::Interval { ms: span.ms },
            Durability::Written => store::Durability::Written,
            Durability::Volatile => store::Durability::Volatile,
        }
    }

    /// Puts into the log what it is.
    pub(super) fn log(&self, index: usize, store: &Store) {
        let id = match self.name.as_str() {
            "" => Some(DatabaseId::DEFAULT),
            name => store.database(name),
        };
        let durability = id
            .and_then(|id| store.config(id))
            .unwrap_or_default()
            .durability;
        let promise = match durability {
            store::Durability::Synced => "a write is answered when it is on the device".to_owned(),
            store::Durability::Interval { ms } => {
                format!("a power loss may take the writes of the last {ms} ms")
            }
            store::Durability::Written => "writes survive the end of the server".to_owned(),
            store::Durability::Volatile => "lost when the server stops".to_owned(),
        };
        let (class, path, name) = (self.class.name(), &self.path, &self.name);
        match (path.as_str(), name.as_str()) {
            ("", _) => tracing::info!("database {index}: {class} in memory, {promise}"),
            (path, name) => {
                tracing::info!("database {index}: {class} {path}, kept as {name}, {promise}");
            }
        }
    }
}

fn unknown_class(text: &str) -> String {
    format!(
        "{text}: it is not said which class of database this is: by its extension (tkh, tkt, tks, \
         tkmt, tkmb, tkmc, tksh, tkst), or by `#dbm=` and one of hash, tree, skip, tiny, baby, \
         cache, stdhash, stdtree"
    )
}
