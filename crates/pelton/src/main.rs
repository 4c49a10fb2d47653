//! The `pelton` binary.
fn main() {}
