//! Trees that were begun anew, in the place of one that was damaged and given up.
//!
//! Such a tree has the name of the one before, since the snapshot and the log know it by that, and its lists of tables are
//! numbered from the beginning. A snapshot from before names a later list, and would take the tree for an older copy of
//! itself. So a file in its folder says behind which sequence it began: a snapshot up to there says nothing of its lists.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// The file, within the folder of a tree.
const NAME: &str = "begun-anew";

const HEADING: &str =
    "This database of pelton was begun anew, since it was damaged. Change nothing in this file.";

/// Notes behind which sequence the tree in a folder begins anew, on the device.
pub(super) fn note(folder: &Path, sequence: u64) -> io::Result<()> {
    let mut file = File::create(folder.join(NAME))?;
    file.write_all(encode(sequence).as_bytes())?;
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Behind which sequence the tree in a folder begins anew; `None`: it does not, or nobody can read it any more.
pub(super) fn noted(folder: &Path) -> Option<u64> {
    decode(&fs::read_to_string(folder.join(NAME)).ok()?)
}

fn encode(sequence: u64) -> String {
    let content = format!("{HEADING}\nbehind {sequence}\n");
    let sum = xxhash_rust::xxh3::xxh3_128(content.as_bytes());
    format!("{content}end {sum:032x}\n")
}

/// `None`: it is damaged.
fn decode(text: &str) -> Option<u64> {
    let sequence = text.lines().nth(1)?.strip_prefix("behind ")?.parse().ok()?;
    (encode(sequence) == text).then_some(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_in_no_other_form() {
        let text = encode(17);
        assert_eq!(decode(&text), Some(17));
        for at in 0..text.len() {
            assert_eq!(decode(&text[..at]), None, "{at}");
        }
        assert_eq!(decode(&text.replace("17", "18")), None);
    }
}
