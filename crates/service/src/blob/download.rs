//! Download over gRPC.

use store::ReadView;
use store::blob::{BlobNews, limits};

use super::reading::{ContentReading, ReadPart};
use super::storing::with_description;
use super::{BlobDescriptionOf, find, read_description, refuse};
use crate::actions::{
    BlobAccess, DatabaseAccess, Permissions, ResponseMemory, Responses, SendRoom,
};
use crate::call::Shared;
use crate::limits::DOWNLOAD_CHUNK_BYTES;
use crate::method::Method;
use crate::rights::Right;
use crate::status::{Code, Status, quoted};
use api::blob::{BlobDescription, DownloadRequest, DownloadResponse};
use protobuf::writer;

/// A call that downloads.
pub(super) struct DownloadCall {
    name: Box<str>,
    offset: u64,
    length_bytes: u64,
    chunk_bytes: usize,
    if_version: Option<u64>,
    /// For the first message.
    head: Option<(u64, BlobDescriptionOf)>,
    reading: Option<ContentReading>,
}

impl DownloadCall {
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions),
    ) -> Result<DownloadCall, Status> {
        let request = DownloadRequest::decode(bytes)
            .map_err(|error| refuse::invalid(Method::BlobDownload, error))?;
        let place = (request.database, request.name);
        let (database, _) = refuse::database(Right::Read, place, shared, actions)?;
        refuse::name("name", request.name)?;
        let chunk_bytes = request.chunk_bytes as usize;
        if chunk_bytes > limits::CHUNK_BYTES {
            return Err(Status::invalid_argument(format!(
                "field chunk_bytes is {chunk_bytes}, at most {} are allowed",
                limits::CHUNK_BYTES
            )));
        }
        if request.if_version == Some(0) {
            return Err(Status::invalid_argument(
                "field if_version is 0: what is not there cannot be downloaded",
            ));
        }
        read_description(database, request.name, shared, actions);
        Ok(DownloadCall {
            name: request.name.into(),
            offset: request.offset,
            length_bytes: request.length_bytes,
            chunk_bytes: match chunk_bytes {
                0 => DOWNLOAD_CHUNK_BYTES,
                chunk_bytes => chunk_bytes,
            },
            if_version: request.if_version,
            head: None,
            reading: None,
        })
    }

    /// The view shows which blob it is.
    pub(super) fn open(
        &mut self,
        view: &ReadView<'_>,
        key: &[u8],
        shared: &Shared,
        actions: &mut (impl BlobAccess + Responses + SendRoom + ResponseMemory),
    ) {
        match self.try_open(view, key, shared) {
            Ok(()) => self.go_on(actions),
            Err(status) => actions.finish(status),
        }
    }

    fn try_open(&mut self, view: &ReadView<'_>, key: &[u8], shared: &Shared) -> Result<(), Status> {
        let name = &self.name;
        let found = find(view, key, shared)?;
        let (version, description) = found.ok_or_else(|| not_found(name))?;
        if self.if_version.is_some_and(|wanted| wanted != version) {
            return Err(Status::new(
                Code::Aborted,
                format!("the blob has version {version} by now; begin the download anew"),
            ));
        }
        let size_bytes = description.size_bytes;
        if self.offset > size_bytes {
            let offset = self.offset;
            return Err(Status::new(
                Code::OutOfRange,
                format!("field offset is {offset}, and the blob has {size_bytes} bytes"),
            ));
        }
        let end = match self.length_bytes {
            0 => size_bytes,
            length => self.offset.saturating_add(length).min(size_bytes),
        };
        let reading =
            ContentReading::open(&description, self.offset, end, self.chunk_bytes, shared);
        self.reading = Some(reading);
        self.head = Some((version, BlobDescriptionOf::new(&description)));
        Ok(())
    }

    pub(super) fn news(
        &mut self,
        news: BlobNews,
        actions: &mut (impl BlobAccess + Responses + SendRoom + ResponseMemory),
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
        actions: &mut (impl BlobAccess + Responses + SendRoom + ResponseMemory),
    ) {
        let Some(reading) = &mut self.reading else {
            return;
        };
        if reading.is_done() {
            // Nothing of it was asked for, so nothing but its description goes out.
            let head = self.head.take();
            send(&self.name, head, None, actions);
            return actions.finish(Status::OK);
        }
        while let Some(part) = reading.take(self.chunk_bytes, actions) {
            send(&self.name, self.head.take(), Some(&part), actions);
            if reading.is_done() {
                return actions.finish(Status::OK);
            }
        }
    }
}

fn send(
    name: &str,
    head: Option<(u64, BlobDescriptionOf)>,
    part: Option<&ReadPart>,
    actions: &mut impl Responses,
) {
    let data = part.map_or(&[][..], ReadPart::bytes);
    let crc32c = part.map(|part| match part.is_whole() {
        true => part.piece.crc32c,
        false => store::blob::crc32c(data),
    });
    let encode_head = |out: &mut Vec<u8>| {
        let encode = |blob: Option<BlobDescription<'_>>, out: &mut Vec<u8>| {
            // All but the data, which follow.
            let head = DownloadResponse {
                blob,
                crc32c,
                data: &[],
            };
            head.encode(out);
            if !data.is_empty() {
                writer::bytes_head(out, DownloadResponse::NUMBERS.data, data.len());
            }
        };
        match &head {
            None => encode(None, out),
            Some((version, description)) => {
                with_description(name, *version, &description.description(), |blob| {
                    encode(Some(blob), out);
                });
            }
        }
    };
    match part {
        Some(part) => {
            actions.message_shared(encode_head, &part.piece.bytes, part.range.clone());
        }
        None => actions.message(encode_head),
    }
}

#[cold]
fn not_found(name: &str) -> Status {
    Status::not_found(format!("field name: there is no blob {}", quoted(name)))
}
