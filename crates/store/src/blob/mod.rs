//! Blobs: content of any size under a name, in files of their own.
//!
//! Design: docs/internals/blobs.md. What touches files blocks: the layer above does it on
//! threads that may wait ([`BlobRunner`]). No threads and no clocks here.

pub mod limits;

mod blobs;
mod bounds;
mod check_error;
mod collect;
mod content;
mod description;
mod ending;
mod error;
mod layout;
mod listing;
mod open;
mod open_content;
mod peer;
mod permit;
mod reader;
mod received;
mod sealed;
mod stream;
mod unfinished;
mod upload;
mod walk;
mod work;
mod writer;

pub(crate) use blobs::BlobHold;
pub use blobs::{
    BlobConfig, BlobRunner, BlobStatistics, BlobStore, BlobUse, CallJob, Inline, LostUpload,
    Observer, RunnerJob,
};
pub(crate) use check_error::CheckError;
pub use content::{Content, Piece};
pub use crc32c::crc32c;
pub use description::{Description, NameError, check_name, key, split_key};
pub use error::{ContentReadError, UploadBound, UploadError};
pub(crate) use layout::{file_name, number_of};
pub use listing::UploadState;
pub use open::FoundBlobs;
pub(crate) use open::{BlobOpening, RemovedContents};
pub use peer::UploadPeer;
pub use permit::BlobPermit;
pub(crate) use received::discard_received;
pub use received::{NamedContent, ReceivedContent};
pub use sealed::{Sealed, Settled};
pub use stream::{Begin, Chunk, ContentEnd, Owner};
pub use upload::Upload;
pub(crate) use walk::{ContentWalk, check_form};
pub use work::{BlobInterest, BlobNews, Work};

/// The folder of the contents, in the data folder and in a backup.
pub const FOLDER: &str = "blobs";
