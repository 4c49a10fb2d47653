//! Metadata between Python and the client.

use client::Metadata;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

/// Returns pairs of keys and values; values of keys that end with `-bin` are bytes, others text.
pub(crate) fn to_python<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyAny>> {
    let mut pairs = Vec::with_capacity(metadata.len());
    for (key, value) in metadata.iter() {
        let value = match key.ends_with("-bin") {
            true => PyBytes::new(py, value).into_any(),
            false => PyString::new(py, &String::from_utf8_lossy(value)).into_any(),
        };
        let key = PyString::new(py, key).into_any();
        pairs.push(PyTuple::new(py, [key, value])?);
    }
    Ok(PyTuple::new(py, pairs)?.into_any())
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
    let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
    let (key, value) = (bytes_of(&key)?, bytes_of(&value)?);
    let name = String::from_utf8_lossy(&key);
    // Names of gRPC too: what has been made for its own client may send them. Space at either end
    // is lost on the way in any case.
    let pushed = match name.ends_with("-bin") {
        true => metadata.push_binary(name.clone().into_owned(), value),
        false => metadata.push_received(&key, value.trim_ascii()),
    };
    pushed.map_err(|error| BadMetadata::Invalid(format!("Invalid metadata: `{name}`: {error}")))
}

fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_cow()?.as_bytes().to_vec());
    }
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => Err(PyTypeError::new_err(format!(
            "Expected str or bytes in metadata, not {}",
            value.get_type().repr()?
        ))),
    }
}
