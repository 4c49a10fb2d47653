//! What becomes of uploads when the disk fails, and when nobody is left to hear what became of
//! their description.

use std::io;
use std::sync::{Arc, Mutex};

use store::blob::{Begin, ContentReadError, LostUpload, Observer, UploadError, UploadPeer};
use store::{Condition, OperationStatus, Refusal};
use wal::disk::{Disk, Fault, Step};

use super::{Bench, DATABASE, Told, begin, chunk, config, content, end_of};

#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Observer for Log {
    fn upload_failed(&self, lost: &LostUpload) {
        let line = format!("{} {} {}", lost.name, lost.stored_bytes, lost.source);
        self.0.lock().expect("no test has panicked").push(line);
    }

    fn uploads_evicted(&self, _count: u64) {}

    fn content_lost(&self, why: &ContentReadError) {
        let line = why.to_string();
        self.0.lock().expect("no test has panicked").push(line);
    }
}

/// Beside the writes, where the stream waits for it, and when the stream has gone.
#[test]
fn an_error_of_the_disk_is_told_with_its_cause_reported_and_counted() {
    for (bytes, is_written) in [(100_000, true), (400_000, false), (99_999, true)] {
        let disk = testkit::simulated_disk(3);
        let bench = Bench::open(config(), &disk).expect("it is empty");
        let log = Arc::new(Log::default());
        bench.blobs().set_observer(log.clone());
        for round in 1..=2 {
            let owner = Told::of(UploadPeer::Unknown);
            let upload = bench
                .blobs()
                .begin_upload(&begin("a", "id", 0), owner.clone())
                .expect("there is room");
            disk.folder("blobs").plan_next(Step::Sync, 0, Fault::Error);
            let data = content(1, bytes);
            let written = upload.write(&data, &[chunk(&data)], 1_000);
            assert_eq!(written.is_ok(), is_written, "{bytes}: {written:?}");
            let mut told = owner.take();
            if bytes == 100_000 {
                let after = upload.write(&data, &[chunk(&data)], 1_000);
                told.push(after.expect_err("it is lost"));
                assert_eq!(told.len(), 2);
            }
            told.extend(written.err());
            for error in &told {
                let UploadError::Device(source) = error else {
                    panic!("{error:?}");
                };
                assert_ne!(source.kind(), io::ErrorKind::StorageFull);
                assert!(!error.to_string().contains("full"), "{error}");
            }
            drop(upload);
            assert_eq!(bench.blobs().uploads(DATABASE), [], "{bytes}");
            assert_eq!(bench.files(&disk), Vec::<String>::new(), "{bytes}");
            assert_eq!(bench.blobs().used(DATABASE).bytes, 0);
            assert_eq!(bench.blobs().statistics().failed_uploads, round, "{bytes}");
            let lines = log.0.lock().expect("no test has panicked").len();
            assert_eq!(lines as u64, round, "{bytes}");
        }
    }
}

/// The upload ends with that cause and leaves nothing, and one after it is as a first one.
#[test]
fn an_upload_whose_file_is_denied_is_told_so_and_leaves_nothing() {
    let disk = testkit::simulated_disk(6);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let data = content(1, 70_000);
    for round in 0..2 {
        for _ in 0..2 {
            disk.folder("blobs")
                .plan_next(Step::Create, 0, Fault::Denied);
            let denied = bench.start(&begin("a", "", 0)).and_then(|upload| {
                upload.write(&data, &[chunk(&data)], 1_000)?;
                upload.finish(&end_of(&data), 2_000).map(drop)
            });
            let error = denied.expect_err("it is not permitted");
            let is_of_the_disk = matches!(error, UploadError::System { .. });
            assert!(is_of_the_disk, "{error:?}");
            assert!(error.to_string().contains("Permission denied"), "{error}");
            assert_eq!(bench.files(&disk).len(), round);
        }
        let upload = bench.start(&begin("a", "", 0)).expect("there is room");
        upload
            .write(&data, &[chunk(&data)], 1_000)
            .expect("it fits");
        let sealed = upload.finish(&end_of(&data), 2_000).expect("it is whole");
        let described = bench.describe("a", sealed, Condition::None);
        described.expect("the log goes on");
        assert_eq!(bench.read("a").expect("it is there").len(), data.len());
    }
}

/// The loop that waits for the outcome ends while the description is with the committer.
#[test]
fn a_content_whose_description_is_with_the_committer_stays() {
    for is_described in [false, true] {
        let disk = testkit::simulated_disk(5);
        let mut bench = Bench::open(config(), &disk).expect("it is empty");
        for round in 0..2 {
            let (name, data) = (format!("n{round}"), content(round, 70_000));
            let upload = bench.start(&begin(&name, "", 0)).expect("there is room");
            upload
                .write(&data, &[chunk(&data)], 1_000)
                .expect("it fits");
            let sealed = upload.finish(&end_of(&data), 2_000).expect("it is whole");
            if is_described {
                bench
                    .describe_unheard(&name, sealed)
                    .expect("the log goes on");
                assert_eq!(bench.read(&name), Some(data));
            } else {
                bench.forget_description(&name, sealed);
                assert_eq!(bench.files(&disk).len(), 1 + round as usize);
            }
            assert_eq!(bench.blobs().used(DATABASE).unfinished, 0);
        }
        drop(bench);
        let bench = Bench::open(config(), &disk).expect("it opens");
        for round in 0..2 {
            let expected = is_described.then(|| content(round, 70_000));
            assert_eq!(bench.read(&format!("n{round}")), expected);
        }
        let kept = if is_described { 2 } else { 0 };
        assert_eq!(bench.blobs().used(DATABASE).blobs, kept);
    }
}

/// Where no description was asked for, all is as before.
#[test]
fn a_content_that_nobody_asked_to_describe_is_an_upload_again() {
    let disk = testkit::simulated_disk(5);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let data = content(1, 70_000);
    let mut offset = 0;
    for _ in 0..2 {
        let upload = bench.start(&begin("a", "id", offset)).expect("it goes on");
        let rest = &data[offset as usize..];
        upload.write(rest, &[chunk(rest)], 1_000).expect("it fits");
        drop(upload.finish(&end_of(&data), 2_000).expect("it is whole"));
        offset = 70_000;
        let stored = bench.blobs().stored_bytes(DATABASE, "a", b"id");
        assert_eq!(stored, Some(offset));
    }
    let upload = bench.start(&begin("a", "id", offset)).expect("it goes on");
    let sealed = upload.finish(&end_of(&data), 2_000).expect("it is whole");
    bench
        .describe("a", sealed, Condition::None)
        .expect("the log goes on");
    assert_eq!(bench.read("a"), Some(data));
}

/// Neither for want of descriptors nor after an error of the device.
#[test]
fn an_upload_whose_file_cannot_be_opened_keeps_what_is_stored() {
    let disk = testkit::simulated_disk(7);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let data = content(1, 150_000);
    let upload = bench.start(&begin("a", "id", 0)).expect("there is room");
    let first = &data[..70_000];
    upload
        .write(first, &[chunk(first)], 1_000)
        .expect("it fits");
    drop(upload);
    for step in [None, Some(Step::Open), Some(Step::Read)] {
        for round in 0..2 {
            match step {
                None => disk.set_handle_limit(disk.open_handles()),
                Some(step) => disk.folder("blobs").plan_next(step, 0, Fault::Error),
            }
            let refused = bench.start(&begin("a", "id", 70_000));
            assert!(
                matches!(refused, Err(UploadError::System { .. })),
                "{step:?}, round {round}: {refused:?}"
            );
            disk.set_handle_limit(usize::MAX);
            let stored = bench.blobs().stored_bytes(DATABASE, "a", b"id");
            assert_eq!(stored, Some(70_000), "{step:?}, round {round}");
            assert_eq!(bench.blobs().used(DATABASE).bytes, 70_000);
        }
    }
    assert_eq!(bench.blobs().statistics().failed_uploads, 0);
    let upload = bench
        .start(&begin("a", "id", 70_000))
        .expect("it can be opened");
    let rest = &data[70_000..];
    upload.write(rest, &[chunk(rest)], 1_000).expect("it fits");
    let sealed = upload.finish(&end_of(&data), 2_000).expect("it is whole");
    bench
        .describe("a", sealed, Condition::None)
        .expect("the log goes on");
    assert_eq!(bench.read("a"), Some(data));
}

/// What is lost is told from what cannot be read just now, and told once.
#[test]
fn a_content_that_is_missing_or_damaged_is_reported_once() {
    let disk = testkit::simulated_disk(9);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    for name in ["missing", "damaged"] {
        let data = content(1, 70_000);
        let upload = bench.start(&begin(name, "", 0)).expect("there is room");
        upload
            .write(&data, &[chunk(&data)], 1_000)
            .expect("it fits");
        let sealed = upload.finish(&end_of(&data), 2_000).expect("it is whole");
        let described = bench.describe(name, sealed, Condition::None);
        described.expect("the log goes on");
    }
    let log = Arc::new(Log::default());
    bench.blobs().set_observer(log.clone());
    let folder = disk.folder("blobs");
    let faults = [
        (Step::Open, Fault::Error, "os error 5"),
        (Step::Open, Fault::Denied, "Permission denied"),
        (Step::Read, Fault::Error, "os error 5"),
    ];
    for (step, fault, cause) in faults {
        folder.plan_next(step, 0, fault);
        let why = bench.try_read("missing").expect_err("the disk refuses");
        assert!(
            matches!(why, ContentReadError::Device { .. }),
            "{step:?}: {why}"
        );
        assert!(why.to_string().contains(cause), "{step:?}: {why}");
    }
    assert!(bench.read("missing").is_some(), "it was for then only");
    let [missing, damaged] = &bench.files(&disk)[..] else {
        panic!("there are two");
    };
    folder.remove(missing).expect("it is there");
    let file = folder.open(damaged).expect("it is there");
    let bytes = file.len().expect("it is there");
    file.write_all_at(&[0x55], bytes - 1)
        .expect("there is room");
    for _ in 0..3 {
        let why = bench.try_read("missing").expect_err("it is gone");
        assert!(matches!(why, ContentReadError::Missing { .. }), "{why}");
        assert!(why.to_string().contains("is missing"), "{why}");
        let why = bench.try_read("damaged").expect_err("it is another one");
        assert!(matches!(why, ContentReadError::Damaged { .. }), "{why}");
    }
    let lines = log.0.lock().expect("no test has panicked").clone();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains(missing) && lines[0].contains("is missing"));
    assert!(lines[1].contains(damaged) && lines[1].contains("is damaged"));
}

/// The checksum that a mark holds goes on with what comes; so what is there must be what it
/// describes.
#[test]
fn what_an_earlier_run_has_stored_is_read_before_it_is_gone_on_with() {
    // Whole blocks, and a part of one.
    for bytes in [65_536, 70_000, 3 * 65_536 + 1] {
        for place in [None, Some(0), Some(bytes / 2), Some(bytes - 1)] {
            let disk = testkit::simulated_disk(11);
            let data = content(1, bytes + 5_000);
            let (first, rest) = data.split_at(bytes);
            let mut bench = Bench::open(config(), &disk).expect("it is empty");
            let upload = bench.start(&begin("a", "id", 0)).expect("there is room");
            upload
                .write(first, &[chunk(first)], 1_000)
                .expect("it fits");
            drop(upload);
            drop(bench);
            let folder = disk.folder("blobs");
            let [name] = &folder.list().expect("it can be listed")[..] else {
                panic!("there is one");
            };
            if let Some(place) = place {
                // Behind the first page and that of the checksums of the first group.
                let file = folder.open(name).expect("it is there");
                let place = 4096 + 4096 + place as u64;
                let mut byte = [0];
                assert_eq!(file.read_up_to(&mut byte, place).expect("whole"), 1);
                file.write_all_at(&[!byte[0]], place)
                    .expect("there is room");
                file.sync().expect("the disk is whole");
            }
            let log = Arc::new(Log::default());
            bench = Bench::open(config(), &disk).expect("it opens");
            bench.blobs().set_observer(log.clone());
            let offset = bytes as u64;
            assert_eq!(
                bench.blobs().stored_bytes(DATABASE, "a", b"id"),
                Some(offset)
            );
            // For now only: nothing is thrown away.
            folder.plan_next(Step::Read, 0, Fault::Error);
            let refused = bench.start(&begin("a", "id", offset));
            assert!(
                matches!(refused, Err(UploadError::System { .. })),
                "{refused:?}"
            );
            let gone_on = bench.start(&begin("a", "id", offset));
            let upload = match place {
                None => gone_on.expect("it is whole"),
                Some(_) => {
                    assert!(matches!(gone_on, Err(UploadError::Stored)), "{gone_on:?}");
                    assert_eq!(bench.blobs().stored_bytes(DATABASE, "a", b"id"), None);
                    assert_eq!(bench.blobs().used(DATABASE).bytes, 0);
                    let upload = bench.start(&begin("a", "id", 0)).expect("there is room");
                    upload
                        .write(first, &[chunk(first)], 1_000)
                        .expect("it fits");
                    upload
                }
            };
            let lines = log.0.lock().expect("no test has panicked").len();
            assert_eq!(lines, usize::from(place.is_some()));
            upload.write(rest, &[chunk(rest)], 1_000).expect("it fits");
            let sealed = upload.finish(&end_of(&data), 2_000).expect("it is whole");
            let described = bench.describe("a", sealed, Condition::None);
            described.expect("the log goes on");
            assert_eq!(bench.read("a").as_deref(), Some(&data[..]));
        }
    }
}

/// Described, it would be nowhere, and its sender would be told that it is stored.
#[test]
fn a_blob_is_not_described_when_its_database_was_dropped_meanwhile() {
    let disk = testkit::simulated_disk(9);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let data = content(5, 1_000);
    for round in 0..3_u64 {
        let other = bench.create_other();
        let begun = Begin {
            database: other,
            ..begin("a", "id", 0)
        };
        let mut sealed = Vec::new();
        for name in ["a", "b"] {
            let begun = Begin {
                name: name.into(),
                ..begun.clone()
            };
            let upload = bench.start(&begun).expect("there is room");
            let written = upload.write(&data, &[chunk(&data)], 1_000);
            written.expect("there is room");
            sealed.push(upload.finish(&end_of(&data), 1_000).expect("it is whole"));
        }
        let described = bench.describe("a", sealed.remove(0), Condition::None);
        assert_eq!(described, Ok(Some(OperationStatus::Done)), "it is there");
        let mut batch = bench.durable.store.write_batch();
        batch.drop_database(1, other);
        bench.commit(batch, None).expect("it is dropped");
        if round == 1 {
            // Another one of the name is not the one of the upload.
            let anew = bench.create_other();
            assert_ne!(anew, other);
        }
        let described = bench.describe("b", sealed.remove(0), Condition::None);
        assert_eq!(described, Err(format!("{:?}", Refusal::UnknownDatabase)));
        if round == 1 {
            let anew = bench.durable.store.database("other").expect("it is there");
            let mut batch = bench.durable.store.write_batch();
            batch.drop_database(1, anew);
            bench.commit(batch, None).expect("it is dropped");
        }
        // Nothing of them stays.
        for passed_ms in [2_000_000, 200_000_000] {
            let store = bench.durable.store.clone();
            let mut batch = store.write_batch();
            let now_ms = (round + 1) * 1_000_000_000 + passed_ms;
            bench.blobs().collect(&store, now_ms, &mut batch);
            if !batch.is_empty() {
                bench.commit(batch, None).expect("the log goes on");
            }
        }
        assert_eq!(bench.files(&disk), [""; 0], "round {round}");
        assert_eq!(bench.blobs().statistics().used.unfinished, 0);
    }
}
