//! Downloads over gRPC.

use store::blob::{crc32c, limits};
use wal::disk::{Fault, Step};

use super::*;
use crate::limits::{DOWNLOAD_CHUNK_BYTES, QUOTED_CHARACTERS};

const DOWNLOAD: DownloadRequest<'static> = DownloadRequest {
    database: "",
    name: "a",
    offset: 0,
    length_bytes: 0,
    chunk_bytes: 0,
    if_version: None,
};

fn download(request: DownloadRequest<'_>, bench: &mut Bench) -> Vec<Sent> {
    bench.call(Method::BlobDownload, &encoded(|out| request.encode(out)))
}

/// The lengths of the pieces, and the content. The first message alone says what it is, and each
/// has its checksum.
#[track_caller]
fn content(sent: &[Sent], size_bytes: usize) -> (Vec<usize>, Vec<u8>) {
    let (end, messages) = sent.split_last().expect("the call has ended");
    assert!(matches!(end, Sent::Status(status) if status.code() == Code::Ok));
    let (mut lengths, mut content) = (Vec::new(), Vec::new());
    for (index, message) in messages.iter().enumerate() {
        let Sent::Message(message) = message else {
            panic!("no message: {message:?}");
        };
        let message = DownloadResponse::decode(message).expect("it is a message");
        assert_eq!(message.blob.is_some(), index == 0);
        if let Some(blob) = message.blob {
            assert_eq!((blob.name, blob.size_bytes), ("a", size_bytes as u64));
            assert!(blob.version > 0);
        }
        let expected = (!message.data.is_empty()).then(|| crc32c(message.data));
        assert_eq!(message.crc32c, expected);
        lengths.push(message.data.len());
        content.extend_from_slice(message.data);
    }
    (lengths, content)
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at / 251 + at) as u8).collect()
}

#[test]
fn a_range_of_a_blob_comes_in_chunks_of_the_length_asked_for() {
    let mut bench = Bench::new();
    let whole = bytes(600_000);
    bench.put("a", &whole);
    let (lengths, found) = content(&download(DOWNLOAD, &mut bench), whole.len());
    assert!(found == whole);
    assert!(lengths.iter().all(|bytes| *bytes <= DOWNLOAD_CHUNK_BYTES));
    for (offset, length_bytes) in [
        (0, 1),
        (0, 600_000),
        (1, 599_999),
        (1, 600_000),
        (65_535, 2),
        (65_536, 100_000),
        (599_999, 0),
        (599_999, u64::MAX),
    ] {
        let request = DownloadRequest {
            offset,
            length_bytes,
            ..DOWNLOAD
        };
        let end = match length_bytes {
            0 => whole.len(),
            length => (offset.saturating_add(length)).min(600_000) as usize,
        };
        for chunk_bytes in [0, 1_000, 100_000, limits::CHUNK_BYTES as u32] {
            if length_bytes > 100_000 && chunk_bytes == 1_000 {
                continue;
            }
            let request = DownloadRequest {
                chunk_bytes,
                ..request
            };
            let (lengths, found) = content(&download(request, &mut bench), whole.len());
            assert!(found == whole[offset as usize..end]);
            let most = match chunk_bytes {
                0 => DOWNLOAD_CHUNK_BYTES,
                bytes => bytes as usize,
            };
            assert!(lengths.iter().all(|bytes| (1..=most).contains(bytes)));
        }
    }
}

#[test]
fn of_nothing_only_the_description_comes() {
    let mut bench = Bench::new();
    bench.put("a", b"");
    let sent = download(DOWNLOAD, &mut bench);
    assert_eq!(content(&sent, 0), (vec![0], vec![]));
    bench.put("a", b"content");
    let at = |offset| DownloadRequest { offset, ..DOWNLOAD };
    let sent = download(at(7), &mut bench);
    assert_eq!(content(&sent, 7), (vec![0], vec![]));
    let sent = download(at(8), &mut bench);
    let words = refused(&sent, Code::OutOfRange);
    assert!(words.contains("offset is 8, and the blob has 7"), "{words}");
}

#[test]
fn what_may_be_downloaded_is_checked() {
    let mut bench = Bench::new();
    bench.put("a", b"content");
    let found = stat("a", b"", &mut bench);
    let found = StatResponse::decode(&found).expect("it is a message");
    let version = found.blob.expect("it is there").version;
    let only_if = |version| DownloadRequest {
        if_version: Some(version),
        ..DOWNLOAD
    };
    let sent = download(only_if(version), &mut bench);
    assert_eq!(content(&sent, 7).1, b"content");
    for other in [version - 1, version + 1] {
        let sent = download(only_if(other), &mut bench);
        let words = refused(&sent, Code::Aborted);
        assert!(words.contains(&format!("version {version}")), "{words}");
    }
    refused(&download(only_if(0), &mut bench), Code::InvalidArgument);

    let chunks = |chunk_bytes| DownloadRequest {
        chunk_bytes,
        ..DOWNLOAD
    };
    let sent = download(chunks(limits::CHUNK_BYTES as u32 + 1), &mut bench);
    let words = refused(&sent, Code::InvalidArgument);
    assert!(words.contains("chunk_bytes is 4194305"), "{words}");

    let name = "n".repeat(QUOTED_CHARACTERS + 1);
    let request = DownloadRequest {
        name: &name,
        ..DOWNLOAD
    };
    let sent = download(request, &mut bench);
    let words = refused(&sent, Code::NotFound);
    assert!(words.contains(&format!("\"{}\"", &name[1..])), "{words}");
}

#[test]
fn a_download_goes_on_when_its_peer_can_take_more() {
    let mut bench = Bench::new();
    let whole = bytes(600_000);
    bench.put("a", &whole);
    let mut fake = Fake::new(Method::BlobDownload, &bench.shared);
    fake.actions.room = 0;
    fake.message(&encoded(|out| DOWNLOAD.encode(out)), true, &bench.shared);
    // Before its blob is found there is nothing to go on with.
    fake.writable(&bench.shared);
    let sent = bench.sent_as_room_comes(&mut fake);
    assert!(content(&sent, whole.len()).1 == whole);
}

#[test]
fn content_that_cannot_be_read_ends_the_download() {
    let mut bench = Bench::new();
    bench.put("a", &bytes(100_000));
    for _ in 0..2 {
        bench.disk.plan_next(Step::Read, 0, Fault::Error);
        refused(&download(DOWNLOAD, &mut bench), Code::Unavailable);
        let sent = download(DOWNLOAD, &mut bench);
        assert!(content(&sent, 100_000).1 == bytes(100_000));
    }
}
