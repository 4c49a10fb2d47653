//! Zipf's distribution: the k-th most wanted of `count` things is wanted in proportion to
//! k^-exponent.
//!
//! By rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from
//! monotone discrete distributions", 1996): no table, a constant time a number, any exponent above
//! 0.

use crate::random::Random;

/// A distribution over 0 to `count` - 1, the first the most wanted.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    /// What is accepted without a further look.
    sure: f64,
}

impl Zipf {
    /// # Panics
    /// If `count` is 0 or the exponent is not above 0: the caller checks what a user wrote.
    pub fn new(count: u64, exponent: f64) -> Zipf {
        assert!(count > 0 && exponent > 0.0, "a distribution over something");
        let count = count as f64;
        let mut zipf = Zipf {
            count,
            exponent,
            integral_first: 0.0,
            integral_last: 0.0,
            sure: 0.0,
        };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(count + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// The next number.
    pub fn next(&self, random: &mut Random) -> u64 {
        loop {
            let span = self.integral_first - self.integral_last;
            let area = self.integral_last + random.unit() * span;
            let x = self.inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.count);
            if self.is_sure(rank, x) || self.is_below(rank, area) {
                return rank as u64 - 1;
            }
        }
    }

    /// Whether [`Zipf::is_below`] is true for certain: saves its logarithms most of the time.
    #[inline]
    fn is_sure(&self, rank: f64, x: f64) -> bool {
        rank - x <= self.sure
    }

    /// Whether a point, the inverse of `area`, lies below the step of `rank`.
    #[inline]
    fn is_below(&self, rank: f64, area: f64) -> bool {
        area >= self.integral(rank + 0.5) - self.weight(rank)
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of `weight`, (x^(1-e) - 1) / (1-e), also where the exponent is near 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over((1.0 - self.exponent) * log) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (log1p_over(scaled) * area).exp()
    }
}

/// (e^x - 1) / x
fn expm1_over(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { x.exp_m1() / x }
}

/// ln(1 + x) / x
fn log1p_over(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { x.ln_1p() / x }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts against the definition, for exponents below, at and above 1.
    #[test]
    fn frequencies_are_those_of_the_definition() {
        const DRAWS: u64 = 400_000;
        for (count, exponent) in [(10, 0.5), (100, 0.99), (100, 1.0), (1_000, 1.2), (5, 3.0)] {
            let zipf = Zipf::new(count, exponent);
            let mut random = Random::new(count);
            let mut seen = vec![0_u64; count as usize];
            for _ in 0..DRAWS {
                seen[zipf.next(&mut random) as usize] += 1;
            }
            let total: f64 = (1..=count).map(|rank| (rank as f64).powf(-exponent)).sum();
            for (index, &times) in seen.iter().enumerate() {
                let expected = ((index + 1) as f64).powf(-exponent) / total * DRAWS as f64;
                // Six standard deviations: one in a billion for each of 1215 counts.
                let allowed = 6.0 * expected.sqrt() + 6.0;
                assert!(
                    (times as f64 - expected).abs() < allowed,
                    "{count} {exponent}: {index} came {times} times, not {expected:.0}"
                );
            }
        }
    }

    /// Both are exact however near to 0: exponents near 1 are no exceptions.
    #[test]
    fn quotients_near_zero_are_exact() {
        for x in [
            0.0, 1e-300, 1e-17, -1e-17, 1e-9, -1e-9, 1e-8, -1e-8, 1e-7, -1e-7,
        ] {
            // The next terms are less than the last digit.
            assert!(
                (expm1_over(x) - (1.0 + x / 2.0 + x * x / 6.0)).abs() < 4e-16,
                "{x}"
            );
            assert!(
                (log1p_over(x) - (1.0 - x / 2.0 + x * x / 3.0)).abs() < 4e-16,
                "{x}"
            );
        }
    }

    /// The short way is as long as it can be: at the second rank, where it is shortest, it ends
    /// where the exact one does.
    #[test]
    fn what_is_sure_is_also_below_the_step() {
        for exponent in [0.3, 0.99, 1.0, 1.2, 3.0] {
            let zipf = Zipf::new(1_000, exponent);
            let mut sure = 0;
            for rank in 2..=1_000_u32 {
                let rank = f64::from(rank);
                for part in 0..100 {
                    let x = rank - 0.5 + f64::from(part) / 100.0;
                    if zipf.is_sure(rank, x) {
                        sure += 1;
                        let is_below = zipf.is_below(rank, zipf.integral(x));
                        assert!(is_below, "{exponent}: {x} of {rank}");
                    }
                }
            }
            assert!(sure > 0, "{exponent}");
            // Both change from false to true as x grows.
            let edge = |is_it: &dyn Fn(f64) -> bool| {
                let (mut low, mut high) = (1.5, 2.5);
                assert!(!is_it(low) && is_it(high), "{exponent}");
                for _ in 0..50 {
                    let middle = (low + high) / 2.0;
                    *(if is_it(middle) { &mut high } else { &mut low }) = middle;
                }
                high
            };
            let short = edge(&|x| zipf.is_sure(2.0, x));
            let exact = edge(&|x| zipf.is_below(2.0, zipf.integral(x)));
            assert!((short - exact).abs() < 1e-9, "{exponent}: {short} {exact}");
        }
    }

    #[test]
    fn one_thing_is_always_taken_and_large_counts_stay_in_range() {
        let mut random = Random::new(1);
        let one = Zipf::new(1, 0.99);
        assert!((0..100).all(|_| one.next(&mut random) == 0));
        let many = Zipf::new(10_000_000_000, 0.8);
        let drawn: Vec<u64> = (0..10_000).map(|_| many.next(&mut random)).collect();
        assert!(drawn.iter().all(|&number| number < 10_000_000_000));
        assert!(drawn.iter().any(|&number| number > 1_000_000_000));
    }
}
