//! Typed calls: messages of `pelton.v1` in the place of bytes.
//!
//! A service is a value over a channel: [`KeyValue`], [`Blobs`], [`Admin`]. Its methods return a
//! [`Call`], which takes conditions and options, and is made by `send`. What was not found, or a
//! condition that was not met, is an outcome; an error means that there is none.
//!
//! ```no_run
//! use client::typed::KeyValue;
//! use client::{Channel, ChannelOptions};
//!
//! let mut channel = Channel::connect(&"127.0.0.1:1978".parse()?, &ChannelOptions::default())?;
//! let mut kv = KeyValue::new(&mut channel);
//! let put = kv.put(b"k", b"v").if_absent().send()?;
//! println!("applied: {}, version {}", put.applied, put.version);
//! if let Some(stored) = kv.get(b"k").send()? {
//!     println!("{} bytes", stored.value.len());
//! }
//! for entry in kv.scan().prefix(b"city/").send()?.entries() {
//!     println!("{} bytes", entry?.stored.value.len());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a unary call is does not depend on what makes it, which is a [`MakeCall`]: a [`Channel`], a
//! [`SharedPool`], or [`Futures`]. A call with many responses is made by an [`OpenStream`], which
//! the same three are. A method of `api::rpc` is called with its messages by [`Channel::call`],
//! [`Channel::call_server_streaming`] and [`Channel::call_streaming`], or by [`SharedPool::call`]
//! and [`SharedPool::call_future`].
//!
//! [`Channel`]: crate::Channel
//! [`SharedPool`]: crate::SharedPool
//! [`Channel::call`]: crate::Channel::call
//! [`Channel::call_server_streaming`]: crate::Channel::call_server_streaming
//! [`Channel::call_streaming`]: crate::Channel::call_streaming
//! [`SharedPool::call`]: crate::SharedPool::call
//! [`SharedPool::call_future`]: crate::SharedPool::call_future

mod admin;
mod blob;
mod call;
mod keyvalue;
mod pages;
mod reply;
mod shared;
mod stream;

pub use admin::Admin;
pub use api::admin::{DatabaseKind, DurabilityMode};
pub use api::keyvalue::{ChangeKind, Comparison, IncrementRefusal, Operation};
pub use api::rpc::{Repetition, Rpc};
pub use blob::{
    BlobStat, Blobs, DeletedBlob, Download, DownloadError, StoredBlob, UnfinishedUpload,
    UploadError, UploadOutcome, UploadWriter,
};
pub use call::{Call, MakeCall, TypedMethod, Unsent};
pub use keyvalue::{
    AppendOutcome, BatchOutcome, CountOutcome, DeleteOutcome, FailedOperation, IncrementOutcome,
    KeyValue, OperationOutcome, Pipe, PipeOutcome, PipeReceiver, PipeSender, PutOutcome,
    ResumePoint, ScanEntries, ScannedPage, StoredEntry, StoredValue, TransactOutcome, WatchStream,
    WatchedChange, WatchedCommit, WatchedCommits, operation,
};
pub use pages::{PagedMethod, Pages};
pub use reply::Reply;
pub use shared::{CallFuture, Futures};
pub use stream::{AwaitedStream, Exchange, OpenStream, Replies, ReplySource};
