//! The numbers of the engine and the sequences of commits.

use lsm_tree::SequenceNumberCounter;

/// Numbers of the engine for each sequence, as a power of two.
const NUMBER_BITS: u32 = 10;

/// The engine's number for the entries of a commit.
pub(super) fn number_of(sequence: u64) -> u64 {
    assert!(
        sequence < 1 << (63 - NUMBER_BITS),
        "2^53 commits are for ever"
    );
    sequence << NUMBER_BITS
}

/// The number at which a read sees everything up to a sequence.
pub(super) fn reads_at(sequence: u64) -> u64 {
    number_of(sequence) + 1
}

/// The sequence of the commit whose entries have a number of the engine.
pub(super) fn sequence_of(number: u64) -> u64 {
    number >> NUMBER_BITS
}

/// The counters of a tree.
pub(super) struct Counters {
    /// From which the engine takes the numbers of versions.
    pub(super) numbers: SequenceNumberCounter,
    /// Rises with each new version.
    pub(super) versions: SequenceNumberCounter,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            numbers: SequenceNumberCounter::new(reads_at(0)),
            versions: SequenceNumberCounter::default(),
        }
    }
}
