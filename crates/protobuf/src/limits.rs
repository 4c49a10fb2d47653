//! Every bound of this crate: its name, its default, and what it stops.

/// Groups nested within each other in a message. Groups are long out of use; a few levels are
/// skipped for old senders, more would only be there to keep the decoder busy.
pub const PROTOBUF_GROUP_DEPTH_MAX: usize = 32;

/// Times that an embedded message with a repeated field may be given in pieces. Each piece is
/// remembered until its elements are read, without an allocation. No encoder makes a second one;
/// the format allows it.
pub const MERGED_PARTS_MAX: usize = 4;

/// Fields of a message that has no repeated one, with those that nobody here knows and those of the
/// groups that are skipped. The largest of our messages has half as many, each field comes once
/// from every encoder, and a newer one may know a few more. Stops messages of millions of tiny
/// fields, which would keep the decoder busy far longer than their bytes.
pub const MESSAGE_FIELDS_MAX: u32 = 32;

/// The same of a message with a repeated field, where its description says nothing else: more than
/// a page of a scan has entries, which are at least seven bytes each of 1 MiB.
pub const LIST_FIELDS_MAX: u32 = 1 << 18;

/// The same of a request with a list of operations or the like: three times as many as a server
/// allows by default, so that one with too many is told how many there may be.
pub const REQUEST_FIELDS_MAX: u32 = 1 << 15;
