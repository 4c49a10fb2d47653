//! `grpc.testing.TestService`: `proto/grpc/testing`.

crate::method::methods! {
    /// Answers with an empty message.
    EMPTY_CALL Unary "grpc.testing.TestService/EmptyCall";
    /// Answers with a payload of the size asked for.
    UNARY_CALL Unary "grpc.testing.TestService/UnaryCall";
    /// Answers with the time as payload, and with metadata that lets a proxy keep the answer for
    /// 60 seconds.
    CACHEABLE_UNARY_CALL Unary "grpc.testing.TestService/CacheableUnaryCall";
    /// Answers with the messages asked for.
    STREAMING_OUTPUT_CALL ServerStreaming "grpc.testing.TestService/StreamingOutputCall";
    /// Adds up the sizes of the payloads.
    STREAMING_INPUT_CALL ClientStreaming "grpc.testing.TestService/StreamingInputCall";
    /// Answers each request with the messages it asks for, as it comes.
    FULL_DUPLEX_CALL Bidirectional "grpc.testing.TestService/FullDuplexCall";
    /// The same, but begins to answer only when the caller has ended its side.
    HALF_DUPLEX_CALL Bidirectional "grpc.testing.TestService/HalfDuplexCall";
    /// UNIMPLEMENTED, always.
    UNIMPLEMENTED_CALL Unary "grpc.testing.TestService/UnimplementedCall";
}

protobuf::message! {
    /// The message `Empty`.
    pub struct Empty = "grpc.testing.Empty" {}

    /// A bool that can be absent.
    pub struct BoolValue = "grpc.testing.BoolValue" {
        /// The field `value`.
        1 value: bool,
    }

    /// The message `Payload`.
    pub struct Payload<'a> = "grpc.testing.Payload" {
        /// Its content does not matter, only its size. This server sends bytes of 0.
        2 body: bytes,
    }

    /// How the server is to end the call.
    pub struct EchoStatus<'a> = "grpc.testing.EchoStatus" {
        /// The field `code`.
        1 code: int32,
        /// The field `message`.
        2 message: string,
    }

    /// The message `SimpleRequest`.
    pub struct SimpleRequest<'a> = "grpc.testing.SimpleRequest" {
        /// How large the payload of the answer is to be, in bytes.
        2 response_size: int32,
        /// The field `payload`.
        3 payload: message Payload<'a>,
        /// Not looked at: this server does not know its callers.
        4 fill_username: bool,
        /// Not looked at.
        5 fill_oauth_scope: bool,
        /// Whether the answer is to be compressed.
        6 response_compressed: message BoolValue,
        /// End the call with this status instead of an answer, unless its code is 0.
        7 response_status: message EchoStatus<'a>,
        /// INVALID_ARGUMENT if this is true and the request was not compressed.
        8 expect_compressed: message BoolValue,
        /// Whether the answer is to name the server.
        9 fill_server_id: bool,
        /// A load report that is to come back in the trailer endpoint-load-metrics-bin.
        11 orca_per_query_report: message TestOrcaReport<'a>,
    }

    /// The message `SimpleResponse`.
    pub struct SimpleResponse<'a> = "grpc.testing.SimpleResponse" {
        /// The field `payload`.
        1 payload: message Payload<'a>,
        /// Stays empty.
        2 username: string,
        /// Stays empty.
        3 oauth_scope: string,
        /// Tells servers apart, if it was asked for.
        4 server_id: string,
    }

    /// The message `StreamingInputCallRequest`.
    pub struct StreamingInputCallRequest<'a> = "grpc.testing.StreamingInputCallRequest" {
        /// The field `payload`.
        1 payload: message Payload<'a>,
        /// INVALID_ARGUMENT if this is true and the message was not compressed.
        2 expect_compressed: message BoolValue,
    }

    /// The message `StreamingInputCallResponse`.
    pub struct StreamingInputCallResponse = "grpc.testing.StreamingInputCallResponse" {
        /// Bytes of all payloads together.
        1 aggregated_payload_size: int32,
    }

    /// Describes one message of the answer.
    pub struct ResponseParameters = "grpc.testing.ResponseParameters" {
        /// How large its payload is to be, in bytes.
        1 size: int32,
        /// How long to wait before it is sent, in microseconds.
        2 interval_us: int32,
        /// Whether it is to be compressed.
        3 compressed: message BoolValue,
    }

    /// The message `StreamingOutputCallRequest`.
    pub struct StreamingOutputCallRequest<'a> =
        "grpc.testing.StreamingOutputCallRequest" [request] {
        /// One message of the answer for each.
        2 response_parameters: repeated message ResponseParameters,
        /// The field `payload`.
        3 payload: message Payload<'a>,
        /// End the call with this status instead of an answer, unless its code is 0.
        7 response_status: message EchoStatus<'a>,
        /// UNIMPLEMENTED: this server sends no load reports but with the answers of calls.
        8 orca_oob_report: message TestOrcaReport<'a>,
    }

    /// The message `StreamingOutputCallResponse`.
    pub struct StreamingOutputCallResponse<'a> = "grpc.testing.StreamingOutputCallResponse" {
        /// The field `payload`.
        1 payload: message Payload<'a>,
    }

    /// A load report: what the server says of its load.
    pub struct TestOrcaReport<'a> = "grpc.testing.TestOrcaReport" {
        /// The field `cpu_utilization`.
        1 cpu_utilization: double,
        /// The field `memory_utilization`.
        2 memory_utilization: double,
        /// The field `request_cost`.
        3 request_cost: repeated message CostEntry<'a>,
        /// The field `utilization`.
        4 utilization: repeated message UtilizationEntry<'a>,
    }

    /// An entry of a map.
    pub struct CostEntry<'a> = "grpc.testing.TestOrcaReport.RequestCostEntry" {
        /// The key.
        1 key: string,
        /// The value.
        2 value: double,
    }

    /// An entry of a map.
    pub struct UtilizationEntry<'a> = "grpc.testing.TestOrcaReport.UtilizationEntry" {
        /// The key.
        1 key: string,
        /// The value.
        2 value: double,
    }

    /// A load report as it comes back: `crates/api/proto`.
    pub struct OrcaLoadReport<'a> = "xds.data.orca.v3.OrcaLoadReport" {
        /// The field `cpu_utilization`.
        1 cpu_utilization: double,
        /// The field `mem_utilization`.
        2 mem_utilization: double,
        /// The field `request_cost`.
        4 request_cost: repeated message OrcaCostEntry<'a>,
        /// The field `utilization`.
        5 utilization: repeated message OrcaUtilizationEntry<'a>,
    }

    /// An entry of a map.
    pub struct OrcaCostEntry<'a> = "xds.data.orca.v3.OrcaLoadReport.RequestCostEntry" {
        /// The key.
        1 key: string,
        /// The value.
        2 value: double,
    }

    /// An entry of a map.
    pub struct OrcaUtilizationEntry<'a> = "xds.data.orca.v3.OrcaLoadReport.UtilizationEntry" {
        /// The key.
        1 key: string,
        /// The value.
        2 value: double,
    }
}
