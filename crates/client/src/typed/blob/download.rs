//! Downloads.

use std::io::{self, Read};

use api::blob::DownloadResponse;
use api::rpc::blob::Download as DownloadMethod;
use wire::grpc::Metadata;

use super::StoredBlob;
use crate::error::CallError;
use crate::typed::{AwaitedStream, Call, OpenStream, Replies, Reply, ReplySource};

/// Why a download has ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The call has failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// What came is not what was stored.
    #[error("the blob was damaged on its way, at byte {offset}")]
    Damaged {
        /// The first byte of the piece that is damaged.
        offset: u64,
    },
    /// The call has ended before all bytes had come.
    #[error("the blob ended at byte {offset}, before its end")]
    Short {
        /// The first byte that is missing.
        offset: u64,
    },
}

impl<'a, O> Call<'a, DownloadMethod, O> {
    /// Begins at this byte.
    pub fn offset(mut self, offset: u64) -> Self {
        self.request.offset = offset;
        self
    }

    /// Ends after so many bytes; 0: at the end of the blob.
    pub fn length_bytes(mut self, bytes: u64) -> Self {
        self.request.length_bytes = bytes;
        self
    }

    /// Only if the blob has this version; else the call ends with ABORTED. For a download that goes
    /// on with an earlier one.
    pub fn if_version(mut self, version: u64) -> Self {
        self.request.if_version = Some(version);
        self
    }

    /// So many bytes in a piece at most; 0: as the server chooses.
    pub fn chunk_bytes(mut self, bytes: u32) -> Self {
        self.request.chunk_bytes = bytes;
        self
    }
}

impl<'a, C: OpenStream> Call<'a, DownloadMethod, &'a mut C> {
    /// Begins the download.
    ///
    /// # Errors
    /// If the call cannot begin.
    pub fn send(self) -> Result<Download<C::Source<'a>>, DownloadError> {
        let (over, request, options) = self.into_parts();
        Ok(Download {
            replies: over.open_stream(&request, &options)?,
            blob: None,
            offset: request.offset,
            end: match request.length_bytes {
                0 => u64::MAX,
                bytes => request.offset.saturating_add(bytes),
            },
            crc32c: (request.offset == 0).then_some(0),
            piece: Vec::new(),
            taken: 0,
        })
    }
}

/// The content of a blob, or a part of it. It stays the same blob to the end, even if it is
/// replaced meanwhile. Each piece is checked, and of all of it the length and, if it is the whole,
/// the checksum. Dropped early: the call is cancelled.
#[derive(Debug)]
pub struct Download<S> {
    replies: Replies<DownloadMethod, S>,
    blob: Option<StoredBlob>,
    /// The byte behind those that have come.
    offset: u64,
    /// The byte behind those that will come, or that were asked for.
    end: u64,
    /// Of what has come, if it began at the first byte.
    crc32c: Option<u32>,
    piece: Vec<u8>,
    /// Bytes of the piece that were taken.
    taken: usize,
}

impl<S: ReplySource> Download<S> {
    /// Returns what is known of the blob. Waits for the first piece.
    ///
    /// # Errors
    /// As [`Download::next_piece`].
    pub fn blob(&mut self) -> Result<&StoredBlob, DownloadError> {
        if self.blob.is_none() {
            self.receive()?;
        }
        self.known()
    }

    /// Returns the next piece of the content; `None` behind the last one.
    ///
    /// # Errors
    /// If the download ends before its end, or what came is damaged.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, DownloadError> {
        while self.taken == self.piece.len() {
            if !self.receive()? {
                return Ok(None);
            }
        }
        Ok(Some(self.rest()))
    }

    /// Waits for the initial metadata, as [`ReplySource::initial_metadata`] returns them.
    ///
    /// # Errors
    /// If the call has failed before; [`Download::next_piece`] returns the same.
    pub fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        self.replies.initial_metadata()
    }

    /// Takes the next piece from the server. False: there is none.
    fn receive(&mut self) -> Result<bool, DownloadError> {
        let reply = self.replies.next_reply()?;
        self.take(reply)
    }
}

impl Download<AwaitedStream> {
    /// Resolves to what is known of the blob, behind its first piece.
    ///
    /// # Errors
    /// As [`Download::next_piece`].
    pub async fn blob(&mut self) -> Result<&StoredBlob, DownloadError> {
        if self.blob.is_none() {
            let reply = self.replies.next_reply().await?;
            self.take(reply)?;
        }
        self.known()
    }

    /// Resolves to the next piece of the content; `None` behind the last one. Dropped before:
    /// nothing is lost.
    ///
    /// # Errors
    /// If the download ends before its end, or what came is damaged.
    pub async fn next_piece(&mut self) -> Result<Option<Vec<u8>>, DownloadError> {
        while self.taken == self.piece.len() {
            let reply = self.replies.next_reply().await?;
            if !self.take(reply)? {
                return Ok(None);
            }
        }
        Ok(Some(self.rest()))
    }

    /// Resolves to the initial metadata, as [`ReplySource::initial_metadata`] returns them.
    ///
    /// # Errors
    /// If the call has failed before; [`Download::next_piece`] returns the same.
    pub async fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        self.replies.initial_metadata().await
    }
}

impl<S> Download<S> {
    fn known(&self) -> Result<&StoredBlob, DownloadError> {
        let offset = self.offset;
        self.blob.as_ref().ok_or(DownloadError::Short { offset })
    }

    /// Returns what was not taken of the piece.
    fn rest(&mut self) -> Vec<u8> {
        let mut piece = std::mem::take(&mut self.piece);
        piece.drain(..std::mem::take(&mut self.taken));
        piece
    }

    /// Takes a piece, or looks at the end whether it is one. False: there is none.
    fn take(&mut self, reply: Option<Reply<DownloadMethod>>) -> Result<bool, DownloadError> {
        let Some(reply) = reply else {
            return self.check_end().map(|()| false);
        };
        let DownloadResponse { blob, crc32c, data } = reply.message();
        if crc32c.is_some_and(|expected| expected != crc32c::crc32c(data)) {
            return Err(DownloadError::Damaged {
                offset: self.offset,
            });
        }
        if let Some(blob) = &blob {
            self.blob = Some(StoredBlob::of(blob));
            self.end = self.end.min(blob.size_bytes);
        }
        self.crc32c = (self.crc32c).map(|sum| crc32c::crc32c_append(sum, data));
        self.offset += data.len() as u64;
        (self.piece, self.taken) = (data.to_vec(), 0);
        Ok(true)
    }

    fn check_end(&self) -> Result<(), DownloadError> {
        let offset = self.offset;
        let Some(blob) = self.blob.as_ref().filter(|_| offset >= self.end) else {
            return Err(DownloadError::Short { offset });
        };
        let is_whole = offset == blob.size_bytes;
        match self.crc32c {
            Some(crc32c) if is_whole && crc32c != blob.crc32c => {
                Err(DownloadError::Damaged { offset: 0 })
            }
            _ => Ok(()),
        }
    }
}

/// An error of the download is an [`io::Error`] that has it inside.
impl<S: ReplySource> Read for Download<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.piece.len() && !buffer.is_empty() {
            if !self.receive().map_err(io::Error::other)? {
                return Ok(0);
            }
        }
        let rest = &self.piece[self.taken..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }
}
