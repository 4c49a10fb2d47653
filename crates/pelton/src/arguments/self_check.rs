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
    /// file that is written is removed.
    #[arg(
        long,
        value_name = "DIR",
        env = "PELTON_DATA",
        default_value = crate::settings::DEFAULT_FOLDER
    )]
    pub data: PathBuf,

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
