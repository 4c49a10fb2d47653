//! Where more load brings no more throughput.
//!
//! The *knee* is the least load whose median throughput is at least [`limits::KNEE_PERCENT`] of the
//! best median. If that is the largest load that was swept, throughput may grow on: no knee was
//! found. Runs of one cell differ, so the knee has a range: it could lie as low as the first load
//! whose best run reaches so much of the worst run at the best load, and as high as the first
//! whose worst run reaches so much of the best run there.
//!
//! The load of the largest *power*, throughput divided by mean latency (Kleinrock, "Power and
//! deterministic rules of thumb for probabilistic problems in computer communications", 1979), is
//! where one more call begins to cost more waiting than it brings.

use super::figures::Spread;
use super::limits;

/// One load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KneePoint {
    /// Its number among the values of the parameter.
    pub value: usize,
    /// What was done.
    pub throughput: Spread,
    /// The mean latency in microseconds.
    pub mean_us: Option<f64>,
}

/// Where the knee is. Numbers are those of [`KneePoint::value`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Knee {
    /// Fewer than [`limits::KNEE_VALUES_LEAST`] loads were measured.
    TooFew,
    /// Here.
    At {
        /// The load.
        value: usize,
        /// How low it could lie.
        low: usize,
        /// How high it could lie; `None`: it could be beyond what was swept.
        high: Option<usize>,
        /// It is the least load that was swept: it may lie below.
        is_least: bool,
    },
    /// Throughput still grew.
    Beyond {
        /// From the last load but one to the last, in percent.
        growth_percent: f64,
        /// As the runs differ, the knee could also be here.
        low: Option<usize>,
    },
}

/// Finds the knee of loads in ascending order.
pub fn knee(points: &[KneePoint]) -> Knee {
    let best = points
        .iter()
        .max_by(|one, two| one.throughput.median.total_cmp(&two.throughput.median));
    let (Some(best), [first, .., before, last]) = (best, points) else {
        return Knee::TooFew;
    };
    if points.len() < limits::KNEE_VALUES_LEAST {
        return Knee::TooFew;
    }
    let best = best.throughput;
    let first_with = |reaches: &dyn Fn(&Spread) -> bool| {
        let point = points.iter().find(|point| reaches(&point.throughput));
        point.map(|point| point.value)
    };
    let share = limits::KNEE_PERCENT as f64 / 100.0;
    let value = first_with(&|one| one.median >= share * best.median).unwrap_or(last.value);
    let low = first_with(&|one| one.most >= share * best.least).unwrap_or(value);
    let high = first_with(&|one| one.least >= share * best.most);
    if value == last.value {
        let growth = last.throughput.median / before.throughput.median - 1.0;
        return Knee::Beyond {
            growth_percent: growth * 100.0,
            low: Some(low).filter(|&low| low < value),
        };
    }
    Knee::At {
        value,
        low: low.min(value),
        high: high
            .map(|high| high.max(value))
            .filter(|&high| high < last.value),
        is_least: value == first.value,
    }
}

/// The load with the largest throughput divided by mean latency.
pub fn most_power(points: &[KneePoint]) -> Option<usize> {
    let power = |point: &KneePoint| {
        let mean_us = point.mean_us.filter(|&mean_us| mean_us > 0.0)?;
        Some((point.value, point.throughput.median / mean_us))
    };
    let powers = points.iter().filter_map(power);
    powers
        .max_by(|one, two| one.1.total_cmp(&two.1))
        .map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Medians, with runs that differ by so many percent to each side.
    fn points(medians: &[f64], percent: f64) -> Vec<KneePoint> {
        let point = |(value, &median): (usize, &f64)| KneePoint {
            value,
            throughput: Spread {
                median,
                least: median * (1.0 - percent / 100.0),
                most: median * (1.0 + percent / 100.0),
            },
            // In flight by throughput: Little's law, with 1, 2, 4, … in flight.
            mean_us: Some(f64::from(1 << value) * 1e6 / median),
        };
        medians.iter().enumerate().map(point).collect()
    }

    #[test]
    fn the_knee_is_the_least_load_that_reaches_the_best() {
        let curve = [100.0, 200.0, 390.0, 480.0, 500.0, 490.0];
        let found = knee(&points(&curve, 0.0));
        let at = Knee::At {
            value: 3,
            low: 3,
            high: Some(3),
            is_least: false,
        };
        assert_eq!(found, at);
    }

    #[test]
    fn runs_that_differ_widen_the_range() {
        let curve = [100.0, 200.0, 390.0, 455.0, 480.0, 500.0, 490.0];
        let Knee::At {
            value, low, high, ..
        } = knee(&points(&curve, 3.0))
        else {
            panic!("there is a knee");
        };
        // 455 may be 468, and the best 485, of which 460 is enough. 480 may be 466, and the best
        // 515, of which 489 would be enough.
        assert_eq!((value, low, high), (4, 3, None));
    }

    #[test]
    fn throughput_that_grows_to_the_end_has_no_knee() {
        let Knee::Beyond {
            growth_percent,
            low,
        } = knee(&points(&[100.0, 200.0, 300.0, 360.0], 1.0))
        else {
            panic!("there is none");
        };
        assert!((growth_percent - 20.0).abs() < 1e-9);
        assert_eq!(low, None);
        let noisy = knee(&points(&[100.0, 200.0, 300.0, 325.0], 3.0));
        assert!(
            matches!(noisy, Knee::Beyond { low: Some(2), .. }),
            "{noisy:?}"
        );
    }

    #[test]
    fn throughput_that_never_grows_has_its_knee_at_the_least_load() {
        let found = knee(&points(&[100.0, 101.0, 99.0], 1.0));
        assert!(
            matches!(
                found,
                Knee::At {
                    value: 0,
                    is_least: true,
                    ..
                }
            ),
            "{found:?}"
        );
    }

    #[test]
    fn two_loads_are_too_few() {
        for count in 0..3 {
            let curve = &[100.0, 200.0, 300.0][..count];
            assert_eq!(knee(&points(curve, 0.0)), Knee::TooFew);
        }
    }

    #[test]
    fn power_is_throughput_by_latency() {
        // Times in flight 1, 2, 4, 8: squares of throughput by in flight.
        let curve = points(&[100.0, 190.0, 300.0, 320.0], 0.0);
        assert_eq!(most_power(&curve), Some(2));
        assert_eq!(most_power(&[]), None);
    }
}
