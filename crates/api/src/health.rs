//! `grpc.health.v1.Health`: `proto/grpc/health/v1/health.proto`.

crate::method::methods! {
    /// The status of one service, now. NOT_FOUND if there is no service of this name.
    CHECK Unary "grpc.health.v1.Health/Check";
    /// The status of every service, now.
    LIST Unary "grpc.health.v1.Health/List";
    /// The status of one service, at once and after every change, until the caller goes. A caller
    /// that reads slowly gets the latest status, not each one in between. A service that is not
    /// known has the status SERVICE_UNKNOWN. RESOURCE_EXHAUSTED if too many callers wait already.
    WATCH ServerStreaming "grpc.health.v1.Health/Watch";
}

protobuf::enumeration! {
    /// The enum `HealthCheckResponse.ServingStatus`.
    pub enum ServingStatus = "grpc.health.v1.HealthCheckResponse.ServingStatus" {
        /// Not set.
        Unknown = 0,
        /// The value `SERVING`.
        Serving = 1,
        /// The value `NOT_SERVING`.
        NotServing = 2,
        /// Only in answers of Watch.
        ServiceUnknown = 3,
    }
}

protobuf::message! {
    /// The message `HealthCheckRequest`.
    pub struct HealthCheckRequest<'a> = "grpc.health.v1.HealthCheckRequest" {
        /// Full name of a service, such as pelton.v1.KeyValue. Empty: the server as a whole.
        1 service: string,
    }

    /// The message `HealthCheckResponse`.
    pub struct HealthCheckResponse = "grpc.health.v1.HealthCheckResponse" {
        /// The field `status`.
        1 status: enumeration,
    }

    /// The message `HealthListRequest`.
    pub struct HealthListRequest = "grpc.health.v1.HealthListRequest" {}

    /// The message `HealthListResponse`.
    pub struct HealthListResponse<'a> = "grpc.health.v1.HealthListResponse" {
        /// By name of the service; the empty name is the server as a whole.
        1 statuses: repeated message StatusEntry<'a>,
    }

    /// An entry of a map.
    pub struct StatusEntry<'a> = "grpc.health.v1.HealthListResponse.StatusesEntry" {
        /// The key.
        1 key: string,
        /// The value.
        2 value: message HealthCheckResponse,
    }
}
