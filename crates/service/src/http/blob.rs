//! PUT, GET, HEAD and DELETE of `/blob/NAME`.

use store::blob::{Begin, BlobNews, ContentEnd, Description, limits};
use store::{CommitOutcome, DatabaseId, ReadView};

use super::condition::{ConditionResult, Wanted, etag, of_change};
use super::range::ContentPart;
use super::target::target;
use crate::actions::{
    BlobAccess, CallClock, DatabaseAccess, Permissions, PlainResponse, RequestFlow, ResponseMemory,
    Responses, SendRoom,
};
use crate::blob::{
    BlobDescriptionOf, ContentReading, Storing, StoringProgress, delete, deleted, find,
    read_description, refuse,
};
use crate::call::{CallHead, Metadata, Shared};
use crate::limits::DOWNLOAD_CHUNK_BYTES;
use crate::rights::Right;
use crate::status::{Code, Status};

const TEXT: (&str, &str) = ("content-type", "text/plain; charset=utf-8");

/// The type of content whose uploader did not say.
const ANY_TYPE: &str = "application/octet-stream";

/// An upload. It cannot be resumed; cut short, it leaves nothing.
pub(super) struct Put {
    storing: Box<Storing>,
    sealed: Option<BlobDescriptionOf>,
}

impl Put {
    pub(super) fn begin(
        head: &CallHead<'_>,
        shared: &Shared,
        actions: &mut (impl BlobAccess + Permissions + RequestFlow + CallClock),
    ) -> Result<Put, Status> {
        let target = target(head.metadata.first(b":path").unwrap_or_default())?;
        let (database, _) = refuse::database(Right::Write, target.place(), shared, actions)?;
        refuse::name("NAME of the path", &target.name)?;
        let text = |name: &[u8]| {
            let value = head.metadata.first(name)?;
            std::str::from_utf8(value).ok()
        };
        let content_type = text(b"content-type").unwrap_or_default();
        if content_type.len() > limits::CONTENT_TYPE_BYTES {
            return Err(Status::invalid_argument("the content-type is too long"));
        }
        let begin = Begin {
            database,
            name: target.name.into(),
            upload_id: Box::default(),
            offset: 0,
            size_bytes: text(b"content-length").and_then(|length| length.parse().ok()),
            content_type: content_type.into(),
            now_ms: actions.now_ms(),
        };
        let if_version = of_change(head.metadata)?;
        whole_and_as_it_is(head.metadata)?;
        let storing = Storing::begin(Box::new(begin), if_version, actions);
        Ok(Put {
            storing: Box::new(storing),
            sealed: None,
        })
    }

    pub(super) fn add(
        &mut self,
        bytes: &[u8],
        actions: &mut (impl BlobAccess + RequestFlow + CallClock),
    ) {
        self.storing.add(bytes, None, actions);
    }

    pub(super) fn end(&mut self, actions: &mut (impl BlobAccess + RequestFlow + CallClock)) {
        self.storing.end(ContentEnd::default(), actions);
    }

    pub(super) fn news(
        &mut self,
        news: BlobNews,
        actions: &mut (impl BlobAccess + Responses + RequestFlow + CallClock),
    ) {
        if let BlobNews::Sealed(sealed) = &news {
            self.sealed = Some(BlobDescriptionOf::new(&sealed.description()));
        }
        if let StoringProgress::Failed(error) = self.storing.news(news, actions) {
            actions.finish(refuse::not_stored(&error));
        }
    }

    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        actions: &mut (impl Responses + PlainResponse),
    ) {
        let stored = match self.storing.committed(outcome) {
            Ok(stored) => stored,
            Err(status) => return actions.finish(status),
        };
        let etag = etag(stored.version);
        if !stored.applied {
            let text = format!(
                "the blob has version {}: nothing was stored\n",
                stored.version
            );
            return actions.plain(412, &[TEXT, ("etag", &etag)], text.as_bytes(), Code::Ok);
        }
        let sealed = self.sealed.as_ref().expect("it was sealed before");
        let Description {
            size_bytes, crc32c, ..
        } = sealed.description();
        let version = stored.version;
        let text = format!("stored: {size_bytes} bytes, CRC32C {crc32c:08x}, version {version}\n");
        actions.plain(201, &[TEXT, ("etag", &etag)], text.as_bytes(), Code::Ok);
    }
}

/// Refuses a part of a content (RFC 9110 section 14.5), which would replace the whole, and one in a
/// form that would be forgotten.
fn whole_and_as_it_is(metadata: &dyn Metadata) -> Result<(), Status> {
    if metadata.first(b"content-range").is_some() {
        let text = "content-range: a blob is stored as a whole; over gRPC an upload can be resumed";
        return Err(Status::invalid_argument(text));
    }
    match metadata.first(b"content-encoding") {
        None | Some(b"identity") => Ok(()),
        Some(_) => Err(Status::invalid_argument(
            "content-encoding: a blob is stored as it comes; say what it is in the content-type",
        )),
    }
}

/// A download, or a look at what it would bring.
pub(super) struct Get {
    is_head: bool,
    wanted: Box<Wanted>,
    reading: Option<Box<ContentReading>>,
}

impl Get {
    pub(super) fn begin(
        head: &CallHead<'_>,
        is_head: bool,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions),
    ) -> Result<Get, Status> {
        let target = target(head.metadata.first(b":path").unwrap_or_default())?;
        let (database, _) = refuse::database(Right::Read, target.place(), shared, actions)?;
        refuse::name("NAME of the path", &target.name)?;
        read_description(database, &target.name, shared, actions);
        Ok(Get {
            is_head,
            wanted: Box::new(Wanted::of(head.metadata)),
            reading: None,
        })
    }

    pub(super) fn open(
        &mut self,
        view: &ReadView<'_>,
        key: &[u8],
        shared: &Shared,
        actions: &mut (impl BlobAccess + Responses + PlainResponse + SendRoom + ResponseMemory),
    ) {
        let (version, description) = match find(view, key, shared) {
            Ok(Some(found)) => found,
            Ok(None) => return actions.finish(Status::not_found("there is no such blob")),
            Err(status) => return actions.finish(status),
        };
        let (etag, size_bytes) = (etag(version), description.size_bytes);
        let (status, begin, end) = match self.wanted.of_version(version, size_bytes) {
            ConditionResult::NotModified => {
                actions.plain_head(304, &[("etag", &etag)]);
                return actions.plain_end(Code::Ok);
            }
            ConditionResult::Unmet => {
                let text = format!("the blob has version {version}\n");
                return actions.plain(412, &[TEXT, ("etag", &etag)], text.as_bytes(), Code::Ok);
            }
            ConditionResult::Part(ContentPart::Whole) => (200, 0, size_bytes),
            ConditionResult::Part(ContentPart::Range(begin, end)) => (206, begin, end),
            ConditionResult::Part(ContentPart::Unsatisfiable) => {
                let range = format!("bytes */{size_bytes}");
                let headers = [TEXT, ("content-range", &*range)];
                let text = format!("the blob has {size_bytes} bytes\n");
                return actions.plain(416, &headers, text.as_bytes(), Code::OutOfRange);
            }
        };
        let content_type = match description.content_type {
            "" => ANY_TYPE,
            content_type => content_type,
        };
        let length = (end - begin).to_string();
        let range = format!("bytes {begin}-{}/{size_bytes}", end.saturating_sub(1));
        let mut headers = vec![
            ("content-type", content_type),
            ("content-length", &length),
            ("accept-ranges", "bytes"),
            ("etag", &etag),
        ];
        if status == 206 {
            headers.push(("content-range", &range));
        }
        actions.plain_head(status, &headers);
        if self.is_head || begin == end {
            return actions.plain_end(Code::Ok);
        }
        let reading = ContentReading::open(&description, begin, end, DOWNLOAD_CHUNK_BYTES, shared);
        self.reading = Some(Box::new(reading));
        self.go_on(actions);
    }

    pub(super) fn news(
        &mut self,
        news: BlobNews,
        actions: &mut (impl BlobAccess + Responses + PlainResponse + SendRoom + ResponseMemory),
    ) {
        let reading = self.reading.as_mut().expect("something was asked for");
        match reading.news(news) {
            Ok(()) => self.go_on(actions),
            Err(error) => actions.finish(refuse::not_read(&error)),
        }
    }

    /// Sends what can be sent.
    pub(super) fn go_on(
        &mut self,
        actions: &mut (impl BlobAccess + PlainResponse + SendRoom + ResponseMemory),
    ) {
        let Some(reading) = &mut self.reading else {
            return;
        };
        while let Some(part) = reading.take(DOWNLOAD_CHUNK_BYTES, actions) {
            actions.plain_body(&part.piece.bytes, part.range);
            if reading.is_done() {
                return actions.plain_end(Code::Ok);
            }
        }
    }
}

/// A removal, when the request is complete.
pub(super) struct Delete {
    database: DatabaseId,
    name: Box<str>,
    if_version: Option<u64>,
}

impl Delete {
    pub(super) fn begin(
        head: &CallHead<'_>,
        shared: &Shared,
        actions: &impl Permissions,
    ) -> Result<Delete, Status> {
        let target = target(head.metadata.first(b":path").unwrap_or_default())?;
        let (database, _) = refuse::database(Right::Write, target.place(), shared, actions)?;
        refuse::name("NAME of the path", &target.name)?;
        Ok(Delete {
            database,
            name: target.name.into(),
            if_version: of_change(head.metadata)?,
        })
    }

    pub(super) fn go(&mut self, actions: &mut impl DatabaseAccess) {
        delete(self.database, &self.name, self.if_version, actions);
    }

    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        actions: &mut (impl Responses + PlainResponse),
    ) {
        match deleted(outcome) {
            Err(status) => actions.finish(status),
            Ok(response) if response.deleted => {
                // Such an answer has no length.
                actions.plain_head(204, &[]);
                actions.plain_end(Code::Ok);
            }
            Ok(response) if response.version == 0 => {
                actions.finish(Status::not_found("there is no such blob"));
            }
            Ok(response) => {
                let text = format!("the blob has version {}\n", response.version);
                actions.plain(412, &[TEXT], text.as_bytes(), Code::Ok);
            }
        }
    }
}
