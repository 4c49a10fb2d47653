//! Every bound of this crate: its name, its default, and what it stops.

/// Groups nested within each other in a message. Groups are long out of use; a few levels are skipped for old senders,
/// more would only be there to keep the decoder busy.
pub const PROTOBUF_GROUP_DEPTH_MAX: usize = 32;
