//! Requests as bytes, and answers as what they say.

mod decode;
mod encode;

pub use decode::{Logs, Piped, changes, content, decode, decode_piped, piped};
pub use encode::{PIPE, encode, encode_piped, path};
