//! The answers to single operations, alone and as results of a batch.

use super::{Invalid, decode_fields, decode_parts, part};
use protobuf::{Fault, Reader, Value, writer};

/// An entry, as scans and previous values carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryMessage<'a> {
    /// Empty where the request named the key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The commit that wrote it.
    pub version: u64,
    /// 0: never.
    pub expires_at_ms: u64,
}

impl<'a> EntryMessage<'a> {
    /// Appends the inside of the message, the value last.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_head(out, self.value.len());
        out.extend_from_slice(self.value);
    }

    /// Appends the inside of the message without the `value_bytes` bytes of its value, which must
    /// follow.
    #[inline]
    pub fn encode_head(&self, out: &mut Vec<u8>, value_bytes: usize) {
        writer::bytes(out, 1, self.key);
        writer::uint64(out, 3, self.version);
        writer::uint64(out, 4, self.expires_at_ms);
        encode_value_head(out, value_bytes);
    }

    /// At most this many bytes are what [`EntryMessage::encode`] appends beside key and value.
    pub const OVERHEAD_BYTES: usize = 6 + 6 + 11 + 11;

    fn merge(&mut self, message: &'a [u8]) -> Result<(), Fault> {
        let visit = |number, value: Value<'a>| {
            match number {
                1 => self.key = value.bytes()?,
                2 => self.value = value.bytes()?,
                3 => self.version = value.varint()?,
                4 => self.expires_at_ms = value.varint()?,
                _ => {}
            }
            Ok(())
        };
        Reader::new(message)
            .for_each(visit)
            .map_err(|error| error.fault)
    }

    pub(super) fn merge_into(
        entry: &mut Option<EntryMessage<'a>>,
        value: Value<'a>,
    ) -> Result<(), Fault> {
        entry.get_or_insert_default().merge(value.bytes()?)
    }
}

/// The answer to a Get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetResponse<'a> {
    /// Whether there is such a key.
    pub found: bool,
    /// Its value.
    pub value: &'a [u8],
    /// The commit that wrote it.
    pub version: u64,
    /// 0: never.
    pub expires_at_ms: u64,
}

impl<'a> GetResponse<'a> {
    /// Appends the message.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_head(out, self.value.len());
        out.extend_from_slice(self.value);
    }

    /// Appends the message without the `value_bytes` bytes of its value, which must follow.
    #[inline]
    pub fn encode_head(&self, out: &mut Vec<u8>, value_bytes: usize) {
        writer::bool(out, 1, self.found);
        writer::uint64(out, 3, self.version);
        writer::uint64(out, 4, self.expires_at_ms);
        encode_value_head(out, value_bytes);
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<GetResponse<'a>, Invalid> {
        let mut response = GetResponse::default();
        response.merge(message)?;
        Ok(response)
    }

    fn merge(&mut self, message: &'a [u8]) -> Result<(), Invalid> {
        decode_fields(
            message,
            &["", "found", "value", "version", "expires_at_ms"],
            |number, value| {
                match number {
                    1 => self.found = value.bool()?,
                    2 => self.value = value.bytes()?,
                    3 => self.version = value.varint()?,
                    4 => self.expires_at_ms = value.varint()?,
                    _ => {}
                }
                Ok(())
            },
        )
    }
}

#[inline]
fn encode_value_head(out: &mut Vec<u8>, value_bytes: usize) {
    if value_bytes > 0 {
        writer::bytes_head(out, 2, value_bytes);
    }
}

/// The answer to a Put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutResponse<'a> {
    /// False: the condition was not met.
    pub applied: bool,
    /// Of the entry after the request, 0: there is none.
    pub version: u64,
    /// The entry before, if it was wanted and there was one.
    pub previous: Option<EntryMessage<'a>>,
}

impl<'a> PutResponse<'a> {
    /// Appends the message.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bool(out, 1, self.applied);
        writer::uint64(out, 2, self.version);
        encode_previous(self.previous.as_ref(), out);
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<PutResponse<'a>, Invalid> {
        let mut response = PutResponse::default();
        response.merge(message)?;
        Ok(response)
    }

    fn merge(&mut self, message: &'a [u8]) -> Result<(), Invalid> {
        decode_fields(
            message,
            &["", "applied", "version", "previous"],
            |number, value| {
                match number {
                    1 => self.applied = value.bool()?,
                    2 => self.version = value.varint()?,
                    3 => EntryMessage::merge_into(&mut self.previous, value)?,
                    _ => {}
                }
                Ok(())
            },
        )
    }
}

#[inline]
fn encode_previous(previous: Option<&EntryMessage<'_>>, out: &mut Vec<u8>) {
    if let Some(entry) = previous {
        writer::message(out, 3, |out| entry.encode(out));
    }
}

/// The answer to a Delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeleteResponse<'a> {
    /// False: there was no such key, or the condition was not met.
    pub deleted: bool,
    /// Of the entry that was found, 0: there was none.
    pub version: u64,
    /// The entry before, if it was wanted and there was one.
    pub previous: Option<EntryMessage<'a>>,
    /// Of the commit that deleted it, 0: nothing was deleted.
    pub sequence: u64,
}

impl<'a> DeleteResponse<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bool(out, 1, self.deleted);
        writer::uint64(out, 2, self.version);
        encode_previous(self.previous.as_ref(), out);
        writer::uint64(out, 4, self.sequence);
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<DeleteResponse<'a>, Invalid> {
        let mut response = DeleteResponse::default();
        response.merge(message)?;
        Ok(response)
    }

    fn merge(&mut self, message: &'a [u8]) -> Result<(), Invalid> {
        decode_fields(
            message,
            &["", "deleted", "version", "previous", "sequence"],
            |number, value| {
                match number {
                    1 => self.deleted = value.bool()?,
                    2 => self.version = value.varint()?,
                    3 => EntryMessage::merge_into(&mut self.previous, value)?,
                    4 => self.sequence = value.varint()?,
                    _ => {}
                }
                Ok(())
            },
        )
    }
}

/// The answer to an Append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppendResponse {
    /// False: the condition was not met.
    pub applied: bool,
    /// Of the entry after the request, 0: there is none.
    pub version: u64,
    /// Bytes of the value after the request.
    pub length: u64,
}

impl AppendResponse {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bool(out, 1, self.applied);
        writer::uint64(out, 2, self.version);
        writer::uint64(out, 3, self.length);
    }

    /// Decodes the message.
    pub fn decode(message: &[u8]) -> Result<AppendResponse, Invalid> {
        let mut response = AppendResponse::default();
        response.merge(message)?;
        Ok(response)
    }

    fn merge(&mut self, message: &[u8]) -> Result<(), Invalid> {
        decode_fields(
            message,
            &["", "applied", "version", "length"],
            |number, value| {
                match number {
                    1 => self.applied = value.bool()?,
                    2 => self.version = value.varint()?,
                    3 => self.length = value.varint()?,
                    _ => {}
                }
                Ok(())
            },
        )
    }
}

/// Why nothing was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncrementRefusal {
    /// The condition was not met.
    Condition = 1,
    /// The value is not 8 bytes long.
    NotANumber = 2,
    /// The sum does not fit.
    Overflow = 3,
}

/// The answer to an Increment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncrementResponse {
    /// False: see `refusal`.
    pub applied: bool,
    /// The number after the request.
    pub value: i64,
    /// Of the entry after the request, 0: there is none.
    pub version: u64,
    /// Why nothing was added.
    pub refusal: Option<IncrementRefusal>,
}

impl IncrementResponse {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bool(out, 1, self.applied);
        writer::sint64(out, 2, self.value);
        writer::uint64(out, 3, self.version);
        writer::uint64(out, 4, self.refusal.map_or(0, |refusal| refusal as u64));
    }

    /// Decodes the message.
    pub fn decode(message: &[u8]) -> Result<IncrementResponse, Invalid> {
        let mut response = IncrementResponse::default();
        response.merge(message)?;
        Ok(response)
    }

    fn merge(&mut self, message: &[u8]) -> Result<(), Invalid> {
        decode_fields(
            message,
            &["", "applied", "value", "version", "refusal"],
            |number, value| {
                match number {
                    1 => self.applied = value.bool()?,
                    2 => self.value = value.sint64()?,
                    3 => self.version = value.varint()?,
                    4 => self.refusal = refusal(value.int32()?),
                    _ => {}
                }
                Ok(())
            },
        )
    }
}

fn refusal(number: i32) -> Option<IncrementRefusal> {
    match number {
        1 => Some(IncrementRefusal::Condition),
        2 => Some(IncrementRefusal::NotANumber),
        3 => Some(IncrementRefusal::Overflow),
        // A reason of a later version: `applied` says enough.
        _ => None,
    }
}

/// Why one operation of several could not be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure<'a> {
    /// A gRPC status code.
    pub code: u32,
    /// For humans.
    pub message: &'a str,
}

impl<'a> Failure<'a> {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::uint64(out, 1, u64::from(self.code));
        writer::bytes(out, 2, self.message.as_bytes());
    }

    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<Failure<'a>, Invalid> {
        let mut failure = Failure::default();
        failure.merge(message)?;
        Ok(failure)
    }

    fn merge(&mut self, message: &'a [u8]) -> Result<(), Invalid> {
        decode_fields(message, &["", "code", "message"], |number, value| {
            match number {
                1 => self.code = value.uint32()?,
                2 => self.message = value.string()?,
                _ => {}
            }
            Ok(())
        })
    }
}

/// The outcome of one operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the messages")]
pub enum OperationResult<'a> {
    Get(GetResponse<'a>),
    Put(PutResponse<'a>),
    Delete(DeleteResponse<'a>),
    Append(AppendResponse),
    Increment(IncrementResponse),
    /// The operation would have ended its call with an error, had it been alone.
    Failure(Failure<'a>),
}

impl<'a> OperationResult<'a> {
    /// The field of the result of a Get.
    pub(super) const GET_FIELD: u32 = 1;

    /// Appends the response as it stands alone.
    #[inline]
    pub fn encode_alone(&self, out: &mut Vec<u8>) {
        match self {
            OperationResult::Get(response) => response.encode(out),
            OperationResult::Put(response) => response.encode(out),
            OperationResult::Delete(response) => response.encode(out),
            OperationResult::Append(response) => response.encode(out),
            OperationResult::Increment(response) => response.encode(out),
            OperationResult::Failure(failure) => failure.encode(out),
        }
    }

    /// Appends the inside of the message `OperationResult`.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let field = match self {
            OperationResult::Get(_) => OperationResult::GET_FIELD,
            OperationResult::Put(_) => 2,
            OperationResult::Delete(_) => 3,
            OperationResult::Append(_) => 4,
            OperationResult::Increment(_) => 5,
            OperationResult::Failure(_) => 15,
        };
        writer::message(out, field, |out| self.encode_alone(out));
    }

    /// Decodes the message `OperationResult`; `None` if nothing that this version knows is set.
    pub fn decode(message: &'a [u8]) -> Result<Option<OperationResult<'a>>, Invalid> {
        let mut result = None;
        decode_parts(message, NAMES, |number, value| {
            if let Some(&name) = NAMES.get(number as usize).filter(|name| !name.is_empty()) {
                result = Some(OperationResult::merged(result, number, part(value, name)?)?);
            }
            Ok(())
        })?;
        Ok(result)
    }

    /// `earlier` with one more member of the oneof: merged if it is the same one, else replaced.
    fn merged(
        earlier: Option<OperationResult<'a>>,
        number: u32,
        body: &'a [u8],
    ) -> Result<OperationResult<'a>, Invalid> {
        use OperationResult as R;
        let mut result = match (number, earlier) {
            (1, Some(same @ R::Get(_)))
            | (2, Some(same @ R::Put(_)))
            | (3, Some(same @ R::Delete(_)))
            | (4, Some(same @ R::Append(_)))
            | (5, Some(same @ R::Increment(_)))
            | (15, Some(same @ R::Failure(_))) => same,
            (1, _) => R::Get(GetResponse::default()),
            (2, _) => R::Put(PutResponse::default()),
            (3, _) => R::Delete(DeleteResponse::default()),
            (4, _) => R::Append(AppendResponse::default()),
            (5, _) => R::Increment(IncrementResponse::default()),
            _ => R::Failure(Failure::default()),
        };
        match &mut result {
            R::Get(response) => response.merge(body)?,
            R::Put(response) => response.merge(body)?,
            R::Delete(response) => response.merge(body)?,
            R::Append(response) => response.merge(body)?,
            R::Increment(response) => response.merge(body)?,
            R::Failure(failure) => failure.merge(body)?,
        }
        Ok(result)
    }
}

/// Names of the fields of `OperationResult`.
const NAMES: &[&str] = &[
    "",
    "get",
    "put",
    "delete",
    "append",
    "increment",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "failure",
];
