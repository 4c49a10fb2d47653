//! `messaging.GuploadService`, and `/upload` over plain HTTP/2: uploads that say nothing but their
//! content.
//!
//! It is kept as a blob of the default database under a generated name, or thrown away as the
//! original does.

use store::blob::{Begin, BlobNews, ContentEnd, limits};
use store::{CommitOutcome, DatabaseId};

use crate::actions::{BlobAccess, CallClock, Permissions, PlainResponse, RequestFlow, Responses};
use crate::blob::{Storing, StoringProgress, refuse};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::method::Method;
use crate::permission;
use crate::rights::{DropIn, Right};
use crate::settings::names::GENERATED;
use crate::status::{Code, Status};
use api::gupload::{Chunk, UploadStatus, UploadStatusCode};
use protobuf::DecodeError;

/// An upload, over gRPC or as a plain request.
pub struct GuploadCall {
    method: Method,
    content: UploadTarget,
}

/// Where the content goes.
enum UploadTarget {
    Nowhere,
    Kept(Box<Storing>),
    /// The upload was refused.
    Over,
}

impl GuploadCall {
    /// Begins one.
    pub fn started(
        method: Method,
        head: &CallHead<'_>,
        shared: &Shared,
        actions: &mut (impl BlobAccess + Permissions + Responses + RequestFlow + CallClock),
    ) -> GuploadCall {
        let content = UploadTarget::begin(head, shared, actions).unwrap_or_else(|status| {
            actions.finish(status);
            UploadTarget::Over
        });
        GuploadCall { method, content }
    }

    fn is_plain(&self) -> bool {
        self.method == Method::HttpGupload
    }

    /// All has come, and is on the device if it is kept.
    fn answer(&self, actions: &mut (impl Responses + PlainResponse)) {
        let name = match &self.content {
            UploadTarget::Kept(storing) => Some(storing.name()),
            UploadTarget::Nowhere | UploadTarget::Over => None,
        };
        if self.is_plain() {
            // The names that are generated need no escapes.
            let path = name.map(|name| format!("/blob/{name}"));
            let location = path.as_deref().map(|path| ("location", path));
            return actions.plain(200, location.as_slice(), b"", Code::Ok);
        }
        let message = match name {
            Some(name) => format!("received, and kept as the blob {name}"),
            None => "received, and thrown away".to_owned(),
        };
        actions.respond(|out| {
            UploadStatus {
                message: &message,
                code: UploadStatusCode::Ok.number(),
            }
            .encode(out);
        });
    }
}

impl UploadTarget {
    fn begin(
        head: &CallHead<'_>,
        shared: &Shared,
        actions: &mut (impl BlobAccess + Permissions + RequestFlow + CallClock),
    ) -> Result<UploadTarget, Status> {
        let metadata = |name: &[u8]| head.metadata.first(name);
        if shared.settings.gupload.discard || metadata(b":method").is_some_and(is_safe) {
            return Ok(UploadTarget::Nowhere);
        }
        if !permission::has_drop_in(DropIn::Gupload, actions) {
            permission::check_blobs(Right::Write, ("", GENERATED), actions)?;
        }
        let found = refuse::with_blobs(DatabaseId::DEFAULT, shared);
        let (database, _) = found.map_err(|_| nowhere_to_keep())?;
        let length = metadata(b"content-length").and_then(|text| std::str::from_utf8(text).ok());
        let now_ms = actions.now_ms();
        let begin = Begin {
            database,
            name: shared.settings.gupload.names.next(now_ms).into(),
            upload_id: Box::default(),
            offset: 0,
            size_bytes: length.and_then(|length| length.parse().ok()),
            content_type: Box::default(),
            now_ms,
        };
        // Create-only: a name that was given before, for whatever reason, keeps its content.
        let storing = Storing::begin(Box::new(begin), Some(0), actions);
        Ok(UploadTarget::Kept(Box::new(storing)))
    }
}

impl PlanReads for GuploadCall {}

impl<A> CallSteps<A> for GuploadCall
where
    A: BlobAccess + Responses + PlainResponse + RequestFlow + CallClock,
{
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut A) {
        let content = match self.is_plain() {
            true => Ok(bytes),
            false => content(bytes),
        };
        match (content, &mut self.content) {
            (Err(status), _) => return actions.finish(status),
            (Ok(content), UploadTarget::Kept(storing)) => storing.add(content, None, actions),
            (Ok(_), _) => {}
        }
        if last {
            self.half_closed(shared, actions);
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        match &mut self.content {
            UploadTarget::Kept(storing) => storing.end(ContentEnd::default(), actions),
            UploadTarget::Nowhere => self.answer(actions),
            UploadTarget::Over => {}
        }
    }

    fn blob(&mut self, news: BlobNews, _shared: &Shared, actions: &mut A) {
        let UploadTarget::Kept(storing) = &mut self.content else {
            return debug_assert!(false, "nothing was to be done");
        };
        if let StoringProgress::Failed(error) = storing.news(news, actions) {
            actions.finish(refuse::not_stored(&error));
        }
    }

    fn committed(&mut self, outcome: &CommitOutcome<'_>, _shared: &Shared, actions: &mut A) {
        let UploadTarget::Kept(storing) = &self.content else {
            return debug_assert!(false, "nothing was submitted");
        };
        match storing.committed(outcome) {
            Ok(stored) if stored.applied => self.answer(actions),
            Ok(_) => actions.finish(taken(storing.name())),
            Err(status) => actions.finish(status),
        }
    }
}

/// The content of a `Chunk`.
fn content(bytes: &[u8]) -> Result<&[u8], Status> {
    let content = Chunk::decode(bytes).map_err(not_a_chunk)?.content;
    match content.len() <= limits::CHUNK_BYTES {
        true => Ok(content),
        false => Err(too_large(content.len())),
    }
}

/// Methods that ask for nothing to be changed (RFC 9110 section 9.2.1): the original answers them
/// like others, but what looks at a server must not leave blobs.
fn is_safe(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE")
}

#[cold]
fn not_a_chunk(error: DecodeError) -> Status {
    Status::invalid_argument(format!("Chunk: {error}"))
}

#[cold]
fn too_large(bytes: usize) -> Status {
    Status::resource_exhausted(format!(
        "field Content has {bytes} bytes, at most {} are allowed",
        limits::CHUNK_BYTES
    ))
}

#[cold]
fn nowhere_to_keep() -> Status {
    Status::new(
        Code::FailedPrecondition,
        "uploads are kept as blobs of the default database, and it is volatile: start the server \
         with another \
         --durability, or with --discard-uploads, which throws uploads away",
    )
}

#[cold]
fn taken(name: &str) -> Status {
    Status::new(
        Code::Aborted,
        format!("there is a blob {name} already: nothing was stored, try again"),
    )
}
