//! Sweeps: a load repeated over the values of one or two parameters, in random order.
//!
//! Nothing here opens a socket, reads a clock or starts a run. [`SweepTimes`] and [`order`] say
//! what is to be run, [`SweepResults`] takes what came out, [`SweepReport`] shows it and finds the
//! [`Knee`]. The form of a file is [`SavedSweep`]'s.

mod axis;
mod figures;
mod knee;
pub mod limits;
mod page;
mod report;
mod results;
mod saved;
mod schedule;

pub use axis::{AxesError, SweepAxes, SweepAxis, SweepParameter};
pub use figures::{Measure, RunFigures, Spread};
pub use knee::{Knee, KneePoint, knee, most_power};
pub(crate) use report::right_aligned;
pub use report::{SweepReport, SweepSetting};
pub use results::{SweepCell, SweepResults, SweepRun};
pub use saved::{SavedError, SavedSweep, SweepHeader};
pub use schedule::{SweepTimes, TimesWanted, order};
