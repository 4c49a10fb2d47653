//! A seeded generator.

use std::fmt;

/// Numbers that look random and come again with the same seed: SplitMix64 (Steele, Lea, Flood,
/// "Fast splittable pseudorandom number generators", 2014). Small, and good enough to choose test
/// cases. Printed in an assertion it says its seed.
#[derive(Clone)]
pub struct Random {
    seed: u64,
    state: u64,
}

/// A positive integer that [`Random::below`] can draw.
pub trait Bound: Copy {
    /// Reduces a number to one below `self`, which must not be 0.
    fn reduce(self, number: u64) -> Self;
}

macro_rules! bound {
    ($($integer:ty),*) => {$(
        impl Bound for $integer {
            fn reduce(self, number: u64) -> Self {
                (number % self as u64) as Self
            }
        }
    )*};
}

// A literal alone is an i32.
bound!(u8, u16, u32, u64, usize, i32);

impl Random {
    /// Returns the generator of a seed; any is good, also 0.
    pub fn new(seed: u64) -> Random {
        Random { seed, state: seed }
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below<T: Bound>(&mut self, bound: T) -> T {
        bound.reduce(self.number())
    }

    /// Returns true once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns true so many times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100_u64) < percent
    }

    /// Returns one of several.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// Returns fewer than `bound` bytes, each made by `byte`.
    pub fn bytes(&mut self, bound: usize, mut byte: impl FnMut(&mut Random) -> u8) -> Vec<u8> {
        (0..self.below(bound)).map(|_| byte(self)).collect()
    }
}

/// The numbers, without end.
impl Iterator for Random {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        Some(self.number())
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "seed {:#x}", self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of SplitMix64 for this seed, as other programs give them.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let numbers: Vec<u64> = Random::new(1_234_567).take(3).collect();
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut random = Random::new(1);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[random.below(5_usize)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
        assert!(!random.chance(0) && random.chance(100) && random.once_in(1));
        assert_eq!(format!("{random:?}"), "seed 0x1");
    }
}
