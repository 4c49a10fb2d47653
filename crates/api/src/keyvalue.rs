//! `pelton.v1.KeyValue`: `proto/pelton/v1/kv.proto`.

crate::method::methods! {
    /// Reads the value of one key.
    GET Unary "pelton.v1.KeyValue/Get";
    /// Writes the value of one key, always or on a condition.
    PUT Unary "pelton.v1.KeyValue/Put";
    /// Removes one key, always or on a condition.
    DELETE Unary "pelton.v1.KeyValue/Delete";
    /// Appends bytes to the value of one key; a missing key counts as an empty value.
    APPEND Unary "pelton.v1.KeyValue/Append";
    /// Adds to a number; a missing key counts as 0, or as the request says.
    INCREMENT Unary "pelton.v1.KeyValue/Increment";
    /// Several operations in one request. Without a write among them all are answered from one
    /// view of the database.
    BATCH Unary "pelton.v1.KeyValue/Batch";
    /// Compares several keys and then applies one of two lists of operations, all as one atomic
    /// step.
    TRANSACT Unary "pelton.v1.KeyValue/Transact";
    /// Reads a range of keys in order, as a stream of pages.
    SCAN ServerStreaming "pelton.v1.KeyValue/Scan";
    /// Counts the keys of a range.
    COUNT Unary "pelton.v1.KeyValue/Count";
    /// A stream of batches: they take effect in the order in which they are sent, each sees those
    /// before it, and they are answered in the same order. The fastest way to write a great deal.
    PIPE Bidirectional "pelton.v1.KeyValue/Pipe";
    /// Reports the changes in a range of keys, from now on or from an earlier point on.
    WATCH ServerStreaming "pelton.v1.KeyValue/Watch";
}

/// Which of the operations; its number is that of its field in [`Operation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OperationKind {
    /// Reads a key.
    Get = 1,
    /// Writes a key.
    Put = 2,
    /// Removes a key.
    Delete = 3,
    /// Appends to the value of a key.
    Append = 4,
    /// Adds to the number of a key.
    Increment = 5,
}

impl OperationBody<'_> {
    /// Returns which operation it is.
    #[inline(always)]
    pub fn kind(&self) -> OperationKind {
        match self {
            OperationBody::Get(_) => OperationKind::Get,
            OperationBody::Put(_) => OperationKind::Put,
            OperationBody::Delete(_) => OperationKind::Delete,
            OperationBody::Append(_) => OperationKind::Append,
            OperationBody::Increment(_) => OperationKind::Increment,
        }
    }
}

/// Makes of a request the operation of the same name, which has all its fields but the database.
macro_rules! operations_of_requests {
    ($($request:ident => $operation:ident { $($field:ident),* })*) => { $(
        impl<'a> From<$request<'a>> for $operation<'a> {
            #[inline(always)]
            fn from(request: $request<'a>) -> $operation<'a> {
                $operation { $($field: request.$field),* }
            }
        }
    )* };
}

operations_of_requests! {
    GetRequest => GetOperation { key, unserved }
    PutRequest => PutOperation { key, value, return_previous, condition, expiry, unserved }
    DeleteRequest => DeleteOperation { key, return_previous, condition, unserved }
    AppendRequest => AppendOperation { key, value, condition, unserved }
    IncrementRequest => IncrementOperation { key, delta, initial, condition, unserved }
}

impl<'a> From<OperationBody<'a>> for Operation<'a> {
    #[inline(always)]
    fn from(body: OperationBody<'a>) -> Operation<'a> {
        Operation {
            operation: Some(body),
        }
    }
}

impl<'a> From<ResultBody<'a>> for OperationResult<'a> {
    #[inline(always)]
    fn from(body: ResultBody<'a>) -> OperationResult<'a> {
        OperationResult { result: Some(body) }
    }
}

protobuf::enumeration! {
    /// The enum `IncrementRefusal`.
    pub enum IncrementRefusal = "pelton.v1.IncrementRefusal" {
        /// Not refused.
        Unspecified = 0,
        /// The condition was not met.
        Condition = 1,
        /// The value is not 8 bytes long.
        NotANumber = 2,
        /// The sum does not fit into 64 bits with sign.
        Overflow = 3,
    }

    /// The enum `BatchMode`.
    pub enum BatchMode = "pelton.v1.BatchMode" {
        /// The same as ATOMIC.
        Unspecified = 0,
        /// All or nothing, as one commit: if one operation fails, none takes effect. An operation
        /// fails if its condition is not met, if an increment is refused, or if it ends in a
        /// Failure. A Get that finds nothing and an unconditional Delete of a missing key do not
        /// fail.
        Atomic = 1,
        /// Each operation for itself, in order; one that fails does not hinder the others.
        Independent = 2,
    }

    /// The enum `Direction`.
    pub enum Direction = "pelton.v1.Direction" {
        /// The same as FORWARD.
        Unspecified = 0,
        /// From the smallest key up.
        Forward = 1,
        /// From the largest key down.
        Backward = 2,
    }

    /// The enum `CountPrecision`.
    pub enum CountPrecision = "pelton.v1.CountPrecision" {
        /// The same as EXACT.
        Unspecified = 0,
        /// Each key is counted, however long it takes.
        Exact = 1,
        /// An estimate will do where an exact number takes long (databases on disk).
        Estimate = 2,
    }

    /// The enum `PipeAnswers`.
    pub enum PipeAnswers = "pelton.v1.PipeAnswers" {
        /// The same as ALL.
        Unspecified = 0,
        /// Each batch gets an answer with all its results.
        All = 1,
        /// Batches and operations that went well are left out, and with them what they read.
        /// Answers come for batches in which something failed, and otherwise, to say up to where
        /// all is done, after every 64 batches, 100 ms after a batch that no answer has covered,
        /// when asked, and at the end.
        FailuresOnly = 2,
    }

    /// The enum `WatchResponse.ChangeKind`.
    pub enum ChangeKind = "pelton.v1.WatchResponse.ChangeKind" {
        /// Not set.
        Unspecified = 0,
        /// The key was written.
        Set = 1,
        /// The key was deleted by a request.
        Delete = 2,
        /// The key was removed because its time had come.
        Expire = 3,
        /// All keys of the database were removed at once; there is no entry.
        Clear = 4,
    }
}

protobuf::oneof! {
    /// At most one. None: write in any case.
    pub enum Condition<'a> {
        /// Write only if the key has this version; 0 = only if it is absent.
        4 IfVersion(if_version): uint64,
        /// true: only if the key exists; false: only if it does not.
        5 IfExists(if_exists): bool,
        /// Only if the key exists with exactly this value.
        6 IfValue(if_value): bytes,
    }

    /// When the entry expires. None: never, even if the old entry would have.
    pub enum Expiry {
        /// This long after the commit. INVALID_ARGUMENT if 0 or above 3 153 600 000 000 (100
        /// years).
        8 TimeToLiveMs(time_to_live_ms): uint64,
        /// As it was: a key that exists keeps its expiry, a new one has none. INVALID_ARGUMENT if
        /// false.
        9 KeepTimeToLive(keep_time_to_live): bool,
    }

    /// One of the fields of `operation`.
    pub enum OperationBody<'a> {
        /// The field `get`.
        1 Get(get): message GetOperation<'a>,
        /// The field `put`.
        2 Put(put): message PutOperation<'a>,
        /// The field `delete`.
        3 Delete(delete): message DeleteOperation<'a>,
        /// The field `append`.
        4 Append(append): message AppendOperation<'a>,
        /// The field `increment`.
        5 Increment(increment): message IncrementOperation<'a>,
    }

    /// One of the fields of `result`.
    pub enum ResultBody<'a> {
        /// The field `get`.
        1 Get(get): message GetResponse<'a>,
        /// The field `put`.
        2 Put(put): message PutResponse<'a>,
        /// The field `delete`.
        3 Delete(delete): message DeleteResponse<'a>,
        /// The field `append`.
        4 Append(append): message AppendResponse,
        /// The field `increment`.
        5 Increment(increment): message IncrementResponse,
        /// The operation would have ended its call with an error, had it been alone.
        15 Failure(failure): message Failure<'a>,
    }

    /// INVALID_ARGUMENT if none is set.
    pub enum Comparand<'a> {
        /// The key has this version; 0 = it is absent.
        2 Version(version): uint64,
        /// true: the key exists; false: it does not.
        3 Exists(exists): bool,
        /// The key exists with exactly this value.
        4 Value(value): bytes,
    }

    /// Which keys. None: all of the database.
    pub enum Keys<'a> {
        /// The field `range`.
        2 Range(range): message KeyRange<'a>,
        /// All keys that begin with these bytes.
        3 Prefix(prefix): bytes,
    }
}

protobuf::message! {
    /// A key with its value, as it is or was stored.
    pub struct Entry<'a> = "pelton.v1.Entry" {
        /// At most 65 535 bytes. Left out where the request named the key.
        1 key: bytes,
        /// Names this state of the entry: the sequence of the commit that last wrote it. Never 0.
        /// Grows with each write of the key, with gaps.
        3 version: uint64,
        /// From this moment on the key counts as absent; 0 = never.
        4 expires_at_ms: uint64,
        /// Left out by a Scan with keys_only.
        2 value: bytes,
    }

    /// A range of keys.
    pub struct KeyRange<'a> = "pelton.v1.KeyRange" in "range." {
        /// The first key of the range, included. Empty = from the first key of the database.
        1 start: bytes,
        /// The first key after the range, not included. Empty = to the last key of the database.
        /// INVALID_ARGUMENT if it is below start.
        2 end: bytes,
    }

    /// The message `GetRequest`.
    pub struct GetRequest<'a> = "pelton.v1.GetRequest" {
        /// The field `database`.
        1 database: string,
        /// The field `key`.
        2 key: bytes,
    } reserved {
        unserved: 12..=15
    }

    /// The message `GetResponse`.
    pub struct GetResponse<'a> = "pelton.v1.GetResponse" {
        /// False: there is no such key, and the other fields are empty.
        1 found: bool,
        /// As in Entry.
        3 version: uint64,
        /// As in Entry.
        4 expires_at_ms: uint64,
        /// The field `value`.
        2 value: bytes,
    }

    /// The message `PutRequest`.
    pub struct PutRequest<'a> = "pelton.v1.PutRequest" {
        /// The field `database`.
        1 database: string,
        /// The field `key`.
        2 key: bytes,
        /// The field `value`.
        3 value: bytes,
        /// Answer with the entry as it was before.
        7 return_previous: bool,
    } oneofs {
        /// At most one. None: write in any case.
        condition: Condition<'a>,
        /// When the entry expires. None: never, even if the old entry would have.
        expiry: Expiry,
    } reserved {
        unserved: 12..=15
    }

    /// The message `PutResponse`.
    pub struct PutResponse<'a> = "pelton.v1.PutResponse" {
        /// False: the condition was not met, and nothing has changed.
        1 applied: bool,
        /// The version of the entry after this request: the new one if applied, else that of the
        /// entry that was found (0 = there is none).
        2 version: uint64,
        /// With return_previous, if there was one: the entry before this request, without its key.
        3 previous: message Entry<'a>,
    }

    /// The message `DeleteRequest`.
    pub struct DeleteRequest<'a> = "pelton.v1.DeleteRequest" {
        /// The field `database`.
        1 database: string,
        /// The field `key`.
        2 key: bytes,
        /// Answer with the entry as it was before.
        7 return_previous: bool,
    } oneofs {
        /// At most one. None: delete in any case; that the key is missing then is no failure.
        condition: Condition<'a>,
    } reserved {
        unserved: 12..=15
    }

    /// The message `DeleteResponse`.
    pub struct DeleteResponse<'a> = "pelton.v1.DeleteResponse" {
        /// False: there was no such key, or the condition was not met; nothing has changed.
        1 deleted: bool,
        /// The version of the entry that was found: the deleted one if deleted, else the one that
        /// did not meet the condition. 0 = there was none.
        2 version: uint64,
        /// With return_previous, if there was one: the entry before this request, without its key.
        3 previous: message Entry<'a>,
        /// The sequence of the commit that deleted the entry, 0 if nothing was deleted.
        4 sequence: uint64,
    }

    /// The message `AppendRequest`.
    pub struct AppendRequest<'a> = "pelton.v1.AppendRequest" {
        /// The field `database`.
        1 database: string,
        /// The field `key`.
        2 key: bytes,
        /// What is added at the end. RESOURCE_EXHAUSTED if the whole value would become too large.
        /// The expiry of an existing entry stays.
        3 value: bytes,
    } oneofs {
        /// As in PutRequest.
        condition: Condition<'a>,
    } reserved {
        unserved: 12..=15
    }

    /// The message `AppendResponse`.
    pub struct AppendResponse = "pelton.v1.AppendResponse" {
        /// False: the condition was not met, and nothing has changed.
        1 applied: bool,
        /// The version of the entry after this request; 0 = there is none.
        2 version: uint64,
        /// Bytes of the whole value after this request.
        3 length: uint64,
    }

    /// The message `IncrementRequest`.
    pub struct IncrementRequest<'a> = "pelton.v1.IncrementRequest" {
        /// The field `database`.
        1 database: string,
        /// A number is stored as a value of 8 bytes: signed, 64 bits, big-endian, two's
        /// complement. The expiry of an existing entry stays.
        2 key: bytes,
        /// What is added; may be negative. 0 still writes the number, so that the version changes.
        3 delta: sint64,
        /// What a missing key counts as. delta is added to it.
        7 initial: sint64,
    } oneofs {
        /// As in PutRequest.
        condition: Condition<'a>,
    } reserved {
        unserved: 12..=15
    }

    /// The message `IncrementResponse`.
    pub struct IncrementResponse = "pelton.v1.IncrementResponse" {
        /// False: see refusal; nothing has changed.
        1 applied: bool,
        /// The number after this request; if refused for OVERFLOW the number as it is, and 0 if
        /// refused for another reason.
        2 value: sint64,
        /// The version of the entry after this request; 0 = there is none.
        3 version: uint64,
        /// Why nothing was added.
        4 refusal: enumeration,
    }

    /// One operation of a Batch, Transact or Pipe. Fields mean what they mean in the request of
    /// the same name; the database is that of the batch. INVALID_ARGUMENT if none is set.
    pub struct Operation<'a> = "pelton.v1.Operation" {} oneofs {
        /// The oneof `operation`.
        operation: OperationBody<'a>,
    }

    /// The message `Operation.Get`.
    pub struct GetOperation<'a> = "pelton.v1.Operation.Get" {
        /// The field `key`.
        2 key: bytes,
    } reserved {
        unserved: 12..=15
    }

    /// The message `Operation.Put`.
    pub struct PutOperation<'a> = "pelton.v1.Operation.Put" {
        /// The field `key`.
        2 key: bytes,
        /// The field `value`.
        3 value: bytes,
        /// The field `return_previous`.
        7 return_previous: bool,
    } oneofs {
        /// The oneof `condition`.
        condition: Condition<'a>,
        /// The oneof `expiry`.
        expiry: Expiry,
    } reserved {
        unserved: 12..=15
    }

    /// The message `Operation.Delete`.
    pub struct DeleteOperation<'a> = "pelton.v1.Operation.Delete" {
        /// The field `key`.
        2 key: bytes,
        /// The field `return_previous`.
        7 return_previous: bool,
    } oneofs {
        /// The oneof `condition`.
        condition: Condition<'a>,
    } reserved {
        unserved: 12..=15
    }

    /// The message `Operation.Append`.
    pub struct AppendOperation<'a> = "pelton.v1.Operation.Append" {
        /// The field `key`.
        2 key: bytes,
        /// The field `value`.
        3 value: bytes,
    } oneofs {
        /// The oneof `condition`.
        condition: Condition<'a>,
    } reserved {
        unserved: 12..=15
    }

    /// The message `Operation.Increment`.
    pub struct IncrementOperation<'a> = "pelton.v1.Operation.Increment" {
        /// The field `key`.
        2 key: bytes,
        /// The field `delta`.
        3 delta: sint64,
        /// The field `initial`.
        7 initial: sint64,
    } oneofs {
        /// The oneof `condition`.
        condition: Condition<'a>,
    } reserved {
        unserved: 12..=15
    }

    /// The outcome of one operation: the response of the same name, or a failure.
    pub struct OperationResult<'a> = "pelton.v1.OperationResult" {} oneofs {
        /// The oneof `result`.
        result: ResultBody<'a>,
    }

    /// Why one operation of several could not be done.
    pub struct Failure<'a> = "pelton.v1.Failure" {
        /// A gRPC status code, as in the table at the top.
        1 code: uint32,
        /// For humans.
        2 message: string,
    }

    /// The message `BatchRequest`.
    pub struct BatchRequest<'a> = "pelton.v1.BatchRequest" [request] {
        /// The field `database`.
        1 database: string,
        /// The field `mode`.
        2 mode: enumeration,
        /// By default at most 10 000 (RESOURCE_EXHAUSTED above). Each sees the effects of those
        /// before it.
        3 operations: repeated message Operation<'a>,
        /// The caller cannot receive an answer of more bytes. 0 = 4 MiB, the default of gRPC
        /// clients. If the answer could become longer, the request is refused with
        /// RESOURCE_EXHAUSTED before anything is applied: ask for fewer values at once, or raise
        /// this together with the client's limit for received messages. At most 64 MiB:
        /// INVALID_ARGUMENT above. A server allows at most an eighth of its memory limit, but
        /// always 4 MiB.
        4 max_answer_bytes: uint64,
    } reserved {
        unserved: 12..=15
    }

    /// The message `BatchResponse`.
    pub struct BatchResponse<'a> = "pelton.v1.BatchResponse" {
        /// ATOMIC: whether the batch took effect. INDEPENDENT: always true.
        1 applied: bool,
        /// The sequence of the commit; of a batch of reads, that of the view it was read from.
        2 sequence: uint64,
        /// One for each operation, in their order. Empty if not applied.
        3 results: repeated message OperationResult<'a>,
        /// If not applied: the index (from 0) of the first operation that failed.
        4 failed_operation: uint32,
        /// If not applied: how that operation failed.
        5 failed_result: message OperationResult<'a>,
        /// With sequence, a place from which to Watch.
        6 history_id: bytes,
    }

    /// A statement about one key.
    pub struct Comparison<'a> = "pelton.v1.Comparison" {
        /// The field `key`.
        1 key: bytes,
    } oneofs {
        /// INVALID_ARGUMENT if none is set.
        condition: Comparand<'a>,
    }

    /// The message `TransactRequest`.
    pub struct TransactRequest<'a> = "pelton.v1.TransactRequest" [request] {
        /// The field `database`.
        1 database: string,
        /// By default at most 10 000 together with the operations of both lists
        /// (RESOURCE_EXHAUSTED above). None at all are always met.
        2 comparisons: repeated message Comparison<'a>,
        /// Applied as by an ATOMIC batch if all comparisons are met. May be empty.
        3 when_met: repeated message Operation<'a>,
        /// Applied as by an ATOMIC batch if one is not. May be empty.
        4 when_unmet: repeated message Operation<'a>,
        /// As in BatchRequest.
        5 max_answer_bytes: uint64,
    } reserved {
        unserved: 12..=15
    }

    /// The message `TransactResponse`.
    pub struct TransactResponse<'a> = "pelton.v1.TransactResponse" {
        /// Whether all comparisons were met, and so which list was chosen.
        1 met: bool,
        /// If not met: the index (from 0) of the first comparison that was not.
        2 unmet_comparison: uint32,
        /// What became of the chosen list.
        3 batch: message BatchResponse<'a>,
    }

    /// Each page is read from one view of the database. The whole scan is not a snapshot: a key
    /// that is there all the time appears exactly once; one that changes meanwhile may appear as
    /// it was or as it is.
    pub struct ScanRequest<'a> = "pelton.v1.ScanRequest" {
        /// The field `database`.
        1 database: string,
        /// The field `direction`.
        4 direction: enumeration,
        /// Leave the values out.
        5 keys_only: bool,
        /// End after this many entries; 0 = no limit.
        6 limit: uint64,
        /// Go on after this key in the direction of the scan: the last key of an earlier scan,
        /// whether it still exists or not. The server remembers nothing between two scans.
        /// INVALID_ARGUMENT if it lies outside of the range.
        7 start_after: optional bytes,
    } oneofs {
        /// Which keys. None: all of the database.
        keys: Keys<'a>,
    } reserved {
        unserved: 12..=15
    }

    /// The message `ScanPage`.
    pub struct ScanPage<'a> = "pelton.v1.ScanPage" {
        /// In order; of a REMOTE database in its own (RemoteOrder). A page ends before it exceeds 1
        /// MiB, unless its first entry alone does; it may be short, even empty, before the end of
        /// the range.
        1 entries: repeated message Entry<'a>,
        /// The view that this page was read from: it shows all commits up to this one.
        2 sequence: uint64,
        /// The scan is complete: the range or the limit has been reached. No page follows.
        3 last: bool,
        /// With sequence, a place from which to Watch: that of the first page misses nothing of
        /// the whole scan.
        4 history_id: bytes,
    }

    /// The message `CountRequest`.
    pub struct CountRequest<'a> = "pelton.v1.CountRequest" {
        /// The field `database`.
        1 database: string,
        /// The field `precision`.
        4 precision: enumeration,
    } oneofs {
        /// Which keys. None: all of the database.
        keys: Keys<'a>,
    } reserved {
        unserved: 12..=15
    }

    /// The message `CountResponse`.
    pub struct CountResponse<'a> = "pelton.v1.CountResponse" {
        /// The field `count`.
        1 count: uint64,
        /// False: the count is an estimate.
        2 exact: bool,
        /// From how many views of the database the range was counted, one part after the other. 1:
        /// the count was true at one moment. More: writes went on meanwhile.
        3 views: uint64,
        /// The last of these views.
        4 sequence: uint64,
        /// With sequence, a place from which to Watch.
        5 history_id: bytes,
    }

    /// The message `PipeRequest`.
    pub struct PipeRequest<'a> = "pelton.v1.PipeRequest" [request] {
        /// Of the whole Pipe: read from the first message. INVALID_ARGUMENT if a later one names
        /// another; it may leave it out.
        1 database: string,
        /// Of this batch.
        2 mode: enumeration,
        /// Of this batch. None: the message is no batch and has no number; it asks to be told when
        /// all before it is done.
        3 operations: repeated message Operation<'a>,
        /// As in BatchRequest, of this batch's answer.
        4 max_answer_bytes: uint64,
        /// Of the whole Pipe: read from the first message.
        5 answers: enumeration,
    } reserved {
        unserved: 12..=15
    }

    /// The message `PipeResponse`.
    pub struct PipeResponse<'a> = "pelton.v1.PipeResponse" {
        /// Batches of this Pipe that are done, and as durable as their database promises: the
        /// first `done` of them, in the order sent.
        1 done: uint64,
        /// Present if the answer is about one batch: its number, counted from 1.
        2 batch_number: uint64,
        /// Its outcome. With FAILURES_ONLY an INDEPENDENT batch lists only the results that
        /// failed; result_indexes says which operations they belong to.
        3 batch: message BatchResponse<'a>,
        /// With FAILURES_ONLY: the index (from 0) of the operation of each of batch.results.
        4 result_indexes: repeated uint32,
        /// The batch as a whole was refused, with nothing applied; those after it went on.
        5 failure: message Failure<'a>,
    }

    /// A place in the history of changes of a server.
    pub struct ResumePoint<'a> = "pelton.v1.ResumePoint" {
        /// Names the history: 8 bytes to compare as a whole, which Statistics and every answer
        /// with a sequence to resume from (Scan, Count, Batch) bring along. It changes when a
        /// server is restored from a backup, when it gives up a damaged part of its log, and,
        /// without a data folder, at each start: sequences of another history mean nothing. In a
        /// request, empty = the server's present history, whichever that is.
        1 history_id: bytes,
        /// Everything up to this commit has been seen.
        2 sequence: uint64,
    }

    /// The message `WatchRequest`.
    pub struct WatchRequest<'a> = "pelton.v1.WatchRequest" {
        /// The field `database`.
        1 database: string,
        /// Where to begin. None: from now on. OUT_OF_RANGE if the changes since then are no longer
        /// all there, or if the point belongs to another history: read the range anew, and watch
        /// from the sequence of that read.
        4 resume: message ResumePoint<'a>,
        /// Leave the values out.
        5 keys_only: bool,
        /// Also say what was there before, as far as it is known.
        6 with_previous: bool,
        /// The caller cannot receive a message of more bytes. 0 = 4 MiB, the default of gRPC
        /// clients. A commit that would not fit comes without previous entries, and with values
        /// left out, the largest first; where even its keys do not fit, it comes in parts
        /// (`Commit.continued`). INVALID_ARGUMENT if below 128 KiB, which hold a longest key, or
        /// above 64 MiB.
        7 max_answer_bytes: uint64,
    } oneofs {
        /// Which keys. None: all of the database. INVALID_ARGUMENT if a bound or the prefix has
        /// more than 1 024 bytes.
        keys: Keys<'a>,
    }

    /// The message `WatchResponse`.
    pub struct WatchResponse<'a> = "pelton.v1.WatchResponse" {
        /// Commits in their order. One whose keys alone are more than a message may have comes in
        /// parts, one message each; all others come whole. Empty: nothing has changed, and
        /// `resume` alone is news. The first message comes at once and has none: it says where the
        /// changes begin. Then there is one at least every 10 seconds.
        1 commits: repeated message Commit<'a>,
        /// Where to resume when the stream breaks after this message. With a part of a commit it is
        /// the point before that: all its parts come again.
        2 resume: message ResumePoint<'a>,
        /// Set in the last message: the watcher was too slow and is cut off. It may resume. This
        /// version never sets it: who has fallen behind what is kept gets OUT_OF_RANGE.
        3 too_slow: bool,
    }

    /// The message `WatchResponse.Commit`.
    pub struct Commit<'a> = "pelton.v1.WatchResponse.Commit" {
        /// The field `sequence`.
        1 sequence: uint64,
        /// When, by the clock of the server, which never goes back.
        2 at_ms: uint64,
        /// At most one for each key: its state after the commit.
        3 changes: repeated message Change<'a>,
        /// The rest of its changes follows in the next message.
        4 continued: bool,
    }

    /// The message `WatchResponse.Change`.
    pub struct Change<'a> = "pelton.v1.WatchResponse.Change" {
        /// The field `kind`.
        1 kind: enumeration,
        /// SET: the entry now. Else only its key.
        2 entry: message Entry<'a>,
        /// With with_previous, if there was one: the entry before, without its key.
        3 previous: message Entry<'a>,
        /// The entry has a value that is not here, so that the commit fits into max_answer_bytes:
        /// read it with Get, whose version returns whether it has changed since. Never set with
        /// keys_only.
        4 value_left_out: bool,
    }
}
