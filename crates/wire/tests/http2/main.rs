//! Tests of the connection as a whole: frames in, events and frames out. One file for each theme.

mod support;

mod bounds;
mod capacity;
mod client;
mod corpus;
mod equality;
mod flow_control;
mod fuzz;
mod handshake;
mod hardening;
mod headers;
mod memory_and_pace;
mod messages;
mod pair;
mod parts;
mod put_back;
mod refused_calls;
mod responses;
mod room;
mod sent_frames;
mod shared_limits;
mod stream_states;
mod time;
mod turns;
mod unpacking;
