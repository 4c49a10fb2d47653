//! Moves bytes between sockets and protocols.
