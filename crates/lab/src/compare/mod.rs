//! Whether two saved results differ by more than the noise of their runs.

mod judge;
mod ranks;
mod report;
mod side;

pub use judge::{Comparison, Difference, Judged};
pub use side::{ComparedSide, SideError};
