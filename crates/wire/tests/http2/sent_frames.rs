//! What RFC 9113 demands of every frame that is sent, checked with all bytes of one side.

use crate::support::*;
use wire::http2::frame::{FrameHeader, HEADER_BYTES, PREFACE, flag, kind};
use wire::{Config, RequestHead};

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;

/// Cuts what one side sends into frames and checks each of them.
pub struct SentFrames {
    is_client: bool,
    /// What is not yet a whole frame.
    rest: Vec<u8>,
    is_first: bool,
    /// A bit for each type.
    kinds: u16,
}

impl SentFrames {
    pub fn of_server() -> SentFrames {
        SentFrames {
            is_client: false,
            rest: Vec::new(),
            is_first: true,
            kinds: 0,
        }
    }

    pub fn of_client() -> SentFrames {
        SentFrames {
            is_client: true,
            ..SentFrames::of_server()
        }
    }

    /// Takes bytes in the order in which they are sent, split anywhere.
    #[track_caller]
    pub fn check(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let mut start = 0;
        if self.is_client && self.is_first {
            if self.rest.len() < PREFACE.len() {
                return;
            }
            assert!(self.rest.starts_with(PREFACE));
            start = PREFACE.len();
        }
        while let Some(bytes) = self.rest[start..].first_chunk::<HEADER_BYTES>() {
            let header = FrameHeader::parse(bytes);
            let end = start + HEADER_BYTES + header.length as usize;
            if self.rest.len() < end {
                break;
            }
            assert_eq!(bytes[5] & 0x80, 0, "the reserved bit of {header:?}");
            self.check_frame(header, &self.rest[start + HEADER_BYTES..end]);
            self.is_first = false;
            self.kinds |= 1 << header.kind;
            start = end;
        }
        // The preface stays in front as long as no frame has followed.
        if !self.is_first {
            self.rest.drain(..start);
        }
    }

    /// Asserts that all bytes were whole frames, and some of each of these types.
    #[track_caller]
    pub fn assert_sent(&self, kinds: &[u8]) {
        assert!(self.rest.is_empty());
        for kind in kinds {
            assert_ne!(self.kinds & (1 << kind), 0, "no frame of type {kind}");
        }
    }

    #[track_caller]
    fn check_frame(&self, header: FrameHeader, payload: &[u8]) {
        // RFC 9113 sections 6.1 to 6.10.
        let flags = match header.kind {
            kind::DATA => flag::END_STREAM | flag::PADDED,
            kind::HEADERS => flag::END_STREAM | flag::END_HEADERS | flag::PADDED | flag::PRIORITY,
            kind::SETTINGS | kind::PING => flag::ACK,
            kind::CONTINUATION => flag::END_HEADERS,
            kind::RST_STREAM | kind::GOAWAY | kind::WINDOW_UPDATE => 0,
            _ => panic!("{header:?} is never sent"),
        };
        assert_eq!(header.flags & !flags, 0, "flags of {header:?}");
        let is_settings = header.kind == kind::SETTINGS;
        assert!(is_settings && !header.has(flag::ACK) || !self.is_first);
        if matches!(header.kind, kind::WINDOW_UPDATE | kind::GOAWAY) {
            assert_eq!(payload[0] & 0x80, 0, "the reserved bit of {header:?}");
        }
        if is_settings {
            for entry in payload.chunks(6) {
                self.check_setting(u16::from_be_bytes([entry[0], entry[1]]), &entry[2..]);
            }
        }
    }

    /// A client refuses pushes, and only a client may send the setting. No side makes its table
    /// smaller, so that no block can lack the size update that would have to follow.
    #[track_caller]
    fn check_setting(&self, identifier: u16, value: &[u8]) {
        assert_ne!(identifier, HEADER_TABLE_SIZE);
        if identifier == ENABLE_PUSH {
            assert!(self.is_client && number(value) == 0);
        }
    }
}

/// A connection that sends frames of all types that there are, with `act`, and what it sent.
fn sent(config: &Config, act: impl Fn(&mut Endpoint)) -> SentFrames {
    let mut sent = match config.role {
        wire::Role::Client => SentFrames::of_client(),
        wire::Role::Server => SentFrames::of_server(),
    };
    let mut endpoint = Endpoint::new(config);
    act(&mut endpoint);
    sent.check(&endpoint.output);
    sent
}

const HEAD: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/grpc")];

fn serve(server: &mut Endpoint) {
    let ping = frame(kind::PING, 0, 0, &[0xff; 8]);
    let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
    let begin = [&PREFACE[..], &settings(&[(1, 0), (4, 9)]), &ack, &ping].concat();
    assert_eq!(server.feed(&begin), []);
    for id in [1, 5] {
        let calls = [unary(id, b"a"), call(id + 2)].concat();
        let streams = requests(&server.feed(&calls));
        let (connection, out) = (&mut server.connection, &mut server.output);
        connection.respond(streams[0], out, |out| out.extend_from_slice(&[7; 100]));
        connection.reset(streams[1], out, wire::ErrorCode::InternalError);
        server.feed(&window_update(id, 1_000));
        let now_ns = server.now_ns;
        server.connection.transmit(&mut server.output, now_ns);
    }
    server.connection.drain(&mut server.output, 0);
}

fn call_server(client: &mut Endpoint) {
    let ping = frame(kind::PING, 0, 0, &[0xff; 8]);
    let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
    assert_eq!(client.feed(&[settings(&[(1, 0)]), ack, ping].concat()), []);
    for _ in 0..2 {
        let head = RequestHead::call("here", "/a.B/C");
        let opened = client.connection.open(&mut client.output, &head);
        let stream = opened.expect("a stream");
        let (connection, out) = (&mut client.connection, &mut client.output);
        connection.send_message(stream, out, |out| out.push(7));
        client.feed(&headers(stream.id, &HEAD, false));
        let (connection, out) = (&mut client.connection, &mut client.output);
        connection.reset(stream, out, wire::ErrorCode::Cancel);
    }
    client.connection.drain(&mut client.output, 0);
}

const ALL: [u8; 7] = [
    kind::DATA,
    kind::HEADERS,
    kind::RST_STREAM,
    kind::SETTINGS,
    kind::PING,
    kind::GOAWAY,
    kind::WINDOW_UPDATE,
];

#[test]
fn reserved_bits_and_flags_without_a_meaning_are_zero() {
    sent(&Config::server(), serve).assert_sent(&ALL);
    sent(&Config::client(), call_server).assert_sent(&ALL);
}

#[test]
fn no_settings_allow_push_or_make_the_table_smaller() {
    for stream_window in [None, Some(1), Some(65_535), Some(u32::MAX)] {
        for max_streams in [0, 1, u32::MAX] {
            let with = |config| Config {
                stream_window,
                max_streams,
                ..config
            };
            for config in [with(Config::server()), with(Config::client())] {
                sent(&config, |_| {}).assert_sent(&[kind::SETTINGS]);
            }
        }
    }
}
