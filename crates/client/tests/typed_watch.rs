//! Watching with typed calls, against a server that responds with what it was asked.

mod common;
#[path = "common/pooled.rs"]
mod pooled;

use std::time::Duration;

use api::keyvalue::{Change, Commit, Entry, Keys, ResumePoint as Point, WatchRequest};
use api::keyvalue::{ScanPage, WatchResponse};
use client::typed::{
    ChangeKind, Futures, KeyValue, ReplySource, ResumePoint, WatchStream, WatchedCommits,
};
use client::{CallError, Code, SharedPool, Status};
use common::{serve, serve_all};
use pooled::of;
use wire::{Connection, StreamKey};

const SOON: Duration = Duration::from_secs(20);

/// Responds with where the watcher stands, with two parts of a commit whose changes are what the
/// request says, and ends with OUT_OF_RANGE.
fn mirror(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    message: &[u8],
) {
    if path == "/pelton.v1.KeyValue/Scan" {
        let page = ScanPage {
            sequence: 7,
            history_id: b"a-past-1",
            last: true,
            ..ScanPage::default()
        };
        return connection.respond(stream, out, |out| page.encode(out));
    }
    assert_eq!(path, "/pelton.v1.KeyValue/Watch");
    let watch = WatchRequest::decode(message).expect("the request is valid");
    let point = WatchResponse {
        resume: watch.resume,
        ..WatchResponse::default()
    };
    connection.send_message(stream, out, |out| point.encode(out));
    let key = match watch.keys {
        None => b"all",
        Some(Keys::Prefix(prefix)) => prefix,
        Some(Keys::Range(range)) => range.end,
    };
    let entry = Entry {
        key,
        value: watch.database.as_bytes(),
        version: watch.max_answer_bytes,
        expires_at_ms: 9,
    };
    let first = [Change {
        kind: ChangeKind::Set.number(),
        entry: Some(entry),
        previous: watch.with_previous.then_some(entry),
        value_left_out: watch.keys_only,
    }];
    let second = [
        Change {
            kind: ChangeKind::Clear.number(),
            ..Change::default()
        },
        Change {
            kind: 99,
            ..Change::default()
        },
    ];
    for (changes, continued) in [(&first[..], true), (&second[..], false)] {
        let commits = [Commit {
            sequence: 12,
            at_ms: 34,
            changes: changes.into(),
            continued,
        }];
        let response = WatchResponse {
            commits: (&commits).into(),
            resume: Some(Point {
                history_id: b"a-past-1",
                sequence: if continued { 11 } else { 12 },
            }),
            too_slow: !continued,
        };
        connection.send_message(stream, out, |out| response.encode(out));
    }
    let status = Status::new(Code::OutOfRange, "not all there any more");
    connection.finish(stream, out, &status);
}

fn assert_lost<T: std::fmt::Debug>(result: Result<T, CallError>) {
    match result {
        Err(CallError::Status(status)) => assert_eq!(status.code(), Code::OutOfRange),
        other => panic!("{other:?}"),
    }
}

/// Takes all responses of a call that has set all of its options.
fn assert_mirrored(mut watch: WatchStream<impl ReplySource>, point: &ResumePoint) {
    let mut next = || watch.next_response().expect("it came").expect("a response");
    let begun = WatchedCommits {
        commits: Vec::new(),
        resume: point.clone(),
        is_too_slow: false,
    };
    assert_eq!(next(), begun);
    let (first, second) = (next(), next());
    assert_eq!((first.resume.sequence, second.resume.sequence), (11, 12));
    assert_eq!((first.is_too_slow, second.is_too_slow), (false, true));
    let ([first], [second]) = (&first.commits[..], &second.commits[..]) else {
        panic!("a part of a commit each: {first:?}, {second:?}");
    };
    assert_eq!(
        (first.sequence, first.at_ms, first.is_continued),
        (12, 34, true)
    );
    assert_eq!((second.sequence, second.is_continued), (12, false));
    let change = &first.changes[0];
    assert_eq!(
        (change.kind, change.is_value_left_out),
        (ChangeKind::Set, true)
    );
    assert_eq!(
        (&change.entry.key[..], change.entry.stored.version),
        (&b"c/"[..], 200_000)
    );
    assert_eq!(change.entry.stored.value, b"cities");
    assert_eq!(change.previous.as_ref(), Some(&change.entry.stored));
    let kinds: Vec<_> = second.changes.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Clear, ChangeKind::Unspecified]);
    assert_eq!(second.changes[0].entry.key, b"");
    assert_lost(watch.next_response());
    assert!(watch.next().is_none(), "it ends behind the error");
}

#[test]
fn a_watcher_takes_responses_until_the_call_ends() {
    let (mut channel, _server) = serve(mirror);
    let mut kv = KeyValue::of(&mut channel, "cities");
    for _ in 0..2 {
        let page = kv.scan().send().expect("begun").next_page();
        let point = page.expect("it came").expect("a page").resume_point();
        assert_eq!(
            (&point.history_id[..], point.sequence),
            (&b"a-past-1"[..], 7)
        );
        let watch = kv.watch().prefix(b"c/").resume(&point).keys_only();
        let watch = watch.with_previous().max_response_bytes(200_000);
        assert_mirrored(watch.timeout(SOON).send().expect("begun"), &point);
    }
}

#[test]
fn a_watcher_without_options_asks_for_none() {
    let (mut channel, _server) = serve(mirror);
    let mut kv = KeyValue::new(&mut channel);
    let watch = kv.watch().send().expect("begun");
    let responses: Vec<_> = watch.collect();
    let [Ok(begun), Ok(first), Ok(_), Err(_)] = &responses[..] else {
        panic!("{responses:?}");
    };
    assert_eq!(begun.resume, ResumePoint::default());
    let change = &first.commits[0].changes[0];
    assert_eq!(change.entry.key, b"all");
    assert_eq!(change.entry.stored.version, 0, "no bound of its own");
    assert!(!change.is_value_left_out && change.previous.is_none());
    let watch = kv.watch().range(b"a", b"d").send().expect("begun");
    let first = watch.flatten().nth(1).expect("it came");
    assert_eq!(first.commits[0].changes[0].entry.key, b"d");
}

#[test]
fn the_point_of_a_call_can_be_moved_on_while_it_lasts() {
    let (mut channel, _server) = serve(mirror);
    let mut kv = KeyValue::new(&mut channel);
    let mut point = ResumePoint::default();
    for _ in 0..2 {
        for response in kv.watch().resume(&point).send().expect("begun").flatten() {
            point = response.resume;
        }
        assert_eq!(point.sequence, 12);
    }
}

#[test]
fn a_watcher_over_a_pool_is_a_thread_or_a_future() {
    let (address, _server) = serve_all(mirror, 1);
    let mut pool = SharedPool::new(&[address], of(1), 7).expect("the address is known");
    let point = ResumePoint {
        history_id: b"a-past-0".to_vec(),
        sequence: 3,
    };
    let mut kv = KeyValue::of(&mut pool, "cities");
    let watch = kv.watch().prefix(b"c/").resume(&point).keys_only();
    let watch = watch.with_previous().max_response_bytes(200_000);
    assert_mirrored(watch.timeout(SOON).send().expect("begun"), &point);

    let mut futures = Futures::new(&pool);
    let mut kv = KeyValue::new(&mut futures);
    let mut watch = kv
        .watch()
        .resume(&point)
        .timeout(SOON)
        .send()
        .expect("begun");
    pollster::block_on(async {
        let begun = watch.next_response().await.expect("it came");
        assert_eq!(begun.expect("a response").resume, point);
        for _ in 0..2 {
            let response = watch.next_response().await.expect("it came");
            assert_eq!(response.expect("a response").commits[0].sequence, 12);
        }
        assert_lost(watch.next_response().await);
        let behind = watch.next_response().await;
        assert!(behind.expect("it has ended").is_none());
    });
}
