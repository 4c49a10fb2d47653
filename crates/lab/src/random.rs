//! Seeded random numbers: splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", 2014).

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

    /// A number with this mean, distributed exponentially: the time between arrivals that know
    /// nothing of each other.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of splitmix64 for this seed, as other programs give them.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let numbers: Vec<u64> = (0..5).map(|_| random.next()).collect();
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }

    /// Each is the share of a number in all that there are.
    #[test]
    fn bounded_numbers_follow_from_the_whole_ones() {
        let mut whole = Random::new(7);
        let (mut below, mut unit, mut exponential) = (whole.clone(), whole.clone(), whole.clone());
        for _ in 0..1_000 {
            let number = whole.next();
            let part = (number >> 11) as f64 / 9_007_199_254_740_992.0;
            assert_eq!(below.below(1_000), (part * 1_000.0) as u64);
            assert_eq!(unit.unit(), part);
            assert_eq!(exponential.exponential(50.0), -50.0 * (1.0 - part).ln());
        }
        assert_eq!((below.below(0), below.below(1)), (0, 0));
    }

    /// The seeds of threads are numbers of the seed's own row, one for each.
    #[test]
    fn each_thread_has_a_row_of_its_own() {
        let mut seeds = Random::new(5);
        for thread in 0..3 {
            let mut expected = Random::new(seeds.next());
            assert_eq!(Random::of_thread(5, thread).next(), expected.next());
        }
    }
}
