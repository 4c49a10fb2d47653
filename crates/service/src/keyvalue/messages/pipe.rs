//! Pipe: a stream of batches, and the stream of their answers.

use store::{Mode, Operation};

use super::{BatchRequest, BatchResponse, Failure, Invalid, Rule, decode_fields};
use protobuf::{Fault, Reader, Value, writer};

/// Which batches are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PipeAnswers {
    /// Each, with all its results.
    #[default]
    All = 1,
    /// Those in which something failed; now and then an answer says up to where all is done.
    FailuresOnly = 2,
}

/// One message of a Pipe: a batch, or, if it has no operations, the question up to where all is
/// done.
#[derive(Clone, Copy, Debug)]
pub struct PipeRequest<'a> {
    /// Its fields have the same numbers as those of a Batch.
    pub batch: BatchRequest<'a>,
    /// Counts only in the first message.
    pub answers: PipeAnswers,
}

impl<'a> PipeRequest<'a> {
    /// Decodes all but the operations. For messages after the first one [`BatchRequest::decode`] is
    /// enough.
    pub fn decode(message: &'a [u8]) -> Result<PipeRequest<'a>, Invalid> {
        let batch = BatchRequest::decode(message)?;
        let mut answers = 0;
        decode_fields(
            message,
            &["", "", "", "", "", "answers"],
            |number, value| {
                if number == 5 {
                    answers = value.int32()?;
                }
                Ok(())
            },
        )?;
        let answers = match answers {
            0 | 1 => PipeAnswers::All,
            2 => PipeAnswers::FailuresOnly,
            _ => {
                return Err(Invalid::rule(
                    "answers",
                    "is not a PipeAnswers that this server knows",
                ));
            }
        };
        Ok(PipeRequest { batch, answers })
    }

    /// Appends one message of a Pipe; `answers` matters in the first one.
    pub fn encode<'o>(
        out: &mut Vec<u8>,
        database: &str,
        answers: PipeAnswers,
        mode: Mode,
        max_answer_bytes: u64,
        operations: impl IntoIterator<Item = &'o Operation<'o>>,
    ) {
        BatchRequest::encode(out, database, mode, max_answer_bytes, operations);
        writer::uint64(out, 5, answers as u64);
    }
}

/// One answer of a Pipe. Results and their indexes are decoded as they are walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeResponse<'a> {
    /// So many batches, from the first on, are done.
    pub done: u64,
    /// The number of the batch that this is about, counted from 1; 0: about none.
    pub batch_number: u64,
    /// Its outcome.
    pub batch: Option<BatchResponse<'a>>,
    /// Why it was refused as a whole.
    pub failure: Option<Failure<'a>>,
    message: &'a [u8],
}

/// Names of the fields of the answer.
const NAMES: &[&str] = &[
    "",
    "done",
    "batch_number",
    "batch",
    "result_indexes",
    "failure",
];

impl<'a> PipeResponse<'a> {
    /// Decodes all but the results and their indexes.
    pub fn decode(message: &'a [u8]) -> Result<PipeResponse<'a>, Invalid> {
        let mut response = PipeResponse {
            message,
            ..PipeResponse::default()
        };
        let (mut batch, mut failure) = (None, None);
        decode_fields(message, NAMES, |number, value| {
            match number {
                1 => response.done = value.varint()?,
                2 => response.batch_number = value.varint()?,
                3 => batch = Some(value.bytes()?),
                4 => drop(unpacked(value)?),
                5 => failure = Some(value.bytes()?),
                _ => {}
            }
            Ok(())
        })?;
        response.batch = batch.map(BatchResponse::decode).transpose()?;
        response.failure = failure.map(Failure::decode).transpose()?;
        Ok(response)
    }

    /// The index of the operation of each result, if only those are listed that failed.
    pub fn result_indexes(&self) -> Result<Vec<u32>, Invalid> {
        let mut indexes = Vec::new();
        let visit = |number, value| {
            if number == 4 {
                indexes.extend(unpacked(value)?);
            }
            Ok(())
        };
        decode_fields(self.message, NAMES, visit)?;
        Ok(indexes)
    }

    /// Appends an answer that only says how much is done.
    pub fn encode_done(out: &mut Vec<u8>, done: u64) {
        writer::uint64(out, 1, done);
    }

    /// Appends the answer to the batch `done`, which is the last that is done; `encode_batch`
    /// appends the inside of its outcome.
    pub fn encode_batch(out: &mut Vec<u8>, done: u64, encode_batch: impl FnOnce(&mut Vec<u8>)) {
        PipeResponse::encode_head(out, done);
        writer::message(out, 3, encode_batch);
    }

    /// Appends to an answer which operations its results belong to.
    pub fn encode_result_indexes(out: &mut Vec<u8>, indexes: impl Iterator<Item = u32>) {
        // A repeated number is packed: all in one field, without tags between.
        writer::message(out, 4, |out| {
            indexes.for_each(|index| writer::varint(out, u64::from(index)));
        });
    }

    /// Appends the answer to the batch `done`, which was refused as a whole.
    pub fn encode_failure(out: &mut Vec<u8>, done: u64, failure: &Failure<'_>) {
        PipeResponse::encode_head(out, done);
        writer::message(out, 5, |out| failure.encode(out));
    }

    fn encode_head(out: &mut Vec<u8>, done: u64) {
        writer::uint64(out, 1, done);
        writer::uint64(out, 2, done);
    }
}

/// The numbers of a repeated field: packed, or one by itself, as a decoder must accept both.
fn unpacked(value: Value<'_>) -> Result<Vec<u32>, Fault> {
    match value {
        Value::Bytes(packed) => {
            let mut reader = Reader::new(packed);
            let mut numbers = Vec::new();
            while let Some(number) = reader.next_packed()? {
                numbers.push(number as u32);
            }
            Ok(numbers)
        }
        alone => Ok(vec![alone.uint32()?]),
    }
}

/// Whether what is wrong with a message concerns only its batch: the Pipe can go on after it.
pub(crate) fn concerns_only_its_batch(invalid: &Invalid) -> bool {
    matches!((invalid.field, invalid.rule), ("mode", Rule::Broken(_)))
}
