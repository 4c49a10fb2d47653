//! From values to places on an axis.

/// An axis from one value to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    from: f64,
    until: f64,
    is_log: bool,
}

/// How many lines an axis has, about.
const TICKS: f64 = 5.0;

/// Lines of an axis at most, whatever its values are.
const TICKS_MOST: usize = 24;

impl Scale {
    /// From nothing to a little above the largest value.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>) -> Scale {
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        Scale {
            from: 0.0,
            until: if most > 0.0 { most * 1.05 } else { 1.0 },
            is_log: false,
        }
    }

    /// From below the smallest to above the largest, each factor of ten equally long. Values that
    /// are not above 0 have no place on it.
    pub(super) fn logarithmic(values: impl Iterator<Item = f64>) -> Scale {
        let (least, most) = values
            .filter(|value| value.is_finite() && *value > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        let (from, until) = match most > 0.0 {
            true => (least / 1.25, most * 1.25),
            false => (0.1, 1.0),
        };
        Scale {
            from,
            until,
            is_log: true,
        }
    }

    /// The share of the axis that lies before a value, from 0 to 1; `None`: it has no place.
    pub(super) fn share(&self, value: f64) -> Option<f64> {
        let (value, from, until) = match self.is_log {
            true => (value.ln(), self.from.ln(), self.until.ln()),
            false => (value, self.from, self.until),
        };
        let share = (value - from) / (until - from);
        share.is_finite().then(|| share.clamp(0.0, 1.0))
    }

    /// Values at which a line helps.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let ticks = match self.is_log {
            true => self.log_ticks(),
            false => self.plain_ticks(),
        };
        ticks.into_iter().take(TICKS_MOST).collect()
    }

    fn plain_ticks(&self) -> Vec<f64> {
        let rough = (self.until - self.from) / TICKS;
        let power = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = steps.into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.from / step).ceil() as i64;
        let count = ((self.until / step).floor() as i64 - first).clamp(0, TICKS_MOST as i64);
        (first..=first + count)
            .map(|number| number as f64 * step)
            .collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let decades = (self.until / self.from).log10();
        let factors: &[f64] = match decades {
            _ if decades < 2.0 => &[1.0, 2.0, 5.0],
            _ if decades < 4.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let first = self.from.log10().floor() as i32;
        let last = self.until.log10().ceil() as i32;
        let all = (first..=last).flat_map(|power| {
            let ten = 10_f64.powi(power);
            factors.iter().map(move |factor| factor * ten)
        });
        all.filter(|tick| (self.from..=self.until).contains(tick))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_axis_begins_at_nothing() {
        let scale = Scale::from_zero([30.0, 100.0, f64::NAN].into_iter());
        assert_eq!(scale.share(0.0), Some(0.0));
        assert_eq!(scale.share(52.5), Some(0.5));
        assert_eq!(scale.ticks(), [0.0, 50.0, 100.0]);
        let empty = Scale::from_zero([].into_iter());
        assert_eq!(empty.share(0.5), Some(0.5));
    }

    #[test]
    fn a_logarithmic_axis_has_no_place_for_nothing() {
        let scale = Scale::logarithmic([10.0, 1_000.0, 0.0].into_iter());
        assert_eq!(scale.share(0.0), None);
        let middle = scale.share(100.0).expect("it has a place");
        assert!((middle - 0.5).abs() < 1e-9);
        assert_eq!(scale.ticks(), [10.0, 30.0, 100.0, 300.0, 1_000.0]);
        let narrow = Scale::logarithmic([10.0, 20.0].into_iter());
        assert_eq!(narrow.ticks(), [10.0, 20.0]);
        assert!(Scale::logarithmic([].into_iter()).share(0.5).is_some());
    }

    /// Whatever is measured, an axis has a bounded number of lines.
    #[test]
    fn lines_are_bounded() {
        for value in [1e-300, 1e-9, 1.0, 1e9, 1e300] {
            for scale in [
                Scale::from_zero([value].into_iter()),
                Scale::logarithmic([value].into_iter()),
                Scale::logarithmic([1e-300, value].into_iter()),
            ] {
                assert!(scale.ticks().len() <= TICKS_MOST, "{scale:?}");
            }
        }
    }
}
