//! The values that are written.

use bytes::Bytes;
use std::ops::Range;

use client::SharedBytes;

use crate::limits;
use crate::random::Random;

/// How large values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSizes {
    /// All of this size, in bytes.
    Fixed(usize),
    /// Distributed exponentially with this mean, in bytes; at most
    /// [`limits::EXPONENTIAL_MAX_MEANS`] times as large.
    Exponential(usize),
}

impl ValueSizes {
    /// The largest that may come.
    pub fn max_bytes(self) -> usize {
        match self {
            ValueSizes::Fixed(bytes) => bytes,
            ValueSizes::Exponential(mean) => mean.saturating_mul(limits::EXPONENTIAL_MAX_MEANS),
        }
    }

    /// The usual one.
    pub fn mean_bytes(self) -> usize {
        match self {
            ValueSizes::Fixed(bytes) | ValueSizes::Exponential(bytes) => bytes,
        }
    }

    /// The next size.
    #[inline]
    pub fn next(self, random: &mut Random) -> usize {
        match self {
            ValueSizes::Fixed(bytes) => bytes,
            ValueSizes::Exponential(mean) => {
                let bytes = random.exponential(mean as f64).round() as usize;
                bytes.min(self.max_bytes())
            }
        }
    }
}

/// Values: pieces of random bytes, so that nobody on the way can compress them away.
#[derive(Clone, Debug)]
pub struct Values {
    sizes: ValueSizes,
    bytes: Bytes,
}

impl Values {
    /// Values of these sizes.
    pub fn new(sizes: ValueSizes, random: &mut Random) -> Values {
        let length = sizes.max_bytes() + limits::VALUE_POOL_BYTES;
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&random.next().to_le_bytes());
        }
        Values {
            sizes,
            bytes: bytes.into(),
        }
    }

    /// The next value.
    #[inline]
    pub fn next(&self, random: &mut Random) -> &[u8] {
        let size = self.sizes.next(random);
        &self.bytes[self.piece(size, random)]
    }

    /// The next value, of which nothing is copied.
    pub fn next_shared(&self, random: &mut Random) -> SharedBytes {
        let size = self.sizes.next(random);
        SharedBytes::part(self.bytes.clone(), self.piece(size, random))
    }

    /// A value with one byte more, so that none is empty.
    pub fn next_with_one_more(&self, random: &mut Random) -> &[u8] {
        let size = self.sizes.next(random) + 1;
        &self.bytes[self.piece(size, random)]
    }

    #[inline]
    fn piece(&self, size: usize, random: &mut Random) -> Range<usize> {
        let start = random.below((self.bytes.len() - size) as u64 + 1) as usize;
        start..start + size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and spread of the exponential distribution: both are the mean; and half of it lies
    /// below mean times ln 2.
    #[test]
    fn exponential_sizes_have_their_mean_and_shape() {
        for mean in [50_usize, 1_000, 20_000] {
            let mut random = Random::new(mean as u64);
            let sizes = ValueSizes::Exponential(mean);
            let drawn: Vec<f64> = (0..200_000)
                .map(|_| sizes.next(&mut random) as f64)
                .collect();
            let count = drawn.len() as f64;
            let found = drawn.iter().sum::<f64>() / count;
            let variance = drawn.iter().map(|x| (x - found).powi(2)).sum::<f64>() / count;
            let median = mean as f64 * std::f64::consts::LN_2;
            let below = drawn.iter().filter(|&&x| x < median).count() as f64 / count;
            assert!((found / mean as f64 - 1.0).abs() < 0.02, "mean {found}");
            assert!(
                (variance.sqrt() / mean as f64 - 1.0).abs() < 0.03,
                "{variance}"
            );
            assert!((below - 0.5).abs() < 0.02, "{below} below the median");
            assert!(drawn.iter().all(|&x| x <= sizes.max_bytes() as f64));
        }
    }

    #[test]
    fn values_have_their_sizes_and_differ() {
        let mut random = Random::new(3);
        let values = Values::new(ValueSizes::Fixed(100), &mut random);
        let first = values.next(&mut random).to_vec();
        assert_eq!(first.len(), 100);
        assert!((0..10).any(|_| values.next(&mut random) != first));
        let (mut one, mut other) = (random.clone(), random.clone());
        assert_eq!(values.next(&mut one), &*values.next_shared(&mut other));
        let empty = Values::new(ValueSizes::Fixed(0), &mut random);
        assert_eq!(empty.next(&mut random), b"");
    }
}
