//! `pelton database …`

use std::fmt;

use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;

use super::store::ConnectionArguments;
use crate::durability::DurabilityArgument;
use crate::size::Size;

/// `pelton database …`
#[derive(Debug, Subcommand)]
pub enum DatabaseCommand {
    /// Create a database
    ///
    /// One of this name that is there already stays as it is: exit code 1.
    Create(CreateDatabaseArguments),

    /// List all databases with what is in them
    #[command(visible_alias = "ls")]
    List(ListDatabasesArguments),

    /// Remove a database with all that is in it
    ///
    /// One that is not there is a miss: exit code 1. The default database cannot be removed.
    Drop(DropDatabaseArguments),

    /// Move a database with all that is in it from memory to disk, or back
    ///
    /// Reads go on meanwhile, writes to it are refused with UNAVAILABLE. All or nothing: Ctrl-C
    /// gives it up, and the database stays what it was, as it does if the server dies. One that is
    /// of that kind already stays as it is: exit code 1.
    Convert(ConvertDatabaseArguments),
}

/// `pelton database create`
#[derive(Args, Debug)]
pub struct CreateDatabaseArguments {
    /// Its name: letters, digits, `-`, `_` and `.`, not beginning with `.`, and not `default`
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Where its entries are [default: memory; remote on a server whose databases are on a storage
    /// engine]
    #[arg(long, value_name = "KIND", value_enum)]
    pub kind: Option<NewKindArgument>,

    /// Of a remote database: what it promises. Stays as it is [default: linearizable]
    #[arg(long, value_name = "PROMISE", value_enum)]
    pub promise: Option<PromiseArgument>,

    /// Of a remote database: the order in which a scan returns its keys. Stays as it is [default:
    /// hash]
    #[arg(long, value_name = "ORDER", value_enum)]
    pub order: Option<OrderArgument>,

    /// Of a remote database: in how many parts its keys are divided; a request changes one of them
    /// at once. Stays as it is [default: 1024 with hash, 16 with merged]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=16_384))]
    pub buckets: Option<u16>,

    /// When a write is answered: synced, interval=TIME, written or volatile
    ///
    /// synced: it is on the device; interval=100ms: written at once, and on the device within this
    /// time; written: written at once, on the device when the system likes; volatile: in memory
    /// only.
    #[arg(long, value_name = "DURABILITY", default_value_t = DurabilityArgument::Synced)]
    pub durability: DurabilityArgument,

    /// Bytes that it may take, MEMORY or disk as `database list` shows it: keys, values and some
    /// 100 bytes for each entry. Stays as it is [default: only the server's own limit]
    #[arg(long, value_name = "SIZE")]
    pub quota: Option<Size>,

    /// Largest value [default: the server's limit]
    #[arg(long, value_name = "SIZE")]
    pub max_value: Option<Size>,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `pelton database convert`
#[derive(Args, Debug)]
pub struct ConvertDatabaseArguments {
    /// Its name [default: the default database]
    #[arg(value_name = "NAME", default_value = "", hide_default_value = true)]
    pub name: String,

    /// What it becomes
    #[arg(long, value_name = "KIND", value_enum)]
    pub kind: KindArgument,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// Where the entries of a database are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum KindArgument {
    /// all in memory
    Memory,
    /// on disk, with a cache in memory
    Disk,
}

/// Where the entries of a new database are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NewKindArgument {
    /// all in memory
    Memory,
    /// on disk, with a cache in memory
    Disk,
    /// on a storage engine of several machines, if the server was started for one
    Remote,
}

/// What a remote database promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PromiseArgument {
    /// conditions, versions, append and increment work as on one machine
    Linearizable,
    /// plain puts and deletes reach a quorum, and the later clock wins
    Quorum,
}

/// The order of the keys of a remote database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OrderArgument {
    /// by the hashes of the keys
    Hash,
    /// by the keys
    Merged,
}

impl From<KindArgument> for store::Kind {
    fn from(kind: KindArgument) -> store::Kind {
        match kind {
            KindArgument::Memory => store::Kind::Memory,
            KindArgument::Disk => store::Kind::Disk,
        }
    }
}

impl fmt::Display for KindArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no kind is hidden");
        f.write_str(value.get_name())
    }
}

/// `pelton database list`
#[derive(Args, Debug)]
pub struct ListDatabasesArguments {
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `pelton database drop`
#[derive(Args, Debug)]
pub struct DropDatabaseArguments {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Remove it even if there are entries in it
    #[arg(long)]
    pub with_content: bool,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}
