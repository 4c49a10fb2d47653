//! The files of a log with any bytes in them: the fuzz target `log`.

use std::sync::Arc;

use wal::disk::{Disk, SimulatedDisk};
use wal::{ALIGN_BYTES, HEADER_BYTES, LogConfig, LogEnding, LogGroup, LogId, OpenLog, RawRecord};

/// Bytes of the checksum, of the length of the records and of the checksum of the group before, in
/// the header of a group.
const CHECKSUM_AT: usize = 12;
const BODY_BYTES_AT: usize = 80;
const PREVIOUS_AT: usize = 92;

const SEGMENT_BYTES: usize = 8 * 1024;

/// What is put right in the groups, which a fuzzer does not find by itself: a bit each in the
/// first byte of an input.
mod right {
    pub const CHECKSUMS: u8 = 1;
    pub const CHAIN: u8 = 2;
    pub const LENGTHS: u8 = 4;
    /// The files are as long as they were made.
    pub const FILES: u8 = 8;
}

/// The log is opened although something is missing.
const ACCEPT_LOSS: u8 = 16;

/// Verifies and opens a log: what it opens is what it has verified, and can be opened again.
pub fn fuzz_log(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else {
        return;
    };
    let disk = disk_of(data, mode);
    let (verified, ending) = verify(&disk);
    let copied = wal::verify_copy(&disk, &mut |_, _| Ok(()));
    let Some((opened, next_sequence)) = open(&disk, mode) else {
        return;
    };
    assert_eq!(Some(&opened), verified.as_ref(), "verified and opened");
    assert!(copied.is_ok(), "a copy has fewer reasons to be refused");
    let is_damaged = matches!(ending, Some(LogEnding::Damaged(_)));
    assert!(!is_damaged || mode & ACCEPT_LOSS != 0);

    let (verified, ending) = verify(&disk);
    assert!(matches!(ending, Some(LogEnding::Closed | LogEnding::Open)));
    let verified = verified.expect("it was written just now");
    assert_eq!(verified[..opened.len()], opened, "nothing is lost");
    let (opened, later_sequence) = open(&disk, mode).expect("it is whole");
    assert_eq!(opened, verified);
    assert!(later_sequence >= next_sequence, "none is given out twice");
}

/// What is compared of a record.
type Comparable = (u64, u32, u8, Vec<u8>, Vec<u8>);

fn comparable(record: &RawRecord<'_>) -> Comparable {
    let (key, value) = (record.key.to_vec(), record.value.to_vec());
    (record.sequence, record.database, record.kind, key, value)
}

/// Returns the records of the groups that count, if the log can be read, and how it ends.
fn verify(disk: &SimulatedDisk) -> (Option<Vec<Comparable>>, Option<LogEnding>) {
    let mut records = Vec::new();
    let report = wal::verify(disk, &mut |_, group: &LogGroup<'_>| {
        for record in group.records() {
            records.push(comparable(&record?));
        }
        Ok(())
    });
    match report {
        Ok(report) => {
            assert_eq!(report.records, records.len() as u64);
            (Some(records), Some(report.ending))
        }
        Err(_) => (None, None),
    }
}

/// Opens the log, and lets go of it as a process that dies does: returns its records, and the next
/// sequence.
fn open(disk: &SimulatedDisk, mode: u8) -> Option<(Vec<Comparable>, u64)> {
    let id = LogId {
        history: 3,
        secret: 4,
    };
    let config = LogConfig {
        segment_bytes: SEGMENT_BYTES as u64,
        accept_loss: mode & ACCEPT_LOSS != 0,
        ..LogConfig::new(id, 5)
    };
    let mut records = Vec::new();
    let mut visit = |record: &RawRecord<'_>| {
        records.push(comparable(record));
        Ok(())
    };
    let opened = wal::open(Arc::new(disk.clone()), &config, &mut visit);
    let OpenLog { recovered, .. } = opened.ok()?;
    disk.kill();
    Some((records, recovered.next_sequence))
}

/// Makes a log of pieces. Each has its length before it, of two bytes, and begins at the next place
/// at which a group may begin, in the next segment if the highest bit is set.
fn disk_of(mut data: &[u8], mode: u8) -> SimulatedDisk {
    let mut segments = vec![Vec::new()];
    let mut previous_checksum = 0;
    while let Some((&length, rest)) = data.split_first_chunk() {
        let length = u16::from_le_bytes(length);
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(length & 0x7fff)));
        data = rest;
        if length & 0x8000 != 0 {
            segments.push(Vec::new());
        }
        let mut piece = piece.to_vec();
        piece.resize(piece.len().next_multiple_of(ALIGN_BYTES), 0);
        put_right(&mut piece, mode, &mut previous_checksum, length & 0x7fff);
        if let Some(segment) = segments.last_mut() {
            segment.extend(piece);
        }
    }
    let disk = testkit::simulated_disk(1);
    for (ordinal, mut bytes) in (1..).zip(segments) {
        if mode & right::FILES != 0 {
            bytes.resize(bytes.len().max(SEGMENT_BYTES), 0);
        }
        let file = disk.create(&wal::segment_name(ordinal));
        let written = file.and_then(|file| file.write_all_at(&bytes, 0));
        written.expect("there is room");
    }
    disk
}

/// Puts right what is asked for, in a piece that may be a group.
fn put_right(piece: &mut [u8], mode: u8, previous_checksum: &mut u32, length: u16) {
    if piece.len() < HEADER_BYTES {
        return;
    }
    if mode & right::LENGTHS != 0 {
        let body_bytes = usize::from(length).saturating_sub(HEADER_BYTES) as u64;
        piece[BODY_BYTES_AT..][..8].copy_from_slice(&body_bytes.to_le_bytes());
    }
    if mode & right::CHAIN != 0 {
        piece[PREVIOUS_AT..][..4].copy_from_slice(&previous_checksum.to_le_bytes());
    }
    if mode & right::CHECKSUMS != 0 {
        let before = crc32c::crc32c(&piece[..CHECKSUM_AT]);
        let checksum = crc32c::crc32c_append(before, &piece[CHECKSUM_AT + 4..]);
        piece[CHECKSUM_AT..][..4].copy_from_slice(&checksum.to_le_bytes());
        *previous_checksum = checksum;
    }
}

#[test]
fn the_corpus_of_the_log_passes() {
    testkit::replay_corpus("log", fuzz_log);
}
