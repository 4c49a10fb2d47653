//! What is uploaded, resumed, replaced and read.

use std::sync::Arc;

use store::blob::{Chunk, Content, ContentEnd, Description, Upload, UploadError, key};
use store::{Condition, DatabaseId, OperationStatus};

use super::{Bench, DATABASE, Told, begin, chunk, config, content, crc32c, end_of};

#[test]
fn what_is_uploaded_can_be_read_from_any_place_and_after_a_restart() {
    let disk = testkit::simulated_disk(1);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let sizes = [0, 1, 65_535, 65_536, 65_537, 300_000];
    for (seed, size) in sizes.into_iter().enumerate() {
        let data = content(seed as u64, size);
        let done = bench.upload(&format!("blob/{size}"), &data, 10_000);
        assert_eq!(done, Ok(Some(OperationStatus::Done)), "{size}");
    }
    for life in 0..2 {
        for (seed, size) in sizes.into_iter().enumerate() {
            let data = content(seed as u64, size);
            assert_eq!(
                bench.read(&format!("blob/{size}")),
                Some(data),
                "{size}, life {life}"
            );
        }
        disk.kill();
        bench = Bench::open(config(), &disk).expect("nothing is lost");
    }
    assert_eq!(
        bench.blobs().used(DATABASE).bytes,
        sizes.iter().sum::<usize>() as u64
    );
    assert_eq!(bench.files(&disk).len(), sizes.len());
}

#[test]
fn parts_are_read_by_blocks() {
    let disk = testkit::simulated_disk(1);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let data = content(9, 200_000);
    bench.upload("a", &data, 7_777).expect("it fits");
    let content = opened(&bench, "a", |description| {
        assert_eq!(
            (description.crc32c, description.content_type),
            (crc32c(&data), "text/plain")
        );
    });
    for (offset, bytes) in [
        (0, 1),
        (65_535, 2),
        (65_536, 1),
        (199_999, 1),
        (1, 199_999),
        (200_000, 5),
    ] {
        let piece = content.read(offset, bytes).expect("it is whole");
        assert!(piece.offset <= offset && piece.offset.is_multiple_of(65_536));
        let from = (offset - piece.offset) as usize;
        let end = (offset as usize + bytes).min(data.len());
        assert_eq!(
            piece.bytes[from..][..end - offset as usize],
            data[offset as usize..end]
        );
    }
    disk.flip("blobs/00000000000000000000.blob", 8192 + 65_536 + 5, 1);
    assert!(content.read(0, 65_536).is_ok());
    assert!(content.read(65_536, 1).is_err(), "the block is damaged");
    assert!(content.read(131_072, 1).is_ok());
}

/// The content of a blob.
fn opened(bench: &Bench, name: &str, look: impl FnOnce(&Description<'_>)) -> Arc<Content> {
    let store = bench.durable.store.clone();
    let view = store.view(DatabaseId::BLOBS).expect("it is always there");
    let key = key(DATABASE, name);
    let entry = view
        .get(&key, store.hasher().hash(&key), 1)
        .expect("it is there");
    let description = Description::decode(entry.value.bytes()).expect("it was encoded");
    look(&description);
    bench.blobs().open_content(&description)
}

/// Of many downloads that are not taken each holds its content, and none a descriptor that others
/// need; each goes on with what it began with.
#[test]
fn more_contents_are_read_than_may_be_open() {
    let disk = testkit::simulated_disk(1);
    let mut config = config();
    config.blobs.open_contents = 2;
    let mut bench = Bench::open(config, &disk).expect("it is empty");
    let names = ["a", "b", "c", "d", "e"];
    let of = |at: usize| content(at as u64, 65_536 * 3);
    for (at, name) in names.iter().enumerate() {
        bench.upload(name, &of(at), 65_536).expect("it fits");
    }
    let contents: Vec<_> = names
        .iter()
        .map(|name| opened(&bench, name, |_| ()))
        .collect();
    // What is replaced and deleted meanwhile, and its file closed, stays for who reads it.
    bench
        .upload("a", &content(99, 65_536 * 3), 65_536)
        .expect("it fits");
    for piece in 0..3 {
        for (at, content) in contents.iter().enumerate() {
            let read = content.read(piece * 65_536, 65_536).expect("it is whole");
            assert_eq!(read.bytes[..], of(at)[piece as usize * 65_536..][..65_536]);
        }
    }
    assert_eq!(bench.read("a"), Some(content(99, 65_536 * 3)));
}

#[test]
fn memory_of_pieces_is_used_again_once_nobody_has_them() {
    let disk = testkit::simulated_disk(1);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let data = content(9, 65_536 * 20 + 1);
    bench.upload("a", &data, 65_536).expect("it fits");
    let content = opened(&bench, "a", |_| ());
    // Held, more of them than are remembered: nobody writes over them.
    let mut held: Vec<_> = (0..10)
        .map(|place| content.read(place * 65_536, 65_536).expect("it is whole"))
        .collect();
    for piece in &held {
        assert_eq!(piece.bytes[..], data[piece.offset as usize..][..65_536]);
    }
    let freed = held.remove(1).bytes.as_ptr();
    let next = content.read(10 * 65_536, 65_536).expect("it is whole");
    assert_eq!(next.bytes.as_ptr(), freed, "the memory is used again");
    assert_eq!(next.bytes[..], data[10 * 65_536..][..65_536]);
    drop(next);
    // The last one is shorter.
    let last = content.read(20 * 65_536, 65_536).expect("it is whole");
    assert_eq!(last.bytes[..], data[20 * 65_536..]);
    for piece in &held {
        assert_eq!(piece.bytes[..], data[piece.offset as usize..][..65_536]);
    }
}

#[test]
fn an_upload_goes_on_after_its_stream_its_server_and_its_machine_were_gone() {
    let disk = testkit::simulated_disk(3);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let data = content(4, 500_000);
    let mut offset = 0;
    for round in 0..10 {
        let upload = bench
            .start(&begin("a", "id", offset as u64))
            .expect("it goes on");
        let end = (offset + 50_000).min(data.len());
        let part = &data[offset..end];
        upload.write(part, &[chunk(part)], 1_000).expect("it fits");
        offset = end;
        drop(upload);
        assert_eq!(bench.read("a"), None, "it is not complete");
        match round % 3 {
            0 => {}
            1 => disk.kill(),
            _ => disk.lose_power(),
        }
        if round % 3 > 0 {
            bench = Bench::open(config(), &disk).expect("nothing is lost");
        }
        assert_eq!(
            bench.blobs().stored_bytes(DATABASE, "a", b"id"),
            Some(offset as u64)
        );
        let elsewhere = bench.start(&begin("a", "id", offset as u64 - 1));
        assert!(matches!(elsewhere, Err(UploadError::Offset { .. })));
    }
    let upload = bench
        .start(&begin("a", "id", offset as u64))
        .expect("it goes on");
    let sealed = upload.finish(&end_of(&data), 1_000).expect("it is whole");
    bench
        .describe("a", sealed, Condition::None)
        .expect("it is described");
    assert_eq!(bench.read("a"), Some(data));
    assert_eq!(bench.blobs().stored_bytes(DATABASE, "a", b"id"), None);
    assert_eq!(bench.blobs().statistics().used.unfinished, 0);
}

/// A piece of a chunk that is not its last.
fn open(data: &[u8]) -> Chunk {
    Chunk {
        bytes: data.len(),
        crc32c: None,
        is_open: true,
    }
}

/// The rest of a chunk, with the checksum of all of it.
fn rest(data: &[u8], crc32c: u32) -> Chunk {
    Chunk {
        bytes: data.len(),
        crc32c: Some(crc32c),
        is_open: false,
    }
}

#[test]
fn a_chunk_that_is_written_before_its_end_counts_only_with_it() {
    // Also across blocks, and across a group of them.
    for (bytes, first) in [(30_000, 10_000), (400_000, 70_000), (68 << 20, 67 << 20)] {
        let disk = testkit::simulated_disk(3);
        let mut bench = Bench::open(config(), &disk).expect("it is empty");
        let data = content(1, bytes);
        let sum = crc32c::crc32c(&data[first..]);
        let upload = bench.start(&begin("a", "id", 0)).expect("there is room");
        let (whole, chunk) = data.split_at(first);
        let pieces: Vec<_> = chunk.chunks(chunk.len() / 3 + 1).collect();
        let stored = |bench: &Bench| bench.blobs().stored_bytes(DATABASE, "a", b"id");
        let used = |bench: &Bench| bench.blobs().used(DATABASE).bytes;

        let plain = |data: &[u8]| Chunk {
            crc32c: None,
            ..self::rest(data, 0)
        };
        upload
            .write(whole, &[plain(whole)], 1_000)
            .expect("it fits");
        for fits in [false, true] {
            let mut written = 0;
            for piece in &pieces[..2] {
                upload.write(piece, &[open(piece)], 1_000).expect("it fits");
                written += piece.len();
                assert_eq!(stored(&bench), Some(first as u64));
                assert_eq!(used(&bench), (first + written) as u64, "it is charged");
            }
            if !fits {
                let end = rest(pieces[2], sum ^ 1);
                let refused = upload.write(pieces[2], &[end], 1_000);
                let Err(UploadError::Chunk { offset, .. }) = refused else {
                    panic!("{refused:?}");
                };
                assert_eq!(offset, first as u64);
                assert_eq!(
                    (stored(&bench), used(&bench)),
                    (Some(first as u64), first as u64)
                );
                continue;
            }
            // With the end comes the next chunk, and none of its bytes.
            let ends = [rest(pieces[2], sum), plain(&[])];
            upload.write(pieces[2], &ends, 1_000).expect("it fits");
            assert_eq!(
                (stored(&bench), used(&bench)),
                (Some(bytes as u64), bytes as u64)
            );
        }
        let sealed = upload.finish(
            &ContentEnd {
                crc32c: Some(crc32c::crc32c(&data)),
                sha256: None,
            },
            1_000,
        );
        let sealed = sealed.expect("it is whole");
        bench
            .describe("a", sealed, Condition::None)
            .expect("it is described");
        assert!(bench.read("a") == Some(data), "it is what was sent");
    }
}

/// Bytes of the chunk that the upload "a" ends before it begins an open one.
const WHOLE_BYTES: usize = 100_000;

fn used_bytes(bench: &Bench) -> u64 {
    bench.blobs().used(DATABASE).bytes
}

/// Resumes the upload "a" where its last whole chunk ended, or starts it, and leaves a chunk open.
fn resume_with_an_open_chunk(bench: &Bench, data: &[u8]) -> Upload {
    let stored = bench.blobs().stored_bytes(DATABASE, "a", b"id");
    let offset = stored.unwrap_or(0);
    let upload = bench.start(&begin("a", "id", offset)).expect("it goes on");
    if offset == 0 {
        write_chunk(&upload, &data[..WHOLE_BYTES]);
    }
    let piece = &data[offset as usize..][..90_000];
    upload.write(piece, &[open(piece)], 1_000).expect("it fits");
    assert_eq!(used_bytes(bench), offset.max(WHOLE_BYTES as u64) + 90_000);
    upload
}

fn write_chunk(upload: &Upload, chunk: &[u8]) {
    upload
        .write(chunk, &[rest(chunk, crc32c::crc32c(chunk))], 1_000)
        .expect("it fits");
}

#[test]
fn what_is_left_of_a_chunk_that_was_cut_off_goes_on_where_it_began() {
    let disk = testkit::simulated_disk(3);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let data = content(1, 300_000);
    // Its stream ends; another takes it; the server is killed; the machine is.
    for _ in 0..2 {
        drop(resume_with_an_open_chunk(&bench, &data));
        assert_eq!(used_bytes(&bench), WHOLE_BYTES as u64);
        let before = resume_with_an_open_chunk(&bench, &data);
        let after = bench
            .start(&begin("a", "id", WHOLE_BYTES as u64))
            .expect("it is taken");
        assert_eq!(used_bytes(&bench), WHOLE_BYTES as u64);
        assert!(matches!(
            before.write(b"x", &[open(b"x")], 1_000),
            Err(UploadError::TakenOver)
        ));
        drop((before, after));
        for power in [false, true] {
            let upload = resume_with_an_open_chunk(&bench, &data);
            match power {
                true => disk.lose_power(),
                false => disk.kill(),
            }
            // Nobody is left to end it in order.
            std::mem::forget(upload);
            bench = Bench::open(config(), &disk).expect("nothing is lost");
            assert_eq!(
                bench.blobs().stored_bytes(DATABASE, "a", b"id"),
                Some(WHOLE_BYTES as u64)
            );
            assert_eq!(used_bytes(&bench), WHOLE_BYTES as u64);
        }
    }
}

#[test]
fn an_upload_that_is_discarded_while_a_chunk_is_open_leaves_nothing() {
    let disk = testkit::simulated_disk(3);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let data = content(1, 300_000);
    let upload = resume_with_an_open_chunk(&bench, &data);
    assert_eq!(bench.blobs().discard_uploads(DATABASE, "a", b"id"), 1);
    drop(upload);
    assert_eq!((used_bytes(&bench), bench.files(&disk)), (0, Vec::new()));

    let upload = bench.start(&begin("a", "id", 0)).expect("there is room");
    let (whole, cut) = data.split_at(WHOLE_BYTES);
    write_chunk(&upload, whole);
    write_chunk(&upload, cut);
    let sealed = upload.finish(&end_of(&data), 1_000).expect("it is whole");
    bench
        .describe("a", sealed, Condition::None)
        .expect("it is described");
    assert_eq!(bench.read("a"), Some(data));
    assert_eq!(bench.blobs().statistics().used.unfinished, 0);
}

#[test]
fn damage_is_not_stored_and_what_came_before_stays() {
    let disk = testkit::simulated_disk(3);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let upload = bench.start(&begin("a", "id", 0)).expect("there is room");
    let data = content(1, 30_000);
    let mut bad = chunk(&data[20_000..]);
    bad.crc32c = bad.crc32c.map(|sum| sum ^ 1);
    let chunks = [chunk(&data[..10_000]), chunk(&data[10_000..20_000]), bad];
    let written = upload.write(&data, &chunks, 1_000);
    assert!(
        matches!(written, Err(UploadError::Chunk { offset: 20_000, .. })),
        "{written:?}"
    );
    drop(upload);
    assert_eq!(
        bench.blobs().stored_bytes(DATABASE, "a", b"id"),
        Some(20_000)
    );

    let upload = bench.start(&begin("a", "id", 20_000)).expect("it goes on");
    let rest = &data[20_000..];
    upload.write(rest, &[chunk(rest)], 1_000).expect("it fits");
    let end = ContentEnd {
        crc32c: Some(crc32c(&data) ^ 1),
        sha256: None,
    };
    let finished = upload.finish(&end, 1_000);
    assert!(matches!(finished, Err(UploadError::Content { .. })));
    assert_eq!(
        bench.blobs().stored_bytes(DATABASE, "a", b"id"),
        None,
        "it is worth nothing"
    );
    assert_eq!(bench.files(&disk), Vec::<String>::new());
    assert_eq!(bench.blobs().used(DATABASE).bytes, 0);

    // SHA-256 of "abc", FIPS 180-2.
    let sha256 = *b"\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23\
        \xb0\x03\x61\xa3\x96\x17\x7a\x9c\xb4\x10\xff\x61\xf2\x00\x15\xad";
    for (data, fits) in [(&b"abc"[..], true), (b"abd", false)] {
        let upload = bench.start(&begin("sha", "", 0)).expect("there is room");
        upload.write(data, &[chunk(data)], 1_000).expect("it fits");
        let end = ContentEnd {
            crc32c: None,
            sha256: Some(sha256),
        };
        let finished = upload.finish(&end, 1_000);
        assert_eq!(finished.is_ok(), fits, "{finished:?}");
    }
    assert_eq!(bench.delete("none"), Ok(Some(OperationStatus::Done)));
}

#[test]
fn a_second_stream_takes_over_and_an_upload_begun_anew_forgets_what_was_stored() {
    let disk = testkit::simulated_disk(3);
    let bench = Bench::open(config(), &disk).expect("it is empty");
    let owner = Arc::new(Told::default());
    let first = bench
        .blobs()
        .begin_upload(&begin("a", "id", 0), owner.clone());
    let first = first.expect("there is room");
    let data = content(1, 1_000);
    first.write(&data, &[chunk(&data)], 1_000).expect("it fits");
    let second = bench.start(&begin("a", "id", 1_000)).expect("it goes on");
    let told = owner.take();
    assert!(matches!(told[..], [UploadError::TakenOver]), "{told:?}");
    let written = first.write(&data, &[chunk(&data)], 1_000);
    assert!(
        matches!(written, Err(UploadError::TakenOver)),
        "{written:?}"
    );
    drop(first);
    second
        .write(&data, &[chunk(&data)], 1_000)
        .expect("it has it");
    assert_eq!(second.stored_bytes(), 2_000);

    let third = bench.start(&begin("a", "id", 0)).expect("it begins anew");
    let written = second.write(&data, &[chunk(&data)], 1_000);
    assert!(
        matches!(written, Err(UploadError::TakenOver)),
        "{written:?}"
    );
    drop(second);
    assert_eq!(third.stored_bytes(), 0);
    assert_eq!(bench.files(&disk).len(), 1);
    assert_eq!(bench.blobs().used(DATABASE).bytes, 0);
    assert_eq!(bench.blobs().statistics().used.unfinished, 1);
}

#[test]
fn an_upload_whose_description_is_on_its_way_is_nobody_elses() {
    let disk = testkit::simulated_disk(5);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let data = content(1, 70_000);
    let upload = bench.start(&begin("a", "id", 0)).expect("there is room");
    upload
        .write(&data, &[chunk(&data)], 1_000)
        .expect("it fits");
    let sealed = upload.finish(&end_of(&data), 2_000).expect("it is whole");
    // Whoever sent it has lost the connection and comes back before it is answered.
    for offset in [70_000, 0] {
        let second = bench.start(&begin("a", "id", offset));
        assert!(
            matches!(second, Err(UploadError::Completing)),
            "from {offset}: {second:?}"
        );
    }
    // The log has no room: it is an upload as before.
    drop(sealed);
    let second = bench.start(&begin("a", "id", 70_000)).expect("it goes on");
    second
        .write(&data, &[chunk(&data)], 1_000)
        .expect("it fits");
    let whole = [&data[..], &data[..]].concat();
    let sealed = second.finish(&end_of(&whole), 2_000).expect("it is whole");
    let described = bench.describe("a", sealed, Condition::None);
    assert_eq!(described, Ok(Some(OperationStatus::Done)));
    assert_eq!(bench.read("a"), Some(whole.clone()));
    let gone = bench.start(&begin("a", "id", 140_000));
    assert!(
        matches!(
            gone,
            Err(UploadError::Offset {
                stored_bytes: 0,
                ..
            })
        ),
        "{gone:?}"
    );
    drop(bench);
    let bench = Bench::open(config(), &disk).expect("it opens");
    assert_eq!(bench.read("a"), Some(whole));
}

#[test]
fn a_blob_is_replaced_under_its_readers_and_conditions_hold() {
    let disk = testkit::simulated_disk(3);
    let mut bench = Bench::open(config(), &disk).expect("it is empty");
    let (old, new) = (content(1, 100_000), content(2, 1_000));
    bench.upload("a", &old, 10_000).expect("it fits");
    let store = bench.durable.store.clone();
    let view = store.view(DatabaseId::BLOBS).expect("it is always there");
    let key = key(DATABASE, "a");
    let entry = view
        .get(&key, store.hasher().hash(&key), 1)
        .expect("it is there");
    let version = entry.version;
    let reader = bench
        .blobs()
        .open_content(&Description::decode(entry.value.bytes()).expect("it was encoded"));
    drop(view);
    assert_eq!(reader.read(0, 1).expect("it is there").bytes[0], old[0]);

    let write = |bench: &mut Bench, condition: Condition<'_>| {
        let upload = bench.start(&begin("a", "", 0)).expect("there is room");
        upload.write(&new, &[chunk(&new)], 1_000).expect("it fits");
        let sealed = upload.finish(&end_of(&new), 1_000).expect("it is whole");
        bench
            .describe("a", sealed, condition)
            .expect("the log goes on")
    };
    for condition in [Condition::VersionIs(version + 1), Condition::VersionIs(0)] {
        let refused = write(&mut bench, condition);
        assert_eq!(refused, Some(OperationStatus::ConditionFailed));
        assert_eq!(bench.read("a").as_ref(), Some(&old));
        assert_eq!(bench.files(&disk).len(), 1);
    }
    let done = write(&mut bench, Condition::VersionIs(version));
    assert_eq!(done, Some(OperationStatus::Done));
    assert_eq!(bench.read("a").as_ref(), Some(&new));
    assert_eq!(bench.files(&disk).len(), 2, "somebody reads the old one");
    assert_eq!(
        reader.read(65_536, 5).expect("it stays").bytes[..5],
        old[65_536..65_541]
    );
    drop(reader);
    assert_eq!(bench.files(&disk).len(), 1);
    assert_eq!(bench.blobs().used(DATABASE).bytes, 1_000);
    bench.delete("a").expect("the log goes on");
    assert_eq!(bench.read("a"), None);
    assert_eq!(bench.files(&disk), Vec::<String>::new());
}
