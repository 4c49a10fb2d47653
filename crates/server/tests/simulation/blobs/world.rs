//! What the clients of blobs share.

use drive::sim::Random;

use super::calls::Asked;
use super::found::Begun;
use super::model::{CLIENTS, Content, Model, NAMES_OF_EACH};
use super::sending::{Sending, Unfinished};

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub uploaded: u64,
    /// Of them, those that went on where another stream had stopped.
    pub resumed: u64,
    pub downloaded: u64,
    pub deleted: u64,
    /// Calls without an answer.
    pub lost: u64,
    pub lives: u64,
    pub backups: u64,
    /// Backups of a server that died meanwhile.
    pub backups_cut: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.uploaded += other.uploaded;
        self.resumed += other.resumed;
        self.downloaded += other.downloaded;
        self.deleted += other.deleted;
        self.lost += other.lost;
        self.lives += other.lives;
        self.backups += other.backups;
        self.backups_cut += other.backups_cut;
    }
}

pub struct World {
    pub random: Random,
    pub model: Model,
    pub counts: Counts,
    /// Calls still to begin.
    pub left: u64,
    /// Calls that have ended.
    pub ended: u64,
    /// Calls that are under way.
    pub open: u64,
    /// Writes and syncs that have failed.
    pub disk_faults: u64,
    /// Lives in which there were some, or that ended in the midst of something.
    faulty: Vec<usize>,
    /// Uploads that can be gone on with, of all times.
    pub begun: Vec<Begun>,
    next_content: u64,
}

/// Sizes around those of a block and of a sync.
const SIZES: [usize; 8] = [0, 1, 100, 4_000, 20_001, 65_536, 65_537, 150_000];

impl World {
    pub fn new(seed: u64, calls: u64) -> World {
        World {
            random: Random::new(seed),
            model: Model::new(),
            counts: Counts::default(),
            left: calls,
            ended: 0,
            open: 0,
            disk_faults: 0,
            faulty: Vec::new(),
            begun: Vec::new(),
            next_content: 1,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.left == 0 && self.open == 0
    }

    /// So many writes and syncs have failed by now.
    pub fn note_faults(&mut self, count: u64) {
        if std::mem::replace(&mut self.disk_faults, count) != count {
            self.faulty.push(self.model.life);
        }
    }

    /// The power has gone. The last answers may say so.
    pub fn note_power_loss(&mut self) {
        self.faulty.push(self.model.life);
    }

    /// Whether something may be refused, in this life, for what has failed.
    pub fn has_faults(&self, life: usize) -> bool {
        self.faulty.contains(&life)
    }

    /// What a client asks for next.
    pub fn choose(&mut self, client: usize, unfinished: &mut Option<Unfinished>) -> Asked {
        self.left -= 1;
        let goes_on = self.random.below(4) > 0;
        if let Some(found) = unfinished.take_if(|_| goes_on) {
            return match found.stored {
                Some(_) => Asked::Upload(Box::new(Sending::new(found, self))),
                None => Asked::Stored(found),
            };
        }
        let own = client * NAMES_OF_EACH + self.random.below(NAMES_OF_EACH as u64) as usize;
        let any = self.random.below((CLIENTS * NAMES_OF_EACH) as u64) as usize;
        match self.random.below(20) {
            0..8 => {
                *unfinished = None;
                self.upload(own)
            }
            8..11 => self.delete(own),
            11..13 => Asked::Stat(any),
            13 => Asked::List(client),
            _ => self.download(any),
        }
    }

    fn upload(&mut self, name: usize) -> Asked {
        let number = self.next_content;
        self.next_content += 1;
        let bytes = SIZES[self.random.below(SIZES.len() as u64) as usize];
        let can_resume = self.random.below(5) > 0;
        let begun = Begun {
            name,
            content: Content { number, bytes },
        };
        let unfinished = Unfinished {
            name,
            content: begun.content,
            upload_id: match can_resume {
                true => begun.upload_id(),
                false => Vec::new(),
            },
            sent: 0,
            safe: 0,
            faults: self.disk_faults,
            stored: None,
            reset_on: None,
            was_asked: false,
        };
        if can_resume {
            self.begun.push(begun);
        }
        Asked::Upload(Box::new(Sending::new(unfinished, self)))
    }

    fn delete(&mut self, name: usize) -> Asked {
        let known = self.model.certain(name).flatten();
        let version = known.and_then(|content| self.model.version_of(name, content));
        Asked::Delete {
            name,
            if_version: version.filter(|_| self.random.below(3) == 0),
            write: self.model.begin_write(name, None),
        }
    }

    fn download(&mut self, name: usize) -> Asked {
        let known = self.model.certain(name).flatten();
        let bytes = known.map_or(0, |content| content.bytes as u64);
        let version = known.and_then(|content| self.model.version_of(name, content));
        let is_whole = self.random.below(3) == 0;
        Asked::Download {
            name,
            offset: if is_whole {
                0
            } else {
                self.random.below(bytes + 1)
            },
            length: if is_whole {
                0
            } else {
                self.random.below(80_000)
            },
            if_version: version.filter(|_| self.random.below(4) == 0),
        }
    }
}
