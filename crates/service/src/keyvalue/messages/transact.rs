//! Transact: comparisons, and two lists of operations.

use store::{Condition, Operation};

use super::batch::repeated;
use super::operation::decode_operation;
use super::{BatchResponse, Invalid, OperationKind, decode_fields, encode_operation};
use protobuf::writer;

/// A request to compare and then apply one of two lists. Its parts are decoded as they are walked.
#[derive(Clone, Copy, Debug)]
pub struct TransactRequest<'a> {
    /// Name of the database, empty for the default.
    pub database: &'a str,
    /// 0: the default.
    pub max_answer_bytes: u64,
    /// How many comparisons and operations there are, those of both lists together.
    pub part_count: usize,
    message: &'a [u8],
}

/// Names of the fields.
const NAMES: &[&str] = &[
    "",
    "database",
    "comparisons",
    "when_met",
    "when_unmet",
    "max_answer_bytes",
];

impl<'a> TransactRequest<'a> {
    /// Decodes all but comparisons and operations.
    pub fn decode(message: &'a [u8]) -> Result<TransactRequest<'a>, Invalid> {
        let mut request = TransactRequest {
            database: "",
            max_answer_bytes: 0,
            part_count: 0,
            message,
        };
        let mut refused = None;
        decode_fields(message, NAMES, |number, value| {
            match number {
                1 => request.database = value.string()?,
                2..=4 => {
                    value.bytes()?;
                    request.part_count += 1;
                }
                5 => request.max_answer_bytes = value.varint()?,
                _ => refused = Invalid::not_served(number).or(refused),
            }
            Ok(())
        })?;
        refused.map_or(Ok(request), Err)
    }

    /// The comparisons, in order, each an [`Operation::Compare`].
    pub fn comparisons(&self) -> impl Iterator<Item = Result<Operation<'a>, Invalid>> + use<'a> {
        repeated(self.message, 2, "comparisons")
            .map(|comparison| comparison.and_then(decode_comparison))
    }

    /// The operations for when all comparisons are met, in order.
    pub fn when_met(
        &self,
    ) -> impl Iterator<Item = Result<(OperationKind, Operation<'a>), Invalid>> + use<'a> {
        repeated(self.message, 3, "when_met").map(|operation| operation.and_then(decode_operation))
    }

    /// The operations for when one is not, in order.
    pub fn when_unmet(
        &self,
    ) -> impl Iterator<Item = Result<(OperationKind, Operation<'a>), Invalid>> + use<'a> {
        repeated(self.message, 4, "when_unmet")
            .map(|operation| operation.and_then(decode_operation))
    }

    /// Appends a request. Each of `comparisons` is a key and what must hold for it.
    ///
    /// # Panics
    ///
    /// For operations that the API does not have, and for [`Condition::None`].
    pub fn encode(
        out: &mut Vec<u8>,
        database: &str,
        max_answer_bytes: u64,
        comparisons: &[(&[u8], Condition<'_>)],
        when_met: &[Operation<'_>],
        when_unmet: &[Operation<'_>],
    ) {
        writer::bytes(out, 1, database.as_bytes());
        for &(key, condition) in comparisons {
            writer::message(out, 2, |out| encode_comparison(key, condition, out));
        }
        for operation in when_met {
            writer::message(out, 3, |out| encode_operation(operation, out));
        }
        for operation in when_unmet {
            writer::message(out, 4, |out| encode_operation(operation, out));
        }
        writer::uint64(out, 5, max_answer_bytes);
    }
}

fn decode_comparison(message: &[u8]) -> Result<Operation<'_>, Invalid> {
    let (mut key, mut condition) = (&[][..], Condition::None);
    decode_fields(
        message,
        &["", "key", "version", "exists", "value"],
        |number, value| {
            match number {
                1 => key = value.bytes()?,
                2 => condition = Condition::VersionIs(value.varint()?),
                3 if value.bool()? => condition = Condition::Present,
                3 => condition = Condition::Absent,
                4 => condition = Condition::ValueIs(value.bytes()?),
                _ => {}
            }
            Ok(())
        },
    )?;
    if condition == Condition::None {
        return Err(Invalid::rule(
            "condition",
            "is not set: choose one of version, exists, value",
        ));
    }
    Ok(Operation::Compare { key, condition })
}

#[expect(
    clippy::panic,
    reason = "for clients, whose comparisons were read with a condition"
)]
fn encode_comparison(key: &[u8], condition: Condition<'_>, out: &mut Vec<u8>) {
    writer::bytes(out, 1, key);
    match condition {
        Condition::None => panic!("a comparison compares with something"),
        Condition::VersionIs(version) => writer::uint64_always(out, 2, version),
        Condition::Absent => writer::uint64_always(out, 3, 0),
        Condition::Present => writer::uint64_always(out, 3, 1),
        Condition::ValueIs(value) => writer::bytes_always(out, 4, value),
    }
}

/// The answer to a Transact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactResponse<'a> {
    /// Whether all comparisons were met.
    pub met: bool,
    /// If not: which was the first that was not.
    pub unmet_comparison: u32,
    /// What became of the chosen list.
    pub batch: BatchResponse<'a>,
}

impl<'a> TransactResponse<'a> {
    /// Decodes all but the results.
    pub fn decode(message: &'a [u8]) -> Result<TransactResponse<'a>, Invalid> {
        let mut response = TransactResponse::default();
        let mut batch = &[][..];
        decode_fields(
            message,
            &["", "met", "unmet_comparison", "batch"],
            |number, value| {
                match number {
                    1 => response.met = value.bool()?,
                    2 => response.unmet_comparison = value.uint32()?,
                    3 => batch = value.bytes()?,
                    _ => {}
                }
                Ok(())
            },
        )?;
        response.batch = BatchResponse::decode(batch)?;
        Ok(response)
    }

    /// Appends the answer; `encode_batch` appends the inside of its batch. `unmet_comparison` is
    /// `None` if all were met.
    pub fn encode(
        out: &mut Vec<u8>,
        unmet_comparison: Option<u32>,
        encode_batch: impl FnOnce(&mut Vec<u8>),
    ) {
        writer::bool(out, 1, unmet_comparison.is_none());
        writer::uint64(out, 2, u64::from(unmet_comparison.unwrap_or(0)));
        writer::message(out, 3, encode_batch);
    }
}
