//! What is counted, for the report and to be asserted.

use super::history::{Answer, Asked, Outcome};

macro_rules! counts {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// What clients did, and what they heard.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$about])* pub $name: u64,)*
        }

        impl Counts {
            pub fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    calls,
    operations,
    answered,
    acknowledged,
    refused,
    /// Refused while there was no room for the log.
    refused_full,
    /// Refused after a write or sync of the log had failed.
    refused_failed,
    no_database,
    unknown,
    deadlines,
    cancelled,
    /// Ended by the end of their connection.
    lost,
    /// Answered over baidu_std or SRPC.
    framed,
    /// Of those that ended with their connection at a stop.
    framed_lost,
    connections,
    pauses,
    pipes,
    transacts,
    created,
    dropped,
    large_values,
    /// Scans of more than one page.
    long_scans,
    /// Commits that watchers were told of.
    told_commits,
    /// Watchers that could not begin where they wanted to.
    refused_points,
    /// Watchers that began behind an earlier commit, and were told of one.
    resumed,
}

impl Counts {
    pub fn begun(&mut self, asked: &Asked) {
        self.operations += asked.operations();
        self.transacts += u64::from(matches!(asked, Asked::Transact { .. }));
        let is_large = |bytes: usize| bytes >= 65_536;
        self.large_values +=
            u64::from(matches!(asked, Asked::Put { bytes, .. } if is_large(*bytes)));
    }

    pub fn ended(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Open => unreachable!("an end is an end"),
            Outcome::Answered(answer) => {
                self.answered += 1;
                self.long_scans +=
                    u64::from(matches!(answer, Answer::Pages(pages) if pages.len() > 1));
                if let Answer::Changes { commits, .. } = answer {
                    self.told_commits += commits.len() as u64;
                }
                self.created += u64::from(matches!(answer, Answer::Created(true)));
                self.dropped += u64::from(matches!(answer, Answer::Dropped(true)));
            }
            Outcome::Acknowledged => self.acknowledged += 1,
            Outcome::Refused => self.refused += 1,
            Outcome::NoDatabase => self.no_database += 1,
            Outcome::Unknown => self.unknown += 1,
        }
    }
}
