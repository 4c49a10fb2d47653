//! A unary call allocates nothing once the connection has warmed up.

use allocation_counter::measure;
use wire::hpack::{Encoder, Indexing};
use wire::http2::frame::{self, PREFACE, flag, kind};
use wire::{Config, Connection, Event};

/// A server connection and its buffers, all of which are used again.
struct Server {
    connection: Connection,
    output: Vec<u8>,
    answered: usize,
}

impl Server {
    fn new() -> Server {
        let mut connection = Connection::new(&Config::server(), 0);
        let mut output = Vec::new();
        connection.start(&mut output);
        let mut server = Server {
            connection,
            output,
            answered: 0,
        };
        let mut input = PREFACE.to_vec();
        frame::write_settings(&mut input, &[(4, 1 << 20)]);
        frame::write_settings_ack(&mut input);
        frame::write_window_update(&mut input, 0, 1 << 30);
        server.serve(&input);
        server
    }

    /// Serves one read's worth of calls: as an event loop does, answers follow when all events are
    /// taken.
    fn serve(&mut self, input: &[u8]) {
        let mut consumed = 0;
        let mut waiting = [None; 64];
        let mut count = 0;
        while let Some(event) =
            self.connection
                .poll_event(input, &mut consumed, &mut self.output, 0)
        {
            match event {
                Event::Message { stream, .. } => {
                    let message = self.connection.take_message();
                    assert_eq!(message.bytes(input).len(), 24);
                    self.connection.give_back(message);
                    waiting[count] = Some(stream);
                    count += 1;
                }
                Event::Request { stream, .. } => self.connection.set_token(stream, 1),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(consumed, input.len());
        for stream in waiting.into_iter().flatten() {
            self.connection.respond(stream, &mut self.output, |out| {
                out.extend_from_slice(&[7; 34])
            });
            self.answered += 1;
        }
        self.output.clear();
    }
}

/// Blocks and bodies of calls in reads of fifty, ready before anything is counted.
fn reads(
    count: u32,
    pieces: usize,
    fields: impl Fn(u32, &mut Encoder, &mut Vec<u8>),
) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new();
    let mut next_id = 1;
    let mut reads = Vec::new();
    for _ in 0..count {
        let mut input = Vec::new();
        for _ in 0..50 {
            let mut block = Vec::new();
            fields(next_id, &mut encoder, &mut block);
            frame::write_header(
                &mut input,
                block.len(),
                kind::HEADERS,
                flag::END_HEADERS,
                next_id,
            );
            input.extend_from_slice(&block);
            let body = [&[0, 0, 0, 0, 24][..], &[9; 24]].concat();
            for (at, piece) in body.chunks(body.len().div_ceil(pieces)).enumerate() {
                let flags = if at + 1 == pieces {
                    flag::END_STREAM
                } else {
                    0
                };
                frame::write_header(&mut input, piece.len(), kind::DATA, flags, next_id);
                input.extend_from_slice(piece);
            }
            next_id += 2;
        }
        reads.push(input);
    }
    reads
}

const CALL: [(&str, &str); 8] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/pelton.v1.KeyValue/Get"),
    (":authority", "127.0.0.1:1978"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("user-agent", "grpc-go/1.85.0"),
    ("authorization", "Bearer abcdefghijklmnopqrstuvwxyz"),
];

fn usual(encoder: &mut Encoder, block: &mut Vec<u8>) {
    for (name, value) in CALL {
        encoder.field(
            name.as_bytes(),
            value.as_bytes(),
            Indexing::Incremental,
            block,
        );
    }
}

/// Warms a connection up with the first half of the reads, and counts over the second.
fn allocations(reads: &[Vec<u8>]) -> u64 {
    let mut server = Server::new();
    let (warming, counted) = reads.split_at(reads.len() / 2);
    for input in warming {
        server.serve(input);
    }
    let info = measure(|| {
        for input in counted {
            server.serve(input);
        }
    });
    assert_eq!(server.answered, reads.len() * 50);
    info.count_total
}

#[test]
fn calls_that_repeat_allocate_nothing() {
    assert_eq!(
        allocations(&reads(40, 1, |_, encoder, block| usual(encoder, block))),
        0
    );
}

#[test]
fn calls_with_other_deadlines_and_traces_allocate_nothing() {
    let varied = |indexing| {
        move |id: u32, encoder: &mut Encoder, block: &mut Vec<u8>| {
            usual(encoder, block);
            encoder.field(
                b"grpc-timeout",
                format!("{}u", 99_000_000 - id).as_bytes(),
                indexing,
                block,
            );
            let trace = format!("00-{:032x}-{:016x}-01", id, id * 7);
            encoder.field(b"traceparent", trace.as_bytes(), indexing, block);
        }
    };
    assert_eq!(allocations(&reads(100, 1, varied(Indexing::Without))), 0);
    // As grpc-go does: each deadline enters the table.
    assert_eq!(
        allocations(&reads(100, 1, varied(Indexing::Incremental))),
        0
    );
}

#[test]
fn messages_that_come_in_pieces_allocate_nothing() {
    assert_eq!(
        allocations(&reads(40, 2, |_, encoder, block| usual(encoder, block))),
        0
    );
}
