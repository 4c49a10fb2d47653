//! Lists of blobs, and of uploads that are not complete.

use std::sync::Arc;

use store::blob::{Owner, UploadError, UploadPeer, limits};

use super::*;
use crate::fake::Fake;
use crate::limits::SCAN_PAGE_ROWS;

const LIST: ListRequest<'static> = ListRequest {
    database: "",
    prefix: "",
    start_after: "",
    limit: 0,
};

/// The names of each page. All pages but the last say that more follow.
#[track_caller]
fn pages(sent: &[Sent]) -> Vec<Vec<String>> {
    let (end, pages) = sent.split_last().expect("the call has ended");
    assert!(matches!(end, Sent::Status(status) if status.code() == Code::Ok));
    let names = |(index, page): (usize, &Sent)| {
        let Sent::Message(page) = page else {
            panic!("no page: {page:?}");
        };
        let mut names = Vec::new();
        let page = ListResponse::decode(page).expect("it is a message");
        for blob in &page.blobs {
            names.push(blob.expect("it is a message").name.to_owned());
        }
        assert_eq!(page.last, index + 1 == pages.len());
        names
    };
    pages.iter().enumerate().map(names).collect()
}

fn list(request: ListRequest<'_>, bench: &mut Bench) -> Vec<Sent> {
    bench.call(Method::BlobList, &encoded(|out| request.encode(out)))
}

#[track_caller]
fn names(request: ListRequest<'_>, bench: &mut Bench) -> Vec<String> {
    pages(&list(request, bench)).concat()
}

#[test]
fn a_list_has_the_names_of_its_prefix_in_order() {
    let mut bench = Bench::new();
    assert_eq!(pages(&list(LIST, &mut bench)), [[""; 0]]);
    for name in ["b/2", "a", "c", "b/1"] {
        bench.put(name, name.as_bytes());
    }
    assert_eq!(names(LIST, &mut bench), ["a", "b/1", "b/2", "c"]);
    for (prefix, start_after, expected) in [
        ("b/", "", &["b/1", "b/2"][..]),
        ("b/", "b/1", &["b/2"]),
        ("b/", "b/2", &[]),
        ("", "a", &["b/1", "b/2", "c"]),
        ("", "aa", &["b/1", "b/2", "c"]),
        ("d", "", &[]),
    ] {
        let request = ListRequest {
            prefix,
            start_after,
            ..LIST
        };
        assert_eq!(names(request, &mut bench), expected);
    }
    let outside = ListRequest {
        prefix: "b/",
        start_after: "c",
        ..LIST
    };
    let sent = list(outside, &mut bench);
    let words = refused(&sent, Code::InvalidArgument);
    assert!(words.contains("start_after"), "{words}");
}

#[test]
fn a_list_tells_what_is_known_of_each_blob_of_its_database() {
    let mut bench = Bench::new();
    bench.put("a", b"content");
    bench.create_database("other");
    let other = ListRequest {
        database: "other",
        ..LIST
    };
    assert_eq!(pages(&list(other, &mut bench)), [[""; 0]]);
    let path = "/blob/b?database=other";
    bench.request(Method::HttpBlobPut, path, &[], b"more content");
    assert_eq!(names(LIST, &mut bench), ["a"]);
    let sent = list(other, &mut bench);
    let [Sent::Message(page), _] = &sent[..] else {
        panic!("no page: {sent:?}");
    };
    let page = ListResponse::decode(page).expect("it is a message");
    for blob in &page.blobs {
        let blob = blob.expect("it is a message");
        assert_eq!((blob.name, blob.size_bytes), ("b", 12));
        assert_eq!(blob.crc32c, store::blob::crc32c(b"more content"));
        assert!(blob.version > 0);
    }
    assert!(page.last);
}

#[test]
fn a_list_ends_at_its_limit_within_a_page_and_between_pages() {
    let mut bench = Bench::new();
    let rows = u64::from(SCAN_PAGE_ROWS);
    let count = 2 * rows + 1;
    for number in 0..count {
        bench.put(&format!("{number:04}"), b"");
    }
    for limit in [
        0,
        1,
        rows - 1,
        rows,
        rows + 1,
        2 * rows,
        count,
        count + 1,
        u64::MAX,
    ] {
        let request = ListRequest { limit, ..LIST };
        let pages = pages(&list(request, &mut bench));
        let expected = if limit == 0 { count } else { limit.min(count) };
        assert_eq!(pages.concat().len() as u64, expected);
        assert!(pages.concat().is_sorted());
        assert_eq!(pages[0].len() as u64, expected.min(rows), "{limit}");
        let at_least = expected.div_ceil(rows);
        // A page that is full does not know that nothing follows.
        assert!((at_least..=at_least + 1).contains(&(pages.len() as u64)));
    }
    // It goes on behind what it was told, also from one page to the next.
    let request = ListRequest {
        start_after: "0009",
        ..LIST
    };
    assert_eq!(names(request, &mut bench).len() as u64, count - 10);
}

#[test]
fn an_entry_that_makes_no_sense_is_passed_over() {
    let mut bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.put(name, b"");
    }
    spoil("b", &mut bench);
    assert_eq!(names(LIST, &mut bench), ["a", "c"]);
    // It does not count for the limit.
    let request = ListRequest { limit: 2, ..LIST };
    assert_eq!(names(request, &mut bench), ["a", "c"]);
}

#[test]
fn a_page_is_made_only_when_it_may_be_sent() {
    let mut bench = Bench::new();
    for number in 0..3 * SCAN_PAGE_ROWS {
        bench.put(&format!("{number:04}"), b"");
    }
    let mut fake = Fake::new(Method::BlobList, &bench.shared);
    fake.actions.sends_left = 0;
    fake.message(b"", true, &bench.shared);
    let mut sent = Vec::new();
    for _ in 0..2 {
        // It was asked for before anybody knew that it may not be sent: it is not made.
        bench.work(&mut fake);
        assert_eq!(fake.take_sent(), []);
        fake.actions.sends_left = 1;
        fake.writable(&bench.shared);
        // Asked again before it is there, it asks for nothing more.
        fake.writable(&bench.shared);
        bench.read(&mut fake);
        assert!(fake.actions.wanted_read.is_none(), "no room for another");
        sent.append(&mut fake.take_sent());
        // Other calls of the connection have used up the room meanwhile.
        fake.actions.sends_left = 1;
        fake.writable(&bench.shared);
        fake.actions.sends_left = 0;
    }
    assert_eq!(sent.len(), 2);
    fake.actions.sends_left = usize::MAX;
    bench.work(&mut fake);
    sent.append(&mut fake.take_sent());
    assert_eq!(pages(&sent).concat().len() as u32, 3 * SCAN_PAGE_ROWS);
}

/// From where uploads come.
struct From(UploadPeer);

impl Owner for From {
    fn lost(&self, _why: UploadError) {}

    fn peer(&self) -> UploadPeer {
        self.0
    }
}

/// Begins an upload and stores this much of it.
fn begin(
    name: &str,
    upload_id: &[u8],
    content: &[u8],
    peer: UploadPeer,
    bench: &mut Bench,
) -> Fake {
    let owner: Arc<dyn Owner> = Arc::new(From(peer));
    let mut fake = Fake::new(Method::BlobUpload, &bench.shared);
    for request in [
        UploadPart::Begin(UploadBegin {
            name,
            upload_id,
            ..UploadBegin::default()
        }),
        UploadPart::Chunk(UploadChunk {
            data: content,
            crc32c: None,
        }),
    ] {
        fake.message(&encoded(|out| request.encode(out)), false, &bench.shared);
        bench.work_for(&mut fake, &owner);
    }
    fake
}

fn list_uploads(database: &str, bench: &mut Bench) -> Vec<Sent> {
    let request = encoded(|out| ListUploadsRequest { database }.encode(out));
    bench.call(Method::BlobListUploads, &request)
}

fn discard(name: &str, upload_id: &[u8], bench: &mut Bench) -> u64 {
    let request = DiscardUploadsRequest {
        database: "",
        name,
        upload_id,
    };
    let request = encoded(|out| request.encode(out));
    let sent = bench.call(Method::BlobDiscardUploads, &request);
    let answer = DiscardUploadsResponse::decode(response(&sent));
    answer.expect("it is a message").discarded
}

#[test]
fn uploads_are_listed_with_their_peers_and_discarded_by_name_and_id() {
    let mut bench = Bench::new();
    bench.create_database("other");
    let address = UploadPeer::with_address([192, 0, 2, 7].into());
    let cases = [
        ("a", &b"1"[..], UploadPeer::Unknown, ""),
        ("a", b"2", UploadPeer::Local, "unix"),
        ("b", b"1", address, "192.0.2.7"),
    ];
    for _ in 0..2 {
        let mut open = Vec::new();
        for (count, (name, upload_id, peer, _)) in (1..).zip(cases) {
            let content = b"content";
            open.push(begin(name, upload_id, &content[..count], peer, &mut bench));
        }
        // An upload that can be resumed stays when its stream goes.
        open.remove(0);
        let sent = list_uploads("", &mut bench);
        let mut index = 0;
        let answer = ListUploadsResponse::decode(response(&sent)).expect("it is a message");
        for upload in &answer.uploads {
            let (name, upload_id, _, peer) = cases[index];
            let expected = UploadDescription {
                name,
                upload_id,
                stored_bytes: index as u64 + 1,
                touched_at_ms: 1_700_000_000_000,
                open: index > 0,
                peer,
            };
            assert_eq!(upload, Ok(expected));
            index += 1;
        }
        assert_eq!(index, cases.len());

        let sent = list_uploads("other", &mut bench);
        assert_eq!(response(&sent), []);

        assert_eq!(discard("b", b"2", &mut bench), 0);
        for (name, upload_id, ..) in cases {
            assert_eq!(discard(name, upload_id, &mut bench), 1);
            assert_eq!(discard(name, upload_id, &mut bench), 0);
        }
        let sent = list_uploads("", &mut bench);
        assert_eq!(response(&sent), []);
        drop(open);
        bench.expect_nothing();
    }
    let long = [b'x'; limits::UPLOAD_ID_BYTES + 1];
    assert_eq!(discard("a", &long[1..], &mut bench), 0);
    let request = DiscardUploadsRequest {
        database: "",
        name: "a",
        upload_id: &long,
    };
    let request = encoded(|out| request.encode(out));
    let sent = bench.call(Method::BlobDiscardUploads, &request);
    let words = refused(&sent, Code::InvalidArgument);
    assert!(words.contains("upload_id has 65 bytes"), "{words}");
}
