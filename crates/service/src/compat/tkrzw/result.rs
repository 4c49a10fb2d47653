//! What came of a request: the code and the words in the field `status` of its response.

use api::tkrzw::StatusProto;
use protobuf::writer;

/// The number of the field `status` in every response.
const STATUS_FIELD: u32 = 1;

/// What came of a request, by the number that the original gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ResultCode {
    /// It was done.
    Success = 0,
    /// The system refused.
    System = 2,
    /// The database has no order, or this server has no such thing.
    NotImplemented = 3,
    /// The database can only be read, or has no file.
    Precondition = 4,
    /// A search mode, a pattern or a parameter that there is not.
    InvalidArgument = 5,
    /// There is no such record.
    NotFound = 7,
    /// The condition is not met.
    Infeasible = 9,
    /// There is such a record already.
    Duplication = 10,
}

/// A code and what is said about it; nothing about most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestResult {
    pub(super) code: ResultCode,
    pub(super) words: &'static str,
}

impl RequestResult {
    /// It was done.
    pub(super) const SUCCESS: RequestResult = RequestResult::from_code(ResultCode::Success);

    /// There is no such record.
    pub(super) const NOT_FOUND: RequestResult = RequestResult::from_code(ResultCode::NotFound);

    /// The condition is not met.
    pub(super) const INFEASIBLE: RequestResult = RequestResult::from_code(ResultCode::Infeasible);

    /// There is such a record already.
    pub(super) const DUPLICATION: RequestResult = RequestResult::from_code(ResultCode::Duplication);

    /// Nothing may be written.
    pub(super) const READ_ONLY: RequestResult = RequestResult {
        code: ResultCode::Precondition,
        words: "the server was started with --read_only",
    };

    /// The class of the database has no order.
    pub(super) const UNORDERED: RequestResult = RequestResult {
        code: ResultCode::NotImplemented,
        words: "the records of this class of databases have no order",
    };

    const fn from_code(code: ResultCode) -> RequestResult {
        RequestResult { code, words: "" }
    }

    pub(super) const fn is_success(self) -> bool {
        matches!(self.code, ResultCode::Success)
    }

    /// Returns the message of the field `status`.
    pub(super) fn proto(self) -> StatusProto<'static> {
        StatusProto {
            code: i32::from(self.code as u8),
            message: self.words,
        }
    }

    /// Appends the field `status`, which is there even if it says nothing, as in the original.
    #[inline]
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        writer::message(out, STATUS_FIELD, |out| self.proto().encode(out));
    }
}
