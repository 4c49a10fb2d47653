//! gRPC over HTTP/2: messages, status, metadata, timeouts, compression.
