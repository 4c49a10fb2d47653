//! Backups of blobs, and their restore.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use store::backup::{self, BackupError, BackupJob, BackupStep, RestoreConfig, RestoreError};
use testkit::Random;
use testkit::suite::StandingClock;
use wal::disk::{Disk, SimulatedDisk};

use super::{Bench, config, content};
use crate::bench::log_config;

fn begin(bench: &mut Bench, target: &SimulatedDisk) -> BackupJob {
    let commit_loop = &mut bench.durable.commit_loop;
    let job = commit_loop.begin_backup(Arc::new(target.clone()), "test 1", &mut bench.clock);
    job.expect("it is empty, and the log goes on")
}

/// A backup in which `busy` does something between any two steps; returns what was visible at its
/// cut.
fn backup(
    bench: &mut Bench,
    target: &SimulatedDisk,
    busy: &mut dyn FnMut(&mut Bench, usize),
) -> BTreeMap<String, Vec<u8>> {
    let mut job = begin(bench, target);
    job.set_slice_rows(1);
    let mut at_cut = BTreeMap::new();
    for number in 0.. {
        let step = (bench.durable.commit_loop).step_backup(job, &mut bench.clock);
        job = match step.expect("nothing fails") {
            BackupStep::Worked(job) => job,
            BackupStep::Synced(job) => {
                at_cut = visible(bench);
                job
            }
            BackupStep::Complete(report) => {
                assert_eq!(report.blobs, at_cut.len() as u64);
                return at_cut;
            }
        };
        busy(bench, number);
    }
    unreachable!("it ends")
}

fn visible(bench: &Bench) -> BTreeMap<String, Vec<u8>> {
    let names = (0..4).map(|name| format!("n{name}"));
    let read = |name: String| bench.read(&name).map(|data| (name, data));
    names.filter_map(read).collect()
}

/// A bench with the blobs n0 to n3.
fn with_four_blobs(disk: &SimulatedDisk) -> Bench {
    let mut bench = Bench::open(config(), disk).expect("it is empty");
    for name in 0..4 {
        let data = content(name, 100_000);
        bench
            .upload(&format!("n{name}"), &data, 30_000)
            .expect("it fits");
    }
    bench
}

/// A backup during which blobs are deleted and replaced; returns what was visible at its cut.
fn backup_during_changes(bench: &mut Bench, target: &SimulatedDisk) -> BTreeMap<String, Vec<u8>> {
    let mut random = Random::new(5);
    backup(bench, target, &mut |bench, step| {
        let name = format!("n{}", random.below(4));
        if random.once_in(3) {
            bench.delete(&name).expect("the log goes on");
        } else {
            let data = content(100 + step as u64, 80_000);
            bench.upload(&name, &data, 30_000).expect("it fits");
        }
    })
}

/// The path of some blob's content in a backup.
fn path_of_a_content(bench: &Bench, target: &SimulatedDisk) -> String {
    let name = bench.files(target).pop().expect("there are contents");
    format!("blobs/{name}")
}

fn verify(target: &SimulatedDisk) -> Result<backup::Verified, RestoreError> {
    backup::verify(target, &mut |_, _| ControlFlow::Continue(()))
}

#[test]
fn a_backup_has_the_content_of_each_blob_at_its_cut_whatever_is_replaced_meanwhile() {
    let disk = testkit::simulated_disk(3);
    let mut bench = with_four_blobs(&disk);
    let target = testkit::simulated_disk(4);
    let at_cut = backup_during_changes(&mut bench, &target);
    assert_ne!(visible(&bench), at_cut, "something has changed since");
    // What was kept for the backup is gone.
    let blobs = visible(&bench).len();
    assert_eq!(bench.files(&disk).len(), blobs);

    let mut reported = Vec::new();
    let verified = backup::verify(&target, &mut |done_bytes, total_bytes| {
        assert!(done_bytes <= total_bytes);
        reported.push((done_bytes, total_bytes));
        ControlFlow::Continue(())
    });
    let verified = verified.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(verified.blobs, at_cut.len() as u64);
    let content_bytes = at_cut.values().map(Vec::len).sum::<usize>() as u64;
    assert_eq!(verified.blob_bytes, content_bytes);
    let all_bytes = verified.manifest.bytes() + content_bytes;
    assert_eq!(reported.last(), Some(&(all_bytes, all_bytes)));
    let restored = testkit::simulated_disk(6);
    restore(&target, &restored).expect("it is whole");
    let restored = Bench::open(config(), &restored).expect("it was restored");
    assert_eq!(visible(&restored), at_cut);
}

#[test]
fn a_change_of_any_byte_of_a_content_in_a_backup_is_found() {
    let mut bench = with_four_blobs(&testkit::simulated_disk(3));
    let target = testkit::simulated_disk(4);
    backup_during_changes(&mut bench, &target);
    let path = path_of_a_content(&bench, &target);
    // What no checksum covers: padding behind the name, between and behind the marks, and what was
    // added.
    let whole = target.contents(&path);
    let padded = [1_000, 2_040, 2_900, 3_050, 4_000];
    for place in padded.into_iter().map(Some).chain([None]) {
        let damaged = target.fork();
        match place {
            Some(place) => damaged.flip(&path, place, 1),
            None => {
                let file = damaged.open(&path).expect("it is there");
                let end = whole.len() as u64;
                file.write_all_at(b"more", end).expect("there is room");
            }
        }
        let verified = verify(&damaged);
        let is_changed = matches!(verified, Err(RestoreError::Changed { .. }));
        assert!(is_changed, "{place:?}: {verified:?}");
        let refused = restore(&damaged, &testkit::simulated_disk(7));
        assert!(refused.is_err(), "{place:?}");
    }
    target.flip(&path, 70_000, 4);
    let verified = verify(&target);
    assert!(
        matches!(verified, Err(RestoreError::Changed { .. })),
        "{verified:?}"
    );
    let refused = restore(&target, &testkit::simulated_disk(7));
    assert!(
        matches!(refused, Err(RestoreError::Changed { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_content_that_a_backup_lacks_or_does_not_name_is_found() {
    let mut bench = with_four_blobs(&testkit::simulated_disk(3));
    let target = testkit::simulated_disk(4);
    backup_during_changes(&mut bench, &target);
    let path = path_of_a_content(&bench, &target);
    target.remove(&path).expect("it is there");
    let verified = verify(&target);
    assert!(
        matches!(verified, Err(RestoreError::Missing { .. })),
        "{verified:?}"
    );
    target
        .create("blobs/00000000000000009999.blob")
        .expect("there is room");
    let verified = verify(&target);
    assert!(
        matches!(verified, Err(RestoreError::Foreign { .. })),
        "{verified:?}"
    );
}

#[test]
fn a_backup_of_a_damaged_or_missing_blob_names_it_and_leaves_nothing() {
    for is_missing in [false, true] {
        refused_backup(is_missing);
    }
}

fn refused_backup(is_missing: bool) {
    let disk = testkit::simulated_disk(3);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    bench
        .upload("a", &content(1, 100_000), 30_000)
        .expect("it fits");
    bench
        .upload("b", &content(2, 100_000), 30_000)
        .expect("it fits");
    let file = "blobs/00000000000000000001.blob";
    match is_missing {
        false => disk.flip(file, 50_000, 1),
        true => disk.remove(file).expect("it is there"),
    }
    let target = testkit::simulated_disk(4);
    let mut job = begin(&mut bench, &target);
    let error = loop {
        match bench.durable.commit_loop.step_backup(job, &mut bench.clock) {
            Ok(BackupStep::Worked(next) | BackupStep::Synced(next)) => job = next,
            Ok(BackupStep::Complete(_)) => panic!("it is damaged"),
            Err(error) => break error,
        }
    };
    let named = match &error {
        BackupError::BlobDamaged { name, .. } if !is_missing => name,
        BackupError::BlobMissing { name, .. } if is_missing => name,
        _ => panic!("{error}"),
    };
    assert_eq!(named, "b");
    assert_eq!(
        target.list().expect("it can be listed"),
        Vec::<String>::new()
    );
    assert_eq!(bench.files(&target), Vec::<String>::new());
}

fn restore(source: &SimulatedDisk, target: &SimulatedDisk) -> Result<(), RestoreError> {
    let restore_config = RestoreConfig {
        store: config(),
        log: log_config(),
        trees: None,
    };
    let target: Arc<dyn Disk> = Arc::new(target.clone());
    let mut clock = StandingClock { now_ms: 1_000 };
    let goes_on = &mut |_, _| ControlFlow::Continue(());
    backup::restore(source, &target, &restore_config, &mut clock, goes_on).map(drop)
}
