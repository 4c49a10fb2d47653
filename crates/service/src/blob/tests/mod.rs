//! `pelton.v1.Blob` over blobs on a simulated disk.

mod download;
mod list;
mod upload;

use store::{Condition, DatabaseId, Durability, Expiry, Mode, Operation};

use crate::compat::gupload_tests::bench::{Bench, config};
use crate::fake::{Fake, Sent};
use crate::method::Method;
use crate::status::Code;
use api::blob::*;

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = Vec::new();
    encode(&mut message);
    message
}

/// The only message of a call.
#[track_caller]
fn response(sent: &[Sent]) -> &[u8] {
    let [Sent::Response(bytes)] = sent else {
        panic!("no response: {sent:?}");
    };
    bytes
}

/// The words of a call that ended with `code` and no message.
#[track_caller]
fn refused(sent: &[Sent], code: Code) -> &str {
    let [Sent::Status(status)] = sent else {
        panic!("not refused: {sent:?}");
    };
    assert_eq!(status.code(), code, "{}", status.message());
    status.message()
}

fn stat(name: &str, upload_id: &[u8], bench: &mut Bench) -> Vec<u8> {
    let request = StatRequest {
        database: "",
        name,
        upload_id,
    };
    let sent = bench.call(Method::BlobStat, &encoded(|out| request.encode(out)));
    response(&sent).to_vec()
}

fn delete(name: &str, if_version: Option<u64>, bench: &mut Bench) -> Vec<Sent> {
    let request = DeleteBlobRequest {
        database: "",
        name,
        if_version,
        ..DeleteBlobRequest::default()
    };
    bench.call(Method::BlobDelete, &encoded(|out| request.encode(out)))
}

/// Writes what no version of the server writes where the description of a blob stands.
fn spoil(name: &str, bench: &mut Bench) {
    let key = store::blob::key(DatabaseId::DEFAULT, name);
    // A deletion of something else gets it to the committer.
    let request = encoded(|out| {
        DeleteBlobRequest {
            name: "nothing",
            ..DeleteBlobRequest::default()
        }
        .encode(out);
    });
    let mut fake = Fake::new(Method::BlobDelete, &bench.shared);
    fake.message(&request, true, &bench.shared);
    let changes = &mut fake.actions.changes;
    changes.clear();
    let mut commit = changes.begin(0, DatabaseId::BLOBS, Mode::Independent);
    let pushed = commit.push(&Operation::Put {
        key: &key,
        value: b"?",
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous: false,
    });
    assert_eq!(pushed, Ok(()));
    commit.submit();
    bench.work(&mut fake);
    response(&fake.take_sent());
}

#[test]
fn stat_tells_what_is_stored_and_what_is_not() {
    let mut bench = Bench::new();
    bench.put("a", b"content");
    let answer = stat("a", b"", &mut bench);
    let answer = StatResponse::decode(&answer).expect("it is a message");
    let blob = answer.blob.expect("it is there");
    assert_eq!((answer.found, answer.stored_bytes), (true, 0));
    assert_eq!((blob.name, blob.size_bytes), ("a", 7));
    assert_eq!(blob.crc32c, store::blob::crc32c(b"content"));
    assert!(blob.version > 0 && blob.created_at_ms > 0);

    assert_eq!(stat("b", b"", &mut bench), []);
    // An upload that nobody has begun, of a name that is there.
    assert_eq!(stat("a", b"id", &mut bench), []);
}

#[test]
fn what_is_deleted_is_gone_and_what_has_another_version_stays() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        bench.put("a", b"content");
        let answer = stat("a", b"", &mut bench);
        let answer = StatResponse::decode(&answer).expect("it is a message");
        let version = answer.blob.expect("it is there").version;
        for (if_version, deleted) in [
            (Some(version + 1), false),
            (Some(version - 1), false),
            (Some(version), true),
        ] {
            let sent = delete("a", if_version, &mut bench);
            let answer = DeleteBlobResponse::decode(response(&sent));
            assert_eq!(answer, Ok(DeleteBlobResponse { deleted, version }));
        }
        bench.expect_nothing();
        // What is not there cannot be deleted, with a condition or without one.
        for if_version in [None, Some(version)] {
            let sent = delete("a", if_version, &mut bench);
            assert_eq!(response(&sent), []);
        }
        bench.put("a", b"content");
        let sent = delete("a", None, &mut bench);
        let answer = DeleteBlobResponse::decode(response(&sent)).expect("it is a message");
        assert!(answer.deleted && answer.version > version);
    }
    let sent = delete("a", Some(0), &mut bench);
    let words = refused(&sent, Code::InvalidArgument);
    assert!(words.contains("if_version is 0"), "{words}");
}

#[test]
fn requests_are_checked_before_anything_is_done() {
    use Method as M;
    let mut bench = Bench::new();
    // All of them name the database in field 1, and all that have a name have it in field 2.
    for (method, name_is_missing) in [
        (M::BlobDownload, Some("field name")),
        (M::BlobStat, Some("field name")),
        (M::BlobDelete, Some("field name")),
        (M::BlobDiscardUploads, Some("field name")),
        (M::BlobList, None),
        (M::BlobListUploads, None),
    ] {
        let sent = bench.call(method, b"\x0a\x01x");
        let words = refused(&sent, Code::NotFound);
        assert!(words.contains("\"x\""), "{method:?}: {words}");
        let sent = bench.call(method, b"\x0a\x05x");
        refused(&sent, Code::InvalidArgument);
        if let Some(field) = name_is_missing {
            let sent = bench.call(method, b"");
            let words = refused(&sent, Code::InvalidArgument);
            assert!(words.contains(field), "{method:?}: {words}");
        }
        let mut fake = Fake::new(method, &bench.shared);
        fake.half_closed(&bench.shared);
        let status = fake.take_status().expect("there was no request");
        let words = status.message();
        assert!(words.contains(method.path()), "{words}");
        let mut volatile = Bench::volatile();
        let sent = volatile.call(method, b"\x12\x01a");
        refused(&sent, Code::FailedPrecondition);
    }
}

#[test]
fn a_second_request_ends_the_call_and_half_closing_does_not() {
    let mut bench = Bench::new();
    bench.put("a", b"content");
    let request = encoded(|out| {
        StatRequest {
            name: "a",
            ..StatRequest::default()
        }
        .encode(out);
    });
    let mut fake = Fake::new(Method::BlobStat, &bench.shared);
    fake.message(&request, false, &bench.shared);
    fake.half_closed(&bench.shared);
    bench.work(&mut fake);
    response(&fake.take_sent());

    let mut fake = Fake::new(Method::BlobStat, &bench.shared);
    fake.message(&request, false, &bench.shared);
    fake.message(&request, false, &bench.shared);
    refused(&fake.take_sent(), Code::Unimplemented);
}

#[test]
fn a_description_that_makes_no_sense_is_a_loss_of_data() {
    let mut bench = Bench::new();
    spoil("a", &mut bench);
    for method in [Method::BlobStat, Method::BlobDownload] {
        let sent = bench.call(method, b"\x12\x01a");
        let words = refused(&sent, Code::DataLoss);
        assert!(words.contains("cannot be read"), "{words}");
    }
    // It can be deleted.
    let sent = delete("a", None, &mut bench);
    let answer = DeleteBlobResponse::decode(response(&sent)).expect("it is a message");
    assert!(answer.deleted);
}

#[test]
fn a_volatile_database_has_no_blobs_beside_one_that_lasts() {
    let mut config = config();
    config.default_database.durability = Durability::Volatile;
    let mut bench = Bench::with(config);
    let sent = bench.call(Method::BlobList, b"");
    let words = refused(&sent, Code::FailedPrecondition);
    assert!(words.contains("the database is volatile"), "{words}");
    let sent = Bench::volatile().call(Method::BlobList, b"");
    let words = refused(&sent, Code::FailedPrecondition);
    assert!(words.contains("--data"), "{words}");
}
