//! How load is added, and when enough is known: decided by what was measured so far.

use super::evidence::{LoadCeiling, LoadEvidence, LoadPoint};
use super::limits::{SPREAD_CONNECTIONS, STOP_LATENCY_FACTOR, STOP_LATENCY_LEAST};
use crate::pacing::{Arrivals, Pace};

/// Twice as many calls in flight that bring less than so many times the throughput bring nothing.
const FLAT: f64 = 1.15;

/// The share of the highest throughput from which on it is reached.
pub(super) const KNEE_SHARE: f64 = 0.8;

/// The share of the allowed rate from which on it is reached.
const CAPPED_SHARE: f64 = 0.85;

/// The part of the allowed rate below which calls that follow each other need no schedule: a first
/// figure may be low by chance.
const SURELY_BELOW: f64 = 0.4;

/// What throughput does while calls in flight become more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadShape {
    /// It comes to the rate that was allowed.
    Capped,
    /// It does not grow any more from so many calls in flight on.
    Saturated {
        /// The fewest calls in flight that bring it.
        knee: usize,
    },
    /// It grows up to the most calls in flight that were allowed.
    Growing,
    /// The experiments ended before one of these was known.
    Unknown,
}

/// Returns the calls in flight of the next experiment on one connection; `None`: enough is known.
pub fn next_in_flight(points: &[LoadPoint], ceiling: &LoadCeiling) -> Option<usize> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Some(1);
    };
    let is_enough = is_capped(points, ceiling) || is_flat(points) || is_slow(first, last);
    let next = last.in_flight.saturating_mul(2).min(ceiling.on_one());
    (!is_enough && next > last.in_flight).then_some(next)
}

/// Returns what throughput did on one connection.
pub fn shape(points: &[LoadPoint], ceiling: &LoadCeiling) -> LoadShape {
    let Some(last) = points.last() else {
        return LoadShape::Unknown;
    };
    let has_no_more = last.in_flight >= ceiling.on_one();
    if is_capped(points, ceiling) {
        LoadShape::Capped
    } else if is_flat(points) || (has_no_more && growth(points) < FLAT) {
        LoadShape::Saturated { knee: knee(points) }
    } else if has_no_more {
        LoadShape::Growing
    } else {
        LoadShape::Unknown
    }
}

/// The experiment with the highest throughput.
pub fn best(points: &[LoadPoint]) -> Option<&LoadPoint> {
    (points.iter()).max_by(|one, two| one.rate.total_cmp(&two.rate))
}

/// The best that one connection reached, in either of two runs.
pub(super) fn best_of_one(evidence: &LoadEvidence) -> f64 {
    let first = best(&evidence.one).map_or(0.0, |point| point.rate);
    let again = evidence.again.as_ref().map_or(0.0, |point| point.rate);
    first.max(again)
}

/// Returns what makes the calls of an experiment begin: each when another one has ended, unless
/// that could be more than is allowed each second.
pub fn pace(points: &[LoadPoint], in_flight: usize, ceiling: &LoadCeiling) -> Pace {
    let one_rate = |point: &LoadPoint| point.rate / point.in_flight.max(1) as f64;
    let most_rate = points.iter().map(one_rate).fold(0.0, f64::max) * in_flight as f64;
    match most_rate < ceiling.rate * SURELY_BELOW {
        true => Pace::Closed,
        false => ceiling.pace(),
    }
}

impl LoadCeiling {
    /// The most calls in flight on one connection: as many as the connections of the experiment
    /// that it is compared with can share evenly.
    fn on_one(&self) -> usize {
        match self.in_flight {
            ..=SPREAD_CONNECTIONS => self.in_flight,
            more => more - more % SPREAD_CONNECTIONS,
        }
    }

    /// Returns a schedule that never asks for more than is allowed.
    pub(super) fn pace(&self) -> Pace {
        Pace::Open {
            rate: self.rate,
            arrivals: Arrivals::Fixed,
        }
    }
}

fn is_capped(points: &[LoadPoint], ceiling: &LoadCeiling) -> bool {
    best(points).is_some_and(|best| best.rate >= ceiling.rate * CAPPED_SHARE)
}

/// How many times as much the last doubling brought.
fn growth(points: &[LoadPoint]) -> f64 {
    match points {
        [.., before, last] => last.rate / before.rate.max(1e-9),
        _ => f64::INFINITY,
    }
}

/// Whether two doublings in a row brought nothing.
fn is_flat(points: &[LoadPoint]) -> bool {
    let before = points.get(..points.len().saturating_sub(1));
    points.len() >= 3 && growth(points) < FLAT && before.is_some_and(|before| growth(before) < FLAT)
}

fn is_slow(first: &LoadPoint, last: &LoadPoint) -> bool {
    let allowed_ns = first.p99_ns.saturating_mul(STOP_LATENCY_FACTOR);
    last.p99_ns > allowed_ns.max(STOP_LATENCY_LEAST.as_nanos() as u64)
}

fn knee(points: &[LoadPoint]) -> usize {
    let most = best(points).map_or(0.0, |best| best.rate);
    let mut reached = points
        .iter()
        .filter(|point| point.rate >= most * KNEE_SHARE);
    reached.next().map_or(1, |point| point.in_flight)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CEILING, points};
    use super::*;

    #[test]
    fn load_doubles_until_it_brings_no_more() {
        assert_eq!(next_in_flight(&[], &CEILING), Some(1));
        let growing = points(&[100.0, 200.0, 390.0]);
        assert_eq!(next_in_flight(&growing, &CEILING), Some(8));
        assert_eq!(shape(&growing, &CEILING), LoadShape::Unknown);
        let flat = points(&[100.0, 200.0, 205.0, 206.0]);
        assert_eq!(next_in_flight(&flat, &CEILING), None);
        assert_eq!(shape(&flat, &CEILING), LoadShape::Saturated { knee: 2 });
        let once = points(&[100.0, 200.0, 205.0]);
        assert_eq!(next_in_flight(&once, &CEILING), Some(8));
        let serial = points(&[100.0, 101.0, 99.0]);
        assert_eq!(shape(&serial, &CEILING), LoadShape::Saturated { knee: 1 });
    }

    #[test]
    fn load_ends_at_what_is_allowed() {
        let capped = points(&[4_000.0, 8_600.0]);
        assert_eq!(next_in_flight(&capped, &CEILING), None);
        assert_eq!(shape(&capped, &CEILING), LoadShape::Capped);
        let rates: Vec<f64> = (0..9).map(|step| 10.0 * f64::from(1 << step)).collect();
        let growing = points(&rates);
        assert_eq!(growing.last().map(|point| point.in_flight), Some(256));
        assert_eq!(next_in_flight(&growing, &CEILING), None);
        assert_eq!(shape(&growing, &CEILING), LoadShape::Growing);
        let mut late = growing;
        late[8].rate = late[7].rate;
        assert_eq!(shape(&late, &CEILING), LoadShape::Saturated { knee: 128 });
    }

    /// The last experiment is compared with as many calls in flight on eight connections.
    #[test]
    fn the_last_step_can_be_spread_evenly() {
        for (allowed, most) in [
            (100, 96),
            (12, 8),
            (9, 8),
            (8, 8),
            (6, 6),
            (1, 1),
            (256, 256),
        ] {
            let ceiling = LoadCeiling {
                in_flight: allowed,
                ..CEILING
            };
            let mut growing = points(&[10.0]);
            while let Some(in_flight) = next_in_flight(&growing, &ceiling) {
                let mut next = points(&[10.0 * in_flight as f64]).remove(0);
                next.in_flight = in_flight;
                growing.push(next);
            }
            assert_eq!(growing.last().map(|point| point.in_flight), Some(most));
            if growing.len() > 1 {
                assert_eq!(shape(&growing, &ceiling), LoadShape::Growing, "{allowed}");
            }
        }
    }

    #[test]
    fn load_ends_when_calls_take_ten_times_as_long() {
        let mut slow = points(&[100.0, 200.0]);
        slow[1].p99_ns = slow[0].p99_ns * 10;
        assert_eq!(next_in_flight(&slow, &CEILING), Some(4));
        slow[1].p99_ns += 1;
        assert_eq!(next_in_flight(&slow, &CEILING), None);
        // A scheduler's turn is no harm.
        (slow[0].p99_ns, slow[1].p99_ns) = (100_000, 19_000_000);
        assert_eq!(next_in_flight(&slow, &CEILING), Some(4));
    }

    #[test]
    fn a_pace_that_could_be_too_fast_is_held_down() {
        assert_eq!(pace(&[], 1, &CEILING), Pace::Closed);
        let before = points(&[1_000.0]);
        assert_eq!(pace(&before, 2, &CEILING), Pace::Closed);
        let Pace::Open { rate, .. } = pace(&before, 8, &CEILING) else {
            panic!("it could be 8000 a second");
        };
        assert_eq!(rate, CEILING.rate);
    }
}
