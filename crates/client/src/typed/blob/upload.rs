//! Uploads from a reader.

use std::io::{self, Read};

use api::blob::{UploadBegin, UploadChunk, UploadEnd, UploadPart, UploadRequest};
use api::rpc::blob::Upload;

use super::StoredBlob;
use crate::channel::Channel;
use crate::error::{CallError, bad_answer, only_message};
use crate::limits::UPLOAD_CHUNK_BYTES;
use crate::pool::SendError;
use crate::shared_pool::{PoolStream, SharedPool};
use crate::typed::call::{encoded, path_of};
use crate::typed::shared::{not_sent, pool_call};
use crate::typed::{Call, Exchange, Reply};

/// Why an upload has no outcome. What the server has stored of one with an
/// [`upload_id`](Call::upload_id) can be resumed.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The content cannot be read.
    #[error("the content cannot be read: {0}")]
    Content(io::Error),
    /// The call has failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// What became of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadOutcome {
    /// False: the condition was not met, and the content was thrown away.
    pub applied: bool,
    /// The blob as it is stored now.
    pub blob: Option<StoredBlob>,
}

impl<'a, O> Call<'a, Upload, O> {
    /// Changes what the first message says.
    fn with(mut self, change: impl FnOnce(&mut UploadBegin<'a>)) -> Self {
        if let Some(UploadPart::Begin(begin)) = &mut self.request.part {
            change(begin);
        }
        self
    }

    /// What kind of content it is, as in HTTP.
    pub fn content_type(self, content_type: &'a str) -> Self {
        self.with(|begin| begin.content_type = content_type)
    }

    /// Bytes of the whole content: the server refuses what it has no room for at once, and content
    /// of another size at the end.
    pub fn size_bytes(self, bytes: u64) -> Self {
        self.with(|begin| begin.size_bytes = Some(bytes))
    }

    /// Only if the name has this version; 0: only if it is new.
    pub fn if_version(self, version: u64) -> Self {
        self.with(|begin| begin.if_version = Some(version))
    }

    /// Names the upload, by up to 64 bytes unlike any other, so that it can be resumed: behind so
    /// many bytes as a [`stat`](super::Blobs::stat) with this id reports; at first 0. The content
    /// is to be read from there on.
    pub fn resumable(self, upload_id: &'a [u8], offset: u64) -> Self {
        self.with(|begin| (begin.upload_id, begin.offset) = (upload_id, offset))
    }
}

impl<'a> Call<'a, Upload, &'a mut Channel> {
    /// Sends the content, each chunk with its checksum, and, if it begins at its first byte, that
    /// of the whole.
    ///
    /// # Errors
    /// If the content cannot be read, or the call fails.
    pub fn send(self, content: impl Read) -> Result<UploadOutcome, UploadError> {
        let (channel, begin, options) = self.into_parts();
        let exchange = channel.call_streaming::<Upload>(&options)?;
        send_content(exchange, &begin, content)
    }
}

impl<'a> Call<'a, Upload, &'a mut SharedPool> {
    /// Sends the content, each chunk with its checksum, and, if it begins at its first byte, that
    /// of the whole.
    ///
    /// # Errors
    /// If the content cannot be read, or the call fails.
    pub fn send(self, content: impl Read) -> Result<UploadOutcome, UploadError> {
        let (pool, begin, options) = self.into_parts();
        let path = path_of::<Upload>();
        let stream = pool.stream(&pool_call::<Upload>(&path, &begin, &options));
        send_content(stream, &begin, content)
    }
}

/// A call that takes the parts of an upload.
trait TakeParts {
    /// Sends a part as soon as there is room. Returns the response, if it comes before.
    fn send_part(&mut self, part: &UploadRequest<'_>) -> Result<Option<Reply<Upload>>, CallError>;

    /// Ends the client's side.
    fn end_parts(&mut self);

    /// Waits for the next response.
    fn next_reply(&mut self) -> Result<Option<Reply<Upload>>, CallError>;
}

impl TakeParts for Exchange<'_, Upload> {
    fn send_part(&mut self, part: &UploadRequest<'_>) -> Result<Option<Reply<Upload>>, CallError> {
        let early = self.wait_until_writable()?;
        if early.is_none() {
            self.send_with_others(part);
        }
        Ok(early)
    }

    fn end_parts(&mut self) {
        self.close_send();
    }

    fn next_reply(&mut self) -> Result<Option<Reply<Upload>>, CallError> {
        Exchange::next_reply(self)
    }
}

impl TakeParts for PoolStream {
    fn send_part(&mut self, part: &UploadRequest<'_>) -> Result<Option<Reply<Upload>>, CallError> {
        match self.send(&encoded(part)) {
            Ok(()) => Ok(None),
            // Why it has, the server has said.
            Err(SendError::Ended) => match TakeParts::next_reply(self)? {
                None => Err(bad_answer(
                    "the server ended the call before it had all of it",
                )),
                early => Ok(early),
            },
            Err(error) => Err(not_sent(&error)),
        }
    }

    fn end_parts(&mut self) {
        self.finish();
    }

    fn next_reply(&mut self) -> Result<Option<Reply<Upload>>, CallError> {
        self.receive()?.map(Reply::decode).transpose()
    }
}

fn send_content(
    mut call: impl TakeParts,
    begin: &UploadRequest<'_>,
    mut content: impl Read,
) -> Result<UploadOutcome, UploadError> {
    let is_whole = begins_at_first_byte(begin);
    let mut early = call.send_part(begin)?;
    let mut chunk = vec![0; UPLOAD_CHUNK_BYTES];
    let mut crc32c = 0;
    loop {
        if let Some(reply) = early {
            return Ok(UploadOutcome::of(&reply));
        }
        let count = fill(&mut content, &mut chunk).map_err(UploadError::Content)?;
        if count == 0 {
            return end(&mut call, is_whole.then_some(crc32c));
        }
        crc32c = crc32c::crc32c_append(crc32c, &chunk[..count]);
        early = call.send_part(&chunk_of(&chunk[..count]))?;
    }
}

/// Returns whether the checksum of the whole will be known at the end.
pub(super) fn begins_at_first_byte(begin: &UploadRequest<'_>) -> bool {
    matches!(&begin.part, Some(UploadPart::Begin(begin)) if begin.offset == 0)
}

/// Says that the content is complete, and waits for the response.
fn end(call: &mut impl TakeParts, crc32c: Option<u32>) -> Result<UploadOutcome, UploadError> {
    let end = UploadEnd {
        crc32c,
        sha256: &[],
    };
    let early = call.send_part(&UploadRequest {
        part: Some(UploadPart::End(end)),
    })?;
    call.end_parts();
    let reply = match early {
        None => call.next_reply()?,
        early => early,
    };
    let reply = only_message(reply, call.next_reply()?)?;
    Ok(UploadOutcome::of(&reply))
}

pub(super) fn chunk_of(data: &[u8]) -> UploadRequest<'_> {
    let chunk = UploadChunk {
        data,
        crc32c: Some(crc32c::crc32c(data)),
    };
    UploadRequest {
        part: Some(UploadPart::Chunk(chunk)),
    }
}

/// Reads until the buffer is full or the content over. Returns how many bytes were read.
fn fill(content: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match content.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl UploadOutcome {
    pub(super) fn of(reply: &Reply<Upload>) -> UploadOutcome {
        let upload = reply.message();
        UploadOutcome {
            applied: upload.applied,
            blob: upload.blob.as_ref().map(StoredBlob::of),
        }
    }
}
