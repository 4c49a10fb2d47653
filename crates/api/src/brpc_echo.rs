//! `example.EchoService`: `proto/compat/brpc_echo.proto`.

crate::method::methods! {
    /// Answers with what was sent.
    ECHO Unary "example.EchoService/Echo";
}

protobuf::message! {
    /// The message `EchoRequest`.
    pub struct EchoRequest<'a> = "example.EchoRequest" {
        /// Comes back. Required.
        1 message: optional string,
    }

    /// The message `EchoResponse`.
    pub struct EchoResponse<'a> = "example.EchoResponse" {
        /// What came.
        1 message: optional string,
    }
}
