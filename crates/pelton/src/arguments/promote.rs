//! `pelton promote`

use clap::Args;
use client::Address;

use super::{ConnectionArguments, server_address};

/// `pelton promote`
#[derive(Args, Debug)]
pub struct PromoteArguments {
    /// Other replicas of the lost leader, which confirm first that they take nothing of it any more
    /// (may be given several times)
    #[arg(long, value_name = "ADDRESS", value_parser = server_address)]
    pub confirm: Vec<Address>,

    /// Promote it although writes may be lost that the old leader has answered
    ///
    /// It prints what is known of that. A new history begins: replicas and watchers of the old one
    /// begin anew.
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub connection: ConnectionArguments,
}
