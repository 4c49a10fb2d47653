//! The file that says that a data folder is that of a replica, and what is to be done with it.

use std::io;

use store::FolderSecret;
use store::durable::REPLICA_MARK_NAME;
use wal::disk::{Disk, read_at_most, write_whole};

/// Its name while it is written: what is left of it when that was cut is in nobody's way.
pub const NEW_MARK_NAME: &str = "pelton-replica.new";

const HEADING: &str = "pelton-replica\nformat 1\n";

/// Bytes of the file that are read: more than any of them has.
const BYTES_MAX: usize = 300;

/// What is to be done with the folder of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaMark {
    /// Nothing: it has a copy, and follows behind it.
    Following,
    /// It gets its first copy, of which some may be there.
    Copying,
    /// All files of a copy are there: they are checked, and a data folder is made of them beside
    /// what is served.
    Copied(TakenCopy, OldContent),
    /// That data folder is complete and on the device: what was served makes place for it.
    MovingOut(OldContent),
    /// The place is free: the new data folder comes there.
    MovingIn(OldContent),
    /// It was promoted: it is that of a leader from now on.
    Promoted(Promotion),
}

/// How a replica became a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// In this epoch.
    pub epoch: u64,
    /// With everything up to this sequence.
    pub end: u64,
    /// The next start begins a new history, since something may be lost.
    pub begins_history: bool,
    /// The history before.
    pub old_history: u64,
}

/// A copy of a leader that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenCopy {
    /// Of which history it is.
    pub history_id: u64,
    /// The secret under which tokens in it are hashed.
    pub secret: FolderSecret,
}

/// What becomes of what was served, when a new copy is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldContent {
    /// It is removed: the copy has all of it.
    Removed,
    /// It is set aside, as it belongs to another history.
    SetAside,
}

impl OldContent {
    const ALL: [OldContent; 2] = [OldContent::Removed, OldContent::SetAside];

    fn word(self) -> &'static str {
        match self {
            OldContent::Removed => "removed",
            OldContent::SetAside => "set-aside",
        }
    }

    fn from_word(word: &str) -> Option<OldContent> {
        OldContent::ALL.into_iter().find(|old| old.word() == word)
    }
}

impl ReplicaMark {
    fn text(self) -> String {
        let rest = match self {
            ReplicaMark::Following => "state following\n".to_owned(),
            ReplicaMark::Copying => "state copying\n".to_owned(),
            ReplicaMark::Copied(copy, old) => format!(
                "state copied\nold {}\nhistory {:016x}\nsecret {}\n",
                old.word(),
                copy.history_id,
                copy.secret.hex()
            ),
            ReplicaMark::MovingOut(old) => format!("state moving-out\nold {}\n", old.word()),
            ReplicaMark::MovingIn(old) => format!("state moving-in\nold {}\n", old.word()),
            ReplicaMark::Promoted(promotion) => format!(
                "state promoted\nepoch {}\nend {}\nhistory {}\nbefore {:016x}\n",
                promotion.epoch,
                promotion.end,
                match promotion.begins_history {
                    true => "new",
                    false => "kept",
                },
                promotion.old_history
            ),
        };
        format!("{HEADING}{rest}")
    }

    fn parse(text: &str) -> Option<ReplicaMark> {
        let mut lines = text.strip_prefix(HEADING)?.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let mark = match value("state")? {
            "following" => ReplicaMark::Following,
            "copying" => ReplicaMark::Copying,
            "copied" => {
                let old = OldContent::from_word(value("old")?)?;
                let copy = TakenCopy {
                    history_id: u64::from_str_radix(value("history")?, 16).ok()?,
                    secret: FolderSecret::from_hex(value("secret")?)?,
                };
                ReplicaMark::Copied(copy, old)
            }
            "moving-out" => ReplicaMark::MovingOut(OldContent::from_word(value("old")?)?),
            "moving-in" => ReplicaMark::MovingIn(OldContent::from_word(value("old")?)?),
            "promoted" => ReplicaMark::Promoted(Promotion {
                epoch: value("epoch")?.parse().ok()?,
                end: value("end")?.parse().ok()?,
                begins_history: match value("history")? {
                    "new" => true,
                    "kept" => false,
                    _ => return None,
                },
                old_history: u64::from_str_radix(value("before")?, 16).ok()?,
            }),
            _ => return None,
        };
        // Not a byte more, less or other than was written.
        (mark.text() == text).then_some(mark)
    }

    /// Reads that of a folder; `None`: it is no folder of a replica.
    pub fn read(disk: &dyn Disk) -> io::Result<Option<ReplicaMark>> {
        let Some(bytes) = read_at_most(disk, REPLICA_MARK_NAME, BYTES_MAX)? else {
            return Ok(None);
        };
        let found = std::str::from_utf8(&bytes).ok();
        let found = found.and_then(ReplicaMark::parse);
        let other = || {
            let file = disk.describe(REPLICA_MARK_NAME);
            io::Error::other(format!(
                "{file} is damaged, or of another version of pelton"
            ))
        };
        found.map(Some).ok_or_else(other)
    }

    /// Writes it, and returns when it is on the device.
    pub fn write(self, disk: &dyn Disk) -> io::Result<()> {
        write_whole(
            disk,
            NEW_MARK_NAME,
            REPLICA_MARK_NAME,
            self.text().as_bytes(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<ReplicaMark> {
        let copy = TakenCopy {
            history_id: 0x0123_4567_89ab_cdef,
            secret: FolderSecret::new([0x5a; FolderSecret::BYTES]),
        };
        let of_old = |old| {
            [
                ReplicaMark::Copied(copy, old),
                ReplicaMark::MovingOut(old),
                ReplicaMark::MovingIn(old),
            ]
        };
        let mut all = vec![ReplicaMark::Following, ReplicaMark::Copying];
        all.extend(OldContent::ALL.into_iter().flat_map(of_old));
        all.extend([true, false].map(|begins_history| {
            ReplicaMark::Promoted(Promotion {
                epoch: 2,
                end: 70,
                begins_history,
                old_history: 0xfedc,
            })
        }));
        all
    }

    #[test]
    fn a_mark_is_read_as_it_was_written_and_nothing_else_is_one() {
        let name = format!("pelton-mark-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let disk = wal::disk::RealDisk::open_or_create(&folder).expect("a writable folder");
        assert_eq!(ReplicaMark::read(&disk).expect("it can be read"), None);
        for mark in all().into_iter().chain(all()) {
            assert!(mark.text().len() < BYTES_MAX);
            mark.write(&disk).expect("there is room");
            let read = ReplicaMark::read(&disk).expect("it can be read");
            assert_eq!(read, Some(mark));
        }
        let file = disk.open(REPLICA_MARK_NAME).expect("it is there");
        file.write_all_at(b"x", 3).expect("there is room");
        assert!(ReplicaMark::read(&disk).is_err());
        std::fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn a_text_that_was_changed_anywhere_is_no_mark_or_another_one() {
        for mark in all() {
            let text = mark.text();
            for cut in 0..text.len() {
                assert_eq!(ReplicaMark::parse(&text[..cut]), None, "{cut}");
            }
            assert_eq!(ReplicaMark::parse(&format!("{text}\n")), None);
            assert_eq!(ReplicaMark::parse(&text.replace("old ", "older ")), {
                let has_old = text.contains("old ");
                (!has_old).then_some(mark)
            });
        }
    }
}
