//! The file of a snapshot with any bytes in it: the fuzz target `snapshot`.

use store::snapshot::{self, SnapshotHeader, Visitor};
use store::{DatabaseId, Entry};
use wal::disk::{Disk, SimulatedDisk};

/// Where the number of the base sequence is in a file: in the body of the first page.
const SEQUENCE_AT: usize = 16 + 40 + 8;

/// The file is made of pages with right checksums, which a fuzzer does not find by itself.
const PAGES: u8 = 1;

/// The file says that it is of the second version of the format.
const SECOND_VERSION: u8 = 2;

/// Reads a snapshot: what the visitor sees is in order and fits its totals.
pub fn fuzz_snapshot(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else {
        return;
    };
    let bytes = match mode & PAGES {
        0 => data.to_vec(),
        _ => pages(data, mode),
    };
    let sequence = bytes.get(SEQUENCE_AT..).and_then(|rest| rest.first_chunk());
    let sequence = sequence.map_or(1, |sequence| u64::from_le_bytes(*sequence));
    let disk = disk_with(sequence, &bytes);
    let mut content = SeenContent::default();
    let Ok(summary) = snapshot::read(&disk, sequence, &mut content) else {
        assert!(snapshot::verify(&disk).is_err());
        return;
    };
    assert_eq!(content.databases, summary.header.databases.len());
    assert_eq!(content.entries, summary.totals.entries);
    assert_eq!(content.content_bytes, summary.totals.content_bytes);
    assert!(content.highest_version <= summary.totals.last_sequence);
    assert_eq!(summary.file_bytes, bytes.len() as u64);
    assert_eq!(snapshot::verify(&disk).map_or(0, |all| all.len()), 1);
}

/// What the visitor has seen of a snapshot.
#[derive(Default)]
struct SeenContent {
    databases: usize,
    entries: u64,
    content_bytes: u64,
    highest_version: u64,
    last: Option<(DatabaseId, Vec<u8>)>,
}

impl Visitor for SeenContent {
    fn header(&mut self, header: &SnapshotHeader) -> Result<(), &'static str> {
        self.databases = header.databases.len();
        Ok(())
    }

    fn entry(&mut self, database: DatabaseId, entry: &Entry<'_>) -> Result<(), &'static str> {
        let key = Some((database, entry.key.to_vec()));
        assert!(self.last < key, "each key once, in order");
        self.last = key;
        self.entries += 1;
        self.content_bytes += (entry.key.len() + entry.value.bytes().len()) as u64;
        self.highest_version = self.highest_version.max(entry.version);
        Ok(())
    }
}

/// Makes a file of pages, each of which is its kind, its database, the number of its entries, the
/// length of its body in two bytes, and the body.
fn pages(mut data: &[u8], mode: u8) -> Vec<u8> {
    let version = if mode & SECOND_VERSION == 0 { 1 } else { 2 };
    let mut bytes = b"PeltnSnp".to_vec();
    bytes.extend([version, 0, 0, 0, 0, 0, 0, 0]);
    let mut previous_checksum = crc32c::crc32c(&bytes);
    let mut number = 0_u64;
    while let Some((&[kind, database, entries, low, high], rest)) = data.split_first_chunk() {
        let body_bytes = usize::from(u16::from_le_bytes([low, high]));
        let (body, rest) = rest.split_at(rest.len().min(body_bytes));
        data = rest;
        let mut head = crc32c::crc32c(body).to_le_bytes().to_vec();
        head.extend((body.len() as u32).to_le_bytes());
        head.extend(previous_checksum.to_le_bytes());
        head.extend(number.to_le_bytes());
        head.extend(u32::from(database).to_le_bytes());
        head.extend(u32::from(entries).to_le_bytes());
        head.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        previous_checksum = crc32c::crc32c(&head);
        number += 1;
        bytes.extend(previous_checksum.to_le_bytes());
        bytes.extend(head);
        bytes.extend(body);
    }
    bytes
}

/// Returns a disk with nothing on it but a snapshot of these bytes.
fn disk_with(sequence: u64, bytes: &[u8]) -> SimulatedDisk {
    let disk = testkit::simulated_disk(1);
    let file = disk.create(&snapshot::file_name(sequence));
    let written = file.and_then(|file| file.write_all_at(bytes, 0));
    written.expect("there is room");
    disk
}

#[test]
fn the_corpus_of_the_snapshot_passes() {
    testkit::replay_corpus("snapshot", fuzz_snapshot);
}
