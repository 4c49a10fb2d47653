//! The token of all commands that speak to a server.

use std::path::PathBuf;

use clap::Args;
use service::redact::contains_token;

/// The variable with the name of a file with a token.
pub const TOKEN_FILE_VARIABLE: &str = "PELTON_TOKEN_FILE";

/// Reads a name; a token that somebody has taken for one would be shown to all who see the name.
pub fn no_token(text: &str) -> Result<String, &'static str> {
    match contains_token(text) {
        true => Err("this is a token, not its name"),
        false => Ok(text.to_owned()),
    }
}

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
