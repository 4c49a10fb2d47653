//! The names of snapshots, and which there are.

use std::io;

use wal::disk::Disk;

use super::limits;

const SUFFIX: &str = ".snapshot";
const NEW_SUFFIX: &str = ".snapshot.new";

/// The name of the file of a snapshot by its base sequence.
pub fn file_name(sequence: u64) -> String {
    format!("{sequence:020}{SUFFIX}")
}

/// The name of the file while it is made.
pub(super) fn new_name(sequence: u64) -> String {
    format!("{sequence:020}{NEW_SUFFIX}")
}

fn sequence_of(name: &str) -> Option<u64> {
    let sequence = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (file_name(sequence) == name).then_some(sequence)
}

/// Whether a file of this name is a snapshot.
pub(crate) fn is_snapshot(name: &str) -> bool {
    sequence_of(name).is_some()
}

/// The base sequences of the snapshots in a folder, oldest first.
pub fn list(disk: &dyn Disk) -> io::Result<Vec<u64>> {
    let names = disk.list()?;
    // Names are sorted, and of one length: the newest ones are what counts.
    let newest_first = names.iter().rev().filter_map(|name| sequence_of(name));
    let mut sequences: Vec<u64> = newest_first.take(limits::SNAPSHOTS).collect();
    sequences.reverse();
    Ok(sequences)
}

/// Removes the snapshots whose base is below a sequence. Call it when the one of that sequence is
/// on the device.
pub fn remove_older(disk: &dyn Disk, sequence: u64) -> io::Result<()> {
    let mut older = list(disk)?;
    older.retain(|&other| other < sequence);
    for &other in &older {
        disk.remove(&file_name(other))?;
    }
    Ok(())
}

/// Removes what a previous run left half-made.
pub fn remove_unfinished(disk: &dyn Disk) -> io::Result<()> {
    for name in disk.list()? {
        if name.ends_with(NEW_SUFFIX) {
            disk.remove(&name)?;
        }
    }
    Ok(())
}
