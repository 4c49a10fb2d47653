//! `io.grpc.KeyValueService`: `proto/compat/kvstore.proto`.

crate::method::methods! {
    /// Stores the value of a key that is not there.
    CREATE Unary "io.grpc.KeyValueService/Create";
    /// Answers with the value of a key.
    RETRIEVE Unary "io.grpc.KeyValueService/Retrieve";
    /// Replaces the value of a key that is there.
    UPDATE Unary "io.grpc.KeyValueService/Update";
    /// Removes a key. That there is none is no error.
    DELETE Unary "io.grpc.KeyValueService/Delete";
}

protobuf::message! {
    /// The message `CreateRequest`.
    pub struct CreateRequest<'a> = "io.grpc.CreateRequest" {
        /// The field `key`.
        1 key: bytes,
        /// The field `value`.
        2 value: bytes,
    }

    /// The message `CreateResponse`.
    pub struct CreateResponse = "io.grpc.CreateResponse" {}

    /// The message `RetrieveRequest`.
    pub struct RetrieveRequest<'a> = "io.grpc.RetrieveRequest" {
        /// The field `key`.
        1 key: bytes,
    }

    /// The message `RetrieveResponse`.
    pub struct RetrieveResponse<'a> = "io.grpc.RetrieveResponse" {
        /// The field `value`.
        1 value: bytes,
    }

    /// The message `UpdateRequest`.
    pub struct UpdateRequest<'a> = "io.grpc.UpdateRequest" {
        /// The field `key`.
        1 key: bytes,
        /// The field `value`.
        2 value: bytes,
    }

    /// The message `UpdateResponse`.
    pub struct UpdateResponse = "io.grpc.UpdateResponse" {}

    /// The message `DeleteRequest`.
    pub struct DeleteRequest<'a> = "io.grpc.DeleteRequest" {
        /// The field `key`.
        1 key: bytes,
    }

    /// The message `DeleteResponse`.
    pub struct DeleteResponse = "io.grpc.DeleteResponse" {}
}
