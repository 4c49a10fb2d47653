//! Blobs: content of any size under a name, in files of their own.
//!
//! Design: docs/internals/blobs.md. What touches files blocks: the layer above does it on
//! threads that may wait ([`Runner`]). No threads and no clocks here.

pub mod limits;

mod blobs;
mod bounds;
mod collect;
mod content;
mod description;
mod error;
mod layout;
mod listing;
mod open;
mod peer;
mod reader;
mod sealed;
mod unfinished;
mod upload;
mod walk;
mod work;
mod writer;

pub(crate) use blobs::BlobHold;
pub use blobs::{
    BlobConfig, BlobStatistics, BlobUse, Blobs, CallJob, Inline, Job, LostUpload, Observer, Runner,
};
pub use content::{Content, Piece};
pub use crc32c::crc32c;
pub use description::{Description, NameError, check_name, key, split_key};
pub use error::{ReadError, UploadBound, UploadError};
pub(crate) use layout::{file_name, number_of};
pub use listing::UploadState;
pub use open::Found;
pub(crate) use open::{Opening, Removed};
pub use peer::UploadPeer;
pub use sealed::{Sealed, Settled};
pub use upload::{Begin, End, Owner, Upload};
pub(crate) use walk::{CheckError, Walk, check_form};
pub use work::{Chunk, Interest, News, Permit, Work};

/// The folder of the contents, in the data folder and in a backup.
pub(crate) const FOLDER: &str = "blobs";
