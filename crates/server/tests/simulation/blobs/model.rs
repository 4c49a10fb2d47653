//! What may be visible under each name, from what was asked and answered.
//!
//! Each name has one client that writes it, one call at a time, and many that read it. A write that
//! was answered is there from then on, one whose answer was lost may be, and nothing else: no
//! upload whose end was never sent, nothing that is older than the last answered write.

use std::collections::BTreeMap;

use net::sim::SplitMix;

/// Clients, each with names of its own.
pub const CLIENTS: usize = 3;
/// Names of each.
pub const NAMES_OF_EACH: usize = 3;

/// The name with a number.
pub fn name(number: usize) -> String {
    format!("c{}/n{}", number / NAMES_OF_EACH, number % NAMES_OF_EACH)
}

/// A content that nobody else uploads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub number: u64,
    pub bytes: usize,
}

impl Content {
    /// All of it.
    pub fn make(self) -> Vec<u8> {
        let mut random = SplitMix::new(self.number);
        (0..self.bytes.div_ceil(8))
            .flat_map(|_| random.any().to_le_bytes())
            .take(self.bytes)
            .collect()
    }

    /// What its description says of it, so that whoever reads it knows what it must be.
    pub fn content_type(self) -> String {
        format!("{}/{}", self.number, self.bytes)
    }

    /// The other way.
    pub fn of_content_type(text: &str) -> Content {
        let parts = text.split_once('/').expect("as it was uploaded");
        Content {
            number: parts.0.parse().expect("as it was uploaded"),
            bytes: parts.1.parse().expect("as it was uploaded"),
        }
    }
}

/// A blob that somebody saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub content: Content,
    pub version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Open,
    /// It was answered: it happened.
    Done,
    /// It may have happened, or may still happen.
    Unknown,
    /// It was answered: it did not happen.
    Nothing,
}

/// What became visible, or may have.
#[derive(Clone, Debug)]
struct Write {
    /// `None`: the blob was deleted.
    content: Option<Content>,
    begun: u64,
    ended: u64,
    outcome: Outcome,
}

/// Names a write.
#[derive(Clone, Copy, Debug)]
pub struct WriteKey {
    life: usize,
    name: usize,
    index: usize,
}

/// All names, in one life of the server.
#[derive(Debug)]
pub struct Model {
    names: Vec<Vec<Write>>,
    /// Which content each version is, and of which name: a version never means two things.
    versions: BTreeMap<u64, (usize, Content)>,
    pub life: usize,
    moment: u64,
}

impl Model {
    pub fn new() -> Model {
        let mut model = Model {
            names: Vec::new(),
            versions: BTreeMap::new(),
            life: 0,
            moment: 0,
        };
        model.begin_life(&[None; CLIENTS * NAMES_OF_EACH]);
        model
    }

    /// A new moment, later than all before.
    pub fn now(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub fn begin_write(&mut self, name: usize, content: Option<Content>) -> WriteKey {
        let begun = self.now();
        self.names[name].push(Write {
            content,
            begun,
            ended: u64::MAX,
            outcome: Outcome::Open,
        });
        WriteKey {
            life: self.life,
            name,
            index: self.names[name].len() - 1,
        }
    }

    pub fn end_write(&mut self, key: WriteKey, content: Option<Content>, outcome: Outcome) {
        let ended = self.now();
        if key.life == self.life {
            let write = &mut self.names[key.name][key.index];
            assert_eq!(write.outcome, Outcome::Open, "a write ends once");
            (write.outcome, write.ended) = (outcome, ended);
        } else if outcome == Outcome::Done && key.life + 1 == self.life {
            // The answer was under way when the server died.
            let found = &self.names[key.name][0];
            assert_eq!(
                found.content,
                content,
                "{}: answered, and lost",
                name(key.name)
            );
        }
    }

    /// What somebody who asked between two moments may have seen.
    fn allowed(&self, name: usize, begun: u64, ended: u64) -> Vec<Option<Content>> {
        let writes = &self.names[name];
        let is_before = |write: &Write| write.outcome == Outcome::Done && write.ended <= begun;
        let last = writes.iter().rposition(is_before).unwrap_or(0);
        let may_be = |(index, write): (usize, &Write)| {
            let happened = match write.outcome {
                Outcome::Nothing => false,
                Outcome::Unknown => write.begun <= ended,
                Outcome::Done | Outcome::Open => index >= last && write.begun <= ended,
            };
            happened.then_some(write.content)
        };
        writes.iter().enumerate().filter_map(may_be).collect()
    }

    /// The content that is there for sure, for whoever writes the name; `None`: that is not
    /// certain, or it may be written once more and get another version.
    pub fn certain(&mut self, name: usize) -> Option<Option<Content>> {
        let now = self.now();
        if self.names[name]
            .iter()
            .any(|write| write.outcome == Outcome::Unknown)
        {
            return None;
        }
        let allowed = self.allowed(name, now, now);
        allowed
            .iter()
            .all(|one| *one == allowed[0])
            .then(|| allowed[0])
    }

    /// Somebody who asked at `begun` in a life of the server has seen this.
    pub fn saw(&mut self, life: usize, number: usize, begun: u64, seen: Option<Seen>) {
        if let Some(seen) = seen {
            self.learn(number, seen);
        }
        if life != self.life {
            return;
        }
        let ended = self.now();
        let allowed = self.allowed(number, begun, ended);
        let content = seen.map(|seen| seen.content);
        assert!(
            allowed.contains(&content),
            "{} is {content:?}, and may be one of {allowed:?}: {:#?}",
            name(number),
            self.names[number]
        );
    }

    /// A version means one content.
    pub fn learn(&mut self, name: usize, seen: Seen) {
        let known = self.versions.entry(seen.version);
        let known = known.or_insert((name, seen.content));
        assert_eq!(*known, (name, seen.content), "of version {}", seen.version);
    }

    /// The version under which a content was seen last.
    pub fn version_of(&self, name: usize, content: Content) -> Option<u64> {
        let mut versions = self.versions.iter().rev();
        versions
            .find(|(_, known)| **known == (name, content))
            .map(|(version, _)| *version)
    }

    /// The server has died and was started again: this is what it has found.
    pub fn restarted(&mut self, found: &[Option<Seen>; CLIENTS * NAMES_OF_EACH]) {
        let now = self.now();
        for (name, found) in found.iter().enumerate() {
            self.saw(self.life, name, now, *found);
        }
        self.life += 1;
        self.begin_life(found);
    }

    fn begin_life(&mut self, found: &[Option<Seen>; CLIENTS * NAMES_OF_EACH]) {
        let now = self.now();
        let write = |found: &Option<Seen>| Write {
            content: found.map(|found| found.content),
            begun: now,
            ended: now,
            outcome: Outcome::Done,
        };
        self.names = found.iter().map(|found| vec![write(found)]).collect();
    }
}
