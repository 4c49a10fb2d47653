//! What operators see of uploads that are not complete, and how they discard them.

use std::sync::Arc;

use super::blobs::BlobStore;
use super::peer::UploadPeer;
use super::unfinished::{IncompleteUpload, Over};
use crate::database_id::DatabaseId;

/// An upload that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadState {
    /// The name of the blob that it may become.
    pub name: Box<str>,
    /// As its sender chose it; empty: it cannot be resumed.
    pub upload_id: Box<[u8]>,
    /// Bytes that are stored.
    pub stored_bytes: u64,
    /// When something of it came last, in milliseconds since 1970.
    pub touched_ms: u64,
    /// Whether a stream has it.
    pub has_stream: bool,
    /// From where its last stream came.
    pub peer: UploadPeer,
}

impl BlobStore {
    /// Returns the unfinished uploads of a database, by name. There are at most
    /// [`limits::UPLOADS_PER_DATABASE`](super::limits::UPLOADS_PER_DATABASE).
    pub fn uploads(&self, database: DatabaseId) -> Vec<UploadState> {
        let found = self.unfinished_of(database, |_| true);
        let mut uploads: Vec<UploadState> = found.iter().map(|one| one.state()).collect();
        uploads.sort_by(|a, b| (&a.name, &a.upload_id).cmp(&(&b.name, &b.upload_id)));
        uploads
    }

    /// Discards the uploads of a name with an id; an empty id names those that cannot be resumed. A
    /// stream that has one is told. Returns how many there were. One whose description is on its
    /// way stays. Waits for the disk.
    pub fn discard_uploads(
        self: &Arc<BlobStore>,
        database: DatabaseId,
        name: &str,
        upload_id: &[u8],
    ) -> u64 {
        let found = self.unfinished_of(database, |unfinished| {
            *unfinished.name == *name && *unfinished.upload_id == *upload_id
        });
        let mut ended = Vec::new();
        for unfinished in found {
            let progress = unfinished.progress.lock();
            if !progress.is_sealed {
                ended.extend(self.end_and_keep(&unfinished, progress, Over::Discarded));
            }
        }
        self.remove_ended(&ended);
        ended.len() as u64
    }

    fn unfinished_of(
        &self,
        database: DatabaseId,
        is_wanted: impl Fn(&IncompleteUpload) -> bool,
    ) -> Vec<Arc<IncompleteUpload>> {
        let state = self.state.lock();
        let of_database = (state.unfinished.values())
            .filter(|unfinished| unfinished.database == database && is_wanted(unfinished));
        of_database.cloned().collect()
    }
}

impl IncompleteUpload {
    fn state(&self) -> UploadState {
        UploadState {
            name: self.name.clone(),
            upload_id: self.upload_id.clone(),
            stored_bytes: self.stored_bytes(),
            touched_ms: self.touched_ms(),
            has_stream: self.has_stream(),
            peer: self.peer(),
        }
    }
}
