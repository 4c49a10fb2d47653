//! Which key each operation is about.

use crate::random::Random;
use crate::zipf::Zipf;

/// How keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Each as often as any other.
    Uniform,
    /// A few very often, most hardly ever; with this exponent.
    Zipf(f64),
    /// One after the other, then from the start again.
    Sequential,
    /// The newest most often, then as [`Distribution::Zipf`] with this exponent.
    Latest(f64),
}

/// Chooses numbers of keys, from 0 to `count` - 1.
#[derive(Clone, Debug)]
pub struct KeyChooser {
    count: u64,
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    Uniform,
    Zipf(Zipf),
    Latest(Zipf),
    Sequential { next: u64, step: u64 },
}

impl KeyChooser {
    /// One thread's chooser: of `threads` sequential ones each takes every `threads`-th key,
    /// beginning with its own number.
    pub fn new(
        distribution: Distribution,
        count: u64,
        thread: usize,
        threads: usize,
    ) -> KeyChooser {
        let way = match distribution {
            Distribution::Uniform => Way::Uniform,
            Distribution::Zipf(exponent) => Way::Zipf(Zipf::new(count, exponent)),
            Distribution::Latest(exponent) => Way::Latest(Zipf::new(count, exponent)),
            Distribution::Sequential => Way::Sequential {
                next: thread as u64 % count,
                step: threads as u64 % count,
            },
        };
        KeyChooser { count, way }
    }

    /// The next key's number. `newer` keys have come to the first ones, and only
    /// [`Distribution::Latest`] chooses them.
    #[inline]
    pub fn next(&mut self, random: &mut Random, newer: u64) -> u64 {
        match &mut self.way {
            Way::Latest(zipf) => self.count + newer - 1 - zipf.next(random),
            Way::Uniform => random.below(self.count),
            Way::Zipf(zipf) => zipf.next(random),
            Way::Sequential { next, step } => {
                let number = *next;
                *next = (number + *step) % self.count;
                if *step == 0 {
                    // As many threads as keys: each still has to come by all of them.
                    *next = (number + 1) % self.count;
                }
                number
            }
        }
    }
}

/// What keys look like: numbers spread over as many hexadecimal digits as the key has bytes, at
/// most 16; what a longer key has beyond is the same in all. Neighbours in number are far apart in
/// order, and no table is needed.
#[derive(Clone, Copy, Debug)]
pub struct KeyFormat {
    bytes: usize,
    bits: u32,
}

impl KeyFormat {
    /// Keys of so many bytes, at least 1.
    pub fn new(bytes: usize) -> KeyFormat {
        KeyFormat {
            bytes,
            bits: (bytes.clamp(1, 16) * 4) as u32,
        }
    }

    /// How many different keys there are.
    pub fn distinct(&self) -> u128 {
        1 << self.bits
    }

    /// Writes the key of a number over what `into` holds.
    #[inline]
    pub fn write(&self, number: u64, into: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        into.clear();
        into.resize(self.bytes.saturating_sub(16), b'k');
        // The first digit stands in the highest bits.
        let spread = self.spread(number) << (64 - self.bits);
        let mut text = [0; 16];
        for (at, digit) in text.iter_mut().enumerate() {
            *digit = DIGITS[(spread >> (60 - at * 4)) as usize & 15];
        }
        into.extend_from_slice(&text[..self.bits as usize / 4]);
    }

    /// Maps numbers below 2^bits one to one onto numbers below 2^bits that look random.
    fn spread(&self, number: u64) -> u64 {
        let mask = u64::MAX >> (64 - self.bits);
        let half = self.bits / 2;
        let mut mixed = number & mask;
        for factor in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
            mixed = (mixed ^ (mixed >> half)).wrapping_mul(factor) & mask;
        }
        mixed ^ (mixed >> half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_and_of_their_size() {
        for bytes in [1, 2, 3, 5, 16, 40] {
            let format = KeyFormat::new(bytes);
            let count = format.distinct().min(5_000) as u64;
            let mut key = Vec::new();
            let keys: HashSet<Vec<u8>> = (0..count)
                .map(|number| {
                    format.write(number, &mut key);
                    assert_eq!(key.len(), bytes);
                    key.clone()
                })
                .collect();
            assert_eq!(keys.len() as u64, count, "{bytes} bytes");
        }
    }

    /// What one version has stored, another one must find.
    #[test]
    fn keys_are_those_of_other_versions() {
        let mut key = Vec::new();
        for (bytes, number, expected) in [
            (1, 1, "b"),
            (1, 2, "7"),
            (1, 3, "3"),
            (5, 1, "a4310"),
            (5, 2, "48220"),
            (5, 3, "fdb1b"),
            (16, 1, "9364959128e9190d"),
            (16, 2, "1398193864830000"),
            (16, 3, "35922aead8d936ce"),
            (18, 1, "kk9364959128e9190d"),
            (18, 2, "kk1398193864830000"),
            (18, 3, "kk35922aead8d936ce"),
        ] {
            KeyFormat::new(bytes).write(number, &mut key);
            assert_eq!(
                String::from_utf8_lossy(&key),
                expected,
                "{number} of {bytes} bytes"
            );
        }
    }

    #[test]
    fn sequential_threads_share_the_keys_out() {
        let mut random = Random::new(1);
        let mut seen: Vec<u64> = (0..3)
            .flat_map(|thread| {
                let mut keys = KeyChooser::new(Distribution::Sequential, 12, thread, 3);
                (0..4)
                    .map(|_| keys.next(&mut random, 0))
                    .collect::<Vec<_>>()
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
        let mut both = KeyChooser::new(Distribution::Sequential, 2, 1, 2);
        let seen: Vec<u64> = (0..4).map(|_| both.next(&mut random, 0)).collect();
        assert_eq!(seen, [1, 0, 1, 0]);
        let mut one = KeyChooser::new(Distribution::Sequential, 1, 0, 1);
        assert_eq!((one.next(&mut random, 0), one.next(&mut random, 0)), (0, 0));
    }

    /// Every tenth of the keys gets a tenth of the draws.
    #[test]
    fn uniform_keys_are_uniform() {
        let mut random = Random::new(7);
        let mut keys = KeyChooser::new(Distribution::Uniform, 1_000, 0, 1);
        let mut tenths = [0_u64; 10];
        for _ in 0..100_000 {
            tenths[keys.next(&mut random, 0) as usize / 100] += 1;
        }
        assert!(
            tenths.iter().all(|&times| times.abs_diff(10_000) < 600),
            "{tenths:?}"
        );
    }
}
