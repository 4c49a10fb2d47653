//! Uploads over gRPC.

use std::sync::Arc;

use store::blob::{Owner, UploadError, Work, crc32c, limits};

use super::*;
use crate::limits::{
    UPLOAD_GATHERED_BYTES, UPLOAD_GATHERED_SHARE, UPLOAD_WINDOW_BYTES, UPLOAD_WINDOW_BYTES_MAX,
    UPLOAD_WINDOWS_BYTES,
};

const BEGIN: UploadBegin<'static> = UploadBegin {
    database: "",
    name: "a",
    upload_id: b"",
    offset: 0,
    size_bytes: None,
    content_type: "",
    if_version: None,
    unserved: 0,
};

const END: UploadPart<'static> = UploadPart::End(UploadEnd {
    crc32c: None,
    sha256: b"",
});

/// Of `one and two`.
const SHA256: [u8; 32] = [
    0x54, 0x52, 0xae, 0x8a, 0xb3, 0x74, 0x75, 0xe1, 0x9c, 0xd1, 0x35, 0x38, 0xc4, 0x9c, 0x37, 0xd1,
    0xf0, 0x1d, 0x45, 0x2a, 0x73, 0x04, 0xe6, 0xe3, 0x67, 0xc1, 0x24, 0x6e, 0x7a, 0x1f, 0x9d, 0x88,
];

struct Nobody;

impl Owner for Nobody {
    fn lost(&self, _why: UploadError) {}
}

fn chunk(data: &[u8]) -> UploadPart<'_> {
    UploadPart::Chunk(UploadChunk { data, crc32c: None })
}

fn checked(data: &[u8], crc32c: u32) -> UploadPart<'_> {
    let crc32c = Some(crc32c);
    UploadPart::Chunk(UploadChunk { data, crc32c })
}

fn send(request: &UploadPart<'_>, fake: &mut Fake, bench: &Bench) {
    fake.message(&encoded(|out| request.encode(out)), false, &bench.shared);
}

/// An upload that has begun.
fn begun(begin: UploadBegin<'_>, bench: &mut Bench) -> Fake {
    let mut fake = Fake::new(Method::BlobUpload, &bench.shared);
    send(&UploadPart::Begin(begin), &mut fake, bench);
    bench.work(&mut fake);
    fake
}

/// Makes an upload of these messages, and ends the caller's side.
fn upload(requests: &[UploadPart<'_>], bench: &mut Bench) -> Vec<Sent> {
    let requests = requests.iter();
    let messages: Vec<_> = requests.map(|one| encoded(|out| one.encode(out))).collect();
    let messages: Vec<_> = messages.iter().map(|message| &message[..]).collect();
    bench.upload(Method::BlobUpload, &messages)
}

/// Uploads a content; the version and whether it was stored.
fn store(begin: UploadBegin<'_>, content: &[u8], bench: &mut Bench) -> (bool, u64) {
    let requests = [UploadPart::Begin(begin), chunk(content), END];
    let sent = upload(&requests, bench);
    let answer = UploadResponse::decode(response(&sent)).expect("it is a message");
    (answer.applied, answer.blob.map_or(0, |blob| blob.version))
}

#[test]
fn what_is_uploaded_is_described_as_it_was_sent() {
    let mut bench = Bench::new();
    let begin = UploadBegin {
        size_bytes: Some(11),
        content_type: "text/plain",
        ..BEGIN
    };
    for sha256 in [&b""[..], &SHA256] {
        let crc = Some(crc32c(b"one and two"));
        let end = UploadPart::End(UploadEnd {
            crc32c: crc,
            sha256,
        });
        let parts = [
            UploadPart::Begin(begin),
            checked(b"one ", crc32c(b"one ")),
            chunk(b"and two"),
            end,
        ];
        let sent = upload(&parts, &mut bench);
        let answer = UploadResponse::decode(response(&sent)).expect("it is a message");
        assert!(answer.applied);
        let blob = answer.blob.expect("it is described");
        assert_eq!((blob.name, blob.size_bytes), ("a", 11));
        assert_eq!((Some(blob.crc32c), blob.sha256), (crc, sha256));
        assert_eq!(blob.content_type, "text/plain");
        let found = stat("a", b"", &mut bench);
        let found = StatResponse::decode(&found).expect("it is a message");
        assert_eq!(found.blob, Some(blob));
        assert_eq!(bench.kept(), [("a".to_owned(), b"one and two".to_vec())]);
    }
}

/// Sends a message in pieces, of which the first has `first` bytes.
fn send_in_parts(request: &UploadPart<'_>, first: usize, fake: &mut Fake, bench: &mut Bench) {
    let message = encoded(|out| request.encode(out));
    let mut pieces = vec![first.min(message.len())];
    while pieces.iter().sum::<usize>() < message.len() {
        let rest = message.len() - pieces.iter().sum::<usize>();
        pieces.push(rest.min(16_384));
    }
    let mut at = 0;
    for (number, &piece) in pieces.iter().enumerate() {
        let left = message.len() - at - piece;
        let part = &message[at..at + piece];
        if !fake.part(part, number == 0, left, &bench.shared) {
            return fake.message(&message, false, &bench.shared);
        }
        at += piece;
        bench.work(fake);
        if fake.actions.is_over {
            return;
        }
    }
}

#[test]
fn chunks_that_come_in_parts_are_stored_as_they_come() {
    for (first, is_begun) in [(1, false), (20, true), (40_000, true)] {
        let mut bench = Bench::new();
        let mut fake = begun(BEGIN, &mut bench);
        let content: Vec<u8> = (0..900_000_u32).map(|at| (at % 251) as u8).collect();
        for data in [&content[..700_000], &content[700_000..]] {
            send_in_parts(&checked(data, crc32c(data)), first, &mut fake, &mut bench);
            bench.work(&mut fake);
            let gathered = fake.actions.most_work_bytes;
            assert_eq!(gathered < 500_000, is_begun, "{gathered} at a time");
        }
        send(&END, &mut fake, &bench);
        bench.work(&mut fake);
        let sent = fake.take_sent();
        let answer = UploadResponse::decode(response(&sent)).expect("it is a message");
        assert!(answer.applied);
        assert_eq!(bench.kept(), [("a".to_owned(), content)]);
    }
}

#[test]
fn a_chunk_in_parts_that_does_not_fit_its_checksum_leaves_nothing() {
    let resumable = UploadBegin {
        upload_id: b"id",
        ..BEGIN
    };
    let content: Vec<u8> = (0..900_000_u32).map(|at| (at % 251) as u8).collect();
    let mut bench = Bench::new();
    let mut fake = begun(resumable, &mut bench);
    let (good, bad) = content.split_at(300_000);
    send_in_parts(&checked(good, crc32c(good)), 9_000, &mut fake, &mut bench);
    send_in_parts(&checked(bad, crc32c(bad) ^ 1), 9_000, &mut fake, &mut bench);
    bench.work(&mut fake);
    refused(&fake.take_sent(), Code::DataLoss);
    drop(fake);
    let found = stat("a", b"id", &mut bench);
    let found = StatResponse::decode(&found).expect("it is a message");
    assert_eq!(found.stored_bytes, 300_000);
    // The second time it fits.
    let mut fake = begun(
        UploadBegin {
            offset: 300_000,
            ..resumable
        },
        &mut bench,
    );
    send_in_parts(&checked(bad, crc32c(bad)), 9_000, &mut fake, &mut bench);
    send(&END, &mut fake, &bench);
    bench.work(&mut fake);
    response(&fake.take_sent());
    assert_eq!(bench.kept(), [("a".to_owned(), content)]);
}

#[test]
fn a_chunk_in_parts_is_refused_where_a_whole_one_is() {
    // Behind the end, and beyond what a chunk may have.
    let mut bench = Bench::new();
    let mut fake = begun(BEGIN, &mut bench);
    send(&END, &mut fake, &bench);
    send_in_parts(&chunk(&[7; 100_000]), 9_000, &mut fake, &mut bench);
    refused(&fake.take_sent(), Code::InvalidArgument);

    let mut fake = begun(BEGIN, &mut bench);
    let much = vec![7; limits::CHUNK_BYTES + 1];
    send_in_parts(&chunk(&much), 9_000, &mut fake, &mut bench);
    let words = refused(&fake.take_sent(), Code::ResourceExhausted).to_owned();
    let mut fake = begun(BEGIN, &mut bench);
    send(&chunk(&much), &mut fake, &bench);
    assert_eq!(refused(&fake.take_sent(), Code::ResourceExhausted), words);
}

#[test]
fn an_upload_whose_condition_is_not_met_is_told_what_is_there() {
    let mut bench = Bench::new();
    let only_if = |version| UploadBegin {
        if_version: Some(version),
        ..BEGIN
    };
    assert_eq!(store(only_if(7), b"none", &mut bench), (false, 0));
    bench.expect_nothing();
    let (applied, first) = store(only_if(0), b"first", &mut bench);
    assert!(applied && first > 0);
    assert_eq!(store(only_if(0), b"second", &mut bench), (false, first));
    assert_eq!(
        store(only_if(first + 1), b"second", &mut bench),
        (false, first)
    );
    // It is the blob that is there which is described.
    let requests = [UploadPart::Begin(only_if(0)), chunk(b"second"), END];
    let sent = upload(&requests, &mut bench);
    let answer = UploadResponse::decode(response(&sent)).expect("it is a message");
    let blob = answer.blob.expect("it is there");
    assert_eq!((blob.crc32c, blob.size_bytes), (crc32c(b"first"), 5));
    assert_eq!(bench.kept(), [("a".to_owned(), b"first".to_vec())]);

    let (applied, second) = store(only_if(first), b"second", &mut bench);
    assert!(applied && second > first);
    assert_eq!(bench.kept(), [("a".to_owned(), b"second".to_vec())]);
}

#[test]
fn checksums_hold_for_their_chunk_and_for_the_whole() {
    let mut bench = Bench::new();
    let wrong = crc32c(b"something else");
    for chunks in [
        &[checked(b"a", wrong)][..],
        &[chunk(b"a"), checked(b"b", wrong)],
        &[checked(b"a", crc32c(b"a")), checked(b"b", wrong)],
        // With nothing in between that it could be checked with.
        &[checked(b"a", wrong), chunk(b"b")],
    ] {
        let requests = [&[UploadPart::Begin(BEGIN)], chunks, &[END]].concat();
        refused(&upload(&requests, &mut bench), Code::DataLoss);
        bench.expect_nothing();
    }
    // All come before anything is written, so that they are gathered.
    let mut fake = Fake::new(Method::BlobUpload, &bench.shared);
    for request in [
        UploadPart::Begin(BEGIN),
        chunk(b"ab"),
        chunk(b""),
        chunk(b"c"),
        checked(b"de", crc32c(b"de")),
        checked(b"", wrong),
        checked(b"fgh", crc32c(b"fgh")),
        chunk(b"i"),
    ] {
        send(&request, &mut fake, &bench);
    }
    let work = fake.actions.work.take().expect("it begins");
    let owner: Arc<dyn Owner> = Arc::new(Nobody);
    let blobs = bench.shared.store.blobs().expect("there is a log");
    fake.blob(work.run(blobs, &owner), &bench.shared);
    let Some(Work::Write { bytes, chunks, .. }) = &fake.actions.work else {
        panic!("it is to be written");
    };
    assert_eq!(bytes, b"abcdefghi");
    // What has no checksum is one piece, and nothing has none.
    let lengths: Vec<_> = chunks.iter().map(|chunk| chunk.bytes).collect();
    assert_eq!(lengths, [3, 2, 3, 1]);
    send(&END, &mut fake, &bench);
    bench.work(&mut fake);
    response(&fake.take_sent());
    assert_eq!(bench.kept()[0].1, b"abcdefghi");

    for end in [
        UploadEnd {
            crc32c: Some(wrong),
            sha256: b"",
        },
        UploadEnd {
            crc32c: None,
            sha256: b"short",
        },
    ] {
        let begin = UploadPart::Begin(BEGIN);
        let requests = [begin, chunk(b"other"), UploadPart::End(end)];
        let sent = upload(&requests, &mut bench);
        match end.sha256 {
            b"" => refused(&sent, Code::DataLoss),
            _ => refused(&sent, Code::InvalidArgument),
        };
    }
    assert_eq!(bench.kept()[0].1, b"abcdefghi");
}

#[test]
fn an_upload_that_was_cut_off_goes_on_where_it_ended() {
    let mut bench = Bench::new();
    let begin = UploadBegin {
        upload_id: b"id",
        ..BEGIN
    };
    for is_written in [false, true] {
        let mut fake = begun(begin, &mut bench);
        send(&chunk(b"one "), &mut fake, &bench);
        if is_written {
            bench.work(&mut fake);
        }
        fake.half_closed(&bench.shared);
        bench.work(&mut fake);
        let sent = fake.take_sent();
        let words = refused(&sent, Code::InvalidArgument);
        assert!(words.contains("4 bytes are stored"), "{words}");
        drop(fake);

        let found = stat("a", b"id", &mut bench);
        let found = StatResponse::decode(&found).expect("it is a message");
        assert_eq!((found.found, found.stored_bytes), (true, 4));
        let resumed = |offset| UploadBegin { offset, ..begin };
        let requests = [UploadPart::Begin(resumed(5))];
        refused(&upload(&requests, &mut bench), Code::OutOfRange);
        assert!(store(resumed(4), b"two", &mut bench).0);
        assert_eq!(bench.kept(), [("a".to_owned(), b"one two".to_vec())]);
        assert_eq!(stat("a", b"id", &mut bench), []);
        delete("a", None, &mut bench);
    }
}

#[test]
fn messages_come_in_their_order() {
    let mut bench = Bench::new();
    let begin = UploadPart::Begin(BEGIN);
    for (requests, word) in [
        (&[chunk(b"a")][..], "field begin"),
        (&[END], "field begin"),
        (&[begin, begin], "field begin: only the first"),
        (&[begin, chunk(b"a"), begin], "field begin: only the first"),
        (&[begin], "field end"),
    ] {
        let sent = upload(requests, &mut bench);
        let words = refused(&sent, Code::InvalidArgument);
        assert!(words.contains(word), "{words}");
        bench.expect_nothing();
    }
    for (last, word) in [
        (chunk(b"a"), "nothing may follow the end"),
        (END, "nothing may follow the end"),
        (begin, "only the first"),
    ] {
        let mut fake = begun(BEGIN, &mut bench);
        send(&END, &mut fake, &bench);
        // Before the end is stored.
        send(&last, &mut fake, &bench);
        let sent = fake.take_sent();
        let words = refused(&sent, Code::InvalidArgument);
        assert!(words.contains(word), "{words}");
        drop(fake);
        bench.expect_nothing();
    }
    let sent = bench.upload(Method::BlobUpload, &[b""]);
    let words = refused(&sent, Code::InvalidArgument);
    assert!(words.contains("field part"), "{words}");
    refused(&bench.upload(Method::BlobUpload, &[]), Code::Unimplemented);
    // The caller may end its side with the last message, or behind it, also while something is
    // still being written: nothing else happens then.
    for ends_with_it in [true, false] {
        let mut fake = begun(BEGIN, &mut bench);
        send(&chunk(b"content"), &mut fake, &bench);
        fake.message(&encoded(|out| END.encode(out)), ends_with_it, &bench.shared);
        if !ends_with_it {
            fake.half_closed(&bench.shared);
        }
        bench.work(&mut fake);
        response(&fake.take_sent());
    }
    let mut fake = begun(BEGIN, &mut bench);
    fake.message(&encoded(|out| chunk(b"a").encode(out)), true, &bench.shared);
    bench.work(&mut fake);
    let sent = fake.take_sent();
    assert!(refused(&sent, Code::InvalidArgument).contains("1 bytes are stored"));
}

#[test]
fn what_an_upload_may_say_of_itself_is_bounded() {
    let mut bench = Bench::new();
    let long = [b'x'; 300];
    let id = &long[..limits::UPLOAD_ID_BYTES];
    let text = std::str::from_utf8(&long).expect("it is text");
    let content_type = &text[..limits::CONTENT_TYPE_BYTES];
    for good in [
        UploadBegin {
            upload_id: id,
            ..BEGIN
        },
        UploadBegin {
            content_type,
            ..BEGIN
        },
        UploadBegin {
            size_bytes: Some(7),
            ..BEGIN
        },
    ] {
        assert!(store(good, b"content", &mut bench).0);
    }
    for (bad, word) in [
        (
            UploadBegin {
                upload_id: &long[..limits::UPLOAD_ID_BYTES + 1],
                ..BEGIN
            },
            "upload_id has 65 bytes",
        ),
        (UploadBegin { offset: 1, ..BEGIN }, "begin.offset"),
        (
            UploadBegin {
                content_type: &text[..limits::CONTENT_TYPE_BYTES + 1],
                ..BEGIN
            },
            "begin.content_type",
        ),
        (
            UploadBegin {
                content_type: "text\u{7f}",
                ..BEGIN
            },
            "begin.content_type",
        ),
        (
            UploadBegin {
                upload_id: b"id",
                offset: 8,
                size_bytes: Some(7),
                ..BEGIN
            },
            "begin.size_bytes",
        ),
        (UploadBegin { name: "", ..BEGIN }, "begin.name"),
        (
            UploadBegin {
                size_bytes: Some(6),
                ..BEGIN
            },
            "",
        ),
    ] {
        let requests = [UploadPart::Begin(bad), chunk(b"content"), END];
        let sent = upload(&requests, &mut bench);
        let words = refused(&sent, Code::InvalidArgument);
        assert!(words.contains(word), "{words}");
    }
    // One that is complete but for its end.
    let begin = UploadBegin {
        upload_id: b"id",
        size_bytes: Some(7),
        ..BEGIN
    };
    upload(&[UploadPart::Begin(begin), chunk(b"content")], &mut bench);
    let rest = UploadBegin { offset: 7, ..begin };
    assert!(store(rest, b"", &mut bench).0);

    let largest = vec![b'x'; limits::CHUNK_BYTES];
    assert!(store(BEGIN, &largest, &mut bench).0);
    let larger = [&largest[..], b"x"].concat();
    let requests = [UploadPart::Begin(BEGIN), chunk(&larger), END];
    let sent = upload(&requests, &mut bench);
    let words = refused(&sent, Code::ResourceExhausted);
    assert!(words.contains("4194305 bytes"), "{words}");
    assert_eq!(bench.kept()[0].1.len(), limits::CHUNK_BYTES);
}

/// All uploads that are open share what waits in memory, and are held by their share.
#[test]
fn uploads_share_the_memory_for_what_waits() {
    let mut bench = Bench::new();
    let mut open = Vec::new();
    let most_uploads = UPLOAD_WINDOWS_BYTES / UPLOAD_WINDOW_BYTES as usize;
    for count in 1..=most_uploads + 1 {
        let mut fake = Fake::new(Method::BlobUpload, &bench.shared);
        send(&UploadPart::Begin(BEGIN), &mut fake, &bench);
        let first = fake.actions.window_bytes.take();
        assert_eq!(first, Some(UPLOAD_WINDOW_BYTES), "{count}");
        bench.work(&mut fake);
        let share = (UPLOAD_WINDOWS_BYTES / count) as u32;
        let share = share.clamp(UPLOAD_WINDOW_BYTES, UPLOAD_WINDOW_BYTES_MAX);
        // What it has already is not set once more.
        let set = (share != UPLOAD_WINDOW_BYTES).then_some(share);
        assert_eq!(fake.actions.window_bytes.take(), set, "{count}");

        let held_at = (share as usize / UPLOAD_GATHERED_SHARE).min(UPLOAD_GATHERED_BYTES);
        for _ in 0..2 {
            // The first is written at once; what comes meanwhile is gathered.
            send(&chunk(b"x"), &mut fake, &bench);
            assert!(!fake.actions.is_held);
            send(&chunk(&vec![b'x'; held_at - 1]), &mut fake, &bench);
            assert!(!fake.actions.is_held, "{count}");
            send(&chunk(b"x"), &mut fake, &bench);
            assert!(fake.actions.is_held, "{count}");
            bench.work(&mut fake);
            assert!(!fake.actions.is_held, "{count}");
        }
        assert_eq!(fake.actions.window_bytes, None, "it has not changed");
        open.push(fake);
    }
    // With those that end the share of the others grows: they learn of it when something is
    // written.
    open.truncate(2);
    send(&chunk(b"x"), &mut open[0], &bench);
    bench.work(&mut open[0]);
    let share = (UPLOAD_WINDOWS_BYTES / 2) as u32;
    assert_eq!(open[0].actions.window_bytes, Some(share));
}
