//! The typed calls of the client against the real server.

mod support;

use std::io::Read;
use std::time::Duration;

use api::admin::{DatabaseKind, DurabilityMode};
use client::typed::operation::{self, exists, value_is, version_is};
use client::typed::{
    Admin, BlobStat, Blobs, ChangeKind, DownloadError, KeyValue, OperationOutcome, PipeOutcome,
    Replies, Reply, ReplySource, Rpc,
};
use client::{CallError, Channel, ChannelOptions, Code, StreamStep};
use support::{Folder, Server, TIMEOUT};

fn connect(server: &Server) -> Channel {
    let address = server.addresses[0].parse().expect("it is an address");
    Channel::connect(&address, &ChannelOptions::default()).expect("it listens")
}

fn code_of<T: std::fmt::Debug>(result: Result<T, CallError>) -> Code {
    match result {
        Err(CallError::Status(status)) => status.code(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_takes_effect_as_a_whole_or_each_operation_for_itself() {
    let server = Server::start();
    let mut channel = connect(&server);
    let mut kv = KeyValue::new(&mut channel);
    for round in 0..2 {
        let operations = [
            operation::put(b"a", b"1").into(),
            operation::get(b"a").into(),
            operation::append(b"a", b"2").if_exists().into(),
            operation::increment(b"n", 5).initial(7).into(),
            operation::delete(b"b").return_previous().into(),
        ];
        let batch = kv.batch(&operations).timeout(TIMEOUT).send().expect("done");
        assert!(batch.is_applied() && batch.sequence > 0);
        let [
            OperationOutcome::Put(put),
            OperationOutcome::Get(Some(found)),
            OperationOutcome::Append(append),
            OperationOutcome::Increment(increment),
            OperationOutcome::Delete(delete),
        ] = &batch.results[..]
        else {
            panic!("{batch:?}");
        };
        assert!(put.applied && append.applied && !delete.deleted);
        assert_eq!((&found.value[..], append.length), (&b"1"[..], 2));
        assert_eq!(increment.value, 12 + 5 * round);

        let operations = [
            operation::put(b"c", b"1").into(),
            operation::put(b"a", b"1").if_absent().into(),
        ];
        let batch = kv.batch(&operations).send().expect("an outcome");
        let failed = batch.failed.expect("the second one failed");
        assert_eq!((failed.index, batch.results.len()), (1, 0));
        assert!(matches!(failed.outcome, OperationOutcome::Put(put) if !put.applied));
        assert_eq!(kv.get(b"c").send().expect("answered"), None);

        let batch = kv.batch(&operations).independent().send().expect("done");
        assert!(batch.is_applied());
        assert!(matches!(&batch.results[0], OperationOutcome::Put(put) if put.applied));
        assert!(kv.delete(b"c").send().expect("done").deleted);
    }
    let many = vec![operation::get(b"a").into(); 20_000];
    assert_eq!(code_of(kv.batch(&many).send()), Code::ResourceExhausted);
}

#[test]
fn a_transaction_chooses_by_its_comparisons() {
    let server = Server::start();
    let mut channel = connect(&server);
    let mut kv = KeyValue::new(&mut channel);
    let version = kv.put(b"leader", b"alice").send().expect("done").version;
    let take = [operation::put(b"leader", b"bob").into()];
    let look = [operation::get(b"leader").into()];
    for (comparison, is_met) in [
        (value_is(b"leader", b"carol"), false),
        (version_is(b"leader", version + 1), false),
        (exists(b"leader", false), false),
        (value_is(b"leader", b"alice"), true),
    ] {
        let comparisons = [exists(b"leader", true), comparison];
        let transact = kv.transact(&comparisons, &take).otherwise(&look);
        let outcome = transact.timeout(TIMEOUT).send().expect("an outcome");
        assert_eq!(outcome.unmet_comparison, (!is_met).then_some(1));
        match &outcome.batch.results[..] {
            [OperationOutcome::Put(put)] => assert!(is_met && put.applied),
            [OperationOutcome::Get(Some(found))] => {
                assert_eq!((is_met, &found.value[..]), (false, &b"alice"[..]));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_scan_brings_all_entries_of_its_range_page_by_page() {
    let server = Server::start();
    let mut channel = connect(&server);
    let mut kv = KeyValue::new(&mut channel);
    let keys: Vec<String> = (0..40).map(|number| format!("key/{number:02}")).collect();
    let value = vec![7; 100_000];
    for key in &keys {
        kv.put(key.as_bytes(), &value).send().expect("done");
    }
    kv.put(b"other", b"").send().expect("done");
    for _ in 0..2 {
        let mut pages = kv
            .scan()
            .prefix(b"key/")
            .timeout(TIMEOUT)
            .send()
            .expect("begun");
        let mut found = Vec::new();
        let mut count = 0;
        while let Some(page) = pages.next_page().expect("a page") {
            count += 1;
            assert!(page.sequence > 0);
            found.extend(page.entries);
        }
        assert!(count >= 4, "4 MB come in {count} pages");
        assert!(
            found
                .iter()
                .map(|entry| &entry.key[..])
                .eq(keys.iter().map(|key| key.as_bytes()))
        );
        assert!(found.iter().all(|entry| entry.stored.value == value));
        drop(pages);

        let scan = kv.scan().range(b"key/10", b"key/20").keys_only().backward();
        let scan = scan.start_after(b"key/18").limit(3).send().expect("begun");
        let keys: Result<Vec<_>, _> = scan.entries().map(|entry| entry.map(|it| it.key)).collect();
        assert_eq!(keys.expect("complete"), [b"key/17", b"key/16", b"key/15"]);
    }
    // A scan that is given up leaves the channel to the next call.
    let mut pages = kv.scan().send().expect("begun");
    assert!(pages.next_page().expect("a page").is_some());
    drop(pages);
    assert!(kv.count().send().expect("counted").count == 41);
}

#[test]
fn a_watcher_goes_on_from_a_scan_and_from_its_own_points() {
    let server = Server::start();
    let (mut channel, mut writer) = (connect(&server), connect(&server));
    let mut kv = KeyValue::new(&mut channel);
    let mut writer = KeyValue::new(&mut writer);
    let open = kv.watch().timeout(TIMEOUT).send().expect("begun");
    // A feed that somebody has watched stays for a while.
    open.flatten().next().expect("it comes at once");
    writer.put(b"key/1", b"old").send().expect("done");
    let mut page = kv.scan().send().expect("begun");
    let mut point = page.next_page().expect("read").expect("one").resume_point();
    drop(page);
    for value in [&b"new"[..], b"newer"] {
        let put = writer.put(b"key/1", value).send().expect("done");
        writer.put(b"other", b"").send().expect("done");
        let batch = [
            operation::put(b"key/2", value).into(),
            operation::delete(b"key/1").into(),
            operation::put(b"key/1", b"old").into(),
        ];
        let batch = writer.batch(&batch).send().expect("done");
        let watch = kv.watch().range(b"key/", b"key0").resume(&point);
        let watch = watch.with_previous().timeout(TIMEOUT);
        let mut commits = Vec::new();
        for response in watch.send().expect("begun") {
            let response = response.expect("the changes are there");
            commits.extend(response.commits);
            point = response.resume;
            if point.sequence >= batch.sequence {
                break;
            }
        }
        let sequences: Vec<u64> = commits.iter().map(|commit| commit.sequence).collect();
        assert_eq!(sequences, [put.version, batch.sequence]);
        let [change] = &commits[0].changes[..] else {
            panic!("one key: {commits:?}");
        };
        assert_eq!(change.kind, ChangeKind::Set);
        assert_eq!(change.entry.key, b"key/1");
        assert_eq!(change.entry.stored.value, value);
        let keys = commits[1].changes.iter().map(|change| &change.entry.key);
        assert!(keys.eq([b"key/2", b"key/1"]), "each key once: {commits:?}");
        assert!(commits.iter().all(|commit| !commit.is_continued));
    }
    point.sequence += 1_000;
    let mut watch = kv.watch().resume(&point).send().expect("begun");
    assert_eq!(code_of(watch.next_response()), Code::OutOfRange);
}

#[test]
fn a_pipe_reports_each_batch_in_order_or_only_what_failed() {
    let server = Server::start();
    let mut channel = connect(&server);
    let mut kv = KeyValue::new(&mut channel);
    for round in 0..2 {
        let mut pipe = kv.pipe().timeout(TIMEOUT).send().expect("opened");
        for number in 0..100_u64 {
            let key = number.to_be_bytes();
            pipe.send(&[operation::put(&key, b"v").into()]);
        }
        pipe.close_send();
        let mut done = 0;
        while let Some(outcome) = pipe.next_outcome().expect("in order") {
            let PipeOutcome {
                batch_number,
                batch,
                refused: None,
                ..
            } = outcome
            else {
                panic!("{outcome:?}");
            };
            done += 1;
            assert_eq!((batch_number, outcome.done), (Some(done), done));
            assert!(batch.expect("its outcome").is_applied());
        }
        assert_eq!(done, 100, "round {round}");
        drop(pipe);

        let mut pipe = kv
            .pipe()
            .failures_only()
            .independent()
            .send()
            .expect("opened");
        pipe.send(&[
            operation::put(b"x", b"v").into(),
            operation::put(b"x", b"v").if_absent().into(),
        ]);
        pipe.send(&[]);
        let mut failed = Vec::new();
        loop {
            match pipe.poll(TIMEOUT).expect("an outcome") {
                StreamStep::Message(outcome) => {
                    failed.extend_from_slice(&outcome.result_indexes);
                    if outcome.done == 1 && outcome.batch_number.is_none() {
                        break;
                    }
                }
                StreamStep::Nothing => {}
                StreamStep::Ended => panic!("nobody has ended it"),
            }
        }
        assert_eq!(failed, [1]);
    }
}

#[test]
fn a_blob_goes_up_and_comes_down_whole_or_in_parts() {
    let folder = Folder::new("typed-blobs");
    let server = Server::durable(&folder.data(), &[]);
    let mut channel = connect(&server);
    let mut blobs = Blobs::new(&mut channel);
    let content: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number / 7) as u8)
        .collect();
    for round in 1..=2 {
        let upload = blobs.upload("a/b").content_type("text/x");
        let upload = upload.size_bytes(3_000_000).timeout(TIMEOUT);
        let stored = upload.send(&content[..]).expect("stored");
        let blob = stored.blob.expect("described");
        assert!(stored.applied);
        let told = (blob.size_bytes, &blob.content_type[..]);
        assert_eq!(told, (3_000_000, "text/x"));
        let found = blobs.stat("a/b").send().expect("found");
        assert_eq!(found, BlobStat::Blob(blob.clone()));

        let mut down = blobs.download("a/b").send().expect("begun");
        assert_eq!(down.blob().expect("a piece"), &blob);
        let mut read = Vec::new();
        down.read_to_end(&mut read).expect("all of it");
        assert!(read == content, "round {round}");
        drop(down);
        let part = blobs.download("a/b").if_version(blob.version);
        let part = part.offset(1_000_000).length_bytes(300_000);
        let mut down = part.chunk_bytes(64 << 10).send().expect("begun");
        let mut read = Vec::new();
        while let Some(piece) = down.next_piece().expect("a piece") {
            assert!(piece.len() <= 64 << 10);
            read.extend(piece);
        }
        assert!(read == content[1_000_000..1_300_000]);
    }
}

#[test]
fn blobs_are_listed_replaced_and_deleted_on_conditions() {
    let folder = Folder::new("typed-blob-conditions");
    let server = Server::durable(&folder.data(), &[]);
    let mut channel = connect(&server);
    let mut blobs = Blobs::new(&mut channel);
    let stored = blobs.upload("a/b").send(&b"one"[..]).expect("stored");
    let version = stored.blob.expect("described").version;
    let again = blobs.upload("a/b").if_version(0).send(&b"no"[..]);
    assert!(!again.expect("an outcome").applied);

    let other = blobs.download("a/b").if_version(version + 1).send();
    let Err(DownloadError::Call(error)) = other.expect("begun").next_piece() else {
        panic!("it has another version");
    };
    assert_eq!(code_of(Err::<(), _>(error)), Code::Aborted);
    let missing = blobs.download("a").send().expect("begun").next_piece();
    let Err(DownloadError::Call(error)) = missing else {
        panic!("there is none");
    };
    assert_eq!(code_of(Err::<(), _>(error)), Code::NotFound);

    blobs.upload("b").send(&b""[..]).expect("stored");
    let pages = blobs.list().prefix("a/").limit(5).send().expect("begun");
    let pages: Result<Vec<_>, _> = pages.collect();
    let names = pages.expect("complete").into_iter().flatten();
    let names: Vec<String> = names.map(|blob| blob.name).collect();
    assert_eq!(names, ["a/b"]);
    let deleted = blobs.delete("a/b").if_version(version + 1).send();
    assert!(!deleted.expect("done").deleted);
    let deleted = blobs.delete("a/b").if_version(version).send();
    assert!(deleted.expect("done").deleted);
    let missing = blobs.stat("a/b").send().expect("answered");
    assert_eq!(missing, BlobStat::Missing);
}

/// Brings so many bytes, and then an error.
struct Breaks<'a>(&'a [u8]);

impl Read for Breaks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.is_empty() {
            true => Err(std::io::Error::other("the disk is gone")),
            false => self.0.read(buffer),
        }
    }
}

#[test]
fn an_upload_that_broke_off_is_resumed_or_discarded() {
    let folder = Folder::new("typed-resumed");
    let server = Server::durable(&folder.data(), &[]);
    let mut channel = connect(&server);
    let content = vec![b'x'; 2_000_000];
    for round in 1..=2_u64 {
        let mut blobs = Blobs::new(&mut channel);
        let upload = blobs.upload("c").resumable(b"id", 0).timeout(TIMEOUT);
        let broken = upload
            .send(Breaks(&content[..1_500_000]))
            .expect_err("it breaks");
        assert!(broken.to_string().contains("the disk is gone"), "{broken}");
        // The server sees a little later that its caller is gone.
        while blobs.list_uploads().send().expect("listed")[0].is_open {
            std::thread::sleep(Duration::from_millis(5));
        }
        let uploads = blobs.list_uploads().send().expect("listed");
        assert_eq!((uploads.len(), &uploads[0].upload_id[..]), (1, &b"id"[..]));
        let unfinished = blobs.stat("c").upload_id(b"id").send().expect("answered");
        let BlobStat::Unfinished { stored_bytes } = unfinished else {
            panic!("{unfinished:?}");
        };
        assert!(stored_bytes <= 1_500_000);
        if round == 2 {
            assert_eq!(blobs.discard_uploads("c", b"id").send().expect("done"), 1);
            assert_eq!(blobs.discard_uploads("c", b"id").send().expect("done"), 0);
            continue;
        }
        let rest = &content[stored_bytes as usize..];
        let resumed = blobs.upload("c").resumable(b"id", stored_bytes).send(rest);
        let blob = resumed.expect("stored").blob.expect("described");
        assert_eq!(blob.size_bytes, 2_000_000);
        assert_eq!(blob.crc32c, crc32c::crc32c(&content));
    }
}

/// Returns the last response of a call that says how far it has come.
fn last_reply<M: Rpc>(mut progress: Replies<M, impl ReplySource>) -> Reply<M> {
    let mut last = None;
    while let Some(reply) = progress.next_reply().expect("it goes on") {
        last = Some(reply);
    }
    last.expect("it says when it is complete")
}

#[test]
fn a_database_is_created_converted_and_dropped() {
    let folder = Folder::new("typed-databases");
    let server = Server::durable(&folder.data(), &[]);
    let mut channel = connect(&server);
    for _ in 0..2 {
        let mut admin = Admin::new(&mut channel);
        let create = admin.create_database("orders").quota_bytes(1 << 20);
        let create = create.durability(DurabilityMode::Written);
        let created = create.max_value_bytes(1_000).send().expect("done");
        let response = created.message();
        let database = response.database.expect("described");
        assert_eq!((response.created, database.quota_bytes), (true, 1 << 20));
        let again = admin.create_database("orders").send().expect("done");
        assert!(!again.message().created);
        let listed = admin.list_databases().send().expect("listed");
        let databases = listed.message().databases;
        let databases = databases.iter().flatten().filter_map(|one| one.database);
        assert!(databases.map(|one| one.name).eq(["", "orders"]));

        let convert = admin.convert_database("orders", DatabaseKind::Disk);
        let last = last_reply(convert.timeout(TIMEOUT).send().expect("begun"));
        assert!(last.message().complete && last.message().converted);

        let mut orders = KeyValue::of(&mut channel, "orders");
        orders.put(b"k", b"v").send().expect("written");
        let mut admin = Admin::new(&mut channel);
        let refused = admin.drop_database("orders").send();
        assert_eq!(code_of(refused), Code::InvalidArgument);
        let dropped = admin.drop_database("orders").confirm().send();
        assert!(dropped.expect("done").message().dropped);
    }
}

#[test]
fn tokens_and_roles_are_administered() {
    let folder = Folder::new("typed-tokens");
    let server = Server::durable(&folder.data(), &[]);
    let mut channel = connect(&server);
    let mut admin = Admin::new(&mut channel);
    let token = admin.create_token("ci", &["read:orders"]);
    let token = token.expires_after(TIMEOUT).send().expect("made");
    assert!(token.message().token.reveal().starts_with("pelton_"));
    let shown = format!("{token:?}");
    assert!(!shown.contains("pelton_"), "it is not shown by accident");
    let rotated = admin.rotate_token("ci").keep_for(TIMEOUT).send();
    assert!(rotated.expect("made").message().token != token.message().token);
    let tokens = admin.list_tokens().send().expect("listed");
    assert_eq!(tokens.message().tokens.len(), 1);
    admin.revoke_token("ci").send().expect("revoked");
    assert_eq!(code_of(admin.revoke_token("ci").send()), Code::NotFound);

    let created = admin.set_role("team", &["write:orders"]).send();
    assert!(created.expect("set").message().created);
    let roles = admin.list_roles().send().expect("listed");
    assert_eq!(roles.message().roles.len(), 1);
    admin.drop_role("team").send().expect("dropped");
    assert_eq!(code_of(admin.drop_role("team").send()), Code::NotFound);
}

#[test]
fn a_backup_and_a_snapshot_say_when_they_are_complete() {
    let folder = Folder::new("typed-backup");
    let root = folder.0.join("backups");
    let root = root.to_str().expect("it is text");
    let server = Server::durable(&folder.data(), &["--backup-root", root]);
    let mut channel = connect(&server);
    let mut admin = Admin::new(&mut channel);
    let last = last_reply(admin.backup("one").timeout(TIMEOUT).send().expect("begun"));
    assert!(last.message().complete);
    let snapshot = admin.snapshot().send().expect("made");
    assert!(snapshot.message().bytes > 0);
    let statistics = admin.statistics().send().expect("there");
    assert!(statistics.message().uptime_ms > 0);
}
