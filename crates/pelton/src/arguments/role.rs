//! `pelton role …`

use clap::{Args, Subcommand};
use service::rights::Grant;

use super::credentials::no_token;
use super::store::ConnectionArguments;

/// `pelton role …`
#[derive(Debug, Subcommand)]
pub enum RoleCommand {
    /// Make a role, or give one other rights
    ///
    /// Tokens have it by `--rights role:NAME`. A change holds at once for all that have it: what
    /// runs of those who may do less than before ends within a second.
    Set(SetRoleArguments),

    /// List all roles: their names and rights, and how many tokens have them
    #[command(visible_alias = "ls")]
    List(ListRolesArguments),

    /// Remove a role that no token has
    ///
    /// One that is not there is a miss: exit code 1.
    Drop(DropRoleArguments),
}

/// `pelton role set`
#[derive(Args, Debug)]
pub struct SetRoleArguments {
    /// Its name, as one of a token
    #[arg(value_name = "NAME", value_parser = no_token)]
    pub name: String,

    /// What it grants, separated by commas: as with `pelton token create`, but no roles
    #[arg(
        long,
        value_name = "RIGHTS",
        required = true,
        value_delimiter = ',',
        value_parser = super::token::right
    )]
    pub rights: Vec<Grant>,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `pelton role list`
#[derive(Args, Debug)]
pub struct ListRolesArguments {
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

/// `pelton role drop`
#[derive(Args, Debug)]
pub struct DropRoleArguments {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}
