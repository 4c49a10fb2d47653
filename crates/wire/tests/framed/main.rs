//! A connection of baidu_std or SRPC from outside: bytes of any kind, cut anywhere, for a layer
//! above that does anything at any time.

mod client_corpus;
mod corpus;

use client_corpus::{ClientConversation, fuzz_framed_client};
use corpus::{Conversation, Echo, fuzz_framed, talk};
use testkit::{OnFailure, Random, frames};
use wire::framed::FramedProtocol;

/// Metadata of a request: names, and what else a client may say.
fn meta(random: &mut Random, protocol: FramedProtocol) -> Vec<u8> {
    let mut names = b"\x0a\x13example.EchoService\x12\x04Echo".to_vec();
    if random.once_in(3) {
        names.extend([0x40, 1]);
    }
    let mut meta = vec![0x0a, names.len() as u8];
    meta.extend(names);
    match protocol {
        FramedProtocol::BaiduStd => {
            if !random.once_in(4) {
                meta.extend([0x20, random.below(128_u16) as u8]);
            }
            if random.once_in(3) {
                meta.extend([0x18, random.below(5_u16) as u8]);
            }
            if random.once_in(3) {
                meta.extend([0x28, random.below(20_u16) as u8]);
            }
            if random.once_in(8) {
                meta.extend([0x58, 1, 0x62, 4, 1, 2, 3, 4]);
            }
            if random.once_in(8) {
                meta.extend(b"\x3a\x05token\x4a\x06\x0a\x01k\x12\x01v");
            }
        }
        FramedProtocol::Srpc => {
            if random.once_in(3) {
                meta.extend([0x20, random.below(5_u16) as u8]);
            }
        }
    }
    meta
}

/// Frames as a client sends them, of which some are damaged.
fn frames(random: &mut Random, protocol: FramedProtocol, damages: u64) -> Vec<u8> {
    frames_with(random, protocol, damages, meta)
}

/// Frames with these metadata, of which some are damaged.
fn frames_with(
    random: &mut Random,
    protocol: FramedProtocol,
    damages: u64,
    meta: fn(&mut Random, FramedProtocol) -> Vec<u8>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(6_u64) {
        let meta = meta(random, protocol);
        let body_bytes = match random.below(4_u64) {
            0 => random.below(40_000_usize),
            _ => random.below(60_usize),
        };
        let body = random.bytes(body_bytes + 1, |random| random.below(256_u16) as u8);
        bytes.extend(frames::framed(protocol, &meta, &body));
    }
    for _ in 0..damages {
        let at = match random.once_in(2) {
            true => random.below(bytes.len().min(60)),
            false => random.below(bytes.len()),
        };
        bytes[at] = random.below(256_u16) as u8;
    }
    bytes
}

fn both(random: &mut Random) -> FramedProtocol {
    random.pick(&[FramedProtocol::BaiduStd, FramedProtocol::Srpc])
}

#[test]
fn inputs_of_the_fuzz_target_hold() {
    testkit::replay_corpus("framed", fuzz_framed);
    testkit::replay_corpus("framed_client", fuzz_framed_client);
}

#[test]
fn damaged_frames_leave_nothing_behind_and_take_no_more_memory_than_there_is() {
    let rounds = std::env::var("PELTON_ROUNDS").map_or(4_000, |rounds| rounds.parse().unwrap());
    for seed in 0..rounds {
        let _on_failure = OnFailure(format!("the seed is {seed}"));
        let mut random = Random::new(seed);
        let protocol = both(&mut random);
        let damages = random.below(4_u64);
        let bytes = frames(&mut random, protocol, damages);
        Conversation::new(protocol, seed).run(&bytes);
    }
}

#[test]
fn frames_mean_the_same_at_once_and_in_pieces() {
    let mut answered = 0;
    for seed in 0..1_500 {
        let _on_failure = OnFailure(format!("the seed is {seed}"));
        let mut random = Random::new(seed);
        let damages = random.below(2_u64);
        let bytes = frames(&mut random, FramedProtocol::BaiduStd, damages);
        let at_once = talk(FramedProtocol::BaiduStd, bytes.chunks(bytes.len()));
        for _ in 0..2 {
            let piece = 1 + random.below(bytes.len().min(70));
            assert_eq!(talk(FramedProtocol::BaiduStd, bytes.chunks(piece)), at_once);
        }
        answered += usize::from(!at_once.0.is_empty());
    }
    assert!(answered > 1_000, "{answered}");
}

/// Metadata of a response, as a server sends them and as none does.
fn response_meta(random: &mut Random, protocol: FramedProtocol) -> Vec<u8> {
    let number = random.pick(&[0_u8, 0, 0, 1, 2, 100]);
    let mut meta = vec![0x12, 2, 8, number];
    match protocol {
        FramedProtocol::BaiduStd => {
            // The numbers that a client chooses: 1, 2, 3, … above 16 bits of the place.
            let id = (1 + random.below(6_u64)) << 16 | random.below(4_u64);
            let bytes = [id as u8 | 0x80, (id >> 7) as u8 | 0x80, (id >> 14) as u8];
            meta.push(0x20);
            meta.extend(bytes);
            if random.once_in(3) {
                meta.extend([0x18, random.below(5_u16) as u8]);
            }
            if random.once_in(3) {
                meta.extend([0x28, random.below(20_u16) as u8]);
            }
            if random.once_in(8) {
                meta.extend([0x58, 1, 0x62, 4, 1, 2, 3, 4]);
            }
        }
        FramedProtocol::Srpc => {
            if random.once_in(3) {
                meta.extend([0x20, random.below(5_u16) as u8]);
            }
        }
    }
    meta
}

#[test]
fn damaged_responses_end_each_call_once_and_take_no_more_memory_than_there_is() {
    let rounds = std::env::var("PELTON_ROUNDS").map_or(4_000, |rounds| rounds.parse().unwrap());
    for seed in 0..rounds {
        let _on_failure = OnFailure(format!("the seed is {seed}"));
        let mut random = Random::new(seed);
        let protocol = both(&mut random);
        let damages = random.below(4_u64);
        let bytes = frames_with(&mut random, protocol, damages, response_meta);
        ClientConversation::new(protocol, seed).run(&bytes);
    }
}

/// A client and a server, with a network between them that cuts what goes over it into pieces of
/// any size, and sometimes damages it.
#[test]
fn a_client_and_a_server_end_each_call_once_whatever_the_network_does() {
    let rounds = std::env::var("PELTON_ROUNDS").map_or(2_000, |rounds| rounds.parse().unwrap());
    let mut echoed_whole = 0;
    for seed in 0..rounds {
        let _on_failure = OnFailure(format!("the seed is {seed}"));
        let mut random = Random::new(seed);
        let protocol = both(&mut random);
        let mut client = ClientConversation::new(protocol, seed);
        let mut server = Echo::new(protocol);
        let damages = random.once_in(2);
        let (mut requests, mut responses) = (Vec::new(), Vec::new());
        for turn in 0..40 {
            if turn < 30 {
                client.begin_some();
            }
            requests.extend(client.take_output());
            server.receive(&piece(&mut random, &mut requests, damages, turn == 39));
            responses.extend(server.answer_some(&mut random, turn == 39));
            client.receive(&piece(&mut random, &mut responses, damages, turn == 39));
        }
        let (begun, given_up, echoed) = client.counts();
        if !damages {
            assert!(!client.is_closed() && !server.is_closed());
            // Of those that were given up some were echoed before.
            assert_eq!(begun, given_up + echoed);
            echoed_whole += echoed;
        }
        client.finish();
    }
    assert!(echoed_whole > 5_000, "{echoed_whole}");
}

/// Takes the first bytes of what is on its way, and perhaps damages one of them.
fn piece(random: &mut Random, bytes: &mut Vec<u8>, damages: bool, is_last: bool) -> Vec<u8> {
    let most = random.pick(&[1, 30, 4_000]).min(bytes.len());
    let count = if is_last {
        bytes.len()
    } else {
        random.below(most + 1)
    };
    let mut piece: Vec<u8> = bytes.drain(..count).collect();
    if damages && !piece.is_empty() && random.once_in(10) {
        let at = random.below(piece.len());
        piece[at] = random.below(256_u16) as u8;
    }
    piece
}
