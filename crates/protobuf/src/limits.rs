//! Every bound of this crate: its name, its default, and what it stops.

/// Groups nested within each other in a message. Groups are long out of use; a few levels are
/// skipped for old senders, more would only be there to keep the decoder busy.
pub const PROTOBUF_GROUP_DEPTH_MAX: usize = 32;

/// Times that an embedded message with a repeated field may be given in pieces. Each piece is
/// remembered until its elements are read, without an allocation. No encoder makes a second one;
/// the format allows it.
pub const MERGED_PARTS_MAX: usize = 4;
