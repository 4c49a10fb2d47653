//! Downloads from servers that send what a good one does not.

mod common;
#[path = "common/pooled.rs"]
mod pooled;

use std::io::Read;

use api::blob::{BlobDescription, DownloadRequest, DownloadResponse};
use client::typed::{Blobs, DownloadError, Futures};
use client::{SharedPool, Status};
use common::{serve, serve_all};
use pooled::of;
use wire::{Connection, StreamKey};

const CONTENT: &[u8] = b"one two three";
const PIECES: [&[u8]; 3] = [b"one ", b"two ", b"three"];

/// Sends a blob in three pieces; what is wrong with it, its name says.
fn three_pieces(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    message: &[u8],
) {
    assert_eq!(path, "/pelton.v1.Blob/Download");
    let request = DownloadRequest::decode(message).expect("the request is valid");
    let blob = BlobDescription {
        name: request.name,
        size_bytes: CONTENT.len() as u64,
        crc32c: crc32c::crc32c(CONTENT),
        ..BlobDescription::default()
    };
    for (number, piece) in PIECES.into_iter().enumerate() {
        let is_last = number == 2;
        if is_last && request.name == "short" {
            break;
        }
        let data = match (is_last, request.name) {
            (true, "damaged" | "exchanged") => b"THREE",
            _ => piece,
        };
        // One that was exchanged before it was sent has a checksum that fits.
        let checked = if request.name == "exchanged" {
            data
        } else {
            piece
        };
        let response = DownloadResponse {
            blob: (number == 0).then_some(blob),
            crc32c: Some(crc32c::crc32c(checked)),
            data,
        };
        connection.send_message(stream, out, |out| response.encode(out));
    }
    connection.finish(stream, out, &Status::OK);
}

#[test]
fn what_was_read_of_a_piece_is_not_in_the_rest_of_it() {
    let (mut channel, _server) = serve(three_pieces);
    let mut blobs = Blobs::new(&mut channel);
    let mut download = blobs.download("good").send().expect("begun");
    for (first, rest) in [(&b"on"[..], &b"e "[..]), (b"tw", b"o ")] {
        let mut begin = [0; 2];
        download.read_exact(&mut begin).expect("it comes");
        assert_eq!(begin, first);
        let piece = download.next_piece().expect("it comes");
        assert_eq!(piece.as_deref(), Some(rest));
    }
    let mut last = Vec::new();
    download.read_to_end(&mut last).expect("it is whole");
    assert_eq!(last, b"three");
    assert_eq!(download.next_piece().expect("it is whole"), None);
}

fn assert_found_out(name: &str, error: &DownloadError) {
    let found = match error {
        DownloadError::Damaged { offset } => ("damaged", *offset),
        DownloadError::Short { offset } => ("short", *offset),
        DownloadError::Call(error) => panic!("{name}: {error}"),
    };
    let expected = match name {
        "damaged" => ("damaged", 8),
        "exchanged" => ("damaged", 0),
        _ => ("short", 8),
    };
    assert_eq!(found, expected, "{name}");
}

#[test]
fn a_download_that_was_damaged_or_cut_short_says_so() {
    let (mut channel, _server) = serve(three_pieces);
    let (address, _others) = serve_all(three_pieces, 1);
    let pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    for name in ["damaged", "exchanged", "short"] {
        let mut blobs = Blobs::new(&mut channel);
        let mut download = blobs.download(name).send().expect("begun");
        let error = loop {
            match download.next_piece() {
                Ok(piece) => assert!(piece.is_some(), "{name}: it is not whole"),
                Err(error) => break error,
            }
        };
        assert_found_out(name, &error);
        drop(download);
        let mut futures = Futures::new(&pool);
        let mut blobs = Blobs::new(&mut futures);
        let mut download = blobs.download(name).send().expect("begun");
        let error = loop {
            match pollster::block_on(download.next_piece()) {
                Ok(piece) => assert!(piece.is_some(), "{name}: it is not whole"),
                Err(error) => break error,
            }
        };
        assert_found_out(name, &error);
    }
}
