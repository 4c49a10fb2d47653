//! The commands that speak to a server.

mod append;
mod backoff;
mod backup;
mod batch;
mod blob;
mod convert;
mod database;
mod delete;
mod delete_range;
mod echo;
mod export;
mod forget_replicas;
mod get;
mod import;
mod import_note;
mod import_tkrzw;
mod increment;
mod lab;
mod load;
mod load_machine;
mod log;
mod page_file;
mod pipe;
mod promote;
mod proto;
mod put;
mod range;
mod restore;
mod results;
mod resumable_scan;
mod resumable_watch;
mod role;
mod self_check;
mod status;
mod store;
mod tls;
mod token;
mod top;
mod transact;
mod value;
mod watch;

pub use append::append;
pub use backup::{backup, snapshot};
pub use batch::batch;
pub use blob::{delete_blob, download, list_blobs, stat_blob, upload, uploads};
pub use convert::convert_database;
pub use database::{create_database, drop_database, list_databases};
pub use delete::delete;
pub use echo::echo;
pub use export::export;
pub use forget_replicas::forget_replicas;
pub use get::get;
pub use import::import;
pub use increment::increment;
pub use lab::lab;
pub use load::load;
pub use log::{inspect_log, verify_log};
pub use promote::promote;
pub use proto::write_proto_files;
pub use put::put;
pub use range::{count, scan};
pub use restore::restore;
pub use role::{drop_role, list_roles, set_role};
pub use self_check::self_check;
pub use status::status;
pub use store::init_store;
pub use tls::client_tls;
pub use token::{create_token, list_tokens, revoke_token, rotate_token};
pub use top::top;
pub use transact::transact;
pub use watch::watch;

use std::time::{Duration, Instant};

use api::keyvalue::Entry;
use api::rpc::{Repetition, Rpc};
use client::typed::Reply;
use client::{CallError, CallOptions, Channel, ChannelOptions, Code, Credentials};
use serde_json::{Map, Value};
use service::Method;

use crate::arguments::{ConnectionArguments, DatabaseArguments, OutputFormat, quoted};
use crate::credentials::credentials;
use crate::encoding;
use crate::exit::{CallFailure, Failure};
use crate::interrupt::{self, InterruptStage};
use crate::otlp;
use crate::output::note;
use crate::size::Span;

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
        Caller::connect_as(arguments, credentials(&arguments.credentials)?)
    }

    /// The same with these credentials, or without any.
    fn connect_as(
        arguments: &ConnectionArguments,
        credentials: Option<Credentials>,
    ) -> Result<Caller, Failure> {
        let timeout = Duration::from_millis(arguments.timeout.ms);
        let options = ChannelOptions {
            connect_timeout: timeout,
            tls: tls::client_tls(&arguments.tls)?,
            credentials,
            tracer: otlp::tracer()?,
            ..ChannelOptions::default()
        };
        let channel = Channel::connect(&arguments.address, &options)
            .map_err(|error| tls::connect_failure(&arguments.address, &error))?;
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
    fn call<M: Rpc>(&mut self, request: &M::Request<'_>) -> Result<Reply<M>, Failure> {
        self.try_call::<M>(request)
            .map_err(|error| self.failure::<M>(&error))
    }

    /// The same, for who looks at the error.
    fn try_call<M: Rpc>(&mut self, request: &M::Request<'_>) -> Result<Reply<M>, CallError> {
        let options = self.options();
        interrupt::note_calls(match M::repetition(request) {
            Repetition::Harmless => InterruptStage::Reading,
            Repetition::AtMostOnce | Repetition::MayRepeat => InterruptStage::Writing,
        });
        let reply = self.channel.call::<M>(request, &options);
        if reply.is_ok() {
            interrupt::note_calls(InterruptStage::Ended);
        }
        reply
    }

    /// The failure of a call in words.
    fn failure<M: Rpc>(&self, error: &CallError) -> Failure {
        late_failure(&self.address, self.timeout, M::METHOD.path, error)
    }
}

/// The failure of a call that had so long.
fn late_failure(address: &str, timeout: Duration, called: &str, error: &CallError) -> Failure {
    match call_failure(address, called, error) {
        Failure::Call(mut failure) if failure.status == Some(Code::DeadlineExceeded) => {
            let ms = timeout.as_millis() as u64;
            failure.what = format!("{called} on {address}: no answer within {}", Span { ms });
            Failure::Call(failure).with("--timeout says how long to wait")
        }
        failure => failure,
    }
}

fn call_failure(address: &str, called: &str, error: &CallError) -> Failure {
    let status = match error {
        CallError::Status(status) => Some(status.code()),
        CallError::DeadlineExceeded => Some(Code::DeadlineExceeded),
        _ => None,
    };
    let error_text = tls::without_vain_advice(&error.to_string());
    let tls_hint = tls::call_hint(error);
    if let (Some(Code::InvalidArgument), Some(wrong)) = (status, wrong_name(&error_text)) {
        return Failure::Usage(wrong);
    }
    let failure = CallFailure {
        what: format!(
            "{called} on {address}: {}",
            without_field(&without_method(&error_text, called))
        ),
        address: address.into(),
        status,
        hint: match status {
            Some(Code::ResourceExhausted) if error_text.contains("the message has ") => {
                "a request has 16 MiB, or the longest value that is allowed (--max-value of the \
                 server); `pelton upload` stores content of any size"
            }
            Some(Code::NotFound)
                if error_text.contains("field database: ")
                    && ["\"default\"", "\"(default)\""]
                        .iter()
                        .any(|name| error_text.contains(name)) =>
            {
                "the default database has the empty name: leave --database out, or write \
                 --database ''"
            }
            _ if error_text.contains("blobs are kept in databases that last") => {
                "`pelton database create NAME --durability synced` makes one, and --database NAME \
                 uses it"
            }
            Some(Code::NotFound) if error_text.contains("field database: ") => {
                "`pelton database list` shows those that are there, `pelton database create NAME` \
                 makes one"
            }
            _ if tls_hint.is_empty() && may_be_done(called, error) => {
                "the server may have done it all the same"
            }
            _ => &tls_hint,
        }
        .into(),
        names_nothing: error_text.contains("field name: "),
        is_miss: false,
    };
    failure.into()
}

/// Whether a call without an answer may have changed something.
fn may_be_done(called: &str, error: &CallError) -> bool {
    let is_unknown = match error {
        CallError::Status(status) => matches!(
            status.code(),
            Code::Cancelled
                | Code::Unknown
                | Code::DeadlineExceeded
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        ),
        _ => true,
    } && error.may_have_happened();
    let method = service::method::route(format!("/{called}").as_bytes());
    is_unknown && method.is_some_and(Method::changes_content)
}

#[cfg(test)]
#[test]
fn only_a_write_that_may_have_been_sent_may_have_been_done() {
    let lost = |reason: &str| CallError::ConnectionLost {
        reason: reason.into(),
    };
    let is_told = |called: &str, error: &CallError| {
        let text = call_failure("a:1", called, error).to_string();
        text.contains("may have done it")
    };
    let (read, write) = (Method::Get.path(), Method::Put.path());
    for error in [lost("the server closed it"), CallError::DeadlineExceeded] {
        assert!(is_told(write, &error), "{error}");
        assert!(!is_told(read, &error), "{error}");
        assert!(!is_told("GET /", &error), "{error}");
    }
    // No request comes through a handshake that failed.
    let alert = "the server gave up with the alert CertificateRequired";
    for reason in [client::SERVER_SPEAKS_TLS, alert] {
        assert!(!is_told(write, &lost(reason)), "{reason}");
    }
    for code in [Code::Unavailable, Code::Internal, Code::Unknown] {
        let status = || CallError::Status(client::Status::new(code, "no"));
        assert!(is_told(write, &status()), "{code:?}");
        assert!(!is_told(read, &status()), "{code:?}");
    }
    let senseless = CallError::BadAnswer {
        reason: "it has no message".into(),
    };
    assert!(is_told(write, &senseless));
    let not_begun = CallError::NotBegun(client::NotBegun::Refused);
    let refused = CallError::Status(client::Status::new(Code::FailedPrecondition, "no"));
    assert!(!is_told(write, &not_begun) && !is_told(write, &refused));
}

/// What is wrong with a name that the user chose, which is no failure of the server.
fn wrong_name(message: &str) -> Option<String> {
    let (_, about) = message.split_once("field ")?;
    let about = about.strip_prefix("database.").unwrap_or(about);
    let rest = about.strip_prefix("name")?;
    match rest.strip_prefix(": ") {
        Some(rule) => Some(format!("the name cannot be used: {rule}")),
        None => rest
            .strip_prefix(' ')
            .map(|rule| format!("the name {rule}")),
    }
}

#[cfg(test)]
#[test]
fn a_name_that_cannot_be_is_wrong_usage() {
    for (message, expected) in [
        (
            "field name has \"..\" as a part between slashes",
            "the name has \"..\" as a part between slashes",
        ),
        (
            "field name is \"../x\"; a backup's name has letters",
            "the name is \"../x\"; a backup's name has letters",
        ),
        (
            "field database.name: a database's name has letters",
            "the name cannot be used: a database's name has letters",
        ),
    ] {
        let error = CallError::Status(client::Status::new(Code::InvalidArgument, message));
        let failure = call_failure("a:1", "a.B/C", &error);
        assert!(matches!(failure, Failure::Usage(_)), "{failure:?}");
        assert_eq!(failure.to_string(), expected);
    }
    let error = CallError::Status(client::Status::new(
        Code::InvalidArgument,
        "field names: no",
    ));
    let failure = call_failure("a:1", "a.B/C", &error);
    assert!(matches!(failure, Failure::Call(_)), "{failure:?}");
}

#[cfg(test)]
#[test]
fn a_call_that_was_too_late_says_how_long_it_had() {
    let error = CallError::DeadlineExceeded;
    let failure = late_failure("a:1", Duration::from_secs(2), Method::Put.path(), &error);
    let text = "pelton.v1.KeyValue/Put on a:1: no answer within 2s; the server may have done it \
                all the same; --timeout says how long to wait";
    assert_eq!(failure.to_string(), text);
    assert_eq!(failure.fields()["status"], "DEADLINE_EXCEEDED");
}

/// The message of a server without the method, which stands before it already.
fn without_method(message: &str, called: &str) -> String {
    message.replacen(&format!(": {called}: "), ": ", 1)
}

/// The message of a server without the name of a field of the request: who uses the command line
/// knows none.
fn without_field(message: &str) -> String {
    let found = message.split_once("field ").and_then(|(before, rest)| {
        let (name, behind) = rest.split_once(": ")?;
        let is_name = name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'_' | b'.'));
        (is_name && before.ends_with(": ")).then(|| format!("{before}{behind}"))
    });
    found.unwrap_or_else(|| message.to_owned())
}

#[cfg(test)]
#[test]
fn fields_of_requests_are_left_out_of_messages() {
    for (message, shown) in [
        (
            "NOT_FOUND: field name: there is no blob \"x\"",
            "NOT_FOUND: there is no blob \"x\"",
        ),
        ("INVALID: field database.name: no", "INVALID: no"),
        ("the field of honour: x", "the field of honour: x"),
        ("UNKNOWN: field a b: x", "UNKNOWN: field a b: x"),
        ("", ""),
    ] {
        assert_eq!(without_field(message), shown);
    }
}

#[cfg(test)]
#[test]
fn a_method_is_named_once_in_a_message() {
    let (called, message) = (
        "a.B/Put",
        "RESOURCE_EXHAUSTED: a.B/Put: the value is too long",
    );
    let shown = without_method(message, called);
    assert_eq!(shown, "RESOURCE_EXHAUSTED: the value is too long");
    assert_eq!(without_method(message, "a.B/Get"), message);
}

/// An answer that cannot be read: another program listens there, or one of another version.
fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!(
        "the server's answer cannot be understood ({error}); is it a pelton server?"
    ))
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

/// What to add where there is no key or blob of a name that looks like a pattern; `instead`, with a
/// prefix behind it, takes those (`what`) that begin so.
fn wildcard_hint(name: &str, instead: &str, what: &str) -> String {
    match name.split_once('*') {
        None => String::new(),
        Some((prefix, _)) => format!(
            "; there are no wildcards, `{instead} {}` takes all {what} that begin so",
            quoted(prefix)
        ),
    }
}

/// Says on standard error that something is not there or not so. With JSON the answer has said it
/// already.
fn say_miss(format: OutputFormat, message: &str) {
    if format == OutputFormat::Text {
        note(format_args!("pelton: {message}"));
    }
}

/// The entry before a write, on one line for people.
fn show_previous(previous: Option<&Entry<'_>>) -> String {
    match previous {
        Some(entry) => format!(
            "before: version {}, {}",
            entry.version,
            encoding::escape(entry.value)
        ),
        None => "before: nothing".into(),
    }
}

/// Adds the entry before a write to its answer, null if there was none; nothing if it was not asked
/// for.
fn insert_previous(fields: &mut Map<String, Value>, previous: Option<&Entry<'_>>, wanted: bool) {
    if !wanted {
        return;
    }
    let entry = previous.map(|entry| {
        let mut object = Map::new();
        insert_entry(&mut object, entry);
        object
    });
    fields.insert("previous".into(), entry.map_or(Value::Null, Value::Object));
}

/// Adds value, version and, if there is one, expiry.
fn insert_entry(fields: &mut Map<String, Value>, entry: &Entry<'_>) {
    encoding::insert_bytes(fields, "value", entry.value);
    fields.insert("version".into(), entry.version.into());
    if entry.expires_at_ms != 0 {
        fields.insert("expires_at_ms".into(), entry.expires_at_ms.into());
    }
}
