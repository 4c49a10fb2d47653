//! `BenchmarkPB`: `proto/compat/srpc_benchmark.proto`.

crate::method::methods! {
    /// Answers with an empty message.
    ECHO_PB Unary "BenchmarkPB/echo_pb";
    /// Answers with an empty message 15 milliseconds later.
    SLOW_PB Unary "BenchmarkPB/slow_pb";
}

protobuf::message! {
    /// The message `FixLengthPBMsg`.
    pub struct FixLengthPbMsg<'a> = "FixLengthPBMsg" {
        /// Of the length that is measured.
        1 msg: bytes,
    }

    /// The message `EmptyPBMsg`.
    pub struct EmptyPbMsg = "EmptyPBMsg" {}
}
