//! What is said of databases on an engine elsewhere: their shapes, their entries, what they lack,
//! and why a request came to nothing. [`remote`](crate::remote) is the way to them.

pub mod limits;

mod entry;
mod error;
mod lack;
mod shape;

pub use entry::RemoteEntry;
pub(crate) use entry::RemoteIndex;
pub use error::RemoteError;
pub use lack::Lack;
pub use shape::{RemoteOrder, RemotePromise, RemoteShape, ShapeError};
