//! Bodies that come in parts: their checksums, and what compressed ones cost.

use super::*;
use crate::framed::checksum;
use crate::grpc::compression;

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
                let mut echo = Echo::new(Protocol::BaiduStd);
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
            Protocol::BaiduStd,
            frame_of(&format!("{META} 1802 2001"), &packed),
            packed.len(),
        ),
        (
            Protocol::BaiduStd,
            frame_of(&format!("{META} 1802 2001 28808002"), &with_attachment),
            with_attachment.len(),
        ),
        (
            Protocol::Srpc,
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
