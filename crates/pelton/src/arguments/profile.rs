//! The name of a profile, of all commands that speak to a server.

use clap::Args;

use super::credentials::no_token;

/// The variable with the name of a profile.
pub const PROFILE_VARIABLE: &str = "PELTON_PROFILE";

/// Which profile of the user's file the command takes its server from. It changes what the other
/// flags are, so that it is looked for before they are read: see [`crate::profile`].
#[derive(Args, Clone, Debug, Default)]
pub struct ProfileArguments {
    /// Take what is not given (address, token, TLS) from this profile of the user's file
    /// [default: `default`, if the file has it and no address is given]
    ///
    /// The file is ~/.config/pelton/client.toml, or the one that PELTON_CLIENT_CONFIG names.
    #[arg(long, value_name = "NAME", value_parser = no_token, env = PROFILE_VARIABLE)]
    pub profile: Option<String>,
}
