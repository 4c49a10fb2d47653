//! The typed calls of the client over a pool, against the real server: from threads that wait, and
//! as futures.

mod support;

use std::future::Future;
use std::io::Read;
use std::task::Poll;

use client::typed::{
    Admin, BlobStat, Blobs, DownloadError, Futures, KeyValue, OperationOutcome, UploadError,
    operation,
};
use client::{CallError, Code, LocalPoolOptions, SharedPool};
use pollster::block_on;
use support::{Folder, Server, TIMEOUT};

fn pool_of(server: &Server) -> SharedPool {
    let address = server.addresses[0].parse().expect("it is an address");
    SharedPool::new(&[address], LocalPoolOptions::default(), 7).expect("the address is known")
}

/// Writes 40 entries of 100 000 bytes: several pages.
fn fill(pool: &mut SharedPool) {
    for number in 0..40_u8 {
        let put = KeyValue::new(pool)
            .put(&[number], &[number; 100_000])
            .send();
        assert!(put.expect("done").applied);
    }
}

fn code_of(error: CallError) -> Code {
    match error {
        CallError::Status(status) => status.code(),
        error => panic!("{error}"),
    }
}

#[test]
fn threads_scan_over_clones_of_a_pool_at_once() {
    let server = Server::start();
    let mut pool = pool_of(&server);
    fill(&mut pool);
    let scan = |mut pool: SharedPool| {
        move || {
            let mut kv = KeyValue::new(&mut pool);
            let scan = kv.scan().timeout(TIMEOUT).send().expect("begun");
            let entries: Result<Vec<_>, _> = scan.entries().collect();
            let entries = entries.expect("complete");
            assert_eq!(entries.len(), 40);
            for (number, entry) in (0..).zip(entries) {
                assert_eq!(entry.key, [number]);
                assert_eq!(entry.stored.value, [number; 100_000]);
            }
        }
    };
    let threads: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(scan(pool.clone())))
        .collect();
    for thread in threads {
        thread.join().expect("each thread gets its own entries");
    }
    let scan = KeyValue::of(&mut pool, "none").scan().send();
    let mut pages = scan.expect("begun");
    let error = pages.next_page().expect_err("there is no such database");
    assert_eq!(code_of(error), Code::NotFound);
    assert!(pages.next_page().expect("it is over").is_none());
}

#[test]
fn futures_scan_page_by_page() {
    let server = Server::start();
    let mut pool = pool_of(&server);
    fill(&mut pool);
    let mut futures = Futures::new(&pool);
    let mut kv = KeyValue::new(&mut futures);
    let mut pages = kv.scan().backward().timeout(TIMEOUT).send().expect("begun");
    let (mut keys, mut count) = (Vec::new(), 0);
    block_on(async {
        while let Some(page) = pages.next_page().await.expect("a page") {
            keys.extend(page.entries.into_iter().map(|entry| entry.key[0]));
            count += 1;
        }
    });
    assert!(keys.into_iter().eq((0..40).rev()));
    assert!(count >= 4, "4 MB come in {count} pages");
}

#[test]
fn one_thread_sends_into_a_pipe_while_another_takes_its_outcomes() {
    let server = Server::start();
    let mut pool = pool_of(&server);
    let mut kv = KeyValue::new(&mut pool);
    let (mut sender, mut receiver) = kv.pipe().timeout(TIMEOUT).send();
    let value = [7; 1_000];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..5_000_u32 {
                let key = number.to_be_bytes();
                let sent = sender.send(&[operation::put(&key, &value).into()]);
                sent.expect("the server takes it");
            }
            sender.finish();
        });
        let mut done = 0;
        while let Some(outcome) = receiver.next_outcome().expect("in order") {
            done += 1;
            assert_eq!((outcome.batch_number, outcome.done), (Some(done), done));
        }
        assert_eq!(done, 5_000);
    });
    assert_eq!(kv.count().send().expect("counted").count, 5_000);

    let mut other = KeyValue::of(&mut pool, "none");
    let (mut sender, mut receiver) = other.pipe().timeout(TIMEOUT).send();
    let operations = [operation::get(b"k").into()];
    // It may have been sent before the refusal comes.
    let _ = sender.send(&operations);
    let error = receiver
        .next_outcome()
        .expect_err("there is no such database");
    assert_eq!(code_of(error), Code::NotFound);
    assert!(sender.send(&operations).is_err(), "the call has ended");
}

#[test]
fn futures_send_into_a_pipe_and_take_its_outcomes() {
    let server = Server::start();
    let pool = pool_of(&server);
    let mut futures = Futures::new(&pool);
    let mut kv = KeyValue::new(&mut futures);
    let (mut sender, mut receiver) = kv.pipe().timeout(TIMEOUT).send();
    block_on(async {
        for number in 1..=100 {
            let operations = [operation::increment(b"n", 1).into()];
            let sent = sender.send_future(&operations).await;
            sent.expect("the server takes it");
            let outcome = receiver.next_outcome_future().await.expect("in order");
            let batch = outcome.expect("it goes on").batch.expect("its outcome");
            let [OperationOutcome::Increment(increment)] = &batch.results[..] else {
                panic!("{batch:?}");
            };
            assert_eq!(increment.value, number);
        }
        sender.finish();
        let end = receiver.next_outcome_future().await.expect("in order");
        assert!(end.is_none());
    });
}

#[test]
fn a_blob_goes_through_a_pool_and_comes_back_to_threads_and_futures() {
    let folder = Folder::new("typed-pool-blobs");
    let server = Server::durable(&folder.data(), &[]);
    let mut pool = pool_of(&server);
    let content: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number / 7) as u8)
        .collect();
    let mut blobs = Blobs::new(&mut pool);
    let upload = blobs.upload("a").size_bytes(3_000_000).timeout(TIMEOUT);
    let stored = upload.send(&content[..]).expect("stored");
    let blob = stored.blob.expect("described");
    let mut down = blobs.download("a").send().expect("begun");
    assert_eq!(down.blob().expect("a piece"), &blob);
    let mut read = Vec::new();
    down.read_to_end(&mut read).expect("all of it");
    assert!(read == content);
    let listed: Result<Vec<_>, _> = blobs.list().send().expect("begun").collect();
    assert_eq!(listed.expect("complete"), [[blob.clone()]]);

    let mut futures = Futures::new(&pool);
    let mut blobs = Blobs::new(&mut futures);
    let part = blobs.download("a").offset(7).length_bytes(1_000_000);
    let mut down = part.send().expect("begun");
    let read = block_on(async {
        assert_eq!(down.blob().await.expect("a piece"), &blob);
        let mut read = Vec::new();
        while let Some(piece) = down.next_piece().await.expect("a piece") {
            read.extend(piece);
        }
        read
    });
    assert!(read == content[7..1_000_007]);
    let mut missing = blobs.download("b").send().expect("begun");
    match block_on(missing.next_piece()) {
        Err(DownloadError::Call(error)) => assert_eq!(code_of(error), Code::NotFound),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_upload_that_the_server_refuses_ends_with_its_status() {
    let folder = Folder::new("typed-pool-refused");
    let server = Server::durable(&folder.data(), &[]);
    let mut pool = pool_of(&server);
    for _ in 0..2 {
        let mut blobs = Blobs::of(&mut pool, "none");
        // There is no end to it: only the server's refusal ends it.
        let upload = blobs.upload("a").timeout(TIMEOUT).send(std::io::repeat(7));
        match upload {
            Err(UploadError::Call(error)) => assert_eq!(code_of(error), Code::NotFound),
            other => panic!("{other:?}"),
        }
        let statistics = Admin::new(&mut pool).statistics().timeout(TIMEOUT).send();
        assert!(statistics.expect("the pool goes on").message().uptime_ms > 0);
    }
}

#[test]
fn a_task_uploads_piece_by_piece() {
    let folder = Folder::new("typed-pool-upload-future");
    let server = Server::durable(&folder.data(), &[]);
    let pool = pool_of(&server);
    let content: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number / 7) as u8)
        .collect();
    let mut futures = Futures::new(&pool);
    for version in 0..2 {
        let mut blobs = Blobs::new(&mut futures);
        let upload = blobs.upload("a").timeout(TIMEOUT);
        let stored = block_on(async {
            let mut writer = upload.begin().await.expect("begun");
            // No piece, a small one, and one of several chunks.
            for piece in [&content[..0], &content[..7], &content[7..]] {
                writer.write(piece).await.expect("sent");
            }
            writer.finish().await.expect("stored")
        });
        let read = block_on(async {
            let mut down = blobs.download("a").send().expect("begun");
            let mut read = Vec::new();
            while let Some(piece) = down.next_piece().await.expect("a piece") {
                read.extend(piece);
            }
            read
        });
        let blob = stored.blob.expect("described");
        assert!(stored.applied && read == content, "version {version}");
        assert_eq!(blob.crc32c, crc32c::crc32c(&content));
        // A condition that is not met is an outcome.
        let mut blobs = Blobs::new(&mut futures);
        let upload = blobs.upload("a").if_version(0).timeout(TIMEOUT);
        let refused = block_on(async {
            let mut writer = upload.begin().await.expect("begun");
            writer.write(&content).await.expect("sent or not wanted");
            writer.finish().await.expect("a response")
        });
        assert!(!refused.applied);
        assert_eq!(refused.blob.expect("described").version, blob.version);
    }
}

#[test]
fn an_upload_of_a_task_goes_on_from_its_offset() {
    let folder = Folder::new("typed-pool-upload-resumed");
    let server = Server::durable(&folder.data(), &[]);
    let pool = pool_of(&server);
    let content: Vec<u8> = (0..2_000_000_u32).map(|number| number as u8).collect();
    let mut futures = Futures::new(&pool);
    let mut blobs = Blobs::new(&mut futures);
    let upload = blobs.upload("a").resumable(b"mine", 0).timeout(TIMEOUT);
    let writer = upload.begin();
    block_on(async {
        let mut writer = writer.await.expect("begun");
        writer.write(&content[..1_000_000]).await.expect("sent");
        // What has not left yet when the call is cancelled is never sent.
        while stored_of(&mut blobs).await == 0 {}
    });
    let stored = block_on(async {
        // Until the server has seen the end of the first call, its offset may still grow.
        loop {
            let stored_bytes = stored_of(&mut blobs).await;
            let upload = blobs.upload("a").resumable(b"mine", stored_bytes);
            let mut writer = match upload.timeout(TIMEOUT).begin().await {
                Ok(writer) => writer,
                Err(error) => panic!("{error}"),
            };
            let rest = &content[usize::try_from(stored_bytes).expect("small")..];
            let sent = writer.write(rest).await;
            match sent.and(writer.finish().await) {
                Ok(stored) => break stored,
                Err(UploadError::Call(error)) => assert_eq!(code_of(error), Code::OutOfRange),
                Err(error) => panic!("{error}"),
            }
        }
    });
    let blob = stored.blob.expect("described");
    assert_eq!(blob.crc32c, crc32c::crc32c(&content));
}

/// Returns how many bytes of the upload are stored.
async fn stored_of(blobs: &mut Blobs<'_, Futures>) -> u64 {
    let stat = blobs.stat("a").upload_id(b"mine").timeout(TIMEOUT).send();
    match stat.await.expect("a response") {
        BlobStat::Unfinished { stored_bytes } => stored_bytes,
        BlobStat::Missing => 0,
        blob => panic!("{blob:?}"),
    }
}

#[test]
fn a_write_that_was_dropped_half_way_ends_the_upload() {
    let folder = Folder::new("typed-pool-upload-dropped");
    let server = Server::durable(&folder.data(), &[]);
    let pool = pool_of(&server);
    let mut futures = Futures::new(&pool);
    let mut blobs = Blobs::new(&mut futures);
    // Far more than may wait on a stream: the first look at the future does not end it.
    let content = vec![7; 64 << 20];
    let upload = blobs.upload("a").timeout(TIMEOUT);
    block_on(async {
        let mut writer = upload.begin().await.expect("begun");
        {
            let mut write = std::pin::pin!(writer.write(&content));
            let looked = std::future::poll_fn(|context| Poll::Ready(write.as_mut().poll(context)));
            assert!(looked.await.is_pending());
        }
        for result in [
            writer.write(b"more").await.err(),
            writer.finish().await.err(),
        ] {
            match result {
                Some(UploadError::Call(CallError::BadRequest { .. })) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    let stat = block_on(blobs.stat("a").timeout(TIMEOUT).send());
    assert_eq!(stat.expect("known"), BlobStat::Missing);
}
