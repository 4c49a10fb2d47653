//! The token of all commands that speak to a server.

use std::path::PathBuf;

use clap::Args;

/// The variable with the name of a file with a token.
pub const TOKEN_FILE_VARIABLE: &str = "PELTON_TOKEN_FILE";

/// What proves to the server who calls.
#[derive(Args, Clone, Debug, Default)]
pub struct CredentialArguments {
    /// File with the token that proves who calls, in one line [default: the token in PELTON_TOKEN,
    /// if there is one]
    #[arg(long, value_name = "FILE", env = TOKEN_FILE_VARIABLE)]
    pub token_file: Option<PathBuf>,

    /// Send the token to another machine even without TLS: whoever is in between can read it, and
    /// use it
    #[arg(long)]
    pub token_without_tls: bool,
}
