//! Channels to a gRPC server.
