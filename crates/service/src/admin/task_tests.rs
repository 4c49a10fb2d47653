//! Backup, Snapshot and ConvertDatabase, with a room above that is as slow as the test wants.

use crate::call::Shared;
use crate::fake::{Fake, Sent, shared};
use crate::limits::BACKUP_NAME_BYTES;
use crate::method::Method;
use crate::status::{Code, Status};
use crate::task::{Task, TaskFailure, TaskFailureKind, TaskNews, TaskRefusal};
use api::admin::*;

fn backup_request(name: &str) -> Vec<u8> {
    let mut request = Vec::new();
    BackupRequest { name }.encode(&mut request);
    request
}

fn begun(name: &str, shared: &Shared) -> Fake {
    let mut fake = Fake::new(Method::AdminBackup, shared);
    fake.message(&backup_request(name), true, shared);
    fake
}

fn progress(sent: &[Sent]) -> Vec<BackupProgress<'_>> {
    let messages = sent.iter().filter_map(|sent| match sent {
        Sent::Message(message) => Some(BackupProgress::decode(message).expect("it is one")),
        _ => None,
    });
    messages.collect()
}

#[test]
fn a_backup_tells_how_it_goes_and_ends_once() {
    let shared = shared();
    let mut fake = begun("monday-1", &shared);
    let name = "monday-1".into();
    assert_eq!(fake.actions.task, Some(Task::Backup { name }));
    assert_eq!(fake.take_sent(), []);
    let half = BackupProgress {
        written_bytes: 10,
        total_bytes: 20,
        ..BackupProgress::default()
    };
    fake.task(&TaskNews::BackingUp(half), &shared);
    assert_eq!(progress(&fake.take_sent()), [half]);
    // A caller who does not read is not buried in progress, and learns the end.
    fake.actions.can_send = false;
    fake.task(&TaskNews::BackingUp(half), &shared);
    assert_eq!(fake.take_sent(), []);
    let whole = BackupProgress {
        written_bytes: 20,
        sequence: 77,
        complete: true,
        databases: 3,
        volatile_databases: 1,
        path: "/backups/monday-1",
        ..half
    };
    fake.task(&TaskNews::BackedUp(whole), &shared);
    let sent = fake.take_sent();
    assert_eq!(progress(&sent), [whole]);
    assert_eq!(sent.last(), Some(&Sent::Status(Status::OK)));
    assert_eq!(sent.len(), 2);
}

#[test]
fn a_snapshot_is_answered_when_it_is_made() {
    let shared = shared();
    let mut fake = Fake::new(Method::AdminSnapshot, &shared);
    // Many clients end their side with a frame of its own.
    fake.message(b"", false, &shared);
    fake.half_closed(&shared);
    assert_eq!(fake.actions.task, Some(Task::Snapshot));
    assert_eq!(fake.take_sent(), []);
    let made = SnapshotResponse {
        sequence: 5,
        entries: 6,
        bytes: 7,
    };
    fake.task(&TaskNews::SnapshotMade(made), &shared);
    match fake.take_sent().as_slice() {
        [Sent::Response(answer)] => assert_eq!(SnapshotResponse::decode(answer), Ok(made)),
        other => panic!("{other:?}"),
    }
}

fn convert_request(name: &str, kind: DatabaseKind) -> Vec<u8> {
    let mut request = Vec::new();
    let kind = kind.number();
    ConvertDatabaseRequest { name, kind }.encode(&mut request);
    request
}

fn conversions(sent: &[Sent]) -> Vec<ConvertProgress> {
    let messages = sent.iter().filter_map(|sent| match sent {
        Sent::Message(message) => Some(ConvertProgress::decode(message).expect("it is one")),
        _ => None,
    });
    messages.collect()
}

#[test]
fn a_conversion_tells_how_it_goes_and_ends_once() {
    let shared = shared();
    let mut fake = Fake::new(Method::AdminConvertDatabase, &shared);
    fake.message(&convert_request("", DatabaseKind::Disk), true, &shared);
    let (database, kind) = (store::DatabaseId::DEFAULT, store::Kind::Disk);
    assert_eq!(fake.actions.task, Some(Task::Convert { database, kind }));
    assert_eq!(fake.take_sent(), []);
    let half = ConvertProgress {
        copied_entries: 10,
        total_entries: 20,
        ..ConvertProgress::default()
    };
    fake.task(&TaskNews::Converting(half), &shared);
    assert_eq!(conversions(&fake.take_sent()), [half]);
    fake.actions.can_send = false;
    fake.task(&TaskNews::Converting(half), &shared);
    assert_eq!(fake.take_sent(), []);
    let whole = ConvertProgress {
        copied_entries: 20,
        complete: true,
        converted: true,
        sequence: 77,
        ..half
    };
    fake.task(&TaskNews::Converted(whole), &shared);
    let sent = fake.take_sent();
    assert_eq!(conversions(&sent), [whole]);
    assert_eq!(sent[1..], [Sent::Status(Status::OK)]);
}

#[test]
fn a_database_that_is_of_the_kind_needs_no_conversion() {
    let shared = shared();
    let mut fake = Fake::new(Method::AdminConvertDatabase, &shared);
    fake.message(&convert_request("", DatabaseKind::Memory), true, &shared);
    assert_eq!(fake.actions.task, None);
    let sent = fake.take_sent();
    assert_eq!(conversions(&sent), [ConvertProgress::NOTHING_DONE]);
    assert_eq!(sent[1..], [Sent::Status(Status::OK)]);
}

#[test]
fn what_cannot_be_converted_is_named() {
    let shared = shared();
    let mut no_kind = convert_request("", DatabaseKind::Disk);
    no_kind.truncate(no_kind.len() - 2);
    let mut no_such_kind = no_kind.clone();
    no_such_kind.extend([0x10, 3]);
    for (request, code, words) in [
        (
            convert_request("no", DatabaseKind::Disk),
            Code::NotFound,
            "\"no\"",
        ),
        (no_kind, Code::InvalidArgument, "field kind"),
        (no_such_kind, Code::InvalidArgument, "field kind"),
    ] {
        let mut fake = Fake::new(Method::AdminConvertDatabase, &shared);
        fake.message(&request, true, &shared);
        assert_eq!(fake.actions.task, None);
        let status = fake.take_status().expect("it is over");
        assert_eq!(status.code(), code);
        assert!(status.message().contains(words), "{}", status.message());
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused_before_anything_is_done() {
    let shared = shared();
    let long = "x".repeat(BACKUP_NAME_BYTES + 1);
    let bad = [
        "", ".", "..", "../x", "a/b", "/a", "a\\b", ".hidden", "a b", "a\0b", "ä", "a\n", &long,
    ];
    for name in bad {
        let mut fake = begun(name, &shared);
        assert_eq!(fake.actions.task, None, "{name:?}");
        let status = fake.take_status().expect("it is over");
        assert_eq!(status.code(), Code::InvalidArgument, "{name:?}");
        assert!(
            status.message().contains("field name"),
            "{}",
            status.message()
        );
        assert!(status.message().len() < 300);
    }
    for name in ["a", "a..b", "2026-01-01_00.00", &long[1..]] {
        assert!(begun(name, &shared).actions.task.is_some(), "{name:?}");
    }
}

#[test]
fn refusals_and_failures_have_their_codes() {
    let shared = shared();
    for (refusal, code, words) in [
        (TaskRefusal::Busy, Code::Unavailable, "another"),
        (TaskRefusal::NoThread, Code::Unavailable, "no thread"),
        (
            TaskRefusal::NothingKept,
            Code::FailedPrecondition,
            "keeps nothing",
        ),
        (
            TaskRefusal::NoBackupRoot,
            Code::FailedPrecondition,
            "--backup-root",
        ),
        (
            TaskRefusal::NoDataFolder,
            Code::FailedPrecondition,
            "--data",
        ),
        (TaskRefusal::Stopping, Code::Unavailable, "stop"),
    ] {
        let mut fake = Fake::new(Method::AdminBackup, &shared);
        fake.actions.refuse_task = Some(refusal);
        fake.message(&backup_request("a"), true, &shared);
        let status = fake.take_status().expect("it is over");
        assert_eq!(status.code(), code);
        assert!(status.message().contains(words), "{}", status.message());
    }
    use TaskFailureKind as K;
    for (kind, code) in [
        (K::Exists, Code::AlreadyExists),
        (K::Full, Code::ResourceExhausted),
        (K::LogFailed, Code::FailedPrecondition),
        (K::Damaged, Code::DataLoss),
        (K::Gone, Code::NotFound),
        (K::NotPossible, Code::FailedPrecondition),
        (K::OutcomeUnknown, Code::Unknown),
        (K::NotNow, Code::Unavailable),
        (K::Stopping, Code::Unavailable),
        (K::Device, Code::Unavailable),
    ] {
        let message = "what happened".to_owned();
        let mut fake = begun("a", &shared);
        fake.task(&TaskNews::Failed(&TaskFailure { kind, message }), &shared);
        let status = fake.take_status().expect("it is over");
        assert_eq!((status.code(), status.message()), (code, "what happened"));
    }
}

#[test]
fn one_request_is_what_a_task_takes() {
    let shared = shared();
    for method in [
        Method::AdminBackup,
        Method::AdminSnapshot,
        Method::AdminConvertDatabase,
    ] {
        let mut fake = Fake::new(method, &shared);
        fake.half_closed(&shared);
        let status = fake.take_status().expect("it is over");
        assert_eq!(status.code(), Code::Unimplemented);

        let mut fake = Fake::new(method, &shared);
        let request = match method {
            Method::AdminConvertDatabase => convert_request("", DatabaseKind::Disk),
            _ => backup_request("a"),
        };
        fake.message(&request, false, &shared);
        fake.message(&request, false, &shared);
        let status = fake.take_status().expect("it is over");
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains("second"), "{}", status.message());

        let mut fake = Fake::new(method, &shared);
        fake.message(&[0x0a, 0xff], true, &shared);
        let status = fake.take_status().expect("it is over");
        assert_eq!(status.code(), Code::InvalidArgument);
    }
}
