//! How long the protocol takes for a unary call: receiving, one event loop's turn of fifty, and
//! answering.
//!
//! `cargo run --profile quick -p pelton-wire --example calls`

use std::time::Instant;

use wire::hpack::{Encoder, Indexing};
use wire::http2::frame::{self, PREFACE, flag, kind};
use wire::{Config, Connection, Event};

const CALLS_PER_READ: u32 = 50;
const READS: usize = 2_000;

fn main() {
    measure("the same block each time", |_, _, _| {});
    if std::env::args().len() > 1 {
        // For a profile of the usual case alone.
        return;
    }
    measure("deadlines and traces, not indexed", |id, encoder, block| {
        vary(id, encoder, block, Indexing::Without)
    });
    measure("deadlines and traces, indexed", |id, encoder, block| {
        vary(id, encoder, block, Indexing::Incremental)
    });
}

fn vary(id: u32, encoder: &mut Encoder, block: &mut Vec<u8>, indexing: Indexing) {
    encoder.field(
        b"grpc-timeout",
        format!("{}u", 99_000_000 - id).as_bytes(),
        indexing,
        block,
    );
    encoder.field(
        b"traceparent",
        format!("00-{id:032x}-{:016x}-01", id * 7).as_bytes(),
        indexing,
        block,
    );
}

fn measure(name: &str, vary: impl Fn(u32, &mut Encoder, &mut Vec<u8>)) {
    let reads = reads(vary);
    let mut best_ns = f64::INFINITY;
    for _ in 0..20 {
        let mut server = server();
        let mut output = Vec::with_capacity(1 << 20);
        let began = Instant::now();
        for input in &reads {
            serve(&mut server, input, &mut output);
        }
        best_ns = best_ns
            .min(began.elapsed().as_nanos() as f64 / (READS as f64 * f64::from(CALLS_PER_READ)));
    }
    println!("{name}: {best_ns:.0} ns a call");
}

fn server() -> Connection {
    let mut connection = Connection::new(&Config::server(), 0);
    let mut output = Vec::new();
    connection.start(&mut output);
    let mut input = PREFACE.to_vec();
    frame::write_settings(&mut input, &[(4, 1 << 20)]);
    frame::write_settings_ack(&mut input);
    frame::write_window_update(&mut input, 0, 1 << 30);
    serve(&mut connection, &input, &mut output);
    connection
}

fn serve(connection: &mut Connection, input: &[u8], output: &mut Vec<u8>) {
    let mut waiting = [None; CALLS_PER_READ as usize];
    let (mut consumed, mut count) = (0, 0);
    while let Some(event) = connection.poll_event(input, &mut consumed, output, 0) {
        match event {
            Event::Request { stream, .. } => {
                std::hint::black_box(connection.head().path());
                connection.set_token(stream, 1);
            }
            Event::Message { stream, .. } => {
                std::hint::black_box(connection.message(input));
                waiting[count] = Some(stream);
                count += 1;
            }
            _ => {}
        }
    }
    for stream in waiting.into_iter().flatten() {
        connection.respond(stream, output, |out| out.extend_from_slice(&[7; 34]));
    }
    std::hint::black_box(&output);
    output.clear();
}

fn reads(vary: impl Fn(u32, &mut Encoder, &mut Vec<u8>)) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new();
    let mut id = 1;
    let mut read = || {
        let mut input = Vec::new();
        for _ in 0..CALLS_PER_READ {
            let mut block = Vec::new();
            for (name, value) in [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", "/pelton.v1.KeyValue/Get"),
                (":authority", "127.0.0.1:1978"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", "grpc-go/1.85.0"),
            ] {
                encoder.field(
                    name.as_bytes(),
                    value.as_bytes(),
                    Indexing::Incremental,
                    &mut block,
                );
            }
            vary(id, &mut encoder, &mut block);
            frame::write_header(
                &mut input,
                block.len(),
                kind::HEADERS,
                flag::END_HEADERS,
                id,
            );
            input.extend_from_slice(&block);
            frame::write_header(&mut input, 29, kind::DATA, flag::END_STREAM, id);
            input.extend_from_slice(&[&[0, 0, 0, 0, 24][..], &[9; 24]].concat());
            id += 2;
        }
        input
    };
    (0..READS).map(|_| read()).collect()
}
