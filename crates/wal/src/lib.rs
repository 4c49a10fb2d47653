//! The disk, and the write-ahead log on it: the truth of every durable database.
//!
//! The log carries records of numbers and bytes, whose meaning is the caller's. Design:
//! docs/internals/commit-and-log.md. No threads and no clocks: the owner of the values
//! calls each step.
//!
//! ```
//! # use std::sync::Arc;
//! # let folder = std::env::temp_dir().join(format!("log-example-{}", std::process::id()));
//! use wal::disk::RealDisk;
//! use wal::{GroupBuffer, LogConfig, LogId, OpenLog, RawRecord};
//!
//! let disk = Arc::new(RealDisk::open_or_create(&folder)?);
//! let config = LogConfig {
//!     segment_bytes: 1024 * 1024,
//!     ..LogConfig::new(LogId { history: 1, secret: 2 }, 1)
//! };
//! let mut visit = |record: &RawRecord<'_>| {
//!     println!("{record:?}");
//!     Ok(())
//! };
//! let OpenLog { mut log, mut stock, recovered } = wal::open(disk, &config, &mut visit)?;
//!
//! let mut group = GroupBuffer::new();
//! let sequence = recovered.next_sequence;
//! group.push(&RawRecord { kind: 1, key: b"key", value: b"value", ..RawRecord::mark(sequence) });
//! let written = log.write_group(&mut group, 2)?;
//! assert_eq!(log.sync()?, written);
//!
//! if let Some(wanted) = log.wanted_segment() {
//!     log.take_segment(stock.prepare(wanted)?);
//! }
//! log.close(sequence, 3)?;
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// What ships does not panic: docs/internals/panics.md.
#![cfg_attr(
    not(test),
    warn(
        clippy::disallowed_methods,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented,
        clippy::unwrap_used
    )
)]

pub mod disk;
pub mod limits;

mod bytes;
mod damage;
mod extent;
mod group;
mod group_reader;
mod kept;
mod known;
mod place;
mod progress;
mod reader;
mod record;
mod scan;
mod segment;
mod start;
mod verify;
mod writer;

pub use damage::{Cut, Damage, TornGroup, Witness};
pub use extent::LogExtent;
pub use group::{
    ALIGN_BYTES, FORMAT_VERSION, GroupBuffer, GroupHeader, HEADER_BYTES, LogGroup, LogId,
    NUMBER_BOUND, Position, RecordPlace, Records,
};
pub use group_reader::{GroupError, GroupReader, LogCursor, RawGroup};
pub use known::{KnownLog, Misfit};
pub use place::{LogEnd, LogPlace};
pub use progress::ReadProgress;
pub use record::{RECORD_BYTES, RawRecord, RecordError};
pub use scan::{LogReadFailure, VisitGroup};
pub use segment::{
    PrepareError, ReadySegment, RetiredSegment, SegmentDemand, SegmentListener, SegmentStock,
    WantedSegment, is_log_file, is_segment, segment_name,
};
pub use start::{LogConfig, LogOpenError, OpenLog, ReadLog, Recovered, VisitRecord, open, read};
pub use verify::{LogEnding, LogReport, SegmentReport, verify, verify_copy, verify_known};
pub use writer::{LogWork, LogWriter, SegmentRetention, SyncError, WriteError};
