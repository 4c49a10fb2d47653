//! `pelton token …`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use service::identities::{Binding, BindingError};
use service::rights::{Grant, GrantError};

use super::credentials::no_token;
use super::store::ConnectionArguments;
use crate::size::{ParseError, Span};

/// `pelton token …`
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token, and print it: it is shown this once
    ///
    /// Whoever has it calls with its rights: `--token-file FILE`, or the variable PELTON_TOKEN.
    /// With --certificate or --uid there is no token: the certificate of a client, or the user of
    /// a process, stands for the name.
    Create(CreateTokenArguments),

    /// List all tokens: their names, rights, times and bindings, not the tokens themselves
    #[command(visible_alias = "ls")]
    List(ListTokensArguments),

    /// Take a token back: what runs with it ends within a second
    ///
    /// One that is not there is a miss: exit code 1.
    Revoke(RevokeTokenArguments),

    /// Make another token for a name and its rights, and print it: it is shown this once
    ///
    /// The one before is revoked at once, or when --keep says so; the one with which this command
    /// itself calls an hour later, since the new one may never reach you. None of this name: exit
    /// code 1.
    Rotate(RotateTokenArguments),
}

/// Where a new token goes.
#[derive(Args, Debug)]
pub struct NewTokenArguments {
    /// Write the token into this new file, which only its owner can read, and not to standard
    /// output
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}

/// `pelton token create`
#[derive(Args, Debug)]
pub struct CreateTokenArguments {
    /// Its name: 1 to 64 letters, digits, `-`, `_` and `.`, not beginning with `.`
    #[arg(value_name = "NAME", value_parser = no_token)]
    pub name: String,

    /// What its holder may do, separated by commas: `read`, `write` or `admin`, each of which
    /// includes those before it
    ///
    /// Alone it holds on the whole server; with `:DATABASE` behind it in this database (`default`
    /// is the one without a name); with `:DATABASE/PREFIX` for its blobs whose names begin so. Or
    /// `service:NAME` for all that a drop-in service does: kvstore, gupload, ydb-ping, brpc-echo,
    /// srpc-benchmark or tkrzw. Or `role:NAME` for what a role grants.
    #[arg(
        long,
        value_name = "RIGHTS",
        required = true,
        value_delimiter = ',',
        value_parser = right
    )]
    pub rights: Vec<Grant>,

    /// Let it expire so long from now: 12h, 30d; at most ten years [default: it does not expire]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<Span>,

    /// Make no token: whoever shows this certificate has the rights
    ///
    /// A subject alternative name in it: `san:dns:worker.example`, `san:uri:spiffe://…` or
    /// `san:email:ADDRESS`, without wildcards; or its fingerprint, `sha256:HEX`. The server asks
    /// for certificates with `pelton serve --client-ca`.
    #[arg(
        long,
        value_name = "WHICH",
        value_parser = certificate,
        conflicts_with_all = ["uid", "to"]
    )]
    pub certificate: Option<Binding>,

    /// Make no token: processes of this user have the rights, by its number, on UNIX sockets
    #[arg(long, value_name = "NUMBER", value_parser = user, conflicts_with = "to")]
    pub uid: Option<Binding>,

    #[command(flatten)]
    pub new: NewTokenArguments,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// Reads one of the rights that commas separate, with or without blanks behind them.
pub(super) fn right(text: &str) -> Result<Grant, GrantError> {
    Grant::new(text.trim_start())
}

fn certificate(text: &str) -> Result<Binding, String> {
    let binding: Binding = text.parse().map_err(|error: BindingError| match error {
        BindingError::UnknownKind(text) => format!(
            "{text:?} is none of `san:dns:NAME`, `san:uri:URI`, `san:email:ADDRESS` and \
             `sha256:HEX`"
        ),
        error => error.to_string(),
    })?;
    match binding {
        Binding::User(_) => Err("a user is given by --uid".into()),
        binding => Ok(binding),
    }
}

/// A time, or a zero without a unit.
fn keep(text: &str) -> Result<Span, String> {
    match text {
        "0" => Ok(Span { ms: 0 }),
        text => text.parse().map_err(|error: ParseError| error.to_string()),
    }
}

fn user(text: &str) -> Result<Binding, String> {
    let binding = format!("uid:{text}").parse();
    binding.map_err(|error: BindingError| error.to_string())
}

/// `pelton token list`
#[derive(Args, Debug)]
pub struct ListTokensArguments {
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `pelton token revoke`
#[derive(Args, Debug)]
pub struct RevokeTokenArguments {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Revoke it even if nobody can make or revoke tokens any more then
    #[arg(long)]
    pub last_admin: bool,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `pelton token rotate`
#[derive(Args, Debug)]
pub struct RotateTokenArguments {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// How long the token before stays good, so that its holders can change over: 10min, 1h; at
    /// most 30 days; 0: it is revoked at once, also if it is the one of this command, and so is
    /// what an earlier rotation keeps [default: 0, or 1h if it is that one]
    #[arg(long, value_name = "TIME", value_parser = keep)]
    pub keep: Option<Span>,

    /// Revoke at once what an earlier rotation keeps for a while still: a name has two tokens at
    /// most, so that without this a rotation is refused until then
    #[arg(long)]
    pub revoke_kept: bool,

    /// Let the name expire so long from now [default: when it would have expired before]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<Span>,

    /// Let it expire even if nobody can make or revoke tokens any more then
    #[arg(long, requires = "expires")]
    pub last_admin: bool,

    #[command(flatten)]
    pub new: NewTokenArguments,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn created(words: &[&str]) -> Result<CreateTokenArguments, clap::Error> {
        let line = ["pelton", "token", "create"].iter().chain(words);
        match Arguments::try_parse_from(line)?.command {
            Command::Token(TokenCommand::Create(arguments)) => Ok(arguments),
            other => panic!("a token is created, not {other:?}"),
        }
    }

    #[test]
    fn rights_may_have_blanks_behind_their_commas() {
        let rights = |text: &str| created(&["ci", "--rights", text]).map(|made| made.rights);
        let plain = rights("read:red,write:blue/a ,read:x").expect("these are rights");
        let spaced = rights("read:red, write:blue/a ,  read:x").expect("these are rights");
        assert_eq!((spaced.len(), &spaced), (3, &plain));
        // Blobs may have names with blanks.
        assert_eq!(plain[1].to_string(), "write:blue/a ");
    }

    #[test]
    fn a_token_is_no_name_and_no_right() {
        let token = format!("pelton_{}", "x_-9".repeat(11));
        let right = format!("read:{token}");
        for words in [[&*token, "--rights", "read"], ["ci", "--rights", &right]] {
            let error = created(&words).expect_err("a token");
            assert_eq!(error.kind(), clap::error::ErrorKind::ValueValidation);
        }
        created(&["pelton_ci", "--rights", "read:pelton_x"]).expect("these are none");
    }
}
