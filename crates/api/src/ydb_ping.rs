//! `Ydb.Debug.V1.DebugService`: `proto/compat/ydb_ping.proto`.

crate::method::methods! {
    /// Answers with an empty message.
    PING_PLAIN_GRPC Unary "Ydb.Debug.V1.DebugService/PingPlainGrpc";
    /// Answers each message, in order, with the time of the answer, until the caller ends its
    /// side.
    PING_STREAM Bidirectional "Ydb.Debug.V1.DebugService/PingStream";
}

protobuf::message! {
    /// The message `PlainGrpcRequest`.
    pub struct PlainGrpcRequest = "Ydb.Debug.V1.PlainGrpcRequest" {}

    /// The message `PlainGrpcResponse`.
    pub struct PlainGrpcResponse = "Ydb.Debug.V1.PlainGrpcResponse" {
        /// Only PingStream sets it: the server's clock, in microseconds since 1970.
        1 call_back_ts: uint64,
    }
}
