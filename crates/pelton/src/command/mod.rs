//! The commands that speak to a server.

mod delete;
mod echo;
mod get;
mod proto;
mod put;
mod range;
mod status;

pub use delete::delete;
pub use echo::echo;
pub use get::get;
pub use proto::write_proto_files;
pub use put::put;
pub use range::{count, scan};
pub use status::status;

use std::time::{Duration, Instant};

use client::{CallError, CallOptions, Channel, ChannelOptions};
use service::Method;

use crate::arguments::{ConnectionArguments, DatabaseArguments, OutputFormat};
use crate::encoding;
use crate::exit::Failure;

/// What to look at when there is no connection.
const CONNECT_HINT: &str = "`pelton serve` starts a server, --address says where it listens";

/// A connection to the server of the command line.
struct Caller {
    channel: Channel,
    address: String,
    timeout: Duration,
}

impl Caller {
    fn connect(arguments: &ConnectionArguments) -> Result<Caller, Failure> {
        let timeout = Duration::from_millis(arguments.timeout.ms);
        let options = ChannelOptions {
            connect_timeout: timeout,
            ..ChannelOptions::default()
        };
        let channel = Channel::connect(&arguments.address, &options)
            .map_err(|error| Failure::Failed(format!("{error}; {CONNECT_HINT}")))?;
        Ok(Caller {
            channel,
            address: arguments.address.to_string(),
            timeout,
        })
    }

    /// When a call that begins now has to have ended.
    fn options(&self) -> CallOptions<'static> {
        CallOptions {
            deadline: Some(Instant::now() + self.timeout),
            ..CallOptions::default()
        }
    }

    /// Calls a unary method.
    fn unary(&mut self, method: Method, request: &[u8]) -> Result<Vec<u8>, Failure> {
        let options = self.options();
        let answer = self.channel.unary(&path(method), request, &options);
        answer.map_err(|error| self.failure(method, &error))
    }

    /// The failure of a call in words.
    fn failure(&self, method: Method, error: &CallError) -> Failure {
        call_failure(&self.address, method.path(), error)
    }
}

fn call_failure(address: &str, called: &str, error: &CallError) -> Failure {
    Failure::Failed(format!("{called} on {address}: {error}"))
}

/// An answer that cannot be read: another program listens there, or one of another version.
fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!(
        "the server's answer cannot be understood ({error}); is it a pelton server?"
    ))
}

fn path(method: Method) -> String {
    format!("/{}", method.path())
}

/// A key of the command line: its bytes, and how to show it in a message.
struct Key {
    bytes: Vec<u8>,
    shown: String,
}

impl Key {
    fn new(text: &std::ffi::OsStr, database: &DatabaseArguments) -> Result<Key, Failure> {
        let bytes = encoding::decode_key(text, database.key_encoding)?;
        let shown = encoding::show_key(&bytes, database.key_encoding);
        Ok(Key { bytes, shown })
    }
}

/// Where a key was looked for, for messages: nothing for the default database, which needs no name.
fn in_database(database: &str) -> String {
    if database.is_empty() {
        String::new()
    } else {
        format!(" in the database `{database}`")
    }
}

/// Says on standard error that something is not there or not so. With JSON the answer has said it already.
fn say_miss(format: OutputFormat, message: &str) {
    if format == OutputFormat::Text {
        eprintln!("pelton: {message}");
    }
}
