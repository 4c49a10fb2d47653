//! A snapshot file that is not as it was written is refused, whatever has changed, in bounded
//! memory and without a panic.

use std::collections::BTreeMap;

use allocation_counter::measure;
use store::snapshot::{self, SnapshotHeader, SnapshotReadError, Summary, Visitor};
use store::{DatabaseId, Durability, Entry, Expiry};
use testkit::Random;
use testkit::suite::put_expiring;
use wal::disk::{Disk, SimulatedDisk};

use crate::snapshots::Client;

/// What a snapshot holds, as it was read.
#[derive(Default, Debug, PartialEq)]
struct Content {
    databases: Vec<String>,
    entries: BTreeMap<(DatabaseId, Vec<u8>), (Vec<u8>, u64)>,
}

impl Visitor for Content {
    fn header(&mut self, header: &SnapshotHeader) -> Result<(), &'static str> {
        let names = header.databases.iter().map(|one| one.name.clone());
        self.databases = names.collect();
        Ok(())
    }

    fn entry(&mut self, database: DatabaseId, entry: &Entry<'_>) -> Result<(), &'static str> {
        let value = (entry.value.to_vec(), entry.expires_ms);
        let before = self.entries.insert((database, entry.key.to_vec()), value);
        assert_eq!(before, None, "each key comes once");
        Ok(())
    }
}

struct Nobody;

impl Visitor for Nobody {
    fn header(&mut self, _: &SnapshotHeader) -> Result<(), &'static str> {
        Ok(())
    }

    fn entry(&mut self, _: DatabaseId, _: &Entry<'_>) -> Result<(), &'static str> {
        Ok(())
    }
}

fn read(disk: &SimulatedDisk, sequence: u64) -> Result<Summary, SnapshotReadError> {
    snapshot::read(disk, sequence, &mut Nobody)
}

/// A small snapshot with all there can be in one, of several pages.
fn small(disk: &SimulatedDisk) -> u64 {
    let mut client = Client::open(disk);
    let other = client.create("other", Durability::Written);
    client.create("volatile", Durability::Volatile);
    for number in 0..30u8 {
        for database in [DatabaseId::DEFAULT, other] {
            let expiry = Expiry::AfterMs(u64::from(number) * 10);
            client.run(database, &[put_expiring(&[b'k', number], b"value", expiry)]);
        }
    }
    client.durable.commit_loop.set_slice_rows(7);
    let sequence = client.snapshot();
    disk.kill();
    sequence
}

/// A disk with nothing on it but a snapshot of some bytes.
fn disk_with(sequence: u64, bytes: &[u8]) -> SimulatedDisk {
    let disk = testkit::simulated_disk(1);
    let file = disk
        .create(&snapshot::file_name(sequence))
        .expect("it is empty");
    file.write_all_at(bytes, 0).expect("there is room");
    disk
}

/// Where the pages of a snapshot begin, and where the last one ends.
fn page_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![16];
    while let Some(&start) = starts.last()
        && start < bytes.len()
    {
        let body = bytes[start + 8..start + 12].try_into().expect("four bytes");
        starts.push(start + 40 + u32::from_le_bytes(body) as usize);
    }
    starts
}

#[test]
fn every_changed_bit_is_seen() {
    let disk = testkit::simulated_disk(1);
    let sequence = small(&disk);
    let name = snapshot::file_name(sequence);
    let bytes = disk.contents(&name).len();
    assert!(read(&disk, sequence).is_ok() && bytes > 1000);
    for offset in 0..bytes {
        for bit in 0..8 {
            disk.flip(&name, offset, 1 << bit);
            let mut refused = None;
            let most = measure(|| refused = read(&disk, sequence).err()).bytes_max;
            match refused {
                Some(SnapshotReadError::Damaged { offset: place, .. }) => {
                    assert!(place as usize <= offset, "{place} for byte {offset}");
                }
                Some(SnapshotReadError::TooNew { .. }) => assert!((8..10).contains(&offset)),
                other => panic!("byte {offset}, bit {bit}: {other:?}"),
            }
            assert!(most < 100_000, "byte {offset}, bit {bit}: {most} bytes");
            disk.flip(&name, offset, 1 << bit);
        }
    }
    assert!(read(&disk, sequence).is_ok());
}

#[test]
fn every_cut_is_seen() {
    let disk = testkit::simulated_disk(1);
    let sequence = small(&disk);
    let bytes = disk.contents(&snapshot::file_name(sequence));
    for len in 0..bytes.len() {
        let error = read(&disk_with(sequence, &bytes[..len]), sequence).expect_err("it is cut");
        assert!(
            matches!(error, SnapshotReadError::Damaged { .. }),
            "{len}: {error}"
        );
    }
    let longer = [&bytes[..], b"\0"].concat();
    let error = read(&disk_with(sequence, &longer), sequence).expect_err("it is too long");
    assert!(
        error.to_string().contains("behind the closing page"),
        "{error}"
    );
    // Nor may it be the snapshot of another sequence.
    read(&disk_with(sequence + 1, &bytes), sequence + 1).expect_err("it has another name");
}

#[test]
fn pages_that_are_missing_doubled_or_exchanged_are_seen() {
    let disk = testkit::simulated_disk(1);
    let sequence = small(&disk);
    let bytes = disk.contents(&snapshot::file_name(sequence));
    let starts = page_starts(&bytes);
    let pages: Vec<&[u8]> = starts
        .windows(2)
        .map(|ends| &bytes[ends[0]..ends[1]])
        .collect();
    assert!(pages.len() > 10, "{}", pages.len());
    let put_together = |pages: &[&[u8]]| [&[&bytes[..16]], pages].concat().concat();
    assert_eq!(put_together(&pages), bytes);
    let refuse = |pages: &[&[u8]], what: &str, place: usize| {
        let refused = read(&disk_with(sequence, &put_together(pages)), sequence);
        assert!(
            matches!(refused, Err(SnapshotReadError::Damaged { .. })),
            "page {place} {what}"
        );
    };
    for place in 0..pages.len() {
        let mut others = pages.clone();
        let page = others.remove(place);
        refuse(&others, "missing", place);
        for elsewhere in 0..others.len() {
            let mut moved = others.clone();
            moved.insert(elsewhere, page);
            if elsewhere != place {
                refuse(&moved, "moved", place);
            }
        }
        let mut doubled = pages.clone();
        doubled.insert(place, page);
        refuse(&doubled, "doubled", place);
    }
}

/// A page of an earlier snapshot fits no later one.
#[test]
fn a_page_of_another_snapshot_is_seen() {
    let disk = testkit::simulated_disk(1);
    let first = small(&disk);
    let first_bytes = disk.contents(&snapshot::file_name(first));
    let mut client = Client::open(&disk);
    client.run(
        DatabaseId::DEFAULT,
        &[put_expiring(b"k\x1c", b"other", Expiry::None)],
    );
    client.durable.commit_loop.set_slice_rows(7);
    let second = client.snapshot();
    let second_bytes = disk.contents(&snapshot::file_name(second));
    let (old, new) = (page_starts(&first_bytes), page_starts(&second_bytes));
    assert_eq!(old, new, "they differ in one value");
    for ends in new.windows(2) {
        let mut mixed = second_bytes.clone();
        mixed[ends[0]..ends[1]].copy_from_slice(&first_bytes[ends[0]..ends[1]]);
        assert_ne!(mixed, second_bytes);
        read(&disk_with(second, &mixed), second).expect_err("a page is not of it");
    }
}

#[test]
fn changed_bytes_are_refused() {
    let disk = testkit::simulated_disk(1);
    let sequence = small(&disk);
    let bytes = disk.contents(&snapshot::file_name(sequence));
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let mut changed = bytes.clone();
        for _ in 0..1 + random.below(5) {
            let (start, len) = (random.below(changed.len()), 1 + random.below(60));
            let end = (start + len).min(changed.len());
            match random.below(4) {
                0 => changed[start..end].fill(0),
                1 => changed[start..end].fill_with(|| random.number() as u8),
                2 => drop(changed.drain(start..end)),
                _ => {
                    let from = random.below(changed.len());
                    let piece = changed[from..(from + len).min(changed.len())].to_vec();
                    changed.splice(start..start, piece);
                }
            }
            if changed.is_empty() {
                changed.push(0);
            }
        }
        let is_same = changed == bytes;
        let found = read(&disk_with(sequence, &changed), sequence);
        assert_eq!(found.is_ok(), is_same, "seed {seed}: {found:?}");
    }
}

/// Whatever is stored comes out again, in pages of any size.
#[test]
fn what_is_written_is_read() {
    for seed in 0..25 {
        let mut random = Random::new(seed);
        let disk = testkit::simulated_disk(seed);
        let mut client = Client::open(&disk);
        let databases: Vec<DatabaseId> = [DatabaseId::DEFAULT]
            .into_iter()
            .chain(
                (0..random.below(4)).map(|n| client.create(&format!("n{n}"), Durability::Synced)),
            )
            .collect();
        let mut expected = BTreeMap::new();
        for _ in 0..random.below(300) {
            let database = random.pick(&databases);
            let key = vec![random.number() as u8; random.pick(&[0, 1, 5, 200, 65_535])];
            let len = random.pick(&[0, 1, 30, 1000, 16_383, 16_384, 40_000]);
            let len = if random.once_in(100) { 1_200_000 } else { len };
            let value = vec![random.number() as u8; len];
            let expires_ms = random.pick(&[0, 1_001, 5_000]);
            let expiry = match expires_ms {
                0 => Expiry::None,
                _ => Expiry::AfterMs(expires_ms - 1000),
            };
            client.run(database, &[put_expiring(&key, &value, expiry)]);
            expected.insert((database, key), (value, expires_ms));
        }
        client
            .durable
            .commit_loop
            .set_slice_rows(1 + random.below(300) as u32);
        let sequence = client.snapshot();
        let mut content = Content::default();
        let summary = snapshot::read(&disk, sequence, &mut content);
        let summary = summary.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(summary.totals.entries, expected.len() as u64);
        assert!(content.entries == expected, "seed {seed}");
        // With the hidden indexes of blobs, identities and replicas.
        assert_eq!(content.databases.len(), databases.len() + 3);
    }
}
