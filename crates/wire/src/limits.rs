//! Every bound of this crate.
