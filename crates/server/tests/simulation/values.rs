//! Values that tell their whole history: logs and counters.

use std::collections::HashMap;

use super::history::{Answer, Asked, Outcome};
use super::keys;
use super::messages::Logs;
use super::timelines::Timelines;

impl Timelines<'_> {
    /// A log has every entry that was answered and seen, once, in the order of their versions, and
    /// none that was refused. What was there at the beginning is `first`.
    pub fn check_logs(&self, logs: &Logs, first: &Logs) {
        let mut places = HashMap::new();
        for (key, (log, first)) in keys::LOGS.zip(logs.iter().zip(first)) {
            assert!(log.starts_with(first), "log {key} has lost its beginning");
            let mut before = 0;
            for (at, by) in log.iter().enumerate().skip(first.len()) {
                let record = self.record(*by);
                assert!(
                    matches!(record.asked, Asked::Append(asked) if asked == key)
                        && self.members.binary_search(by).is_ok(),
                    "{record:?} in log {key}"
                );
                assert!(
                    places.insert(*by, at as u64).is_none() && !first.contains(by),
                    "{record:?} was appended twice"
                );
                match &record.outcome {
                    Outcome::Answered(Answer::Append { version, .. }) => {
                        assert!(*version > before, "{record:?} stands behind {before}");
                        before = *version;
                    }
                    Outcome::Unknown => {}
                    _ => panic!("{record:?} was appended"),
                }
            }
        }
        for (by, record) in self.records() {
            if let Outcome::Answered(Answer::Append { length, .. }) = record.outcome
                && let Some(place) = places.get(&by)
            {
                assert_eq!(length, (place + 1) * 8, "{record:?} is entry {place}");
            }
        }
    }

    /// A counter grows by one step with each commit. The steps that no answer tells of are those of
    /// lost calls.
    pub fn check_counters(&self) {
        for key in keys::COUNTERS {
            let step = keys::step(key);
            let first = self.initial.get(&key);
            let first = first.and_then(|seen| seen.content).unwrap_or(0);
            let first = first.cast_signed() / step;
            let (mut number, mut untold) = (first, 0);
            let own = self.timeline(key).iter().filter(|(version, _)| {
                (self.initial.get(&key)).is_none_or(|first| first.version != **version)
            });
            let own: Vec<_> = own.collect();
            for (version, state) in &own {
                let value = state.content.expect("counters are not deleted");
                let steps = value.cast_signed() / step;
                assert!(
                    value.cast_signed() % step == 0 && steps > number,
                    "counter {key}: {value} at {version}, after {number} steps"
                );
                untold += steps - number - 1;
                number = steps;
            }
            let told = self.records().filter(|(_, record)| {
                let is_answered = matches!(record.outcome, Outcome::Answered(_));
                is_answered && matches!(record.asked, Asked::Increment(asked) if asked == key)
            });
            let seen_only = own.len() as i64 - told.count() as i64;
            let lost = self.maybes[usize::from(key)].len() as i64;
            assert!(
                untold + seen_only <= lost,
                "counter {key}: {untold} + {seen_only} steps of {lost} lost calls"
            );
        }
    }
}
