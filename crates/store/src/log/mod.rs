//! The write-ahead log: the truth of every durable database.
//!
//! How it is cut and why stands in ARCHITECTURE.md, section 4. No threads and no clocks: whoever owns the values
//! calls each step.
//!
//! ```
//! # use std::sync::Arc;
//! # let folder = std::env::temp_dir().join(format!("log-example-{}", std::process::id()));
//! use store::disk::RealDisk;
//! use store::log::{self, GroupBuffer, LogConfig, LogId, OpenLog, RawRecord};
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
//! let OpenLog { mut log, mut stock, recovered } = log::open(disk, &config, &mut visit)?;
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

pub mod limits;

mod bytes;
mod copy;
mod damage;
mod group;
mod known;
mod logged;
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
pub(crate) use logged::push_entry;
pub use logged::{Record, RecordKind, records};
pub use progress::ReadProgress;
pub use record::{RECORD_BYTES, RawRecord, RecordError};
pub use scan::{Place, ReadError, VisitGroup};
pub use segment::{
    PrepareError, ReadySegment, RetiredSegment, SegmentDemand, SegmentStock, WantedSegment,
    segment_name,
};
pub(crate) use segment::{SegmentListener, is_segment};
pub use start::{LogConfig, OpenError, OpenLog, ReadLog, Recovered, VisitRecord, open, read};
pub(crate) use verify::verify_copy;
pub use verify::{Ending, Report, SegmentReport, verify, verify_known};
pub use writer::{LogWriter, SyncError, WriteError};
