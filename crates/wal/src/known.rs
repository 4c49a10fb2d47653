//! What is known of a log from what goes with it: the newest snapshot, databases on disk, the
//! folder's own file.

use super::scan::LogScan;
use super::segment::segment_name;

/// What is known of a log from what goes with it, or from there being nothing: the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownLog {
    /// The public half of the log's id when the snapshot was made; `None`: there is no snapshot.
    pub history_id: Option<u64>,
    /// The snapshot has everything up to this sequence, so the log need not.
    pub base_sequence: u64,
    /// The log was durable up to this sequence.
    pub durable_sequence: u64,
    /// The number of the newest file that had its name on the device; 0: not known.
    pub newest_segment: u64,
}

/// Why a log does not go with the newest snapshot, or cannot stand alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It begins too late.
    #[error(
        "the log begins with sequence {first_sequence}, and {}: a file is missing; put it back, or \
         restore a backup",
        snapshot_before(*.base_sequence)
    )]
    Hole {
        /// The first sequence in the log.
        first_sequence: u64,
        /// Everything up to this one is in the newest snapshot; 0: there is none.
        base_sequence: u64,
    },
    /// The snapshot goes with another log.
    #[error(
        "the newest snapshot goes with another log: files of several data folders are mixed; put \
         the right ones back, or restore a backup"
    )]
    OtherHistory,
    /// It ends too early.
    #[error(
        "the log ends with sequence {last_sequence}, though everything up to {durable_sequence} is \
         known to have been durable"
    )]
    End {
        /// The last sequence in the log.
        last_sequence: u64,
        /// What is known to have been durable in it.
        durable_sequence: u64,
    },
    /// Its newest files are missing.
    #[error(
        "the log ends with sequence {last_sequence}, and its newest files are missing, {} to {}: \
         put them back",
        segment_name(*.missing_segment),
        segment_name(*.newest_segment)
    )]
    NewestGone {
        /// The last sequence in the log.
        last_sequence: u64,
        /// The first file that is missing.
        missing_segment: u64,
        /// The newest one.
        newest_segment: u64,
    },
}

fn snapshot_before(base_sequence: u64) -> String {
    match base_sequence {
        0 => "there is no snapshot of what was before it".to_owned(),
        _ => format!("the newest snapshot ends with {base_sequence}"),
    }
}

impl KnownLog {
    /// Whether a log goes with this.
    pub(super) fn misfit(&self, scan: &LogScan) -> Option<Misfit> {
        let last_sequence = scan.chain.map_or(0, |chain| chain.position.sequence);
        // A history that began anew knows nothing of what was before it.
        if scan.chain.is_some() && !scan.begins_history {
            if scan.first_sequence > self.base_sequence + 1 {
                return Some(Misfit::Hole {
                    first_sequence: scan.first_sequence,
                    base_sequence: self.base_sequence,
                });
            }
            let is_of_it = |history_id| scan.histories.contains(&history_id);
            if !self.history_id.is_none_or(is_of_it) {
                return Some(Misfit::OtherHistory);
            }
        }
        if last_sequence < self.durable_sequence {
            return Some(Misfit::End {
                last_sequence,
                durable_sequence: self.durable_sequence,
            });
        }
        // Nothing was written behind a clean stop: whoever removed the file that was ready for more
        // took nothing.
        self.missing_files(scan).filter(|_| !scan.closed)
    }

    /// The newest files, where they are missing.
    pub(super) fn missing_files(&self, scan: &LogScan) -> Option<Misfit> {
        let newest = scan.segments.last().map_or(0, |segment| segment.ordinal);
        (newest < self.newest_segment).then_some(Misfit::NewestGone {
            last_sequence: scan.chain.map_or(0, |chain| chain.position.sequence),
            missing_segment: newest + 1,
            newest_segment: self.newest_segment,
        })
    }
}
