//! Gets and Puts as a gateway makes them, by the driver alone: see peers/README.md for the flags
//! and the line of JSON.
//!
//! `--face` is the promise and the call, such as `linearizable-put`; `--method` is not used. Each
//! promise has a keyspace, whose default database has it, and [`BUCKETS`] buckets. A task for each
//! call in flight, prepared statements, and the policies that the driver has by default: the way of
//! its documentation. No call has a deadline.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use closed_loop::{Measurement, Options, Phase, Random, Recorder, key};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency;
use scylla::statement::SerialConsistency;
use scylla::statement::prepared::PreparedStatement;
use tokio::task::JoinSet;
use twox_hash::XxHash3_64;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Buckets of the database, as `script/bench scale` makes it.
const BUCKETS: u64 = 256;

/// The number of the default database.
const DATABASE: i32 = 0;

const VALUE_BYTES: usize = 32;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Face {
    LinearizableGet,
    LinearizablePut,
    QuorumGet,
    QuorumPut,
}

impl Face {
    fn of(name: &str) -> Result<Face, AnyError> {
        match name {
            "linearizable-get" => Ok(Face::LinearizableGet),
            "linearizable-put" => Ok(Face::LinearizablePut),
            "quorum-get" => Ok(Face::QuorumGet),
            "quorum-put" => Ok(Face::QuorumPut),
            _ => Err(format!("no such call: {name}").into()),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Face::LinearizableGet => {
                "SELECT key, value, version, expires_ms FROM bench_linearizable.linearizable \
                 WHERE database = ? AND bucket = ? AND key IN ?"
            }
            Face::LinearizablePut => {
                "UPDATE bench_linearizable.linearizable USING TTL ? \
                 SET value = ?, version = ?, expires_ms = ?, bytes = ? \
                 WHERE database = ? AND bucket = ? AND key = ? IF version != -1"
            }
            Face::QuorumGet => {
                "SELECT key, head, entry FROM bench_quorum.quorum \
                 WHERE database = ? AND bucket = ? AND key IN ?"
            }
            Face::QuorumPut => {
                "INSERT INTO bench_quorum.quorum (database, bucket, key, head, entry) \
                 VALUES (?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?"
            }
        }
    }

    fn consistency(self) -> Consistency {
        match self {
            Face::LinearizableGet => Consistency::Serial,
            _ => Consistency::Quorum,
        }
    }
}

/// What all calls share.
struct Caller {
    session: Session,
    statement: PreparedStatement,
    face: Face,
    keys: u64,
    /// Microseconds since 1970; each write takes the next one.
    clock: AtomicU64,
}

impl Caller {
    async fn connect(options: &Options) -> Result<Caller, AnyError> {
        let face = Face::of(&options.face)?;
        let builder = SessionBuilder::new().known_node(&options.address);
        let session = builder.build().await?;
        let mut statement = session.prepare(face.text()).await?;
        statement.set_consistency(face.consistency());
        statement.set_serial_consistency(Some(SerialConsistency::Serial));
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok(Caller {
            session,
            statement,
            face,
            keys: options.keys,
            clock: AtomicU64::new(now.as_micros() as u64),
        })
    }

    async fn call(&self, random: &mut Random) -> Result<(), String> {
        let key = key(random.below(self.keys));
        let bucket = (u128::from(XxHash3_64::oneshot(&key)) * u128::from(BUCKETS)) >> 64;
        let bucket = bucket as i32;
        let outcome = match self.face {
            Face::LinearizableGet | Face::QuorumGet => self.get(bucket, &key).await,
            Face::LinearizablePut => self.put(bucket, &key).await,
            Face::QuorumPut => self.put_quorum(bucket, &key).await,
        };
        outcome.map_err(|error| error.to_string())
    }

    async fn get(&self, bucket: i32, key: &[u8]) -> Result<(), AnyError> {
        let keys = [key];
        let values = (DATABASE, bucket, keys.as_slice());
        let result = self
            .session
            .execute_unpaged(&self.statement, values)
            .await?
            .into_rows_result()?;
        let is_found = match self.face {
            Face::LinearizableGet => {
                let row: Option<(&[u8], &[u8], i64, i64)> = result.maybe_first_row()?;
                row.is_some_and(|row| row.1.len() == VALUE_BYTES)
            }
            _ => {
                let row: Option<(&[u8], &[u8], &[u8])> = result.maybe_first_row()?;
                row.is_some_and(|row| row.2.len() == 8 + VALUE_BYTES)
            }
        };
        is_found
            .then_some(())
            .ok_or_else(|| "the key was not found".into())
    }

    async fn put(&self, bucket: i32, key: &[u8]) -> Result<(), AnyError> {
        let version = (self.now_us() << 10).cast_signed();
        let value = [b'v'; VALUE_BYTES];
        let values = (
            0_i32,
            value.as_slice(),
            version,
            0_i64,
            VALUE_BYTES as i32,
            DATABASE,
            bucket,
            key,
        );
        let result = self
            .session
            .execute_unpaged(&self.statement, values)
            .await?;
        let result = result.into_rows_result()?;
        // If it is not, the answer has more columns, which is an error here.
        let (is_applied,): (bool,) = result.first_row()?;
        is_applied
            .then_some(())
            .ok_or_else(|| "the write was not applied".into())
    }

    async fn put_quorum(&self, bucket: i32, key: &[u8]) -> Result<(), AnyError> {
        let now_us = self.now_us();
        let version = (now_us << 10).to_be_bytes();
        let mut head = [0; 24];
        head[..8].copy_from_slice(&version);
        head[16..].copy_from_slice(&(VALUE_BYTES as u64).to_be_bytes());
        let mut entry = [b'v'; 8 + VALUE_BYTES];
        entry[..8].copy_from_slice(&version);
        let values = (
            DATABASE,
            bucket,
            key,
            head.as_slice(),
            entry.as_slice(),
            0_i32,
            now_us.cast_signed(),
        );
        self.session
            .execute_unpaged(&self.statement, values)
            .await?;
        Ok(())
    }

    fn now_us(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

/// Keeps one call in flight.
async fn place(measurement: Arc<Measurement>, caller: Arc<Caller>, mut random: Random) -> Recorder {
    let mut recorder = Recorder::default();
    while measurement.phase() != Phase::Drain {
        let begun = Instant::now();
        let outcome = caller.call(&mut random).await;
        recorder.record(measurement.phase(), begun, outcome);
    }
    recorder
}

async fn run(options: Options) -> Result<bool, AnyError> {
    let caller = Arc::new(Caller::connect(&options).await?);
    let measurement = Arc::new(Measurement::default());
    let mut places = JoinSet::new();
    for number in 0..options.in_flight {
        let random = Random::new(number as u64 + 1);
        places.spawn(place(measurement.clone(), caller.clone(), random));
    }
    tokio::time::sleep(options.warm_up).await;
    let begin = measurement.begin(&options)?;
    tokio::time::sleep(options.duration).await;
    let period = measurement.end(&options, &begin)?;
    let mut recorder = Recorder::default();
    while let Some(ended) = places.join_next().await {
        recorder.add(ended?);
    }
    Ok(recorder.print("scylla driver", &options, &period))
}

fn main() -> ExitCode {
    let outcome = closed_loop::parse()
        .map_err(|error| AnyError::from(error.to_string()))
        .and_then(|options| {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(options.threads)
                .enable_all()
                .build()?;
            runtime.block_on(run(options))
        });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("cassandra-direct: {error}");
            ExitCode::from(2)
        }
    }
}
