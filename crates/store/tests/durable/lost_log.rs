//! A data folder whose log is gone, or ends too early, and blobs that nothing names any more.

use std::sync::Arc;

use store::blob::FoundBlobs;
use store::durable::OpenError;
use store::limits::SET_ASIDE_MS;
use store::{DatabaseId, Durability, Mode, SET_ASIDE_FOLDER, Store};
use testkit::suite::{StandingClock, put};
use wal::LogConfig;
use wal::disk::{Disk, Fault, SimulatedDisk, Step};

use crate::bench::{Durable, log_config};
use crate::blobs::{Bench, config};

fn remove_log(disk: &SimulatedDisk) {
    for name in disk.list().expect("it can be listed") {
        if name.ends_with(".log") {
            disk.remove(&name).expect("it is there");
        }
    }
    disk.sync_folder().expect("the disk is whole");
}

fn contents(disk: &SimulatedDisk) -> Vec<String> {
    disk.folder("blobs").list().expect("it can be listed")
}

fn set_aside(disk: &SimulatedDisk) -> Vec<String> {
    let folder = disk.folder(SET_ASIDE_FOLDER);
    folder.list().expect("it can be listed")
}

fn text(disk: &SimulatedDisk) -> String {
    let text = disk.contents("pelton-data");
    String::from_utf8(text).expect("it is a text")
}

fn write_text(disk: &SimulatedDisk, text: &str) {
    let file = disk.open("pelton-data").expect("it is there");
    file.set_len(0).expect("it can be cut");
    file.write_all_at(text.as_bytes(), 0)
        .expect("there is room");
    file.sync().expect("the disk is whole");
}

fn accepting(history: u64) -> LogConfig {
    LogConfig {
        accept_loss: true,
        new_log_id: wal::LogId {
            history,
            secret: !history,
        },
        ..log_config()
    }
}

/// A start that is refused, and changes nothing. Returns why.
fn refused(disk: &SimulatedDisk) -> String {
    let steps = disk.step_count();
    let opened = Store::open(config(), Arc::new(disk.clone()), &log_config());
    let error = opened.expect_err("it must not start").to_string();
    assert_eq!(disk.step_count(), steps, "nothing is changed");
    disk.kill();
    error
}

fn with_blobs(seed: u64, blobs: usize) -> (SimulatedDisk, Bench) {
    let disk = testkit::simulated_disk(seed);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    for number in 0..blobs {
        bench.store(&format!("blob-{number}"), b"content");
    }
    (disk, bench)
}

#[test]
fn a_folder_without_its_log_is_not_taken_for_a_new_one() {
    for is_clean in [true, false] {
        let (disk, bench) = with_blobs(1, 3);
        let Bench { durable, mut clock } = bench;
        match is_clean {
            true => durable.commit_loop.close(&mut clock).expect("it is whole"),
            false => disk.kill(),
        }
        // A clean stop may have made one, which knows of the log too.
        for name in disk.list().expect("it can be listed") {
            if name.ends_with(".snapshot") {
                disk.remove(&name).expect("it is there");
            }
        }
        remove_log(&disk);
        let before = contents(&disk);
        for _ in 0..2 {
            let why = refused(&disk);
            assert!(why.contains("no group of it is left"), "{why}");
            assert_eq!(contents(&disk), before);
        }

        // Given up, and nothing is removed even then.
        for history in [8, 9] {
            let opened = Store::open(config(), Arc::new(disk.clone()), &accepting(history));
            let opened = opened.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(opened.recovered.history_id, 8);
            let set_aside_now = if history == 8 { 3 } else { 0 };
            assert_eq!(opened.blobs.set_aside, set_aside_now);
            drop(opened);
            disk.lose_power();
        }
        assert_eq!(contents(&disk), [""; 0]);
        let moved = set_aside(&disk);
        for (name, moved) in before.iter().zip(&moved) {
            assert!(moved.ends_with(&format!("-{name}")), "{moved}");
        }
        assert_eq!(moved.len(), 3);
        // It is an ordinary folder again, which is missed again.
        remove_log(&disk);
        refused(&disk);
    }
}

/// Before the first log is durable there is nothing to lose; from then on there is.
#[test]
fn a_folder_knows_of_its_log_from_the_first_start_on() {
    let mut knew = 0;
    for step in 0.. {
        let disk = testkit::simulated_disk(step as u64);
        disk.plan(step, Fault::PowerLoss);
        let opened = Durable::open(config(), &disk);
        let was_met = !disk.has_power();
        let is_open = opened.is_ok();
        drop(opened);
        disk.lose_power();
        disk.forget_plans();
        // What a crash leaves at any step is no damage.
        drop(Durable::open(config(), &disk).unwrap_or_else(|error| panic!("step {step}: {error}")));
        disk.lose_power();
        assert!(text(&disk).contains("\nlog "), "{}", text(&disk));
        remove_log(&disk);
        refused(&disk);
        knew += 1;
        if is_open && !was_met {
            break;
        }
    }
    assert!(knew > 10);
}

#[test]
fn the_end_of_a_log_is_missed_behind_a_clean_stop() {
    let disk = testkit::simulated_disk(2);
    for number in 0..2u8 {
        let mut durable = Durable::open(config(), &disk).expect("it is whole");
        let mut clock = StandingClock { now_ms: 1 };
        let mut batch = durable.store.write_batch();
        for key in 0..100u8 {
            let mut commit = batch.begin(u64::from(key), DatabaseId::DEFAULT, Mode::Atomic);
            let pushed = commit.push(&put(&[number, key], &[1; 300]));
            pushed.expect("within the limits");
            commit.submit();
        }
        durable.mailbox.submit(&mut batch);
        while durable.commit_loop.round(&mut clock) {}
        durable.commit_loop.close(&mut clock).expect("it is whole");
        disk.lose_power();

        // All that is behind some group reads as zeros, as after a repair of the file system, and
        // the size is right.
        let zeroed = disk.fork();
        let report = wal::verify(&zeroed, &mut |_, _| Ok(())).expect("it can be read");
        let last = report.segments.iter().rfind(|one| one.groups > 0);
        let last = last.expect("there are groups");
        let file = zeroed.open(&last.file).expect("it is there");
        let from = (last.used_bytes / 2).next_multiple_of(512);
        let zeros = vec![0; (last.bytes - from) as usize];
        file.write_all_at(&zeros, from).expect("there is room");
        let why = refused(&zeroed);
        assert!(why.contains("is known to have been durable"), "{why}");
    }
}

/// Fills some files of the log, and returns their names.
fn with_files(disk: &SimulatedDisk, is_clean: bool) -> Vec<String> {
    let mut durable = Durable::open(config(), disk).expect("it is whole");
    let mut clock = StandingClock { now_ms: 1 };
    let logs = || {
        let mut names = disk.list().expect("it can be listed");
        names.retain(|name| name.ends_with(".log"));
        names
    };
    let begun = logs().len();
    for number in 0_u64.. {
        let mut batch = durable.store.write_batch();
        let mut commit = batch.begin(number, DatabaseId::DEFAULT, Mode::Atomic);
        let key = number.to_be_bytes();
        (commit.push(&put(&key, &[1; 3000]))).expect("within the limits");
        commit.submit();
        durable.mailbox.submit(&mut batch);
        while durable.commit_loop.round(&mut clock) {}
        if logs().len() >= begun + 3 {
            break;
        }
    }
    match is_clean {
        true => durable.commit_loop.close(&mut clock).expect("it is whole"),
        false => disk.kill(),
    }
    let names = logs();
    disk.lose_power();
    names
}

/// Not those in the middle, whose loss the later ones show: the row simply ends earlier.
#[test]
fn newest_files_of_the_log_are_missed_if_they_are_gone() {
    for gone in 1..=2 {
        let disk = testkit::simulated_disk(9);
        let mut log = with_files(&disk, false);
        for history in [8, 9] {
            let untouched = disk.fork();
            drop(Durable::open(config(), &untouched).expect("a crash leaves no damage"));
            for name in &log[log.len() - gone..] {
                disk.remove(name).expect("it is there");
            }
            disk.sync_folder().expect("the disk is whole");
            for _ in 0..2 {
                let why = refused(&disk);
                let newest = log.last().expect("there are some");
                assert!(
                    why.contains(newest) && why.contains("put them back"),
                    "{why}"
                );
            }
            let opened = Store::open(config(), Arc::new(disk.clone()), &accepting(history));
            let opened = opened.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(opened.recovered.history_id, history);
            let loss = opened.recovered.loss.expect("something was given up");
            assert!(opened.recovered.next_sequence > loss.lost_sequence);
            drop(opened);
            disk.lose_power();
            // It is an ordinary folder again, which is missed again.
            log = with_files(&disk, false);
        }
    }
}

/// Fills files of the log, whose groups no answer waits for, and loses the power. Returns how many
/// files there are.
fn with_lost_end(disk: &SimulatedDisk, groups: u64) -> usize {
    let mut config = config();
    config.default_database.durability = Durability::Written;
    let mut durable = Durable::open(config, disk).expect("it is whole");
    let mut clock = StandingClock { now_ms: 1 };
    for number in 0..groups {
        let mut batch = durable.store.write_batch();
        let mut commit = batch.begin(number, DatabaseId::DEFAULT, Mode::Atomic);
        let key = number.to_be_bytes();
        (commit.push(&put(&key, &[1; 3000]))).expect("within the limits");
        commit.submit();
        durable.mailbox.submit(&mut batch);
        while durable.commit_loop.round(&mut clock) {}
    }
    disk.lose_power();
    drop(durable);
    files_of_log(disk)
}

fn files_of_log(disk: &SimulatedDisk) -> usize {
    let names = disk.list().expect("it can be listed");
    names.iter().filter(|name| name.ends_with(".log")).count()
}

/// What a start takes away of the end of a log, where nothing is that counts, is not missed by the
/// next one, wherever the first was cut off.
#[test]
fn files_that_a_start_does_not_need_are_not_missed_if_it_is_cut_off() {
    let mut taken_away = 0;
    for groups in 40..110 {
        let whole = testkit::simulated_disk(groups);
        let files = with_lost_end(&whole, groups);
        for fault in [Fault::PowerLoss, Fault::Full] {
            for step in 0.. {
                let disk = whole.fork();
                let planned = disk.step_count() + step;
                disk.plan(planned, fault);
                drop(Durable::open(config(), &disk));
                let is_through = disk.step_count() <= planned;
                taken_away += usize::from(is_through && files_of_log(&disk) < files);
                disk.lose_power();
                disk.forget_plans();
                let second = Durable::open(config(), &disk);
                let what = || format!("{groups} groups, {fault:?} in step {step}");
                drop(second.unwrap_or_else(|error| panic!("{}: {error}", what())));
                if is_through {
                    break;
                }
            }
        }
    }
    assert!(taken_away > 0);
}

#[test]
fn file_that_was_only_ready_is_not_missed_behind_a_clean_stop() {
    let disk = testkit::simulated_disk(10);
    for _ in 0..2 {
        let log = with_files(&disk, true);
        let report = wal::verify(&disk, &mut |_, _| Ok(())).expect("it can be read");
        let newest = report.segments.last().expect("there are some");
        assert_eq!((newest.groups, Some(&newest.file)), (0, log.last()));
        disk.remove(&newest.file).expect("it is there");
        disk.sync_folder().expect("the disk is whole");
    }
    drop(Durable::open(config(), &disk).expect("nothing was in it"));
}

/// The first version said nothing of its log. It had one.
#[test]
fn a_folder_of_the_first_version_is_read_and_becomes_one_of_this() {
    let disk = testkit::simulated_disk(3);
    drop(Durable::open(config(), &disk).expect("it is empty"));
    disk.kill();
    let heading = text(&disk).lines().next().expect("it is there").to_owned();
    let old = format!("{heading}\nformat 1\n");
    write_text(&disk, &old);

    let without_log = disk.fork();
    remove_log(&without_log);
    refused(&without_log);
    assert_eq!(text(&without_log), old);

    for _ in 0..2 {
        drop(Durable::open(config(), &disk).expect("it is read"));
        disk.kill();
        assert!(text(&disk).contains("\nlog "), "{}", text(&disk));
    }
}

/// Where the disk is full, the folder knows less, and the server starts all the same.
#[test]
fn a_full_disk_does_not_keep_the_folder_from_being_opened() {
    let disk = testkit::simulated_disk(4);
    drop(Durable::open(config(), &disk).expect("it is empty"));
    disk.kill();
    let before = text(&disk);
    for _ in 0..2 {
        disk.plan_next(Step::Create, 0, Fault::Full);
        drop(Durable::open(config(), &disk).expect("reads go on"));
        disk.kill();
        assert_eq!(text(&disk), before);
    }
    disk.plan_next(Step::Create, 0, Fault::Error);
    let error = Durable::open(config(), &disk).err();
    assert!(matches!(error, Some(OpenError::Folder(_))), "{error:?}");
    disk.kill();
    drop(Durable::open(config(), &disk).expect("it was one error"));
    disk.kill();
    assert_ne!(text(&disk), before);
}

/// Descriptions that are gone though the log is whole: here, because it is that of an emptier
/// folder.
#[test]
fn more_contents_than_a_crash_leaves_are_not_set_aside_without_being_told_to() {
    let many = usize::try_from(store::blob::limits::ORPHANS).expect("a small number") + 1;
    let (disk, bench) = with_blobs(5, many);
    drop(bench);
    disk.kill();
    let emptier = testkit::simulated_disk(6);
    let mut durable = Durable::open(config(), &emptier).expect("it is empty");
    // Hours later, by the clock of the log.
    let mut clock = StandingClock {
        now_ms: 10 * store::blob::limits::DESCRIBING_MS,
    };
    let mut batch = durable.store.write_batch();
    let mut commit = batch.begin(0, DatabaseId::DEFAULT, Mode::Atomic);
    commit.push(&put(b"key", b"value")).expect("it fits");
    commit.submit();
    durable.mailbox.submit(&mut batch);
    while durable.commit_loop.round(&mut clock) {}
    emptier.kill();
    let (from, to) = (disk.folder("blobs"), emptier.folder("blobs"));
    for name in from.list().expect("it can be listed") {
        let file = to.create(&name).expect("it is new");
        let bytes = from.contents(&name);
        file.write_all_at(&bytes, 0).expect("there is room");
        file.sync().expect("the disk is whole");
    }
    to.sync_folder().expect("the disk is whole");

    let one_less = emptier.fork();
    for _ in 0..2 {
        let why = refused(&emptier);
        assert!(
            why.contains(&format!("nothing names {many} files")),
            "{why}"
        );
    }
    let opened = Store::open(config(), Arc::new(emptier.clone()), &accepting(8));
    let opened = opened.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(opened.blobs.set_aside, many as u64);
    assert_eq!(
        opened.recovered.loss, None,
        "nothing of the log is given up"
    );
    assert_eq!(set_aside(&emptier).len(), many);

    let folder = one_less.folder("blobs");
    let first = folder.list().expect("it can be listed").swap_remove(0);
    folder.remove(&first).expect("it is there");
    drop(Durable::open(config(), &one_less).expect("a crash may leave so many"));
    assert_eq!(set_aside(&one_less).len(), many - 1);
}

/// However many blobs were removed: the log tells of them, so that files which a loss of power
/// brings back are no riddle, and are removed. A file of the same number that is another content is
/// set aside.
#[test]
fn removed_blobs_that_come_back_are_removed_without_a_question() {
    let many = usize::try_from(store::blob::limits::ORPHANS).expect("a small number") + 1;
    let (disk, mut bench) = with_blobs(7, many);
    let before = disk.fork();
    bench.clock.now_ms = 10 * store::blob::limits::DESCRIBING_MS;
    for number in 0..many {
        bench
            .delete(&format!("blob-{number}"))
            .expect("it is there");
    }
    disk.kill();
    assert_eq!(contents(&disk), [""; 0]);
    let (from, to) = (before.folder("blobs"), disk.folder("blobs"));
    for name in from.list().expect("it can be listed") {
        let file = to.create(&name).expect("it is new");
        let bytes = from.contents(&name);
        file.write_all_at(&bytes, 0).expect("there is room");
    }
    let opened = Store::open(config(), Arc::new(disk.clone()), &log_config());
    let opened = opened.unwrap_or_else(|error| panic!("{error}"));
    let FoundBlobs {
        removed, set_aside, ..
    } = opened.blobs;
    assert_eq!((removed, set_aside), (many as u64, 0));
    assert_eq!(contents(&disk), [""; 0]);
}

#[test]
fn what_was_set_aside_goes_a_week_later() {
    let (disk, bench) = with_blobs(8, 2);
    drop(bench);
    disk.kill();
    remove_log(&disk);
    let at = |now_ms| LogConfig {
        now_ms,
        ..accepting(8)
    };
    let begin_ms = 1_700_000_000_000;
    for (now_ms, set_aside_now, expired, left) in [
        (begin_ms, 2, 0, 2),
        (begin_ms + SET_ASIDE_MS - 1, 0, 0, 2),
        (begin_ms + SET_ASIDE_MS, 0, 2, 0),
        (begin_ms + SET_ASIDE_MS + 1, 0, 0, 0),
    ] {
        let opened = Store::open(config(), Arc::new(disk.clone()), &at(now_ms));
        let opened = opened.unwrap_or_else(|error| panic!("{error}"));
        let found = (opened.blobs.set_aside, opened.blobs.expired);
        assert_eq!(found, (set_aside_now, expired), "at {now_ms}");
        assert_eq!(set_aside(&disk).len(), left);
        drop(opened);
        disk.kill();
    }
}

/// The clock of the machine may be behind that of the data. How long something has been set aside
/// is asked by the clock of the data, so it is noted by that clock too.
#[test]
fn what_is_set_aside_while_the_clock_is_behind_stays_for_a_week_of_the_data() {
    let (disk, bench) = with_blobs(8, 2);
    drop(bench);
    disk.kill();
    remove_log(&disk);
    let (data_ms, behind_ms) = (1_700_000_000_000, 1_600_000_000_000);
    let at = |now_ms| LogConfig {
        now_ms,
        ..accepting(8)
    };
    for (round, now_ms) in [data_ms, behind_ms, behind_ms + 1].into_iter().enumerate() {
        let opened = Store::open(config(), Arc::new(disk.clone()), &at(now_ms));
        let opened = opened.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(opened.blobs.set_aside, 2, "round {round}");
        assert!(opened.store.clock_ms(now_ms) >= data_ms);
        drop(opened);
        let moved = set_aside(&disk);
        assert_eq!(moved.len(), 2, "round {round}");
        for name in moved {
            let (since_ms, content) = name.split_once('-').expect("it has a time in front");
            assert!(since_ms.parse::<u64>().expect("it is a number") >= data_ms);
            // Somebody puts it back, and again nothing names it.
            disk.rename(
                &format!("{SET_ASIDE_FOLDER}/{name}"),
                &format!("blobs/{content}"),
            )
            .expect("it is there");
        }
        for folder in ["blobs", SET_ASIDE_FOLDER] {
            disk.folder(folder)
                .sync_folder()
                .expect("the disk is whole");
        }
        disk.kill();
    }
}
