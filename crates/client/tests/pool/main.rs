//! The pool's engine, with servers and a network in the same thread and in virtual time.

mod basics;
mod modes;
mod retries;
mod server;
mod simulation;
mod world;
