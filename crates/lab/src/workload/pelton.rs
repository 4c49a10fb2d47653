//! Calls of `pelton.v1.KeyValue`.

use std::fmt;
use std::str::FromStr;

use api::keyvalue::{
    self, AppendOperation, AppendRequest, AppendResponse, BatchMode, BatchRequest, BatchResponse,
    DeleteOperation, DeleteRequest, DeleteResponse, GetOperation, GetRequest, GetResponse,
    IncrementOperation, IncrementRequest, IncrementResponse, OperationBody, OperationKind,
    PipeAnswers, PipeRequest, PipeResponse, PutOperation, PutRequest, PutResponse,
};
use client::SharedBytes;
use protobuf::writer;

use super::Workload;
use crate::keys::{Distribution, KeyChooser, KeyFormat};
use crate::limits;
use crate::random::Random;
use crate::values::{ValueSizes, Values};
use crate::verdict::Verdict;

/// Which operations in which proportion: `get=90,put=10`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Operations with their shares in percent, which add up to 100.
    shares: Vec<(OperationKind, u64)>,
}

impl Mix {
    /// Whether keys are read, so that it matters whether they are there.
    pub fn has_gets(&self) -> bool {
        self.shares
            .iter()
            .any(|(kind, _)| *kind == OperationKind::Get)
    }
}

/// Why a text is no mix. Each says what the right form is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixError {
    /// A part is not `operation=percent`.
    #[error("`{0}` is no part of a mix; write get=90,put=10")]
    BadPart(String),
    /// There is no such operation.
    #[error("there is no operation `{0}`; write get, put, delete, append or incr")]
    UnknownOperation(String),
    /// An operation stands there twice.
    #[error("`{0}` stands there twice")]
    Twice(String),
    /// The shares do not add up to 100.
    #[error("the shares are percent and add up to {0}, not to 100")]
    BadSum(u64),
}

const NAMES: [(&str, OperationKind); 5] = [
    ("get", OperationKind::Get),
    ("put", OperationKind::Put),
    ("delete", OperationKind::Delete),
    ("append", OperationKind::Append),
    ("incr", OperationKind::Increment),
];

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Mix, MixError> {
        let mut shares: Vec<(OperationKind, u64)> = Vec::new();
        for part in text.split(',') {
            let bad = || MixError::BadPart(part.trim().into());
            let (name, percent) = part.split_once('=').ok_or_else(bad)?;
            let percent: u64 = percent.trim().parse().map_err(|_| bad())?;
            let name = name.trim();
            let known = NAMES.iter().find(|(known, _)| *known == name);
            let (_, kind) = known.ok_or_else(|| MixError::UnknownOperation(name.into()))?;
            if shares.iter().any(|(other, _)| other == kind) {
                return Err(MixError::Twice(name.into()));
            }
            shares.push((*kind, percent));
        }
        let sum = shares
            .iter()
            .fold(0_u64, |sum, (_, percent)| sum.saturating_add(*percent));
        if sum != 100 {
            return Err(MixError::BadSum(sum));
        }
        Ok(Mix { shares })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (kind, percent)) in self.shares.iter().enumerate() {
            let name = NAMES.iter().find(|(_, other)| other == kind);
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{}={percent}", name.map_or("", |(name, _)| name))?;
        }
        Ok(())
    }
}

/// How operations are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Each in a call of its own.
    Single,
    /// So many in one Batch, each with its own outcome.
    Batch(usize),
    /// So many in one message of a Pipe.
    Pipe(usize),
}

/// What to do to a Pelton server.
#[derive(Clone, Debug)]
pub struct PeltonLoad {
    /// Which operations.
    pub mix: Mix,
    /// How they are sent.
    pub shape: Shape,
    /// In which database; empty: the default one.
    pub database: String,
    /// How many keys. Counters (`incr`) have as many of their own.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// How keys are chosen.
    pub distribution: Distribution,
    /// How large values are.
    pub values: ValueSizes,
}

impl PeltonLoad {
    /// What is wrong with these numbers, in words for a user.
    pub fn problem(&self) -> Option<String> {
        if self.keys == 0 || self.keys > limits::MAX_KEYS {
            return Some(format!("there can be 1 to {} keys", limits::MAX_KEYS));
        }
        let format = KeyFormat::new(self.key_bytes);
        if u128::from(self.keys) * 2 > format.distinct() {
            return Some(format!(
                "{} keys and as many counters do not fit into keys of {} bytes; take larger keys",
                self.keys, self.key_bytes
            ));
        }
        match self.shape {
            Shape::Batch(0) | Shape::Pipe(0) => Some("a batch has at least one operation".into()),
            Shape::Batch(count) | Shape::Pipe(count) if count > limits::MAX_BATCH => {
                let most = limits::MAX_BATCH;
                Some(format!(
                    "a batch has at most {most} operations, not {count}"
                ))
            }
            _ => None,
        }
    }

    /// The load that stores every key once, in Batches.
    pub fn fill(&self, records_per_call: usize) -> PeltonLoad {
        PeltonLoad {
            mix: Mix {
                shares: vec![(OperationKind::Put, 100)],
            },
            shape: Shape::Batch(records_per_call),
            distribution: Distribution::Sequential,
            ..self.clone()
        }
    }
}

/// One thread's part of a [`PeltonLoad`].
#[derive(Debug)]
pub struct PeltonWorkload {
    load: PeltonLoad,
    format: KeyFormat,
    keys: KeyChooser,
    values: Values,
    random: Random,
    chosen: OperationKind,
    key: Vec<u8>,
}

impl PeltonWorkload {
    /// The part of one of `threads` threads.
    pub fn new(load: &PeltonLoad, seed: u64, thread: usize, threads: usize) -> PeltonWorkload {
        let mut random = Random::of_thread(seed, thread);
        PeltonWorkload {
            load: load.clone(),
            format: KeyFormat::new(load.key_bytes),
            keys: KeyChooser::new(load.distribution, load.keys, thread, threads),
            values: Values::new(load.values, &mut random),
            random,
            chosen: OperationKind::Get,
            key: Vec::new(),
        }
    }

    #[inline]
    fn choose_operation(&mut self) -> OperationKind {
        if let [(only, _)] = self.load.mix.shares[..] {
            return only;
        }
        let mut point = self.random.below(100);
        for &(kind, percent) in &self.load.mix.shares {
            if point < percent {
                return kind;
            }
            point -= percent;
        }
        unreachable!("the shares add up to 100")
    }

    /// Chooses the key of an operation of a kind.
    #[inline]
    fn choose_key(&mut self, kind: OperationKind) {
        let number = self.keys.next(&mut self.random);
        // Counters stand beside the other keys: a value that is no number cannot be added to.
        let number = number
            + if kind == OperationKind::Increment {
                self.load.keys
            } else {
                0
            };
        self.format.write(number, &mut self.key);
    }

    /// Appends a write of the only operation of a request as far as its value, which stands last,
    /// and returns that.
    fn shared_operation(&mut self, kind: OperationKind, out: &mut Vec<u8>) -> SharedBytes {
        // A Put and an Append, alone and in a batch, have the same fields so far.
        let fields = PutRequest::NUMBERS;
        self.choose_key(kind);
        let value = self.values.next_shared(&mut self.random);
        let key_bytes = writer::bytes_len(fields.key, self.key.len());
        let body_bytes = key_bytes + writer::bytes_len(fields.value, value.len());
        if self.load.shape == Shape::Single {
            writer::bytes(out, fields.database, self.load.database.as_bytes());
        } else {
            let operation_bytes = writer::bytes_len(kind as u32, body_bytes);
            writer::bytes_head(out, BatchRequest::NUMBERS.operations, operation_bytes);
            writer::bytes_head(out, kind as u32, body_bytes);
        }
        writer::bytes_always(out, fields.key, &self.key);
        writer::bytes_head(out, fields.value, value.len());
        value
    }

    /// Appends what stands before the operations of a request of many.
    fn append_head(&self, out: &mut Vec<u8>) {
        let (database, mode) = (&self.load.database[..], BatchMode::Independent.number());
        match self.load.shape {
            Shape::Single => {}
            Shape::Batch(_) => BatchRequest {
                database,
                mode,
                ..BatchRequest::default()
            }
            .encode(out),
            Shape::Pipe(_) => PipeRequest {
                database,
                mode,
                answers: PipeAnswers::All.number(),
                ..PipeRequest::default()
            }
            .encode(out),
        }
    }

    /// Appends a request of one operation.
    #[inline]
    fn append_single(&mut self, kind: OperationKind, out: &mut Vec<u8>) {
        self.choose_key(kind);
        let (database, key) = (&self.load.database[..], &self.key[..]);
        match kind {
            OperationKind::Get => GetRequest {
                database,
                key,
                ..GetRequest::default()
            }
            .encode(out),
            OperationKind::Put => PutRequest {
                database,
                key,
                value: self.values.next(&mut self.random),
                ..PutRequest::default()
            }
            .encode(out),
            OperationKind::Delete => DeleteRequest {
                database,
                key,
                ..DeleteRequest::default()
            }
            .encode(out),
            OperationKind::Append => AppendRequest {
                database,
                key,
                value: self.values.next(&mut self.random),
                ..AppendRequest::default()
            }
            .encode(out),
            OperationKind::Increment => IncrementRequest {
                database,
                key,
                delta: 1,
                ..IncrementRequest::default()
            }
            .encode(out),
        }
    }

    /// Appends one operation of a request of many.
    #[inline]
    fn append_operation(&mut self, kind: OperationKind, out: &mut Vec<u8>) {
        self.choose_key(kind);
        let key = &self.key[..];
        let body = match kind {
            OperationKind::Get => OperationBody::Get(GetOperation {
                key,
                ..GetOperation::default()
            }),
            OperationKind::Put => OperationBody::Put(PutOperation {
                key,
                value: self.values.next(&mut self.random),
                ..PutOperation::default()
            }),
            OperationKind::Delete => OperationBody::Delete(DeleteOperation {
                key,
                ..DeleteOperation::default()
            }),
            OperationKind::Append => OperationBody::Append(AppendOperation {
                key,
                value: self.values.next(&mut self.random),
                ..AppendOperation::default()
            }),
            OperationKind::Increment => OperationBody::Increment(IncrementOperation {
                key,
                delta: 1,
                ..IncrementOperation::default()
            }),
        };
        let operations = BatchRequest::NUMBERS.operations;
        writer::message(out, operations, |out| body.encode(out));
    }

    fn append_operations(&mut self, count: usize, out: &mut Vec<u8>) {
        for _ in 0..count {
            let kind = self.choose_operation();
            self.append_operation(kind, out);
        }
    }
}

/// The kind of a call is the place of its method here.
const METHODS: [api::Method; 6] = [
    keyvalue::GET,
    keyvalue::PUT,
    keyvalue::DELETE,
    keyvalue::APPEND,
    keyvalue::INCREMENT,
    keyvalue::BATCH,
];

fn place(kind: OperationKind) -> usize {
    match kind {
        OperationKind::Get => 0,
        OperationKind::Put => 1,
        OperationKind::Delete => 2,
        OperationKind::Append => 3,
        OperationKind::Increment => 4,
    }
}

const BATCH: usize = 5;

impl Workload for PeltonWorkload {
    fn paths(&self) -> Vec<String> {
        let path = |method: &api::Method| format!("/{}", method.path);
        if self.is_pipe() {
            return vec![path(&keyvalue::PIPE)];
        }
        METHODS.iter().map(path).collect()
    }

    fn is_pipe(&self) -> bool {
        matches!(self.load.shape, Shape::Pipe(_))
    }

    #[inline]
    fn choose(&mut self) -> usize {
        match self.load.shape {
            Shape::Single => {
                self.chosen = self.choose_operation();
                place(self.chosen)
            }
            Shape::Batch(_) => BATCH,
            Shape::Pipe(_) => 0,
        }
    }

    #[inline]
    fn encode(&mut self, out: &mut Vec<u8>) {
        match self.load.shape {
            Shape::Single => self.append_single(self.chosen, out),
            Shape::Batch(count) | Shape::Pipe(count) => {
                self.append_head(out);
                self.append_operations(count, out);
            }
        }
    }

    fn is_large(&self) -> bool {
        let is_one = matches!(
            self.load.shape,
            Shape::Single | Shape::Batch(1) | Shape::Pipe(1)
        );
        is_one && self.load.values.mean_bytes() >= limits::SHARED_FROM_BYTES
    }

    fn encode_shared(&mut self, out: &mut Vec<u8>) -> Option<SharedBytes> {
        self.append_head(out);
        let kind = match self.load.shape {
            Shape::Single => self.chosen,
            Shape::Batch(_) | Shape::Pipe(_) => self.choose_operation(),
        };
        match (kind, self.load.shape) {
            (OperationKind::Put | OperationKind::Append, _) => {
                return Some(self.shared_operation(kind, out));
            }
            (_, Shape::Single) => self.append_single(kind, out),
            _ => self.append_operation(kind, out),
        }
        None
    }

    #[inline]
    fn judge(&self, kind: usize, _ticket: u32, answer: &[u8]) -> Verdict {
        if self.is_pipe() {
            return judge_pipe(answer);
        }
        let no_effect = |applied| {
            if applied {
                Verdict::Good
            } else {
                Verdict::NoEffect
            }
        };
        let miss = |found| if found { Verdict::Good } else { Verdict::Miss };
        let verdict = match kind {
            0 => GetResponse::decode(answer).map(|answer| miss(answer.found)),
            1 => PutResponse::decode(answer).map(|answer| no_effect(answer.applied)),
            2 => DeleteResponse::decode(answer).map(|answer| miss(answer.deleted)),
            3 => AppendResponse::decode(answer).map(|answer| no_effect(answer.applied)),
            4 => IncrementResponse::decode(answer).map(|answer| no_effect(answer.applied)),
            _ => BatchResponse::decode(answer).map(|answer| no_effect(answer.applied)),
        };
        verdict.unwrap_or(Verdict::Unreadable)
    }

    fn records_per_call(&self) -> u64 {
        match self.load.shape {
            Shape::Single => 1,
            Shape::Batch(count) | Shape::Pipe(count) => count as u64,
        }
    }
}

fn judge_pipe(answer: &[u8]) -> Verdict {
    match PipeResponse::decode(answer) {
        Ok(PipeResponse {
            batch: Some(batch), ..
        }) if batch.applied => Verdict::Good,
        Ok(_) => Verdict::NoEffect,
        Err(_) => Verdict::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(mix: &str, shape: Shape) -> PeltonLoad {
        PeltonLoad {
            mix: mix.parse().expect(mix),
            shape,
            database: "db".into(),
            keys: 1_000,
            key_bytes: 16,
            distribution: Distribution::Uniform,
            values: ValueSizes::Fixed(20),
        }
    }

    #[test]
    fn mixes_are_read_and_written_back() {
        for text in [
            "get=100",
            "get=90,put=10",
            "get=0,put=50,delete=20,append=20,incr=10",
        ] {
            assert_eq!(text.parse::<Mix>().expect(text).to_string(), text);
        }
        for (text, part) in [
            ("get", "write get=90"),
            ("get=x", "write get=90"),
            ("scan=100", "no operation `scan`"),
            ("get=50,get=50", "twice"),
            ("get=90,put=11", "101"),
        ] {
            let error = text.parse::<Mix>().expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    fn database_of(kind: OperationKind, request: &[u8]) -> Result<&str, protobuf::DecodeError> {
        Ok(match kind {
            OperationKind::Get => GetRequest::decode(request)?.database,
            OperationKind::Put => PutRequest::decode(request)?.database,
            OperationKind::Delete => DeleteRequest::decode(request)?.database,
            OperationKind::Append => AppendRequest::decode(request)?.database,
            OperationKind::Increment => IncrementRequest::decode(request)?.database,
        })
    }

    /// Shares come out as asked for, and every request can be read by the server's own decoder.
    #[test]
    fn operations_come_in_their_proportion() {
        let load = load("get=50,put=20,delete=10,append=15,incr=5", Shape::Single);
        let mut workload = PeltonWorkload::new(&load, 1, 0, 1);
        let mut times = [0_u64; 5];
        let mut out = Vec::new();
        for _ in 0..100_000 {
            let kind = workload.choose();
            times[kind] += 1;
            out.clear();
            workload.encode(&mut out);
            let (_, operation) = NAMES[kind];
            assert_eq!(database_of(operation, &out), Ok("db"));
        }
        for (times, percent) in times.iter().zip([50, 20, 10, 15, 5]) {
            assert!(times.abs_diff(percent * 1_000) < 800, "{times:?}");
        }
    }

    #[test]
    fn batches_have_their_operations() {
        let load = load("put=100", Shape::Batch(7));
        let mut workload = PeltonWorkload::new(&load, 1, 0, 1);
        assert_eq!((workload.choose(), workload.records_per_call()), (BATCH, 7));
        let mut out = Vec::new();
        workload.encode(&mut out);
        let request = BatchRequest::decode(&out).expect("it is well formed");
        assert_eq!(request.operations.len(), 7);
        for operation in &request.operations {
            let body = operation.expect("it is well formed").operation;
            assert_eq!(body.map(|body| body.kind()), Some(OperationKind::Put));
        }
    }

    /// What is sent is the same, whether values are shared or copied.
    #[test]
    fn shared_values_make_the_same_requests() {
        for shape in [Shape::Single, Shape::Batch(1), Shape::Pipe(1)] {
            let mix = "get=20,put=40,append=20,incr=10,delete=10";
            let load = PeltonLoad {
                values: ValueSizes::Exponential(limits::SHARED_FROM_BYTES),
                ..load(mix, shape)
            };
            let mut copied = PeltonWorkload::new(&load, 1, 0, 1);
            let mut shared = PeltonWorkload::new(&load, 1, 0, 1);
            assert!(shared.is_large());
            let mut values = 0;
            for _ in 0..50 {
                assert_eq!(copied.choose(), shared.choose());
                let (mut whole, mut parts) = (Vec::new(), Vec::new());
                copied.encode(&mut whole);
                if let Some(value) = shared.encode_shared(&mut parts) {
                    parts.extend_from_slice(&value);
                    values += 1;
                }
                assert!(whole == parts, "{shape:?}");
            }
            assert!((20..45).contains(&values), "{values}");
        }
        assert!(!PeltonWorkload::new(&load("put=100", Shape::Single), 1, 0, 1).is_large());
    }

    #[test]
    fn fills_come_by_every_key_once() {
        let load = PeltonLoad {
            keys: 30,
            ..load("get=100", Shape::Single)
        };
        let mut keys = std::collections::BTreeSet::new();
        for thread in 0..3 {
            let mut workload = PeltonWorkload::new(&load.fill(5), 1, thread, 3);
            for _ in 0..2 {
                let mut out = Vec::new();
                workload.encode(&mut out);
                let request = BatchRequest::decode(&out).expect("it is well formed");
                for operation in &request.operations {
                    let body = operation.expect("well formed").operation;
                    let Some(OperationBody::Put(put)) = body else {
                        panic!("only puts");
                    };
                    keys.insert(put.key.to_vec());
                }
            }
        }
        assert_eq!(keys.len(), 30);
    }

    #[test]
    fn answers_are_judged() {
        let workload = PeltonWorkload::new(&load("get=100", Shape::Single), 1, 0, 1);
        let mut found = Vec::new();
        GetResponse {
            found: true,
            ..GetResponse::default()
        }
        .encode(&mut found);
        assert_eq!(workload.judge(0, 0, &found), Verdict::Good);
        assert_eq!(workload.judge(0, 0, b""), Verdict::Miss);
        assert_eq!(workload.judge(1, 0, b""), Verdict::NoEffect);
        assert_eq!(workload.judge(0, 0, b"\xff\xff"), Verdict::Unreadable);
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let good = load("get=100", Shape::Single);
        assert_eq!(good.problem(), None);
        for (bad, part) in [
            (
                PeltonLoad {
                    keys: 0,
                    ..good.clone()
                },
                "1 to",
            ),
            (
                PeltonLoad {
                    key_bytes: 2,
                    ..good.clone()
                },
                "larger keys",
            ),
            (load("get=100", Shape::Batch(0)), "at least one"),
            (load("get=100", Shape::Pipe(10_001)), "at most 10000"),
        ] {
            let problem = bad.problem().expect(part);
            assert!(problem.contains(part), "{problem}");
        }
    }
}
