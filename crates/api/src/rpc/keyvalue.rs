//! The methods of `pelton.v1.KeyValue`.

use protobuf::DecodeError;

use super::{Repetition, harmless, may_repeat};
use crate::keyvalue::{
    AppendRequest, AppendResponse, BatchRequest, BatchResponse, Condition, CountRequest,
    CountResponse, DeleteRequest, DeleteResponse, GetRequest, GetResponse, IncrementRequest,
    IncrementResponse, Operation, OperationBody, PipeRequest, PipeResponse, PutRequest,
    PutResponse, ScanPage, ScanRequest, TransactRequest, TransactResponse, WatchRequest,
    WatchResponse,
};

super::rpcs! {
    Get<'a> crate::keyvalue::GET: GetRequest<'a> => GetResponse<'a>, harmless;
    Put<'a> crate::keyvalue::PUT: PutRequest<'a> => PutResponse<'a>,
        |put: &PutRequest<'_>| on(put.condition);
    Delete<'a> crate::keyvalue::DELETE: DeleteRequest<'a> => DeleteResponse<'a>,
        |delete: &DeleteRequest<'_>| on(delete.condition);
    Append<'a> crate::keyvalue::APPEND: AppendRequest<'a> => AppendResponse,
        |append: &AppendRequest<'_>| on(append.condition);
    Increment<'a> crate::keyvalue::INCREMENT: IncrementRequest<'a> => IncrementResponse,
        |increment: &IncrementRequest<'_>| on(increment.condition);
    Batch<'a> crate::keyvalue::BATCH: BatchRequest<'a> => BatchResponse<'a>,
        |batch: &BatchRequest<'_>| of_all(batch.operations.iter());
    Transact<'a> crate::keyvalue::TRANSACT: TransactRequest<'a> => TransactResponse<'a>,
        |transaction: &TransactRequest<'_>| {
            of_all(transaction.when_met.iter().chain(transaction.when_unmet.iter()))
        };
    Scan<'a> crate::keyvalue::SCAN: ScanRequest<'a> => ScanPage<'a>, harmless;
    Count<'a> crate::keyvalue::COUNT: CountRequest<'a> => CountResponse<'a>, harmless;
    Pipe<'a> crate::keyvalue::PIPE: PipeRequest<'a> => PipeResponse<'a>, may_repeat;
    Watch<'a> crate::keyvalue::WATCH: WatchRequest<'a> => WatchResponse<'a>, harmless;
}

/// Returns what a write on this condition does when it is made again. A condition on absence or on
/// a value does not hold it back: others may have restored in between what it asks for.
fn on(condition: Option<Condition<'_>>) -> Repetition {
    match condition {
        Some(Condition::IfVersion(1..)) => Repetition::AtMostOnce,
        _ => Repetition::MayRepeat,
    }
}

/// Returns what these operations do when all are made again.
fn of_all<'a>(
    mut operations: impl Iterator<Item = Result<Operation<'a>, DecodeError>>,
) -> Repetition {
    let is_read = |operation: Result<Operation<'_>, DecodeError>| {
        let body = operation.ok().and_then(|operation| operation.operation);
        matches!(body, Some(OperationBody::Get(_)))
    };
    match operations.all(is_read) {
        true => Repetition::Harmless,
        false => Repetition::MayRepeat,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyvalue::{GetOperation, PutOperation};
    use crate::rpc::Rpc;

    #[test]
    fn only_a_version_that_existed_keeps_a_write_from_being_repeated() {
        for (condition, expected) in [
            (None, Repetition::MayRepeat),
            (Some(Condition::IfVersion(7)), Repetition::AtMostOnce),
            (Some(Condition::IfVersion(0)), Repetition::MayRepeat),
            (Some(Condition::IfExists(false)), Repetition::MayRepeat),
            (Some(Condition::IfExists(true)), Repetition::MayRepeat),
            (Some(Condition::IfValue(b"v")), Repetition::MayRepeat),
        ] {
            let put = PutRequest {
                condition,
                ..PutRequest::default()
            };
            assert_eq!(Put::repetition(&put), expected, "{condition:?}");
            let delete = DeleteRequest {
                condition,
                ..DeleteRequest::default()
            };
            assert_eq!(Delete::repetition(&delete), expected, "{condition:?}");
        }
    }

    #[test]
    fn operations_are_harmless_to_repeat_if_all_of_them_read() {
        let get = Operation::from(OperationBody::Get(GetOperation::default()));
        let put = Operation::from(OperationBody::Put(PutOperation::default()));
        for (operations, expected) in [
            (&[][..], Repetition::Harmless),
            (&[get, get], Repetition::Harmless),
            (&[get, put], Repetition::MayRepeat),
            // The server refuses it; what it would do is not known here.
            (&[Operation::default()], Repetition::MayRepeat),
        ] {
            let batch = BatchRequest {
                operations: operations.into(),
                ..BatchRequest::default()
            };
            assert_eq!(Batch::repetition(&batch), expected);
            let transaction = TransactRequest {
                when_unmet: operations.into(),
                ..TransactRequest::default()
            };
            assert_eq!(Transact::repetition(&transaction), expected);
        }
    }
}
