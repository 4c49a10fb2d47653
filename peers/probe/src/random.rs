//! Seeded random numbers: splitmix64, whose step is also a bijection that spreads key numbers.

/// A stream of random numbers, the same for the same seed.
pub struct Random(u64);

impl Random {
    /// Begins the stream of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number of the stream.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        spread(self.0)
    }

    /// A number from 0 to `bound` - 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Maps numbers one to one onto numbers that look random.
pub fn spread(value: u64) -> u64 {
    let mut mixed = value;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
