//! The write-ahead log: the truth of every durable database.
//!
//! How it is cut and why stands in ARCHITECTURE.md, section 4.

pub mod limits;

mod bytes;
mod group;
mod record;

pub use group::{
    ALIGN_BYTES, FORMAT_VERSION, Group, GroupBuffer, HEADER_BYTES, Header, LogId, Position, Records,
};
pub use record::{RECORD_BYTES, Record, RecordError, RecordKind};
