//! Whether there is an order of all commits in which every answer is right.
//!
//! The order is known: each commit has a sequence, and every answer to a write, every page and every batch of reads
//! names one. So nothing has to be searched. From the commits each key gets a timeline, and each answer is held against
//! the timelines, within the window of commits between which it must have been given: not before what was visible when
//! the call began, not after what began when it had ended.
//!
//! The outcome of a lost call is unknown. If anybody saw what it wrote, it happened, then and only once; if not, then a
//! key that it may have deleted may be absent where its timeline says otherwise. Without lost calls nothing is allowed.

use std::collections::HashMap;

use super::history::{Answer, Asked, If, Outcome, Page, Record, Seen};
use super::keys::{self, Key};
use super::messages::Logs;
use super::timelines::Timelines;

/// Checks a whole round. The last reads of all keys must be in it.
pub fn check(history: &[Record], logs: &Logs) {
    let timelines = Timelines::new(history);
    timelines.check_logs(logs);
    timelines.check_counters();
    for record in history {
        timelines.check_record(record);
    }
}

impl Timelines<'_> {
    fn check_record(&self, record: &Record) {
        let Outcome::Answered(answer) = &record.outcome else {
            assert!(
                !matches!(record.outcome, Outcome::Open),
                "{record:?} never ended"
            );
            return;
        };
        match (&record.asked, answer) {
            (Asked::Get(key), Answer::Get(seen)) => self.check_state_within(*key, *seen, record),
            (
                Asked::Put {
                    key,
                    condition,
                    previous: wanted,
                    ..
                },
                Answer::Put {
                    applied,
                    version,
                    previous,
                },
            ) => {
                if *applied {
                    let previous = wanted.then_some(*previous);
                    self.check_before(*key, *version, *condition, previous, record);
                } else {
                    self.check_refusal(*key, *condition, *version, record);
                }
            }
            (
                Asked::Delete {
                    key,
                    condition,
                    previous: wanted,
                },
                Answer::Delete {
                    deleted,
                    version,
                    previous,
                    sequence,
                },
            ) => {
                if *deleted {
                    let found = Some(Seen {
                        version: *version,
                        content: None,
                    });
                    self.check_before(*key, *sequence, *condition, Some(found), record);
                    if *wanted {
                        self.check_before(*key, *sequence, *condition, Some(*previous), record);
                    }
                } else if *version == 0 {
                    self.check_state_within(*key, None, record);
                } else {
                    assert_ne!(
                        *condition,
                        If::Always,
                        "{record:?} found something and left it"
                    );
                    self.check_refusal(*key, *condition, *version, record);
                }
            }
            (Asked::WriteGroup { first, if_version }, Answer::Batch { sequence, .. }) => {
                let condition = if_version.map_or(If::Always, If::Version);
                self.check_before(*first, *sequence, condition, None, record);
            }
            (Asked::WriteGroup { first, if_version }, Answer::Failed { found }) => {
                let condition = if_version
                    .map(If::Version)
                    .expect("without a condition it cannot fail");
                self.check_refusal(*first, condition, *found, record);
            }
            (
                Asked::ReadMany(keys),
                Answer::Batch {
                    sequence, results, ..
                },
            ) => {
                assert!(
                    *sequence < self.ceiling(record),
                    "{record:?} was read from the future"
                );
                self.check_reads(keys, results, *sequence, record);
            }
            (Asked::Scan { .. }, Answer::Pages(pages)) => self.check_pages(pages, record),
            (
                Asked::Count(keys),
                Answer::Count {
                    count,
                    views,
                    sequence,
                },
            ) => {
                assert_eq!(*views, 1, "so few keys are counted in one slice");
                self.check_count(keys.clone(), *count, *sequence, record);
            }
            _ => {}
        }
    }

    /// What a write found when it was decided: the state before its commit.
    fn check_before(
        &self,
        key: Key,
        commit: u64,
        condition: If,
        found: Option<Option<Seen>>,
        record: &Record,
    ) {
        if let Some(found) = found {
            self.check_state_at(key, commit - 1, found, record);
        }
        let before = self.timeline(key).range(..commit).next_back();
        let was_there = before.is_some_and(|(_, content)| content.is_some());
        let holds = match condition {
            If::Always => true,
            If::Absent => !was_there || self.maybe_deleted(key, record),
            If::Present => was_there || self.maybe_written(key, record),
            If::Version(version) => {
                let unseen =
                    !self.timeline(key).contains_key(&version) && self.maybe_written(key, record);
                unseen || was_there && before.is_some_and(|(sequence, _)| *sequence == version)
            }
        };
        assert!(
            holds,
            "the condition did not hold: key {key} was {before:?} before {record:?}"
        );
    }

    /// What a write found whose condition did not hold.
    fn check_refusal(&self, key: Key, condition: If, found: u64, record: &Record) {
        let is_refusal = match condition {
            If::Always => false,
            If::Absent => found > 0,
            If::Present => found == 0,
            If::Version(version) => found != version,
        };
        assert!(
            is_refusal,
            "{record:?} found {found}, so that its condition held"
        );
        let seen = (found > 0).then_some(Seen {
            version: found,
            content: None,
        });
        self.check_state_within(key, seen, record);
    }

    fn check_reads(&self, keys: &[Key], results: &[Answer], sequence: u64, record: &Record) {
        let mut groups: HashMap<Key, Option<Seen>> = HashMap::new();
        for (key, result) in keys.iter().zip(results) {
            let Answer::Get(seen) = result else {
                panic!("{record:?}: not a read")
            };
            self.check_state_at(*key, sequence, *seen, record);
            if keys::GROUPS.contains(key) {
                let others = *groups.entry(keys::group_of(*key)).or_insert(*seen);
                assert_eq!(
                    others, *seen,
                    "half of an atomic batch was seen by {record:?}"
                );
            }
        }
    }

    /// Every page is the state of its part of the range at its sequence: no key twice, none left out.
    fn check_pages(&self, pages: &[Page], record: &Record) {
        let Asked::Scan {
            keys,
            backward,
            limit,
            ..
        } = &record.asked
        else {
            unreachable!("only scans have pages")
        };
        let (last, earlier) = pages.split_last().expect("a scan has a page");
        assert!(
            last.last && earlier.iter().all(|page| !page.last),
            "the last page says so, in {record:?}"
        );
        let total: usize = pages.iter().map(|page| page.entries.len()).sum();
        assert!(
            *limit == 0 || total as u64 <= *limit,
            "more than the limit in {record:?}"
        );
        let is_cut = *limit > 0 && total as u64 == *limit;
        let mut rest = keys.clone();
        for page in pages {
            assert!(
                page.sequence < self.ceiling(record),
                "{record:?} was read from the future"
            );
            let mut entries = page.entries.iter().peekable();
            while !rest.is_empty() {
                if entries.peek().is_none() && (!page.last || is_cut) {
                    break;
                }
                let key = if *backward { rest.end - 1 } else { rest.start };
                if *backward {
                    rest.end -= 1
                } else {
                    rest.start += 1
                }
                let seen = entries.next_if(|entry| entry.0 == key).map(|entry| entry.1);
                self.check_state_at(key, page.sequence, seen, record);
            }
            assert!(
                entries.next().is_none(),
                "a key out of order, or out of range, in {record:?}"
            );
        }
    }

    fn check_count(&self, range: std::ops::Range<Key>, count: u64, sequence: u64, record: &Record) {
        let (mut surely, mut perhaps) = (0, 0);
        for key in range {
            let last = self.timeline(key).range(..=sequence).next_back();
            let is_there = last.is_some_and(|(_, content)| content.is_some());
            let doubtful = if is_there {
                self.maybe_deleted(key, record)
            } else {
                self.maybe_written(key, record)
            };
            perhaps += u64::from(is_there || doubtful);
            surely += u64::from(is_there && !doubtful);
        }
        assert!(
            (surely..=perhaps).contains(&count),
            "{record:?}: between {surely} and {perhaps} keys"
        );
    }

    // --- values that tell their whole history

    /// A log has every entry that was answered, once, in the order of their versions, and none that was refused.
    fn check_logs(&self, logs: &Logs) {
        let mut places = HashMap::new();
        for (key, log) in keys::LOGS.zip(logs) {
            let mut before = 0;
            for (at, by) in log.iter().enumerate() {
                let record = &self.history[*by as usize];
                assert!(
                    matches!(record.asked, Asked::Append(asked) if asked == key),
                    "{record:?} in log {key}"
                );
                assert!(
                    places.insert(*by, at as u64).is_none(),
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
        for (by, record) in self.history.iter().enumerate() {
            if let Outcome::Answered(Answer::Append { length, .. }) = record.outcome {
                let place = places
                    .get(&(by as u64))
                    .unwrap_or_else(|| panic!("{record:?} was lost"));
                assert_eq!(length, (place + 1) * 8, "{record:?} is entry {place}");
            }
        }
    }

    /// A counter grows by one step with each commit. The steps that no answer tells of are those of lost calls.
    fn check_counters(&self) {
        for key in keys::COUNTERS {
            let timeline = self.timeline(key);
            let (mut number, mut untold) = (0, 0);
            for (version, content) in timeline {
                let value = content.expect("counters are not deleted").cast_signed();
                let steps = value / keys::step(key);
                assert!(
                    value % keys::step(key) == 0 && steps > number,
                    "counter {key}: {value} at {version}"
                );
                untold += steps - number - 1;
                number = steps;
            }
            let told = self.history.iter().filter(|record| {
                let is_answered = matches!(record.outcome, Outcome::Answered(_));
                is_answered && matches!(record.asked, Asked::Increment(asked) if asked == key)
            });
            let seen_only = timeline.len() as i64 - told.count() as i64;
            let lost = self.maybes[usize::from(key)].len() as i64;
            assert!(
                untold + seen_only <= lost,
                "counter {key}: {untold} + {seen_only} steps of {lost} lost calls"
            );
        }
    }
}
