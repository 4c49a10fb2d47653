//! `/blob/NAME` over plain HTTP/2, with blobs on a simulated disk.

use store::Durability;
use store::blob::{crc32c, limits};
use wal::disk::{Fault, Step};

use crate::compat::gupload_tests::bench::{Bench, config};
use crate::fake::{Fake, Headers, Sent};
use crate::method::Method::{self, HttpBlobDelete, HttpBlobGet, HttpBlobHead, HttpBlobPut};
use crate::status::Code;

type Header = (&'static str, &'static str);

/// An answer: its status, the headers that `names` names, and its body.
struct BlobResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl BlobResponse {
    fn of(sent: &[Sent]) -> BlobResponse {
        let (status, headers, body) = match sent {
            [
                Sent::Plain {
                    status,
                    headers,
                    body,
                },
            ] => (*status, headers.clone(), body.clone()),
            [
                Sent::PlainHead { status, headers },
                pieces @ ..,
                Sent::PlainEnd,
            ] => {
                let piece = |piece: &Sent| match piece {
                    Sent::PlainBody(bytes) => bytes.clone(),
                    other => panic!("no piece: {other:?}"),
                };
                let body: Vec<u8> = pieces.iter().flat_map(piece).collect();
                (*status, headers.clone(), body)
            }
            other => panic!("no answer: {other:?}"),
        };
        BlobResponse {
            status,
            headers,
            body,
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name)?;
        Some(&found.1)
    }

    /// The version in the etag.
    fn version(&self) -> u64 {
        let etag = self.header("etag").expect("it names its version");
        let version = etag.trim_matches('"').parse().expect("it is a number");
        assert_eq!(etag, format!("\"{version}\""));
        version
    }

    fn words(&self) -> &str {
        let content_type = self.header("content-type");
        assert_eq!(content_type, Some("text/plain; charset=utf-8"));
        std::str::from_utf8(&self.body).expect("for people")
    }
}

#[track_caller]
fn refused(sent: &[Sent], code: Code) -> &str {
    let [Sent::Status(status)] = sent else {
        panic!("not refused: {sent:?}");
    };
    assert_eq!(status.code(), code, "{}", status.message());
    status.message()
}

fn ask(method: Method, headers: &[(&str, &str)], bench: &mut Bench) -> BlobResponse {
    BlobResponse::of(&bench.request(method, "/blob/a", headers, b""))
}

fn put(headers: &[(&str, &str)], content: &[u8], bench: &mut Bench) -> BlobResponse {
    BlobResponse::of(&bench.request(HttpBlobPut, "/blob/a", headers, content))
}

#[test]
fn what_is_put_is_got_as_it_was_sent() {
    let mut bench = Bench::new();
    for (content, content_type, got_type) in [
        (&b"content"[..], Some("text/html"), "text/html"),
        (b"", None, "application/octet-stream"),
    ] {
        let length = content.len().to_string();
        let mut headers = vec![
            ("content-length", &*length),
            ("content-encoding", "identity"),
        ];
        headers.extend(content_type.map(|text| ("content-type", text)));
        let stored = put(&headers, content, &mut bench);
        assert_eq!(stored.status, 201);
        let version = stored.version();
        let crc32c = crc32c(content);
        assert_eq!(
            stored.words(),
            format!("stored: {length} bytes, CRC32C {crc32c:08x}, version {version}\n")
        );
        for method in [HttpBlobGet, HttpBlobHead] {
            let got = ask(method, &[], &mut bench);
            assert_eq!((got.status, got.version()), (200, version));
            assert_eq!(got.header("content-type"), Some(got_type));
            assert_eq!(got.header("content-length"), Some(&*length));
            assert_eq!(got.header("accept-ranges"), Some("bytes"));
            assert_eq!(got.header("content-range"), None);
            match method {
                HttpBlobGet => assert_eq!(got.body, content),
                _ => assert_eq!(got.body, b""),
            }
        }
    }
}

#[test]
fn a_part_of_a_blob_is_named_as_such() {
    let mut bench = Bench::new();
    put(&[], b"0123456789", &mut bench);
    for (range, body, named) in [
        ("bytes=2-4", &b"234"[..], "bytes 2-4/10"),
        ("bytes=9-", b"9", "bytes 9-9/10"),
        ("bytes=-10", b"0123456789", "bytes 0-9/10"),
    ] {
        for method in [HttpBlobGet, HttpBlobHead] {
            let got = ask(method, &[("range", range)], &mut bench);
            assert_eq!(got.status, 206);
            assert_eq!(got.header("content-range"), Some(named));
            let length = body.len().to_string();
            assert_eq!(got.header("content-length"), Some(&*length));
            if method == HttpBlobGet {
                assert_eq!(got.body, body);
            }
        }
    }
    let got = ask(HttpBlobGet, &[("range", "bytes=10-")], &mut bench);
    assert_eq!(got.status, 416);
    assert_eq!(got.header("content-range"), Some("bytes */10"));
    assert_eq!(got.words(), "the blob has 10 bytes\n");
}

#[test]
fn conditions_of_reads_are_kept() {
    let mut bench = Bench::new();
    let etag = put(&[], b"content", &mut bench);
    let etag = etag.header("etag").expect("it is told");
    let got = ask(HttpBlobGet, &[("if-none-match", etag)], &mut bench);
    assert_eq!((got.status, got.header("etag")), (304, Some(etag)));
    assert_eq!(got.body, b"");
    let got = ask(HttpBlobGet, &[("if-match", "\"0\"")], &mut bench);
    assert_eq!((got.status, got.header("etag")), (412, Some(etag)));
    assert!(got.words().contains("the blob has version"));
    let got = ask(HttpBlobGet, &[("if-match", etag)], &mut bench);
    assert_eq!((got.status, &*got.body), (200, &b"content"[..]));
}

#[test]
fn conditions_of_changes_are_kept() {
    let mut bench = Bench::new();
    const NEW: Header = ("if-none-match", "*");
    for _ in 0..2 {
        let first = put(&[NEW], b"first", &mut bench);
        let etag = first.header("etag").expect("it is told").to_owned();
        assert_eq!(first.status, 201);
        let unmet = put(&[NEW], b"second", &mut bench);
        assert_eq!((unmet.status, unmet.header("etag")), (412, Some(&*etag)));
        let version = first.version();
        let words = format!("the blob has version {version}: nothing was stored\n");
        assert_eq!(unmet.words(), words);
        assert_eq!(bench.kept()[0].1, b"first");
        let second = put(&[("if-match", &etag)], b"second", &mut bench);
        assert_eq!(second.status, 201);
        assert_eq!(bench.kept()[0].1, b"second");

        let unmet = ask(HttpBlobDelete, &[("if-match", &etag)], &mut bench);
        assert_eq!(unmet.status, 412);
        let version = second.version();
        assert_eq!(unmet.words(), format!("the blob has version {version}\n"));
        let etag = second.header("etag").expect("it is told");
        let deleted = ask(HttpBlobDelete, &[("if-match", etag)], &mut bench);
        assert_eq!((deleted.status, deleted.headers.len()), (204, 0));
        assert_eq!(deleted.body, b"");
        bench.expect_nothing();
        for headers in [&[][..], &[("if-match", etag)]] {
            let sent = bench.request(HttpBlobDelete, "/blob/a", headers, b"");
            refused(&sent, Code::NotFound);
        }
        put(&[], b"third", &mut bench);
        assert_eq!(ask(HttpBlobDelete, &[], &mut bench).status, 204);
        bench.expect_nothing();
    }
}

#[test]
fn requests_are_checked_before_anything_is_done() {
    let mut bench = Bench::new();
    let all = [HttpBlobPut, HttpBlobGet, HttpBlobHead, HttpBlobDelete];
    for method in all {
        for (path, code, word) in [
            ("/blob/", Code::InvalidArgument, "NAME of the path"),
            ("/blob/a/..", Code::InvalidArgument, "NAME of the path"),
            ("/blob/%", Code::InvalidArgument, "%XX"),
            ("/blob/a?database=x", Code::NotFound, "\"x\""),
        ] {
            let sent = bench.request(method, path, &[], b"content");
            let words = refused(&sent, code);
            assert!(words.contains(word), "{path}: {words}");
        }
        let sent = Bench::volatile().request(method, "/blob/a", &[], b"");
        refused(&sent, Code::FailedPrecondition);
    }
    for method in [HttpBlobGet, HttpBlobHead] {
        let sent = bench.request(method, "/blob/a", &[], b"");
        refused(&sent, Code::NotFound);
    }
    let long = "x".repeat(limits::CONTENT_TYPE_BYTES + 1);
    for (name, value) in [
        ("content-type", &*long),
        ("content-encoding", "gzip"),
        ("content-range", "bytes 0-1/7"),
        ("if-none-match", "\"7\""),
    ] {
        let headers = [(name, value)];
        let sent = bench.request(HttpBlobPut, "/blob/a", &headers, b"content");
        let words = refused(&sent, Code::InvalidArgument);
        assert!(words.contains(name), "{words}");
    }
    let headers = [("if-match", "*")];
    let sent = bench.request(HttpBlobDelete, "/blob/a", &headers, b"");
    refused(&sent, Code::InvalidArgument);
    bench.expect_nothing();
    let longest = [("content-type", &long[1..])];
    assert_eq!(put(&longest, b"content", &mut bench).status, 201);
}

#[test]
fn a_blob_is_stored_in_the_database_of_the_query() {
    let mut bench = Bench::new();
    bench.create_database("other");
    let path = "/blob/a?database=other";
    let sent = bench.request(HttpBlobPut, path, &[], b"other");
    assert_eq!(BlobResponse::of(&sent).status, 201);
    bench.put("a", b"default");
    let got = BlobResponse::of(&bench.request(HttpBlobGet, path, &[], b""));
    assert_eq!(got.body, b"other");
    let got = ask(HttpBlobGet, &[], &mut bench);
    assert_eq!(got.body, b"default");
    BlobResponse::of(&bench.request(HttpBlobDelete, path, &[], b""));
    assert_eq!(bench.kept().len(), 1);
}

/// A request whose content comes in pieces, and one that ends without any.
#[test]
fn content_comes_in_pieces() {
    let mut bench = Bench::new();
    for (pieces, whole) in [
        (&[&b"one "[..], b"", b"two"][..], &b"one two"[..]),
        (&[], b""),
    ] {
        let headers = Headers(vec![(b":path".into(), b"/blob/a".into())]);
        let mut fake = Fake::with_metadata(HttpBlobPut, &headers, &bench.shared);
        for piece in pieces {
            fake.message(piece, false, &bench.shared);
            bench.work(&mut fake);
        }
        fake.half_closed(&bench.shared);
        bench.work(&mut fake);
        assert_eq!(BlobResponse::of(&fake.take_sent()).status, 201);
        assert_eq!(bench.kept(), [("a".to_owned(), whole.to_vec())]);
    }
    // A removal has none; it happens when the request is complete, and once.
    let headers = Headers(vec![(b":path".into(), b"/blob/a".into())]);
    let mut fake = Fake::with_metadata(HttpBlobDelete, &headers, &bench.shared);
    fake.message(b"what", false, &bench.shared);
    bench.work(&mut fake);
    assert_eq!(bench.kept().len(), 1);
    fake.half_closed(&bench.shared);
    bench.work(&mut fake);
    assert_eq!(BlobResponse::of(&fake.take_sent()).status, 204);
    bench.expect_nothing();
    // A content that does not have the length that it said leaves nothing.
    for length in ["6", "8"] {
        let headers = [("content-length", length)];
        let sent = bench.request(HttpBlobPut, "/blob/a", &headers, b"content");
        refused(&sent, Code::InvalidArgument);
        bench.expect_nothing();
    }
}

#[test]
fn content_goes_out_as_its_peer_can_take_it() {
    let mut bench = Bench::new();
    let whole: Vec<u8> = (0..600_000).map(|at| (at / 251 + at) as u8).collect();
    bench.put("a", &whole);
    let headers = Headers(vec![(b":path".into(), b"/blob/a".into())]);
    let mut fake = Fake::with_metadata(HttpBlobGet, &headers, &bench.shared);
    fake.actions.room = 0;
    fake.half_closed(&bench.shared);
    // Before its blob is found there is nothing to go on with.
    fake.writable(&bench.shared);
    bench.work(&mut fake);
    let mut sent = fake.take_sent();
    assert!(matches!(sent[..], [Sent::PlainHead { status: 200, .. }]));
    sent.append(&mut bench.sent_as_room_comes(&mut fake));
    assert!(BlobResponse::of(&sent).body == whole);
}

#[test]
fn a_disk_that_fails_ends_the_request() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        bench.disk.plan_next(Step::Write, 0, Fault::Full);
        let sent = bench.request(HttpBlobPut, "/blob/b", &[], b"content");
        refused(&sent, Code::ResourceExhausted);
        bench.expect_nothing();
    }
    bench.put("a", b"content");
    for _ in 0..2 {
        bench.disk.plan_next(Step::Read, 0, Fault::Error);
        let sent = bench.request(HttpBlobGet, "/blob/a", &[], b"");
        let [Sent::PlainHead { .. }, Sent::Status(status)] = &sent[..] else {
            panic!("it was not cut off: {sent:?}");
        };
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(ask(HttpBlobGet, &[], &mut bench).body, b"content");
    }
    let mut config = config();
    config.default_database.durability = Durability::Volatile;
    let sent = Bench::with(config).request(HttpBlobPut, "/blob/a", &[], b"");
    refused(&sent, Code::FailedPrecondition);
}
