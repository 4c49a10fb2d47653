//! `pelton database …`

use clap::{Args, Subcommand, ValueEnum};

use super::store::ConnectionArguments;
use crate::durability::Durability;
use crate::size::Size;

/// `pelton database …`
#[derive(Debug, Subcommand)]
pub enum DatabaseCommand {
    /// Create a database
    ///
    /// One of this name that is there already stays as it is: exit code 1.
    Create(CreateDatabaseArguments),

    /// List all databases with what is in them
    List(ListDatabasesArguments),

    /// Remove a database with all that is in it
    ///
    /// One that is not there is a miss: exit code 1. The default database cannot be removed.
    Drop(DropDatabaseArguments),
}

/// `pelton database create`
#[derive(Args, Debug)]
pub struct CreateDatabaseArguments {
    /// Its name: letters, digits, `-`, `_` and `.`, not beginning with `.`
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Where its entries are
    #[arg(long, value_name = "KIND", value_enum, default_value_t = KindArgument::Memory)]
    pub kind: KindArgument,

    /// When a write is answered: synced, interval=TIME, written or volatile
    ///
    /// synced: it is on the device; interval=100ms: written at once, and on the device within this time; written:
    /// written at once, on the device when the system likes; volatile: in memory only.
    #[arg(long, value_name = "DURABILITY", default_value_t = Durability::Synced)]
    pub durability: Durability,

    /// Bytes of keys and values that it may hold [default: only the server's own limit]
    #[arg(long, value_name = "SIZE")]
    pub quota: Option<Size>,

    /// Largest value [default: the server's limit]
    #[arg(long, value_name = "SIZE")]
    pub max_value: Option<Size>,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// Where the entries of a database are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KindArgument {
    /// all in memory
    Memory,
    /// on disk, with a cache in memory
    Disk,
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
