//! What is to happen to a life of the server.

use drive::sim::Random;
use store::disk::{Fault, SimulatedDisk, Step};

/// How a life is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Stop,
    Kill,
    PowerLoss,
    /// In the midst of what the disk does.
    PowerLossAt {
        step: Step,
        before: u64,
    },
    /// A write or a sync fails.
    Failure {
        step: Step,
        before: u64,
    },
}

impl Fate {
    pub fn draw(random: &mut Random) -> Fate {
        match random.below(100) {
            0..2 => Fate::Stop,
            2..5 => Fate::Kill,
            5..8 => Fate::PowerLoss,
            8..60 => Fate::PowerLossAt {
                step: [Step::Sync, Step::Sync, Step::Write][random.below(3) as usize],
                before: random.below(3),
            },
            60..80 => Fate::Failure {
                step: Step::Sync,
                before: random.below(3),
            },
            _ => Fate::Failure {
                step: Step::Write,
                before: random.below(3),
            },
        }
    }

    /// Lets the disk do its part.
    pub fn plan(self, disk: &SimulatedDisk) {
        match self {
            Fate::Stop | Fate::Kill | Fate::PowerLoss => {}
            Fate::PowerLossAt { step, before } => {
                disk.plan_next(step, before as usize, Fault::PowerLoss);
            }
            Fate::Failure { step, before } => {
                disk.plan_next(step, before as usize, Fault::Error);
            }
        }
    }
}
