//! What of a life of the server the next one has found, and what it had to.
//!
//! The log is cut at one place, so what is left of all databases with a log is what was there after
//! one commit. What was answered must not lie beyond it, as far as the database promises that.

use std::collections::BTreeMap;

use store::Durability;

use super::catalogue::check_catalogue;
use super::check::Check;
use super::databases::{self, Db};
use super::history::{Answer, Asked, Outcome, Record};
use super::keys;
use super::messages::Logs;
use super::timelines::{Dump, Timelines, commit_of, sightings};

/// From one start of the server to its end.
#[derive(Debug, Default)]
pub struct Life {
    /// What the databases held that were there at its beginning.
    pub found: BTreeMap<Db, Dump>,
    /// A moment at which it was so.
    pub begun_at: u64,
    /// `None`: the round ended without it.
    pub end: Option<End>,
}

/// How a life ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub how: How,
    /// By the wall clock.
    pub at_ms: u64,
    /// When a write or sync of the log had failed.
    pub failed_ms: Option<u64>,
    /// The last sequence that the next start found in the log.
    pub last_sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// All was synced, and the log was closed.
    Stop,
    /// The process died, the machine went on.
    Kill,
    /// What was not synced is lost: no power, or a page cache that was not to be trusted.
    Loss,
}

/// The longest time, beside the interval itself, until a sync that is due is done: the committer's
/// node may pause.
const SYNC_LATE_MS: u64 = 60;

/// Which answers of a database must be true after the end of a life: those that came up to a time.
fn kept_until_ms(db: Db, end: &End) -> u64 {
    match (databases::durability(db), end.how) {
        (Durability::Volatile, _) => 0,
        (_, How::Stop | How::Kill) | (Durability::Synced, How::Loss) => u64::MAX,
        (Durability::Written, How::Loss) => 0,
        (Durability::Interval { ms }, How::Loss) => {
            let at_ms = end
                .failed_ms
                .map_or(end.at_ms, |failed_ms| failed_ms.min(end.at_ms));
            at_ms.saturating_sub(ms + SYNC_LATE_MS)
        }
    }
}

/// Checks all of a round. The last reads of all keys must be in it.
pub fn check(history: &[Record], lives: &[Life], logs: &BTreeMap<(usize, Db), Logs>) {
    for record in history {
        let is_open = matches!(record.outcome, Outcome::Open);
        assert!(!is_open, "{record:?} never ended");
    }
    let mut members: BTreeMap<(usize, Db), Vec<u64>> = BTreeMap::new();
    for (by, record) in history.iter().enumerate() {
        if record.asked.is_about_keys() {
            let key = (record.life, record.database);
            members.entry(key).or_default().push(by as u64);
        }
    }
    for (number, life) in lives.iter().enumerate() {
        for db in life.found.keys() {
            members.entry((number, *db)).or_default();
        }
    }
    for ((number, db), members) in &members {
        let next = lives.get(number + 1);
        check_life(
            history,
            members,
            &lives[*number],
            next,
            (*number, *db),
            logs,
        );
    }
    check_catalogue(history, lives);
}

fn check_life(
    history: &[Record],
    members: &[u64],
    life: &Life,
    next: Option<&Life>,
    (number, db): (usize, Db),
    logs: &BTreeMap<(usize, Db), Logs>,
) {
    let nothing = Dump::new();
    let initial = life.found.get(&db).unwrap_or(&nothing);
    let left = next.and_then(|next| next.found.get(&db));
    let is_volatile = databases::durability(db) == Durability::Volatile;
    if is_volatile && life.end.is_some() {
        assert!(
            left.is_none_or(Dump::is_empty),
            "volatile database {db} has outlived life {number}"
        );
    }
    let left = left.filter(|_| !is_volatile);
    let timelines = Timelines::new(history, members, initial, left);
    let empty = vec![Vec::new(); keys::LOGS.len()];
    let all_logs = logs.get(&(number, db)).unwrap_or(&empty);
    let check = Check::new(timelines, all_logs, &first_logs(initial, all_logs));
    if let (Some(left), Some(end)) = (left, &life.end) {
        check.check_end(left, end, db);
    }
}

/// The part of the logs that was there at the beginning: up to the entry that was the last one
/// then.
fn first_logs(initial: &Dump, logs: &Logs) -> Logs {
    let first = |(key, log): (u16, &Vec<u64>)| {
        let last = initial.get(&key).and_then(|seen| seen.content);
        let count = last.map_or(0, |last| {
            let place = log.iter().position(|by| *by == last);
            place.expect("it was seen at the beginning") + 1
        });
        log[..count].to_vec()
    };
    keys::LOGS.zip(logs).map(first).collect()
}

impl Check<'_> {
    /// What was left is what was there after the last commit in the log, and every answer that must
    /// be true is.
    fn check_end(&self, left: &Dump, end: &End, db: Db) {
        let results = keys::ALL.map(|key| Answer::Get(left.get(&key).copied()));
        let results: Vec<_> = results.collect();
        let reader = Record {
            asked: Asked::List,
            database: db,
            life: 0,
            begun_at: u64::MAX,
            ended_at: u64::MAX,
            // What has expired and is not swept is there too.
            begun_ms: 0,
            ended_ms: end.at_ms,
            floor: 0,
            outcome: Outcome::Open,
        };
        for (key, result) in keys::ALL.zip(&results) {
            let Answer::Get(seen) = result else {
                unreachable!("made above")
            };
            (self.timelines).check_state_at(key, end.last_sequence, *seen, &reader);
        }
        let kept_until_ms = kept_until_ms(db, end);
        for (_, record) in self.timelines.records() {
            if record.ended_ms < kept_until_ms {
                self.check_kept(record, left, end);
            }
        }
        if kept_until_ms == u64::MAX {
            for gone in &self.gone {
                let is_back = left
                    .get(&gone.key)
                    .is_some_and(|seen| seen.version == gone.version);
                assert!(
                    !is_back,
                    "{gone:?} was seen, and it is there again after {end:?}"
                );
            }
        }
    }

    /// Nothing that an answer rests on was lost.
    fn check_kept(&self, record: &Record, left: &Dump, end: &End) {
        let mut rests_on = commit_of(record).unwrap_or(0);
        sightings(record, &mut |_, seen| rests_on = rests_on.max(seen.version));
        rests_on = rests_on.max(found_by(record));
        assert!(
            rests_on <= end.last_sequence,
            "{end:?} has lost {rests_on}, on which an answer rests: {record:?}"
        );
        if matches!(record.outcome, Outcome::Acknowledged) {
            for key in record.asked.writes() {
                if let Some(seen) = left.get(&key) {
                    assert!(
                        !self.is_before(*seen, record),
                        "{end:?} has lost what was acknowledged: {record:?}; there is {seen:?}"
                    );
                }
            }
        }
    }
}

/// The version that a refused write found.
fn found_by(record: &Record) -> u64 {
    match &record.outcome {
        Outcome::Answered(
            Answer::Put { version, .. }
            | Answer::Delete { version, .. }
            | Answer::Failed { found: version },
        ) => *version,
        _ => 0,
    }
}
