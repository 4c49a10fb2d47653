//! `pelton upload`, `pelton download` and `pelton blob`

mod attempts;
mod download;
mod part;
mod sink;
mod sync_ahead;
mod upload;
mod uploads;

pub use download::download;
pub use upload::upload;
pub use uploads::uploads;

use serde_json::{Map, Value};
use service::Method;
use service::blob::messages::{
    BlobDescription, DeleteBlobRequest, DeleteBlobResponse, ListRequest, StatRequest, StatResponse,
    decode_list,
};

use super::{Caller, in_database, path, say_miss, unreadable};
use crate::arguments::{BlobArguments, ListBlobsArguments};
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};

/// Prints the blobs of a database.
pub fn list_blobs(arguments: &ListBlobsArguments) -> Result<Exit, Failure> {
    let place = &arguments.place;
    let mut request = Vec::new();
    ListRequest {
        database: &place.database,
        prefix: &arguments.prefix,
        start_after: &arguments.start_after,
        limit: arguments.limit.unwrap_or(0),
    }
    .encode(&mut request);
    let mut caller = Caller::connect(&place.connection)?;
    let (address, options) = (caller.address.clone(), caller.options());
    let failed = |error| super::call_failure(&address, Method::BlobList.path(), &error);
    let mut output = Output::new(place.connection.output);
    let pages = caller
        .channel
        .server_streaming(&path(Method::BlobList), &request, &options);
    let mut pages = pages.map_err(failed)?;
    while let Some(page) = pages.next_message().map_err(failed)? {
        let mut printed = Ok(());
        decode_list(&page, |blob| {
            if printed.is_ok() {
                let line = format!("{}\t{}\t{}", blob.size_bytes, blob.version, blob.name);
                printed = output.either(&line, || fields(&blob));
            }
        })
        .map_err(unreadable)?;
        printed?;
    }
    output.end()?;
    Ok(Exit::Done)
}

/// Describes a blob.
pub fn stat_blob(arguments: &BlobArguments) -> Result<Exit, Failure> {
    let place = &arguments.place;
    let mut request = Vec::new();
    StatRequest {
        database: &place.database,
        name: &arguments.name,
        upload_id: &[],
    }
    .encode(&mut request);
    let answer = Caller::connect(&place.connection)?.unary(Method::BlobStat, &request)?;
    let answer = StatResponse::decode(&answer).map_err(unreadable)?;
    let mut output = Output::new(place.connection.output);
    let Some(blob) = answer.blob.filter(|_| answer.found) else {
        if output.is_json() {
            output.object(object([("found", false.into())]))?;
        }
        output.end()?;
        return miss(arguments);
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

/// Removes a blob.
pub fn delete_blob(arguments: &BlobArguments) -> Result<Exit, Failure> {
    let place = &arguments.place;
    let mut request = Vec::new();
    DeleteBlobRequest {
        database: &place.database,
        name: &arguments.name,
        if_version: None,
    }
    .encode(&mut request);
    let answer = Caller::connect(&place.connection)?.unary(Method::BlobDelete, &request)?;
    let answer = DeleteBlobResponse::decode(&answer).map_err(unreadable)?;
    let mut output = Output::new(place.connection.output);
    if output.is_json() {
        let (deleted, version) = (answer.deleted.into(), answer.version.into());
        output.object(object([("deleted", deleted), ("version", version)]))?;
    } else if answer.deleted {
        output.line(&format!("deleted, it had version {}", answer.version))?;
    }
    output.end()?;
    match answer.deleted {
        true => Ok(Exit::Done),
        false => miss(arguments),
    }
}

fn miss(arguments: &BlobArguments) -> Result<Exit, Failure> {
    let (name, place) = (&arguments.name, &arguments.place);
    let message = format!("there is no blob `{name}`{}", in_database(&place.database));
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
        let hex: String = blob
            .sha256
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        fields.insert("sha256".into(), hex.into());
    }
    fields
}
