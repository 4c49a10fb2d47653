//! What was asked and what was answered.

use std::ops::Range;

use super::keys::Key;

/// A condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum If {
    Always,
    Absent,
    Present,
    Version(u64),
}

/// What a call asks for.
#[derive(Clone, Debug)]
pub enum Asked {
    Get(Key),
    Put {
        key: Key,
        bytes: usize,
        condition: If,
        previous: bool,
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
            Asked::WriteGroup { first, .. } => (*first..first + super::keys::GROUP_KEYS).collect(),
            Asked::WriteMany(keys) => keys.clone(),
            _ => Vec::new(),
        }
    }

    pub fn is_write(&self) -> bool {
        matches!(
            self,
            Asked::Put { .. }
                | Asked::Delete { .. }
                | Asked::Append(_)
                | Asked::Increment(_)
                | Asked::WriteGroup { .. }
                | Asked::WriteMany(_)
        )
    }
}

/// A state of a key that somebody saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub version: u64,
    /// Who wrote it last, or the number if it is a counter; `None`: only the version was seen.
    pub content: Option<u64>,
}

/// A page of a scan, in the order it came.
#[derive(Clone, Debug)]
pub struct Page {
    pub sequence: u64,
    pub last: bool,
    pub entries: Vec<(Key, Seen)>,
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
    Pages(Vec<Page>),
    Count {
        count: u64,
        views: u64,
        sequence: u64,
    },
    /// Nothing about keys; checked when it came.
    Other,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Not yet.
    Open,
    Answered(Answer),
    /// A status, or word that it never began, that promises that nothing was done.
    Refused,
    /// Nobody knows whether anything was done.
    Unknown,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Record {
    pub asked: Asked,
    /// Calls begin and end at different moments, counted from 1.
    pub begun_at: u64,
    pub ended_at: u64,
    /// The highest commit that somebody knew to be visible when it began.
    pub floor: u64,
    pub outcome: Outcome,
}
