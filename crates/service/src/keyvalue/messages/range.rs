//! Scan and Count: ranges of keys.

use api::keyvalue::{self, CountPrecision, CountRequest, KeyRange, Keys, ScanRequest};
use store::Direction;

use super::Invalid;

/// Decodes a Scan.
///
/// # Errors
///
/// The message is broken, or a field has a value that is not allowed.
pub(crate) fn decode_scan(message: &[u8]) -> Result<(ScanRequest<'_>, Direction), Invalid> {
    let request = ScanRequest::decode(message)?;
    Invalid::refuse_unserved(request.unserved)?;
    let direction = match keyvalue::Direction::from_number(request.direction) {
        Some(keyvalue::Direction::Unspecified | keyvalue::Direction::Forward) => Direction::Forward,
        Some(keyvalue::Direction::Backward) => Direction::Backward,
        None => {
            return Err(Invalid::rule(
                "direction",
                "is not a Direction that this server knows",
            ));
        }
    };
    check(request.keys)?;
    Ok((request, direction))
}

/// Decodes a Count. Returns also whether an estimate will do.
///
/// # Errors
///
/// As [`decode_scan`].
pub(crate) fn decode_count(message: &[u8]) -> Result<(CountRequest<'_>, bool), Invalid> {
    let request = CountRequest::decode(message)?;
    Invalid::refuse_unserved(request.unserved)?;
    let precision = CountPrecision::from_number(request.precision).ok_or(Invalid::rule(
        "precision",
        "is not a CountPrecision that this server knows",
    ))?;
    check(request.keys)?;
    Ok((request, precision == CountPrecision::Estimate))
}

/// An empty end is no bound.
pub(super) fn check(keys: Option<Keys<'_>>) -> Result<(), Invalid> {
    match keys {
        Some(Keys::Range(KeyRange { start, end })) if !end.is_empty() && end < start => {
            Err(Invalid::rule("range", "has an end below its start"))
        }
        _ => Ok(()),
    }
}
