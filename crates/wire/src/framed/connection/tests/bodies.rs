//! Bodies that come in parts: their checksums, and what compressed ones cost.

use super::body::is_progress;
use super::*;
use crate::framed::checksum;
use crate::grpc::compression::{self, Unzipping};

/// `first` bytes of the body with the header, which then has its turn, and the rest in parts.
fn receive_in_parts(echo: &mut Echo, request: &[u8], body_bytes: usize, first: usize) {
    let (begin, rest) = request.split_at(request.len() - body_bytes + first);
    echo.receive(begin);
    assert!(echo.connection.has_turn());
    for part in rest.chunks(30_000) {
        echo.receive(part);
    }
}

/// Wherever a part ends. What the checksum does not cover may be anything.
#[test]
fn a_gathered_body_is_taken_only_if_all_that_its_checksum_covers_is_sound() {
    const BYTES: usize = 100_000;
    const FIRST: usize = 20_000;
    let whole: Vec<u8> = (0..BYTES as u32)
        .flat_map(|at| at.to_be_bytes())
        .take(BYTES)
        .collect();
    for (attachment, attachment_bytes) in [("", 0), ("28e807", 1_000), ("28a0c21e", 500_000)] {
        for (covers, covers_all) in [("", false), ("6800", false), ("6801", true)] {
            let mut body = whole.clone();
            body.resize(BYTES + attachment_bytes, b'a');
            let summed_bytes = if covers_all { body.len() } else { BYTES };
            let summed = checksum::masked(crc32c::crc32c(&body[..summed_bytes]));
            let summed: String = summed.iter().map(|byte| format!("{byte:02x}")).collect();
            let meta = format!("{META} 2001 {attachment} 5801 6204{summed} {covers}");
            let ends = [0, FIRST - 1, FIRST, BYTES - 1, BYTES, body.len() - 1];
            let damaged = ends.into_iter().filter(|at| *at < body.len()).map(Some);
            for damaged_at in damaged.chain([None]) {
                let mut sent = body.clone();
                if let Some(at) = damaged_at {
                    sent[at] ^= 0x10;
                }
                let mut echo = Echo::new(FramedProtocol::BaiduStd);
                echo.echoes = false;
                receive_in_parts(&mut echo, &frame_of(&meta, &sent), sent.len(), FIRST);
                let is_sound = damaged_at.is_none_or(|at| at >= summed_bytes);
                let case = format!("{attachment_bytes}, {covers_all}, {damaged_at:?}");
                assert_eq!(echo.open.len(), usize::from(is_sound), "{case}");
                if is_sound {
                    assert!(echo.open[0].1 == sent[..BYTES], "{case}");
                } else {
                    let (code, text) = error_of(&echo.take());
                    assert!(code == 1003 && text.contains("damaged"), "{case}: {text}");
                    assert_eq!((echo.cancelled, echo.connection.running()), (1, 0));
                }
            }
        }
    }
}

/// Neither protocol lets a peer make much of little, whatever goes with it or in which parts it
/// comes.
#[test]
fn what_a_message_becomes_is_paid_by_its_own_bytes_and_not_by_its_attachment() {
    const BECOMES: usize = 1 << 20;
    let mut packed = Vec::new();
    compression::gzip(&vec![0; BECOMES], &mut packed);
    let excess = BECOMES - packed.len() * limits::USUAL_INFLATE_RATIO;
    let paid = limits::INFLATE_BURST_BYTES as usize / excess;
    let with_attachment = [&packed[..], &[b'a'; BECOMES / limits::USUAL_INFLATE_RATIO]].concat();
    let names = "0a0d 0a05 4563686f58 1204 4563686f";
    for (protocol, request, body_bytes) in [
        (
            FramedProtocol::BaiduStd,
            frame_of(&format!("{META} 1802 2001"), &packed),
            packed.len(),
        ),
        (
            FramedProtocol::BaiduStd,
            frame_of(&format!("{META} 1802 2001 28808002"), &with_attachment),
            with_attachment.len(),
        ),
        (
            FramedProtocol::Srpc,
            srpc_frame_of(&format!("{names} 2002"), &packed),
            packed.len(),
        ),
    ] {
        for in_parts in [false, true] {
            if in_parts && body_bytes < 20_000 {
                continue;
            }
            let mut echo = Echo::new(protocol);
            echo.echoes = false;
            let mut taken = 0;
            while taken <= paid && echo.connection.close_reason().is_none() {
                match in_parts {
                    true => receive_in_parts(&mut echo, &request, body_bytes, 20_000),
                    false => echo.receive(&request),
                }
                for (stream, message) in echo.open.drain(..) {
                    assert_eq!(message.len(), BECOMES);
                    echo.connection.forget(stream);
                    taken += 1;
                }
            }
            let code = match echo.connection.close_reason() {
                Some(CloseReason::Error { code, .. }) => Some(*code),
                _ => None,
            };
            let expected = (paid, Some(ErrorCode::EnhanceYourCalm));
            assert_eq!((taken, code), expected, "{protocol:?}, {body_bytes} bytes");
        }
    }
}

/// For each of these memory is looked for, and then time.
#[test]
fn a_message_that_becomes_large_waits_for_memory_and_is_decompressed_in_steps() {
    const STEP: usize = limits::UNPACK_STEP_BYTES;
    const BECOMES: usize = 2 * STEP + 1;
    let message: Vec<u8> = (0..BECOMES as u32).map(|at| (at / 5 % 251) as u8).collect();
    let mut gzipped = Vec::new();
    compression::gzip(&message, &mut gzipped);
    let snapped = snap::raw::Encoder::new()
        .compress_vec(&message)
        .expect("fits");
    for (compress_type, packed, state_bytes) in
        [(1, snapped, 0), (2, gzipped, Unzipping::STATE_BYTES)]
    {
        let request = frame_of(&format!("{META} 180{compress_type} 2001"), &packed);
        for is_forced in [false, true] {
            let mut echo = Echo::new(FramedProtocol::BaiduStd);
            echo.echoes = false;
            echo.connection.set_unpack_allowance(0);
            echo.connection
                .set_turn_allowance(BECOMES + state_bytes - 1);
            echo.receive(&request);
            assert_waits_for_memory(&echo, packed.len(), BECOMES + state_bytes);
            // Whatever memory there is.
            echo.connection.set_turn_allowance(BECOMES + state_bytes);
            echo.connection.set_windows_shut(true);
            echo.receive(&[]);
            assert_waits_for_memory(&echo, packed.len(), BECOMES + state_bytes);
            if is_forced {
                echo.connection.force_turn();
            }
            echo.connection.set_windows_shut(false);
            echo.receive(&[]);
            let connection = &echo.connection;
            assert!(connection.has_turn() && connection.waits_to_unpack());
            assert!(!connection.waits_for_turn() && !connection.is_next_compressed());
            assert_eq!(connection.next_turn_bytes(), 0);
            assert_eq!(
                connection.held_bytes(),
                packed.len() + BECOMES + state_bytes
            );
            let left_bytes = if is_forced { BECOMES + state_bytes } else { 0 };
            assert_eq!(connection.turn_allowance, left_bytes);
            for steps in 1..=3 {
                assert!(echo.open.is_empty() && echo.connection.waits_to_unpack());
                echo.connection.set_unpack_allowance(STEP);
                echo.receive(&[]);
                assert_eq!(echo.connection.unpack_allowance(), 0, "{steps} steps");
            }
            assert!(echo.open[0].1 == message && !echo.connection.has_turn());
            assert!(echo.connection.message_was_compressed());
            assert_eq!(echo.connection.held_bytes(), 0);
        }
    }
}

/// Small, and becomes nothing; each of its blocks counts.
#[test]
fn a_message_of_empty_blocks_is_decompressed_in_steps() {
    const BLOCKS: usize = 400;
    let steps = BLOCKS * limits::DEFLATE_BLOCK_WORK_BYTES / limits::UNPACK_STEP_BYTES;
    assert!(steps > 5);
    for blocks in [BLOCKS, 20, BLOCKS] {
        let packed = testkit::gzip_of_empty_blocks(blocks);
        let mut echo = Echo::new(FramedProtocol::BaiduStd);
        echo.echoes = false;
        echo.connection.set_unpack_allowance(0);
        echo.receive(&frame_of(&format!("{META} 1802 2001"), &packed));
        if blocks == BLOCKS {
            for step in 0..=steps {
                assert!(
                    echo.open.is_empty() && echo.connection.waits_to_unpack(),
                    "{step}"
                );
                echo.connection
                    .set_unpack_allowance(limits::UNPACK_STEP_BYTES);
                echo.receive(&[]);
            }
        } else {
            let work_bytes = blocks * limits::DEFLATE_BLOCK_WORK_BYTES;
            assert_eq!(echo.connection.unpacked_bytes(), work_bytes);
        }
        assert_eq!(echo.open.len(), 1);
        assert!(echo.open[0].1.is_empty() && !echo.connection.has_turn());
        assert_eq!(echo.connection.held_bytes(), 0);
    }
}

fn assert_waits_for_memory(echo: &Echo, held_bytes: usize, lacking_bytes: usize) {
    let connection = &echo.connection;
    assert!(connection.waits_for_turn() && connection.is_next_compressed());
    assert!(!connection.has_turn() && !connection.waits_to_unpack());
    let bytes = (connection.held_bytes(), connection.next_turn_bytes());
    assert_eq!(bytes, (held_bytes, lacking_bytes));
}

#[test]
fn a_large_body_has_no_turn_while_windows_are_shut() {
    const BYTES: usize = 100_000;
    let request = frame_of(&format!("{META} 2001"), &[0x78; BYTES]);
    let mut echo = Echo::new(FramedProtocol::BaiduStd);
    for _ in 0..2 {
        assert!(!echo.connection.windows_are_shut());
        echo.connection.set_windows_shut(true);
        assert!(echo.connection.windows_are_shut());
        echo.receive(&request[..50_000]);
        assert!(echo.connection.waits_for_turn() && !echo.connection.is_next_compressed());
        assert_eq!(echo.connection.next_turn_bytes(), BYTES);
        echo.connection.set_windows_shut(false);
        echo.receive(&request[50_000..]);
        assert!(echo.take_all().ends_with(&request[request.len() - BYTES..]));
    }
}

#[test]
fn what_is_small_or_becomes_little_needs_no_turn() {
    const BYTES: usize = limits::UNPACKED_AT_ONCE_BYTES;
    let zipped = |bytes: usize| {
        let mut packed = Vec::new();
        compression::gzip(&vec![b'a'; bytes], &mut packed);
        frame_of(&format!("{META} 1802 2001"), &packed)
    };
    let plain = frame(&format!("{META} 2001"), HELLO);
    for (request, bytes) in [
        (plain, Some(HELLO_BYTES)),
        (zipped(BYTES), Some(BYTES)),
        (zipped(BYTES + 1), None),
    ] {
        let mut echo = Echo::new(FramedProtocol::BaiduStd);
        echo.echoes = false;
        echo.connection.set_turn_allowance(0);
        echo.connection.set_unpack_allowance(0);
        echo.receive(&request);
        let found = echo.open.first().map(|(_, message)| message.len());
        assert_eq!(found, bytes);
        assert_eq!(echo.connection.waits_for_turn(), bytes.is_none());
    }
}

#[test]
fn a_request_may_be_an_attachment_alone() {
    for attachment in ["", "61", "666f6f"] {
        let size = format!("280{}", attachment.len() / 2);
        let request = frame(&format!("{META} 2001 {size}"), attachment);
        let header = match attachment {
            "" => "12020800 1800 2001 500058006200".to_owned(),
            _ => format!("12020800 1800 2001 {size} 500058006200"),
        };
        let expected = frame(&header, attachment);
        assert_eq!(Echo::to(FramedProtocol::BaiduStd, &request), expected);
    }
}

#[test]
fn a_frame_may_be_as_large_as_the_limits_say_and_no_larger() {
    for protocol in [FramedProtocol::BaiduStd, FramedProtocol::Srpc] {
        let (meta, body) = (limits::FRAMED_META_BYTES, limits::FRAMED_BODY_BYTES);
        for (meta_bytes, body_bytes, max_message_bytes, is_open) in [
            (meta, body, 20, true),
            (meta + 1, 0, 20, false),
            (0, body + 1, 20, false),
            (0, body + 1, body + 1, true),
            (0, body + 2, body + 1, false),
        ] {
            let mut echo = Echo::new(protocol);
            echo.connection.config.max_message_bytes = max_message_bytes;
            let header = crate::framed::FramedHeader {
                meta_bytes,
                body_bytes,
            };
            let bytes = crate::framed::tests::header_of(protocol, header);
            echo.receive(&bytes);
            let found = echo.connection.close_reason().is_none();
            assert_eq!(found, is_open, "{protocol:?}, {meta_bytes}, {body_bytes}");
        }
    }
}

#[test]
fn a_64th_of_what_is_left_is_progress_and_less_is_not() {
    for (left_bytes, progress) in [(64, 1), (65, 2), (128, 2), (6_400, 100), (6_401, 101)] {
        assert!(is_progress(progress, left_bytes));
        assert!(!is_progress(progress - 1, left_bytes));
    }
}
