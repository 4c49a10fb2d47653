//! Batch: several operations in one request.

use store::{Mode, Operation};

use super::operation::decode_operation;
use super::{
    GetResponse, Invalid, OperationKind, OperationResult, ResumePoint, Rule, decode_fields,
    decode_history_id, encode_history_id, encode_operation,
};
use protobuf::{Reader, Value, writer};

/// A request of several operations. Its operations are decoded as they are walked.
#[derive(Clone, Copy, Debug)]
pub struct BatchRequest<'a> {
    /// Name of the database, empty for the default.
    pub database: &'a str,
    /// How the operations belong together.
    pub mode: Mode,
    /// 0: the default.
    pub max_answer_bytes: u64,
    /// How many operations there are.
    pub operation_count: usize,
    /// Whether there is one among them that writes.
    pub writes: bool,
    message: &'a [u8],
}

impl<'a> BatchRequest<'a> {
    /// Decodes all but the operations, of which only the kind is looked at.
    pub fn decode(message: &'a [u8]) -> Result<BatchRequest<'a>, Invalid> {
        let mut request = BatchRequest {
            database: "",
            mode: Mode::Atomic,
            max_answer_bytes: 0,
            operation_count: 0,
            writes: false,
            message,
        };
        let (mut mode, mut refused) = (0, None);
        decode_fields(
            message,
            &["", "database", "mode", "operations", "max_answer_bytes"],
            |number, value| {
                match number {
                    1 => request.database = value.string()?,
                    2 => mode = value.int32()?,
                    3 => {
                        request.operation_count += 1;
                        request.writes |= may_write(value.bytes()?);
                    }
                    4 => request.max_answer_bytes = value.varint()?,
                    _ => refused = Invalid::not_served(number).or(refused),
                }
                Ok(())
            },
        )?;
        if let Some(refused) = refused {
            return Err(refused);
        }
        request.mode = decode_mode(mode)?;
        Ok(request)
    }

    /// The operations, in order.
    pub fn operations(
        &self,
    ) -> impl Iterator<Item = Result<(OperationKind, Operation<'a>), Invalid>> + use<'a> {
        repeated(self.message, 3, "operations")
            .map(|operation| operation.and_then(decode_operation))
    }

    /// Appends a request with `operations`.
    pub fn encode<'o>(
        out: &mut Vec<u8>,
        database: &str,
        mode: Mode,
        max_answer_bytes: u64,
        operations: impl IntoIterator<Item = &'o Operation<'o>>,
    ) {
        writer::bytes(out, 1, database.as_bytes());
        writer::uint64(out, 2, if mode == Mode::Independent { 2 } else { 1 });
        writer::uint64(out, 4, max_answer_bytes);
        for operation in operations {
            writer::message(out, 3, |out| encode_operation(operation, out));
        }
    }
}

/// Whether the message `Operation` may be anything but a Get. To be wrong for a strange or broken
/// one does no harm: the committer serves Gets too, and what is broken is refused either way.
#[inline]
fn may_write(operation: &[u8]) -> bool {
    let mut reader = Reader::new(operation);
    let first = reader.next_field();
    !(matches!(first, Ok(Some((1, _)))) && reader.is_at_end())
}

fn decode_mode(number: i32) -> Result<Mode, Invalid> {
    match number {
        0 | 1 => Ok(Mode::Atomic),
        2 => Ok(Mode::Independent),
        _ => Err(Invalid::rule(
            "mode",
            "is not a BatchMode that this server knows",
        )),
    }
}

/// The embedded messages of the repeated field `wanted`, which is called `name`.
pub(crate) fn repeated<'a>(
    message: &'a [u8],
    wanted: u32,
    name: &'static str,
) -> impl Iterator<Item = Result<&'a [u8], Invalid>> + use<'a> {
    let mut reader = Reader::new(message);
    std::iter::from_fn(move || {
        loop {
            let (number, value): (u32, Value<'a>) = match reader.next_field() {
                Ok(field) => field?,
                Err(error) => {
                    return Some(Err(Invalid {
                        field: name,
                        rule: Rule::Malformed(error.fault),
                    }));
                }
            };
            if number == wanted {
                return Some(value.bytes().map_err(|fault| Invalid {
                    field: name,
                    rule: Rule::Malformed(fault),
                }));
            }
        }
    })
}

/// The answer to a Batch. Its results are decoded as they are walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchResponse<'a> {
    /// Whether the batch took effect.
    pub applied: bool,
    /// Its commit, or the view it was read from.
    pub point: ResumePoint,
    /// If not applied: which operation failed first.
    pub failed_operation: u32,
    /// If not applied: how it failed.
    pub failed_result: Option<OperationResult<'a>>,
    message: &'a [u8],
}

impl<'a> BatchResponse<'a> {
    /// Decodes all but the results.
    pub fn decode(message: &'a [u8]) -> Result<BatchResponse<'a>, Invalid> {
        let mut response = BatchResponse {
            message,
            ..BatchResponse::default()
        };
        let mut failed = None;
        let names = &[
            "",
            "applied",
            "sequence",
            "results",
            "failed_operation",
            "failed_result",
            "history_id",
        ];
        decode_fields(message, names, |number, value| {
            match number {
                1 => response.applied = value.bool()?,
                2 => response.point.sequence = value.varint()?,
                3 => drop(value.bytes()?),
                4 => response.failed_operation = value.uint32()?,
                5 => failed = Some(value.bytes()?),
                6 => response.point.history_id = decode_history_id(value)?,
                _ => {}
            }
            Ok(())
        })?;
        if let Some(failed) = failed {
            response.failed_result = OperationResult::decode(failed)?;
        }
        Ok(response)
    }

    /// The results, in order; `None` for one of a kind that this version does not know.
    pub fn results(
        &self,
    ) -> impl Iterator<Item = Result<Option<OperationResult<'a>>, Invalid>> + use<'a> {
        repeated(self.message, 3, "results").map(|result| result.and_then(OperationResult::decode))
    }

    /// Appends the answer to a batch that took effect.
    pub fn encode_applied<'r>(
        out: &mut Vec<u8>,
        point: ResumePoint,
        results: impl IntoIterator<Item = OperationResult<'r>>,
    ) {
        writer::bool(out, 1, true);
        writer::uint64(out, 2, point.sequence);
        encode_history_id(out, 6, point.history_id);
        for result in results {
            BatchResponse::encode_result(out, &result);
        }
    }

    /// Appends one result.
    #[inline]
    pub fn encode_result(out: &mut Vec<u8>, result: &OperationResult<'_>) {
        writer::message(out, 3, |out| result.encode(out));
    }

    /// Appends the result of a Get without the `value_bytes` bytes of its value, which must follow.
    pub fn encode_get_head(out: &mut Vec<u8>, response: &GetResponse<'_>, value_bytes: usize) {
        let mut head = Vec::new();
        response.encode_head(&mut head, value_bytes);
        let get_bytes = head.len() + value_bytes;
        let result_bytes = writer::bytes_len(OperationResult::GET_FIELD, get_bytes);
        writer::bytes_head(out, 3, result_bytes);
        writer::bytes_head(out, OperationResult::GET_FIELD, get_bytes);
        out.extend_from_slice(&head);
    }

    /// Appends the answer to a batch whose operation `index` failed.
    pub fn encode_failed(
        out: &mut Vec<u8>,
        point: ResumePoint,
        index: u32,
        result: &OperationResult<'_>,
    ) {
        writer::uint64(out, 2, point.sequence);
        encode_history_id(out, 6, point.history_id);
        writer::uint64(out, 4, u64::from(index));
        writer::message(out, 5, |out| result.encode(out));
    }
}
