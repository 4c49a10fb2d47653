//! What all simulated clients share: what there is to do, and what was heard.

use std::collections::{BTreeMap, VecDeque};

use net::sim::SplitMix;

use super::choose::Begin;
use super::counts::Counts;
use super::databases::{self, Db};
use super::facts::facts;
use super::history::{Answer, Asked, Outcome, Record};
use super::keys::{self, Key};
use super::messages::Logs;
use super::time::wall_ms;
use super::timelines::{commit_of, sightings_of};

/// A loop reads the wall clock every half millisecond only.
const CLOCK_STALE_NS: u64 = 500_000;

/// How calls may be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// Every write is answered: only what changes nothing is cancelled, or has a deadline that may
    /// pass.
    Polite,
    /// Everything may be cancelled and given deadlines, and sockets are closed without a word.
    Rude,
}

/// What has begun.
pub enum Begun {
    One(u64),
    Pipe { batches: Vec<u64>, quiet: bool },
}

/// What the server may refuse writes for.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// A write or sync of its log has failed, in these lives.
    pub failed: Vec<usize>,
    /// There is no room for its log, since this moment.
    pub full_since: Option<u64>,
    /// There was none until this moment.
    pub full_until: u64,
}

/// The shared state of all clients of one round.
pub struct World {
    pub random: SplitMix,
    pub manners: Manners,
    /// The server has a log, and databases of all kinds.
    pub has_log: bool,
    pub history: Vec<Record>,
    pub logs: BTreeMap<(usize, Db), Logs>,
    pub counts: Counts,
    /// Done before anything else is chosen.
    pub script: VecDeque<(Db, Asked)>,
    /// Random calls still to begin.
    pub left: u64,
    /// The last phase: calls are left open, for the server to end.
    pub stopping: bool,
    /// Nothing new begins at random, until the next life.
    pub is_holding: bool,
    /// Calls that have begun and not ended.
    pub open: usize,
    /// Which life of the server it is.
    pub life: usize,
    pub now_ns: u64,
    pub trouble: Trouble,
    /// Databases that come and go: those that are believed to be there, and to be gone.
    pub fleeting: Vec<Db>,
    pub dropped: Vec<Db>,
    pub next_database: Db,
    /// When entries expire that somebody has seen.
    expiries: BTreeMap<u64, (Db, Key)>,
    moment: u64,
    /// Below the first sequence of each life.
    bases: Vec<u64>,
    /// The highest commit of each database that somebody knows to be visible.
    floors: BTreeMap<Db, u64>,
    /// The highest sequence that anybody ever saw.
    highest: u64,
    /// The last version of each key that somebody saw.
    pub versions: BTreeMap<(Db, Key), u64>,
}

impl World {
    pub fn new(seed: u64, manners: Manners, has_log: bool) -> World {
        World {
            random: SplitMix::new(seed),
            manners,
            has_log,
            history: Vec::new(),
            logs: BTreeMap::new(),
            counts: Counts::default(),
            script: VecDeque::new(),
            left: 0,
            stopping: false,
            is_holding: false,
            open: 0,
            life: 0,
            now_ns: 0,
            trouble: Trouble::default(),
            fleeting: Vec::new(),
            dropped: Vec::new(),
            next_database: databases::FLEETING,
            expiries: BTreeMap::new(),
            moment: 0,
            bases: vec![0],
            floors: BTreeMap::new(),
            highest: 0,
            versions: BTreeMap::new(),
        }
    }

    /// Whether there is nothing left to do.
    pub fn is_idle(&self) -> bool {
        self.open == 0 && self.script.is_empty() && self.left == 0
    }

    /// Calls that have ended.
    pub fn ended(&self) -> u64 {
        (self.history.len() - self.open) as u64
    }

    /// A new moment, later than all before.
    pub fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Below the first sequence of this life.
    pub fn base(&self) -> u64 {
        self.bases[self.life]
    }

    /// The first life of the server begins, whose sequences are above `base`.
    pub fn first_life(&mut self, base: u64) {
        self.bases[0] = base;
    }

    /// A new life of the server begins, whose sequences are above `base`.
    pub fn next_life(&mut self, base: u64) {
        assert!(
            base >= self.highest,
            "sequence {} was seen, and will be given out again: the next one is {base} + 1",
            self.highest
        );
        self.life += 1;
        self.is_holding = false;
        self.bases.push(base);
        self.floors.clear();
        self.trouble.full_until = self.next_moment();
        self.trouble.full_since = None;
    }

    /// The next calls, which begin now. Random ones wait until the script is done.
    pub fn begin(&mut self, life: usize) -> Option<Begun> {
        let (db, begin) = match self.script.pop_front() {
            Some((db, asked)) => (db, Begin::One(asked)),
            None if self.left > 0 && !self.is_holding => {
                self.left -= 1;
                self.choose()
            }
            None => return None,
        };
        self.counts.calls += 1;
        Some(match begin {
            Begin::One(asked) => Begun::One(self.record(db, asked, life)),
            Begin::Pipe { batches, quiet } => {
                self.counts.pipes += 1;
                let batches = batches.into_iter();
                Begun::Pipe {
                    batches: batches.map(|asked| self.record(db, asked, life)).collect(),
                    quiet,
                }
            }
        })
    }

    /// The next random call that is unary, which begins now.
    pub fn begin_unary(&mut self, life: usize) -> Option<u64> {
        if self.left == 0 || self.is_holding || !self.script.is_empty() {
            return None;
        }
        self.left -= 1;
        self.counts.calls += 1;
        loop {
            if let (db, Begin::One(asked)) = self.choose()
                && asked.is_unary()
            {
                return Some(self.record(db, asked, life));
            }
        }
    }

    fn record(&mut self, database: Db, asked: Asked, life: usize) -> u64 {
        self.counts.begun(&asked);
        self.open += 1;
        let floor = if life == self.life {
            self.floors.get(&database).copied()
        } else {
            None
        };
        let record = Record {
            asked,
            database,
            life,
            begun_at: self.next_moment(),
            ended_at: u64::MAX,
            begun_ms: self.least_ms(),
            ended_ms: u64::MAX,
            floor: floor.unwrap_or(0),
            outcome: Outcome::Open,
        };
        self.history.push(record);
        self.history.len() as u64 - 1
    }

    /// What the clock of the server shows at least.
    fn least_ms(&self) -> u64 {
        wall_ms(self.now_ns.saturating_sub(CLOCK_STALE_NS))
    }

    /// An entry that is in its first millisecond of being gone: a good time to ask for it.
    pub fn just_expired(&mut self) -> Option<(Db, Key)> {
        let now_ms = self.least_ms();
        self.expiries = self.expiries.split_off(&now_ms);
        self.expiries.remove(&now_ms)
    }

    /// A call ends, which it does once.
    pub fn end(&mut self, by: u64, outcome: Outcome) {
        let ended_at = self.next_moment();
        self.open -= 1;
        let mut seen_now = Vec::new();
        let record = &mut self.history[by as usize];
        assert!(
            matches!(record.outcome, Outcome::Open),
            "call {by} ended twice: {record:?}"
        );
        self.counts.ended(&outcome);
        let was_resumed = matches!(record.asked, Asked::Changes { behind: Some(_) });
        if let Outcome::Answered(Answer::Changes { commits, .. }) = &outcome {
            self.counts.resumed += u64::from(was_resumed && !commits.is_empty());
        }
        if let Outcome::Answered(answer) = &outcome {
            facts(&record.asked, answer, record.floor, &mut seen_now);
        }
        sightings_of(&record.asked, &outcome, &mut |key, seen| {
            let expires_ms = seen.expires_ms.unwrap_or(0);
            if expires_ms > 0 {
                self.expiries.insert(expires_ms, (record.database, key));
            }
        });
        record.outcome = outcome;
        record.ended_at = ended_at;
        record.ended_ms = wall_ms(self.now_ns);
        let (life, database) = (record.life, record.database);
        self.learn_database(by);
        let (base, next_base) = (self.bases[life], self.bases.get(life + 1).copied());
        let commit = commit_of(&self.history[by as usize]);
        assert!(
            commit.is_none_or(|commit| commit > base),
            "{commit:?} is of a life before the one that began after {base}"
        );
        for (key, sequence) in seen_now {
            assert!(
                next_base.is_none_or(|base| sequence <= base),
                "{sequence} was seen in life {life}, and may be given out again: the next one \
                 begins at {next_base:?}"
            );
            self.highest = self.highest.max(sequence);
            if life == self.life {
                let floor = self.floors.entry(database).or_default();
                *floor = sequence.max(*floor);
            }
            if let Some(key) = key {
                self.versions.insert((database, key), sequence);
            }
        }
    }

    /// What an answer says of the databases that come and go.
    fn learn_database(&mut self, by: u64) {
        let record = &self.history[by as usize];
        let (db, is_new) = (record.database, record.life == self.life);
        match &record.outcome {
            Outcome::Answered(Answer::Created(true)) if is_new => self.learn_databases(&[db]),
            Outcome::Answered(Answer::Databases(there)) if is_new => {
                let there: Vec<Db> = there.clone();
                self.learn_databases(&there);
            }
            _ => {}
        }
    }

    /// This database was there when the life of the server began, and what is visible is as new as
    /// the log.
    pub fn found_database(&mut self, db: Db) {
        self.floors.insert(db, self.bases[self.life]);
    }

    /// These databases were there, not long ago.
    pub fn learn_databases(&mut self, there: &[Db]) {
        for &db in there.iter().filter(|db| **db >= databases::FLEETING) {
            if !self.fleeting.contains(&db) && !self.dropped.contains(&db) {
                self.fleeting.push(db);
            }
        }
    }

    /// A database will be dropped.
    pub fn forget_database(&mut self, db: Db) {
        self.fleeting.retain(|other| *other != db);
        self.dropped.push(db);
    }

    /// The logs of a database as they were seen in one life.
    pub fn logs_of(&mut self, life: usize, db: Db) -> &mut Logs {
        let empty = || vec![Vec::new(); keys::LOGS.len()];
        self.logs.entry((life, db)).or_insert_with(empty)
    }

    /// There is no room for the log, or there is again.
    pub fn set_full(&mut self, is_full: bool) {
        let moment = self.next_moment();
        if is_full {
            self.trouble.full_since = Some(moment);
        } else {
            self.trouble.full_since = None;
            self.trouble.full_until = moment;
        }
    }

    /// Whether a call may have been refused for want of room.
    pub fn may_be_full(&self, record: &Record) -> bool {
        self.trouble.full_since.is_some() || self.trouble.full_until > record.begun_at
    }
}
