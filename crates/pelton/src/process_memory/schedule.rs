//! When entries are moved together: if the process takes far more than it is known to need, and
//! again only as long as that helps.

use crate::limits::{
    DEFRAGMENT_FROM_PART, DEFRAGMENT_GAIN_PART, DEFRAGMENT_GROWTH_PART, DEFRAGMENT_JUDGE_MS,
    DEFRAGMENT_REST_MS, DEFRAGMENT_REST_TIMES,
};

/// What the process takes at one moment, beyond what it is known to need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stray {
    pub(super) bytes: u64,
    /// What its data takes.
    pub(super) data_bytes: u64,
    /// What the process may take beside its data.
    pub(super) beside_bytes: u64,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefragmentTurn {
    /// Nothing is to be moved.
    Rest,
    /// A pass is to begin, or to go on.
    Move,
    /// A pass was complete for long enough: these bytes went back; less than none if it has brought
    /// nothing.
    Judged(i64),
}

/// The schedule of passes.
#[derive(Debug, Default)]
pub(super) struct DefragmentSchedule(DefragmentStage);

#[derive(Debug, Default)]
enum DefragmentStage {
    #[default]
    Idle,
    Moving(Pass),
    /// The pass is complete since then.
    Complete(Pass, u64),
    /// The last pass has not helped: no other before then, unless so many bytes are exceeded.
    Resting {
        until_ms: u64,
        bytes: u64,
    },
}

/// A pass as it began.
#[derive(Clone, Copy, Debug)]
struct Pass {
    start_ms: u64,
    stray_bytes: u64,
    data_bytes: u64,
}

impl DefragmentSchedule {
    /// Looks at what the process takes.
    pub(super) fn look(&mut self, now_ms: u64, stray: Stray) -> DefragmentTurn {
        match self.0 {
            DefragmentStage::Moving(_) => DefragmentTurn::Move,
            DefragmentStage::Complete(_, end_ms) if now_ms < end_ms + DEFRAGMENT_JUDGE_MS => {
                DefragmentTurn::Rest
            }
            DefragmentStage::Complete(pass, end_ms) => {
                self.0 = pass.judged(end_ms, now_ms, stray);
                DefragmentTurn::Judged(pass.stray_bytes as i64 - stray.bytes as i64)
            }
            DefragmentStage::Resting { until_ms, bytes }
                if now_ms < until_ms && stray.bytes <= bytes =>
            {
                DefragmentTurn::Rest
            }
            _ if stray.bytes <= stray.beside_bytes / DEFRAGMENT_FROM_PART => {
                self.0 = DefragmentStage::Idle;
                DefragmentTurn::Rest
            }
            _ => {
                self.0 = DefragmentStage::Moving(Pass {
                    start_ms: now_ms,
                    stray_bytes: stray.bytes,
                    data_bytes: stray.data_bytes,
                });
                DefragmentTurn::Move
            }
        }
    }

    /// The pass is complete.
    pub(super) fn complete(&mut self, now_ms: u64) {
        if let DefragmentStage::Moving(pass) = self.0 {
            self.0 = DefragmentStage::Complete(pass, now_ms);
        }
    }
}

impl Pass {
    fn judged(self, end_ms: u64, now_ms: u64, stray: Stray) -> DefragmentStage {
        let gain_bytes = self.stray_bytes.saturating_sub(stray.bytes);
        // Entries that were removed meanwhile may have left more than was given back.
        let removed_bytes = self.data_bytes.saturating_sub(stray.data_bytes);
        if gain_bytes.max(removed_bytes) >= self.stray_bytes / DEFRAGMENT_GAIN_PART {
            return DefragmentStage::Idle;
        }
        let took_ms = end_ms.saturating_sub(self.start_ms);
        let rest_ms = DEFRAGMENT_REST_MS.max(took_ms.saturating_mul(DEFRAGMENT_REST_TIMES));
        DefragmentStage::Resting {
            until_ms: now_ms.saturating_add(rest_ms),
            bytes: stray.bytes + stray.beside_bytes / DEFRAGMENT_GROWTH_PART,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BESIDE: u64 = 64 << 20;

    fn stray(bytes: u64) -> Stray {
        Stray {
            bytes,
            data_bytes: 100,
            beside_bytes: BESIDE,
        }
    }

    /// Runs a pass that begins at this time and takes a second, and returns what was judged, and
    /// when.
    fn pass(schedule: &mut DefragmentSchedule, begin_ms: u64, before: u64, after: u64) -> u64 {
        assert_eq!(schedule.look(begin_ms, stray(before)), DefragmentTurn::Move);
        assert_eq!(
            schedule.look(begin_ms + 500, stray(0)),
            DefragmentTurn::Move,
            "to its end"
        );
        let end_ms = begin_ms + 1_000;
        schedule.complete(end_ms);
        let judged_ms = end_ms + DEFRAGMENT_JUDGE_MS;
        assert_eq!(
            schedule.look(judged_ms - 1, stray(before)),
            DefragmentTurn::Rest
        );
        let gain = before as i64 - after as i64;
        assert_eq!(
            schedule.look(judged_ms, stray(after)),
            DefragmentTurn::Judged(gain)
        );
        judged_ms
    }

    #[test]
    fn a_pass_begins_when_the_process_takes_far_too_much_and_again_while_it_helps() {
        let mut schedule = DefragmentSchedule::default();
        let from = BESIDE / DEFRAGMENT_FROM_PART;
        let mut now_ms = 5;
        for _ in 0..2 {
            assert_eq!(schedule.look(now_ms, stray(from)), DefragmentTurn::Rest);
            now_ms = pass(&mut schedule, now_ms, 8 * from, 7 * from);
            now_ms = pass(&mut schedule, now_ms, 7 * from, from);
        }
        schedule.complete(now_ms);
        assert_eq!(
            schedule.look(now_ms, stray(from)),
            DefragmentTurn::Rest,
            "there was none"
        );
    }

    #[test]
    fn what_does_not_help_is_done_again_after_a_rest() {
        let mut schedule = DefragmentSchedule::default();
        let (much, mut now_ms) = (BESIDE, 0);
        for _ in 0..3 {
            now_ms = pass(&mut schedule, now_ms, much, much - much / 8 + 1);
            assert_eq!(schedule.look(now_ms + 1, stray(much)), DefragmentTurn::Rest);
            now_ms += DEFRAGMENT_REST_MS;
            assert_eq!(schedule.look(now_ms - 1, stray(much)), DefragmentTurn::Rest);
        }
        // A long pass is followed by a long rest.
        assert_eq!(schedule.look(now_ms, stray(much)), DefragmentTurn::Move);
        schedule.complete(now_ms + DEFRAGMENT_REST_MS);
        now_ms += DEFRAGMENT_REST_MS + DEFRAGMENT_JUDGE_MS;
        assert_eq!(
            schedule.look(now_ms, stray(much)),
            DefragmentTurn::Judged(0)
        );
        now_ms += DEFRAGMENT_REST_TIMES * DEFRAGMENT_REST_MS;
        assert_eq!(schedule.look(now_ms - 1, stray(much)), DefragmentTurn::Rest);
        assert_eq!(schedule.look(now_ms, stray(much)), DefragmentTurn::Move);
    }

    #[test]
    fn a_rest_ends_when_there_is_much_more() {
        let mut schedule = DefragmentSchedule::default();
        let (much, mut now_ms) = (BESIDE, 0);
        for round in 0..2 {
            now_ms = pass(&mut schedule, now_ms, much + round, much + round);
            let more = much + round + BESIDE / DEFRAGMENT_GROWTH_PART;
            assert_eq!(schedule.look(now_ms, stray(more)), DefragmentTurn::Rest);
            now_ms = pass(&mut schedule, now_ms, more + 1, 0);
        }
    }

    #[test]
    fn a_pass_beside_many_removals_is_not_judged_by_what_it_brought() {
        let mut schedule = DefragmentSchedule::default();
        let mut now_ms = 0;
        for (removed_bytes, next) in [
            (BESIDE / 8, DefragmentTurn::Move),
            (BESIDE / 8 - 1, DefragmentTurn::Rest),
        ] {
            let before = Stray {
                data_bytes: BESIDE,
                ..stray(BESIDE)
            };
            let after = Stray {
                data_bytes: BESIDE - removed_bytes,
                ..before
            };
            assert_eq!(schedule.look(now_ms, before), DefragmentTurn::Move);
            schedule.complete(now_ms);
            now_ms += DEFRAGMENT_JUDGE_MS;
            assert_eq!(schedule.look(now_ms, after), DefragmentTurn::Judged(0));
            assert_eq!(schedule.look(now_ms, after), next);
            schedule.complete(now_ms);
            now_ms += DEFRAGMENT_JUDGE_MS;
            if next == DefragmentTurn::Move {
                let much = stray(2 * BESIDE);
                assert_eq!(
                    schedule.look(now_ms, much),
                    DefragmentTurn::Judged(-(BESIDE as i64))
                );
                now_ms += DEFRAGMENT_REST_MS;
            }
        }
    }

    #[test]
    fn what_has_gone_by_itself_ends_a_rest() {
        let mut schedule = DefragmentSchedule::default();
        let mut now_ms = pass(&mut schedule, 0, BESIDE, BESIDE);
        now_ms += DEFRAGMENT_REST_MS;
        assert_eq!(schedule.look(now_ms, stray(0)), DefragmentTurn::Rest);
        pass(&mut schedule, now_ms + 1, BESIDE, BESIDE);
    }
}
