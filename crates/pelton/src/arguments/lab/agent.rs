//! `pelton lab agent`

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use net::Address;

use crate::arguments::number;

/// `pelton lab agent`
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("server").required(true))]
pub struct AgentArguments {
    /// The server: whichever process listens on this TCP port when somebody asks
    #[arg(
        long,
        value_name = "PORT",
        group = "server",
        value_parser = number::whole::<u16>(1, u16::MAX.into())
    )]
    pub server_port: Option<u16>,

    /// The server: this process
    #[arg(
        long,
        value_name = "PID",
        group = "server",
        value_parser = number::whole::<u32>(1, u32::MAX.into())
    )]
    pub server_pid: Option<u32>,

    /// Where to listen: host:port, [ipv6]:port or unix:/path; port 0: the system chooses one, which
    /// a line on standard error names
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:1988")]
    pub listen: Address,

    /// Callers have to come with the token in this file. If it is not there, it is made, with a new
    /// token
    #[arg(long, value_name = "FILE", conflicts_with = "anonymous")]
    pub token_file: Option<PathBuf>,

    /// Callers from other machines need no token: whoever reaches the address may see what the
    /// server does
    #[arg(long)]
    pub anonymous: bool,

    /// Speak TLS, with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "listen_tls_key")]
    pub listen_tls_cert: Option<PathBuf>,

    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "listen_tls_cert")]
    pub listen_tls_key: Option<PathBuf>,
}
