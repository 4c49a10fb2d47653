//! A client of the log that remembers what it was promised.
#![allow(dead_code)] // Each test file uses its part of it.

use std::sync::Arc;

use testkit::Random;
use wal::disk::{Disk, SimulatedDisk};
use wal::{
    GroupBuffer, LogConfig, LogId, LogOpenError, LogWriter, OpenLog, RawRecord, RecordError,
    Recovered, SegmentRetention, SegmentStock, WriteError,
};

pub const SEGMENT_BYTES: u64 = 8 * 1024;

/// The kind of records with a key and a value.
pub const SET: u8 = 1;

/// The kinds that the tests' reader knows.
const KINDS: std::ops::RangeInclusive<u8> = 1..=8;

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub sequence: u64,
    pub origin: u32,
    pub kind: u8,
    pub expires_ms: u64,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Owned {
    pub fn of(record: &RawRecord<'_>) -> Owned {
        assert_eq!(record.database, 0);
        Owned {
            sequence: record.sequence,
            origin: record.origin,
            kind: record.kind,
            expires_ms: record.expires_ms,
            key: record.key.into(),
            value: record.value.into(),
        }
    }

    pub fn record(&self) -> RawRecord<'_> {
        RawRecord {
            sequence: self.sequence,
            database: 0,
            origin: self.origin,
            kind: self.kind,
            expires_ms: self.expires_ms,
            key: &self.key,
            value: &self.value,
        }
    }

    pub fn random(random: &mut Random, sequence: u64, largest_value: usize) -> Owned {
        let kinds = [SET, 2, 3, 4, 5, 6];
        let lens = [0, 1, 16, 200];
        let value_lens = [0, 1, 32, 333, 352, 353, largest_value];
        let (key_len, value_len) = (random.pick(&lens), random.pick(&value_lens));
        let mut bytes = |len: usize| (0..len).map(|_| random.number() as u8).collect();
        let (key, value) = (bytes(key_len), bytes(value_len.min(largest_value)));
        Owned {
            sequence,
            origin: random.below(3) as u32,
            kind: random.pick(&kinds),
            expires_ms: random.pick(&[0, 1, u64::MAX]),
            key,
            value,
        }
    }
}

/// A record that sets the one key of tests that need no other.
pub fn set(sequence: u64, value_bytes: usize) -> Owned {
    Owned {
        sequence,
        origin: 0,
        kind: SET,
        expires_ms: 0,
        key: b"key".into(),
        value: vec![sequence as u8; value_bytes],
    }
}

/// The files that end so.
pub fn names(disk: &SimulatedDisk, suffix: &str) -> Vec<String> {
    let names = disk.list().expect("the disk is whole");
    let ends_so = |name: &String| name.ends_with(suffix);
    names.into_iter().filter(ends_so).collect()
}

pub fn log_id(number: u64) -> LogId {
    LogId {
        history: number,
        secret: !number,
    }
}

pub fn config(now_ms: u64) -> LogConfig {
    LogConfig {
        segment_bytes: SEGMENT_BYTES,
        ..LogConfig::new(log_id(7), now_ms)
    }
}

/// Opens and gives the records that are not marks.
pub fn open_with(
    disk: &SimulatedDisk,
    config: &LogConfig,
) -> Result<(LogWriter, SegmentStock, Recovered, Vec<Owned>), LogOpenError> {
    let mut records = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let OpenLog {
        log,
        stock,
        recovered,
    } = wal::open(disk, config, &mut |record| {
        if !KINDS.contains(&record.kind) {
            return Err(RecordError::Kind(record.kind));
        }
        if record.kind != RawRecord::MARK {
            records.push(Owned::of(record));
        }
        Ok(())
    })?;
    Ok((log, stock, recovered, records))
}

pub fn open(disk: &SimulatedDisk) -> (LogWriter, SegmentStock, Recovered, Vec<Owned>) {
    open_with(disk, &config(1)).unwrap_or_else(|error| panic!("{error}"))
}

/// What a log must hold.
#[derive(Debug, Default)]
pub struct Promise {
    /// The groups that were handed to the log, in order: those that a loss took back are gone for
    /// ever.
    pub groups: Vec<Vec<Owned>>,
    /// How many of them were reported written.
    pub written: usize,
    /// How many of them were reported durable.
    pub durable: usize,
    /// What lies up to this sequence may be gone, since every index has it.
    pub retired_sequence: u64,
    /// The highest sequence given out.
    pub given: u64,
}

impl Promise {
    /// Checks what a start found, when everything up to the `kept`-th group had to be there; it is
    /// the truth from then on.
    pub fn check(&mut self, recovered: &Recovered, records: &[Owned], kept: usize) {
        let first = records.first().map(|record| record.sequence);
        let begin = match first {
            Some(first) => self
                .groups
                .iter()
                .position(|group| group[0].sequence == first)
                .expect("what is recovered begins with a group that was written"),
            None => kept,
        };
        let gone = &self.groups[..begin];
        for group in gone {
            let last = group.last().expect("no group is empty").sequence;
            assert!(
                last <= self.retired_sequence,
                "a group ending with {last} is lost at the beginning"
            );
            assert!(
                last < recovered.first_sequence,
                "the log claims to cover it"
            );
        }
        let mut rest = records;
        let mut found = begin;
        while !rest.is_empty() {
            let group = self.groups.get(found).expect("more than was written");
            assert!(rest.len() >= group.len(), "half a group");
            assert_eq!(rest[..group.len()], group[..], "group {found}");
            rest = &rest[group.len()..];
            found += 1;
        }
        assert!(found >= kept, "{found} groups are there, {kept} had to be");
        assert!(
            recovered.next_sequence > self.given,
            "sequence {} is given out twice",
            recovered.next_sequence
        );
        self.groups.truncate(found);
        (self.written, self.durable) = (found, found);
        self.given = recovered.next_sequence - 1;
    }
}

/// Loses power, and checks what a start finds then.
pub fn check_after_power_loss(disk: &SimulatedDisk, promise: &mut Promise) {
    disk.lose_power();
    Client::start(disk, promise, true).unwrap_or_else(|error| panic!("{error}"));
}

/// A client in one run of the process.
pub struct Client<'a> {
    pub log: LogWriter,
    pub stock: SegmentStock,
    pub promise: &'a mut Promise,
    pub next_sequence: u64,
    pub now_ms: u64,
    buffer: GroupBuffer,
}

impl<'a> Client<'a> {
    /// Starts, and checks what is there: everything durable, or everything written if only the
    /// process had died.
    pub fn start(
        disk: &SimulatedDisk,
        promise: &'a mut Promise,
        power_was_lost: bool,
    ) -> Result<Client<'a>, LogOpenError> {
        let (log, stock, recovered, records) = open_with(disk, &config(1))?;
        let kept = if power_was_lost {
            promise.durable
        } else {
            promise.written
        };
        promise.check(&recovered, &records, kept);
        assert!(log.durable().sequence == recovered.next_sequence - 1);
        Ok(Client {
            log,
            stock,
            promise,
            next_sequence: recovered.next_sequence,
            now_ms: recovered.wall_ms,
            buffer: GroupBuffer::new(),
        })
    }

    /// Starts on an empty disk.
    pub fn begin(disk: &SimulatedDisk, promise: &'a mut Promise) -> Client<'a> {
        Client::start(disk, promise, true).expect("an empty disk")
    }

    /// Starts on an empty disk, and writes many segments.
    pub fn with_segments(disk: &SimulatedDisk, promise: &'a mut Promise) -> Client<'a> {
        let mut client = Client::begin(disk, promise);
        for _ in 0..40 {
            assert!(client.prepare());
            client.put_synced(900);
        }
        client
    }

    /// Hands a group to the log. Not written for want of room: not promised either.
    pub fn write(&mut self, group: Vec<Owned>) -> Result<(), WriteError> {
        for record in &group {
            self.buffer.push(&record.record());
        }
        self.promise.groups.push(group);
        match self.log.write_group(&mut self.buffer, self.now_ms) {
            Ok(_) => {
                self.promise.written = self.promise.groups.len();
                Ok(())
            }
            Err(error) => {
                if matches!(error, WriteError::NoRoom { .. }) {
                    self.promise.groups.pop();
                    self.buffer.clear();
                }
                Err(error)
            }
        }
    }

    /// Writes one record with a value of this size.
    pub fn put(&mut self, value_bytes: usize) -> Result<(), WriteError> {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.promise.given = sequence;
        self.write(vec![set(sequence, value_bytes)])
    }

    /// Writes one record with a value of this size, and has it synced.
    pub fn put_synced(&mut self, value_bytes: usize) {
        self.put(value_bytes).expect("there is room");
        self.sync().expect("the disk is whole");
    }

    pub fn sync(&mut self) -> Result<(), WriteError> {
        self.log.sync()?;
        self.promise.durable = self.promise.written;
        Ok(())
    }

    /// A group of random commits.
    pub fn random_group(&mut self, random: &mut Random, largest_value: usize) -> Vec<Owned> {
        let mut group = Vec::new();
        for _ in 0..1 + random.below(3) {
            // Some sequences belong to others.
            let sequence = self.next_sequence + random.below(3) as u64;
            for _ in 0..1 + random.below(3) {
                group.push(Owned::random(random, sequence, largest_value));
            }
            self.next_sequence = sequence + 1;
        }
        self.promise.given = self.promise.given.max(self.next_sequence - 1);
        group
    }

    /// Makes the next segment ready, if there is none. Whether there is one now.
    pub fn prepare(&mut self) -> bool {
        let Some(wanted) = self.log.wanted_segment() else {
            return true;
        };
        match self.stock.prepare(wanted) {
            Ok(segment) => {
                self.log.take_segment(segment);
                true
            }
            Err(_) => false,
        }
    }

    /// Lets go what lies up to a sequence.
    pub fn retire(&mut self, sequence: u64) {
        let sequence = sequence.min(self.log.durable().sequence);
        self.promise.retired_sequence = self.promise.retired_sequence.max(sequence);
        let retired = self.log.retire_through(sequence, SegmentRetention::NONE);
        // An error keeps them where they are.
        let _ = self.stock.retire(retired);
    }

    /// Random work, until an error or the end. Whether the log was closed.
    pub fn work(mut self, random: &mut Random, steps: usize) -> bool {
        for _ in 0..steps {
            self.now_ms += random.below(3) as u64;
            let result = match random.below(10) {
                0..6 => {
                    let largest = if random.once_in(40) { 12_000 } else { 900 };
                    let group = self.random_group(random, largest);
                    self.write(group)
                }
                6 => {
                    let back = random.below(30) as u64;
                    self.retire(self.log.durable().sequence.saturating_sub(back));
                    Ok(())
                }
                _ => self.sync(),
            };
            match result {
                Ok(()) | Err(WriteError::NoRoom { .. }) => {}
                Err(_) => return false,
            }
            self.prepare();
        }
        if random.once_in(2) {
            return false;
        }
        let (written, last) = (self.promise.written, self.promise.given);
        let closed = self.log.close(last, self.now_ms).is_ok();
        if closed {
            self.promise.durable = written;
        }
        closed
    }
}
