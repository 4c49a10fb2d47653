//! Files on their way to a server that follows this one.

use std::ops::Range;

use api::replication::{ReadContentRequest, ReadContentResponse};
use bytes::Bytes;
use store::limits::FOLLOWED_READ_BYTES;
use store::{LogReadError, ReplicaPiece, ReplicaReading, WatchError};

use super::{keeps_nothing, malformed};
use crate::actions::{CallClock, ResponseMemory, Responses, SendRoom, Wakeups};
use crate::call::Shared;
use crate::limits::{REPLICATION_PART_BYTES, WATCH_LOG_RETRY_MS};
use crate::method::Method;
use crate::status::{Code, Status};

/// A file that is sent piece by piece.
pub(super) struct SentFile {
    /// `None`: a piece is being read, or all were.
    reading: Option<ReplicaReading>,
    is_read: bool,
    piece: Bytes,
    sent_bytes: usize,
    /// When it may be read on, where too many others read.
    retry_ns: u64,
}

/// What is next of a file.
pub(super) enum NextPart {
    /// These bytes of it, to be sent now.
    Part(Bytes, Range<usize>),
    /// Something else comes first: the device, or the peer.
    Wait,
    /// There is nothing more.
    End,
}

impl SentFile {
    pub(super) fn new(reading: ReplicaReading) -> SentFile {
        SentFile {
            reading: Some(reading),
            is_read: false,
            piece: Bytes::new(),
            sent_bytes: 0,
            retry_ns: 0,
        }
    }

    /// Returns what is to be sent next, and has more read where nothing is left.
    pub(super) fn next(
        &mut self,
        actions: &mut (impl SendRoom + ResponseMemory + Wakeups + CallClock),
    ) -> NextPart {
        let left = self.piece.len().saturating_sub(self.sent_bytes);
        if left > 0 {
            if !actions.can_send() {
                actions.hold_ready(left);
                return NextPart::Wait;
            }
            let end = self.sent_bytes + left.min(REPLICATION_PART_BYTES);
            let part = self.sent_bytes..end;
            self.sent_bytes = end;
            return NextPart::Part(self.piece.clone(), part);
        }
        if self.is_read {
            return NextPart::End;
        }
        if actions.can_send()
            && actions.now_ns() >= self.retry_ns
            && let Some(reading) = self.reading.take()
        {
            actions.read_replica(reading, FOLLOWED_READ_BYTES);
        }
        NextPart::Wait
    }

    /// Takes what was read.
    pub(super) fn read(
        &mut self,
        reading: ReplicaReading,
        read: Result<ReplicaPiece, LogReadError>,
        actions: &mut (impl Wakeups + CallClock),
    ) -> Result<(), WatchError> {
        self.reading = Some(reading);
        match read {
            Ok(ReplicaPiece::File(piece)) => {
                self.is_read = piece.is_empty();
                (self.piece, self.sent_bytes) = (piece, 0);
                Ok(())
            }
            Ok(ReplicaPiece::Groups(_)) => {
                debug_assert!(false, "a file has no groups");
                Ok(())
            }
            Err(LogReadError::Failed(error)) => Err(error),
            Err(LogReadError::Busy | LogReadError::Needs(_)) => {
                self.retry_ns = actions.now_ns() + WATCH_LOG_RETRY_MS * 1_000_000;
                actions.wake_at_ns(self.retry_ns);
                Ok(())
            }
        }
    }
}

/// A call that reads the content of a blob.
pub struct ContentCall {
    file: SentFile,
}

impl ContentCall {
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        _actions: &mut impl Sized,
    ) -> Result<Box<ContentCall>, Status> {
        let request = ReadContentRequest::decode(bytes);
        let request = request.map_err(|error| malformed(Method::ReplicationReadContent, &error))?;
        let reading = shared.store.read_content(request.number);
        let file = SentFile::new(reading.ok_or_else(|| keeps_nothing(&shared.store))?);
        Ok(Box::new(ContentCall { file }))
    }

    pub(super) fn read(
        &mut self,
        reading: ReplicaReading,
        read: Result<ReplicaPiece, LogReadError>,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        match self.file.read(reading, read, actions) {
            Ok(()) => self.go_on(actions),
            Err(error) => actions.finish(unread(&error)),
        }
    }

    pub(super) fn go_on(
        &mut self,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        loop {
            match self.file.next(actions) {
                NextPart::Part(bytes, part) => actions.message(|out| {
                    let data = bytes.get(part).unwrap_or_default();
                    ReadContentResponse { data }.encode(out);
                }),
                NextPart::Wait => return,
                NextPart::End => return actions.finish(Status::OK),
            }
        }
    }
}

/// The status where a file cannot be read.
#[cold]
pub(super) fn unread(error: &WatchError) -> Status {
    match error {
        WatchError::Gone => Status::not_found("the file is not there any more"),
        WatchError::Elsewhere => Status::unimplemented(error.to_string()),
        WatchError::Lost { .. } | WatchError::Ahead { .. } | WatchError::Unreadable(_) => {
            Status::new(Code::Unavailable, error.to_string())
        }
    }
}
