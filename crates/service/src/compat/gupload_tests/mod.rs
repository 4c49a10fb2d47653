//! Uploads of gupload, kept on a simulated disk or thrown away.

pub(crate) mod bench;

use store::Durability;
use store::blob::limits;
use testkit::Random;
use wal::disk::{Fault, Step};

use crate::fake::{Fake, Headers, Sent};
use crate::http;
use crate::limits::{UPLOAD_GATHERED_BYTES, UPLOAD_WINDOW_BYTES};
use crate::method::Method;
use crate::settings::names::NameGenerator;
use crate::status::Code;
use bench::{Bench, config};
use protobuf::{Reader, writer};

use Method::{GuploadUpload, HttpGupload};

fn chunk(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    writer::bytes(&mut out, 1, content);
    out
}

/// The text of an answer with code Ok.
fn answered(sent: &[Sent]) -> String {
    let [Sent::Response(bytes)] = sent else {
        panic!("no answer: {sent:?}");
    };
    let (mut message, mut code) = (Vec::new(), 0);
    let read = Reader::new(bytes).for_each(|number, field| {
        match number {
            1 => message = field.bytes()?.to_vec(),
            2 => code = field.varint()?,
            _ => panic!("field {number}"),
        }
        Ok(())
    });
    read.expect("the answer is sound");
    assert_eq!(code, 1);
    String::from_utf8(message).expect("for people")
}

/// The name in a location.
fn located(sent: &[Sent]) -> &str {
    let [
        Sent::Plain {
            status: 200,
            headers,
            body,
        },
    ] = sent
    else {
        panic!("no answer: {sent:?}");
    };
    assert_eq!(body, b"");
    let [(name, path)] = &headers[..] else {
        panic!("{headers:?}");
    };
    assert_eq!(name, "location");
    path.strip_prefix("/blob/").expect(path)
}

fn refused(sent: &[Sent], code: Code) -> &str {
    let [Sent::Status(status)] = sent else {
        panic!("not refused: {sent:?}");
    };
    assert_eq!(status.code(), code, "{}", status.message());
    status.message()
}

#[test]
fn content_is_kept_under_the_name_that_is_told() {
    let mut bench = Bench::new();
    let large = vec![7; limits::CHUNK_BYTES];
    let cases: [(&[&[u8]], Vec<u8>); 5] = [
        (&[], vec![]),
        (&[b""], vec![]),
        (&[b"one"], b"one".to_vec()),
        (&[b"one ", b"", b"two"], b"one two".to_vec()),
        (&[&large, b"end"], [&large[..], b"end"].concat()),
    ];
    let mut expected = Vec::new();
    for (contents, whole) in cases {
        let chunks: Vec<Vec<u8>> = contents.iter().map(|content| chunk(content)).collect();
        let chunks: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
        let sent = bench.upload(GuploadUpload, &chunks);
        let text = answered(&sent);
        let (_, name) = text.split_once("blob ").expect(&text);
        expected.push((name.to_owned(), whole.clone()));
        // What is a chunk over gRPC is a piece of the body here.
        let sent = bench.upload(HttpGupload, contents);
        expected.push((located(&sent).to_owned(), whole));
    }
    assert!(expected[0].0.starts_with("gupload/20231114T221320.000Z-"));
    let kept = bench.kept();
    assert!(kept == expected, "names sort in the order of the uploads");
}

/// However the content is cut, and whatever has come when the disk has done its part.
#[test]
fn content_is_whole_whatever_the_pieces_and_the_disk_do() {
    for seed in 0..100 {
        let mut bench = Bench::new();
        let mut random = Random::new(seed);
        let method = random.pick(&[GuploadUpload, HttpGupload]);
        let mut fake = Fake::new(method, &bench.shared);
        let (mut whole, pieces) = (Vec::new(), 1 + random.below(30));
        for number in 0..pieces {
            let bytes = random.pick(&[1, 100, 70_000]);
            let bytes = random.below(bytes);
            let piece: Vec<u8> = (0..bytes).map(|_| random.number() as u8).collect();
            if fake.actions.is_held || random.once_in(3) {
                bench.work(&mut fake);
            }
            let is_last = number + 1 == pieces;
            let message = match method {
                GuploadUpload => chunk(&piece),
                _ => piece.clone(),
            };
            let ends_with_it = is_last && random.once_in(2);
            fake.message(&message, ends_with_it, &bench.shared);
            whole.extend(piece);
            if is_last && !ends_with_it {
                bench.work(&mut fake);
                fake.half_closed(&bench.shared);
            }
        }
        bench.work(&mut fake);
        assert_eq!(fake.take_sent().len(), 1, "seed {seed}");
        let kept = bench.kept().pop().expect("it is there");
        assert!(kept.1 == whole, "seed {seed}: {} bytes", whole.len());
    }
}

#[test]
fn unknown_fields_are_passed_over_and_the_last_content_counts() {
    let mut bench = Bench::new();
    let mut message = chunk(b"not this");
    message.extend([0x10, 1]);
    message.extend(chunk(b"this"));
    answered(&bench.upload(GuploadUpload, &[&message]));
    assert_eq!(bench.kept()[0].1, b"this");
}

#[test]
fn what_is_no_chunk_or_too_large_is_refused_and_leaves_nothing() {
    let mut bench = Bench::new();
    let large = chunk(&vec![0; limits::CHUNK_BYTES + 1]);
    for (message, code, word) in [
        (&b"\x0a\x05abc"[..], Code::InvalidArgument, "Chunk"),
        (b"\x08\x01", Code::InvalidArgument, "Chunk"),
        (&large, Code::ResourceExhausted, "4194304"),
    ] {
        for before in [&[][..], &[&chunk(b"before")[..]]] {
            for discard in [false, true] {
                bench.shared.settings.gupload.discard = discard;
                let messages = [before, &[message]].concat();
                let sent = bench.upload(GuploadUpload, &messages);
                assert!(refused(&sent, code).contains(word));
                bench.expect_nothing();
            }
        }
    }
    // A plain request is not made of chunks.
    bench.shared.settings.gupload.discard = false;
    located(&bench.upload(HttpGupload, &[b"\x0a\x05abc"]));
}

#[test]
fn an_upload_that_ends_early_leaves_nothing() {
    for method in [GuploadUpload, HttpGupload] {
        let mut bench = Bench::new();
        // It goes away at once, while it is written, before its end is stored, and before it is
        // described.
        for steps in 0..4 {
            let mut fake = Fake::new(method, &bench.shared);
            if steps > 0 {
                bench.work(&mut fake);
                fake.message(&chunk(b"some"), false, &bench.shared);
            }
            if steps > 1 {
                bench.work(&mut fake);
            }
            if steps > 2 {
                fake.half_closed(&bench.shared);
            }
            drop(fake);
            bench.expect_nothing();
        }
    }
}

#[test]
fn what_is_discarded_touches_no_store() {
    for mut bench in [Bench::new(), Bench::volatile()] {
        bench.shared.settings.gupload.discard = true;
        for method in [GuploadUpload, HttpGupload] {
            let mut fake = Fake::new(method, &bench.shared);
            for _ in 0..100 {
                fake.message(&chunk(&[1; 1_000_000]), false, &bench.shared);
                assert!(!fake.actions.is_held, "there is nothing to wait for");
            }
            fake.half_closed(&bench.shared);
            assert!(fake.actions.work.is_none() && fake.actions.changes.is_empty());
            assert_eq!(
                fake.actions.window_bytes, None,
                "it may come as fast as it likes"
            );
            let sent = fake.take_sent();
            if method == GuploadUpload {
                assert_eq!(answered(&sent), "received, and thrown away");
            } else {
                let (status, headers, body) = (200, vec![], vec![]);
                assert_eq!(
                    sent,
                    [Sent::Plain {
                        status,
                        headers,
                        body
                    }]
                );
            }
        }
        if bench.shared.store.blobs().is_some() {
            bench.expect_nothing();
        }
    }
}

#[test]
fn who_only_looks_leaves_nothing() {
    let mut bench = Bench::new();
    for (method, is_kept) in [
        ("GET", false),
        ("HEAD", false),
        ("OPTIONS", false),
        ("TRACE", false),
        ("POST", true),
        ("PUT", true),
        ("PATCH", true),
        ("get", true),
    ] {
        let found = http::route(method.as_bytes(), b"/upload");
        assert_eq!(found, Some(HttpGupload), "any method is accepted");
        let headers = Headers(vec![(b":method".into(), method.into())]);
        let mut fake = Fake::with_metadata(HttpGupload, &headers, &bench.shared);
        fake.half_closed(&bench.shared);
        bench.work(&mut fake);
        let sent = fake.take_sent();
        assert!(matches!(sent[..], [Sent::Plain { status: 200, .. }]));
        match is_kept {
            false => bench.expect_nothing(),
            true => assert!(bench.kept().iter().any(|(name, _)| name == located(&sent))),
        }
    }
}

#[test]
fn paths() {
    for path in ["/upload", "/upload?", "/upload?a=/b"] {
        assert_eq!(http::route(b"POST", path.as_bytes()), Some(HttpGupload));
    }
    for path in [
        "/upload/",
        "/uploads",
        "/Upload",
        "upload",
        "/",
        "",
        "/a/upload",
    ] {
        assert_eq!(http::route(b"POST", path.as_bytes()), None, "{path}");
    }
}

#[test]
fn nowhere_to_keep_it() {
    let mut config = config();
    config.default_database.durability = Durability::Volatile;
    for mut bench in [Bench::volatile(), Bench::with(config)] {
        for method in [GuploadUpload, HttpGupload] {
            let sent = bench.upload(method, &[&chunk(b"content")]);
            let words = refused(&sent, Code::FailedPrecondition);
            assert!(words.contains("--discard-uploads"), "{words}");
        }
    }
}

#[test]
fn quota_full_disk_and_damage_leave_nothing() {
    for method in [GuploadUpload, HttpGupload] {
        let mut config = config();
        config.blobs.quota_bytes = 100_000;
        let mut bench = Bench::with(config);
        let large = chunk(&vec![0; 60_000]);
        let sent = bench.upload(method, &[&large, &large]);
        let words = refused(&sent, Code::ResourceExhausted);
        assert!(
            words.contains("100000") || words.contains("quota"),
            "{words}"
        );
        bench.expect_nothing();

        let length = Headers(vec![(b"content-length".into(), b"100001".into())]);
        let mut fake = Fake::with_metadata(HttpGupload, &length, &bench.shared);
        bench.work(&mut fake);
        refused(&fake.take_sent(), Code::ResourceExhausted);
        bench.expect_nothing();

        for (fault, code) in [
            (Fault::Full, Code::ResourceExhausted),
            (Fault::Error, Code::Internal),
        ] {
            let mut bench = Bench::new();
            bench.disk.plan_next(Step::Write, 1, fault);
            let sent = bench.upload(method, &[&large, &large]);
            refused(&sent, code);
            bench.expect_nothing();
        }
    }
}

#[test]
fn a_full_upload_is_held_until_there_is_room() {
    let mut bench = Bench::new();
    let mut fake = Fake::new(GuploadUpload, &bench.shared);
    assert_eq!(fake.actions.window_bytes, Some(UPLOAD_WINDOW_BYTES));
    fake.message(
        &chunk(&vec![1; UPLOAD_GATHERED_BYTES]),
        false,
        &bench.shared,
    );
    assert!(fake.actions.is_held, "nothing is written yet");
    bench.work(&mut fake);
    assert!(!fake.actions.is_held);
    fake.message(&chunk(b"end"), true, &bench.shared);
    bench.work(&mut fake);
    answered(&fake.take_sent());
    assert_eq!(bench.kept()[0].1.len(), UPLOAD_GATHERED_BYTES + 3);
}

#[test]
fn a_name_that_is_taken_is_not_taken_away() {
    let mut bench = Bench::new();
    for method in [GuploadUpload, HttpGupload] {
        let first = bench.upload(method, &[&chunk(b"first")]);
        assert_eq!(first.len(), 1);
        let before = bench.kept();
        // As if a start had the random number of another, in the same millisecond.
        bench.shared.settings.gupload.names = NameGenerator::default();
        let sent = bench.upload(method, &[&chunk(b"second")]);
        refused(&sent, Code::Aborted);
        assert_eq!(bench.kept(), before);
        bench.shared.settings.gupload.names = NameGenerator::new(1);
    }
}
