//! `pelton backup`, `pelton restore`, `pelton snapshot`

use std::path::PathBuf;

use clap::Args;

use super::store::{ConnectionArguments, OutputFormat};

/// `pelton backup`
#[derive(Args, Debug)]
pub struct BackupArguments {
    /// The new folder under --backup-root of the server: letters, digits, `-`, `_` and `.`, not
    /// beginning with `.`
    #[arg(value_name = "NAME")]
    pub name: String,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `pelton restore`
#[derive(Args, Debug)]
pub struct RestoreArguments {
    /// The folder of the backup
    #[arg(value_name = "DIR")]
    pub backup: PathBuf,

    /// The data folder to make: a new or an empty one
    #[arg(
        long,
        value_name = "NEW",
        required_unless_present = "verify_only",
        conflicts_with = "verify_only"
    )]
    pub data: Option<PathBuf>,

    /// Only check that the backup is whole
    #[arg(long)]
    pub verify_only: bool,

    /// How to print what was done
    #[arg(
        long,
        value_name = "FORMAT",
        env = "PELTON_OUTPUT",
        value_enum,
        default_value_t = OutputFormat::Text
    )]
    pub output: OutputFormat,
}

/// `pelton snapshot`
#[derive(Args, Debug)]
pub struct SnapshotArguments {
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
