//! A store with blobs on a simulated disk, and a room above one call at a time.

use std::ops::ControlFlow;
use std::sync::Arc;

use store::blob::{Description, Owner, split_key};
use store::durable::{CommitLoop, Mailbox, Opened};
use store::{
    DatabaseId, Direction, Durability, Outcomes, Range, ReadView, ReplicaSetChange, Store,
    StoreConfig, VolatileCommitter,
};
use testkit::suite::StandingClock;
use wal::disk::{Disk, SimulatedDisk};
use wal::{LogConfig, LogId};

use crate::call::Shared;
use crate::fake::{Fake, Headers, Sent, shared};
use crate::method::Method;
use api::admin::{CreateDatabaseRequest, DatabaseDescription};

/// A server with a data folder.
pub(crate) struct Bench {
    pub(crate) shared: Shared,
    pub(crate) disk: SimulatedDisk,
    commit_loop: CommitLoop,
    mailbox: Mailbox,
    committer: VolatileCommitter,
}

struct Nobody;

impl Owner for Nobody {
    // It goes when its name is taken; its call hears of that from the committer first.
    fn lost(&self, _why: store::blob::UploadError) {}
}

pub(crate) fn config() -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    config.blobs.free_bytes = 0;
    config
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(config())
    }

    /// A server that has none.
    pub(crate) fn volatile() -> Bench {
        Bench {
            shared: shared(),
            ..Bench::new()
        }
    }

    pub(crate) fn with(config: StoreConfig) -> Bench {
        let disk = testkit::simulated_disk(1);
        let id = LogId {
            history: 1,
            secret: 2,
        };
        let log = LogConfig {
            segment_bytes: 64 * 1024,
            ..LogConfig::new(id, 1)
        };
        let opened = Store::open(config, Arc::new(disk.clone()), &log);
        let Opened {
            store, committer, ..
        } = opened.expect("an empty disk can be used");
        let commit_loop = CommitLoop::new(committer);
        Bench {
            disk,
            mailbox: commit_loop.register(Box::new(|| ())),
            commit_loop,
            committer: store.committer(),
            shared: Shared { store, ..shared() },
        }
    }

    /// Does all that a call has asked for.
    pub(crate) fn work(&mut self, fake: &mut Fake) {
        self.work_for(fake, &(Arc::new(Nobody) as Arc<dyn Owner>));
    }

    /// Does it as the peer takes more and more, and nothing while it takes nothing; returns what
    /// the call sends to its end.
    pub(crate) fn sent_as_room_comes(&mut self, fake: &mut Fake) -> Vec<Sent> {
        let mut sent = Vec::new();
        while !fake.actions.is_over {
            self.work(fake);
            assert_eq!(fake.take_sent(), [], "its windows are shut");
            fake.actions.room = 100_000;
            fake.writable(&self.shared);
            self.work(fake);
            let before = sent.len();
            sent.append(&mut fake.take_sent());
            assert!(sent.len() > before);
        }
        sent
    }

    /// The same for a call whose uploads belong to `owner`.
    pub(crate) fn work_for(&mut self, fake: &mut Fake, owner: &Arc<dyn Owner>) {
        let mut clock = StandingClock { now_ms: 1_000 };
        while !fake.actions.is_over {
            if let Some(work) = fake.actions.work.take() {
                let blobs = self.shared.store.blobs().expect("there is a log");
                fake.blob(work.run(blobs, owner), &self.shared);
                continue;
            }
            if fake.actions.wanted_read.is_some() {
                self.read(fake);
                continue;
            }
            if fake.actions.changes.is_empty() {
                return;
            }
            let mut outcomes = Outcomes::new();
            let changes = &mut fake.actions.changes;
            drop(self.committer.run(changes, &mut clock, &mut outcomes));
            self.mailbox.submit(&mut fake.actions.changes);
            self.commit_loop.round(&mut clock);
            assert!(self.mailbox.take(&mut outcomes), "it was decided");
            for outcome in outcomes.iter() {
                let sealed = fake.actions.sealed.take().map(|sealed| *sealed);
                let blobs = self.shared.store.blobs().expect("there is a log");
                blobs.settle(&outcome, sealed);
                fake.committed(&outcome, &self.shared);
            }
        }
    }

    /// Has the replicas that count changed.
    pub(crate) fn change_replica_set(&mut self, changes: &[ReplicaSetChange]) {
        let store = &self.shared.store;
        let mut batch = store.write_batch();
        let changed = store.change_replica_set(&mut batch, changes);
        changed.expect("it fits");
        self.mailbox.submit(&mut batch);
        self.commit_loop.round(&mut StandingClock { now_ms: 1_000 });
        assert!(self.mailbox.take(&mut Outcomes::new()), "it was decided");
    }

    /// Lets the committer do what it finds to be done of these.
    pub(crate) fn commit_changes(&mut self) {
        for _ in 0..20 {
            self.commit_loop.round(&mut StandingClock { now_ms: 1_000 });
        }
    }

    /// Shows a call the descriptions of blobs that it has asked for.
    pub(crate) fn read(&self, fake: &mut Fake) {
        let key = fake.actions.wanted_read.take();
        let key = key.expect("the call has asked to read");
        let view = self.shared.store.view(DatabaseId::BLOBS).expect("is there");
        fake.read(&ReadView::memory(&view), &key, &self.shared);
    }

    /// Makes a call with one request, serves it to its end, and answers with what came back.
    pub(crate) fn call(&mut self, method: Method, request: &[u8]) -> Vec<Sent> {
        let mut fake = Fake::new(method, &self.shared);
        fake.message(request, true, &self.shared);
        self.work(&mut fake);
        assert!(fake.actions.is_over, "the call waits for nothing");
        fake.take_sent()
    }

    /// Makes a plain request of this path, with these headers beside it and this content.
    pub(crate) fn request(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        content: &[u8],
    ) -> Vec<Sent> {
        let owned = |(name, value): &(&str, &str)| (Vec::from(*name), Vec::from(*value));
        let mut headers = Headers(headers.iter().map(owned).collect());
        headers.0.push((b":path".into(), path.into()));
        let mut fake = Fake::with_metadata(method, &headers, &self.shared);
        if !fake.actions.is_over {
            fake.message(content, true, &self.shared);
        }
        self.work(&mut fake);
        assert!(fake.actions.is_over, "the call waits for nothing");
        fake.take_sent()
    }

    /// Stores a blob in the default database.
    pub(crate) fn put(&mut self, name: &str, content: &[u8]) {
        let path = format!("/blob/{name}");
        let sent = self.request(Method::HttpBlobPut, &path, &[], content);
        assert!(matches!(sent[..], [Sent::Plain { status: 201, .. }]));
    }

    /// Makes a database that can have blobs.
    pub(crate) fn create_database(&mut self, name: &str) {
        let mut request = Vec::new();
        let database = DatabaseDescription {
            name,
            ..DatabaseDescription::default()
        };
        let database = Some(database);
        CreateDatabaseRequest { database }.encode(&mut request);
        let sent = self.call(Method::AdminCreateDatabase, &request);
        assert!(matches!(sent[..], [Sent::Response(_)]), "{sent:?}");
    }

    /// Uploads messages, whatever they are, and answers with what came back.
    pub(crate) fn upload(&mut self, method: Method, messages: &[&[u8]]) -> Vec<Sent> {
        let mut fake = Fake::new(method, &self.shared);
        for message in messages {
            self.work(&mut fake);
            if !fake.actions.is_over {
                fake.message(message, false, &self.shared);
            }
        }
        if !fake.actions.is_over {
            fake.half_closed(&self.shared);
        }
        self.work(&mut fake);
        fake.take_sent()
    }

    /// All blobs, by name.
    pub(crate) fn kept(&self) -> Vec<(String, Vec<u8>)> {
        let view = self.shared.store.view(DatabaseId::BLOBS).expect("is there");
        let mut keys = Vec::new();
        view.scan(&Range::ALL, Direction::Forward, 0, 1_000, &mut |entry| {
            keys.push(entry.key.to_vec());
            ControlFlow::Continue(())
        });
        let read = |key: &Vec<u8>| {
            let hash = self.shared.store.hasher().hash(key);
            let entry = view.get(key, hash, 0).expect("it was just seen");
            let description = Description::decode(entry.value.bytes()).expect("it was encoded");
            let blobs = self.shared.store.blobs().expect("there is a log");
            let content = blobs.open_content(&description);
            let bytes = usize::try_from(content.size_bytes()).expect("tests are small");
            let (database, name) = split_key(key).expect("it is one");
            assert_eq!(database, DatabaseId::DEFAULT);
            let piece = content.read(0, bytes).expect("it is whole");
            (name.to_owned(), piece.bytes.to_vec())
        };
        keys.iter().map(read).collect()
    }

    /// That nothing is kept, and nothing lies about.
    pub(crate) fn expect_nothing(&self) {
        assert_eq!(self.kept(), []);
        let folder = self.disk.subfolder("blobs").expect("it can be opened");
        assert_eq!(folder.list().expect("it can be listed"), [""; 0]);
        let blobs = self.shared.store.blobs().expect("there is a log");
        assert_eq!(blobs.statistics().used.unfinished, 0);
    }
}
