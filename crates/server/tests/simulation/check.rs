//! Whether there is an order of all commits of a database in one life of the server in which every
//! answer is right.
//!
//! The order is known: each commit has a sequence, and every answer to a write, every page and
//! every batch of reads names one. So nothing has to be searched. From the commits each key gets a
//! timeline, and each answer is held against the timelines, within the window of commits between
//! which it must have been given: not before what was visible when the call began, not after what
//! began when it had ended.
//!
//! The outcome of a lost call is unknown. If anybody saw what it wrote, it happened, then and only
//! once; if not, then a key that it may have deleted may be absent where its timeline says
//! otherwise, until somebody has seen it there. Without lost calls nothing is allowed.

use std::collections::HashMap;

use super::history::{Answer, Asked, If, Outcome, Page, Record, Seen, ToldCommit};
use super::keys::{self, Key};
use super::messages::Logs;
use super::states::Gone;
use super::timelines::{Timelines, commit_of, sightings};

/// What the checks of a database in one life have found out.
pub struct Check<'a> {
    pub timelines: Timelines<'a>,
    pub gone: Vec<Gone>,
}

impl<'a> Check<'a> {
    /// Checks every answer.
    pub fn new(timelines: Timelines<'a>, logs: &Logs, first_logs: &Logs) -> Check<'a> {
        timelines.check_logs(logs, first_logs);
        timelines.check_counters();
        let mut check = Check {
            timelines,
            gone: Vec::new(),
        };
        for (_, record) in check.timelines.records() {
            check.record(record);
        }
        check.check_gone();
        check.check_acknowledged();
        check
    }

    fn within(&mut self, key: Key, seen: Option<Seen>, record: &Record) {
        let gone = self.timelines.check_state_within(key, seen, record);
        self.gone.extend(gone);
    }

    fn at(&mut self, key: Key, sequence: u64, seen: Option<Seen>, record: &Record) {
        let gone = self.timelines.check_state_at(key, sequence, seen, record);
        self.gone.extend(gone);
    }

    fn refusal(&mut self, key: Key, condition: If, found: u64, record: &Record) {
        let gone = (self.timelines).check_refusal(key, condition, found, record);
        self.gone.extend(gone);
    }

    /// What a write found when it was decided: the state before its commit.
    fn before(
        &mut self,
        key: Key,
        commit: u64,
        condition: If,
        found: Option<Option<Seen>>,
        record: &Record,
    ) {
        if let Some(found) = found {
            self.at(key, commit - 1, found, record);
        }
        (self.timelines).check_condition(key, commit, condition, record);
    }

    /// What somebody saw deleted is seen by nobody who asked later.
    fn check_gone(&self) {
        let mut since: HashMap<(Key, u64), u64> = HashMap::new();
        for gone in &self.gone {
            let ended_at = since.entry((gone.key, gone.version)).or_insert(u64::MAX);
            *ended_at = gone.ended_at.min(*ended_at);
        }
        for (_, record) in self.timelines.records() {
            if record.asked.is_of_the_past() {
                continue;
            }
            sightings(record, &mut |key, seen| {
                let gone_at = since.get(&(key, seen.version));
                assert!(
                    gone_at.is_none_or(|gone_at| record.begun_at < *gone_at),
                    "{record:?} saw {seen:?} of key {key}, which somebody had seen deleted"
                );
            });
        }
    }

    /// After a write was acknowledged, nobody sees what was there before it began.
    fn check_acknowledged(&self) {
        let mut writes: HashMap<Key, Vec<&Record>> = HashMap::new();
        for (_, record) in self.timelines.records() {
            if matches!(record.outcome, Outcome::Acknowledged) {
                for key in record.asked.writes() {
                    writes.entry(key).or_default().push(record);
                }
            }
        }
        for (_, record) in self.timelines.records() {
            if record.asked.is_of_the_past() {
                continue;
            }
            sightings(record, &mut |key, seen| {
                for write in writes.get(&key).into_iter().flatten() {
                    let is_later = write.ended_at < record.begun_at;
                    assert!(
                        !is_later || !self.is_before(seen, write),
                        "{record:?} saw {seen:?} of key {key}, not {write:?} that had been \
                         acknowledged"
                    );
                }
            });
        }
    }

    /// Whether what was seen was written before another write began.
    pub fn is_before(&self, seen: Seen, write: &Record) -> bool {
        let writer = seen.content.map(|content| self.timelines.record(content));
        writer.is_some_and(|writer| {
            // What was given up may be done any time later.
            let is_known = !matches!(writer.outcome, Outcome::Unknown);
            is_known && writer.ended_at < write.begun_at
        })
    }

    fn record(&mut self, record: &Record) {
        let Outcome::Answered(answer) = &record.outcome else {
            return;
        };
        match (&record.asked, answer) {
            (Asked::Get(key), Answer::Get(seen)) => self.within(*key, *seen, record),
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
                    self.before(*key, *version, *condition, previous, record);
                } else {
                    self.refusal(*key, *condition, *version, record);
                }
            }
            (Asked::Delete { .. }, Answer::Delete { .. }) => self.deletion(record),
            (
                Asked::WriteGroup { .. } | Asked::Transact { .. } | Asked::ReadMany(_),
                Answer::Batch { .. } | Answer::Unmet { .. } | Answer::Failed { .. },
            ) => self.batch(record),
            (Asked::Scan { .. }, Answer::Pages(pages)) => self.pages(pages, record),
            (Asked::Changes { .. }, Answer::Changes { .. }) => self.changes(record),
            (
                Asked::Count(keys),
                Answer::Count {
                    count,
                    views,
                    sequence,
                },
            )
                // Several slices show no moment, as the answer says.
                if *views == 1 => {
                    self.count(keys.clone(), *count, *sequence, record);
                }
            _ => {}
        }
    }

    fn deletion(&mut self, record: &Record) {
        let Outcome::Answered(Answer::Delete {
            deleted,
            version,
            previous,
            sequence,
        }) = &record.outcome
        else {
            return;
        };
        let Asked::Delete {
            key,
            condition,
            previous: wanted,
        } = &record.asked
        else {
            return;
        };
        if *deleted {
            let found = Seen::version(*version);
            self.before(*key, *sequence, *condition, Some(found), record);
            if *wanted {
                self.before(*key, *sequence, *condition, Some(*previous), record);
            }
        } else if *version == 0 {
            self.within(*key, None, record);
        } else {
            assert_ne!(
                *condition,
                If::Always,
                "{record:?} found something and left it"
            );
            self.refusal(*key, *condition, *version, record);
        }
    }

    /// Several operations in one call.
    fn batch(&mut self, record: &Record) {
        let Outcome::Answered(answer) = &record.outcome else {
            return;
        };
        match (&record.asked, answer) {
            (Asked::WriteGroup { first, if_version }, Answer::Batch { sequence, .. }) => {
                let condition = if_version.map_or(If::Always, If::Version);
                self.before(*first, *sequence, condition, None, record);
            }
            (Asked::Transact { first, version }, Answer::Batch { sequence, .. }) => {
                let condition = If::Version(*version);
                for key in [*first, first + keys::GROUP_KEYS - 1] {
                    self.before(key, *sequence, condition, None, record);
                }
            }
            (Asked::Transact { version, .. }, Answer::Unmet { sequence, results }) => {
                let is = |result: &Answer| match result {
                    Answer::Get(seen) => seen.map_or(0, |seen| seen.version) == *version,
                    _ => false,
                };
                assert!(
                    !results.iter().all(is),
                    "{record:?}: the comparison was met"
                );
                self.reads(&record.asked.writes(), results, *sequence, record);
            }
            (Asked::WriteGroup { first, if_version }, Answer::Failed { found }) => {
                let condition = if_version
                    .map(If::Version)
                    .expect("without a condition it cannot fail");
                self.refusal(*first, condition, *found, record);
            }
            (
                Asked::ReadMany(keys),
                Answer::Batch {
                    sequence, results, ..
                },
            ) => {
                assert!(
                    *sequence < self.timelines.ceiling(record),
                    "{record:?} was read from the future"
                );
                self.reads(keys, results, *sequence, record);
            }
            _ => {}
        }
    }

    fn reads(&mut self, keys: &[Key], results: &[Answer], sequence: u64, record: &Record) {
        let mut groups: HashMap<Key, Option<Seen>> = HashMap::new();
        for (key, result) in keys.iter().zip(results) {
            let Answer::Get(seen) = result else {
                panic!("{record:?}: not a read")
            };
            self.at(*key, sequence, *seen, record);
            if keys::GROUPS.contains(key) {
                let others = *groups.entry(keys::group_of(*key)).or_insert(*seen);
                assert_eq!(
                    others, *seen,
                    "half of an atomic batch was seen by {record:?}"
                );
            }
        }
    }

    /// Every page is the state of its part of the range at its sequence: no key twice, none left
    /// out.
    fn pages(&mut self, pages: &[Page], record: &Record) {
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
                page.sequence < self.timelines.ceiling(record),
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
                self.at(key, page.sequence, seen, record);
            }
            assert!(
                entries.next().is_none(),
                "a key out of order, or out of range, in {record:?}"
            );
        }
    }

    /// A watcher is told of every commit once, in order, of all its keys, and of no other.
    fn changes(&self, record: &Record) {
        let Outcome::Answered(Answer::Changes {
            from,
            through,
            commits,
        }) = &record.outcome
        else {
            return;
        };
        assert!(
            *through < self.timelines.ceiling(record),
            "{record:?} was told of the future"
        );
        let sequences: Vec<_> = commits.iter().map(|commit| commit.sequence).collect();
        assert!(
            sequences.is_sorted_by(|one, next| one < next)
                && sequences.iter().all(|sequence| sequence > from),
            "commits out of order, or twice, in {record:?}"
        );
        for ToldCommit { sequence, changes } in commits {
            for (key, seen) in changes {
                let state = self.timelines.timeline(*key).get(sequence);
                let Some(seen) = seen else {
                    continue;
                };
                let content = state.and_then(|state| state.content);
                assert_eq!(
                    (seen.version, seen.content),
                    (*sequence, content),
                    "key {key} in {record:?}"
                );
            }
        }
        for (_, other) in self.timelines.records() {
            let told = commit_of(other).filter(|commit| commit > from && commit <= through);
            let Some(commit) = told else {
                continue;
            };
            let at = sequences.binary_search(&commit);
            let found = at.map(|at| &commits[at].changes);
            let Ok(changes) = found else {
                panic!("{record:?} was not told of commit {commit}, {other:?}");
            };
            let is_deletion = matches!(other.asked, Asked::Delete { .. });
            for key in other.asked.writes() {
                let change = changes.iter().find(|(changed, _)| *changed == key);
                let is_right = change.is_some_and(|(_, seen)| seen.is_none() == is_deletion);
                assert!(is_right, "{record:?}: key {key} of {other:?}");
            }
        }
    }

    fn count(&self, range: std::ops::Range<Key>, count: u64, sequence: u64, record: &Record) {
        let (mut surely, mut perhaps) = (0, 0);
        for key in range {
            let last = self.timelines.timeline(key).range(..=sequence).next_back();
            let state = last.map(|(_, state)| state);
            let state = state.filter(|state| state.content.is_some());
            let window = record.window();
            let is_there = state.is_some_and(|state| !state.expires.surely_over(window));
            let maybe_gone = state.is_some_and(|state| state.expires.may_be_over(window))
                || self.timelines.maybe_deleted(key, record.ended_at);
            let maybe_there = is_there || self.timelines.maybe_written(key, record.ended_at);
            perhaps += u64::from(maybe_there);
            surely += u64::from(is_there && !maybe_gone);
        }
        assert!(
            (surely..=perhaps).contains(&count),
            "{record:?}: between {surely} and {perhaps} keys"
        );
    }
}
