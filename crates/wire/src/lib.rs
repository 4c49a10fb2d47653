//! HTTP/2, HPACK and gRPC as pure state machines.

pub mod grpc;
pub mod hpack;
pub mod http1;
pub mod http2;
pub mod limits;
