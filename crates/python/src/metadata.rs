//! Metadata between Python and the client.

use std::borrow::Cow;

use client::Metadata;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

/// Returns pairs of keys and values; values of keys that end with `-bin` are bytes, others text.
pub(crate) fn to_python<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyAny>> {
    let mut pairs = Vec::with_capacity(metadata.len());
    for (key, value) in metadata.iter() {
        let value = match key.ends_with("-bin") {
            true => PyBytes::new(py, value).into_any(),
            false => PyString::new(py, &text_of(value)).into_any(),
        };
        let key = PyString::new(py, key).into_any();
        pairs.push(PyTuple::new(py, [key, value])?);
    }
    Ok(PyTuple::new(py, pairs)?.into_any())
}

/// Returns a value as text: UTF-8, or else Latin-1, as gRPC's own client does.
fn text_of(value: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(value) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(value.iter().copied().map(char::from).collect()),
    }
}

/// Why metadata of a call are not taken.
pub(crate) enum BadMetadata {
    /// They are no pairs of text or bytes: what Python raises for that.
    Raised(PyErr),
    /// They cannot be sent, and why: gRPC ends the call for that.
    Invalid(String),
}

impl From<PyErr> for BadMetadata {
    fn from(error: PyErr) -> BadMetadata {
        BadMetadata::Raised(error)
    }
}

/// Takes pairs of keys and values.
///
/// # Errors
/// If they are no pairs, or cannot be sent.
pub(crate) fn from_python(
    pairs: Option<&Bound<'_, PyAny>>,
) -> Result<Option<Metadata>, BadMetadata> {
    let Some(pairs) = pairs else { return Ok(None) };
    let mut metadata = Metadata::new();
    for pair in pairs.try_iter()? {
        push(&mut metadata, &pair?)?;
    }
    Ok((!metadata.is_empty()).then_some(metadata))
}

fn push(metadata: &mut Metadata, pair: &Bound<'_, PyAny>) -> Result<(), BadMetadata> {
    // Anything of two: tuples, lists, and whatever else Python unpacks.
    let two: Vec<Bound<'_, PyAny>> = pair.try_iter()?.take(3).collect::<PyResult<_>>()?;
    let [key, value] = two.as_slice() else {
        let text = "metadata are pairs of a key and a value";
        return Err(PyValueError::new_err(text).into());
    };
    let key = bytes_of(key)?;
    let name = String::from_utf8_lossy(&key);
    if NOT_SENT.contains(&&*name) {
        return Ok(());
    }
    let value = match name.ends_with("-bin") && !value.is_instance_of::<PyBytes>() {
        true => return Err(unexpected("bytes", value)?.into()),
        false if value.is_none() => Vec::new(),
        false => bytes_of(value)?,
    };
    // Names of gRPC too: what has been made for its own client may send them. Space at either end
    // is lost on the way in any case.
    let pushed = match name.ends_with("-bin") {
        true => metadata.push_binary(name.clone().into_owned(), value),
        false => metadata.push_received(&key, without_outer_spaces(&value)),
    };
    pushed.map_err(|error| BadMetadata::Invalid(format!("Invalid metadata: `{name}`: {error}")))
}

/// What the call says by itself, or HTTP/2 has no place for (RFC 9113 sections 8.2.2 and 8.3.1):
/// gateways hand on what they have received.
const NOT_SENT: [&str; 7] = [
    "connection",
    "content-length",
    "content-type",
    "grpc-timeout",
    "host",
    "te",
    "transfer-encoding",
];

fn without_outer_spaces(mut value: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = value {
        value = rest;
    }
    value
}

fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_cow()?.as_bytes().to_vec());
    }
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => Err(unexpected("str or bytes", value)?),
    }
}

fn unexpected(expected: &str, value: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let found = value.get_type().repr()?;
    Ok(PyTypeError::new_err(format!(
        "Expected {expected} in metadata, not {found}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_around_a_value_are_left_out_and_nothing_else() {
        assert_eq!(without_outer_spaces(b"  a b "), b"a b");
        assert_eq!(without_outer_spaces(b"a\n"), b"a\n");
        assert_eq!(without_outer_spaces(b"\ta"), b"\ta");
        assert_eq!(without_outer_spaces(b"  "), b"");
    }

    #[test]
    fn a_value_that_is_not_utf_8_is_latin_1() {
        assert_eq!(text_of("ä".as_bytes()), "ä");
        assert_eq!(text_of(b"\xe4"), "ä");
    }
}
