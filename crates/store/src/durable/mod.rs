//! Databases that last: their commits go through the log.
//!
//! How it is cut and why stands in ARCHITECTURE.md, section 5.

mod reserve;

pub(crate) use reserve::Reserve;
