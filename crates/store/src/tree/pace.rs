//! How much writers are held back, so that the device keeps up and nobody waits long at once.

use super::limits;

/// What the one who commits should do before the next group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Nothing: the device keeps up.
    None,
    /// Wait for so many nanoseconds, at most [`DELAY_NS`](limits::DELAY_NS).
    Slow {
        /// How long.
        delay_ns: u64,
    },
    /// Refuse commits that grow the database until memtables have been flushed.
    Refuse,
}

impl Pressure {
    /// The same for a tree that has no folder yet, and so nothing but an active memtable.
    pub(super) fn of_unmade(active_share: f64) -> Pressure {
        if active_share >= limits::UNMADE_MEMTABLES as f64 {
            return Pressure::Refuse;
        }
        Pressure::of(0, 0.0, 0)
    }

    /// By the sealed memtables, how full the active one is (0 to 1), and the runs of tables in the
    /// first level. The delay grows with the square of what is behind, so that it sets in gently,
    /// and without a jump when a memtable is sealed.
    pub(super) fn of(sealed: usize, active_share: f64, first_level_runs: usize) -> Pressure {
        if sealed >= limits::SEALED_MEMTABLES_MAX {
            return Pressure::Refuse;
        }
        // One sealed memtable is the usual state while it is flushed.
        let behind = sealed as f64 + active_share.clamp(0.0, 1.0) - 2.0;
        let memory = behind / (limits::SEALED_MEMTABLES as f64 - 1.0);
        let from = limits::FIRST_LEVEL_RUNS;
        let runs = first_level_runs.saturating_sub(from) as f64
            / (limits::FIRST_LEVEL_RUNS_MAX - from) as f64;
        let share = memory.max(runs).clamp(0.0, 1.0);
        match (share * share * limits::DELAY_NS as f64) as u64 {
            0 => Pressure::None,
            delay_ns => Pressure::Slow { delay_ns },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay_ns(pressure: Pressure) -> u64 {
        match pressure {
            Pressure::None => 0,
            Pressure::Slow { delay_ns } => delay_ns,
            Pressure::Refuse => u64::MAX,
        }
    }

    #[test]
    fn it_sets_in_smoothly_and_has_a_bound() {
        let mut last_ns = 0;
        for step in 0..=400 {
            let (sealed, share) = (step / 100, f64::from(step % 100) / 100.0);
            let now_ns = delay_ns(Pressure::of(sealed as usize, share, 0));
            assert!(now_ns >= last_ns && now_ns <= limits::DELAY_NS);
            assert!(now_ns - last_ns < limits::DELAY_NS / 40, "a jump at {step}");
            last_ns = now_ns;
        }
        assert_eq!(last_ns, limits::DELAY_NS);
        assert_eq!(Pressure::of(1, 0.99, 0), Pressure::None);
        let most = Pressure::of(limits::SEALED_MEMTABLES_MAX - 1, 1.0, 1000);
        assert_eq!(delay_ns(most), limits::DELAY_NS);
        let full = Pressure::of(limits::SEALED_MEMTABLES_MAX, 0.0, 0);
        assert_eq!(full, Pressure::Refuse);
    }

    #[test]
    fn tables_in_the_first_level_count_too() {
        assert_eq!(
            Pressure::of(0, 0.0, limits::FIRST_LEVEL_RUNS),
            Pressure::None
        );
        let slowed = Pressure::of(0, 0.0, limits::FIRST_LEVEL_RUNS_MAX);
        assert_eq!(delay_ns(slowed), limits::DELAY_NS);
    }
}
