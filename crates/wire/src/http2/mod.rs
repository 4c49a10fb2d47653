//! HTTP/2 (RFC 9113): one connection as a value.
