//! When each key of a database had which state in one life of the server, by the commits that
//! answers tell of.

use std::collections::{BTreeMap, HashMap};

use store::Expiry;

use super::expiry::Expires;
use super::history::{Answer, Asked, Outcome, Record, Seen};
use super::keys::{self, Key};

/// A state of a key from one commit until the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// `None`: it is absent.
    pub content: Option<u64>,
    pub expires: Expires,
}

/// By the commit that made it.
pub type Timeline = BTreeMap<u64, State>;

/// What a database held at some moment.
pub type Dump = BTreeMap<Key, Seen>;

/// What is known of all keys.
pub struct Timelines<'a> {
    pub history: &'a [Record],
    /// The calls that this is about, in the order in which they began.
    pub members: &'a [u64],
    /// What was there at the beginning.
    pub initial: &'a Dump,
    /// What was there when the next life began, if that says anything.
    pub left: Option<&'a Dump>,
    timelines: Vec<Timeline>,
    /// Calls that may have written the key, when nobody saw whether.
    pub maybes: Vec<Vec<u64>>,
    /// For each commit, when its call began; ascending, with the lowest sequence of this and all
    /// later ones.
    lowest_after: Vec<(u64, u64)>,
}

/// Each key whose state a good answer shows, beside what its own commit wrote.
pub fn sightings(record: &Record, visit: &mut dyn FnMut(Key, Seen)) {
    sightings_of(&record.asked, &record.outcome, visit);
}

/// The same of a call that is just ending.
pub fn sightings_of(asked: &Asked, outcome: &Outcome, visit: &mut dyn FnMut(Key, Seen)) {
    let Outcome::Answered(answer) = outcome else {
        return;
    };
    match (asked, answer) {
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
            visit_results(keys, results, visit)
        }
        (asked, Answer::Unmet { results, .. }) => visit_results(&asked.writes(), results, visit),
        (_, Answer::Changes { commits, .. }) => {
            for (key, seen) in commits.iter().flat_map(|commit| &commit.changes) {
                if let Some(seen) = seen {
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

fn visit_results(keys: &[Key], results: &[Answer], visit: &mut dyn FnMut(Key, Seen)) {
    for (key, result) in keys.iter().zip(results) {
        if let Answer::Get(Some(seen)) = result {
            visit(*key, *seen);
        }
    }
}

/// The commit of a call, if its answer names one.
pub fn commit_of(record: &Record) -> Option<u64> {
    let Outcome::Answered(answer) = &record.outcome else {
        return None;
    };
    match answer {
        Answer::Put {
            applied: true,
            version,
            ..
        }
        | Answer::Append { version, .. }
        | Answer::Increment { version, .. } => Some(*version),
        Answer::Delete {
            deleted: true,
            sequence,
            ..
        } => Some(*sequence),
        Answer::Batch { sequence, .. } if record.asked.is_write() => Some(*sequence),
        _ => None,
    }
}

impl<'a> Timelines<'a> {
    /// From all that was heard.
    pub fn new(
        history: &'a [Record],
        members: &'a [u64],
        initial: &'a Dump,
        left: Option<&'a Dump>,
    ) -> Timelines<'a> {
        let mut timelines = Timelines {
            history,
            members,
            initial,
            left,
            timelines: vec![Timeline::new(); keys::ALL.len()],
            maybes: vec![Vec::new(); keys::ALL.len()],
            lowest_after: Vec::new(),
        };
        for (key, seen) in initial {
            let expires = Expires::ANY
                .seen(seen.expires_ms.expect("all of it was seen"))
                .expect("all is possible");
            let state = State {
                content: seen.content,
                expires,
            };
            timelines.timelines[usize::from(*key)].insert(seen.version, state);
        }
        timelines.gather_commits();
        timelines.resolve_unknown();
        timelines.resolve_expiries();
        timelines.order_begins();
        timelines
    }

    pub fn timeline(&self, key: Key) -> &Timeline {
        &self.timelines[usize::from(key)]
    }

    pub fn record(&self, by: u64) -> &'a Record {
        &self.history[by as usize]
    }

    pub fn records(&self) -> impl Iterator<Item = (u64, &'a Record)> + use<'a> {
        let history = self.history;
        self.members.iter().map(|by| (*by, &history[*by as usize]))
    }

    /// Enters that a commit set a key.
    fn enter(&mut self, key: Key, sequence: u64, content: Option<u64>) {
        let expires = Expires::NEVER;
        let state = State { content, expires };
        if let Some(before) = self.timelines[usize::from(key)].insert(sequence, state) {
            assert_eq!(
                before.content, content,
                "key {key}: two contents of version {sequence}"
            );
        }
    }

    /// The commits of which an answer tells.
    fn gather_commits(&mut self) {
        let mut owners = HashMap::new();
        for (by, record) in self.records() {
            if matches!(record.outcome, Outcome::Unknown | Outcome::Acknowledged) {
                for key in record.asked.writes() {
                    self.maybes[usize::from(key)].push(by);
                }
            }
            let Some(commit) = commit_of(record) else {
                continue;
            };
            let Outcome::Answered(answer) = &record.outcome else {
                unreachable!("only answers name commits");
            };
            let content = match answer {
                Answer::Increment { value, .. } => Some(value.cast_unsigned()),
                Answer::Delete { .. } => None,
                _ => Some(by),
            };
            if let Answer::Batch { results, .. } = answer {
                let whole = |result: &Answer| match result {
                    Answer::Put {
                        applied, version, ..
                    } => *applied && *version == commit,
                    _ => false,
                };
                assert!(
                    results.iter().all(whole),
                    "{record:?}: each of its writes is of its commit"
                );
            }
            for key in record.asked.writes() {
                self.enter(key, commit, content);
            }
            let other = owners.insert(commit, by);
            assert_eq!(
                other, None,
                "commit {commit} belongs to two calls, one is {record:?}"
            );
        }
    }

    /// Visits all that anybody saw, and what was left; `None`: by what was left.
    pub fn all_sightings(&self, visit: &mut dyn FnMut(Option<&'a Record>, Key, Seen)) {
        for (_, record) in self.records() {
            sightings(record, &mut |key, seen| visit(Some(record), key, seen));
        }
        for (key, seen) in self.left.into_iter().flatten() {
            visit(None, *key, *seen);
        }
    }

    /// What was seen of calls whose outcome is unknown becomes known: they happened.
    fn resolve_unknown(&mut self) {
        let mut happened: BTreeMap<u64, u64> = BTreeMap::new();
        let mut numbers = Vec::new();
        self.all_sightings(&mut |record, key, seen| {
            let Some(content) = seen.content else { return };
            if keys::COUNTERS.contains(&key) {
                return numbers.push((key, seen));
            }
            if self.is_initial(key, seen) {
                return;
            }
            let writer = self.record(content);
            assert!(
                record.is_none_or(|record| writer.begun_at < record.ended_at),
                "{record:?} saw what {writer:?} wrote only later"
            );
            assert!(
                self.members.binary_search(&content).is_ok(),
                "{record:?} saw {seen:?} of key {key}, which {writer:?} wrote in another life or \
                 database"
            );
            match &writer.outcome {
                Outcome::Answered(_) => {
                    let known = self.timeline(key).get(&seen.version);
                    assert_eq!(
                        known.map(|known| known.content),
                        Some(Some(content)),
                        "{record:?} saw {seen:?} of {writer:?}"
                    );
                }
                Outcome::Unknown | Outcome::Acknowledged => {
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
        for (key, seen) in numbers {
            self.enter(key, seen.version, seen.content);
        }
        for (by, sequence) in happened {
            for key in self.record(by).asked.writes() {
                self.enter(key, sequence, Some(by));
                self.maybes[usize::from(key)].retain(|other| *other != by);
            }
        }
    }

    /// Whether it is as it was at the beginning.
    fn is_initial(&self, key: Key, seen: Seen) -> bool {
        let initial = self.initial.get(&key);
        initial.is_some_and(|initial| {
            initial.version == seen.version && initial.content == seen.content
        })
    }

    /// When each version is gone by itself: by what was asked, and by what was seen.
    fn resolve_expiries(&mut self) {
        let mut exact: BTreeMap<(Key, u64), u64> = BTreeMap::new();
        self.all_sightings(&mut |record, key, seen| {
            let Some(expires_ms) = seen.expires_ms else {
                return;
            };
            let known = *exact.entry((key, seen.version)).or_insert(expires_ms);
            assert_eq!(
                known, expires_ms,
                "key {key}: two expiries of {seen:?}, seen by {record:?}"
            );
        });
        for key in keys::ALL {
            let mut before: Option<Expires> = None;
            let mut timeline = std::mem::take(&mut self.timelines[usize::from(key)]);
            for (version, state) in &mut timeline {
                let is_first = self
                    .initial
                    .get(&key)
                    .is_some_and(|i| i.version == *version);
                if let Some(by) = state.content
                    && keys::EXPIRING.contains(&key)
                    && !is_first
                {
                    state.expires = self.expires_of(key, by, before);
                }
                if let Some(expires_ms) = exact.get(&(key, *version)) {
                    let seen = state.expires.seen(*expires_ms);
                    state.expires = seen.unwrap_or_else(|| {
                        panic!("key {key} was seen to expire at {expires_ms}: {version} {state:?}")
                    });
                }
                before = state.content.map(|_| state.expires);
            }
            self.timelines[usize::from(key)] = timeline;
        }
    }

    fn expires_of(&self, key: Key, by: u64, before: Option<Expires>) -> Expires {
        let record = self.record(by);
        let Asked::Put { expiry, .. } = record.asked else {
            panic!("{record:?} wrote key {key}")
        };
        let mut window = record.window();
        if matches!(record.outcome, Outcome::Unknown) {
            window.to_ms = u64::MAX;
        }
        match expiry {
            Expiry::None => Expires::NEVER,
            Expiry::AfterMs(time_to_live_ms) => Expires::after(time_to_live_ms, window),
            Expiry::Keep if !self.maybes[usize::from(key)].is_empty() => Expires::ANY,
            Expiry::Keep => before.map_or(Expires::NEVER, |before| before.kept(window)),
            Expiry::AtMs(_) => panic!("no call asks for such an expiry"),
        }
    }

    /// To know which commits cannot have been seen by a call: those that began after it had ended.
    fn order_begins(&mut self) {
        let commits = self
            .records()
            .filter_map(|(_, record)| Some((record.begun_at, commit_of(record)?)));
        self.lowest_after = commits.collect();
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

    /// Whether a lost call may have changed the key in a way that nobody saw, before `record`
    /// ended.
    fn maybe(&self, key: Key, ended_at: u64, what: impl Fn(&Asked) -> bool) -> bool {
        self.maybes[usize::from(key)].iter().any(|by| {
            let lost = self.record(*by);
            lost.begun_at < ended_at && what(&lost.asked)
        })
    }

    /// By a Delete, or by something that was there for a while.
    pub fn maybe_deleted(&self, key: Key, ended_at: u64) -> bool {
        self.maybe(key, ended_at, |asked| match asked {
            Asked::Put { expiry, .. } => *expiry != Expiry::None,
            asked => matches!(asked, Asked::Delete { .. }),
        })
    }

    pub fn maybe_written(&self, key: Key, ended_at: u64) -> bool {
        self.maybe(key, ended_at, |asked| {
            !matches!(asked, Asked::Delete { .. })
        })
    }
}
