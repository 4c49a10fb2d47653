//! The fuzz targets `frames`, `server` and `client`: bytes of a peer, for a connection.

use std::collections::BTreeMap;

use wire::{Config, Event, Role};

use crate::fuzz::conversation;
use crate::support::*;

/// Bytes of any kind, for a server whose layer above does anything at any time. The first eight
/// bytes seed what the peer does not decide.
pub fn fuzz_server(data: &[u8]) {
    fuzz_connection(data, Role::Server);
}

/// The same for a client.
pub fn fuzz_client(data: &[u8]) {
    fuzz_connection(data, Role::Client);
}

fn fuzz_connection(data: &[u8], role: Role) {
    if let Some((seed, bytes)) = data.split_first_chunk() {
        conversation(u64::from_le_bytes(*seed), role, bytes);
    }
}

/// Whole frames of any kind, for a server whose layer above only listens: they mean the same at
/// once and byte by byte, and what comes out is whole frames too.
pub fn fuzz_frames(data: &[u8]) {
    let bytes = whole_frames(data);
    let at_once = Heard::of(&bytes, usize::MAX);
    assert_eq!(Heard::of(&bytes, 1), at_once);
}

/// Makes frames of any bytes: type, flags, stream and length are a byte each.
fn whole_frames(mut data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some((&[kind, flags, stream, length], rest)) = data.split_first_chunk() {
        let (payload, rest) = rest.split_at(rest.len().min(length.into()));
        data = rest;
        bytes.extend(frame(kind % 12, flags, (stream % 16).into(), payload));
    }
    bytes
}

/// The fields of a header block.
type FieldList = Vec<(Vec<u8>, Vec<u8>)>;

/// What reached the layer above.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    /// The fields of each request, and its stream.
    requests: Vec<(u32, FieldList)>,
    /// The bytes of the messages of each stream, or of its body.
    bodies: BTreeMap<u32, Vec<u8>>,
    /// Why the connection was closed.
    close_reason: Option<String>,
}

impl Heard {
    /// Feeds bytes in pieces of a size.
    fn of(bytes: &[u8], piece_bytes: usize) -> Heard {
        let mut heard = Heard::default();
        let mut server = Endpoint::server_with(&Config::server(), &[]);
        for piece in bytes.chunks(piece_bytes) {
            server.feed_with(piece, |connection, seen, _| {
                let stream = stream_of(seen.event).id;
                if let Event::Request { .. } = seen.event {
                    let fields = connection.head().fields();
                    let fields = fields.map(|(name, value)| (name.to_vec(), value.to_vec()));
                    heard.requests.push((stream, fields.collect()));
                }
                let body = heard.bodies.entry(stream).or_default();
                body.extend_from_slice(&seen.message);
            });
        }
        server.frames();
        heard.close_reason = (server.connection.close_reason()).map(|why| format!("{why:?}"));
        heard
    }
}

#[test]
fn the_corpus_of_frames_passes() {
    testkit::replay_corpus("frames", fuzz_frames);
}

#[test]
fn the_corpus_of_the_server_passes() {
    testkit::replay_corpus("server", fuzz_server);
}

#[test]
fn the_corpus_of_the_client_passes() {
    testkit::replay_corpus("client", fuzz_client);
}
