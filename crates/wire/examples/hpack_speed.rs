//! How long the decoder takes for the header blocks of usual callers:
//! `cargo run --release --example hpack_speed`.
//!
//! Each row decodes many different blocks in turn, as a server sees them whose callers have
//! deadlines and trace ids.

use std::hint::black_box;
use std::time::Instant;

use wire::hpack::{Decoder, Encoder, FieldLimits, Fields, Indexing};

const BLOCKS: u64 = 1024;
const ROUNDS: usize = 200;

/// Fields that every call of a connection repeats.
const CONSTANT: [(&str, &str); 8] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/pelton.v1.KeyValue/Get"),
    (":authority", "localhost:1978"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    (
        "user-agent",
        "grpc-python/1.71.0 grpc-c/46.0.0 (linux; chttp2)",
    ),
    ("grpc-accept-encoding", "identity, deflate, gzip"),
];

/// A field that differs from call to call.
type Varying = (&'static str, fn(u64) -> String, Form);

/// How a client sends it.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Name and value as they are, as the C core of gRPC does.
    Plain,
    /// Name and value in Huffman code.
    Huffman,
    /// The name by index, the value in Huffman code, entering the table each time, as grpc-go and
    /// tonic do.
    Indexed,
}

fn trace(number: u64) -> String {
    let mixed = |salt: u64| {
        (number + salt)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xff51_afd7_ed55_8ccd)
    };
    format!("00-{:016x}{:016x}-{:016x}-01", mixed(1), mixed(2), mixed(3))
}

fn timeout(number: u64) -> String {
    format!("{}u", 900_000 + number * 7 % 99_991)
}

fn block(encoder: &mut Encoder, varying: &[Varying], number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in CONSTANT {
        encoder.field(
            name.as_bytes(),
            value.as_bytes(),
            Indexing::Incremental,
            &mut out,
        );
    }
    for (name, value, form) in varying {
        let value = value(number);
        match form {
            Form::Plain => {
                for text in ["\0", name, &value] {
                    // The first is the kind of the field, the others are strings shorter than 127.
                    out.extend((text != "\0").then_some(text.len() as u8));
                    out.extend_from_slice(text.as_bytes());
                }
            }
            Form::Huffman => encoder.field(
                name.as_bytes(),
                value.as_bytes(),
                Indexing::Without,
                &mut out,
            ),
            Form::Indexed => encoder.field(
                name.as_bytes(),
                value.as_bytes(),
                Indexing::Incremental,
                &mut out,
            ),
        }
    }
    out
}

fn measure(what: &str, varying: &[Varying]) {
    let (mut encoder, mut decoder, mut fields) =
        (Encoder::new(), Decoder::new(4096), Fields::new());
    let limits = FieldLimits::default();
    let mut best_ns = f64::MAX;
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        // New blocks in each round, since the table goes on changing.
        let blocks: Vec<_> = (0..BLOCKS)
            .map(|number| block(&mut encoder, varying, number))
            .collect();
        let begun = Instant::now();
        for block in &blocks {
            decoder
                .decode(black_box(block), &limits, &mut fields)
                .expect("our own block");
            black_box(&fields);
        }
        best_ns = best_ns.min(begun.elapsed().as_nanos() as f64 / BLOCKS as f64);
        bytes = blocks.iter().map(Vec::len).sum::<usize>() / blocks.len();
    }
    println!(
        "{what:50} {best_ns:6.1} ns, {:2} fields, {bytes:3} bytes",
        fields.len()
    );
}

fn main() {
    measure("indexed fields only", &[]);
    for (form, what) in [
        (Form::Plain, "plain"),
        (Form::Huffman, "Huffman"),
        (Form::Indexed, "entering the table"),
    ] {
        let (deadline, trace) = (
            ("grpc-timeout", timeout as fn(u64) -> String, form),
            ("traceparent", trace as _, form),
        );
        measure(&format!("and a deadline, {what}"), &[deadline]);
        measure(
            &format!("and a deadline and a trace id, {what}"),
            &[deadline, trace],
        );
    }
}
