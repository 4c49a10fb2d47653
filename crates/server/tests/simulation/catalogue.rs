//! Databases are made once and dropped at most once, and that is not forgotten.

use std::collections::{BTreeMap, BTreeSet};

use super::databases::{self, Db};
use super::history::{Answer, Asked, Outcome, Record};
use super::lives::Life;

/// That somebody found a database there, or not, at some moment between two.
#[derive(Clone, Copy, Debug)]
struct Observation {
    is_there: bool,
    begun_at: u64,
    ended_at: u64,
}

/// All that is known of a database.
#[derive(Debug, Default)]
struct Known {
    /// When the calls began that may have made or dropped it.
    made_at: Option<u64>,
    dropped_at: Option<u64>,
    observations: Vec<Observation>,
}

/// Checks what calls and starts found against what made and dropped databases. What was answered
/// was synced, so lives do not matter.
pub fn check_catalogue(history: &[Record], lives: &[Life]) {
    let mut all: BTreeMap<Db, Known> = BTreeMap::new();
    for record in history {
        note_record(&mut all, record);
    }
    for record in history {
        if let Outcome::Answered(Answer::Databases(there)) = &record.outcome {
            note_all(
                &mut all,
                there.iter().copied(),
                record.begun_at,
                record.ended_at,
            );
        }
    }
    for life in lives.iter().filter(|life| life.begun_at > 0) {
        let there = life.found.keys().copied();
        note_all(&mut all, there, life.begun_at, life.begun_at);
    }
    for (db, known) in all.iter().filter(|(db, _)| **db != databases::DEFAULT) {
        known.check(*db);
    }
}

fn note_record(all: &mut BTreeMap<Db, Known>, record: &Record) {
    let known = all.entry(record.database).or_default();
    match record.asked {
        Asked::Create if record.may_have_happened() => known.made_at = Some(record.begun_at),
        Asked::Drop if record.may_have_happened() => {
            known.dropped_at.get_or_insert(record.begun_at);
        }
        _ => {}
    }
    let is_there = match (&record.asked, &record.outcome) {
        (_, Outcome::NoDatabase) | (Asked::Drop, Outcome::Answered(_)) => false,
        (Asked::Create, Outcome::Answered(_)) => true,
        (asked, Outcome::Answered(_) | Outcome::Acknowledged) if asked.is_about_keys() => true,
        _ => return,
    };
    known.observations.push(Observation {
        is_there,
        begun_at: record.begun_at,
        ended_at: record.ended_at,
    });
}

fn note_all(
    all: &mut BTreeMap<Db, Known>,
    there: impl Iterator<Item = Db>,
    begun_at: u64,
    ended_at: u64,
) {
    let there: BTreeSet<Db> = there.collect();
    for db in &there {
        all.entry(*db).or_default();
    }
    for (db, known) in all {
        known.observations.push(Observation {
            is_there: there.contains(db),
            begun_at,
            ended_at,
        });
    }
}

impl Known {
    fn check(&self, db: Db) {
        let there = self.observations.iter().filter(|one| one.is_there);
        let gone = self.observations.iter().filter(|one| !one.is_there);
        let first_there = there
            .clone()
            .map(|one| one.ended_at)
            .min()
            .unwrap_or(u64::MAX);
        // Not there, and not because it was not made yet.
        let dropped = gone.filter(|one| one.begun_at > first_there);
        let first_dropped = dropped
            .clone()
            .map(|one| one.ended_at)
            .min()
            .unwrap_or(u64::MAX);
        for one in dropped {
            assert!(
                self.dropped_at.is_some_and(|at| at < one.ended_at),
                "database {db} was lost: {one:?} in {self:?}"
            );
        }
        for one in there {
            assert!(
                self.made_at.is_some_and(|at| at < one.ended_at),
                "nobody has made database {db}: {one:?} in {self:?}"
            );
            assert!(
                one.begun_at < first_dropped,
                "database {db} came back: {one:?} in {self:?}"
            );
        }
    }
}
