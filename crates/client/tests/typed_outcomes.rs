//! Outcomes of several operations, and of what is said of blobs.

mod common;
#[path = "common/pooled.rs"]
mod pooled;

use std::time::Duration;

use api::blob::{
    BlobDescription, DeleteBlobRequest, DeleteBlobResponse, DiscardUploadsRequest,
    DiscardUploadsResponse, ListRequest, ListResponse, ListUploadsResponse, StatRequest,
    StatResponse, UploadDescription,
};
use api::keyvalue::{
    AppendResponse, BatchRequest, BatchResponse, DeleteResponse, Entry, Failure, GetResponse,
    IncrementResponse, OperationResult, PipeRequest, PipeResponse, PutResponse, ResultBody,
    ScanPage, ScanRequest, TransactRequest, TransactResponse,
};
use client::typed::{
    BlobStat, Blobs, DeletedBlob, Futures, KeyValue, OperationOutcome, Pipe, PipeOutcome,
    StoredValue, operation,
};
use client::{Code, SharedPool, Status, StreamStep};
use common::{serve, serve_all};
use pollster::block_on;
use pooled::of;
use wire::{Connection, StreamKey};

const SOON: Duration = Duration::from_secs(20);
const VALID: &str = "the request is valid";

const ENTRY: Entry<'static> = Entry {
    key: b"k",
    value: b"v",
    version: 3,
    expires_at_ms: 0,
};

const FAILURE: Failure<'static> = Failure {
    code: 9,
    message: "no number",
};

fn result(body: ResultBody<'static>) -> OperationResult<'static> {
    OperationResult { result: Some(body) }
}

/// One result of each kind.
fn results() -> [OperationResult<'static>; 8] {
    let get = GetResponse {
        found: true,
        value: b"v",
        version: 3,
        ..GetResponse::default()
    };
    let put = PutResponse {
        applied: true,
        version: 4,
        previous: Some(ENTRY),
    };
    let delete = DeleteResponse {
        deleted: true,
        version: 5,
        sequence: 6,
        ..DeleteResponse::default()
    };
    let append = AppendResponse {
        applied: true,
        version: 7,
        length: 8,
    };
    let increment = IncrementResponse {
        applied: true,
        value: -9,
        version: 10,
        ..IncrementResponse::default()
    };
    let unknown = Failure {
        code: 300,
        ..FAILURE
    };
    [
        result(ResultBody::Get(get)),
        result(ResultBody::Put(put)),
        result(ResultBody::Delete(delete)),
        result(ResultBody::Append(append)),
        result(ResultBody::Increment(increment)),
        result(ResultBody::Failure(FAILURE)),
        result(ResultBody::Failure(unknown)),
        OperationResult::default(),
    ]
}

/// What became of a batch in the database of this name.
fn batch<'a>(database: &str, results: &'a [OperationResult<'a>]) -> BatchResponse<'a> {
    let refused = BatchResponse {
        failed_operation: 2,
        failed_result: Some(result(ResultBody::Failure(FAILURE))),
        ..BatchResponse::default()
    };
    match database {
        "refused" => refused,
        "silent" => BatchResponse {
            failed_result: None,
            ..refused
        },
        _ => BatchResponse {
            applied: true,
            sequence: 11,
            results: results.into(),
            ..BatchResponse::default()
        },
    }
}

/// Responds with what the request says, so that a test sees each way.
fn mirror(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    message: &[u8],
) {
    let results = results();
    match path {
        "/pelton.v1.KeyValue/Batch" => {
            let request = BatchRequest::decode(message).expect(VALID);
            let response = batch(request.database, &results);
            connection.respond(stream, out, |out| response.encode(out));
        }
        "/pelton.v1.KeyValue/Transact" => {
            let request = TransactRequest::decode(message).expect(VALID);
            let met = request.comparisons.iter().count() == 1;
            let response = TransactResponse {
                met,
                unmet_comparison: u32::from(!met),
                batch: (request.database != "none").then(|| batch(request.database, &results)),
            };
            connection.respond(stream, out, |out| response.encode(out));
        }
        "/pelton.v1.KeyValue/Pipe" => pipe(connection, stream, out, message),
        "/pelton.v1.KeyValue/Scan" => {
            let request = ScanRequest::decode(message).expect(VALID);
            let entries = vec![ENTRY; request.limit as usize];
            for (number, entries) in [&entries[..], &[], &entries[..]].into_iter().enumerate() {
                let page = ScanPage {
                    entries: entries.into(),
                    sequence: 7,
                    last: number == 2,
                    history_id: b"history",
                };
                connection.send_message(stream, out, |out| page.encode(out));
            }
            connection.finish(stream, out, &Status::OK);
        }
        _ => mirror_blobs(connection, stream, out, path, message),
    }
}

/// Two outcomes for each batch: that of a batch, and up to where all is done.
fn pipe(connection: &mut Connection, stream: StreamKey, out: &mut Vec<u8>, message: &[u8]) {
    let results = results();
    let request = PipeRequest::decode(message).expect(VALID);
    let count = request.operations.iter().count() as u64;
    let of_batch = PipeResponse {
        done: count,
        batch_number: count,
        batch: (count == 1).then(|| batch(request.database, &results)),
        result_indexes: (&[4, 2]).into(),
        failure: (count > 1).then_some(FAILURE),
    };
    let done = PipeResponse {
        done: count,
        ..PipeResponse::default()
    };
    for response in [of_batch, done] {
        connection.send_message(stream, out, |out| response.encode(out));
    }
}

/// The same of the methods of blobs.
fn mirror_blobs(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    message: &[u8],
) {
    match path {
        "/pelton.v1.Blob/Stat" => {
            let request = StatRequest::decode(message).expect(VALID);
            let is_upload = !request.upload_id.is_empty();
            let response = StatResponse {
                found: request.name != "missing",
                blob: (!is_upload).then(|| described(request.name)),
                stored_bytes: request.upload_id.len() as u64,
            };
            connection.respond(stream, out, |out| response.encode(out));
        }
        "/pelton.v1.Blob/Delete" => {
            let request = DeleteBlobRequest::decode(message).expect(VALID);
            let response = DeleteBlobResponse {
                deleted: request.if_version != Some(1),
                version: request.name.len() as u64,
            };
            connection.respond(stream, out, |out| response.encode(out));
        }
        "/pelton.v1.Blob/ListUploads" => {
            let upload = |open| UploadDescription {
                name: "a",
                upload_id: b"id",
                stored_bytes: 2,
                touched_at_ms: 3,
                open,
                peer: "192.0.2.1",
            };
            let uploads = [upload(true), upload(false)];
            let response = ListUploadsResponse {
                uploads: (&uploads).into(),
            };
            connection.respond(stream, out, |out| response.encode(out));
        }
        "/pelton.v1.Blob/DiscardUploads" => {
            let request = DiscardUploadsRequest::decode(message).expect(VALID);
            let response = DiscardUploadsResponse {
                discarded: request.upload_id.len() as u64,
            };
            connection.respond(stream, out, |out| response.encode(out));
        }
        "/pelton.v1.Blob/List" => {
            let request = ListRequest::decode(message).expect(VALID);
            let blobs = vec![described(request.prefix); request.limit as usize];
            for last in [false, true] {
                let page = ListResponse {
                    blobs: (&blobs[..]).into(),
                    last,
                };
                connection.send_message(stream, out, |out| page.encode(out));
            }
            connection.finish(stream, out, &Status::OK);
        }
        _ => connection.send_plain(stream, out, 404, &[], b""),
    }
}

/// With a checksum of as many bytes as one has, or of none.
fn described(name: &str) -> BlobDescription<'_> {
    BlobDescription {
        name,
        size_bytes: 1,
        crc32c: 2,
        sha256: if name == "plain" { b"" } else { &[7; 32] },
        content_type: "text/x",
        version: 3,
        created_at_ms: 4,
    }
}

fn assert_results(results: &[OperationOutcome]) {
    use OperationOutcome::{Append, Delete, Failed, Get, Increment, Put, Unknown};
    let [
        Get(Some(get)),
        Put(put),
        Delete(delete),
        Append(append),
        Increment(increment),
        Failed(failed),
        Failed(other),
        Unknown,
    ] = results
    else {
        panic!("{results:?}");
    };
    let value = StoredValue {
        value: b"v".to_vec(),
        version: 3,
        expires_at_ms: None,
    };
    assert_eq!(get, &value);
    let shown = (put.applied, put.version, put.previous.as_ref());
    assert_eq!(shown, (true, 4, Some(&value)));
    assert_eq!(
        (delete.deleted, delete.version, delete.sequence),
        (true, 5, 6)
    );
    assert_eq!(
        (append.applied, append.version, append.length),
        (true, 7, 8)
    );
    let shown = (increment.applied, increment.value, increment.version);
    assert_eq!((shown, increment.refusal), ((true, -9, 10), None));
    assert_eq!(failed.code(), Code::FailedPrecondition);
    assert_eq!(other.code(), Code::Unknown, "no code has this number");
}

#[test]
fn a_batch_has_an_outcome_for_each_operation_or_names_the_one_that_failed() {
    let (mut channel, _server) = serve(mirror);
    for _ in 0..2 {
        let mut kv = KeyValue::new(&mut channel);
        let done = kv.batch(&[]).timeout(SOON).send().expect("answered");
        assert!(done.is_applied() && done.sequence == 11);
        assert_results(&done.results);
        for database in ["refused", "silent"] {
            let mut kv = KeyValue::of(&mut channel, database);
            let refused = kv.batch(&[]).timeout(SOON).send().expect("answered");
            assert!(!refused.is_applied() && refused.results.is_empty());
            let failed = refused.failed.expect("it is named");
            assert_eq!(failed.index, 2);
            let is_known = matches!(failed.outcome, OperationOutcome::Failed(_));
            assert_eq!(is_known, database == "refused");
        }
    }
}

#[test]
fn a_transaction_names_the_comparison_that_is_not_met() {
    let (mut channel, _server) = serve(mirror);
    let met = operation::exists(b"k", true);
    for _ in 0..2 {
        for (comparisons, unmet) in [(&[met][..], None), (&[met, met][..], Some(1))] {
            let mut kv = KeyValue::new(&mut channel);
            let done = kv.transact(comparisons, &[]).timeout(SOON).send();
            let done = done.expect("answered");
            assert_eq!(done.unmet_comparison, unmet);
            assert_results(&done.batch.results);
        }
        let mut kv = KeyValue::of(&mut channel, "none");
        let done = kv.transact(&[met], &[]).timeout(SOON).send();
        assert!(!done.expect("answered").batch.is_applied());
    }
}

fn assert_of_batch(outcome: &PipeOutcome, count: u64) {
    assert_eq!((outcome.done, outcome.batch_number), (count, Some(count)));
    assert_eq!(outcome.result_indexes, [4, 2]);
    assert_eq!(outcome.refused.is_some(), count > 1);
    match &outcome.batch {
        Some(batch) => assert_results(&batch.results),
        None => assert!(count > 1),
    }
}

fn assert_done(outcome: &PipeOutcome, count: u64) {
    assert_eq!((outcome.done, outcome.batch_number), (count, None));
    assert!(outcome.batch.is_none() && outcome.refused.is_none());
}

/// Looks at a pipe until it has an outcome or ends.
fn polled(pipe: &mut Pipe<'_>) -> Option<PipeOutcome> {
    loop {
        match pipe.poll(SOON).expect("it goes on") {
            StreamStep::Message(outcome) => return Some(outcome),
            StreamStep::Nothing => {}
            StreamStep::Ended => return None,
        }
    }
}

#[test]
fn a_pipe_has_outcomes_until_it_ends() {
    let (mut channel, _server) = serve(mirror);
    let (address, _others) = serve_all(mirror, 1);
    let mut pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let mut futures = Futures::new(&pool);
    let one = [operation::get(b"k").into()];
    let two = [operation::get(b"k").into(), operation::get(b"l").into()];
    for _ in 0..2 {
        let mut kv = KeyValue::new(&mut channel);
        let mut pipe = kv.pipe().timeout(SOON).send().expect("begun");
        for (count, operations) in [(1, &one[..]), (2, &two[..])] {
            assert!(pipe.can_send());
            pipe.send(operations);
            let outcome = pipe.next_outcome().expect("it goes on");
            assert_of_batch(&outcome.expect("one is due"), count);
            let outcome = pipe.next_outcome().expect("it goes on");
            assert_done(&outcome.expect("one is due"), count);
        }
        pipe.send(&one);
        assert_of_batch(&polled(&mut pipe).expect("it goes on"), 1);
        assert_done(&polled(&mut pipe).expect("it goes on"), 1);
        pipe.close_send();
        assert!(polled(&mut pipe).is_none() && !pipe.can_send());
        assert!(pipe.next_outcome().expect("it is done").is_none());
        drop(pipe);

        let mut kv = KeyValue::new(&mut pool);
        let (mut sender, mut receiver) = kv.pipe().timeout(SOON).send();
        let mut kv = KeyValue::new(&mut futures);
        let (mut awaited_sender, mut awaited) = kv.pipe().timeout(SOON).send();
        for (count, operations) in [(1, &one[..]), (2, &two[..])] {
            sender.send(operations).expect("it has room");
            block_on(awaited_sender.send_future(operations)).expect("it has room");
            let mut next = || {
                let outcome = receiver.next_outcome().expect("it goes on");
                let awaited = block_on(awaited.next_outcome_future()).expect("it goes on");
                [outcome, awaited].map(|outcome| outcome.expect("one is due"))
            };
            next().iter().for_each(|one| assert_of_batch(one, count));
            next().iter().for_each(|one| assert_done(one, count));
        }
        sender.finish();
        awaited_sender.finish();
        assert!(receiver.next_outcome().expect("it is done").is_none());
        let end = block_on(awaited.next_outcome_future());
        assert!(end.expect("it is done").is_none());
    }
}

#[test]
fn a_scan_brings_the_entries_of_all_its_pages_one_by_one() {
    let (mut channel, _server) = serve(mirror);
    let mut kv = KeyValue::new(&mut channel);
    for count in [0, 1, 3] {
        let pages = kv.scan().limit(count).timeout(SOON).send().expect("begun");
        let entries: Result<Vec<_>, _> = pages.entries().collect();
        let entries = entries.expect("complete");
        assert_eq!(entries.len() as u64, 2 * count);
        let is_entry = |key: &[u8], value: &[u8]| (key, value) == (b"k", b"v");
        assert!((entries.iter()).all(|one| is_entry(&one.key, &one.stored.value)));
        let mut pages = kv.scan().limit(count).timeout(SOON).send().expect("begun");
        let page = pages.next_page().expect("it goes on").expect("a page");
        let point = page.resume_point();
        assert_eq!(
            (point.sequence, &point.history_id[..]),
            (7, &b"history"[..])
        );
    }
}

#[test]
fn what_is_said_of_a_blob_and_of_uploads_comes_as_it_was_said() {
    let (mut channel, _server) = serve(mirror);
    let mut blobs = Blobs::new(&mut channel);
    for (name, sha256) in [("a", Some([7; 32])), ("plain", None)] {
        let BlobStat::Blob(blob) = blobs.stat(name).timeout(SOON).send().expect("answered") else {
            panic!("it is there");
        };
        assert_eq!((&blob.name[..], blob.sha256), (name, sha256));
        let numbers = (
            blob.size_bytes,
            blob.crc32c,
            blob.version,
            blob.created_at_ms,
        );
        assert_eq!(numbers, (1, 2, 3, 4));
        assert_eq!(blob.content_type, "text/x");
        let list = blobs.list().prefix(name).limit(2).timeout(SOON).send();
        let pages: Result<Vec<_>, _> = list.expect("begun").collect();
        let pages = pages.expect("complete");
        assert_eq!(pages, [[blob.clone(), blob.clone()], [blob.clone(), blob]]);
    }
    let stat = blobs.stat("a").upload_id(b"id").timeout(SOON).send();
    let unfinished = BlobStat::Unfinished { stored_bytes: 2 };
    assert_eq!(stat.expect("answered"), unfinished);
    let stat = blobs.stat("missing").timeout(SOON).send();
    assert_eq!(stat.expect("answered"), BlobStat::Missing);

    let deleted = |deleted| DeletedBlob {
        deleted,
        version: 3,
    };
    let found = blobs.delete("abc").timeout(SOON).send();
    assert_eq!(found.expect("answered"), deleted(true));
    let found = blobs.delete("abc").if_version(1).timeout(SOON).send();
    assert_eq!(found.expect("answered"), deleted(false));

    let uploads = blobs.list_uploads().timeout(SOON).send().expect("answered");
    assert_eq!(uploads.len(), 2);
    for (upload, is_open) in uploads.iter().zip([true, false]) {
        assert_eq!((&upload.name[..], &upload.upload_id[..]), ("a", &b"id"[..]));
        assert_eq!((upload.stored_bytes, upload.touched_at_ms), (2, 3));
        assert_eq!((upload.is_open, &upload.peer[..]), (is_open, "192.0.2.1"));
    }
    for id in [&b"id"[..], b""] {
        let discarded = blobs.discard_uploads("a", id).timeout(SOON).send();
        assert_eq!(discarded.expect("answered"), id.len() as u64);
    }
}
