//! What the clients in Rust have in common, so that they differ in how they call and in nothing
//! else: the flags of peers/README.md, keys and their random order, what is measured, and the line
//! of JSON.

mod measurement;
mod options;
mod random;

pub use measurement::{Mark, Measurement, Period, Phase, Recorder};
pub use options::{Method, Options, parse};
pub use random::{Random, key};
