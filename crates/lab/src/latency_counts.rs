//! Latencies in wide buckets, which one thread counts while others read them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::limits;

/// Bits of a latency that tell buckets apart below its highest one: a bucket is a 32nd of its least
/// value wide.
const BUCKET_BITS: u32 = 5;

/// Buckets: all that are needed below [`limits::LATENCY_MAX`].
const BUCKETS: usize = bucket_of(limits::LATENCY_MAX.as_nanos() as u64) + 1;

/// Returns the bucket of a latency.
const fn bucket_of(ns: u64) -> usize {
    let highest_bit = 63 - (ns | 1).leading_zeros();
    let shift = highest_bit.saturating_sub(BUCKET_BITS);
    ((shift as usize) << BUCKET_BITS) + (ns >> shift) as usize
}

/// Returns the latency in the middle of a bucket.
fn middle_of(bucket: usize) -> u64 {
    let per_doubling = 1_usize << BUCKET_BITS;
    let shift = (bucket / per_doubling).saturating_sub(1);
    let least = ((bucket - shift * per_doubling) as u64) << shift;
    least + ((1_u64 << shift) >> 1)
}

/// What one thread counts, and any thread may read: without a lock, and without a step for the one
/// that counts when it is read.
#[derive(Debug)]
pub struct SharedLatencies {
    counts: Box<[AtomicU64]>,
}

impl Default for SharedLatencies {
    fn default() -> SharedLatencies {
        SharedLatencies {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl SharedLatencies {
    /// Counts a latency. For one thread only, which alone writes: so a plain addition is enough.
    #[inline]
    pub(crate) fn record(&self, ns: u64) {
        let bucket = bucket_of(ns).min(BUCKETS - 1);
        if let Some(count) = self.counts.get(bucket) {
            count.store(count.load(Relaxed) + 1, Relaxed);
        }
    }
}

/// How many latencies lie in each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LatencyCounts {
    counts: Vec<u64>,
}

impl Default for LatencyCounts {
    fn default() -> LatencyCounts {
        LatencyCounts {
            counts: vec![0; BUCKETS],
        }
    }
}

impl LatencyCounts {
    /// Adds what a thread has counted so far.
    pub(crate) fn add_shared(&mut self, shared: &SharedLatencies) {
        for (count, other) in self.counts.iter_mut().zip(&shared.counts) {
            *count += other.load(Relaxed);
        }
    }

    /// Adds others.
    pub(crate) fn add(&mut self, others: &LatencyCounts) {
        for (count, other) in self.counts.iter_mut().zip(&others.counts) {
            *count += other;
        }
    }

    /// Returns what has come since `earlier`.
    pub(crate) fn since(&self, earlier: &LatencyCounts) -> LatencyCounts {
        let pairs = self.counts.iter().zip(&earlier.counts);
        LatencyCounts {
            counts: pairs
                .map(|(now, before)| now.saturating_sub(*before))
                .collect(),
        }
    }

    /// Returns the latency in nanoseconds that this share of all stays at or below, to 1.6 %;
    /// `None`: there is none.
    pub(crate) fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let total: u64 = self.counts.iter().sum();
        let rank = ((total as f64 * quantile).ceil() as u64).max(1);
        let mut below = 0;
        let bucket = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        bucket.map(middle_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_latencies_within_a_32nd() {
        let mut before = 0;
        for ns in (0..200_000).chain((18..42).map(|bit| 1 << bit)) {
            let bucket = bucket_of(ns);
            assert!((before..BUCKETS).contains(&bucket), "{ns}");
            before = bucket;
            let apart = middle_of(bucket).abs_diff(ns) as f64;
            assert!(apart <= ns as f64 / 60.0, "{ns}: {}", middle_of(bucket));
        }
    }

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let shared = SharedLatencies::default();
        let mut first = LatencyCounts::default();
        assert_eq!(first.quantile_ns(0.5), None);
        for us in 1..=1_000 {
            shared.record(us * 1_000);
        }
        first.add_shared(&shared);
        for (quantile, us) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0), (0.0, 1.0)] {
            let found = first.quantile_ns(quantile).expect("there are some") as f64 / 1e3;
            assert!((found / us - 1.0).abs() < 0.017, "{quantile}: {found}");
        }
        for _ in 0..10 {
            shared.record(7_000_000);
        }
        let mut both = LatencyCounts::default();
        both.add_shared(&shared);
        let second = both.since(&first);
        let least = second.quantile_ns(0.0).expect("there are ten") as f64;
        assert!((least / 7e6 - 1.0).abs() < 0.017, "{least}");
        let mut sum = first.clone();
        sum.add(&second);
        assert_eq!(sum, both);
    }

    #[test]
    fn the_longest_latencies_are_not_told_apart() {
        let shared = SharedLatencies::default();
        shared.record(u64::MAX);
        let mut counts = LatencyCounts::default();
        counts.add_shared(&shared);
        let longest = counts.quantile_ns(0.5).expect("there is one");
        assert!(longest >= limits::LATENCY_MAX.as_nanos() as u64 / 100 * 98);
    }
}
