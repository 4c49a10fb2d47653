//! What all simulated clients share: what there is to do, and what was heard.

use std::collections::VecDeque;

use drive::sim::Random;

use super::history::{Answer, Asked, If, Outcome, Record, Seen};
use super::keys::{self, Key};
use super::messages::Logs;

/// How calls may be disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// Every write is answered: only what changes nothing is cancelled, or has a deadline that may pass.
    Polite,
    /// Everything may be cancelled and given deadlines, and sockets are closed without a word.
    Rude,
}

/// Counted for the report, and to be asserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub calls: u64,
    pub operations: u64,
    pub answered: u64,
    pub refused: u64,
    pub unknown: u64,
    pub deadlines: u64,
    pub cancelled: u64,
    /// Ended by the end of their connection.
    pub lost: u64,
    pub connections: u64,
    pub pauses: u64,
    pub large_values: u64,
    /// Scans of more than one page.
    pub long_scans: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.calls += other.calls;
        self.operations += other.operations;
        self.answered += other.answered;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.deadlines += other.deadlines;
        self.cancelled += other.cancelled;
        self.lost += other.lost;
        self.connections += other.connections;
        self.pauses += other.pauses;
        self.large_values += other.large_values;
        self.long_scans += other.long_scans;
    }
}

/// The shared state of all clients of one round.
pub struct World {
    pub random: Random,
    pub manners: Manners,
    pub history: Vec<Record>,
    pub logs: Logs,
    pub counts: Counts,
    /// Done before anything else is chosen.
    pub script: VecDeque<Asked>,
    /// Random calls still to begin.
    pub left: u64,
    /// The last phase: calls are left open, for the server to end.
    pub stopping: bool,
    /// Calls that have begun and not ended.
    pub open: usize,
    moment: u64,
    /// The highest commit that somebody knows to be visible.
    floor: u64,
    /// The last version of each key that somebody saw.
    versions: Vec<u64>,
}

impl World {
    pub fn new(seed: u64, manners: Manners, calls: u64) -> World {
        World {
            random: Random::new(seed),
            manners,
            history: Vec::new(),
            logs: vec![Vec::new(); keys::LOGS.len()],
            counts: Counts::default(),
            script: VecDeque::new(),
            left: calls,
            stopping: false,
            open: 0,
            moment: 0,
            floor: 0,
            versions: vec![0; keys::ALL.len()],
        }
    }

    /// Whether there is nothing left to do.
    pub fn is_idle(&self) -> bool {
        self.open == 0 && self.script.is_empty() && self.left == 0
    }

    /// The next call, which begins now. Random ones wait until the script is done.
    pub fn begin(&mut self) -> Option<u64> {
        let asked = match self.script.pop_front() {
            Some(asked) => asked,
            None if self.left > 0 => {
                self.left -= 1;
                self.choose()
            }
            None => return None,
        };
        self.counts.calls += 1;
        self.counts.operations += asked.operations();
        self.counts.large_values += u64::from(matches!(
            asked,
            Asked::Put {
                bytes: 65_536..,
                ..
            }
        ));
        self.moment += 1;
        self.open += 1;
        self.history.push(Record {
            asked,
            begun_at: self.moment,
            ended_at: u64::MAX,
            floor: self.floor,
            outcome: Outcome::Open,
        });
        Some(self.history.len() as u64 - 1)
    }

    /// The call could not be sent: it is as if it had never been.
    pub fn not_sent(&mut self, by: u64) {
        self.end(by, Outcome::Refused);
    }

    /// A call ends, which it does once.
    pub fn end(&mut self, by: u64, outcome: Outcome) {
        self.moment += 1;
        self.open -= 1;
        let mut seen_now = Vec::new();
        let record = &mut self.history[by as usize];
        assert!(
            matches!(record.outcome, Outcome::Open),
            "call {by} ended twice: {record:?}"
        );
        match &outcome {
            Outcome::Open => unreachable!("an end is an end"),
            Outcome::Answered(answer) => {
                self.counts.answered += 1;
                let is_long = matches!(answer, Answer::Pages(pages) if pages.len() > 1);
                self.counts.long_scans += u64::from(is_long);
                facts(&record.asked, answer, record.floor, &mut seen_now);
            }
            Outcome::Refused => self.counts.refused += 1,
            Outcome::Unknown => self.counts.unknown += 1,
        }
        record.outcome = outcome;
        record.ended_at = self.moment;
        for (key, version) in seen_now {
            self.floor = self.floor.max(version);
            if let Some(key) = key {
                self.versions[usize::from(key)] = version;
            }
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn key(&mut self, of: &std::ops::Range<Key>) -> Key {
        of.start + self.below(of.len() as u64) as Key
    }

    fn any_key(&mut self) -> Key {
        let classes = [
            keys::COUNTERS,
            keys::GROUPS,
            keys::LOGS,
            keys::REGISTERS,
            keys::REGISTERS,
            keys::STABLE,
        ];
        let class = self.below(classes.len() as u64);
        self.key(&classes[class as usize])
    }

    fn choose(&mut self) -> Asked {
        match self.below(1000) {
            0..400 => Asked::Get(self.any_key()),
            400..590 => self.choose_put(),
            590..650 => {
                let (key, condition) = (self.key(&keys::REGISTERS), If::Always);
                let condition = match self.below(4) {
                    0 => self.version_of(key).map_or(condition, If::Version),
                    1 => If::Present,
                    _ => condition,
                };
                Asked::Delete {
                    key,
                    condition,
                    previous: self.below(2) == 0,
                }
            }
            // Nobody would see what is appended while the server stops.
            650..690 if !self.stopping => Asked::Append(self.key(&keys::LOGS)),
            650..690 => Asked::Get(self.any_key()),
            690..750 => Asked::Increment(self.key(&keys::COUNTERS)),
            750..800 => {
                let first = keys::group_of(self.key(&keys::GROUPS));
                let version = self.version_of(first);
                let if_version = if self.below(2) == 0 { version } else { None };
                Asked::WriteGroup { first, if_version }
            }
            800..850 => {
                let first = keys::group_of(self.key(&keys::GROUPS));
                Asked::ReadMany((first..first + keys::GROUP_KEYS).collect())
            }
            850..890 => Asked::WriteMany(self.some_registers()),
            890..905 => Asked::ReadMany(self.some_registers()),
            905..918 => self.choose_scan(),
            918..922 => Asked::Count(keys::ALL),
            922..975 => {
                let bytes = self.size();
                let delay_ms = if self.below(4) == 0 {
                    1 + self.below(20) as u32
                } else {
                    0
                };
                Asked::Echo {
                    bytes: if delay_ms > 0 {
                        bytes.min(16_000)
                    } else {
                        bytes
                    },
                    delay_ms,
                }
            }
            975..985 => {
                let (messages, bytes) = (self.below(6) as u32, self.size());
                Asked::EchoStream {
                    messages,
                    bytes,
                    ends: true,
                }
            }
            985..994 if !self.stopping => Asked::Check,
            994..996 => Asked::Watch,
            _ => Asked::Nowhere,
        }
    }

    fn choose_put(&mut self) -> Asked {
        let bytes = self.size();
        if self.below(20) == 0 {
            let (key, condition) = (self.key(&keys::STABLE), If::Always);
            return Asked::Put {
                key,
                bytes: bytes.min(200),
                condition,
                previous: false,
            };
        }
        let key = self.key(&keys::REGISTERS);
        let condition = match self.below(8) {
            0 => If::Absent,
            1 => If::Present,
            2 | 3 => self.version_of(key).map_or(If::Always, If::Version),
            _ => If::Always,
        };
        Asked::Put {
            key,
            bytes,
            condition,
            previous: self.below(4) == 0,
        }
    }

    fn choose_scan(&mut self) -> Asked {
        let limit = if self.below(2) == 0 {
            1 + self.below(40)
        } else {
            0
        };
        let (backward, keys_only) = (self.below(2) == 0, self.below(4) == 0);
        let (keys, by_prefix) = match self.below(8) {
            0 => (keys::ALL, false),
            1 => (keys::REGISTERS, true),
            2 | 3 => (keys::GROUPS, true),
            4 => (keys::LOGS, true),
            _ => {
                let start = self.key(&keys::ALL);
                (start..(start + 20).min(keys::ALL.end), false)
            }
        };
        Asked::Scan {
            keys,
            by_prefix,
            backward,
            keys_only,
            limit,
        }
    }

    fn some_registers(&mut self) -> Vec<Key> {
        let (first, count) = (self.below(keys::REGISTERS.len() as u64), 1 + self.below(16));
        let key = |number: u64| {
            keys::REGISTERS.start + ((first + number * 5) % keys::REGISTERS.len() as u64) as Key
        };
        (0..count).map(key).collect()
    }

    /// A version to set as a condition: mostly the one that was seen last, which is often still right.
    fn version_of(&mut self, key: Key) -> Option<u64> {
        Some(self.versions[usize::from(key)]).filter(|version| *version > 0)
    }

    /// Mostly small, sometimes larger than a frame, rarely larger than all windows at first.
    fn size(&mut self) -> usize {
        (match self.below(1000) {
            0..3 => 65_536 + self.below(120_000),
            3..20 => 1_000 + self.below(40_000),
            _ => 8 + self.below(80),
        }) as usize
    }
}

/// What an answer says about versions: of a key, or of the whole database. Each must not be older than what was known
/// when the call began, and a commit must be newer.
fn facts(asked: &Asked, answer: &Answer, floor: u64, out: &mut Vec<(Option<Key>, u64)>) {
    let mut commit = |keys: &[Key], version: u64| {
        assert!(
            version > floor,
            "{asked:?} was committed as {version}, though {floor} was visible before it began"
        );
        out.extend(keys.iter().map(|key| (Some(*key), version)));
    };
    match (asked, answer) {
        (
            Asked::Put { key, .. },
            Answer::Put {
                applied: true,
                version,
                ..
            },
        )
        | (Asked::Append(key), Answer::Append { version, .. })
        | (Asked::Increment(key), Answer::Increment { version, .. }) => commit(&[*key], *version),
        (
            Asked::Delete { .. },
            Answer::Delete {
                deleted: true,
                sequence,
                ..
            },
        ) => commit(&[], *sequence),
        (Asked::WriteGroup { .. } | Asked::WriteMany(_), Answer::Batch { sequence, .. }) => {
            commit(&asked.writes(), *sequence);
        }
        (Asked::Get(key), Answer::Get(Some(Seen { version, .. })))
        | (Asked::Put { key, .. }, Answer::Put { version, .. })
        | (Asked::Delete { key, .. }, Answer::Delete { version, .. }) => {
            out.push((Some(*key), *version))
        }
        (Asked::WriteGroup { first, .. }, Answer::Failed { found }) => {
            out.push((Some(*first), *found))
        }
        (Asked::ReadMany(_), Answer::Batch { sequence, .. })
        | (Asked::Count(_), Answer::Count { sequence, .. }) => {
            assert!(
                *sequence >= floor,
                "{asked:?} was read at {sequence}, though {floor} was visible before it began"
            );
            out.push((None, *sequence));
        }
        (Asked::Scan { .. }, Answer::Pages(pages)) => {
            let mut at_least = floor;
            for page in pages {
                assert!(
                    page.sequence >= at_least,
                    "{asked:?}: a page of {} behind {at_least}",
                    page.sequence
                );
                at_least = page.sequence;
            }
            out.push((None, at_least));
        }
        _ => {}
    }
}
