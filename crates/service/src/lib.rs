//! What each RPC means, as pure state machines.

pub mod limits;
pub mod protobuf;
