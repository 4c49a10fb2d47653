//! One seen state of a key against what is known of it.

use super::history::{If, Record, Seen};
use super::keys::Key;
use super::timelines::{State, Timeline, Timelines};

/// What an answer shows of a key that contradicts all that is known, but for a Delete whose outcome
/// is unknown: so it happened, and this version is gone for good.
#[derive(Clone, Copy, Debug)]
pub struct Gone {
    pub key: Key,
    pub version: u64,
    /// Who saw it had ended then.
    pub ended_at: u64,
}

impl Timelines<'_> {
    /// `seen` is the state right after commit `sequence`, or right before commit `sequence + 1`.
    pub fn check_state_at(
        &self,
        key: Key,
        sequence: u64,
        seen: Option<Seen>,
        record: &Record,
    ) -> Option<Gone> {
        let last = self.timeline(key).range(..=sequence).next_back();
        let known = last.filter(|(_, state)| state.content.is_some());
        let mut gone = None;
        let right = match (known, seen) {
            (None, None) => true,
            (Some((version, state)), Some(seen)) if seen.version == *version => {
                fits(state, seen, record)
            }
            // A version that nobody saw the content of, later than what is known.
            (_, Some(seen)) => {
                let later = last.is_none_or(|(version, _)| seen.version > *version)
                    && seen.version <= sequence;
                later
                    && !self.timeline(key).contains_key(&seen.version)
                    && self.maybe_written(key, record.ended_at)
            }
            (Some((version, state)), None) => {
                let is_over = state.expires.may_be_over(record.window());
                if !is_over {
                    gone = Some(Gone {
                        key,
                        version: *version,
                        ended_at: record.ended_at,
                    });
                }
                is_over || self.maybe_deleted(key, record.ended_at)
            }
        };
        assert!(
            right,
            "key {key} was {known:?} at {sequence}, but {seen:?} was seen by {record:?}"
        );
        gone
    }

    /// `seen` is the state at some moment of the call.
    pub fn check_state_within(
        &self,
        key: Key,
        seen: Option<Seen>,
        record: &Record,
    ) -> Option<Gone> {
        let ceiling = self.ceiling(record);
        let timeline = self.timeline(key);
        let mut gone = None;
        let right = match seen {
            Some(seen) => match timeline.get(&seen.version) {
                Some(state) if state.content.is_some() => {
                    let until = timeline
                        .range(seen.version + 1..)
                        .next()
                        .map_or(u64::MAX, |(next, _)| *next);
                    fits(state, seen, record) && seen.version < ceiling && until > record.floor
                }
                Some(_) => false,
                None => self.maybe_written(key, record.ended_at),
            },
            None => {
                let was_absent = was_absent(timeline, ceiling, record);
                if !was_absent {
                    gone = only_version(timeline, ceiling, record).map(|version| Gone {
                        key,
                        version,
                        ended_at: record.ended_at,
                    });
                }
                was_absent || self.maybe_deleted(key, record.ended_at)
            }
        };
        assert!(
            right,
            "key {key} was not {seen:?} between {} and {ceiling}, as was seen by {record:?}",
            record.floor
        );
        gone
    }

    /// What a write found when it was decided: the state before its commit.
    pub fn check_condition(&self, key: Key, commit: u64, condition: If, record: &Record) {
        let before = self.timeline(key).range(..commit).next_back();
        let state = before.filter(|(_, state)| state.content.is_some());
        let window = record.window();
        let was_there = state.is_some_and(|(_, state)| !state.expires.surely_over(window));
        let was_gone = state.is_none_or(|(_, state)| state.expires.may_be_over(window));
        let maybe_written = self.maybe_written(key, record.ended_at);
        let holds = match condition {
            If::Always => true,
            If::Absent => was_gone || self.maybe_deleted(key, record.ended_at),
            If::Present => was_there || maybe_written,
            If::Version(0) => was_gone || self.maybe_deleted(key, record.ended_at),
            If::Version(version) => {
                let unseen = !self.timeline(key).contains_key(&version) && maybe_written;
                unseen || was_there && before.is_some_and(|(sequence, _)| *sequence == version)
            }
        };
        assert!(
            holds,
            "the condition did not hold: key {key} was {before:?} before {record:?}"
        );
    }

    /// What a write found whose condition did not hold.
    pub fn check_refusal(
        &self,
        key: Key,
        condition: If,
        found: u64,
        record: &Record,
    ) -> Option<Gone> {
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
        self.check_state_within(key, Seen::version(found), record)
    }
}

/// Whether what was seen of a version is what is known of it, and can have been there then.
fn fits(state: &State, seen: Seen, record: &Record) -> bool {
    let is_there = !state.expires.surely_over(record.window());
    is_there && seen.content.is_none_or(|seen| state.content == Some(seen))
}

/// Whether a key was absent at some moment of a call, by what is known.
fn was_absent(timeline: &Timeline, ceiling: u64, record: &Record) -> bool {
    let mut absent_since = Some(0);
    for (sequence, state) in timeline {
        let may_be_absent = state.content.is_none() || state.expires.may_be_over(record.window());
        match (absent_since, may_be_absent) {
            (Some(since), false) if since < ceiling && *sequence > record.floor => return true,
            (_, false) => absent_since = None,
            (None, true) => absent_since = Some(*sequence),
            (Some(_), true) => {}
        }
    }
    absent_since.is_some_and(|since| since < ceiling)
}

/// The version that was there during all of a call, by what is known, if it is one.
fn only_version(timeline: &Timeline, ceiling: u64, record: &Record) -> Option<u64> {
    let (version, _) = timeline.range(..=record.floor).next_back()?;
    let mut later = timeline.range(record.floor + 1..);
    let changed = later.next().is_some_and(|(next, _)| *next < ceiling);
    (!changed).then_some(*version)
}
