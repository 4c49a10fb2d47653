//! What a request is about, for the log: its database and its key.

use protobuf::{FieldValue, Reader};

use crate::method::{DatabaseName, Method};

/// The field of the key in requests of `KeyValue` about one key.
const KEY_FIELD: u32 = 2;

/// What a request is about, as far as its message names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSubject<'a> {
    /// The name of its database, empty for the default one; `None`: the message names none.
    pub database: Option<&'a str>,
    /// Its key; `None`: it is not about one key.
    pub key: Option<&'a [u8]>,
}

impl<'a> RequestSubject<'a> {
    /// Returns what a message is about. What cannot be read of it is left out.
    pub fn of(method: Method, message: &'a [u8]) -> RequestSubject<'a> {
        let database = match method.entry().database {
            DatabaseName::Field(path) => Some(name_at(message, path).unwrap_or("")),
            DatabaseName::TheDefault => Some(""),
            _ => None,
        };
        RequestSubject {
            database,
            key: match has_key(method) {
                true => Some(field(message, KEY_FIELD).unwrap_or(b"")),
                false => None,
            },
        }
    }
}

fn has_key(method: Method) -> bool {
    use Method::{Append, Delete, Get, Increment, Put};
    matches!(method, Get | Put | Delete | Append | Increment)
}

fn name_at<'a>(message: &'a [u8], path: &[u32]) -> Option<&'a str> {
    let at = path
        .iter()
        .try_fold(message, |message, number| field(message, *number))?;
    std::str::from_utf8(at).ok()
}

/// Returns the last field of a number that has a length, as readers of messages take it: the table
/// of methods names the field, whichever message it is of.
fn field(message: &[u8], number: u32) -> Option<&[u8]> {
    let mut reader = Reader::new(message);
    let mut found = None;
    while let Ok(Some((field, value))) = reader.next_field() {
        if field == number
            && let Ok(bytes) = FieldValue::bytes(value)
        {
            found = Some(bytes);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_and_key_of_a_request_are_found() {
        let get = b"\x0a\x06orders\x12\x03key";
        let subject = RequestSubject::of(Method::Get, get);
        assert_eq!(subject.database, Some("orders"));
        assert_eq!(subject.key, Some(&b"key"[..]));
        let scan = RequestSubject::of(Method::Scan, get);
        assert_eq!((scan.database, scan.key), (Some("orders"), None));
        let upload = RequestSubject::of(Method::BlobUpload, b"\x0a\x08\x0a\x06orders");
        assert_eq!(upload.database, Some("orders"));
        let subject = RequestSubject::of(Method::AdminStatistics, get);
        assert_eq!(subject, RequestSubject::default());
    }

    #[test]
    fn a_request_that_cannot_be_read_has_what_could_be() {
        for message in [
            &b""[..],
            b"\xff",
            b"\x0a\x7fx",
            b"\x0a\x01\xff",
            b"\x08\x01",
        ] {
            let subject = RequestSubject::of(Method::Put, message);
            assert_eq!(subject.database, Some(""), "{message:?}");
            assert_eq!(subject.key, Some(&b""[..]), "{message:?}");
        }
    }
}
