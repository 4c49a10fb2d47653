//! `pelton.v1.Blob`, and blobs over plain HTTP/2. `proto/pelton/v1/blob.proto` is the promise that
//! this module keeps.
//!
//! What waits for the disk is done by the layer above ([`BlobAccess::blob`]); [`Storing`] and
//! [`ContentReading`] are what all protocols have in common.

mod download;
mod list;
mod parted_chunk;
mod reading;
#[cfg(test)]
mod reading_tests;
pub(crate) mod refuse;
mod storing;
#[cfg(test)]
mod tests;
mod upload;
mod uploads;

use store::blob::{BlobNews, Description, key};
use store::{
    CommitOutcome, Condition, DatabaseId, Decision, Mode, Operation, OperationStatus, ReadView,
};

use crate::actions::{
    BlobAccess, CallClock, DatabaseAccess, Permissions, RequestFlow, ResponseMemory, Responses,
    SendRoom,
};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::keyvalue::messages::Invalid;
use crate::keyvalue::refusal;
use crate::method::Method;
use crate::rights::Right;
use crate::status::{self, Status};
use api::blob::{DeleteBlobRequest, DeleteBlobResponse, StatRequest, StatResponse};
use download::DownloadCall;
use list::BlobListing;
pub(crate) use reading::ContentReading;
use storing::with_description;
pub(crate) use storing::{Storing, StoringProgress};
use upload::UploadCall;

/// A call of `pelton.v1.Blob`.
pub struct BlobCall(BlobStep);

/// How far a call has come.
enum BlobStep {
    /// The request has not arrived yet.
    Expecting(Method),
    Upload(Box<UploadCall>),
    Download(Box<DownloadCall>),
    /// Waits for a view; the name of the blob.
    Stat(Box<str>),
    List(Box<BlobListing>),
    /// Is with the committer.
    Delete,
    /// Waits for what becomes of unfinished uploads.
    Uploads,
}

impl BlobCall {
    /// Begins a call of `method`.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        _actions: &mut impl Sized,
    ) -> BlobCall {
        BlobCall(match method {
            Method::BlobUpload => BlobStep::Upload(Box::default()),
            method => BlobStep::Expecting(method),
        })
    }
}

impl PlanReads for BlobCall {}

impl<A> CallSteps<A> for BlobCall
where
    A: DatabaseAccess
        + Permissions
        + BlobAccess
        + Responses
        + SendRoom
        + ResponseMemory
        + RequestFlow
        + CallClock,
{
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut A) {
        let method = match &mut self.0 {
            BlobStep::Expecting(method) => *method,
            BlobStep::Upload(upload) => return upload.message(bytes, last, shared, actions),
            _ => return actions.finish(status::second_request("this method")),
        };
        match BlobStep::begin(method, bytes, shared, actions) {
            Ok(Some(step)) => self.0 = step,
            Ok(None) => {}
            Err(status) => actions.finish(status),
        }
    }

    fn part(&mut self, bytes: &[u8], left: usize, last: bool, _shared: &Shared, actions: &mut A) {
        match &mut self.0 {
            BlobStep::Upload(upload) => upload.part(bytes, left, last, actions),
            _ => debug_assert!(false, "only uploads take parts"),
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        match &mut self.0 {
            BlobStep::Expecting(method) => actions.finish(status::no_request(method.path())),
            BlobStep::Upload(upload) => upload.half_closed(actions),
            _ => {}
        }
    }

    fn read(&mut self, view: &ReadView<'_>, kept: &[u8], shared: &Shared, actions: &mut A) {
        match &mut self.0 {
            BlobStep::Download(download) => download.open(view, kept, shared, actions),
            BlobStep::Stat(name) => answer_stat(name, view, kept, shared, actions),
            BlobStep::List(list) => list.read(view, actions),
            _ => debug_assert!(false, "nothing was to be read"),
        }
    }

    fn blob(&mut self, news: BlobNews, _shared: &Shared, actions: &mut A) {
        match &mut self.0 {
            BlobStep::Upload(upload) => upload.news(news, actions),
            BlobStep::Download(download) => download.news(news, actions),
            BlobStep::Uploads => uploads::answer(news, actions),
            _ => debug_assert!(false, "nothing was to be done"),
        }
    }

    fn committed(&mut self, outcome: &CommitOutcome<'_>, _shared: &Shared, actions: &mut A) {
        match &mut self.0 {
            BlobStep::Upload(upload) => upload.committed(outcome, actions),
            BlobStep::Delete => match deleted(outcome) {
                Ok(response) => actions.respond(|out| response.encode(out)),
                Err(status) => actions.finish(status),
            },
            _ => debug_assert!(false, "nothing was submitted"),
        }
    }

    fn writable(&mut self, _shared: &Shared, actions: &mut A) {
        match &mut self.0 {
            BlobStep::Download(download) => download.go_on(actions),
            BlobStep::List(list) => list.go_on(actions),
            _ => {}
        }
    }
}

impl BlobStep {
    fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions + BlobAccess + Responses + ResponseMemory),
    ) -> Result<Option<BlobStep>, Status> {
        Ok(Some(match method {
            Method::BlobDownload => {
                BlobStep::Download(Box::new(DownloadCall::begin(bytes, shared, actions)?))
            }
            Method::BlobStat => return begin_stat(bytes, shared, actions),
            Method::BlobList => {
                BlobStep::List(Box::new(BlobListing::begin(bytes, shared, actions)?))
            }
            Method::BlobDelete => {
                begin_delete(bytes, shared, actions)?;
                BlobStep::Delete
            }
            Method::BlobListUploads => {
                if !uploads::begin_list(bytes, shared, actions)? {
                    return Ok(None);
                }
                BlobStep::Uploads
            }
            Method::BlobDiscardUploads => {
                uploads::begin_discard(bytes, shared, actions)?;
                BlobStep::Uploads
            }
            _ => return Err(Status::unimplemented(method.path())),
        }))
    }
}

/// A description that owns what it says.
#[derive(Clone, Debug)]
pub(crate) struct BlobDescriptionOf {
    fixed: Description<'static>,
    content_type: Box<str>,
}

impl BlobDescriptionOf {
    pub(crate) fn new(description: &Description<'_>) -> BlobDescriptionOf {
        BlobDescriptionOf {
            fixed: Description {
                content_type: "",
                ..*description
            },
            content_type: description.content_type.into(),
        }
    }

    pub(crate) fn description(&self) -> Description<'_> {
        Description {
            content_type: &self.content_type,
            ..self.fixed
        }
    }
}

/// Asks for a view of the hidden index, to [find] a blob in it.
pub(crate) fn read_description(
    database: DatabaseId,
    name: &str,
    shared: &Shared,
    actions: &mut impl DatabaseAccess,
) {
    let key = key(database, name);
    actions.read(DatabaseId::BLOBS, &key, shared.store.hasher().hash(&key));
}

/// Looks a blob up in a view of the hidden index. `Err`: its description makes no sense.
pub(crate) fn find<'v>(
    view: &'v ReadView<'_>,
    key: &[u8],
    shared: &Shared,
) -> Result<Option<(u64, Description<'v>)>, Status> {
    let hash = shared.store.hasher().hash(key);
    let found = view.get(key, hash, 0).map_err(|_| refuse::unreadable())?;
    let Some(entry) = found else {
        return Ok(None);
    };
    let description = Description::decode(entry.value.bytes()).ok_or_else(refuse::unreadable)?;
    Ok(Some((entry.version, description)))
}

fn begin_stat(
    bytes: &[u8],
    shared: &Shared,
    actions: &mut (impl DatabaseAccess + Permissions + Responses),
) -> Result<Option<BlobStep>, Status> {
    let request =
        StatRequest::decode(bytes).map_err(|error| refuse::invalid(Method::BlobStat, error))?;
    let place = (request.database, request.name);
    let (database, blobs) = refuse::database(Right::Read, place, shared, actions)?;
    refuse::name("name", request.name)?;
    if request.upload_id.is_empty() {
        read_description(database, request.name, shared, actions);
        return Ok(Some(BlobStep::Stat(request.name.into())));
    }
    let stored_bytes = blobs.stored_bytes(database, request.name, request.upload_id);
    let response = StatResponse {
        found: stored_bytes.is_some(),
        blob: None,
        stored_bytes: stored_bytes.unwrap_or(0),
    };
    actions.respond(|out| response.encode(out));
    Ok(None)
}

fn answer_stat(
    name: &str,
    view: &ReadView<'_>,
    key: &[u8],
    shared: &Shared,
    actions: &mut impl Responses,
) {
    match find(view, key, shared) {
        Err(status) => actions.finish(status),
        Ok(None) => actions.respond(|out| StatResponse::default().encode(out)),
        Ok(Some((version, description))) => {
            with_description(name, version, &description, |blob| {
                let response = StatResponse {
                    found: true,
                    blob: Some(blob),
                    stored_bytes: 0,
                };
                actions.respond(|out| response.encode(out));
            });
        }
    }
}

fn begin_delete(
    bytes: &[u8],
    shared: &Shared,
    actions: &mut (impl DatabaseAccess + Permissions),
) -> Result<(), Status> {
    let request = DeleteBlobRequest::decode(bytes)
        .map_err(|error| refuse::invalid(Method::BlobDelete, error))?;
    Invalid::refuse_unserved(request.unserved)
        .map_err(|invalid| refuse::invalid(Method::BlobDelete, invalid))?;
    let place = (request.database, request.name);
    let (database, _) = refuse::database(Right::Write, place, shared, actions)?;
    refuse::name("name", request.name)?;
    if request.if_version == Some(0) {
        return Err(Status::invalid_argument(
            "field if_version is 0: what is not there cannot be deleted",
        ));
    }
    delete(database, request.name, request.if_version, actions);
    Ok(())
}

/// Has a description removed; `CallSteps::committed` follows.
pub(crate) fn delete(
    database: DatabaseId,
    name: &str,
    if_version: Option<u64>,
    actions: &mut impl DatabaseAccess,
) {
    let mut commit = actions.write(DatabaseId::BLOBS, Mode::Independent);
    let pushed = commit.push(&Operation::Delete {
        key: &key(database, name),
        condition: if_version.map_or(Condition::None, Condition::VersionIs),
        want_previous: true,
    });
    debug_assert_eq!(pushed, Ok(()), "a checked name fits");
    commit.submit();
}

/// What became of it.
pub(crate) fn deleted(outcome: &CommitOutcome<'_>) -> Result<DeleteBlobResponse, Status> {
    if let Decision::Refused(why) = outcome.decision {
        return Err(refusal(why));
    }
    let operation = outcome.first();
    let operation = operation.ok_or_else(|| Status::internal("a commit without an outcome"))?;
    Ok(DeleteBlobResponse {
        deleted: operation.status == OperationStatus::Done && operation.existed(),
        version: operation.before.version,
    })
}
