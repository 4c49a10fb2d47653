//! Blobs on a simulated disk: what is stored, resumed, replaced, deleted and collected, and what a
//! loss of power at every step leaves. Here is what the tests share.

mod backups;
mod bounds;
mod contents;
mod peers;
mod power;
mod settling;

use std::sync::{Arc, Mutex};

use store::blob::{
    Begin, BlobStore, Chunk, ContentEnd, ContentReadError, Description, Owner, Sealed, Upload,
    UploadError, UploadPeer, key,
};
use store::durable::OpenError;
use store::{
    Condition, DatabaseConfig, DatabaseId, Decision, Durability, Mode, Operation, OperationStatus,
    Outcomes, StoreConfig,
};
use testkit::Random;
use testkit::suite::StandingClock;
use wal::disk::{Disk as _, SimulatedDisk};

use crate::bench::Durable;

const DATABASE: DatabaseId = DatabaseId::DEFAULT;

pub fn config() -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    config.blobs.free_bytes = 0;
    config.blobs.sync_bytes = 100_000;
    config
}

/// A store whose blobs are used by hand.
pub struct Bench {
    pub durable: Durable,
    pub clock: StandingClock,
}

#[derive(Default)]
struct Told(Mutex<Vec<UploadError>>, UploadPeer);

impl Told {
    fn of(peer: UploadPeer) -> Arc<Told> {
        Arc::new(Told(Mutex::default(), peer))
    }

    /// What it was told since it was last asked.
    fn take(&self) -> Vec<UploadError> {
        std::mem::take(&mut self.0.lock().expect("no test has panicked"))
    }
}

impl Owner for Told {
    fn lost(&self, why: UploadError) {
        self.0.lock().expect("no test has panicked").push(why);
    }

    fn peer(&self) -> UploadPeer {
        self.1
    }
}

fn begin(name: &str, upload_id: &str, offset: u64) -> Begin {
    Begin {
        database: DATABASE,
        name: name.into(),
        upload_id: upload_id.as_bytes().into(),
        offset,
        size_bytes: None,
        content_type: "text/plain".into(),
        now_ms: 1_000,
    }
}

/// Bytes that differ in all places from those of another seed.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes.div_ceil(8))
        .flat_map(|_| random.number().to_le_bytes())
        .take(bytes)
        .collect()
}

fn chunk(data: &[u8]) -> Chunk {
    Chunk {
        is_open: false,
        bytes: data.len(),
        crc32c: Some(crc32c(data)),
    }
}

/// Bit by bit, so that it is not what it checks.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}

impl Bench {
    pub fn open(config: StoreConfig, disk: &SimulatedDisk) -> Result<Bench, OpenError> {
        Ok(Bench {
            durable: Durable::open(config, disk)?,
            clock: StandingClock { now_ms: 1_000 },
        })
    }

    /// A second database.
    fn create_other(&mut self) -> DatabaseId {
        let mut batch = self.durable.store.write_batch();
        let synced = DatabaseConfig {
            durability: Durability::Synced,
            ..DatabaseConfig::default()
        };
        batch.create_database(1, "other", &synced);
        self.commit(batch, None).expect("it is made");
        let made = self.durable.store.database("other");
        made.expect("it was made")
    }

    pub fn blobs(&self) -> &Arc<BlobStore> {
        self.durable.store.blobs().expect("there is a log")
    }

    fn start(&self, begin: &Begin) -> Result<Upload, UploadError> {
        self.blobs().begin_upload(begin, Arc::new(Told::default()))
    }

    /// Uploads in chunks. An error leaves what is stored.
    fn upload(&mut self, name: &str, data: &[u8], chunk_bytes: usize) -> Result<Decided, String> {
        let upload = self.start(&begin(name, "", 0)).map_err(text)?;
        for data in data.chunks(chunk_bytes) {
            upload.write(data, &[chunk(data)], 1_000).map_err(text)?;
        }
        let sealed = upload.finish(&end_of(data), 2_000).map_err(text)?;
        self.describe(name, sealed, Condition::None)
    }

    /// Uploads and describes a blob.
    pub fn store(&mut self, name: &str, data: &[u8]) {
        let decided = self.upload(name, data, data.len().max(1));
        assert_eq!(decided, Ok(Some(OperationStatus::Done)), "{name}");
    }

    fn describe(
        &mut self,
        name: &str,
        mut sealed: Sealed,
        condition: Condition<'_>,
    ) -> Result<Decided, String> {
        let mut batch = self.durable.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::BLOBS, Mode::Independent);
        let pushed = sealed.with_operation(name, condition, |operation| commit.push(operation));
        pushed.map_err(text)?;
        commit.submit();
        self.commit(batch, Some(sealed))
    }

    /// Has an upload described while nobody is left to hear of it.
    fn describe_unheard(&mut self, name: &str, mut sealed: Sealed) -> Result<Decided, String> {
        let mut batch = self.durable.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::BLOBS, Mode::Independent);
        let pushed = sealed.with_operation(name, Condition::None, |put| commit.push(put));
        pushed.map_err(text)?;
        commit.submit();
        drop(sealed);
        self.commit(batch, None)
    }

    /// Shows a description that never comes to the committer.
    fn forget_description(&mut self, name: &str, mut sealed: Sealed) {
        let mut batch = self.durable.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::BLOBS, Mode::Independent);
        let pushed = sealed.with_operation(name, Condition::None, |put| commit.push(put));
        pushed.expect("it fits");
        commit.submit();
    }

    pub fn delete(&mut self, name: &str) -> Result<Decided, String> {
        let mut batch = self.durable.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::BLOBS, Mode::Independent);
        let pushed = commit.push(&Operation::Delete {
            key: &key(DATABASE, name),
            condition: Condition::None,
            want_previous: true,
        });
        pushed.map_err(text)?;
        commit.submit();
        self.commit(batch, None)
    }

    fn commit(
        &mut self,
        mut batch: store::WriteBatch,
        mut sealed: Option<Sealed>,
    ) -> Result<Decided, String> {
        let mut outcomes = Outcomes::new();
        (self.durable).submit(&mut batch, &mut self.clock, &mut outcomes);
        while self.durable.commit_loop.round(&mut self.clock) {}
        let mut decided = Err("no outcome".to_owned());
        while self.durable.mailbox.take(&mut outcomes) {
            for outcome in outcomes.iter() {
                self.blobs().settle(&outcome, sealed.take());
                decided = match outcome.decision {
                    Decision::Refused(refusal) => Err(format!("{refusal:?}")),
                    _ => Ok(outcome.first().map(|one| one.status)),
                };
            }
        }
        decided
    }

    /// Commits while nobody is left to hear of the outcome.
    fn commit_unheard(&mut self, mut batch: store::WriteBatch) {
        let mut outcomes = Outcomes::new();
        (self.durable).submit(&mut batch, &mut self.clock, &mut outcomes);
        while self.durable.commit_loop.round(&mut self.clock) {}
    }

    /// What is visible under a name, read whole.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let read = self.try_read(name);
        read.expect("it is whole")
    }

    pub fn try_read(&self, name: &str) -> Result<Option<Vec<u8>>, ContentReadError> {
        let store = &self.durable.store;
        let view = store.view(DatabaseId::BLOBS).expect("it is always there");
        let key = key(DATABASE, name);
        let Some(entry) = view.get(&key, store.hasher().hash(&key), 1_000) else {
            return Ok(None);
        };
        let description = Description::decode(entry.value.bytes()).expect("it was encoded");
        let content = self.blobs().open_content(&description);
        drop(view);
        let size_bytes = description_size(&content);
        let piece = content.read(0, size_bytes)?;
        assert_eq!(piece.bytes.len(), size_bytes);
        Ok(Some(piece.bytes.to_vec()))
    }

    fn files(&self, disk: &SimulatedDisk) -> Vec<String> {
        let folder = disk.subfolder("blobs").expect("it can be opened");
        folder.list().expect("it can be listed")
    }
}

fn description_size(content: &store::blob::Content) -> usize {
    usize::try_from(content.size_bytes()).expect("tests are small")
}

type Decided = Option<OperationStatus>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn end_of(data: &[u8]) -> ContentEnd {
    ContentEnd {
        crc32c: Some(crc32c(data)),
        sha256: None,
    }
}
