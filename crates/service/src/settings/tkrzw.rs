//! How `tkrzw_rpc.DBMService` is to be: which databases it has, by their index.

use std::sync::Arc;

use store::log::ORIGIN;
use store::{DatabaseId, Store};

use crate::tkrzw_state::{MasterOrders, TkrzwState};

/// The number of a server of which nothing else is said, as in the original.
pub const DEFAULT_SERVER_ID: i32 = 1;

/// How `tkrzw_rpc.DBMService` and `tkrzw.DBMService` are to be.
#[derive(Debug)]
pub struct TkrzwSettings {
    /// The databases, in the order of `dbm_index`.
    pub databases: Box<[TkrzwDatabase]>,
    /// Nothing may be written.
    pub is_read_only: bool,
    /// Which one this server is among those that follow each other, from 1 on.
    pub server_id: i32,
    /// Others may follow it: all databases are in its log.
    pub has_update_log: bool,
    /// Whom it is to follow; `None`: nobody, whatever callers want.
    pub master: Option<Arc<MasterOrders>>,
    /// When the server was started, in microseconds since 1970.
    pub start_us: u64,
    /// What calls share.
    pub state: TkrzwState,
}

impl Default for TkrzwSettings {
    fn default() -> TkrzwSettings {
        TkrzwSettings {
            databases: Box::new([TkrzwDatabase::default()]),
            is_read_only: false,
            server_id: DEFAULT_SERVER_ID,
            has_update_log: false,
            master: None,
            start_us: 0,
            state: TkrzwState::default(),
        }
    }
}

impl TkrzwSettings {
    /// Returns the number of the server on which an update was made, by what its record in the log
    /// says.
    pub fn server_of(&self, origin: u32) -> i32 {
        match origin {
            ORIGIN => self.server_id,
            origin => i32::try_from(origin).unwrap_or(self.server_id),
        }
    }
}

/// Returns the database of a name of the settings; `None`: it was dropped.
pub fn database_of(name: &str, store: &Store) -> Option<DatabaseId> {
    match name {
        "" => Some(DatabaseId::DEFAULT),
        name => store.database(name),
    }
}

/// A database of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TkrzwDatabase {
    /// The name of the database that holds its records; empty: the default one.
    pub name: Box<str>,
    /// What it is called in the original's command line; empty: it has no file.
    pub path: Box<str>,
    /// What it behaves as.
    pub class: DatabaseClass,
}

/// A class of databases of the original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DatabaseClass {
    /// A file with a hash table.
    Hash,
    /// A file with a B+ tree.
    Tree,
    /// A file with a skip list.
    Skip,
    /// A hash table in memory.
    Tiny,
    /// A B+ tree in memory.
    #[default]
    Baby,
    /// A cache in memory.
    Cache,
    /// A hash table of the standard library.
    StdHash,
    /// A tree of the standard library.
    StdTree,
}

impl DatabaseClass {
    /// Returns the original's name of the class.
    pub const fn name(self) -> &'static str {
        match self {
            DatabaseClass::Hash => "HashDBM",
            DatabaseClass::Tree => "TreeDBM",
            DatabaseClass::Skip => "SkipDBM",
            DatabaseClass::Tiny => "TinyDBM",
            DatabaseClass::Baby => "BabyDBM",
            DatabaseClass::Cache => "CacheDBM",
            DatabaseClass::StdHash => "StdHashDBM",
            DatabaseClass::StdTree => "StdTreeDBM",
        }
    }

    /// Returns the class that the extension of a path means, without the dot and in any case.
    pub fn of_extension(extension: &str) -> Option<DatabaseClass> {
        use DatabaseClass as C;
        Some(match &*extension.to_ascii_lowercase() {
            "tkh" | "hash" => C::Hash,
            "tkt" | "tree" => C::Tree,
            "tks" | "skip" => C::Skip,
            "tkmt" | "tiny" | "flat" => C::Tiny,
            "tkmb" | "baby" => C::Baby,
            "tkmc" | "cache" => C::Cache,
            "tksh" | "stdhash" => C::StdHash,
            "tkst" | "stdtree" => C::StdTree,
            _ => return None,
        })
    }

    /// Returns the class of a name, with or without `DBM` behind it and in any case.
    pub fn of_name(name: &str) -> Option<DatabaseClass> {
        let name = name.to_ascii_lowercase();
        let name = name.strip_suffix("dbm").unwrap_or(&name);
        DatabaseClass::of_extension(name)
    }

    /// Returns whether the records of the class have an order. Those of the others are walked in
    /// order all the same, but clients are told what they were told before.
    pub const fn is_ordered(self) -> bool {
        use DatabaseClass as C;
        matches!(self, C::Tree | C::Skip | C::Baby | C::StdTree)
    }
}
