//! What clients do, at random.

use store::Expiry;

use super::databases::{self, Db};
use super::history::{Asked, If};
use super::keys::{self, Key};
use super::world::World;

/// Databases that come and go, at a time.
const FLEETING_MAX: usize = 3;

/// The longest time to live.
const TIME_TO_LIVE_MS: u64 = 60;

/// What begins.
pub enum Begin {
    One(Asked),
    /// A Pipe; `quiet`: successes are only acknowledged.
    Pipe {
        batches: Vec<Asked>,
        quiet: bool,
    },
}

impl World {
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
            keys::EXPIRING,
        ];
        let class = self.below(classes.len() as u64);
        self.key(&classes[class as usize])
    }

    /// What to do next at random, and in which database.
    pub fn choose(&mut self) -> (Db, Begin) {
        if let Some((db, key)) = self.just_expired() {
            return (db, Begin::One(Asked::Get(key)));
        }
        let db = self.choose_database();
        if !self.stopping && self.has_log {
            match self.below(1000) {
                0..60 => return (db, self.choose_pipe(db)),
                60..70 => return self.choose_admin(),
                _ => {}
            }
        }
        let asked = match self.below(1000) {
            0..920 => self.choose_about_keys(db),
            _ => return (databases::DEFAULT, Begin::One(self.choose_other())),
        };
        (db, Begin::One(asked))
    }

    fn choose_about_keys(&mut self, db: Db) -> Asked {
        match self.below(920) {
            0..340 => Asked::Get(self.any_key()),
            340..400 => self.choose_expiring_put(db),
            400..590 => self.choose_put(db),
            590..650 => self.choose_delete(db),
            // Nobody would see what is appended while the server stops.
            650..690 if !self.stopping => Asked::Append(self.key(&keys::LOGS)),
            650..690 => Asked::Get(self.any_key()),
            690..750 => Asked::Increment(self.key(&keys::COUNTERS)),
            750..780 => self.choose_group(db),
            780..800 => {
                let first = keys::group_of(self.key(&keys::GROUPS));
                let version = self.version_of(db, first).unwrap_or(0);
                Asked::Transact { first, version }
            }
            800..845 => self.read_group(),
            845..885 => Asked::WriteMany(self.some_registers()),
            885..900 => Asked::ReadMany(self.some_registers()),
            900..910 => self.choose_scan(),
            910..914 => self.choose_changes(db),
            _ if self.below(4) == 0 => Asked::Count(keys::ALL),
            _ => {
                let start = self.key(&keys::ALL);
                Asked::Count(start..(start + 150).min(keys::ALL.end))
            }
        }
    }

    /// From now on, or from where somebody has seen an entry of this life.
    fn choose_changes(&mut self, db: Db) -> Asked {
        let key = self.any_key();
        let seen = self.version_of(db, key).filter(|_| self.below(2) == 0);
        Asked::Changes {
            behind: seen.map(|version| version.max(self.base())),
        }
    }

    fn choose_other(&mut self) -> Asked {
        match self.below(78) {
            0..53 => {
                let bytes = self.size();
                let delay_ms = if self.below(4) == 0 {
                    1 + self.below(20) as u32
                } else {
                    0
                };
                let most = if delay_ms > 0 { 16_000 } else { usize::MAX };
                Asked::Echo {
                    bytes: bytes.min(most),
                    delay_ms,
                }
            }
            53..63 => {
                let (messages, bytes) = (self.below(6) as u32, self.size());
                Asked::EchoStream {
                    messages,
                    bytes,
                    ends: true,
                }
            }
            63..72 if !self.stopping => Asked::Check,
            72..74 => Asked::Watch,
            _ => Asked::Nowhere,
        }
    }

    fn choose_database(&mut self) -> Db {
        if !self.has_log {
            return databases::DEFAULT;
        }
        match self.below(100) {
            0..45 => databases::DEFAULT,
            45..85 => databases::MADE.start + self.below(databases::MADE.len() as u64) as Db,
            85..99 if !self.fleeting.is_empty() => self.one_fleeting(),
            99 if !self.dropped.is_empty() => {
                self.dropped[self.random.below(self.dropped.len() as u64) as usize]
            }
            _ => databases::DEFAULT,
        }
    }

    fn one_fleeting(&mut self) -> Db {
        self.fleeting[self.random.below(self.fleeting.len() as u64) as usize]
    }

    fn choose_admin(&mut self) -> (Db, Begin) {
        let (db, asked) = match self.below(3) {
            0 if self.fleeting.len() < FLEETING_MAX => {
                let db = self.next_database;
                self.next_database += 1;
                (db, Asked::Create)
            }
            1 if !self.fleeting.is_empty() => {
                let db = self.one_fleeting();
                self.forget_database(db);
                (db, Asked::Drop)
            }
            _ => (databases::DEFAULT, Asked::List),
        };
        (db, Begin::One(asked))
    }

    fn choose_pipe(&mut self, db: Db) -> Begin {
        let count = 2 + self.below(5);
        let quiet = self.below(2) == 0;
        let batch = |world: &mut World| match world.below(8) {
            0..4 => Asked::WriteMany(world.some_registers()),
            4..6 => world.choose_group(db),
            6 => world.read_group(),
            _ => Asked::ReadMany(world.some_registers()),
        };
        let batches = (0..count).map(|_| batch(self)).collect();
        Begin::Pipe { batches, quiet }
    }

    fn choose_group(&mut self, db: Db) -> Asked {
        let first = keys::group_of(self.key(&keys::GROUPS));
        let version = self.version_of(db, first);
        let if_version = if self.below(2) == 0 { version } else { None };
        Asked::WriteGroup { first, if_version }
    }

    fn read_group(&mut self) -> Asked {
        let first = keys::group_of(self.key(&keys::GROUPS));
        Asked::ReadMany((first..first + keys::GROUP_KEYS).collect())
    }

    fn choose_delete(&mut self, db: Db) -> Asked {
        let of = if self.below(6) == 0 {
            keys::EXPIRING
        } else {
            keys::REGISTERS
        };
        let key = self.key(&of);
        let condition = match self.below(4) {
            0 => self.version_of(db, key).map_or(If::Always, If::Version),
            1 => If::Present,
            _ => If::Always,
        };
        Asked::Delete {
            key,
            condition,
            previous: self.below(2) == 0,
        }
    }

    fn choose_expiring_put(&mut self, db: Db) -> Asked {
        let expiry = match self.below(8) {
            0 => Expiry::None,
            1 | 2 => Expiry::Keep,
            _ => Expiry::AfterMs(1 + self.below(TIME_TO_LIVE_MS)),
        };
        let key = self.key(&keys::EXPIRING);
        Asked::Put {
            key,
            bytes: 8 + self.below(40) as usize,
            condition: self.condition(db, key),
            previous: self.below(2) == 0,
            expiry,
        }
    }

    fn condition(&mut self, db: Db, key: Key) -> If {
        match self.below(8) {
            0 => If::Absent,
            1 => If::Present,
            2 | 3 => self.version_of(db, key).map_or(If::Always, If::Version),
            _ => If::Always,
        }
    }

    fn choose_put(&mut self, db: Db) -> Asked {
        let bytes = self.size();
        let (key, bytes, condition, previous) = if self.below(20) == 0 {
            (self.key(&keys::STABLE), bytes.min(200), If::Always, false)
        } else {
            let key = self.key(&keys::REGISTERS);
            (key, bytes, self.condition(db, key), self.below(4) == 0)
        };
        Asked::Put {
            key,
            bytes,
            condition,
            previous,
            expiry: Expiry::None,
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

    /// A version to set as a condition: mostly the one that was seen last, which is often still
    /// right.
    fn version_of(&mut self, db: Db, key: Key) -> Option<u64> {
        let version = self.versions.get(&(db, key)).copied();
        version.filter(|version| *version > 0)
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
