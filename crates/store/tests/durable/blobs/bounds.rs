//! Quotas, announced sizes, and what is collected.

use std::sync::Arc;

use store::blob::{Begin, BlobUse, ContentEnd, UploadError};
use store::{Condition, DropError, Refusal, Store};
use wal::disk::Disk as _;

use crate::bench::log_config;

use super::{Bench, DATABASE, begin, chunk, config, content};

#[test]
fn quota_and_disk_are_bounds() {
    let disk = testkit::simulated_disk(3);
    let mut small = config();
    small.blobs.quota_bytes = 10_000;
    let mut bench = Bench::open(small, &disk).expect("it is empty");
    bench
        .upload("a", &content(1, 6_000), 1_000)
        .expect("it fits");
    let early = bench.start(&Begin {
        size_bytes: Some(4_001),
        ..begin("b", "id", 0)
    });
    assert!(matches!(
        early,
        Err(UploadError::Quota {
            quota_bytes: 10_000,
            used_bytes: 6_000,
            added_bytes: 4_001
        })
    ));
    let upload = bench
        .start(&begin("b", "id", 0))
        .expect("nobody knows its size");
    let data = content(2, 3_000);
    upload
        .write(&data, &[chunk(&data)], 1_000)
        .expect("it fits");
    let written = upload.write(&data, &[chunk(&data)], 1_000);
    assert!(matches!(written, Err(UploadError::Quota { .. })));
    drop(upload);
    assert_eq!(
        bench.blobs().stored_bytes(DATABASE, "b", b"id"),
        Some(3_000)
    );
    bench.delete("a").expect("the log goes on");
    let upload = bench
        .start(&begin("b", "id", 3_000))
        .expect("there is room again");
    upload
        .write(&data, &[chunk(&data)], 1_000)
        .expect("it fits");
    let sealed = upload
        .finish(&ContentEnd::default(), 1_000)
        .expect("it is whole");
    bench
        .describe("b", sealed, Condition::None)
        .expect("it is described");

    disk.set_capacity_bytes(disk.used_bytes() + 1_000);
    let full = bench.upload("c", &data, 1_000);
    assert!(
        full.as_ref().is_err_and(|error| error.contains("full")),
        "{full:?}"
    );
    assert_eq!(bench.read("b"), Some([&data[..], &data].concat()));
}

#[test]
fn announced_sizes_hold() {
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(config(), &disk).expect("it is empty");
    let announced = |id: &str, offset| Begin {
        size_bytes: Some(1_000),
        ..begin("a", id, offset)
    };
    let data = content(1, 600);
    let upload = bench.start(&announced("1", 0)).expect("there is room");
    upload
        .write(&data, &[chunk(&data)], 1_000)
        .expect("it fits");
    let finished = upload.finish(&ContentEnd::default(), 1_000);
    assert!(matches!(
        finished,
        Err(UploadError::Size { bytes: 600, .. })
    ));
    assert_eq!(
        bench.blobs().stored_bytes(DATABASE, "a", b"1"),
        Some(600),
        "more may come"
    );
    let upload = bench.start(&announced("1", 600)).expect("it goes on");
    let written = upload.write(&data, &[chunk(&data)], 1_000);
    assert!(matches!(
        written,
        Err(UploadError::Size { bytes: 1_200, .. })
    ));
    drop(upload);
    assert_eq!(bench.blobs().stored_bytes(DATABASE, "a", b"1"), None);
}

#[test]
fn abandoned_uploads_and_blobs_of_dropped_databases_are_collected() {
    let disk = testkit::simulated_disk(3);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let other = bench.create_other();
    for number in 0..100 {
        let name = format!("{number}");
        let upload = bench
            .start(&Begin {
                database: other,
                ..begin(&name, "", 0)
            })
            .expect("there is room");
        upload
            .write(b"data", &[chunk(b"data")], 1_000)
            .expect("it fits");
        let sealed = upload
            .finish(&ContentEnd::default(), 1_000)
            .expect("it is whole");
        bench
            .describe(&name, sealed, Condition::None)
            .expect("it is described");
    }
    let mut batch = bench.durable.store.write_batch();
    batch.drop_empty_database(1, other);
    let refused = bench.commit(batch, None).expect_err("it is not empty");
    let not_empty = Refusal::NotDropped(DropError::NotEmpty {
        entries: 0,
        blobs: 100,
        blob_bytes: 400,
    });
    assert_eq!(refused, format!("{not_empty:?}"));
    drop(bench.start(&begin("a", "id", 0)).expect("there is room"));
    assert_eq!(bench.files(&disk).len(), 101);

    let day_ms = 24 * 60 * 60 * 1000;
    let collect = |bench: &mut Bench, now_ms: u64| {
        for round in 0..10 {
            let mut batch = bench.durable.store.write_batch();
            let store = bench.durable.store.clone();
            bench
                .blobs()
                .collect(&store, now_ms + round * 100_000, &mut batch);
            if !batch.is_empty() {
                bench.commit(batch, None).expect("the log goes on");
            }
        }
    };
    collect(&mut bench, day_ms - 2_000_000);
    assert_eq!(bench.files(&disk).len(), 101);
    let mut batch = bench.durable.store.write_batch();
    batch.drop_database(1, other);
    bench.commit(batch, None).expect("it is dropped");
    collect(&mut bench, day_ms - 1_000_000);
    assert_eq!(bench.files(&disk).len(), 1);
    assert_eq!(bench.blobs().used(other), BlobUse::default());
    collect(&mut bench, day_ms + 1_000_000);
    assert_eq!(bench.files(&disk).len(), 0);
    assert_eq!(bench.blobs().statistics().used.unfinished, 0);
}

/// What a database has is looked for as soon as it is dropped, an upload that nobody goes on with
/// too. Where the server ends before the files are gone, the next start removes them, as the log
/// says, and sets nothing aside.
#[test]
fn blobs_of_a_dropped_database_go_at_once_or_at_the_next_start() {
    for is_settled in [true, false] {
        let disk = testkit::simulated_disk(4);
        let mut bench = Bench::open(config(), &disk).expect("it is empty");
        let other = bench.create_other();
        let begin = |name: &str, id: &str| Begin {
            database: other,
            ..begin(name, id, 0)
        };
        for name in ["a", "b"] {
            let upload = bench.start(&begin(name, "")).expect("there is room");
            upload
                .write(name.as_bytes(), &[chunk(name.as_bytes())], 1_000)
                .expect("it fits");
            let sealed = upload
                .finish(&ContentEnd::default(), 1_000)
                .expect("it is whole");
            bench
                .describe(name, sealed, Condition::None)
                .expect("it is described");
        }
        drop(bench.start(&begin("half", "id")).expect("there is room"));
        let store = bench.durable.store.clone();
        // Nothing is due for a minute.
        bench
            .blobs()
            .collect(&store, 2_000, &mut store.write_batch());
        assert!(bench.blobs().collect_due_ms() > 2_000);
        let mut batch = store.write_batch();
        batch.drop_database(1, other);
        bench.commit(batch, None).expect("it is dropped");
        assert_eq!(bench.files(&disk).len(), 3);

        let mut batch = store.write_batch();
        bench.blobs().collect(&store, 2_001, &mut batch);
        assert!(!batch.is_empty(), "the descriptions go");
        match is_settled {
            true => drop(bench.commit(batch, None)),
            false => bench.commit_unheard(batch),
        }
        let left = if is_settled { 0 } else { 2 };
        assert_eq!(bench.files(&disk).len(), left);
        drop((bench, store));
        disk.kill();

        let opened = Store::open(config(), Arc::new(disk.clone()), &log_config());
        let opened = opened.expect("the log is whole");
        let found = (opened.blobs.removed, opened.blobs.set_aside);
        assert_eq!(found, (left as u64, 0));
        assert_eq!(disk.folder("blobs").list().expect("it is there").len(), 0);
    }
}

#[test]
fn a_content_with_the_number_of_one_that_was_removed_is_set_aside() {
    let disk = testkit::simulated_disk(9);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    bench.upload("first", b"first", 10).expect("there is room");
    bench.delete("first").expect("it is there");
    drop(bench);
    disk.kill();
    // The next run has no file, and begins to count anew. It dies before the description.
    let bench = Bench::open(config(), &disk).expect("the log is whole");
    let upload = bench.start(&begin("second", "", 0)).expect("there is room");
    upload
        .write(b"other", &[chunk(b"other")], 1_000)
        .expect("it fits");
    let sealed = upload
        .finish(&ContentEnd::default(), 1_000)
        .expect("it is whole");
    std::mem::forget(sealed);
    assert_eq!(bench.files(&disk).len(), 1);
    drop(bench);
    disk.kill();
    let opened = Store::open(config(), Arc::new(disk.clone()), &log_config());
    let found = opened.expect("the log is whole").blobs;
    assert_eq!((found.removed, found.set_aside), (0, 1));
}

#[test]
fn a_database_with_empty_blobs_or_an_upload_is_not_empty() {
    let disk = testkit::simulated_disk(1);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let other = bench.create_other();
    let in_other = |name, upload_id| Begin {
        database: other,
        ..begin(name, upload_id, 0)
    };
    let refused = |bench: &mut Bench, blobs| {
        let mut batch = bench.durable.store.write_batch();
        batch.drop_empty_database(1, other);
        let refused = bench.commit(batch, None).expect_err("it is not empty");
        let not_empty = Refusal::NotDropped(DropError::NotEmpty {
            entries: 0,
            blobs,
            blob_bytes: 0,
        });
        assert_eq!(refused, format!("{not_empty:?}"));
    };
    let upload = bench.start(&in_other("a", "")).expect("there is room");
    refused(&mut bench, 1);
    let sealed = upload
        .finish(&ContentEnd::default(), 1_000)
        .expect("it is whole");
    refused(&mut bench, 1);
    bench
        .describe("a", sealed, Condition::None)
        .expect("it is described");
    refused(&mut bench, 1);
    drop(bench);
    let mut bench = Bench::open(config(), &disk).expect("it was closed");
    refused(&mut bench, 1);
    let used = bench.blobs().used(other);
    assert_eq!((used.blobs, used.unfinished, used.bytes), (1, 0, 0));
    // Dropped with all that is in it, that goes too.
    let mut batch = bench.durable.store.write_batch();
    batch.drop_database(1, other);
    bench.commit(batch, None).expect("it is dropped");
    let (store, mut batch) = (
        bench.durable.store.clone(),
        bench.durable.store.write_batch(),
    );
    bench.blobs().collect(&store, 2_000_000, &mut batch);
    assert!(!batch.is_empty());
    bench.commit(batch, None).expect("the log goes on");
    assert_eq!(bench.files(&disk).len(), 0);
    assert_eq!(bench.blobs().statistics().used, BlobUse::default());
}
