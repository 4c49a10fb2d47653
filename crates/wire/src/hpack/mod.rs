//! HPACK, the header compression of HTTP/2 (RFC 7541).
//!
//! [`Decoder`] turns one whole header block into [`Fields`]; [`Encoder`] appends one field after
//! the other to a block. Both keep their dynamic table between blocks, so that one of each belongs
//! to one connection for its life, and every [`HpackError`] is the end of that connection.
//!
//! The decoder is on the hot path of every request whose deadline or trace id makes its block
//! unique. It allocates nothing once its buffers have grown to what the connection needs, and what
//! can be said about a field once (is the name known, may it stand in a message at all) is
//! remembered with the table entry and handed out for nothing.

mod decoder;
mod dynamic_table;
mod encoder;
mod error;
mod fields;
mod huffman;
mod integer;
mod names;
mod static_table;

pub use decoder::Decoder;
pub use encoder::{Encoder, Indexing};
pub use error::HpackError;
pub use fields::{DecodedField, FieldLimits, Fields};
pub use names::{KnownName, is_valid_name, is_valid_value};

/// What an entry costs beyond its name and value, in the tables and in the size of a list.
/// RFC 7541 section 4.1, RFC 9113 section 6.5.2 (SETTINGS_MAX_HEADER_LIST_SIZE).
pub const ENTRY_OVERHEAD_BYTES: usize = 32;

/// The dynamic table's size before any SETTINGS or size update. RFC 9113 section 6.5.2.
pub const DEFAULT_TABLE_BYTES: usize = 4096;
