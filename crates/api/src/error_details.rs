//! `google.rpc.Status` and a detail of it: `crates/api/proto`. What may go with a status of others'
//! services, in the trailer `grpc-status-details-bin`.

protobuf::message! {
    /// The message `google.rpc.Status`.
    pub struct DetailedStatus<'a> = "google.rpc.Status" {
        /// The number of the status.
        1 code: int32,
        /// Its text.
        2 message: string,
        /// Messages of any type.
        3 details: repeated message AnyMessage<'a>,
    }

    /// The message `google.protobuf.Any`.
    pub struct AnyMessage<'a> = "google.protobuf.Any" {
        /// `type.googleapis.com/` and the full name of the type.
        1 type_url: string,
        /// The message.
        2 value: bytes,
    }

    /// The message `google.rpc.RetryInfo`.
    pub struct RetryInfo = "google.rpc.RetryInfo" {
        /// Before this the call should not be tried again.
        1 retry_delay: message ProtobufDuration,
    }

    /// The message `google.protobuf.Duration`.
    pub struct ProtobufDuration = "google.protobuf.Duration" {
        /// The field `seconds`.
        1 seconds: int64,
        /// From 0 on, unless the seconds are negative.
        2 nanos: int32,
    }
}
