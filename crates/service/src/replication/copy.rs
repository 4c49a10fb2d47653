//! Copy: everything as it is at one commit, for a server that begins to follow this one.

use std::sync::Arc;

use api::replication::{CopyRequest, CopyResponse};
use store::backup::ReplicaCopy;
use store::{LogReadError, ReplicaPiece, ReplicaReading};

use super::files::{NextPart, SentFile, unread};
use super::{malformed, replica_ids};
use crate::actions::{Administration, CallClock, ResponseMemory, Responses, SendRoom, Wakeups};
use crate::call::Shared;
use crate::method::Method;
use crate::status::Status;
use crate::task::{Task, TaskNews, TaskRefusal};

/// A call that takes a copy.
pub struct CopyCall {
    /// Once it is made.
    copy: Option<Arc<ReplicaCopy>>,
    /// How many of its files have begun.
    begun: usize,
    file: Option<SentFile>,
}

impl CopyCall {
    pub(super) fn begin(
        bytes: &[u8],
        actions: &mut impl Administration,
    ) -> Result<Box<CopyCall>, Status> {
        let request = CopyRequest::decode(bytes);
        request.map_err(|error| malformed(Method::ReplicationCopy, &error))?;
        actions
            .start_task(Task::Copy)
            .map_err(TaskRefusal::status)?;
        Ok(Box::new(CopyCall {
            copy: None,
            begun: 0,
            file: None,
        }))
    }

    /// Takes notice of how the making goes.
    pub(super) fn task(
        &mut self,
        news: &TaskNews<'_>,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        match news {
            TaskNews::BackingUp(progress) if actions.can_send() => actions.message(|out| {
                let ids = replica_ids(shared);
                let ids: Vec<&[u8]> = ids.iter().map(|id| &id[..]).collect();
                CopyResponse {
                    written_bytes: progress.written_bytes,
                    total_bytes: progress.total_bytes,
                    replica_ids: (&ids[..]).into(),
                    ..CopyResponse::default()
                }
                .encode(out);
            }),
            TaskNews::Copied(copy) => {
                self.copy = Some(Arc::clone(copy));
                self.go_on(shared, actions);
            }
            TaskNews::Failed(failure) => actions.finish(failure.status()),
            _ => {}
        }
    }

    pub(super) fn read(
        &mut self,
        reading: ReplicaReading,
        read: Result<ReplicaPiece, LogReadError>,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        let Some(file) = &mut self.file else { return };
        match file.read(reading, read, actions) {
            Ok(()) => self.go_on(shared, actions),
            Err(error) => actions.finish(unread(&error)),
        }
    }

    pub(super) fn go_on(
        &mut self,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + Wakeups + CallClock),
    ) {
        let Some(copy) = self.copy.clone() else {
            return;
        };
        loop {
            let Some(file) = &mut self.file else {
                if !actions.can_send() {
                    return;
                }
                if !self.begin_file(&copy, shared, actions) {
                    actions.message(|out| {
                        CopyResponse {
                            complete: true,
                            ..CopyResponse::default()
                        }
                        .encode(out);
                    });
                    return actions.finish(Status::OK);
                }
                continue;
            };
            match file.next(actions) {
                NextPart::Part(bytes, part) => actions.message(|out| {
                    CopyResponse {
                        data: bytes.get(part).unwrap_or_default(),
                        ..CopyResponse::default()
                    }
                    .encode(out);
                }),
                NextPart::Wait => return,
                NextPart::End => self.file = None,
            }
        }
    }

    /// Begins the next file; returns whether there is one.
    fn begin_file(
        &mut self,
        copy: &Arc<ReplicaCopy>,
        shared: &Shared,
        actions: &mut impl Responses,
    ) -> bool {
        let Some(file) = copy.files().get(self.begun) else {
            return false;
        };
        let history_id = api::history_id_bytes(shared.store.history_id());
        let secret = shared.store.secret().copied().unwrap_or_default();
        let ids = replica_ids(shared);
        let ids: Vec<&[u8]> = ids.iter().map(|id| &id[..]).collect();
        let mut response = CopyResponse {
            file: &file.name,
            size_bytes: file.bytes,
            replica_ids: (&ids[..]).into(),
            ..CopyResponse::default()
        };
        if self.begun == 0 {
            response.history_id = &history_id;
            response.sequence = copy.sequence();
            response.secret = secret.bytes();
            response.epoch = shared.store.epoch();
        }
        actions.message(|out| response.encode(out));
        self.file = Some(SentFile::new(copy.read(file)));
        self.begun += 1;
        true
    }
}
