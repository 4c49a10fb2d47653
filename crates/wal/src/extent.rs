//! What of a log can be read while it is written.

use std::sync::Arc;

use super::place::LogEnd;

/// Where a segment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentStart {
    pub(super) ordinal: u64,
    /// The first sequence that its first group covers.
    pub(super) first_sequence: u64,
}

/// From where to where a log can be read, as of the moment when its writer said so. Segments may be
/// retired since.
#[derive(Clone, Debug)]
pub struct LogExtent {
    /// Those that have groups, oldest first.
    pub(super) starts: Arc<Vec<SegmentStart>>,
    pub(super) end: LogEnd,
}

impl LogExtent {
    /// Where it ends.
    pub fn end(&self) -> LogEnd {
        self.end
    }

    /// Returns the first sequence that it covers; `None`: none.
    pub fn first_sequence(&self) -> Option<u64> {
        self.starts.first().map(|start| start.first_sequence)
    }

    /// Whether the log has everything that came after a sequence.
    pub fn reaches_back_to(&self, sequence: u64) -> bool {
        let first = self.starts.first();
        first.is_some_and(|first| first.first_sequence <= sequence.saturating_add(1))
    }

    /// Returns the segment in which what came after a sequence begins; `None`: it is not there.
    pub(super) fn segment_behind(&self, sequence: u64) -> Option<u64> {
        let next = sequence.saturating_add(1);
        let after = (self.starts).partition_point(|start| start.first_sequence <= next);
        self.starts
            .get(after.checked_sub(1)?)
            .map(|start| start.ordinal)
    }

    /// Whether it begins where the log itself began: nothing of it was ever retired.
    pub fn is_from_the_beginning(&self) -> bool {
        self.reaches_back_to(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::Position;
    use super::super::place::LogPlace;
    use super::*;

    fn extent(starts: &[(u64, u64)]) -> LogExtent {
        let starts = starts
            .iter()
            .map(|&(ordinal, first_sequence)| SegmentStart {
                ordinal,
                first_sequence,
            });
        LogExtent {
            starts: Arc::new(starts.collect()),
            end: LogEnd {
                position: Position::default(),
                place: LogPlace {
                    segment: 1,
                    offset: 0,
                },
            },
        }
    }

    #[test]
    fn what_follows_a_sequence_begins_in_the_last_segment_that_may_cover_it() {
        let extent = extent(&[(3, 10), (4, 20), (5, 20), (6, 31)]);
        for (sequence, segment) in [(8, None), (9, Some(3)), (18, Some(3)), (19, Some(5))] {
            assert_eq!(extent.segment_behind(sequence), segment, "{sequence}");
            assert_eq!(extent.reaches_back_to(sequence), segment.is_some());
        }
        for (sequence, segment) in [(29, 5), (30, 6), (1000, 6), (u64::MAX, 6)] {
            assert_eq!(extent.segment_behind(sequence), Some(segment), "{sequence}");
        }
        let nothing = super::tests::extent(&[]);
        assert!(!nothing.reaches_back_to(5) && nothing.segment_behind(5).is_none());
    }
}
