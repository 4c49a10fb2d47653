//! A database as tkrzw_server's command line names it: `path#name=value,…`.

use std::fs;
use std::path::{Path, PathBuf};

use service::settings::tkrzw::{DatabaseClass, database_of};
use store::{CacheBounds, Store};

use crate::durability::DurabilityArgument;

/// Values of `record_comp_mode` that encrypt.
const ENCRYPTIONS: [&str; 2] = ["rc4", "aes"];

/// What the parameter `dbm` may be.
const CLASSES: &str = "one of hash, tree, skip, tiny, baby, cache, stdhash, stdtree";

/// Digits of the number of files in the name of each of several that are one database.
const SHARD_DIGITS: usize = 5;

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
    /// What the class Cache keeps at most.
    bounds: CacheBounds,
}

/// What a cache keeps of which nothing else is said, as in the original.
const DEFAULT_BOUNDS: CacheBounds = CacheBounds {
    entries: 1 << 20,
    memory_bytes: u64::MAX,
};

impl PlannedDatabase {
    /// Reads a text.
    ///
    /// # Errors
    /// If there is no such class, or its content would be encrypted.
    pub(super) fn parse(text: &str) -> Result<PlannedDatabase, String> {
        let (path, parameters) = text.split_once('#').unwrap_or((text, ""));
        let (mut class, mut ignored) = (None, Vec::new());
        let (mut bounds, mut caps) = (DEFAULT_BOUNDS, Vec::new());
        for parameter in parameters.split(',').filter(|one| !one.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "dbm" => {
                    let found = DatabaseClass::of_name(value);
                    class = Some(found.ok_or_else(|| {
                        format!("{text}: {value:?} is no class of databases; dbm is {CLASSES}")
                    })?);
                    continue;
                }
                "record_comp_mode" if ENCRYPTIONS.contains(&value) => {
                    return Err(format!(
                        "{text}: this server does not encrypt what it keeps; leave {parameter} \
                         out, and encrypt the device or the file system"
                    ));
                }
                "cap_rec_num" | "cap_mem_size" => {
                    let (bound, default) = match name {
                        "cap_rec_num" => (&mut bounds.entries, DEFAULT_BOUNDS.entries),
                        _ => (&mut bounds.memory_bytes, DEFAULT_BOUNDS.memory_bytes),
                    };
                    let given = number(value).ok_or_else(|| {
                        format!("{text}: {parameter} has no number, such as 100000, 64k or 1gi")
                    })?;
                    // Below 0 it means the default one.
                    *bound = u64::try_from(given).unwrap_or(default);
                    caps.push(format!("{path}#{name}"));
                    continue;
                }
                _ => {}
            }
            ignored.push(format!("{path}#{name}"));
        }
        let extension = Path::new(path).extension().and_then(|one| one.to_str());
        let of_path = || match path {
            "" => Some(DatabaseClass::Tiny),
            _ => extension.and_then(DatabaseClass::of_extension),
        };
        let class = class.or_else(of_path).ok_or_else(|| unknown_class(text))?;
        if class != DatabaseClass::Cache {
            ignored.append(&mut caps);
        }
        Ok(PlannedDatabase {
            path: path.to_owned(),
            class,
            name: String::new(),
            lasts: false,
            ignored,
            bounds,
        })
    }

    /// Refuses a path at which something is: a file of the original is never opened.
    pub(super) fn check_path(&self) -> Result<(), String> {
        if self.path.is_empty() {
            return Ok(());
        }
        let path = PathBuf::from(&self.path);
        let path = match fs::symlink_metadata(&path) {
            Ok(_) => path,
            Err(_) => match first_shard(&path) {
                Some(shard) => shard,
                None => return Ok(()),
            },
        };
        let is_folder = fs::metadata(&path).is_ok_and(|found| found.is_dir());
        let (path, class) = (path.display(), self.class.name());
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

    /// The same, which lasts if it is to be durable and has a path, or others may follow it.
    pub(super) fn lasting(self, is_durable: bool, has_update_log: bool) -> PlannedDatabase {
        PlannedDatabase {
            lasts: is_durable && (has_update_log || !self.path.is_empty()),
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
    pub(super) fn durability(&self, durability: DurabilityArgument) -> store::Durability {
        match durability {
            _ if !self.lasts => store::Durability::Volatile,
            DurabilityArgument::Synced => store::Durability::Synced,
            DurabilityArgument::Interval(span) => store::Durability::Interval { ms: span.ms },
            DurabilityArgument::Written => store::Durability::Written,
            DurabilityArgument::Volatile => store::Durability::Volatile,
        }
    }

    /// Has a cache in memory keep no more than it is to. One that lasts keeps all.
    pub(super) fn bound(&self, store: &Store) {
        let id = database_of(&self.name, store);
        if self.class == DatabaseClass::Cache
            && let Some(id) = id
            && !store.bound_cache(id, self.bounds)
        {
            let path = &self.path;
            tracing::warn!(
                "{path} drops nothing: cap_rec_num and cap_mem_size are those of a CacheDBM in \
                 memory alone, without a path"
            );
        }
    }

    /// Puts into the log what it is.
    pub(super) fn log(&self, index: usize, store: &Store) {
        let id = database_of(&self.name, store);
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

/// Reads a number as the original does: with k, m, g or t behind it thousands, with an i besides
/// powers of 1 024.
fn number(text: &str) -> Option<i64> {
    let text = text.to_ascii_lowercase();
    let (base, text) = match text.strip_suffix('i') {
        Some(text) => (1_024_i64, text),
        None => (1_000, text.as_str()),
    };
    let power = text.chars().last().and_then(|last| "kmgt".find(last));
    let (digits, factor) = match power {
        Some(power) => {
            let factor = base.checked_pow(u32::try_from(power).ok()? + 1)?;
            (text.strip_suffix(['k', 'm', 'g', 't'])?, factor)
        }
        None if base == 1_024 => return None,
        None => (text, 1),
    };
    digits.parse::<i64>().ok()?.checked_mul(factor)
}

/// Returns the first file of a database that the original keeps in several, however many those are:
/// with `num_shards=0` it takes their number from their names itself.
fn first_shard(path: &Path) -> Option<PathBuf> {
    let begin = format!("{}-00000-of-", path.file_name()?.to_str()?);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut files = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let found = files.find(|file| {
        let name = file.file_name();
        let count = name.to_str().and_then(|name| name.strip_prefix(&begin));
        count.is_some_and(|count| {
            count.len() == SHARD_DIGITS && count.bytes().all(|byte| byte.is_ascii_digit())
        })
    })?;
    Some(path.with_file_name(found.file_name()))
}

fn unknown_class(text: &str) -> String {
    format!(
        "{text}: it is not said which class of database this is: by its extension (tkh, tkt, tks, \
         tkmt, tkmb, tkmc, tksh, tkst), or by `#dbm=` and {CLASSES}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_original() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("12", Some(12)),
            ("3k", Some(3_000)),
            ("3Ki", Some(3_072)),
            ("2m", Some(2_000_000)),
            ("1gi", Some(1 << 30)),
            ("", None),
            ("k", None),
            ("3i", None),
            ("x", None),
            ("99999999999t", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }

    #[test]
    fn a_cache_has_bounds_and_other_classes_name_them_as_ignored() {
        let bounds = |text| PlannedDatabase::parse(text).map(|planned| planned.bounds);
        assert_eq!(bounds("#dbm=cache"), Ok(DEFAULT_BOUNDS));
        let given = CacheBounds {
            entries: 10_000,
            memory_bytes: 64 << 20,
        };
        let text = "#dbm=cache,cap_rec_num=10k,cap_mem_size=64mi";
        assert_eq!(bounds(text), Ok(given));
        assert_eq!(bounds("#dbm=cache,cap_rec_num=-1"), Ok(DEFAULT_BOUNDS));
        assert!(bounds("#dbm=cache,cap_rec_num=many").is_err());
        let other = PlannedDatabase::parse("#dbm=tiny,cap_rec_num=1").expect("it is right");
        assert_eq!(other.ignored, ["#cap_rec_num"]);
    }
}
