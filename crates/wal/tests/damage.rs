//! Changed bytes, lost files, foreign groups: refused with file and offset, or cut where nothing
//! was promised.

mod common;

use std::io::ErrorKind;

use common::{Client, Owned, Promise, SET, config, log_id, open_with};
use testkit::{OnFailure, Random};
use wal::disk::{Disk, SimulatedDisk};
use wal::{
    Damage, GroupBuffer, HEADER_BYTES, LogConfig, LogEnding, LogGroup, LogOpenError, LogPlace,
    LogReadFailure, NUMBER_BOUND, RecordError, TornGroup, segment_name,
};

/// Where a group is, and what it says.
#[derive(Clone, Copy, Debug)]
struct Spot {
    place: LogPlace,
    bytes: u64,
    number: u64,
    durable_group: u64,
}

fn spots(disk: &SimulatedDisk) -> Vec<Spot> {
    let mut spots = Vec::new();
    let mut visit = |place, group: &LogGroup<'_>| {
        spots.push(Spot {
            place,
            bytes: group.header.group_bytes().expect("it is there"),
            number: group.header.number,
            durable_group: group.header.durable.group,
        });
        Ok(())
    };
    wal::verify(disk, &mut visit).expect("it can be read");
    spots
}

/// A log of several segments, each group synced; not closed.
fn make(seed: u64, groups: usize) -> (SimulatedDisk, Promise) {
    let disk = testkit::simulated_disk(seed);
    let mut random = Random::new(seed);
    let mut promise = Promise::default();
    let mut client = Client::start(&disk, &mut promise, true).expect("an empty disk");
    for _ in 0..groups {
        let group = client.random_group(&mut random, 900);
        client.write(group).expect("there is room");
        client.sync().expect("the disk is whole");
        client.prepare();
    }
    drop(client);
    disk.kill();
    (disk, promise)
}

fn close(disk: &SimulatedDisk, promise: &mut Promise) {
    let client = Client::start(disk, promise, false).expect("the log is whole");
    client
        .log
        .close(client.promise.given, 1)
        .expect("there is room");
    disk.kill();
}

fn damage_of(disk: &SimulatedDisk) -> Option<Damage> {
    let steps = disk.step_count();
    match open_with(disk, &config(1)) {
        Err(LogOpenError::Damaged { damage, .. }) => {
            assert_eq!(disk.step_count(), steps, "a refused log was changed");
            Some(*damage)
        }
        // A changed version looks like one of another version.
        Err(LogOpenError::Read(LogReadFailure::TooNew { file, offset, .. })) => {
            assert_eq!(disk.step_count(), steps, "a refused log was changed");
            let name = file.strip_prefix("simulated/").expect("its disk");
            let segment = name.trim_end_matches(".log").parse().expect("its name");
            Some(Damage {
                place: LogPlace { segment, offset },
                last_good: Default::default(),
                witness: None,
                missing_segment: 0,
                newest_gone: 0,
                lost_sequence: 0,
                known_sequence: 0,
                cut: None,
            })
        }
        Err(error) => panic!("{error}"),
        Ok(_) => None,
    }
}

#[test]
fn a_changed_byte_of_a_closed_log_is_seen() {
    let (disk, mut promise) = make(1, 60);
    close(&disk, &mut promise);
    let spots = spots(&disk);
    assert!(spots.last().expect("there are groups").place.segment >= 3);
    let mut random = Random::new(2);
    for spot in &spots[..spots.len() - 1] {
        let start = spot.place.offset as usize;
        let header = (start..start + HEADER_BYTES).step_by(5);
        let body = (start + HEADER_BYTES..start + spot.bytes as usize).step_by(61);
        for offset in header.chain(body) {
            let bits = 1 << random.below(8);
            let name = segment_name(spot.place.segment);
            disk.flip(&name, offset, bits);
            let damage = damage_of(&disk);
            let damage = damage.unwrap_or_else(|| panic!("byte {offset} of {name} was not seen"));
            assert_eq!(damage.place.offset, spot.place.offset);
            assert_eq!(damage.place.segment, spot.place.segment);
            disk.flip(&name, offset, bits);
        }
    }
    assert_eq!(damage_of(&disk), None);
}

/// A group that nobody had synced before the stop.
#[test]
fn a_change_of_the_last_group_before_a_clean_stop_is_seen() {
    let (disk, mut promise) = make(11, 5);
    let mut client = Client::start(&disk, &mut promise, true).expect("the log is whole");
    let group = client.random_group(&mut Random::new(1), 100);
    client.write(group).expect("there is room");
    let given = client.promise.given;
    client.log.close(given, 1).expect("there is room");
    disk.lose_power();
    let spots = spots(&disk);
    let spot = spots[spots.len() - 2];
    disk.flip(
        &segment_name(spot.place.segment),
        spot.place.offset as usize + 40,
        1,
    );
    let damage = damage_of(&disk).expect("it was durable");
    assert_eq!(damage.place, spot.place);
}

#[test]
fn a_change_beyond_the_last_known_durable_group_is_cut() {
    for seed in 0..40 {
        let _on_failure = OnFailure(format!("seed {seed}"));
        let (disk, mut promise) = make(seed, 30);
        let mut random = Random::new(seed);
        // Some more groups that nobody synced.
        let mut client = Client::start(&disk, &mut promise, true).expect("the log is whole");
        for _ in 0..4 {
            let group = client.random_group(&mut random, 300);
            client.write(group).expect("there is room");
        }
        drop(client);
        disk.kill();
        let spots = spots(&disk);
        let last = *spots.last().expect("there are groups");
        let known = spots.iter().map(|spot| spot.durable_group).max();
        let spot = random.pick(&spots);
        let offset = spot.place.offset as usize + random.below(spot.bytes as usize);
        disk.flip(&segment_name(spot.place.segment), offset, 0x10);
        if Some(spot.number) <= known {
            assert!(damage_of(&disk).is_some());
        } else {
            assert!(spot.number + 3 >= last.number);
            // The groups before it are there, and it can be written to.
            Client::start(&disk, &mut promise, true).expect("a torn tail is cut");
        }
    }
}

#[test]
fn accepting_a_loss_keeps_what_is_before_it_and_begins_a_new_history() {
    for seed in 0..60 {
        let _on_failure = OnFailure(format!("seed {seed}"));
        let (disk, mut promise) = make(seed, 40);
        close(&disk, &mut promise);
        let mut random = Random::new(seed);
        let spots = spots(&disk);
        let spot = random.pick(&spots[..spots.len() - 1]);
        let name = segment_name(spot.place.segment);
        disk.flip(&name, spot.place.offset as usize, 1);
        let damage = damage_of(&disk).expect("it is damaged");

        let accepting = LogConfig {
            accept_loss: true,
            new_log_id: log_id(8),
            ..config(1)
        };
        let before = damage.last_good.sequence;
        let (log, _, recovered, records) = open_with(&disk, &accepting).expect("accepted");
        assert_eq!((recovered.history_id, log.history_id()), (8, 8));
        assert_eq!(recovered.loss, Some(damage));
        assert!(recovered.next_sequence > promise.given);
        let kept: Vec<Owned> = promise.groups.iter().flatten().cloned().collect();
        let kept: Vec<Owned> = kept
            .into_iter()
            .take_while(|record| record.sequence <= before)
            .collect();
        assert_eq!(records, kept);

        // The new history is as good as any.
        disk.lose_power();
        promise.groups.retain(|group| group[0].sequence <= before);
        (promise.written, promise.durable) = (promise.groups.len(), promise.groups.len());
        let client = Client::start(&disk, &mut promise, true).expect("the new log is whole");
        assert_eq!(client.log.history_id(), 8);
        client.work(&mut random, 40);
        disk.lose_power();
        Client::start(&disk, &mut promise, true).expect("the new log is whole");
    }
}

#[test]
fn a_lost_file_is_seen() {
    let (disk, promise) = make(3, 60);
    let names: Vec<String> = disk.list().expect("the disk is whole");
    assert!(names.len() >= 4, "{names:?}");
    disk.rename(&names[1], "elsewhere").expect("it is there");
    let damage = damage_of(&disk).expect("a hole");
    assert_eq!(damage.place.segment, 1);
    disk.rename("elsewhere", &names[1]).expect("it is there");

    // Without the oldest file the log begins later, and says so.
    disk.remove(&names[0]).expect("it is there");
    let (_, _, recovered, records) = open_with(&disk, &config(1)).expect("a shorter log");
    let first = records[0].sequence;
    assert!(first > promise.groups[0][0].sequence);
    assert!(recovered.first_sequence > 1 && recovered.first_sequence <= first);
}

/// No group is left that knows of those in the file that is gone.
#[test]
fn a_lost_file_with_nothing_behind_it_is_seen() {
    for groups in [3, 60] {
        let (disk, _) = make(9, groups);
        let names = disk.list().expect("the disk is whole");
        let [.., current, next] = &names[..] else {
            panic!("{names:?}");
        };
        assert!(
            disk.contents(next).iter().all(|&byte| byte == 0),
            "it was not used"
        );
        disk.remove(current).expect("it is there");
        let damage = damage_of(&disk).expect("the file that is gone held groups");
        assert_eq!(damage.witness, None);
        let is_missing = damage.missing_segment > 0;
        assert_eq!(is_missing, groups == 60, "the others begin behind it");
        if is_missing {
            assert_eq!(segment_name(damage.missing_segment), *current);
        }
        let accepting = LogConfig {
            accept_loss: true,
            new_log_id: log_id(8),
            ..config(1)
        };
        let (_, _, recovered, _) = open_with(&disk, &accepting).expect("the loss is accepted");
        assert_eq!((recovered.history_id, recovered.created), (8, false));
        disk.lose_power();
        assert_eq!(damage_of(&disk), None);
    }
}

#[test]
fn zeroed_or_foreign_files_are_not_taken_for_a_new_log() {
    let (disk, _) = make(4, 3);
    let name = segment_name(1);
    let file = disk.open(&name).expect("it is there");
    let len = disk.contents(&name).len();
    file.write_all_at(&vec![0; len], 0).expect("there is room");
    // The second file is there, so the first was in use.
    let damage = damage_of(&disk).expect("it was a log");
    assert_eq!(damage.witness, None);

    let disk = testkit::simulated_disk(5);
    let file = disk.create(&name).expect("an empty disk");
    file.write_all_at(&[b'x'; 5000], 0).expect("there is room");
    assert!(damage_of(&disk).is_some());
    assert_eq!(disk.contents(&name), [b'x'; 5000]);
}

#[test]
fn files_that_are_no_segments_are_left_alone() {
    let (disk, mut promise) = make(6, 10);
    for name in ["1.log", "x.log", "notes.txt", "00000000000000000001.LOG"] {
        disk.create(name).expect("it is new");
    }
    Client::start(&disk, &mut promise, false).expect("the log is whole");
    let names = disk.list().expect("the disk is whole");
    assert!(names.contains(&"1.log".into()) && names.contains(&"notes.txt".into()));
}

/// Nothing could be written behind a segment of the highest number that a name can have.
#[test]
fn a_segment_with_a_number_that_no_log_gets_to_is_refused() {
    let (disk, mut promise) = make(6, 10);
    let first = disk.contents(&segment_name(spots(&disk)[0].place.segment));
    for number in [u64::MAX, NUMBER_BOUND] {
        let name = segment_name(number);
        for content in [&[][..], &first] {
            let file = disk.create(&name).expect("it is new");
            file.write_at(content, 0).expect("there is room");
            for accept_loss in [false, true] {
                let config = LogConfig {
                    accept_loss,
                    ..config(1)
                };
                let Err(LogOpenError::Read(LogReadFailure::Ordinal { file })) =
                    open_with(&disk, &config)
                else {
                    panic!("{name} is taken for a file of the log");
                };
                assert_eq!(file, format!("simulated/{name}"));
            }
            disk.remove(&name).expect("it is there");
        }
    }
    Client::start(&disk, &mut promise, false).expect("the log is whole");
}

/// Somebody stores groups as values, of this log but for what nobody is shown, or of an old copy of
/// it.
#[test]
fn groups_within_values_are_values() {
    let (disk, mut promise) = make(7, 30);
    let source = spots(&disk)[20];
    let contents = disk.contents(&segment_name(source.place.segment));
    let start = source.place.offset as usize;
    let copy = contents[start..start + source.bytes as usize].to_vec();
    let mut forged = copy.clone();
    // Far ahead, with the public half of the id right and the secret one guessed.
    forged[24..32].copy_from_slice(&1u64.to_le_bytes());
    forged[32..40].copy_from_slice(&1000u64.to_le_bytes());
    forged[64..72].copy_from_slice(&999u64.to_le_bytes());
    reseal(&mut forged);
    for value in [copy, forged] {
        let mut client = Client::start(&disk, &mut promise, false).expect("the log is whole");
        // Its place within the group is a multiple of 512.
        let key = vec![b'k'; 512 - HEADER_BYTES - wal::RECORD_BYTES];
        let sequence = client.next_sequence;
        let record = Owned {
            sequence,
            origin: 0,
            kind: SET,
            expires_ms: 0,
            key,
            value,
        };
        client.promise.given = sequence;
        client.write(vec![record]).expect("there is room");
        drop(client);
        disk.kill();
        // The group that holds it is torn.
        let last = *spots(&disk).last().expect("there are groups");
        disk.flip(
            &segment_name(last.place.segment),
            last.place.offset as usize + 100,
            1,
        );
        Client::start(&disk, &mut promise, true).expect("a torn tail is cut");
        disk.kill();
    }
}

fn reseal(group: &mut [u8]) {
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&group[..12]), &group[16..]);
    group[12..16].copy_from_slice(&checksum.to_le_bytes());
}

/// Nothing tells it from a group that a device has changed after it was acknowledged, so that
/// whoever runs the log has to learn of it.
#[test]
fn a_group_that_is_cut_at_the_end_is_reported_once() {
    let disk = testkit::simulated_disk(9);
    let mut random = Random::new(9);
    let start = || open_with(&disk, &config(1)).expect("a torn tail is cut");
    for _ in 0..2 {
        let (mut log, _, recovered, _) = start();
        assert_eq!(recovered.torn, None);
        let mut group = GroupBuffer::new();
        for sequence in recovered.next_sequence..recovered.next_sequence + 3 {
            group.push(&Owned::random(&mut random, sequence, 10).record());
        }
        log.write_group(&mut group, 1).expect("there is room");
        drop(log);
        let last = *spots(&disk).last().expect("there are groups");
        let file = segment_name(last.place.segment);
        disk.flip(&file, last.place.offset as usize + HEADER_BYTES, 1);
        let torn = start().2.torn.expect("a group that is not whole");
        let TornGroup {
            place,
            bytes,
            records,
        } = torn;
        assert_eq!((place, bytes, records), (last.place, last.bytes, 3));
    }
}

/// Changes the first group of a log of one, with a right checksum.
fn open_changed(change: impl Fn(&mut [u8])) -> LogOpenError {
    let disk = testkit::simulated_disk(8);
    let (mut log, _, recovered, _) = open_with(&disk, &config(1)).expect("an empty disk");
    let mut group = GroupBuffer::new();
    let mut random = Random::new(1);
    for _ in 0..2 {
        group.push(&Owned::random(&mut random, recovered.next_sequence, 10).record());
    }
    log.write_group(&mut group, 1).expect("there is room");
    let spot = spots(&disk)[1];
    let file = disk.open(&segment_name(1)).expect("it is there");
    let mut bytes = vec![0; spot.bytes as usize];
    file.read_up_to(&mut bytes, spot.place.offset)
        .expect("it is there");
    change(&mut bytes);
    reseal(&mut bytes);
    file.write_all_at(&bytes, spot.place.offset)
        .expect("there is room");
    disk.kill();
    let steps = disk.step_count();
    let error = open_with(&disk, &config(1)).expect_err("not understood");
    assert_eq!(disk.step_count(), steps, "a refused log was changed");
    assert!(error.to_string().contains("00000000000000000001.log"));
    assert!(error.to_string().contains("at byte 512"), "{error}");
    error
}

/// Groups with a right checksum that are not the next one, as an earlier use of the file may have
/// left them.
#[test]
fn a_group_that_does_not_follow_is_cut() {
    let flip = |at: usize| move |group: &mut [u8]| group[at] ^= 1;
    type Change = Box<dyn Fn(&mut [u8])>;
    let changes: [(&str, Change); 6] = [
        ("nothing", Box::new(|_| {})),
        ("public half of the log id", Box::new(flip(16))),
        ("secret half of the log id", Box::new(flip(24))),
        ("number", Box::new(|group| group[32] += 1)),
        ("first sequence", Box::new(|group| group[40] -= 1)),
        ("checksum of the group before", Box::new(flip(92))),
    ];
    for (what, change) in changes {
        let (disk, mut promise) = make(10, 5);
        let spot = *spots(&disk).last().expect("there are groups");
        let file = disk
            .open(&segment_name(spot.place.segment))
            .expect("it is there");
        let mut bytes = vec![0; spot.bytes as usize];
        file.read_up_to(&mut bytes, spot.place.offset)
            .expect("it is there");
        change(&mut bytes);
        reseal(&mut bytes);
        file.write_all_at(&bytes, spot.place.offset)
            .expect("there is room");
        promise.durable = if what == "nothing" { 5 } else { 4 };
        let client = Client::start(&disk, &mut promise, true).expect("the tail is cut");
        assert_eq!(
            client.promise.groups.len(),
            client.promise.durable,
            "{what}"
        );
        assert_eq!(
            client.promise.durable,
            if what == "nothing" { 5 } else { 4 },
            "{what}"
        );
    }
}

#[test]
fn what_is_not_understood_is_refused() {
    let reason = |change: fn(&mut [u8])| match open_changed(change) {
        LogOpenError::Read(LogReadFailure::Record { reason, .. }) => reason,
        error => panic!("{error}"),
    };
    for kind in [0, 9, 32, 33, 34, 35, 39, 255] {
        let error = open_changed(|group| group[HEADER_BYTES + 30] = kind);
        let LogOpenError::Read(LogReadFailure::Record { reason, .. }) = error else {
            panic!("{error}");
        };
        assert_eq!(reason, RecordError::Kind(kind));
    }
    assert_eq!(
        reason(|group| group[HEADER_BYTES + 31] = 1),
        RecordError::Reserved
    );
    assert_eq!(
        reason(|group| group[HEADER_BYTES + 19] = 1),
        RecordError::CutShort
    );
    assert_eq!(
        reason(|group| group[HEADER_BYTES] ^= 1),
        RecordError::Sequence
    );
    assert_eq!(reason(|group| group[88] = 1), RecordError::Count);
    assert_eq!(reason(|group| group[88] = 3), RecordError::Count);
    assert!(matches!(
        open_changed(|group| group[8] = 3),
        LogOpenError::Read(LogReadFailure::TooNew { version: 3, .. })
    ));
}

#[test]
fn verify_tells_the_endings_apart() {
    let disk = testkit::simulated_disk(9);
    let ending = |disk: &SimulatedDisk| {
        let report = wal::verify(disk, &mut |_, _| Ok(())).expect("it can be read");
        report.ending
    };
    assert_eq!(ending(&disk), LogEnding::Empty);
    let (disk, mut promise) = make(9, 50);
    assert_eq!(ending(&disk), LogEnding::Open);
    close(&disk, &mut promise);
    assert_eq!(ending(&disk), LogEnding::Closed);

    let steps = disk.step_count();
    let mut groups = 0;
    let report = wal::verify(&disk, &mut |_, _| {
        groups += 1;
        Ok(())
    })
    .expect("it can be read");
    assert_eq!(report.groups, groups);
    let records: usize = promise.groups.iter().map(Vec::len).sum();
    assert_eq!(report.records, records as u64 + 2, "and two marks");
    assert_eq!(report.history_id, Some(7));
    assert_eq!(report.first_sequence, 1);
    assert_eq!(report.last_sequence, promise.given);
    assert_eq!(
        report
            .segments
            .iter()
            .map(|segment| segment.groups)
            .sum::<u64>(),
        groups
    );
    assert_eq!(disk.step_count(), steps);

    disk.flip(&segment_name(1), 0, 1);
    assert!(matches!(ending(&disk), LogEnding::Damaged(damage) if damage.place.offset == 0));
    assert_eq!(
        disk.open("none")
            .map(|_| ())
            .expect_err("no such file")
            .kind(),
        ErrorKind::NotFound
    );
}

/// Files full of invalid bytes, of pieces of each other, cut or grown: no panic, nothing out of
/// order, and a way out.
#[test]
fn invalid_bytes_are_survived() {
    for seed in 0..150 {
        let _on_failure = OnFailure(format!("seed {seed}"));
        let (disk, promise) = make(seed, 30);
        let mut random = Random::new(seed);
        let names = disk.list().expect("the disk is whole");
        for _ in 0..1 + random.below(5) {
            let file = disk.open(&random.pick(&names)).expect("it is there");
            let source = disk.contents(&random.pick(&names));
            let place = |random: &mut Random| 512 * random.below(source.len() / 512 + 1);
            let (from, to) = (place(&mut random), place(&mut random));
            let count = (512 * random.below(6)).min(source.len() - from);
            let result = match random.below(4) {
                0 => file.write_all_at(&source[from..from + count], to as u64),
                1 => file.write_all_at(&vec![random.number() as u8; count], to as u64),
                2 => file.set_len(random.below(source.len()) as u64),
                _ => file.write_all_at(&[random.number() as u8], random.below(source.len()) as u64),
            };
            result.expect("the disk is whole");
        }
        let accepting = LogConfig {
            accept_loss: true,
            new_log_id: log_id(8),
            ..config(1)
        };
        let (log, _, recovered, records) = match open_with(&disk, &accepting) {
            Ok(opened) => opened,
            Err(LogOpenError::Read(LogReadFailure::TooNew { .. })) => continue,
            Err(error) => panic!("{error}"),
        };
        let written: Vec<Owned> = promise.groups.iter().flatten().cloned().collect();
        let begin = match records.first() {
            Some(first) => written.iter().position(|record| record == first),
            None => Some(0),
        };
        let begin = begin.expect("only what was written is read");
        assert_eq!(records[..], written[begin..begin + records.len()]);
        assert!(recovered.next_sequence > recovered.last_sequence);
        drop(log);
        disk.lose_power();
        let (_, _, _, again) = open_with(&disk, &config(1)).expect("the loss was accepted");
        assert_eq!(again, records);
    }
}
