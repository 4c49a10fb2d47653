//! `pelton.v1.Echo`: `proto/pelton/v1/echo.proto`.

crate::method::methods! {
    /// Answers with what was sent.
    UNARY Unary "pelton.v1.Echo/Unary";
    /// Answers each message as Unary does, in order, until the caller ends its side.
    STREAM Bidirectional "pelton.v1.Echo/Stream";
}

protobuf::message! {
    /// The message `EchoRequest`.
    pub struct EchoRequest<'a> = "pelton.v1.EchoRequest" {
        /// Comes back in the answer, unless answer_bytes says otherwise.
        1 payload: bytes,
        /// Instead of the payload, answer with this many bytes of 0. 0 = the payload. At most 4
        /// 000 000: RESOURCE_EXHAUSTED above.
        2 answer_bytes: uint32,
        /// Answer this much later, without holding a thread. At most 60 000: INVALID_ARGUMENT
        /// above. The payload of a delayed answer is kept meanwhile: at most 16 384 bytes,
        /// RESOURCE_EXHAUSTED above.
        3 delay_ms: uint32,
    }

    /// The message `EchoResponse`.
    pub struct EchoResponse<'a> = "pelton.v1.EchoResponse" {
        /// The field `payload`.
        1 payload: bytes,
    }
}
