//! Places in the history of a server.

use protobuf::{Fault, Value, writer};

/// A commit of a server, by the history that its sequence belongs to: with another one the number
/// means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResumePoint {
    /// Names the history; 0: unknown.
    pub history_id: u64,
    /// The last commit seen.
    pub sequence: u64,
}

/// Appends a history's name: 8 bytes, big-endian; nothing for 0.
#[inline]
pub(crate) fn encode_history_id(out: &mut Vec<u8>, field: u32, history_id: u64) {
    if history_id != 0 {
        writer::bytes(out, field, &history_id.to_be_bytes());
    }
}

/// The name of a history. One of another length is none of ours, and counts as unknown.
pub(crate) fn decode_history_id(value: Value<'_>) -> Result<u64, Fault> {
    let bytes = value.bytes()?;
    Ok(bytes.try_into().map_or(0, u64::from_be_bytes))
}
