//! `pelton self-check`

use std::path::PathBuf;

use clap::Args;

use super::OutputFormat;

/// The command line of `pelton self-check`.
#[derive(Args, Debug)]
pub struct SelfCheckArguments {
    /// The data folder, in whose file system is written and synced for up to two seconds
    ///
    /// A folder that does not exist is not made: the one that it would be in is taken instead. The
    /// file that is written is removed. Default: pelton-data, with --service that of the service.
    #[arg(long, value_name = "DIR", env = "PELTON_DATA")]
    pub data: Option<PathBuf>,

    /// Check as this service of systemd: with its user, its limits, and its view of the file system
    ///
    /// What the unit says is asked of `systemctl show`, and the same check is run by `systemd-run`
    /// in a unit with that, which is gone afterwards. The service itself need not run, and is not
    /// touched. Needs root. Default: pelton.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "pelton")]
    pub service: Option<String>,

    /// How to print what is found
    #[arg(
        long,
        value_name = "FORMAT",
        env = "PELTON_OUTPUT",
        value_enum,
        default_value_t = OutputFormat::Text
    )]
    pub output: OutputFormat,
}
