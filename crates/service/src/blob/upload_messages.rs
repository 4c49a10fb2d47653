//! The messages of `pelton.v1.Blob` about uploads that are not complete, both ways.

use crate::keyvalue::messages::{Invalid, decode_fields, decode_parts, part};
use protobuf::writer;

/// Of which database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct ListUploadsRequest<'a> {
    pub database: &'a str,
}

impl<'a> ListUploadsRequest<'a> {
    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<ListUploadsRequest<'a>, Invalid> {
        let mut request = ListUploadsRequest::default();
        decode_fields(message, &["", "database"], |number, value| {
            if number == 1 {
                request.database = value.string()?;
            }
            Ok(())
        })?;
        Ok(request)
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.database.as_bytes());
    }
}

/// An upload that is not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct UploadDescription<'a> {
    pub name: &'a str,
    pub upload_id: &'a [u8],
    pub stored_bytes: u64,
    pub touched_at_ms: u64,
    pub open: bool,
    pub peer: &'a str,
}

impl<'a> UploadDescription<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.name.as_bytes());
        writer::bytes(out, 2, self.upload_id);
        writer::uint64(out, 3, self.stored_bytes);
        writer::uint64(out, 4, self.touched_at_ms);
        writer::bool(out, 5, self.open);
        writer::bytes(out, 6, self.peer.as_bytes());
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<UploadDescription<'a>, Invalid> {
        let mut upload = UploadDescription::default();
        let names = &[
            "",
            "name",
            "upload_id",
            "stored_bytes",
            "touched_at_ms",
            "open",
            "peer",
        ];
        decode_fields(message, names, |number, value| {
            match number {
                1 => upload.name = value.string()?,
                2 => upload.upload_id = value.bytes()?,
                3 => upload.stored_bytes = value.varint()?,
                4 => upload.touched_at_ms = value.varint()?,
                5 => upload.open = value.bool()?,
                6 => upload.peer = value.string()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(upload)
    }
}

/// Visits the uploads of a `ListUploadsResponse`.
pub fn decode_uploads<'a>(
    message: &'a [u8],
    mut visit: impl FnMut(UploadDescription<'a>),
) -> Result<(), Invalid> {
    decode_parts(message, &["", "uploads"], |number, value| {
        if number == 1 {
            visit(UploadDescription::decode(part(value, "uploads")?)?);
        }
        Ok(())
    })
}

/// Which uploads are to be discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct DiscardUploadsRequest<'a> {
    pub database: &'a str,
    pub name: &'a str,
    pub upload_id: &'a [u8],
}

impl<'a> DiscardUploadsRequest<'a> {
    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<DiscardUploadsRequest<'a>, Invalid> {
        let mut request = DiscardUploadsRequest::default();
        let names = &["", "database", "name", "upload_id"];
        decode_fields(message, names, |number, value| {
            match number {
                1 => request.database = value.string()?,
                2 => request.name = value.string()?,
                3 => request.upload_id = value.bytes()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.database.as_bytes());
        writer::bytes(out, 2, self.name.as_bytes());
        writer::bytes(out, 3, self.upload_id);
    }
}

/// What was discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the file")]
pub struct DiscardUploadsResponse {
    pub discarded: u64,
}

impl DiscardUploadsResponse {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::uint64(out, 1, self.discarded);
    }

    /// Decodes the message.
    pub fn decode(message: &[u8]) -> Result<DiscardUploadsResponse, Invalid> {
        let mut response = DiscardUploadsResponse::default();
        decode_fields(message, &["", "discarded"], |number, value| {
            if number == 1 {
                response.discarded = value.varint()?;
            }
            Ok(())
        })?;
        Ok(response)
    }
}
