//! The `pelton` binary: a key-value server over gRPC, and its client on the command line.

mod arguments;
mod encoding;
mod exit;
mod log;
mod memory;
#[cfg(test)]
mod pages;
mod settings;
mod size;

fn main() {}
