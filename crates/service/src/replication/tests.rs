//! What calls of servers that follow get, and when.

use std::sync::Arc;

use api::replication::{
    AcknowledgeRequest, AcknowledgeResponse, FollowRequest, FollowResponse, RECORD_FORMAT,
    ReadContentRequest, ReadContentResponse,
};
use store::durable::CommitLoop;
use store::log::FollowedGroup;
use store::{
    DatabaseId, Durability, FileReading, LogReadError, Mode, REPLICA_ID_BYTES, ReplicaReading,
    ReplicaSetChange, Store, StoreConfig, WatchError,
};
use testkit::suite::{StandingClock, put};
use wal::disk::Disk;
use wal::{LogConfig, LogId};

use crate::call::Shared;
use crate::fake::{Fake, Sent, shared};
use crate::following::Following;
use crate::limits::{
    FOLLOWERS_MAX, REPLICA_ADDRESS_BYTES_MAX, REPLICATION_PART_BYTES, WATCH_LOG_RETRY_MS,
};
use crate::method::Method;
use crate::status::Code;

/// A server with a log.
struct Logged {
    shared: Shared,
    commit_loop: CommitLoop,
    clock: StandingClock,
}

impl Logged {
    fn new() -> Logged {
        let id = LogId {
            history: 7,
            secret: 8,
        };
        let disk = Arc::new(testkit::simulated_disk(1));
        let mut config = StoreConfig::new(1);
        config.default_database.durability = Durability::Synced;
        let opened = Store::open(config, disk, &LogConfig::new(id, 1));
        let opened = opened.expect("an empty disk is well");
        Logged {
            commit_loop: CommitLoop::new(opened.committer),
            shared: Shared {
                store: opened.store,
                ..shared()
            },
            clock: StandingClock { now_ms: 1_000 },
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let mailbox = self.commit_loop.register(Box::new(|| ()));
        let mut batch = self.shared.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
        commit.push(&put(key, value)).expect("it fits");
        commit.submit();
        mailbox.submit(&mut batch);
        while self.commit_loop.round(&mut self.clock) {}
    }

    /// Begins an epoch behind what is there.
    fn begin_epoch(&mut self, epoch: u64) -> u64 {
        let (store, end) = (&self.shared.store, self.commit_loop.log_sequence());
        let mailbox = self.commit_loop.register(Box::new(|| ()));
        let mut batch = store.write_batch();
        let begin = ReplicaSetChange::Begin { epoch, end };
        let changed = store.change_replica_set(&mut batch, &[begin]);
        assert_eq!(changed, Ok(()));
        mailbox.submit(&mut batch);
        while self.commit_loop.round(&mut self.clock) {}
        assert_eq!(self.shared.store.epoch(), epoch);
        end
    }

    fn follow(&self, request: &FollowRequest<'_>) -> Fake {
        let mut fake = Fake::new(Method::ReplicationFollow, &self.shared);
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        fake.message(&bytes, true, &self.shared);
        fake
    }
}

fn request(history_id: &[u8], sequence: u64) -> FollowRequest<'_> {
    FollowRequest {
        history_id,
        sequence,
        format: RECORD_FORMAT,
        ..FollowRequest::default()
    }
}

/// Reads until nothing more is asked for; returns the groups that were sent, and how many messages.
fn received(fake: &mut Fake, shared: &Shared) -> (Vec<FollowedGroup>, usize) {
    while fake.read_replica(shared) {}
    let (mut groups, mut body, mut messages) = (Vec::new(), Vec::new(), 0);
    for sent in fake.take_sent() {
        let Sent::Message(message) = sent else {
            panic!("nothing else is sent: {sent:?}");
        };
        messages += 1;
        let response = FollowResponse::decode(&message).expect("it is a response");
        assert_eq!(
            response.durable_sequence,
            shared
                .store
                .log_statistics()
                .expect("there is a log")
                .durable_sequence
        );
        let Some(part) = response.group else { continue };
        assert!(part.data.len() <= REPLICATION_PART_BYTES);
        body.extend_from_slice(part.data);
        if body.len() as u64 == part.body_bytes {
            assert_eq!(store::blob::crc32c(&body), part.crc32c);
            groups.push(FollowedGroup {
                first_sequence: part.first_sequence,
                last_sequence: part.last_sequence,
                wall_ms: part.wall_ms,
                records: part.records,
                body: std::mem::take(&mut body).into(),
            });
        }
    }
    assert!(body.is_empty(), "groups are sent whole");
    (groups, messages)
}

#[test]
fn whoever_follows_gets_each_group_once_and_large_ones_in_parts() {
    let mut server = Logged::new();
    let history_id = api::history_id_bytes(7);
    server.put(b"key", b"value");
    let mut fake = server.follow(&request(&history_id, 0));
    let (groups, messages) = received(&mut fake, &server.shared);
    assert_eq!(
        messages,
        1 + groups.len(),
        "first it is told where the server stands"
    );
    let mut last = groups.last().expect("something was written").last_sequence;
    assert_eq!(groups.first().map(|group| group.first_sequence), Some(1));
    for bytes in [10, 3 * REPLICATION_PART_BYTES] {
        server.put(b"key", &vec![7; bytes]);
        fake.woken(&server.shared);
        let (groups, messages) = received(&mut fake, &server.shared);
        assert_eq!(groups.len(), 1);
        assert_eq!(messages, 1 + bytes / REPLICATION_PART_BYTES);
        assert_eq!(groups[0].first_sequence, last + 1);
        let records = groups[0].read().expect("they make sense");
        assert!(records.iter().any(|record| record.value.len() == bytes));
        last = groups[0].last_sequence;
    }
    fake.woken(&server.shared);
    assert!(fake.take_sent().is_empty(), "nothing is new");
    fake.wake_in_time(&server.shared);
    let (groups, messages) = received(&mut fake, &server.shared);
    assert_eq!((groups.len(), messages), (0, 1), "a sign of life");
}

#[test]
fn what_a_peer_does_not_take_is_counted_and_sent_later() {
    let mut server = Logged::new();
    let history_id = api::history_id_bytes(7);
    server.put(b"key", &[7; 4 * REPLICATION_PART_BYTES]);
    let mut fake = server.follow(&request(&history_id, 0));
    fake.actions.sends_left = 1;
    while fake.read_replica(&server.shared) {}
    assert!(fake.actions.ready_bytes > 4 * REPLICATION_PART_BYTES);
    fake.actions.sends_left = usize::MAX;
    fake.writable(&server.shared);
    let (groups, _) = received(&mut fake, &server.shared);
    assert_eq!(
        groups.last().map(|group| group.last_sequence),
        Some(server.commit_loop.log_sequence())
    );
}

#[test]
fn who_cannot_follow_is_told_why() {
    let mut server = Logged::new();
    server.put(b"key", b"value");
    let own = api::history_id_bytes(7);
    let other = api::history_id_bytes(8);
    let format = FollowRequest {
        format: RECORD_FORMAT + 1,
        ..request(&own, 0)
    };
    let mut fake = server.follow(&format);
    let code = fake.take_status().map(|status| status.code());
    assert_eq!(code, Some(Code::InvalidArgument));
    // Who is to take a copy hears first whom this server follows: nobody, or others.
    let following = Arc::new(Following::new("leader:1978", [1; 16], 0));
    for ids in [&[][..], &[[1; 16]], &[[1; 16], [2; 16], [3; 16]]] {
        if let Some((own, upstream)) = ids.split_first() {
            assert!(!following.note_upstream(upstream.iter().map(|id| &id[..])));
            assert_eq!(following.id(), own);
            server.shared.following = Some(Arc::clone(&following));
        }
        let ahead = request(&own, u64::MAX / 2);
        if !ids.is_empty() {
            // What it lacks may come from its leader: nobody takes its copy for that.
            let status = server.follow(&ahead).take_status();
            assert_eq!(status.map(|status| status.code()), Some(Code::Unavailable));
        }
        for request in [request(&other, 0), ahead] {
            if request.sequence > 0 && !ids.is_empty() {
                continue;
            }
            let mut fake = server.follow(&request);
            let sent = fake.take_sent();
            let [Sent::Message(message), Sent::Status(status)] = &sent[..] else {
                panic!("{sent:?}");
            };
            assert_eq!(status.code(), Code::FailedPrecondition);
            let response = FollowResponse::decode(message).expect("it is a response");
            assert_eq!((response.history_id, response.group), (&own[..], None));
            let named: Vec<_> = response.replica_ids.iter().map(Result::unwrap).collect();
            assert_eq!(named, ids.iter().map(|id| &id[..]).collect::<Vec<_>>());
        }
    }
    server.shared.following = None;
    let others: Vec<_> = (0..FOLLOWERS_MAX)
        .map(|_| server.follow(&request(&own, 0)))
        .collect();
    let mut fake = server.follow(&request(&own, 0));
    let code = fake.take_status().map(|status| status.code());
    assert_eq!(code, Some(Code::ResourceExhausted));
    drop(others);
    assert_eq!(server.shared.store.followers(), 0);
    let mut fake = server.follow(&request(&own, 0));
    assert!(fake.take_status().is_none());
}

#[test]
fn a_server_that_keeps_nothing_has_nothing_to_follow() {
    let shared = shared();
    let history_id = api::history_id_bytes(shared.store.history_id());
    let mut follow = Vec::new();
    request(&history_id, 0).encode(&mut follow);
    let mut content = Vec::new();
    ReadContentRequest { number: 1 }.encode(&mut content);
    for (method, bytes) in [
        (Method::ReplicationFollow, follow),
        (Method::ReplicationReadContent, content),
    ] {
        let mut fake = Fake::new(method, &shared);
        fake.message(&bytes, true, &shared);
        let code = fake.take_status().map(|status| status.code());
        assert_eq!(code, Some(Code::FailedPrecondition), "{method:?}");
    }
}

#[test]
fn a_content_that_is_gone_is_not_found() {
    let server = Logged::new();
    let mut bytes = Vec::new();
    ReadContentRequest { number: 1 }.encode(&mut bytes);
    let mut fake = Fake::new(Method::ReplicationReadContent, &server.shared);
    fake.message(&bytes, true, &server.shared);
    assert!(fake.read_replica(&server.shared));
    let code = fake.take_status().map(|status| status.code());
    assert_eq!(code, Some(Code::NotFound));
}

fn acknowledge(history_id: &[u8], replica_id: &[u8], sequence: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let request = AcknowledgeRequest {
        history_id,
        replica_id,
        sequence,
        ..AcknowledgeRequest::default()
    };
    request.encode(&mut bytes);
    bytes
}

fn begin_acknowledging(server: &Logged, bytes: &[u8]) -> Fake {
    let mut fake = Fake::new(Method::ReplicationAcknowledge, &server.shared);
    fake.message(bytes, false, &server.shared);
    fake
}

/// The responses that were sent.
fn responses(fake: &mut Fake) -> Vec<AcknowledgeResponse> {
    let sent = fake.take_sent().into_iter();
    let decoded = sent.map(|sent| match sent {
        Sent::Message(message) => AcknowledgeResponse::decode(&message).expect("it is one"),
        other => panic!("nothing else is sent: {other:?}"),
    });
    decoded.collect()
}

#[test]
fn whoever_acknowledges_counts_as_long_as_its_call_goes_on() {
    let mut server = Logged::new();
    server.put(b"key", b"value");
    let (own, id) = (api::history_id_bytes(7), [1; REPLICA_ID_BYTES]);
    let held = |server: &Logged| server.shared.store.acknowledged().followers;
    for _ in 0..2 {
        let mut fake = begin_acknowledging(&server, &acknowledge(&own, &id, 0));
        assert_eq!(responses(&mut fake).len(), 1);
        assert_eq!(held(&server), [(id, 0)]);
        let sequence = server.commit_loop.log_sequence();
        // One response is enough for all that comes while there is no room for it.
        fake.actions.sends_left = 0;
        for sequence in [1, sequence] {
            fake.message(&acknowledge(b"", b"", sequence), false, &server.shared);
        }
        assert_eq!(responses(&mut fake), []);
        fake.actions.sends_left = usize::MAX;
        fake.writable(&server.shared);
        assert_eq!(responses(&mut fake).len(), 1);
        assert_eq!(held(&server), [(id, sequence)]);
        // More than there is cannot be held.
        fake.message(&acknowledge(b"", b"", sequence + 1), false, &server.shared);
        let code = fake.take_status().map(|status| status.code());
        assert_eq!(code, Some(Code::FailedPrecondition));
        drop(fake);
        assert_eq!(held(&server), []);
    }
    assert_eq!(server.shared.waiting.count(), 0);
}

#[test]
fn who_cannot_acknowledge_is_told_why() {
    let server = Logged::new();
    let (own, other) = (api::history_id_bytes(7), api::history_id_bytes(8));
    let id = [1; REPLICA_ID_BYTES];
    let code_of = |bytes: &[u8]| {
        let mut fake = begin_acknowledging(&server, bytes);
        fake.take_status().map(|status| status.code())
    };
    let failed = Some(Code::FailedPrecondition);
    assert_eq!(code_of(&acknowledge(&other, &id, 0)), failed);
    assert_eq!(code_of(&acknowledge(&own, &id, u64::MAX)), failed);
    let invalid = Some(Code::InvalidArgument);
    assert_eq!(code_of(&acknowledge(&own, b"short", 0)), invalid);
    let ids = (0..FOLLOWERS_MAX).map(|number| [number as u8; REPLICA_ID_BYTES]);
    let others: Vec<_> = ids
        .map(|id| begin_acknowledging(&server, &acknowledge(&own, &id, 0)))
        .collect();
    let followers = server.shared.store.acknowledged().followers;
    assert_eq!(followers.len(), FOLLOWERS_MAX);
    let next = acknowledge(&own, &[0xff; REPLICA_ID_BYTES], 0);
    assert_eq!(code_of(&next), Some(Code::ResourceExhausted));
    // One that is there already may begin anew.
    assert_eq!(code_of(&acknowledge(&own, &id, 0)), None);
    drop(others);
    assert_eq!(code_of(&next), None);
    assert_eq!(server.shared.store.acknowledged().followers, []);
}

#[test]
fn what_was_written_in_an_epoch_that_was_left_is_neither_followed_on_nor_acknowledged() {
    let mut server = Logged::new();
    server.put(b"key", b"value");
    let end = server.begin_epoch(2);
    for _ in 0..3 {
        server.put(b"key", b"value");
    }
    let own = api::history_id_bytes(7);
    for (log_epoch, sequence, is_good) in [
        (1, end, true),
        (1, end + 1, false),
        (2, end + 1, true),
        (3, end, false),
    ] {
        let of_epoch = FollowRequest {
            log_epoch,
            ..request(&own, sequence)
        };
        let mut fake = server.follow(&of_epoch);
        let sent = fake.take_sent();
        let is_refused = matches!(sent.last(), Some(Sent::Status(_)));
        assert_eq!(is_refused, !is_good, "{log_epoch} {sequence}");
        let mut bytes = Vec::new();
        let acknowledged = AcknowledgeRequest {
            history_id: &own,
            replica_id: &[1; REPLICA_ID_BYTES],
            sequence,
            epoch: 2,
            log_epoch,
        };
        acknowledged.encode(&mut bytes);
        let mut fake = begin_acknowledging(&server, &bytes);
        let code = fake.take_status().map(|status| status.code());
        assert_eq!(code.is_none(), is_good, "{log_epoch} {sequence}");
    }
}

#[test]
fn a_leader_that_hears_of_a_higher_epoch_of_its_history_takes_no_more_writes() {
    let server = Logged::new();
    let (own, other) = (api::history_id_bytes(7), api::history_id_bytes(8));
    for (history_id, epoch, is_over) in [(&own, 1, false), (&other, 9, false), (&own, 3, true)] {
        let of_epoch = FollowRequest {
            epoch,
            leader: "there:1978",
            ..request(history_id, 0)
        };
        let mut fake = server.follow(&of_epoch);
        let _ = fake.take_sent();
        assert_eq!(server.shared.store.higher_epoch() > 0, is_over);
        assert_eq!(server.shared.write_refusal().is_some(), is_over);
        assert_eq!(server.shared.refuses_writes(), is_over);
    }
    let refusal = server.shared.write_refusal().expect("it is over");
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    assert!(refusal.message().contains("there:1978"), "{refusal:?}");
    let mut put = Fake::new(Method::Put, &server.shared);
    let code = put.take_status().map(|status| status.code());
    assert_eq!(code, Some(Code::FailedPrecondition));
}

/// Its leader hears of that from whoever calls it: what the replica itself takes from whom does not
/// change.
#[test]
fn a_replica_that_hears_of_a_higher_epoch_takes_no_notice() {
    let mut server = Logged::new();
    server.shared.following = Some(Arc::new(Following::new("leader:1978", [1; 16], 0)));
    let own = api::history_id_bytes(7);
    let of_epoch = FollowRequest {
        epoch: 3,
        ..request(&own, 0)
    };
    let sent = server.follow(&of_epoch).take_sent();
    let Some(Sent::Status(status)) = sent.last() else {
        panic!("{sent:?}");
    };
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(server.shared.store.higher_epoch(), 0);
}

#[test]
fn what_counts_is_the_epoch_that_a_follower_has_confirmed_not_that_of_its_log() {
    let own = api::history_id_bytes(7);
    for (epoch, log_epoch, is_over) in [(1, 3, false), (3, 1, true)] {
        let server = Logged::new();
        let of_epochs = FollowRequest {
            epoch,
            log_epoch,
            ..request(&own, 0)
        };
        drop(server.follow(&of_epochs));
        assert_eq!(server.shared.store.higher_epoch() > 0, is_over);
    }
}

#[test]
fn an_address_of_a_new_leader_is_kept_if_it_is_one() {
    let own = api::history_id_bytes(7);
    for (bytes, kept) in [
        (REPLICA_ADDRESS_BYTES_MAX, REPLICA_ADDRESS_BYTES_MAX),
        (REPLICA_ADDRESS_BYTES_MAX + 1, 0),
    ] {
        let server = Logged::new();
        let address = "x".repeat(bytes);
        let of_epoch = FollowRequest {
            epoch: 2,
            leader: &address,
            ..request(&own, 0)
        };
        drop(server.follow(&of_epoch));
        assert_eq!(server.shared.store.higher_epoch(), 2);
        assert_eq!(server.shared.store.new_leader().len(), kept);
    }
}

/// Left open, its caller would wait to be counted.
#[test]
fn a_call_that_counts_no_more_ends_and_one_that_counts_looks_again_and_again() {
    let server = Logged::new();
    let (own, id) = (api::history_id_bytes(7), [1; REPLICA_ID_BYTES]);
    let mut calls: Vec<_> = (0..3)
        .map(|_| begin_acknowledging(&server, &acknowledge(&own, &id, 0)))
        .collect();
    let mut last = calls.pop().expect("there are three");
    for mut call in calls {
        assert_eq!(responses(&mut call).len(), 1);
        call.wake_in_time(&server.shared);
        let code = call.take_status().map(|status| status.code());
        assert_eq!(code, Some(Code::Aborted));
    }
    assert_eq!(responses(&mut last).len(), 1);
    for _ in 0..3 {
        last.wake_in_time(&server.shared);
        assert_eq!(responses(&mut last), []);
    }
    assert_eq!(server.shared.store.acknowledged().followers, [(id, 0)]);
    server.shared.health.stop();
    last.wake_in_time(&server.shared);
    let code = last.take_status().map(|status| status.code());
    assert_eq!(code, Some(Code::Unavailable));
}

#[test]
fn what_cannot_be_read_now_is_read_soon_and_what_cannot_be_read_at_all_ends_the_call() {
    let mut server = Logged::new();
    server.put(b"key", b"value");
    let own = api::history_id_bytes(7);
    let shared = &server.shared;
    let content = || {
        let mut bytes = Vec::new();
        ReadContentRequest { number: 1 }.encode(&mut bytes);
        let mut fake = Fake::new(Method::ReplicationReadContent, shared);
        fake.message(&bytes, true, shared);
        fake
    };
    for error in [LogReadError::Busy, LogReadError::Needs(1 << 20)] {
        for mut fake in [server.follow(&request(&own, 0)), content()] {
            for _ in 0..3 {
                assert!(fake.read_replica_with(shared, |_, _| Err(error.clone())));
                assert!(fake.actions.replica_reading.is_none(), "not at once");
                let at_ns = fake.actions.now_ns + WATCH_LOG_RETRY_MS * 1_000_000;
                assert_eq!(fake.actions.wake_at_ns, Some(at_ns));
                fake.wake_in_time(shared);
            }
            assert!(fake.actions.replica_reading.is_some());
        }
    }
    let lost = WatchError::Lost {
        asked: 0,
        present: 1,
    };
    let unreadable = WatchError::Unreadable("damage".into());
    for (error, of_log, of_content) in [
        (lost, Code::OutOfRange, Code::Unavailable),
        (unreadable, Code::Unavailable, Code::Unavailable),
        (WatchError::Gone, Code::OutOfRange, Code::NotFound),
    ] {
        let follow = server.follow(&request(&own, 0));
        for (mut fake, expected) in [(follow, of_log), (content(), of_content)] {
            let _ = fake.take_sent();
            let failed = LogReadError::Failed(error.clone());
            assert!(fake.read_replica_with(shared, |_, _| Err(failed)));
            let code = fake.take_status().map(|status| status.code());
            assert_eq!(code, Some(expected), "{error}");
        }
    }
}

#[test]
fn a_file_comes_whole_however_little_is_read_at_a_time_and_what_waits_is_counted() {
    let server = Logged::new();
    let disk = testkit::simulated_disk(2);
    let content: Vec<u8> = (0..3 * REPLICATION_PART_BYTES + 7)
        .map(|at| (at % 251) as u8)
        .collect();
    let file = disk.create("content").expect("nothing fails");
    file.write_all_at(&content, 0).expect("nothing fails");
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let mut bytes = Vec::new();
    ReadContentRequest { number: 1 }.encode(&mut bytes);
    for claimed_bytes in [1_000, REPLICATION_PART_BYTES, usize::MAX] {
        let mut fake = Fake::new(Method::ReplicationReadContent, &server.shared);
        fake.message(&bytes, true, &server.shared);
        // Another file than that of a blob, read as one.
        let file = FileReading::new(Arc::clone(&disk), "content".into());
        let asked = fake.actions.replica_reading.as_mut();
        asked.expect("it reads a blob").0 = ReplicaReading::File(file);
        let mut received = Vec::new();
        while !fake.actions.is_over {
            fake.actions.sends_left = 1;
            let has_read = fake.read_replica_with(&server.shared, |reading, bytes| {
                reading.run(bytes, claimed_bytes)
            });
            if !has_read {
                fake.writable(&server.shared);
            }
            for sent in fake.take_sent() {
                match sent {
                    Sent::Message(message) => {
                        let response = ReadContentResponse::decode(&message).expect("it is one");
                        assert!(response.data.len() <= REPLICATION_PART_BYTES);
                        received.extend_from_slice(response.data);
                    }
                    Sent::Status(status) => assert_eq!(status.code(), Code::Ok),
                    other => panic!("{other:?}"),
                }
            }
            if claimed_bytes == usize::MAX && received.len() == REPLICATION_PART_BYTES {
                let left = content.len() - received.len();
                assert_eq!(
                    fake.actions.ready_bytes, left,
                    "what was read and not taken"
                );
            }
        }
        assert!(
            received == content,
            "{} of {}",
            received.len(),
            content.len()
        );
    }
}
