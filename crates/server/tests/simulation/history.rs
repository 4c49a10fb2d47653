//! What was asked and what was answered.

use std::ops::Range;

use store::Expiry;

use super::databases::Db;
use super::keys::{self, Key};

/// A condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum If {
    Always,
    Absent,
    Present,
    Version(u64),
}

/// What a call asks for, or a batch of a Pipe.
#[derive(Clone, Debug)]
pub enum Asked {
    Get(Key),
    Put {
        key: Key,
        bytes: usize,
        condition: If,
        previous: bool,
        expiry: Expiry,
    },
    Delete {
        key: Key,
        condition: If,
        previous: bool,
    },
    Append(Key),
    Increment(Key),
    /// An atomic batch over a group, whose first key must have this version, if any.
    WriteGroup {
        first: Key,
        if_version: Option<u64>,
    },
    /// Writes a group if its first and last key have this version (0: are absent), else reads it.
    Transact {
        first: Key,
        version: u64,
    },
    /// An independent batch of Puts to different keys.
    WriteMany(Vec<Key>),
    /// A batch of Gets.
    ReadMany(Vec<Key>),
    Scan {
        keys: Range<Key>,
        by_prefix: bool,
        backward: bool,
        keys_only: bool,
        limit: u64,
    },
    Count(Range<Key>),
    /// Whatever is committed from now on, or behind a commit of this life.
    Changes {
        behind: Option<u64>,
    },
    Echo {
        bytes: usize,
        delay_ms: u32,
    },
    /// Messages that come back one by one; `ends`: the caller ends its side after them.
    EchoStream {
        messages: u32,
        bytes: usize,
        ends: bool,
    },
    /// Makes the database of the call.
    Create,
    /// Drops it.
    Drop,
    List,
    Check,
    Watch,
    /// A method that there is not.
    Nowhere,
    /// A Get whose message is never sent.
    Silent,
}

impl Asked {
    /// How many operations it counts as.
    pub fn operations(&self) -> u64 {
        match self {
            Asked::WriteGroup { .. } => 4,
            Asked::Transact { .. } => 6,
            Asked::WriteMany(keys) | Asked::ReadMany(keys) => keys.len() as u64,
            _ => 1,
        }
    }

    /// The keys that it may write.
    pub fn writes(&self) -> Vec<Key> {
        match self {
            Asked::Put { key, .. }
            | Asked::Delete { key, .. }
            | Asked::Append(key)
            | Asked::Increment(key) => {
                vec![*key]
            }
            Asked::WriteGroup { first, .. } | Asked::Transact { first, .. } => {
                (*first..first + keys::GROUP_KEYS).collect()
            }
            Asked::WriteMany(keys) => keys.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether it asks for a change of keys.
    pub fn is_write(&self) -> bool {
        !self.writes().is_empty()
    }

    /// Whether it goes to the committer.
    pub fn is_commit(&self) -> bool {
        self.is_write() || matches!(self, Asked::Create | Asked::Drop)
    }

    /// Whether one message comes for one that is sent.
    pub fn is_unary(&self) -> bool {
        !matches!(
            self,
            Asked::Scan { .. }
                | Asked::Changes { .. }
                | Asked::EchoStream { .. }
                | Asked::Watch
                | Asked::Silent
        )
    }

    /// Whether what it is told may have been overwritten before it asked.
    pub fn is_of_the_past(&self) -> bool {
        matches!(self, Asked::Changes { behind: Some(_) })
    }

    /// Whether it is about keys.
    pub fn is_about_keys(&self) -> bool {
        let is_read = matches!(
            self,
            Asked::Get(_)
                | Asked::ReadMany(_)
                | Asked::Scan { .. }
                | Asked::Count(_)
                | Asked::Changes { .. }
        );
        is_read || self.is_write()
    }
}

/// A state of a key that somebody saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub version: u64,
    /// Who wrote it last, or the number if it is a counter; `None`: only the version was seen.
    pub content: Option<u64>,
    /// 0: never; `None`: it was not seen.
    pub expires_ms: Option<u64>,
}

impl Seen {
    /// Only a version.
    pub fn version(version: u64) -> Option<Seen> {
        (version > 0).then_some(Seen {
            version,
            content: None,
            expires_ms: None,
        })
    }
}

/// A page of a scan, in the order it came.
#[derive(Clone, Debug)]
pub struct Page {
    pub sequence: u64,
    pub last: bool,
    pub entries: Vec<(Key, Seen)>,
}

/// What a watcher was told of one commit: of each key its entry, or that it was removed.
#[derive(Clone, Debug)]
pub struct ToldCommit {
    pub sequence: u64,
    pub changes: Vec<(Key, Option<Seen>)>,
}

/// A good answer.
#[derive(Clone, Debug)]
pub enum Answer {
    Get(Option<Seen>),
    Put {
        applied: bool,
        version: u64,
        previous: Option<Seen>,
    },
    Delete {
        deleted: bool,
        version: u64,
        previous: Option<Seen>,
        sequence: u64,
    },
    Append {
        version: u64,
        length: u64,
    },
    Increment {
        version: u64,
        value: i64,
    },
    Batch {
        sequence: u64,
        results: Vec<Answer>,
    },
    /// Of a batch that failed at its first operation, which found this version.
    Failed {
        found: u64,
    },
    /// Of a Transact whose comparison was not met: it read the group instead.
    Unmet {
        sequence: u64,
        results: Vec<Answer>,
    },
    Pages(Vec<Page>),
    Count {
        count: u64,
        views: u64,
        sequence: u64,
    },
    /// All that was committed behind `from`, up to `through`.
    Changes {
        from: u64,
        through: u64,
        commits: Vec<ToldCommit>,
    },
    Created(bool),
    Dropped(bool),
    Databases(Vec<Db>),
    /// Nothing about keys; checked when it came.
    Other,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Not yet.
    Open,
    Answered(Answer),
    /// Done, and nothing else was said.
    Acknowledged,
    /// A status, or word that it never began, that promises that nothing was done.
    Refused,
    /// Nothing was done, since there is no such database.
    NoDatabase,
    /// Nobody knows whether anything was done.
    Unknown,
}

/// One call, or one batch of a Pipe.
#[derive(Clone, Debug)]
pub struct Record {
    pub asked: Asked,
    pub database: Db,
    /// Which life of the server it was sent to.
    pub life: usize,
    /// Calls begin and end at different moments, counted from 1.
    pub begun_at: u64,
    pub ended_at: u64,
    /// What the clock of the server showed at least when it began, and at most when it ended.
    pub begun_ms: u64,
    pub ended_ms: u64,
    /// The highest commit that somebody knew to be visible when it began.
    pub floor: u64,
    pub outcome: Outcome,
}

impl Record {
    /// What the server's clock may have shown when it was served.
    pub fn window(&self) -> Window {
        Window {
            from_ms: self.begun_ms,
            to_ms: self.ended_ms,
        }
    }

    /// Whether it may have changed something.
    pub fn may_have_happened(&self) -> bool {
        !matches!(self.outcome, Outcome::Refused | Outcome::NoDatabase)
    }
}

/// A time between two readings of the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from_ms: u64,
    pub to_ms: u64,
}
