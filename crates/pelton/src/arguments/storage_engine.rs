//! Where a storage engine is that has the databases of a server, and `pelton store …`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;

use super::database::{OrderArgument, PromiseArgument};

/// The port on which nodes take CQL unless told otherwise.
const CQL_PORT: u16 = 9042;

/// A storage engine that has the databases of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum StoreArgument {
    /// Apache Cassandra 5, or ScyllaDB
    Cassandra,
}

impl fmt::Display for StoreArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no engine is hidden");
        f.write_str(value.get_name())
    }
}

/// One or more nodes, each with its port: `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContactAddresses(Vec<String>);

impl ContactAddresses {
    /// Returns all nodes of several texts.
    pub fn all(texts: Vec<ContactAddresses>) -> Vec<String> {
        texts.into_iter().flat_map(|text| text.0).collect()
    }
}

impl FromStr for ContactAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<ContactAddresses, String> {
        let nodes = text.split(',').map(|part| contact(part.trim()));
        nodes.collect::<Result<_, _>>().map(ContactAddresses)
    }
}

/// Returns a node with its port, with the brackets that an IPv6 address needs.
fn contact(text: &str) -> Result<String, String> {
    let wrong =
        || format!("`{text}` is no node; write HOST, HOST:PORT or [IPV6]:PORT, such as db1:9042");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            (
                host,
                port.strip_prefix(':').or((port.is_empty()).then_some("")),
            )
        }
        // Of several colons none begins a port.
        None if text.matches(':').count() > 1 => (text, Some("")),
        None => match text.split_once(':') {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    let port = match port.ok_or_else(wrong)? {
        "" => CQL_PORT,
        port => port.parse().map_err(|_| wrong())?,
    };
    let is_of_host =
        |character: char| character.is_ascii_alphanumeric() || "._-:%".contains(character);
    if host.is_empty() || port == 0 || !host.chars().all(is_of_host) {
        return Err(wrong());
    }
    Ok(match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    })
}

/// `pelton store …`
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Make a keyspace of Apache Cassandra or ScyllaDB ready for servers, once
    ///
    /// It makes what is missing of the keyspace, its tables and the default database, and changes
    /// nothing that is there. `pelton serve --store cassandra` never makes any of that.
    Init(Box<InitStoreArguments>),
}

/// How a storage engine is reached.
#[derive(Args, Clone, Debug)]
pub struct StoreAccessArguments {
    /// Nodes of the storage engine to begin with, HOST or HOST:PORT; may be repeated, or several
    /// separated by commas; the others are learned from them [default port: 9042]
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        env = "PELTON_CONTACT",
        required = true
    )]
    pub contact: Vec<ContactAddresses>,

    /// The keyspace: 1 to 48 small letters, digits or `_`, beginning with a letter
    #[arg(long, value_name = "NAME", env = "PELTON_KEYSPACE")]
    pub keyspace: String,

    /// Ask the nodes of this data center first [default: all are alike]
    #[arg(long, value_name = "NAME", env = "PELTON_DATACENTER")]
    pub datacenter: Option<String>,

    /// The user as which the nodes are asked [default: they ask for none]
    #[arg(
        long,
        value_name = "NAME",
        env = "PELTON_STORE_USER",
        requires = "store_password_file"
    )]
    pub store_user: Option<String>,

    /// File with the password of --store-user, in one line
    #[arg(
        long,
        value_name = "FILE",
        env = "PELTON_STORE_PASSWORD_FILE",
        requires = "store_user"
    )]
    pub store_password_file: Option<PathBuf>,

    /// Speak TLS with the nodes, and believe one only if its certificate is one of these (PEM), or
    /// signed by one of these authorities, and names its IP address
    ///
    /// Only in builds with the feature `cassandra-tls`. [default: no TLS]
    #[arg(long, value_name = "FILE", env = "PELTON_STORE_CA")]
    pub store_ca: Option<PathBuf>,
}

/// `pelton store init`
#[derive(Args, Debug)]
pub struct InitStoreArguments {
    #[command(flatten)]
    pub access: StoreAccessArguments,

    /// Replicas of each row in each data center, if the keyspace is new; one that is there keeps
    /// what it has
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 3,
        value_parser = clap::value_parser!(u8).range(1..=16)
    )]
    pub replicas: u8,

    /// What the default database promises, if it is new. Stays as it is
    #[arg(
        long,
        value_name = "PROMISE",
        value_enum,
        default_value = "linearizable"
    )]
    pub promise: PromiseArgument,

    /// The order in which a scan of the default database returns its keys, if it is new. Stays as
    /// it is
    #[arg(long, value_name = "ORDER", value_enum, default_value = "hash")]
    pub order: OrderArgument,

    /// In how many parts the keys of the default database are divided, if it is new; a request
    /// changes one of them at once. Stays as it is [default: 1024 with hash, 16 with merged]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=16_384))]
    pub buckets: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_with_and_without_ports() {
        let read = |text: &str| text.parse::<ContactAddresses>().map(|nodes| nodes.0);
        for (text, expected) in [
            ("db1", &["db1:9042"][..]),
            ("db1:9043, 10.0.0.2", &["db1:9043", "10.0.0.2:9042"]),
            (
                "::1,[::1],[fe80::1%eth0]:1",
                &["[::1]:9042", "[::1]:9042", "[fe80::1%eth0]:1"],
            ),
        ] {
            let expected = expected.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(read(text), Ok(expected));
        }
        for text in [
            "", "a,", ":9042", "a:", "a:0", "a:65536", "a:x", "[::1", "[::1]x", "cql://a",
        ] {
            let message = read(text).expect_err(text);
            assert!(message.contains("such as db1:9042"), "{text}: {message}");
        }
    }
}
