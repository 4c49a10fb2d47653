//! What is to happen to a life of the server.

use net::sim::SplitMix;
use wal::disk::{Fault, SimulatedDisk, Step};

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
    /// Something else fails that the disk does.
    OtherFailure {
        step: Step,
        before: u64,
    },
    /// Few more files can be opened, or none.
    FewDescriptors {
        left: u64,
    },
}

/// What the disk does beside writes and syncs of files.
const OTHER_STEPS: [Step; 7] = [
    Step::Create,
    Step::Rename,
    Step::Remove,
    Step::SyncFolder,
    Step::Open,
    Step::Read,
    Step::List,
];

impl Fate {
    pub fn draw(random: &mut SplitMix) -> Fate {
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

    /// The same, and sometimes something else than a write or a sync goes wrong.
    pub fn draw_any(random: &mut SplitMix) -> Fate {
        match random.below(10) {
            0 => Fate::OtherFailure {
                step: OTHER_STEPS[random.below(OTHER_STEPS.len() as u64) as usize],
                before: random.below(2),
            },
            1 => Fate::FewDescriptors {
                left: random.below(3),
            },
            _ => Fate::draw(random),
        }
    }

    /// Lets the disk do its part.
    pub fn plan(self, disk: &SimulatedDisk) {
        match self {
            Fate::Stop | Fate::Kill | Fate::PowerLoss => {}
            Fate::PowerLossAt { step, before } => {
                disk.plan_next(step, before as usize, Fault::PowerLoss);
            }
            Fate::FewDescriptors { left } => {
                disk.set_handle_limit(disk.open_handles() + left as usize);
            }
            Fate::Failure { step, before } | Fate::OtherFailure { step, before } => {
                disk.plan_next(step, before as usize, Fault::Error);
            }
        }
    }
}
