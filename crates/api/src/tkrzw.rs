//! `tkrzw_rpc.DBMService`: `proto/compat/tkrzw_rpc.proto`.

crate::method::methods! {
    /// Sends the message back.
    ECHO Unary "tkrzw_rpc.DBMService/Echo";
    /// Names and values of a database, or with a negative index of the server.
    INSPECT Unary "tkrzw_rpc.DBMService/Inspect";
    /// Reads a record.
    GET Unary "tkrzw_rpc.DBMService/Get";
    /// Reads several records: those that there are, in the order of keys, each once.
    GET_MULTI Unary "tkrzw_rpc.DBMService/GetMulti";
    /// Stores a record.
    SET Unary "tkrzw_rpc.DBMService/Set";
    /// Stores several records in the order of keys; of several with one key the first.
    SET_MULTI Unary "tkrzw_rpc.DBMService/SetMulti";
    /// Removes a record.
    REMOVE Unary "tkrzw_rpc.DBMService/Remove";
    /// Removes several records.
    REMOVE_MULTI Unary "tkrzw_rpc.DBMService/RemoveMulti";
    /// Puts a delimiter and a value behind the value of a record, or stores the value alone.
    APPEND Unary "tkrzw_rpc.DBMService/Append";
    /// The same for several records, in the order of keys; of several with one key the first.
    APPEND_MULTI Unary "tkrzw_rpc.DBMService/AppendMulti";
    /// Compares a record, and stores or removes it if it is as expected.
    COMPARE_EXCHANGE Unary "tkrzw_rpc.DBMService/CompareExchange";
    /// Adds to a number: 8 bytes, big-endian, with a sign.
    INCREMENT Unary "tkrzw_rpc.DBMService/Increment";
    /// Compares several records, and stores or removes several if all are as expected: one
    /// step.
    COMPARE_EXCHANGE_MULTI Unary "tkrzw_rpc.DBMService/CompareExchangeMulti";
    /// Gives a record another key: one step.
    REKEY Unary "tkrzw_rpc.DBMService/Rekey";
    /// Removes the first record and returns it.
    POP_FIRST Unary "tkrzw_rpc.DBMService/PopFirst";
    /// Stores a value under a key that is made of the time.
    PUSH_LAST Unary "tkrzw_rpc.DBMService/PushLast";
    /// Counts the records.
    COUNT Unary "tkrzw_rpc.DBMService/Count";
    /// The bytes that a database with a file takes.
    GET_FILE_SIZE Unary "tkrzw_rpc.DBMService/GetFileSize";
    /// Removes all records.
    CLEAR Unary "tkrzw_rpc.DBMService/Clear";
    /// Does nothing: there is nothing that would have to be rebuilt.
    REBUILD Unary "tkrzw_rpc.DBMService/Rebuild";
    /// Says no.
    SHOULD_BE_REBUILT Unary "tkrzw_rpc.DBMService/ShouldBeRebuilt";
    /// Returns when all that was written before is on the device.
    SYNCHRONIZE Unary "tkrzw_rpc.DBMService/Synchronize";
    /// Looks for keys.
    SEARCH Unary "tkrzw_rpc.DBMService/Search";
    /// A stream of operations, each with its response, in order.
    STREAM Bidirectional "tkrzw_rpc.DBMService/Stream";
    /// An iterator: operations, each with its response.
    ITERATE Bidirectional "tkrzw_rpc.DBMService/Iterate";
    /// Sends updates in the order of the log, as they come.
    REPLICATE ServerStreaming "tkrzw_rpc.DBMService/Replicate";
    /// Has another server followed, or none.
    CHANGE_MASTER Unary "tkrzw_rpc.DBMService/ChangeMaster";
}

protobuf::enumeration! {
    /// The enum `OpType` of `IterateRequest`.
    pub enum IterateOperation = "tkrzw_rpc.IterateRequest.OpType" {
        /// Does nothing.
        None = 0,
        /// Goes to the first record.
        First = 1,
        /// Goes to the last record.
        Last = 2,
        /// Goes to the first record whose key is not below the given one.
        Jump = 3,
        /// Goes to the last record whose key is below the given one.
        JumpLower = 4,
        /// Goes to the first record whose key is above the given one.
        JumpUpper = 5,
        /// Goes to the next record.
        Next = 6,
        /// Goes to the previous record.
        Previous = 7,
        /// Reads the record.
        Get = 8,
        /// Replaces the value of the record.
        Set = 9,
        /// Removes the record and goes to the next one.
        Remove = 10,
        /// Reads the record and goes to the next one.
        Step = 11,
    }

    /// The enum `OpType` of `ReplicateResponse`.
    pub enum ReplicatedOperation = "tkrzw_rpc.ReplicateResponse.OpType" {
        /// Nothing was done.
        Noop = 0,
        /// A record was stored.
        Set = 1,
        /// A record was removed.
        Remove = 2,
        /// All records were removed.
        Clear = 3,
    }
}

protobuf::oneof! {
    /// One of the fields of `request_oneof`.
    pub enum StreamedRequest<'a> {
        /// The field `echo_request`.
        1 Echo(echo_request): message EchoRequest<'a>,
        /// The field `get_request`.
        2 Get(get_request): message GetRequest<'a>,
        /// The field `set_request`.
        3 Set(set_request): message SetRequest<'a>,
        /// The field `remove_request`.
        4 Remove(remove_request): message RemoveRequest<'a>,
        /// The field `append_request`.
        5 Append(append_request): message AppendRequest<'a>,
        /// The field `compare_exchange_request`.
        6 CompareExchange(compare_exchange_request): message CompareExchangeRequest<'a>,
        /// The field `increment_request`.
        7 Increment(increment_request): message IncrementRequest<'a>,
    }

    /// One of the fields of `response_oneof`.
    pub enum StreamedResponse<'a> {
        /// The field `echo_response`.
        1 Echo(echo_response): message EchoResponse<'a>,
        /// The field `get_response`.
        2 Get(get_response): message GetResponse<'a>,
        /// The field `set_response`.
        3 Set(set_response): message SetResponse<'a>,
        /// The field `remove_response`.
        4 Remove(remove_response): message RemoveResponse<'a>,
        /// The field `append_response`.
        5 Append(append_response): message AppendResponse<'a>,
        /// The field `compare_exchange_response`.
        6 CompareExchange(compare_exchange_response): message CompareExchangeResponse<'a>,
        /// The field `increment_response`.
        7 Increment(increment_response): message IncrementResponse<'a>,
    }
}

protobuf::message! {
    /// The message `StatusProto`.
    pub struct StatusProto<'a> = "tkrzw_rpc.StatusProto" {
        /// The field `code`.
        1 code: int32,
        /// The field `message`.
        2 message: string,
    }

    /// The message `StringPair`.
    pub struct StringPair<'a> = "tkrzw_rpc.StringPair" {
        /// The field `first`.
        1 first: string,
        /// The field `second`.
        2 second: string,
    }

    /// The message `BytesPair`.
    pub struct BytesPair<'a> = "tkrzw_rpc.BytesPair" {
        /// The field `first`.
        1 first: bytes,
        /// The field `second`.
        2 second: bytes,
    }

    /// The message `RecordState`.
    pub struct RecordState<'a> = "tkrzw_rpc.RecordState" {
        /// The field `existence`.
        1 existence: bool,
        /// The field `key`.
        2 key: bytes,
        /// The field `value`.
        3 value: bytes,
        /// The field `any_value`.
        4 any_value: bool,
    }

    /// The message `EchoRequest`.
    pub struct EchoRequest<'a> = "tkrzw_rpc.EchoRequest" {
        /// The field `message`.
        1 message: string,
    }

    /// The message `EchoResponse`.
    pub struct EchoResponse<'a> = "tkrzw_rpc.EchoResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `echo`.
        2 echo: string,
    }

    /// The message `InspectRequest`.
    pub struct InspectRequest = "tkrzw_rpc.InspectRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
    }

    /// The message `InspectResponse`.
    pub struct InspectResponse<'a> = "tkrzw_rpc.InspectResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `records`.
        2 records: repeated message StringPair<'a>,
    }

    /// The message `GetRequest`.
    pub struct GetRequest<'a> = "tkrzw_rpc.GetRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `key`.
        2 key: bytes,
        /// The field `omit_value`.
        3 omit_value: bool,
    }

    /// The message `GetResponse`.
    pub struct GetResponse<'a> = "tkrzw_rpc.GetResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `value`.
        2 value: bytes,
    }

    /// The message `GetMultiRequest`.
    pub struct GetMultiRequest<'a> = "tkrzw_rpc.GetMultiRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `keys`.
        2 keys: repeated bytes,
    }

    /// The message `GetMultiResponse`.
    pub struct GetMultiResponse<'a> = "tkrzw_rpc.GetMultiResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `records`.
        2 records: repeated message BytesPair<'a>,
    }

    /// The message `SetRequest`.
    pub struct SetRequest<'a> = "tkrzw_rpc.SetRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `key`.
        2 key: bytes,
        /// The field `value`.
        3 value: bytes,
        /// The field `overwrite`.
        4 overwrite: bool,
    }

    /// The message `SetResponse`.
    pub struct SetResponse<'a> = "tkrzw_rpc.SetResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `SetMultiRequest`.
    pub struct SetMultiRequest<'a> = "tkrzw_rpc.SetMultiRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `records`.
        2 records: repeated message BytesPair<'a>,
        /// The field `overwrite`.
        3 overwrite: bool,
    }

    /// The message `SetMultiResponse`.
    pub struct SetMultiResponse<'a> = "tkrzw_rpc.SetMultiResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `RemoveRequest`.
    pub struct RemoveRequest<'a> = "tkrzw_rpc.RemoveRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `key`.
        2 key: bytes,
    }

    /// The message `RemoveResponse`.
    pub struct RemoveResponse<'a> = "tkrzw_rpc.RemoveResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `RemoveMultiRequest`.
    pub struct RemoveMultiRequest<'a> = "tkrzw_rpc.RemoveMultiRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `keys`.
        2 keys: repeated bytes,
    }

    /// The message `RemoveMultiResponse`.
    pub struct RemoveMultiResponse<'a> = "tkrzw_rpc.RemoveMultiResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `AppendRequest`.
    pub struct AppendRequest<'a> = "tkrzw_rpc.AppendRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `key`.
        2 key: bytes,
        /// The field `value`.
        3 value: bytes,
        /// The field `delim`.
        4 delim: bytes,
    }

    /// The message `AppendResponse`.
    pub struct AppendResponse<'a> = "tkrzw_rpc.AppendResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `AppendMultiRequest`.
    pub struct AppendMultiRequest<'a> = "tkrzw_rpc.AppendMultiRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `records`.
        2 records: repeated message BytesPair<'a>,
        /// The field `delim`.
        3 delim: bytes,
    }

    /// The message `AppendMultiResponse`.
    pub struct AppendMultiResponse<'a> = "tkrzw_rpc.AppendMultiResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `CompareExchangeRequest`.
    pub struct CompareExchangeRequest<'a> = "tkrzw_rpc.CompareExchangeRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `key`.
        2 key: bytes,
        /// The field `expected_existence`.
        3 expected_existence: bool,
        /// The field `expected_value`.
        4 expected_value: bytes,
        /// The field `expect_any_value`.
        5 expect_any_value: bool,
        /// The field `desired_existence`.
        6 desired_existence: bool,
        /// The field `desired_value`.
        7 desired_value: bytes,
        /// The field `desire_no_update`.
        8 desire_no_update: bool,
        /// The field `get_actual`.
        9 get_actual: bool,
        /// The field `retry_wait`.
        10 retry_wait: double,
        /// The field `notify`.
        11 notify: bool,
    }

    /// The message `CompareExchangeResponse`.
    pub struct CompareExchangeResponse<'a> = "tkrzw_rpc.CompareExchangeResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `actual`.
        2 actual: bytes,
        /// The field `found`.
        3 found: bool,
    }

    /// The message `IncrementRequest`.
    pub struct IncrementRequest<'a> = "tkrzw_rpc.IncrementRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `key`.
        2 key: bytes,
        /// The field `increment`.
        3 increment: int64,
        /// The field `initial`.
        4 initial: int64,
    }

    /// The message `IncrementResponse`.
    pub struct IncrementResponse<'a> = "tkrzw_rpc.IncrementResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `current`.
        2 current: int64,
    }

    /// The message `CompareExchangeMultiRequest`.
    pub struct CompareExchangeMultiRequest<'a> = "tkrzw_rpc.CompareExchangeMultiRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `expected`.
        2 expected: repeated message RecordState<'a>,
        /// The field `desired`.
        3 desired: repeated message RecordState<'a>,
    }

    /// The message `CompareExchangeMultiResponse`.
    pub struct CompareExchangeMultiResponse<'a> = "tkrzw_rpc.CompareExchangeMultiResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `RekeyRequest`.
    pub struct RekeyRequest<'a> = "tkrzw_rpc.RekeyRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `old_key`.
        2 old_key: bytes,
        /// The field `new_key`.
        3 new_key: bytes,
        /// The field `overwrite`.
        4 overwrite: bool,
        /// The field `copying`.
        5 copying: bool,
    }

    /// The message `RekeyResponse`.
    pub struct RekeyResponse<'a> = "tkrzw_rpc.RekeyResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `PopFirstRequest`.
    pub struct PopFirstRequest = "tkrzw_rpc.PopFirstRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `omit_key`.
        2 omit_key: bool,
        /// The field `omit_value`.
        3 omit_value: bool,
        /// The field `retry_wait`.
        4 retry_wait: double,
    }

    /// The message `PopFirstResponse`.
    pub struct PopFirstResponse<'a> = "tkrzw_rpc.PopFirstResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `key`.
        2 key: bytes,
        /// The field `value`.
        3 value: bytes,
    }

    /// The message `PushLastRequest`.
    pub struct PushLastRequest<'a> = "tkrzw_rpc.PushLastRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `value`.
        2 value: bytes,
        /// The field `wtime`.
        3 wtime: double,
        /// The field `notify`.
        4 notify: bool,
    }

    /// The message `PushLastResponse`.
    pub struct PushLastResponse<'a> = "tkrzw_rpc.PushLastResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `CountRequest`.
    pub struct CountRequest = "tkrzw_rpc.CountRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
    }

    /// The message `CountResponse`.
    pub struct CountResponse<'a> = "tkrzw_rpc.CountResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `count`.
        2 count: int64,
    }

    /// The message `GetFileSizeRequest`.
    pub struct GetFileSizeRequest = "tkrzw_rpc.GetFileSizeRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
    }

    /// The message `GetFileSizeResponse`.
    pub struct GetFileSizeResponse<'a> = "tkrzw_rpc.GetFileSizeResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `file_size`.
        2 file_size: int64,
    }

    /// The message `ClearRequest`.
    pub struct ClearRequest = "tkrzw_rpc.ClearRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
    }

    /// The message `ClearResponse`.
    pub struct ClearResponse<'a> = "tkrzw_rpc.ClearResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `RebuildRequest`.
    pub struct RebuildRequest<'a> = "tkrzw_rpc.RebuildRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `params`.
        2 params: repeated message StringPair<'a>,
    }

    /// The message `RebuildResponse`.
    pub struct RebuildResponse<'a> = "tkrzw_rpc.RebuildResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `ShouldBeRebuiltRequest`.
    pub struct ShouldBeRebuiltRequest = "tkrzw_rpc.ShouldBeRebuiltRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
    }

    /// The message `ShouldBeRebuiltResponse`.
    pub struct ShouldBeRebuiltResponse<'a> = "tkrzw_rpc.ShouldBeRebuiltResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `tobe`.
        2 tobe: bool,
    }

    /// The message `SynchronizeRequest`.
    pub struct SynchronizeRequest<'a> = "tkrzw_rpc.SynchronizeRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `hard`.
        2 hard: bool,
        /// The field `params`.
        3 params: repeated message StringPair<'a>,
    }

    /// The message `SynchronizeResponse`.
    pub struct SynchronizeResponse<'a> = "tkrzw_rpc.SynchronizeResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `SearchRequest`.
    pub struct SearchRequest<'a> = "tkrzw_rpc.SearchRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `mode`.
        2 mode: string,
        /// The field `pattern`.
        3 pattern: bytes,
        /// The field `capacity`.
        4 capacity: int32,
    }

    /// The message `SearchResponse`.
    pub struct SearchResponse<'a> = "tkrzw_rpc.SearchResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `matched`.
        2 matched: repeated bytes,
    }

    /// The message `StreamRequest`.
    pub struct StreamRequest<'a> = "tkrzw_rpc.StreamRequest" {
        /// The field `omit_response`.
        101 omit_response: bool,
    } oneofs {
        /// The oneof `request_oneof`.
        request_oneof: StreamedRequest<'a>,
    }

    /// The message `StreamResponse`.
    pub struct StreamResponse<'a> = "tkrzw_rpc.StreamResponse" {
    } oneofs {
        /// The oneof `response_oneof`.
        response_oneof: StreamedResponse<'a>,
    }

    /// The message `IterateRequest`.
    pub struct IterateRequest<'a> = "tkrzw_rpc.IterateRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `operation`.
        2 operation: enumeration,
        /// The field `key`.
        3 key: bytes,
        /// The field `value`.
        4 value: bytes,
        /// The field `jump_inclusive`.
        5 jump_inclusive: bool,
        /// The field `omit_key`.
        6 omit_key: bool,
        /// The field `omit_value`.
        7 omit_value: bool,
    }

    /// The message `IterateResponse`.
    pub struct IterateResponse<'a> = "tkrzw_rpc.IterateResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `key`.
        2 key: bytes,
        /// The field `value`.
        3 value: bytes,
    }

    /// The message `ReplicateRequest`.
    pub struct ReplicateRequest = "tkrzw_rpc.ReplicateRequest" {
        /// The field `min_timestamp`.
        1 min_timestamp: int64,
        /// The field `server_id`.
        2 server_id: int32,
        /// The field `wait_time`.
        3 wait_time: double,
    }

    /// The message `ReplicateResponse`.
    pub struct ReplicateResponse<'a> = "tkrzw_rpc.ReplicateResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
        /// The field `timestamp`.
        2 timestamp: int64,
        /// The field `server_id`.
        3 server_id: int32,
        /// The field `dbm_index`.
        4 dbm_index: int32,
        /// The field `op_type`.
        5 op_type: enumeration,
        /// The field `key`.
        6 key: bytes,
        /// The field `value`.
        7 value: bytes,
    }

    /// The message `ChangeMasterRequest`.
    pub struct ChangeMasterRequest<'a> = "tkrzw_rpc.ChangeMasterRequest" {
        /// The field `master`.
        1 master: string,
        /// The field `timestamp_skew`.
        2 timestamp_skew: int64,
    }

    /// The message `ChangeMasterResponse`.
    pub struct ChangeMasterResponse<'a> = "tkrzw_rpc.ChangeMasterResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }
}
