//! Conversion of a database between memory and disk, while everything else goes on.
//!
//! Writes to the database are refused meanwhile, reads go on. Its content is copied aside, as it
//! is: with versions and expiries. Then one record in the log puts the copy in its place. Before
//! that record is durable nothing has happened.
//!
//! The committer does what takes no time: it freezes the database, and later logs the record.
//! Folders are made, filled, named and opened by the thread that converts. So the name of a tree
//! cannot have the sequence of the record, which is drawn when it is logged: it has one that was
//! drawn when the database was frozen, and the record says which.

mod commit;
mod copy;
mod copying;
mod error;
mod freeze;
mod record;

pub(in crate::durable) use commit::{Conversions, Leftover};
pub(in crate::durable) use copy::make_tree;
pub(in crate::durable) use copying::{BegunConversion, ConversionContent};
pub use copying::{ConvertReport, ConvertWatch};
pub use error::ConvertError;
pub(in crate::durable) use record::Converted;
