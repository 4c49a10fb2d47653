//! `pelton lab diagnose`

use std::path::PathBuf;

use clap::Args;
use lab::diagnose::limits;
use lab::{MethodName, Mix};
use net::Address;

use crate::arguments::{CredentialArguments, ReportOutput, TlsArguments, number, server_address};
use crate::size::Span;

/// `pelton lab diagnose`
#[derive(Args, Debug)]
pub struct DiagnoseArguments {
    /// The server: host:port, [ipv6]:port or unix:/path
    #[arg(long, value_name = "ADDRESS", value_parser = server_address)]
    pub target: Address,

    /// How long to wait for a connection
    #[arg(
        long,
        value_name = "TIME",
        env = "PELTON_TIMEOUT",
        default_value = "10s",
        value_parser = number::timeout
    )]
    pub timeout: Span,

    #[command(flatten)]
    pub tls: TlsArguments,

    #[command(flatten)]
    pub credentials: CredentialArguments,

    /// Call this unary method: package.Service/Method; the package may be left out. Without it and
    /// without --client a Pelton server is loaded, in a database that is made for it and removed.
    /// No token goes with it but one that --token-file names on this command line
    #[arg(long, value_name = "METHOD", requires = "data")]
    pub method: Option<MethodName>,

    /// Its request as JSON; what the method takes is asked from the server by reflection
    #[arg(
        long,
        visible_alias = "request",
        value_name = "JSON",
        requires = "method"
    )]
    pub data: Option<String>,

    /// What the method takes, for servers without reflection: a FileDescriptorSet (protoc
    /// --include_imports -o FILE)
    #[arg(long, value_name = "FILE", requires = "method")]
    pub descriptor_set: Option<PathBuf>,

    /// Which operations of a Pelton server, in percent: get, put, delete, append, incr
    #[arg(
        long,
        value_name = "MIX",
        default_value = "get=100",
        conflicts_with_all = ["method", "client"]
    )]
    pub mix: Mix,

    /// Run this command of a shell instead, several times, and look at what it and the server do;
    /// `{target}` in it stands for the address that it is to call. What it prints goes to standard
    /// error
    #[arg(long, value_name = "COMMAND", conflicts_with = "method", value_parser = parse_client)]
    pub client: Option<String>,

    /// End the command after so long, each time that it runs
    #[arg(
        long,
        value_name = "TIME",
        default_value = "6s",
        requires = "client",
        value_parser = number::timeout
    )]
    pub client_time: Span,

    /// The server's process on this machine [default: the one that listens on the target's port]
    #[arg(long, value_name = "PID", value_parser = number::whole::<u32>(1, u32::MAX.into()))]
    pub server_pid: Option<u32>,

    /// A `pelton lab agent` on the server's machine, which watches its process: host:port,
    /// [ipv6]:port or unix:/path
    #[arg(
        long,
        value_name = "ADDRESS",
        conflicts_with = "server_pid",
        value_parser = server_address
    )]
    pub agent: Option<Address>,

    /// File with the token of the agent
    #[arg(long, value_name = "FILE", requires = "agent")]
    pub agent_token_file: Option<PathBuf>,

    /// Speak TLS with the agent, and believe it if its certificate is one of these (PEM), or signed
    /// by one of these authorities
    #[arg(long, value_name = "FILE", requires = "agent")]
    pub agent_tls_ca: Option<PathBuf>,

    /// Make so many calls a second at most
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = limits::DIAGNOSE_RATE,
        conflicts_with = "client",
        value_parser = number::whole::<u64>(1, lab::limits::MAX_RATE.into())
    )]
    pub max_rate: u64,

    /// Have so many calls in flight at most
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = limits::DIAGNOSE_IN_FLIGHT,
        conflicts_with = "client",
        value_parser = number::whole::<usize>(1, lab::limits::MAX_IN_FLIGHT as i128)
    )]
    pub max_in_flight: usize,

    /// End after so long
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_time)]
    pub max_time: Span,

    /// The server is on another machine, and may be loaded; --client decides that by itself
    #[arg(long, conflicts_with = "client")]
    pub yes: bool,

    /// The method may be called again and again, though its name does not say that it only reads
    #[arg(long, requires = "method")]
    pub repeat_safe: bool,

    /// Draw the diagnosis into this file: one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    #[command(flatten)]
    pub output: ReportOutput,
}

fn parse_client(text: &str) -> Result<String, String> {
    match text.contains("{target}") {
        true => Ok(text.to_owned()),
        false => Err(
            "it has no {target}, in whose place it is given the address that it is to call".into(),
        ),
    }
}

fn parse_time(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    let most_ms = limits::DIAGNOSE_TIME_MAX.as_millis() as u64;
    match (1_000..=most_ms).contains(&span.ms) {
        true => Ok(span),
        false => Err("write 1s to 1h".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_a_place_for_the_address_is_refused() {
        assert!(parse_client("ghz {target}").is_ok());
        let error = parse_client("ghz 127.0.0.1:1").expect_err("it would go past the tap");
        assert!(error.contains("{target}"));
    }

    #[test]
    fn a_diagnosis_takes_a_second_to_an_hour() {
        assert_eq!(parse_time("1s"), Ok(Span { ms: 1_000 }));
        assert!(parse_time("1h").is_ok());
        for wrong in ["999ms", "61m", "5"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
