//! HTTP/2, HPACK and gRPC as pure state machines.
