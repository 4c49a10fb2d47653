//! `tkrzw.DBMService`: `proto/compat/tkrzw.proto`. What is not here is as in [`crate::tkrzw`].

use crate::tkrzw::{
    AppendRequest, AppendResponse, EchoRequest, GetRequest, GetResponse, IncrementRequest,
    IncrementResponse, RemoveRequest, RemoveResponse, SetRequest, SetResponse, StatusProto,
    StringPair,
};

crate::method::methods! {
    /// Sends the message back.
    ECHO Unary "tkrzw.DBMService/Echo";
    /// Names and values of a database, or with a negative index of the server.
    INSPECT Unary "tkrzw.DBMService/Inspect";
    /// Reads a record.
    GET Unary "tkrzw.DBMService/Get";
    /// Reads several records: those that there are, in the order of keys, each once.
    GET_MULTI Unary "tkrzw.DBMService/GetMulti";
    /// Stores a record.
    SET Unary "tkrzw.DBMService/Set";
    /// Stores several records in the order of keys; of several with one key the first.
    SET_MULTI Unary "tkrzw.DBMService/SetMulti";
    /// Removes a record.
    REMOVE Unary "tkrzw.DBMService/Remove";
    /// Removes several records.
    REMOVE_MULTI Unary "tkrzw.DBMService/RemoveMulti";
    /// Puts a delimiter and a value behind the value of a record, or stores the value alone.
    APPEND Unary "tkrzw.DBMService/Append";
    /// The same for several records, in the order of keys; of several with one key the first.
    APPEND_MULTI Unary "tkrzw.DBMService/AppendMulti";
    /// Compares a record, and stores or removes it if it is as expected.
    COMPARE_EXCHANGE Unary "tkrzw.DBMService/CompareExchange";
    /// Adds to a number: 8 bytes, big-endian, with a sign.
    INCREMENT Unary "tkrzw.DBMService/Increment";
    /// Compares several records, and stores or removes several if all are as expected: one
    /// step.
    COMPARE_EXCHANGE_MULTI Unary "tkrzw.DBMService/CompareExchangeMulti";
    /// Counts the records.
    COUNT Unary "tkrzw.DBMService/Count";
    /// The bytes that a database with a file takes.
    GET_FILE_SIZE Unary "tkrzw.DBMService/GetFileSize";
    /// Removes all records.
    CLEAR Unary "tkrzw.DBMService/Clear";
    /// Does nothing: there is nothing that would have to be rebuilt.
    REBUILD Unary "tkrzw.DBMService/Rebuild";
    /// Says no.
    SHOULD_BE_REBUILT Unary "tkrzw.DBMService/ShouldBeRebuilt";
    /// Returns when all that was written before is on the device.
    SYNCHRONIZE Unary "tkrzw.DBMService/Synchronize";
    /// Looks for keys.
    SEARCH Unary "tkrzw.DBMService/Search";
    /// A stream of operations, each with its response, in order.
    STREAM Bidirectional "tkrzw.DBMService/Stream";
    /// An iterator: operations, each with its response.
    ITERATE Bidirectional "tkrzw.DBMService/Iterate";
    /// Is refused: there is no update log.
    REPLICATE ServerStreaming "tkrzw.DBMService/Replicate";
    /// Is not served: this server follows no other.
    CHANGE_MASTER Unary "tkrzw.DBMService/ChangeMaster";
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
    /// The message `EchoResponse`.
    pub struct EchoResponse<'a> = "tkrzw.EchoResponse" {
        /// The field `echo`.
        1 echo: string,
    }

    /// The message `InspectResponse`.
    pub struct InspectResponse<'a> = "tkrzw.InspectResponse" {
        /// The field `records`.
        1 records: repeated message StringPair<'a>,
    }

    /// The message `CompareExchangeRequest`.
    pub struct CompareExchangeRequest<'a> = "tkrzw.CompareExchangeRequest" {
        /// The field `dbm_index`.
        1 dbm_index: int32,
        /// The field `key`.
        2 key: bytes,
        /// The field `expected_existence`.
        3 expected_existence: bool,
        /// The field `expected_value`.
        4 expected_value: bytes,
        /// The field `desired_existence`.
        5 desired_existence: bool,
        /// The field `desired_value`.
        6 desired_value: bytes,
    }

    /// The message `CompareExchangeResponse`.
    pub struct CompareExchangeResponse<'a> = "tkrzw.CompareExchangeResponse" {
        /// The field `status`.
        1 status: message StatusProto<'a>,
    }

    /// The message `StreamRequest`.
    pub struct StreamRequest<'a> = "tkrzw.StreamRequest" {
        /// The field `omit_response`.
        101 omit_response: bool,
    } oneofs {
        /// The oneof `request_oneof`.
        request_oneof: StreamedRequest<'a>,
    }

    /// The message `StreamResponse`.
    pub struct StreamResponse<'a> = "tkrzw.StreamResponse" {
    } oneofs {
        /// The oneof `response_oneof`.
        response_oneof: StreamedResponse<'a>,
    }
}
