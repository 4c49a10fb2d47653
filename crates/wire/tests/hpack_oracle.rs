//! Our encoder and decoder against another implementation, over thousands of random blocks in both
//! directions.

use testkit::Random;
use wire::hpack::{Decoder, Encoder, FieldLimits, Fields, Indexing};

type List = Vec<(Vec<u8>, Vec<u8>)>;

const CONNECTIONS: u64 = 60;
const BLOCKS: u64 = 60;

/// Names and values that often repeat, as they do on a connection.
fn random_list(random: &mut Random) -> List {
    let names: [&[u8]; 10] = [
        b":method",
        b":path",
        b":authority",
        b"te",
        b"content-type",
        b"grpc-timeout",
        b"cookie",
        b"user-agent",
        b"traceparent",
        b"accept",
    ];
    let values: [&[u8]; 9] = [
        b"POST",
        b"/",
        b"/pelton.v1.KeyValue/Get",
        b"trailers",
        b"application/grpc",
        b"1S",
        b"",
        b"gzip, deflate",
        b"GET",
    ];
    let count = random.below(12);
    (0..count)
        .map(|_| {
            let name = match random.below(4) {
                0 => random.bytes(30, |random| b'a' + random.below(26) as u8),
                _ => names[random.below(10) as usize].to_vec(),
            };
            let value = match random.below(6) {
                0 => random.bytes(100, |random| random.number() as u8),
                1 => random.bytes(100, |random| {
                    b"0123456789abcdef-"[random.below(17) as usize]
                }),
                2 => random.bytes(1500, |random| b' ' + random.below(95) as u8),
                _ => values[random.below(9) as usize].to_vec(),
            };
            (name, value)
        })
        .collect()
}

fn random_size(random: &mut Random) -> u32 {
    [0, 60, 200, 1000, 4096][random.below(5) as usize]
}

fn random_indexing(random: &mut Random) -> Indexing {
    [
        Indexing::Incremental,
        Indexing::Incremental,
        Indexing::Without,
        Indexing::Never,
    ][random.below(4) as usize]
}

#[test]
fn they_decode_what_we_encode() {
    let mut random = Random::new(0x5eed_0030);
    for _ in 0..CONNECTIONS {
        let mut encoder = Encoder::new();
        let mut other = httlib_hpack::Decoder::default();
        for _ in 0..BLOCKS {
            for _ in 0..[0, 0, 0, 1, 2][random.below(5) as usize] {
                encoder.set_peer_table_bytes(random_size(&mut random));
            }
            let list = random_list(&mut random);
            let mut block = Vec::new();
            encoder.begin_block(&mut block);
            for (name, value) in &list {
                encoder.field(name, value, random_indexing(&mut random), &mut block);
            }
            let mut decoded = Vec::new();
            other
                .decode(&mut block, &mut decoded)
                .unwrap_or_else(|error| panic!("{error:?} {random:?}"));
            let decoded: List = decoded
                .into_iter()
                .map(|(name, value, _)| (name, value))
                .collect();
            assert_eq!(decoded, list, "{random:?}");
        }
    }
}

#[test]
fn we_decode_what_they_encode() {
    const HUFFMAN_NAME: u8 = 0x1;
    const HUFFMAN_VALUE: u8 = 0x2;
    const INDEX: u8 = 0x4;
    const NEVER_INDEX: u8 = 0x8;
    const BEST: u8 = 0x10;
    let mut random = Random::new(0x5eed_0031);
    let limits = FieldLimits {
        max_fields: 64,
        max_list_bytes: 32_768,
    };
    let mut fields = Fields::new();
    for _ in 0..CONNECTIONS {
        let mut decoder = Decoder::new(4096);
        let mut other = httlib_hpack::Encoder::default();
        for _ in 0..BLOCKS {
            let mut block = Vec::new();
            if random.below(5) == 0 {
                other
                    .update_max_dynamic_size(random_size(&mut random), &mut block)
                    .expect("they can");
            }
            let list = random_list(&mut random);
            for (name, value) in &list {
                let kind = [INDEX, INDEX, 0, NEVER_INDEX][random.below(4) as usize];
                let best = if random.below(4) > 0 { BEST } else { 0 };
                let flags = random.below(4) as u8 & (HUFFMAN_NAME | HUFFMAN_VALUE) | kind | best;
                other
                    .encode((name.clone(), value.clone(), flags), &mut block)
                    .expect("they can");
            }
            decoder
                .decode(&block, &limits, &mut fields)
                .unwrap_or_else(|error| panic!("{error} {random:?}"));
            let decoded: List = fields
                .iter()
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect();
            assert_eq!(decoded, list, "{random:?}");
        }
    }
}

#[test]
fn we_decode_what_we_encode() {
    let mut random = Random::new(0x5eed_0032);
    let limits = FieldLimits {
        max_fields: 64,
        max_list_bytes: 32_768,
    };
    let mut fields = Fields::new();
    for _ in 0..CONNECTIONS {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        for _ in 0..BLOCKS {
            if random.below(4) == 0 {
                encoder.set_peer_table_bytes(random_size(&mut random));
            }
            let list = random_list(&mut random);
            let mut block = Vec::new();
            encoder.begin_block(&mut block);
            for (name, value) in &list {
                encoder.field(name, value, random_indexing(&mut random), &mut block);
            }
            decoder
                .decode(&block, &limits, &mut fields)
                .unwrap_or_else(|error| panic!("{error} {random:?}"));
            assert!(
                fields
                    .iter()
                    .eq(list.iter().map(|(name, value)| (&name[..], &value[..]))),
                "{random:?}"
            );
        }
    }
}
