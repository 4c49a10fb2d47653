//! Numbers that look random and come again with the same seed.

/// A small generator for tests (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom
/// number generators", 2014). Not for secrets. That of `testkit` cannot be used here: this is part
/// of the library, and `testkit` is for dev-dependencies only.
#[derive(Clone, Debug)]
pub struct SplitMix {
    state: u64,
}

impl SplitMix {
    /// Any seed is good, also 0.
    pub fn new(seed: u64) -> SplitMix {
        SplitMix { state: seed }
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below 0");
        // The upper half of the product: even enough for tests, without division.
        ((u128::from(self.any()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both possible.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        match (high - low).checked_add(1) {
            Some(width) => low + self.below(width),
            None => self.any(),
        }
    }

    /// True so many times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix;

    #[test]
    fn numbers_stay_in_their_bounds_and_reach_them() {
        let mut random = SplitMix::new(1);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[random.between(3, 7) as usize - 3] += 1;
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
        assert!(!random.chance(0) && random.chance(1_000_000));
        random.between(0, u64::MAX);
    }
}
