//! Files of the log that became shorter than they were made: damage, wherever they were cut.

mod common;

use common::{Client, Promise, config, log_id, names, open_with, set};
use wal::disk::{Disk, SimulatedDisk};
use wal::{Damage, GroupBuffer, HEADER_BYTES, LogConfig, LogOpenError, segment_name, verify};

/// A log in which so many values were set, each durable; and how it was left.
fn make(values: usize, value_bytes: usize, is_closed: bool) -> (SimulatedDisk, Promise) {
    let disk = testkit::simulated_disk(values as u64);
    let mut promise = Promise::default();
    let mut client = Client::start(&disk, &mut promise, true).expect("an empty disk");
    assert!(client.prepare());
    for _ in 0..values {
        let sequence = client.next_sequence;
        client.next_sequence += 1;
        client.promise.given = sequence;
        client
            .write(vec![set(sequence, value_bytes)])
            .expect("there is room");
        client.sync().expect("the disk is whole");
        assert!(client.prepare());
    }
    if is_closed {
        client.log.close(client.promise.given, 1).expect("it fits");
    }
    disk.kill();
    (disk, promise)
}

fn cut(disk: &SimulatedDisk, name: &str, bytes: u64) {
    let file = disk.open(name).expect("it is there");
    file.set_len(bytes).expect("it can be cut");
    file.sync().expect("the disk is whole");
}

fn damage_of(disk: &SimulatedDisk) -> Option<Damage> {
    let steps = disk.step_count();
    match open_with(disk, &config(1)) {
        Err(LogOpenError::Damaged { damage, .. }) => {
            assert_eq!(disk.step_count(), steps, "a refused log was changed");
            disk.kill();
            Some(*damage)
        }
        Err(error) => panic!("{error}"),
        Ok(_) => None,
    }
}

/// The last segment that has groups.
fn active(disk: &SimulatedDisk) -> (String, u64) {
    let report = verify(disk, &mut |_, _| Ok(())).expect("it can be read");
    let last = report.segments.iter().rfind(|one| one.groups > 0);
    let last = last.expect("there are groups");
    (last.file.clone(), last.bytes)
}

/// Files that are larger than any file must be: it is their groups that say how large they were.
const LARGE_BYTES: u64 = 32 * 1024;

fn make_large(values: usize, value_bytes: usize, is_closed: bool) -> SimulatedDisk {
    let disk = testkit::simulated_disk(values as u64);
    let large = LogConfig {
        segment_bytes: LARGE_BYTES,
        ..config(1)
    };
    let (mut log, mut stock, recovered, _) = open_with(&disk, &large).expect("an empty disk");
    let mut group = GroupBuffer::new();
    let mut sequence = recovered.next_sequence;
    for _ in 0..values {
        if let Some(wanted) = log.wanted_segment() {
            log.take_segment(stock.prepare(wanted).expect("there is room"));
        }
        group.push(&set(sequence, value_bytes).record());
        log.write_group(&mut group, 1).expect("there is room");
        log.sync().expect("the disk is whole");
        sequence += 1;
    }
    if is_closed {
        log.close(sequence, 1).expect("it fits");
    }
    disk.kill();
    disk
}

#[test]
fn a_file_that_was_cut_is_damage_wherever_and_however_the_log_ended() {
    // The last file: the first one; a later one; one that begins with a group of most of its size.
    for (values, value_bytes) in [(3, 100), (50, 2_000), (4, 20_000)] {
        for is_closed in [false, true] {
            let disk = make_large(values, value_bytes, is_closed);
            let (name, bytes) = active(&disk);
            assert_eq!(bytes, LARGE_BYTES);
            for left in (0..bytes)
                .step_by(101)
                .chain([1, 127, 128, 511, 512, bytes - 1])
            {
                let disk = disk.fork();
                cut(&disk, &name, left);
                let what = format!("{values} values, closed {is_closed}: {left} bytes are left");
                let damage = damage_of(&disk).unwrap_or_else(|| panic!("{what}"));
                let cut = damage.cut.unwrap_or_else(|| panic!("{what}: {damage}"));
                assert_eq!((segment_name(cut.segment), cut.bytes), (name.clone(), left));
                assert!(cut.made_bytes > left && cut.made_bytes <= bytes, "{what}");
                let text = damage.to_string();
                assert!(
                    text.contains(&format!("{name} was cut: it has {left} bytes")),
                    "{text}"
                );
                // Looked at twice, and by somebody who only looks.
                assert_eq!(damage_of(&disk), Some(damage));
            }
        }
    }
}

/// Accepted once, it is over, and what comes later is as durable as ever: cut again, it is seen
/// again.
#[test]
fn a_cut_that_was_accepted_is_over_and_a_second_one_is_seen() {
    for left in [0, 100, 600, 2_000, 5_000] {
        let (disk, mut promise) = make(20, 900, true);
        for history in 8..10 {
            let (name, _) = active(&disk);
            cut(&disk, &name, left);
            let damage = damage_of(&disk).expect("it was cut");
            let accepting = LogConfig {
                accept_loss: true,
                new_log_id: log_id(history),
                ..config(1)
            };
            let (log, _, recovered, _) = open_with(&disk, &accepting).expect("it is accepted");
            assert_eq!(recovered.loss, Some(damage));
            assert_eq!(log.history_id(), history);
            assert!(recovered.next_sequence > promise.given);
            drop(log);
            disk.lose_power();
            let good = damage.last_good.sequence;
            promise.groups.retain(|group| group[0].sequence <= good);
            promise.durable = promise.groups.len();
            promise.written = promise.durable;
            for _ in 0..2 {
                let mut client = Client::start(&disk, &mut promise, true).expect("it is whole");
                for _ in 0..12 {
                    assert!(client.prepare());
                    let sequence = client.next_sequence;
                    client.next_sequence += 1;
                    client.promise.given = sequence;
                    client
                        .write(vec![set(sequence, 900)])
                        .expect("there is room");
                    client.sync().expect("the disk is whole");
                }
                drop(client);
                disk.lose_power();
            }
        }
    }
}

/// What is ready for later holds nothing, but it was made whole.
#[test]
fn the_next_file_is_missed_when_it_is_too_short_for_any() {
    let (disk, mut promise) = make(3, 100, true);
    let next = segment_name(2);
    assert_eq!(names(&disk, ".log").last(), Some(&next));
    cut(&disk, &next, 1_000);
    let damage = damage_of(&disk).expect("it was cut");
    assert_eq!(damage.cut.map(|cut| cut.segment), Some(2));
    let accepting = LogConfig {
        accept_loss: true,
        new_log_id: log_id(8),
        ..config(1)
    };
    let (_, _, recovered, records) = open_with(&disk, &accepting).expect("it is accepted");
    assert_eq!(
        (recovered.history_id, records.len()),
        (8, 3),
        "nothing was in it"
    );
    disk.lose_power();
    Client::start(&disk, &mut promise, true).expect("it is whole again");
}

/// Groups of the first version do not say how large their file was made.
#[test]
fn a_log_of_the_first_version_is_read_and_gone_on_with() {
    let (disk, mut promise) = make(12, 900, true);
    let mut checksum = 0;
    for name in names(&disk, ".log") {
        let mut bytes = disk.contents(&name);
        let mut offset = 0;
        while bytes
            .get(offset..)
            .is_some_and(|rest| rest.starts_with(b"PeltnLog"))
        {
            let body = u64::from_le_bytes(bytes[offset + 80..][..8].try_into().expect("8 bytes"));
            let end = (offset + HEADER_BYTES + body as usize).next_multiple_of(512);
            let group = &mut bytes[offset..end];
            group[8..10].copy_from_slice(&1u16.to_le_bytes());
            group[96..HEADER_BYTES].fill(0);
            group[92..96].copy_from_slice(&u32::to_le_bytes(checksum));
            checksum = crc32c::crc32c_append(crc32c::crc32c(&group[..12]), &group[16..]);
            group[12..16].copy_from_slice(&checksum.to_le_bytes());
            offset = end;
        }
        let file = disk.open(&name).expect("it is there");
        file.write_all_at(&bytes, 0).expect("there is room");
        file.sync().expect("the disk is whole");
    }
    for _ in 0..2 {
        let client = Client::start(&disk, &mut promise, true).expect("it is read");
        assert_eq!(client.promise.groups.len(), 12);
        drop(client);
        disk.lose_power();
    }
    // From now on it says.
    let (name, bytes) = active(&disk);
    cut(&disk, &name, bytes - 1);
    assert!(damage_of(&disk).is_some_and(|damage| damage.cut.is_some()));
}
