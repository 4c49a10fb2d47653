//! Operations of a Batch, a Transact or a Pipe, and comparisons of a Transact.
//!
//! ```
//! use client::typed::operation::{self, value_is};
//!
//! let operations = [
//!     operation::put(b"a", b"1").if_absent().into(),
//!     operation::get(b"b").into(),
//! ];
//! let comparisons = [value_is(b"leader", b"alice")];
//! # let _: (&[client::typed::Operation<'_>], _) = (&operations, comparisons);
//! ```

use api::keyvalue::{
    AppendRequest, Comparand, Comparison, DeleteRequest, GetRequest, IncrementRequest, Operation,
    OperationBody, PutRequest,
};
use api::rpc::keyvalue::{Append, Delete, Get, Increment, Put};

use crate::typed::call::{Call, Unsent};

/// Reads a key.
pub fn get(key: &[u8]) -> Call<'_, Get, Unsent> {
    let request = GetRequest {
        key,
        ..GetRequest::default()
    };
    Call::new(Unsent, request)
}

/// Writes the value of a key, which never expires unless it says so.
pub fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Call<'a, Put, Unsent> {
    let request = PutRequest {
        key,
        value,
        ..PutRequest::default()
    };
    Call::new(Unsent, request)
}

/// Removes a key.
pub fn delete(key: &[u8]) -> Call<'_, Delete, Unsent> {
    let request = DeleteRequest {
        key,
        ..DeleteRequest::default()
    };
    Call::new(Unsent, request)
}

/// Adds bytes at the end of the value of a key; a missing key counts as an empty value.
pub fn append<'a>(key: &'a [u8], value: &'a [u8]) -> Call<'a, Append, Unsent> {
    let request = AppendRequest {
        key,
        value,
        ..AppendRequest::default()
    };
    Call::new(Unsent, request)
}

/// Adds to a number; a missing key counts as 0, or as it says.
pub fn increment(key: &[u8], delta: i64) -> Call<'_, Increment, Unsent> {
    let request = IncrementRequest {
        key,
        delta,
        ..IncrementRequest::default()
    };
    Call::new(Unsent, request)
}

macro_rules! operations {
    ($($method:ident),*) => { $(
        impl<'a> From<Call<'a, $method, Unsent>> for Operation<'a> {
            fn from(call: Call<'a, $method, Unsent>) -> Operation<'a> {
                OperationBody::$method(call.request.into()).into()
            }
        }
    )* };
}

operations!(Get, Put, Delete, Append, Increment);

/// Is met if the key has this version; 0: if it is absent.
pub fn version_is(key: &[u8], version: u64) -> Comparison<'_> {
    comparison(key, Comparand::Version(version))
}

/// Is met if the key exists, or, with `false`, if it does not.
pub fn exists(key: &[u8], exists: bool) -> Comparison<'_> {
    comparison(key, Comparand::Exists(exists))
}

/// Is met if the key exists with exactly this value.
pub fn value_is<'a>(key: &'a [u8], value: &'a [u8]) -> Comparison<'a> {
    comparison(key, Comparand::Value(value))
}

fn comparison<'a>(key: &'a [u8], condition: Comparand<'a>) -> Comparison<'a> {
    Comparison {
        key,
        condition: Some(condition),
    }
}
