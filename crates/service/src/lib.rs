//! What each RPC means, as pure state machines.
