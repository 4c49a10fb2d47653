//! `pelton upload`, `pelton download` and `pelton blob`

mod attempts;
mod below;
mod download;
mod part;
mod sink;
mod sync_ahead;
mod upload;
mod uploads;

pub use download::download;
pub use upload::upload;
pub use uploads::uploads;

use api::blob::{BlobDescription, DeleteBlobRequest, ListRequest, StatRequest};
use api::rpc::Rpc;
use api::rpc::blob::{Delete, List, Stat};
use serde_json::{Map, Value};

use super::{Caller, in_database, late_failure, say_miss, wildcard_hint};
use crate::arguments::{
    BlobArguments, BlobPlaceArguments, DeleteBlobArguments, ListBlobsArguments,
};
use crate::encoding::encode_hex;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{Output, counted, object};

/// Names that are listed before the blobs are removed.
const NAMES_AT_ONCE: u64 = 1_000;

/// Prints the blobs of a database.
pub fn list_blobs(arguments: &ListBlobsArguments) -> Result<Exit, Failure> {
    let place = &arguments.place;
    let request = ListRequest {
        database: &place.database,
        prefix: &arguments.prefix,
        start_after: &arguments.start_after,
        limit: arguments.limit.unwrap_or(0),
    };
    let mut caller = Caller::connect(&place.connection)?;
    let mut output = Output::new(place.connection.output);
    each_blob(&mut caller, &request, |blob| {
        let line = format!("{}\t{}\t{}", blob.size_bytes, blob.version, blob.name);
        output.either(&line, || fields(blob))
    })?;
    output.end()?;
    Ok(Exit::Done)
}

/// Lists blobs, and visits each as its page comes.
fn each_blob(
    caller: &mut Caller,
    request: &ListRequest<'_>,
    mut visit: impl FnMut(&BlobDescription<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (address, timeout, options) = (&caller.address, caller.timeout, caller.options());
    let failed = |error| late_failure(address, timeout, List::METHOD.path, &error);
    let pages = (caller.channel).call_server_streaming::<List>(request, &options);
    let mut pages = pages.map_err(failed)?;
    while let Some(page) = pages.next_reply().map_err(failed)? {
        (page.message().blobs.iter().flatten()).try_for_each(|blob| visit(&blob))?;
    }
    Ok(())
}

/// Describes a blob.
pub fn stat_blob(arguments: &BlobArguments) -> Result<Exit, Failure> {
    let place = &arguments.place;
    let request = StatRequest {
        database: &place.database,
        name: &arguments.name,
        upload_id: &[],
    };
    let reply = Caller::connect(&place.connection)?.call::<Stat>(&request)?;
    let answer = reply.message();
    let mut output = Output::new(place.connection.output);
    let Some(blob) = answer.blob.filter(|_| answer.found) else {
        if output.is_json() {
            output.object(object([("found", false.into())]))?;
        }
        output.end()?;
        return miss(&arguments.name, place, "pelton blob list --prefix");
    };
    if output.is_json() {
        let mut described = object([("found", true.into())]);
        described.append(&mut fields(&blob));
        output.object(described)?;
    } else {
        for (name, value) in fields(&blob) {
            let value = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            output.line(&format!("{name}: {value}"))?;
        }
    }
    output.end()?;
    Ok(Exit::Done)
}

/// Removes a blob, or all of a prefix.
pub fn delete_blob(arguments: &DeleteBlobArguments) -> Result<Exit, Failure> {
    match &arguments.name {
        Some(name) => delete_one(name, &arguments.place),
        None => delete_all(arguments),
    }
}

/// Asks the server to remove a blob; the answer returns whether it was there, and its version.
fn remove(caller: &mut Caller, name: &str, database: &str) -> Result<(bool, u64), Failure> {
    let request = DeleteBlobRequest {
        database,
        name,
        ..DeleteBlobRequest::default()
    };
    let answer = caller.call::<Delete>(&request)?.message();
    Ok((answer.deleted, answer.version))
}

fn delete_one(name: &str, place: &BlobPlaceArguments) -> Result<Exit, Failure> {
    let mut caller = Caller::connect(&place.connection)?;
    let (deleted, version) = remove(&mut caller, name, &place.database)?;
    let mut output = Output::new(place.connection.output);
    if output.is_json() {
        let fields = [("deleted", deleted.into()), ("version", version.into())];
        output.object(object(fields))?;
    } else if deleted {
        output.line(&format!("deleted, it had version {version}"))?;
    }
    output.end()?;
    match deleted {
        true => Ok(Exit::Done),
        false => miss(name, place, "pelton blob delete --prefix"),
    }
}

/// Removes all blobs of a prefix, or every one.
fn delete_all(arguments: &DeleteBlobArguments) -> Result<Exit, Failure> {
    let prefix = arguments.prefix.as_deref().unwrap_or_default();
    if prefix.is_empty() && !arguments.all {
        return Err(Failure::Usage(
            "--prefix is empty, and every name begins with that; --all deletes every blob".into(),
        ));
    }
    let interrupt = Interrupt::listen();
    let mut deleted = 0;
    remove_all(arguments, prefix, &interrupt, &mut deleted).map_err(|failure| {
        failure.with(&format!(
            "{} deleted before",
            counted(deleted, "blob", "blobs")
        ))
    })?;
    let mut output = Output::new(arguments.place.connection.output);
    let text = format!("{} deleted", counted(deleted, "blob", "blobs"));
    output.either(&text, || object([("deleted", deleted.into())]))?;
    output.end()?;
    Ok(Exit::Done)
}

fn remove_all(
    arguments: &DeleteBlobArguments,
    prefix: &str,
    interrupt: &Interrupt,
    deleted: &mut u64,
) -> Result<(), Failure> {
    let place = &arguments.place;
    let mut caller = Caller::connect(&place.connection)?;
    each_name(&mut caller, &place.database, prefix, |caller, name| {
        if interrupt.is_set() {
            return Err(Failure::Interrupted("interrupted".into()));
        }
        *deleted += u64::from(remove(caller, &name, &place.database)?.0);
        Ok(())
    })
}

/// Visits all names of a prefix, which are listed some at a time: calls may go to the server
/// meanwhile.
fn each_name(
    caller: &mut Caller,
    database: &str,
    prefix: &str,
    mut visit: impl FnMut(&mut Caller, String) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut last = String::new();
    loop {
        let (names, is_last) = some_names(caller, database, prefix, &last)?;
        if let Some(name) = names.last() {
            last.clone_from(name);
        }
        for name in names {
            visit(caller, name)?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// The next names of a prefix, and whether they are the last ones.
fn some_names(
    caller: &mut Caller,
    database: &str,
    prefix: &str,
    start_after: &str,
) -> Result<(Vec<String>, bool), Failure> {
    let request = ListRequest {
        database,
        prefix,
        start_after,
        limit: NAMES_AT_ONCE,
    };
    let mut names = Vec::new();
    each_blob(caller, &request, |blob| {
        names.push(blob.name.to_owned());
        Ok(())
    })?;
    let is_last = (names.len() as u64) < NAMES_AT_ONCE;
    Ok((names, is_last))
}

/// Says that there is no such blob; `instead` is what takes those of a prefix.
fn miss(name: &str, place: &BlobPlaceArguments, instead: &str) -> Result<Exit, Failure> {
    let hint = wildcard_hint(name, instead, "blobs");
    let message = format!(
        "there is no blob `{name}`{}{hint}",
        in_database(&place.database)
    );
    say_miss(place.connection.output, &message);
    Ok(Exit::Miss)
}

/// A description as the fields of an object.
fn fields(blob: &BlobDescription<'_>) -> Map<String, Value> {
    let mut fields = object([
        ("name", blob.name.into()),
        ("size_bytes", blob.size_bytes.into()),
        ("version", blob.version.into()),
        ("crc32c", format!("{:08x}", blob.crc32c).into()),
        ("created_at_ms", blob.created_at_ms.into()),
    ]);
    if !blob.content_type.is_empty() {
        fields.insert("content_type".into(), blob.content_type.into());
    }
    if !blob.sha256.is_empty() {
        fields.insert("sha256".into(), encode_hex(blob.sha256).into());
    }
    fields
}
