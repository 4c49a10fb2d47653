//! Uploads as futures: the content comes in pieces.

use api::blob::{UploadEnd, UploadPart, UploadRequest};
use api::rpc::blob::Upload;

use super::upload::{UploadError, UploadOutcome, begins_at_first_byte, chunk_of};
use crate::error::{CallError, bad_answer, only_message};
use crate::limits::UPLOAD_CHUNK_BYTES;
use crate::pool::SendError;
use crate::shared_pool::PoolStream;
use crate::typed::call::{encoded, path_of};
use crate::typed::shared::{not_sent, pool_call};
use crate::typed::{Call, Futures, Reply};

impl<'a> Call<'a, Upload, &'a mut Futures> {
    /// Begins the upload; the call has begun when this returns. The content goes into what the
    /// future resolves to.
    ///
    /// # Errors
    /// If the call fails.
    pub fn begin(self) -> impl Future<Output = Result<UploadWriter, UploadError>> + use<> {
        let (futures, begin, options) = self.into_parts();
        let path = path_of::<Upload>();
        let call = pool_call::<Upload>(&path, &begin, &options);
        let mut writer = UploadWriter {
            stream: futures.pool().stream(&call),
            crc32c: begins_at_first_byte(&begin).then_some(0),
            early: None,
            is_broken: false,
        };
        let first = encoded(&begin);
        async move {
            writer.send(&first).await?;
            Ok(writer)
        }
    }
}

/// An upload that is under way. Dropped before [`UploadWriter::finish`] has resolved: the call is
/// cancelled, and nothing is stored but what can be resumed.
#[derive(Debug)]
pub struct UploadWriter {
    stream: PoolStream,
    /// Of what was sent, if it began at the first byte.
    crc32c: Option<u32>,
    /// The response, which has come before the end of the content.
    early: Option<Reply<Upload>>,
    /// A write has begun and not ended: nobody knows how much of it was sent.
    is_broken: bool,
}

impl UploadWriter {
    /// Sends a piece of the content, of any length, each chunk of it with its checksum. Resolves
    /// when all of it is with the connection, and waits while as much as may wait does. If the
    /// server has responded, nothing is sent: [`UploadWriter::finish`] returns the response.
    ///
    /// # Errors
    /// If the call fails, or an earlier write was dropped before it had ended.
    pub async fn write(&mut self, piece: &[u8]) -> Result<(), UploadError> {
        self.check_unbroken()?;
        self.is_broken = true;
        for chunk in piece.chunks(UPLOAD_CHUNK_BYTES) {
            self.send(&encoded(&chunk_of(chunk))).await?;
            self.crc32c = (self.crc32c).map(|sum| crc32c::crc32c_append(sum, chunk));
        }
        self.is_broken = false;
        Ok(())
    }

    /// Ends the content, with its checksum if it began at its first byte. Resolves to what became
    /// of it.
    ///
    /// # Errors
    /// If the call fails, or a write was dropped before it had ended.
    pub async fn finish(mut self) -> Result<UploadOutcome, UploadError> {
        self.check_unbroken()?;
        let end = UploadEnd {
            crc32c: self.crc32c,
            sha256: &[],
        };
        let part = Some(UploadPart::End(end));
        self.send(&encoded(&UploadRequest { part })).await?;
        self.stream.finish();
        let reply = match self.early.take() {
            None => self.next_reply().await?,
            early => early,
        };
        let reply = only_message(reply, self.next_reply().await?)?;
        Ok(UploadOutcome::of(&reply))
    }

    fn check_unbroken(&self) -> Result<(), CallError> {
        match self.is_broken {
            false => Ok(()),
            true => Err(CallError::BadRequest {
                reason: "a write of the upload has not ended, and how much of it was sent is not \
                         known"
                    .to_owned(),
            }),
        }
    }

    /// Sends a part, unless the server has responded.
    async fn send(&mut self, part: &[u8]) -> Result<(), CallError> {
        if self.early.is_some() {
            return Ok(());
        }
        match self.stream.send_future(part).await {
            Ok(()) => Ok(()),
            // The reason is in the response.
            Err(SendError::Ended) => {
                let Some(reply) = self.next_reply().await? else {
                    let reason = "the server ended the call before it had all of it";
                    return Err(bad_answer(reason));
                };
                self.early = Some(reply);
                Ok(())
            }
            Err(error) => Err(not_sent(&error)),
        }
    }

    async fn next_reply(&mut self) -> Result<Option<Reply<Upload>>, CallError> {
        let message = self.stream.receive_future().await?;
        message.map(Reply::decode).transpose()
    }
}
