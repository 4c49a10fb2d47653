//! The pool's engine, with servers and a network in the same thread and in virtual time.

mod basics;
mod found;
mod modes;
mod repeated;
mod reports;
mod retries;
mod retry_limits;
mod second_time;
mod server;
mod simulated;
mod simulation;
