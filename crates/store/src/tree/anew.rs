//! Trees that were begun anew, in the place of one that was damaged and given up.
//!
//! Such a tree has the name of the one before, since the snapshot and the log know it by that, and
//! its lists of tables are numbered from the beginning. A snapshot from before names a later list,
//! and would take the tree for an older copy of itself. So a file in its folder says behind which
//! sequence it began: a snapshot up to there says nothing of its lists.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// The file, within the folder of a tree.
pub(super) const NAME: &str = "begun-anew";

const HEADING: &str =
    "This database of pelton was begun anew, since it was damaged. Change nothing in this file.";

/// How a tree begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anew {
    /// Everything up to this sequence was in the log when it began.
    pub(crate) behind: u64,
    /// Commits up to this one are not put into it: its database was in memory from then on, without
    /// what had been in it.
    pub(crate) empty_through: u64,
}

/// Notes that the tree in a folder begins anew, on the device.
pub(super) fn note(folder: &Path, anew: Anew) -> io::Result<()> {
    let mut file = File::create(folder.join(NAME))?;
    file.write_all(encode(anew).as_bytes())?;
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

/// How the tree in a folder has begun anew; `None`: it has not, or nobody can read it any more.
pub(super) fn noted(folder: &Path) -> Option<Anew> {
    decode(&fs::read_to_string(folder.join(NAME)).ok()?)
}

fn encode(anew: Anew) -> String {
    let Anew {
        behind,
        empty_through,
    } = anew;
    let content = format!("{HEADING}\nbehind {behind}, empty through {empty_through}\n");
    let sum = xxhash_rust::xxh3::xxh3_128(content.as_bytes());
    format!("{content}end {sum:032x}\n")
}

/// `None`: it is damaged.
fn decode(text: &str) -> Option<Anew> {
    let line = text.lines().nth(1)?.strip_prefix("behind ")?;
    let (behind, empty_through) = line.split_once(", empty through ")?;
    let anew = Anew {
        behind: behind.parse().ok()?,
        empty_through: empty_through.parse().ok()?,
    };
    (encode(anew) == text).then_some(anew)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_in_no_other_form() {
        let anew = Anew {
            behind: 17,
            empty_through: 9,
        };
        let text = encode(anew);
        assert_eq!(decode(&text), Some(anew));
        for at in 0..text.len() {
            assert_eq!(decode(&text[..at]), None, "{at}");
        }
        assert_eq!(decode(&text.replace("17", "18")), None);
    }
}
