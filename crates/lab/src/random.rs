//! Seeded random numbers: splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).

/// A row of random numbers, the same for the same seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins the row of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The row of one of several threads, independent of the others'.
    pub fn of_thread(seed: u64, thread: usize) -> Random {
        let mut seeds = Random::new(seed);
        let own = (0..=thread).map(|_| seeds.next()).last();
        Random::new(own.unwrap_or(seed))
    }

    /// The next number.
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound` - 1; 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0, included, to 1, not included.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number with this mean, distributed exponentially: the time between arrivals that know nothing of each other.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}
