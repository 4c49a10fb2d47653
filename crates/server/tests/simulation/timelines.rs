//! When each key had which state, by the commits that answers tell of; and one seen state against that.

use std::collections::{BTreeMap, HashMap};

use super::history::{Answer, Asked, Outcome, Record, Seen};
use super::keys::{self, Key};

/// A state of a key from one commit until the next: `None` is absent.
pub type Timeline = BTreeMap<u64, Option<u64>>;

/// What is known of all keys.
pub struct Timelines<'a> {
    pub history: &'a [Record],
    timelines: Vec<Timeline>,
    /// Calls that may have written the key, when nobody saw whether.
    pub maybes: Vec<Vec<u64>>,
    /// For each commit, when its call began; ascending, with the lowest sequence of this and all later ones.
    lowest_after: Vec<(u64, u64)>,
}

/// Each key whose state a good answer shows, beside what its own commit wrote.
fn sightings(record: &Record, visit: &mut dyn FnMut(Key, Seen)) {
    let Outcome::Answered(answer) = &record.outcome else {
        return;
    };
    match (&record.asked, answer) {
        (Asked::Get(key), Answer::Get(Some(seen))) => visit(*key, *seen),
        (
            Asked::Put { key, .. } | Asked::Delete { key, .. },
            Answer::Put {
                previous: Some(seen),
                ..
            }
            | Answer::Delete {
                previous: Some(seen),
                ..
            },
        ) => visit(*key, *seen),
        (Asked::ReadMany(keys), Answer::Batch { results, .. }) => {
            for (key, result) in keys.iter().zip(results) {
                if let Answer::Get(Some(seen)) = result {
                    visit(*key, *seen);
                }
            }
        }
        (_, Answer::Pages(pages)) => {
            for (key, seen) in pages.iter().flat_map(|page| &page.entries) {
                visit(*key, *seen);
            }
        }
        _ => {}
    }
}

impl Timelines<'_> {
    /// From all that was heard.
    pub fn new(history: &[Record]) -> Timelines<'_> {
        let mut timelines = Timelines {
            history,
            timelines: vec![Timeline::new(); keys::ALL.len()],
            maybes: vec![Vec::new(); keys::ALL.len()],
            lowest_after: Vec::new(),
        };
        timelines.gather_commits();
        timelines.resolve_unknown();
        timelines.order_begins();
        timelines
    }

    pub fn timeline(&self, key: Key) -> &Timeline {
        &self.timelines[usize::from(key)]
    }

    /// Enters that a commit set a key.
    fn enter(&mut self, key: Key, sequence: u64, content: Option<u64>) {
        if let Some(before) = self.timelines[usize::from(key)].insert(sequence, content) {
            assert_eq!(
                before, content,
                "key {key}: two contents of version {sequence}"
            );
        }
    }

    /// The commits of which an answer tells.
    fn gather_commits(&mut self) {
        let mut owners = HashMap::new();
        for (by, record) in self.history.iter().enumerate() {
            let by = by as u64;
            let Outcome::Answered(answer) = &record.outcome else {
                let is_open_end = matches!(record.outcome, Outcome::Unknown);
                if is_open_end {
                    for key in record.asked.writes() {
                        self.maybes[usize::from(key)].push(by);
                    }
                }
                continue;
            };
            let commit = match (&record.asked, answer) {
                (
                    Asked::Put { key, .. },
                    Answer::Put {
                        applied: true,
                        version,
                        ..
                    },
                )
                | (Asked::Append(key), Answer::Append { version, .. }) => {
                    self.enter(*key, *version, Some(by));
                    *version
                }
                (Asked::Increment(key), Answer::Increment { version, value }) => {
                    self.enter(*key, *version, Some(value.cast_unsigned()));
                    *version
                }
                (
                    Asked::Delete { key, .. },
                    Answer::Delete {
                        deleted: true,
                        sequence,
                        ..
                    },
                ) => {
                    self.enter(*key, *sequence, None);
                    *sequence
                }
                (
                    Asked::WriteGroup { .. } | Asked::WriteMany(_),
                    Answer::Batch {
                        sequence, results, ..
                    },
                ) => {
                    for (key, result) in record.asked.writes().into_iter().zip(results) {
                        let whole = matches!(result, Answer::Put { applied: true, version, .. } if version == sequence);
                        assert!(whole, "{record:?}: each of its writes is of its commit");
                        self.enter(key, *sequence, Some(by));
                    }
                    *sequence
                }
                _ => continue,
            };
            let other = owners.insert(commit, by);
            assert_eq!(
                other, None,
                "commit {commit} belongs to two calls, one is {record:?}"
            );
        }
    }

    /// What was seen of calls whose outcome is unknown becomes known: they happened.
    fn resolve_unknown(&mut self) {
        let mut happened: HashMap<u64, u64> = HashMap::new();
        let mut numbers = Vec::new();
        for record in self.history {
            sightings(record, &mut |key, seen| {
                let Some(content) = seen.content else { return };
                if keys::COUNTERS.contains(&key) {
                    return numbers.push((key, seen));
                }
                let writer = &self.history[content as usize];
                assert!(
                    writer.begun_at < record.ended_at,
                    "{record:?} saw what {writer:?} wrote only later"
                );
                match &writer.outcome {
                    Outcome::Answered(_) => {
                        let known = self.timeline(key).get(&seen.version);
                        assert_eq!(
                            known,
                            Some(&Some(content)),
                            "{record:?} saw {seen:?} of {writer:?}"
                        );
                    }
                    Outcome::Unknown => {
                        let once = happened
                            .insert(content, seen.version)
                            .unwrap_or(seen.version);
                        assert_eq!(
                            once, seen.version,
                            "{writer:?} happened twice, as {record:?} saw"
                        );
                    }
                    _ => panic!("{record:?} saw what {writer:?} was told not to have written"),
                }
            });
        }
        for (key, seen) in numbers {
            self.enter(key, seen.version, seen.content);
        }
        for (by, sequence) in happened {
            for key in self.history[by as usize].asked.writes() {
                self.enter(key, sequence, Some(by));
                self.maybes[usize::from(key)].retain(|other| *other != by);
            }
        }
    }

    /// To know which commits cannot have been seen by a call: those that began after it had ended.
    fn order_begins(&mut self) {
        for (by, record) in self.history.iter().enumerate() {
            let Outcome::Answered(answer) = &record.outcome else {
                continue;
            };
            let sequence = match answer {
                Answer::Put {
                    applied: true,
                    version,
                    ..
                }
                | Answer::Append { version, .. }
                | Answer::Increment { version, .. } => *version,
                Answer::Delete {
                    deleted: true,
                    sequence,
                    ..
                } => *sequence,
                Answer::Batch { sequence, .. } if record.asked.is_write() => *sequence,
                _ => continue,
            };
            debug_assert!(by == 0 || self.history[by - 1].begun_at < record.begun_at);
            self.lowest_after.push((record.begun_at, sequence));
        }
        let mut lowest = u64::MAX;
        for (_, sequence) in self.lowest_after.iter_mut().rev() {
            lowest = lowest.min(*sequence);
            *sequence = lowest;
        }
    }

    /// The lowest sequence that a call cannot have seen.
    pub fn ceiling(&self, record: &Record) -> u64 {
        let after = self
            .lowest_after
            .partition_point(|(begun_at, _)| *begun_at < record.ended_at);
        self.lowest_after
            .get(after)
            .map_or(u64::MAX, |(_, lowest)| *lowest)
    }

    /// Whether a lost call may have changed the key in a way that nobody saw, before `record` ended.
    fn maybe(&self, key: Key, record: &Record, what: impl Fn(&Asked) -> bool) -> bool {
        self.maybes[usize::from(key)].iter().any(|by| {
            let lost = &self.history[*by as usize];
            lost.begun_at < record.ended_at && what(&lost.asked)
        })
    }

    pub fn maybe_deleted(&self, key: Key, record: &Record) -> bool {
        self.maybe(key, record, |asked| matches!(asked, Asked::Delete { .. }))
    }

    pub fn maybe_written(&self, key: Key, record: &Record) -> bool {
        self.maybe(key, record, |asked| !matches!(asked, Asked::Delete { .. }))
    }

    /// `seen` is the state right after commit `sequence`, or right before commit `sequence + 1`.
    pub fn check_state_at(&self, key: Key, sequence: u64, seen: Option<Seen>, record: &Record) {
        let last = self.timeline(key).range(..=sequence).next_back();
        let known = last.and_then(|(version, content)| Some((*version, (*content)?)));
        let right = match (known, seen) {
            (None, None) => true,
            (Some((version, content)), Some(seen)) if seen.version == version => {
                seen.content.is_none_or(|seen| seen == content)
            }
            // A version that nobody saw the content of, later than what is known.
            (_, Some(seen)) => {
                let later = last.is_none_or(|(version, _)| seen.version > *version)
                    && seen.version <= sequence;
                later
                    && !self.timeline(key).contains_key(&seen.version)
                    && self.maybe_written(key, record)
            }
            (Some(_), None) => self.maybe_deleted(key, record),
        };
        assert!(
            right,
            "key {key} was {known:?} at {sequence}, but {seen:?} was seen by {record:?}"
        );
    }

    /// `seen` is the state at some moment of the call.
    pub fn check_state_within(&self, key: Key, seen: Option<Seen>, record: &Record) {
        let ceiling = self.ceiling(record);
        let timeline = self.timeline(key);
        let right = match seen {
            Some(seen) => match timeline.get(&seen.version) {
                Some(Some(content)) => {
                    let until = timeline
                        .range(seen.version + 1..)
                        .next()
                        .map_or(u64::MAX, |(next, _)| *next);
                    seen.content.is_none_or(|seen| seen == *content)
                        && seen.version < ceiling
                        && until > record.floor
                }
                Some(None) => false,
                None => self.maybe_written(key, record),
            },
            None => {
                self.was_absent(timeline, record.floor, ceiling) || self.maybe_deleted(key, record)
            }
        };
        assert!(
            right,
            "key {key} was not {seen:?} between {} and {ceiling}, as was seen by {record:?}",
            record.floor
        );
    }

    fn was_absent(&self, timeline: &Timeline, floor: u64, ceiling: u64) -> bool {
        let mut absent_since = Some(0);
        for (sequence, content) in timeline {
            match (absent_since, content) {
                (Some(since), Some(_)) if since < ceiling && *sequence > floor => return true,
                (_, Some(_)) => absent_since = None,
                (None, None) => absent_since = Some(*sequence),
                (Some(_), None) => {}
            }
        }
        absent_since.is_some_and(|since| since < ceiling)
    }
}
