//! Uploads, to a server that looks at each part of them.

mod common;
#[path = "common/pooled.rs"]
mod pooled;

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, Read};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use api::blob::{BlobDescription, UploadPart, UploadRequest, UploadResponse};
use client::limits::UPLOAD_CHUNK_BYTES;
use client::typed::{Blobs, Futures, UploadError, UploadOutcome, UploadWriter};
use client::{CallError, SharedPool, Status};
use common::{serve, serve_all};
use pollster::block_on;
use pooled::of;
use wire::{Connection, StreamKey};

const SOON: Duration = Duration::from_secs(20);

/// What has come of an upload.
#[derive(Default)]
struct ReceivedUpload {
    name: String,
    content_type: String,
    offset: u64,
    content: Vec<u8>,
    chunks: u64,
}

thread_local! {
    /// Of the connection that this thread serves.
    static RECEIVED: RefCell<ReceivedUpload> = RefCell::default();
}

/// Takes a part, with all its checksums. What the server does before the end, the name says.
fn take_part(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    message: &[u8],
) {
    assert_eq!(path, "/pelton.v1.Blob/Upload");
    let request = UploadRequest::decode(message).expect("the request is valid");
    let part = request.part.expect("each message is a part");
    RECEIVED.with_borrow_mut(|received| match part {
        UploadPart::Begin(begin) => {
            *received = ReceivedUpload {
                name: begin.name.to_owned(),
                content_type: begin.content_type.to_owned(),
                offset: begin.offset,
                ..ReceivedUpload::default()
            };
        }
        UploadPart::Chunk(chunk) => {
            assert_eq!(chunk.crc32c, Some(crc32c::crc32c(chunk.data)));
            received.content.extend_from_slice(chunk.data);
            received.chunks += 1;
            match (&received.name[..], received.chunks) {
                ("early", 1) => {
                    let refused = UploadResponse::default();
                    connection.respond(stream, out, |out| refused.encode(out));
                }
                ("ended", 1) => connection.finish(stream, out, &Status::OK),
                _ => {}
            }
        }
        UploadPart::End(end) => {
            let crc32c = crc32c::crc32c(&received.content);
            assert!(end.crc32c.is_none_or(|sum| sum == crc32c));
            let blob = BlobDescription {
                name: &received.name,
                content_type: &received.content_type,
                size_bytes: received.offset + received.content.len() as u64,
                crc32c,
                version: received.chunks,
                created_at_ms: u64::from(end.crc32c.is_some()),
                ..BlobDescription::default()
            };
            let response = UploadResponse {
                applied: true,
                blob: Some(blob),
            };
            // The call ends when its client has ended it, too.
            connection.send_message(stream, out, |out| response.encode(out));
        }
    });
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|number| (number / 7) as u8).collect()
}

/// A content that comes in pieces of any length, and is interrupted now and then.
struct Halting<'a> {
    rest: &'a [u8],
    reads: usize,
}

impl Read for Halting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        if self.reads.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let most = buffer.len().min(self.reads * 30_000);
        self.rest.read(&mut buffer[..most])
    }
}

/// What is stored of a content with this many chunks.
fn assert_stored(outcome: UploadOutcome, content: &[u8], chunks: usize) {
    assert!(outcome.applied);
    let blob = outcome.blob.expect("described");
    let shown = (blob.size_bytes, blob.crc32c, blob.version);
    let expected = (content.len() as u64, crc32c::crc32c(content), chunks as u64);
    assert_eq!(shown, expected);
    assert_eq!(blob.created_at_ms, 1, "the checksum of the whole came");
    assert_eq!((&blob.name[..], &blob.content_type[..]), ("a", "text/x"));
}

#[test]
fn a_content_goes_up_in_whole_chunks_and_an_empty_one_in_none() {
    let (mut channel, _server) = serve(take_part);
    let (address, _others) = serve_all(take_part, 1);
    let mut pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let chunk = UPLOAD_CHUNK_BYTES;
    for bytes in [0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk] {
        let content = content(bytes);
        let chunks = bytes.div_ceil(chunk);
        let halting = || Halting {
            rest: &content,
            reads: 0,
        };
        let mut blobs = Blobs::new(&mut channel);
        let upload = blobs.upload("a").content_type("text/x").timeout(SOON);
        assert_stored(upload.send(halting()).expect("stored"), &content, chunks);
        let mut blobs = Blobs::new(&mut pool);
        let upload = blobs.upload("a").content_type("text/x").timeout(SOON);
        assert_stored(upload.send(halting()).expect("stored"), &content, chunks);
    }
}

/// Of an upload that goes on behind some bytes nobody has the checksum of the whole.
#[test]
fn the_checksum_of_the_whole_is_sent_if_the_upload_begins_at_its_first_byte() {
    let (mut channel, _server) = serve(take_part);
    let (address, _others) = serve_all(take_part, 1);
    let mut pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    for (offset, is_whole) in [(0, 1), (1, 0), (5, 0), (0, 1)] {
        let mut blobs = Blobs::new(&mut channel);
        let upload = blobs.upload("a").resumable(b"id", offset).timeout(SOON);
        let stored = upload.send(&b"rest"[..]).expect("stored");
        let mut blobs = Blobs::new(&mut pool);
        let upload = blobs.upload("a").resumable(b"id", offset).timeout(SOON);
        let pooled = upload.send(&b"rest"[..]).expect("stored");
        let mut futures = Futures::new(&pool);
        let mut blobs = Blobs::new(&mut futures);
        let upload = blobs.upload("a").resumable(b"id", offset).timeout(SOON);
        let mut writer = block_on(upload.begin()).expect("begun");
        block_on(writer.write(b"rest")).expect("it has room");
        let written = block_on(writer.finish()).expect("stored");
        for stored in [stored, pooled, written] {
            let blob = stored.blob.expect("described");
            let shown = (blob.size_bytes, blob.created_at_ms);
            assert_eq!(shown, (offset + 4, is_whole));
        }
    }
}

/// Brings some bytes, and then an error.
struct Breaks<'a>(&'a [u8]);

impl Read for Breaks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.is_empty() {
            true => Err(io::Error::other("the disk is gone")),
            false => self.0.read(buffer),
        }
    }
}

#[test]
fn a_content_that_breaks_off_and_a_server_that_does_are_told_apart() {
    let (mut channel, _server) = serve(take_part);
    let (address, _others) = serve_all(take_part, 1);
    let mut pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let content = content(40 * UPLOAD_CHUNK_BYTES);
    for _ in 0..2 {
        let mut blobs = Blobs::new(&mut channel);
        let broken = blobs.upload("a").timeout(SOON).send(Breaks(&content[..9]));
        assert!(matches!(broken, Err(UploadError::Content(_))), "{broken:?}");
        let mut pooled = Blobs::new(&mut pool);
        let broken = pooled.upload("a").timeout(SOON).send(Breaks(&content[..9]));
        assert!(matches!(broken, Err(UploadError::Content(_))), "{broken:?}");

        let mut blobs = Blobs::new(&mut channel);
        let early = blobs.upload("early").timeout(SOON).send(&content[..]);
        assert_refused(early);
        let early = pooled.upload("early").timeout(SOON).send(&content[..]);
        assert_refused(early);
        assert_ended(blobs.upload("ended").timeout(SOON).send(&content[..]));
        assert_ended(pooled.upload("ended").timeout(SOON).send(&content[..]));
    }
}

fn assert_refused(outcome: Result<UploadOutcome, UploadError>) {
    let outcome = outcome.expect("a response");
    assert_eq!((outcome.applied, outcome.blob), (false, None));
}

fn assert_ended(outcome: Result<UploadOutcome, UploadError>) {
    let Err(UploadError::Call(CallError::BadAnswer { .. })) = outcome else {
        panic!("{outcome:?}");
    };
}

fn writer(pool: &SharedPool, name: &str) -> UploadWriter {
    let mut futures = Futures::new(pool);
    let mut blobs = Blobs::new(&mut futures);
    let upload = blobs.upload(name).content_type("text/x").timeout(SOON);
    block_on(upload.begin()).expect("begun")
}

#[test]
fn a_writer_sends_each_piece_in_chunks() {
    let (address, _server) = serve_all(take_part, 1);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let content = content(4 * UPLOAD_CHUNK_BYTES);
    for _ in 0..2 {
        let mut writer = writer(&pool, "a");
        let (first, rest) = content.split_at(1);
        let (second, last) = rest.split_at(UPLOAD_CHUNK_BYTES);
        for piece in [&[], first, second, last] {
            block_on(writer.write(piece)).expect("it has room");
        }
        let stored = block_on(writer.finish()).expect("stored");
        assert_stored(stored, &content, 5);
    }
}

#[test]
fn a_writer_whose_server_has_responded_sends_no_more() {
    let (address, _server) = serve_all(take_part, 1);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let content = content(40 * UPLOAD_CHUNK_BYTES);
    for _ in 0..2 {
        let mut early = writer(&pool, "early");
        for _ in 0..3 {
            block_on(early.write(&content)).expect("the response says why");
        }
        assert_refused(block_on(early.finish()));
        let mut ended = writer(&pool, "ended");
        let written = block_on(async {
            ended.write(&content).await?;
            ended.finish().await
        });
        assert_ended(written);
    }
}

#[test]
fn a_writer_of_which_a_write_was_dropped_writes_and_finishes_no_more() {
    let (address, _server) = serve_all(take_part, 1);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let much = vec![0; 64 << 20];
    for _ in 0..2 {
        let mut writer = writer(&pool, "a");
        let mut context = Context::from_waker(Waker::noop());
        let is_pending = pin!(writer.write(&much)).poll(&mut context).is_pending();
        assert!(is_pending, "it is more than may wait");
        let again = block_on(writer.write(b"x"));
        let finished = block_on(writer.finish()).map(|_| ());
        for result in [again, finished] {
            let Err(UploadError::Call(CallError::BadRequest { reason })) = result else {
                panic!("{result:?}");
            };
            assert!(reason.contains("has not ended"), "{reason}");
        }
    }
}
