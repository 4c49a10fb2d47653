//! The write-ahead log: the truth of every durable database.
//!
//! Design: docs/internals/commit-and-log.md. No threads and no clocks: the owner of the values
//! calls each step.
//!
//! ```
//! # use std::sync::Arc;
//! # let folder = std::env::temp_dir().join(format!("log-example-{}", std::process::id()));
//! use store::DatabaseId;
//! use store::disk::RealDisk;
//! use store::log::{self, GroupBuffer, LogConfig, LogId, OpenLog, Record, RecordKind};
//!
//! let disk = Arc::new(RealDisk::open_or_create(&folder)?);
//! let config = LogConfig {
//!     segment_bytes: 1024 * 1024,
//!     ..LogConfig::new(LogId { history: 1, secret: 2 }, 1)
//! };
//! let OpenLog { mut log, mut stock, recovered } = log::open(disk, &config, &mut |record| println!("{record:?}"))?;
//!
//! let mut group = GroupBuffer::new();
//! let sequence = recovered.next_sequence;
//! group.push(&Record::of_key(RecordKind::Delete, sequence, DatabaseId::DEFAULT, 0, b"key"));
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

pub mod limits;

mod bytes;
mod copy;
mod damage;
mod group;
mod known;
mod progress;
mod reader;
mod record;
mod scan;
mod segment;
mod start;
mod verify;
mod writer;

pub use copy::{GroupError, GroupReader, LogEnd, RawGroup};
pub use damage::{Cut, Damage, Witness};
pub use group::{
    ALIGN_BYTES, FORMAT_VERSION, Group, GroupBuffer, HEADER_BYTES, Header, LogId, Position, Records,
};
pub use known::{Known, Misfit};
pub use progress::ReadProgress;
pub use record::{RECORD_BYTES, Record, RecordError, RecordKind};
pub use scan::{Place, ReadError};
pub use segment::{
    PrepareError, ReadySegment, RetiredSegment, SegmentDemand, SegmentStock, WantedSegment,
    segment_name,
};
pub(crate) use segment::{SegmentListener, is_segment};
pub use start::{LogConfig, OpenError, OpenLog, ReadLog, Recovered, open, read};
pub(crate) use verify::verify_copy;
pub use verify::{Ending, Report, SegmentReport, verify, verify_known};
pub use writer::{LogWriter, SyncError, WriteError};
