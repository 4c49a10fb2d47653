//! Upload over gRPC.

use store::CommitOutcome;
use store::blob::{Begin, BlobNews, ContentEnd, Description, limits};

use super::parted_chunk::{ChunkStart, PartedChunk};
use super::storing::{Storing, StoringProgress, with_description};
use super::{BlobDescriptionOf, refuse};
use crate::actions::{BlobAccess, CallClock, Permissions, RequestFlow, Responses};
use crate::call::Shared;
use crate::keyvalue::messages::Invalid;
use crate::method::Method;
use crate::rights::Right;
use crate::status::{self, Status};
use api::blob::{UploadBegin, UploadEnd, UploadPart, UploadRequest, UploadResponse};

/// A call that uploads.
#[derive(Default)]
pub(super) struct UploadCall {
    /// Nothing has come yet.
    storing: Option<Storing>,
    /// The chunk that is coming in parts.
    parted: Option<PartedChunk>,
    /// Once it is with the committer: what its description says.
    sealed: Option<BlobDescriptionOf>,
}

impl UploadCall {
    pub(super) fn message(
        &mut self,
        bytes: &[u8],
        last: bool,
        shared: &Shared,
        actions: &mut (impl BlobAccess + Permissions + Responses + RequestFlow + CallClock),
    ) {
        if let Err(status) = self.take(bytes, shared, actions) {
            return actions.finish(status);
        }
        if last {
            self.half_closed(actions);
        }
    }

    fn take(
        &mut self,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl BlobAccess + Permissions + RequestFlow + CallClock),
    ) -> Result<(), Status> {
        let request = UploadRequest::decode(bytes)
            .map_err(|error| refuse::invalid(Method::BlobUpload, error))?;
        let part = (request.part)
            .ok_or_else(|| Status::invalid_argument("field part: there is none in the message"))?;
        match (&mut self.storing, part) {
            (None, UploadPart::Begin(begin)) => {
                Invalid::refuse_unserved(begin.unserved)
                    .map_err(|invalid| refuse::invalid(Method::BlobUpload, invalid))?;
                let begun = check_begin(&begin, shared, actions)?;
                self.storing = Some(Storing::begin(begun, begin.if_version, actions));
                actions.take_parts();
                Ok(())
            }
            (None, _) => Err(Status::invalid_argument(
                "field begin: the first message of an upload must say what it will be",
            )),
            (Some(_), UploadPart::Begin(_)) => Err(Status::invalid_argument(
                "field begin: only the first message may have it",
            )),
            (Some(storing), _) if storing.has_ended() => Err(Status::invalid_argument(
                "field part: nothing may follow the end",
            )),
            (Some(_), UploadPart::Chunk(chunk)) if chunk.data.len() > limits::CHUNK_BYTES => {
                Err(refuse::chunk_too_large(chunk.data.len()))
            }
            (Some(storing), UploadPart::Chunk(chunk)) => {
                storing.add(chunk.data, chunk.crc32c, actions);
                Ok(())
            }
            (Some(storing), UploadPart::End(end)) => {
                storing.end(end_of(&end)?, actions);
                Ok(())
            }
        }
    }

    /// Some of a message. The data of a chunk are stored as they come.
    pub(super) fn part(
        &mut self,
        bytes: &[u8],
        left: usize,
        last: bool,
        actions: &mut (impl BlobAccess + Responses + RequestFlow + CallClock),
    ) {
        if let Err(status) = self.take_part(bytes, left, actions) {
            return actions.finish(status);
        }
        if last {
            self.half_closed(actions);
        }
    }

    fn take_part(
        &mut self,
        bytes: &[u8],
        left: usize,
        actions: &mut (impl BlobAccess + RequestFlow + CallClock),
    ) -> Result<(), Status> {
        let Some(storing) = &mut self.storing else {
            return Err(Status::internal("a part of a message before the first one"));
        };
        let data = match &mut self.parted {
            Some(parted) => parted.take(bytes),
            None => match PartedChunk::begin(bytes, left) {
                ChunkStart::TooLarge(bytes) => return Err(refuse::chunk_too_large(bytes)),
                // What may not follow an end is refused as if it had come at once.
                ChunkStart::Chunk(parted, data) if !storing.has_ended() => {
                    self.parted = Some(parted);
                    data
                }
                _ => {
                    actions.want_whole();
                    return Ok(());
                }
            },
        };
        storing.add_part(data, actions);
        if left == 0
            && let Some(parted) = self.parted.take()
        {
            let crc32c = parted
                .end()
                .map_err(|error| refuse::invalid(Method::BlobUpload, error))?;
            storing.end_chunk(crc32c, actions);
        }
        Ok(())
    }

    pub(super) fn half_closed(
        &mut self,
        actions: &mut (impl BlobAccess + Responses + RequestFlow + CallClock),
    ) {
        match &mut self.storing {
            None => actions.finish(status::no_request(Method::BlobUpload.path())),
            Some(storing) if storing.has_ended() => {}
            Some(storing) => {
                let progress = storing.cut(actions);
                act_on(progress, actions);
            }
        }
    }

    pub(super) fn news(
        &mut self,
        news: BlobNews,
        actions: &mut (impl BlobAccess + Responses + RequestFlow + CallClock),
    ) {
        if let BlobNews::Sealed(sealed) = &news {
            self.sealed = Some(BlobDescriptionOf::new(&sealed.description()));
        }
        let storing = self.storing.as_mut().expect("something was asked for");
        let progress = storing.news(news, actions);
        act_on(progress, actions);
    }

    pub(super) fn committed(&mut self, outcome: &CommitOutcome<'_>, actions: &mut impl Responses) {
        let storing = self.storing.as_ref().expect("something was submitted");
        let stored = match storing.committed(outcome) {
            Ok(stored) => stored,
            Err(status) => return actions.finish(status),
        };
        let sealed = self.sealed.as_ref().map(BlobDescriptionOf::description);
        let found = match stored.applied {
            true => sealed,
            false => Description::decode(&stored.description),
        };
        let Some(found) = found else {
            // The condition was not met, and there is no blob.
            return actions.respond(|out| UploadResponse::default().encode(out));
        };
        with_description(storing.name(), stored.version, &found, |blob| {
            let response = UploadResponse {
                applied: stored.applied,
                blob: Some(blob),
            };
            actions.respond(|out| response.encode(out));
        });
    }
}

fn act_on(progress: StoringProgress, actions: &mut impl Responses) {
    match progress {
        StoringProgress::GoesOn => {}
        StoringProgress::Failed(error) => actions.finish(refuse::not_stored(&error)),
        StoringProgress::Cut { stored_bytes } => actions.finish(Status::invalid_argument(format!(
            "field end: the upload has ended without it; {stored_bytes} bytes are stored, and an \
             upload with an \
             upload_id can go on from there"
        ))),
    }
}

fn check_begin(
    begin: &UploadBegin<'_>,
    shared: &Shared,
    actions: &(impl CallClock + Permissions),
) -> Result<Box<Begin>, Status> {
    let place = (begin.database, begin.name);
    let (database, _) = refuse::database(Right::Write, place, shared, actions)?;
    refuse::name("begin.name", begin.name)?;
    let wrong = |message: String| Err(Status::invalid_argument(message));
    if begin.upload_id.len() > limits::UPLOAD_ID_BYTES {
        let (bytes, allowed) = (begin.upload_id.len(), limits::UPLOAD_ID_BYTES);
        return wrong(format!(
            "field begin.upload_id has {bytes} bytes, at most {allowed} are allowed"
        ));
    }
    if begin.upload_id.is_empty() && begin.offset > 0 {
        return wrong(
            "field begin.offset: an upload without an upload_id cannot be resumed".to_owned(),
        );
    }
    if begin.content_type.len() > limits::CONTENT_TYPE_BYTES
        || begin.content_type.chars().any(char::is_control)
    {
        return wrong(format!(
            "field begin.content_type has control characters or more than {} bytes",
            limits::CONTENT_TYPE_BYTES
        ));
    }
    if begin.size_bytes.is_some_and(|size| size < begin.offset) {
        return wrong("field begin.size_bytes is less than begin.offset".to_owned());
    }
    Ok(Box::new(Begin {
        database,
        name: begin.name.into(),
        upload_id: begin.upload_id.into(),
        offset: begin.offset,
        size_bytes: begin.size_bytes,
        content_type: begin.content_type.into(),
        now_ms: actions.now_ms(),
    }))
}

fn end_of(end: &UploadEnd<'_>) -> Result<ContentEnd, Status> {
    let sha256 = match end.sha256 {
        [] => None,
        bytes => Some(bytes.try_into().map_err(|_| {
            Status::invalid_argument(format!(
                "field end.sha256 has {} bytes; a SHA-256 has 32",
                bytes.len()
            ))
        })?),
    };
    Ok(ContentEnd {
        crc32c: end.crc32c,
        sha256,
    })
}
