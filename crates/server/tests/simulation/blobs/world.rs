//! What the clients of blobs share.

use net::sim::SplitMix;
use wal::disk::DiskFaultCounts;

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
    /// Streams whose upload another client has taken over.
    pub taken_over: u64,
    /// Streams that were refused because the upload was being completed.
    pub completing: u64,
    /// Writes that were refused for want of room.
    pub refused_full: u64,
    /// Uploads that made room for others.
    pub evicted: u64,
    /// Times in which the disk was full for a while.
    pub full: u64,
    /// Answers over plain HTTP/2.
    pub plain: u64,
    /// Clean stops.
    pub stops: u64,
    /// Calls without an answer.
    pub lost: u64,
    pub lives: u64,
    pub backups: u64,
    /// Backups of a server that died meanwhile.
    pub backups_cut: u64,
    /// Backups whose disk has failed.
    pub backups_failed: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.uploaded += other.uploaded;
        self.resumed += other.resumed;
        self.downloaded += other.downloaded;
        self.deleted += other.deleted;
        self.taken_over += other.taken_over;
        self.completing += other.completing;
        self.refused_full += other.refused_full;
        self.evicted += other.evicted;
        self.full += other.full;
        self.plain += other.plain;
        self.stops += other.stops;
        self.lost += other.lost;
        self.lives += other.lives;
        self.backups += other.backups;
        self.backups_cut += other.backups_cut;
        self.backups_failed += other.backups_failed;
    }
}

pub struct World {
    pub random: SplitMix,
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
    /// Uploads that made room for others, in all lives and in this one.
    evicted: u64,
    evicted_in_life: (usize, u64),
    /// Writes that found no room.
    pub full_writes: u64,
    /// Lives that ended with a clean stop, or are about to.
    stopped: Vec<usize>,
    /// The server stops: nothing new is asked of it.
    pub is_holding: bool,
    /// Lives in which the disk was full, or a write found it so.
    tight: Vec<usize>,
    /// What the blobs of a database may have together, if that is little.
    pub quota_bytes: Option<u64>,
    /// Lives in which there were some, or that ended in the midst of something.
    faulty: Vec<usize>,
    /// An upload that the rival is to take over, or tries to.
    contest: Option<Contest>,
    /// Uploads that can be gone on with, of all times.
    pub begun: Vec<Begun>,
    next_content: u64,
}

/// The client that has no names of its own, and takes uploads over.
pub const RIVAL: usize = CLIENTS;

/// What may have cost an upload until some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses {
    /// Faults of the disk, and uploads that made room for others.
    pub ended: u64,
    /// Writes that found no room.
    pub full_writes: u64,
}

/// An upload that two clients send. Its owner writes nothing else meanwhile, so that each name has
/// one content in the making.
struct Contest {
    owner: usize,
    /// Until the rival has seen it.
    unfinished: Option<Unfinished>,
}

/// Sizes around those of a block and of a sync.
const SIZES: [usize; 8] = [0, 1, 100, 4_000, 20_001, 65_536, 65_537, 150_000];

impl World {
    pub fn new(seed: u64, calls: u64) -> World {
        World {
            random: SplitMix::new(seed),
            model: Model::new(),
            counts: Counts::default(),
            left: calls,
            ended: 0,
            open: 0,
            disk_faults: 0,
            evicted: 0,
            evicted_in_life: (0, 0),
            full_writes: 0,
            stopped: Vec::new(),
            is_holding: false,
            tight: Vec::new(),
            quota_bytes: None,
            faulty: Vec::new(),
            contest: None,
            begun: Vec::new(),
            next_content: 1,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.left == 0 && self.open == 0
    }

    /// What may have cost an upload by now.
    pub fn losses(&self) -> Losses {
        Losses {
            ended: self.disk_faults + self.evicted,
            full_writes: self.full_writes,
        }
    }

    /// So many uploads have made room for others in this life: only where there was none.
    pub fn note_evicted(&mut self, evicted: u64) {
        let life = self.model.life;
        let before = match self.evicted_in_life {
            (then, before) if then == life => before,
            _ => 0,
        };
        self.evicted_in_life = (life, evicted);
        self.evicted += evicted - before;
        self.counts.evicted += evicted - before;
        assert!(
            evicted == before || self.may_be_full(life),
            "{evicted} made room"
        );
    }

    /// What has gone wrong on the disk by now.
    pub fn note_faults(&mut self, counts: &DiskFaultCounts) {
        let count = counts.failed_writes + counts.failed_syncs + counts.failed_changes();
        let count = count + counts.failed_opens + counts.failed_reads + counts.no_descriptors;
        if std::mem::replace(&mut self.disk_faults, count) != count {
            self.faulty.push(self.model.life);
        }
        let full = counts.full_writes;
        if std::mem::replace(&mut self.full_writes, full) != full {
            self.note_full();
        }
    }

    /// The server is being stopped.
    pub fn note_stop(&mut self) {
        self.is_holding = true;
        self.stopped.push(self.model.life);
    }

    /// Whether a call may have ended, in this life, because the server stops.
    pub fn may_stop(&self, life: usize) -> bool {
        self.stopped.contains(&life)
    }

    /// The disk has no room from now on.
    pub fn note_full(&mut self) {
        self.tight.push(self.model.life);
    }

    /// Whether something may be refused, in this life, because there is no room for it.
    pub fn may_be_full(&self, life: usize) -> bool {
        self.tight.contains(&life) || self.quota_bytes.is_some() || self.has_faults(life)
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
        if client == RIVAL {
            return self.choose_for_rival(unfinished);
        }
        let is_contested = (self.contest.as_ref()).is_some_and(|contest| contest.owner == client);
        if is_contested {
            return self.look();
        }
        let goes_on = self.random.below(4) > 0;
        if let Some(found) = unfinished.take_if(|_| goes_on) {
            return match found.stored {
                Some(_) => Asked::Upload(Box::new(Sending::new(found, self))),
                None => Asked::Stored(found),
            };
        }
        let own = client * NAMES_OF_EACH + self.random.below(NAMES_OF_EACH as u64) as usize;
        match self.random.below(20) {
            0..8 => {
                *unfinished = None;
                self.upload(client, own)
            }
            8..11 => self.delete(own),
            _ => self.look(),
        }
    }

    /// Something that changes nothing.
    fn look(&mut self) -> Asked {
        let any = self.random.below((CLIENTS * NAMES_OF_EACH) as u64) as usize;
        match self.random.below(9) {
            0..2 => Asked::Stat(any),
            2 => Asked::List(any / NAMES_OF_EACH),
            _ => self.download(any),
        }
    }

    /// The rival asks what there is, or believes that it knows, and goes on.
    fn choose_for_rival(&mut self, unfinished: &mut Option<Unfinished>) -> Asked {
        let goes_on = self.random.below(4) > 0;
        let seen = self
            .contest
            .as_mut()
            .and_then(|contest| contest.unfinished.take());
        let guess = self.random.below(4);
        let found = seen.map(|seen| Unfinished {
            stored: match guess {
                0 => Some(0),
                1 => Some(seen.content.bytes),
                _ => None,
            },
            ..seen
        });
        match found.or(unfinished.take().filter(|_| goes_on)) {
            Some(found) if found.stored.is_some() => {
                Asked::Upload(Box::new(Sending::new(found, self)))
            }
            Some(found) => Asked::Stored(found),
            None => {
                self.contest = None;
                self.look()
            }
        }
    }

    fn upload(&mut self, client: usize, name: usize) -> Asked {
        let number = self.next_content;
        self.next_content += 1;
        let bytes = SIZES[self.random.below(SIZES.len() as u64) as usize];
        let can_resume = self.random.below(5) > 0;
        let begun = Begun {
            name,
            content: Content { number, bytes },
        };
        let is_contested = can_resume && self.contest.is_none() && self.random.below(4) == 0;
        let unfinished = Unfinished {
            name,
            content: begun.content,
            is_contested,
            is_settled: false,
            begins: 0,
            told: None,
            upload_id: match can_resume {
                true => begun.upload_id(),
                false => Vec::new(),
            },
            // What the other client sends is not known here.
            sent: if is_contested { bytes } else { 0 },
            safe: 0,
            losses: self.losses(),
            stored: None,
            reset_on: None,
            was_asked: false,
        };
        if can_resume {
            self.begun.push(begun);
        }
        if is_contested {
            self.contest = Some(Contest {
                owner: client,
                unfinished: Some(unfinished.clone()),
            });
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
        let is_plain = self.random.below(4) == 0;
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
            if_version: version.filter(|_| !is_plain && self.random.below(4) == 0),
            is_plain,
        }
    }
}
