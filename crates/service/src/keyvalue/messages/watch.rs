//! Requests to watch.

use api::keyvalue::{KeyRange, Keys, WatchRequest};

use super::{Invalid, range};
use crate::limits::{ANSWER_BYTES, ANSWER_BYTES_MAX, WATCH_KEY_BYTES, WATCH_MESSAGE_BYTES_MIN};

/// Decodes a Watch. Returns also how many bytes a response may have.
///
/// # Errors
///
/// What is wrong with the message.
pub(crate) fn decode_watch(message: &[u8]) -> Result<(WatchRequest<'_>, u64), Invalid> {
    let request = WatchRequest::decode(message)?;
    range::check(request.keys)?;
    check_kept(request.keys)?;
    let bytes = match request.max_answer_bytes {
        0 => ANSWER_BYTES,
        bytes if bytes < WATCH_MESSAGE_BYTES_MIN as u64 => {
            return Err(Invalid::rule("max_answer_bytes", "is below 128 KiB"));
        }
        bytes if bytes > ANSWER_BYTES_MAX => {
            return Err(Invalid::rule("max_answer_bytes", "is above 64 MiB"));
        }
        bytes => bytes,
    };
    let is_id = |id: &[u8]| id.is_empty() || id.len() == 8;
    if !is_id(request.resume.map_or(&[], |resume| resume.history_id)) {
        return Err(Invalid::rule("resume.history_id", "has not 8 bytes"));
    }
    Ok((request, bytes))
}

/// What is kept of the keys is kept as long as the call lives.
fn check_kept(keys: Option<Keys<'_>>) -> Result<(), Invalid> {
    const WHY: &str = "has a key of more than 1 024 bytes, which no watcher keeps";
    let (field, longest) = match keys {
        None => return Ok(()),
        Some(Keys::Range(KeyRange { start, end })) => ("range", start.len().max(end.len())),
        Some(Keys::Prefix(prefix)) => ("prefix", prefix.len()),
    };
    match longest > WATCH_KEY_BYTES {
        true => Err(Invalid::rule(field, WHY)),
        false => Ok(()),
    }
}
