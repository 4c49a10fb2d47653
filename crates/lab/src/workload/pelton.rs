//! Calls of `pelton.v1.KeyValue`.

use api::keyvalue::{
    self, AppendOperation, AppendRequest, AppendResponse, BatchMode, BatchRequest, BatchResponse,
    DeleteOperation, DeleteRequest, DeleteResponse, GetOperation, GetRequest, GetResponse,
    IncrementOperation, IncrementRequest, IncrementResponse, KeyRange, Keys, OperationBody,
    OperationKind, PipeAnswers, PipeRequest, PipeResponse, PutOperation, PutRequest, PutResponse,
    ScanPage, ScanRequest,
};
use client::SharedBytes;
use protobuf::writer;

use super::Workload;
use super::follow_up::FollowUp;
use super::mix::{Mix, MixOperation};
use crate::failure::FailureKind;
use crate::keys::{Distribution, KeyChooser, KeyFormat};
use crate::limits;
use crate::random::Random;
use crate::values::{ValueSizes, Values};
use crate::verdict::Verdict;

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
        if self.mix.has(MixOperation::Insert) && u128::from(self.keys) * 3 > format.distinct() {
            return Some(format!(
                "{} keys, as many counters and what is inserted do not fit into keys of {} bytes; \
                 take larger keys",
                self.keys, self.key_bytes
            ));
        }
        if let (Some(alone), Shape::Batch(_) | Shape::Pipe(_)) =
            (self.mix.first_alone(), self.shape)
        {
            return Some(format!(
                "`{alone}` goes in a call of its own; leave out --batch and --pipe"
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
            Shape::Batch(count) | Shape::Pipe(count) => self.problem_of_batch(count),
            Shape::Single => None,
        }
    }

    /// Why so many operations cannot go in one message.
    fn problem_of_batch(&self, count: usize) -> Option<String> {
        let operation = self.key_bytes.saturating_add(self.values.max_bytes());
        let is_too_large = count.saturating_mul(operation) > limits::MAX_GRPC_MESSAGE_BYTES;
        is_too_large.then(|| {
            format!(
                "a batch of {count} operations of up to {operation} bytes does not fit into a \
                 message of gRPC; take fewer of them, or a smaller --value-size"
            )
        })
    }

    /// The load that stores every key once, in Batches.
    pub fn fill(&self, records_per_call: usize) -> PeltonLoad {
        PeltonLoad {
            mix: Mix::puts(),
            shape: Shape::Batch(records_per_call),
            distribution: Distribution::Sequential,
            ..self.clone()
        }
    }
}

/// A call that was chosen, and is to be encoded.
#[derive(Clone, Copy, Debug)]
struct ChosenCall {
    method: CallMethod,
    /// Of its key.
    number: u64,
    ticket: u32,
}

#[derive(Clone, Copy, Debug)]
enum CallMethod {
    Operation(OperationKind),
    Scan,
}

/// One thread's part of a [`PeltonLoad`].
#[derive(Debug)]
pub struct PeltonWorkload {
    load: PeltonLoad,
    format: KeyFormat,
    keys: KeyChooser,
    values: Values,
    random: Random,
    follow_up: FollowUp,
    /// Numbers of the keys that this thread inserts: the first, and how far the next one is.
    inserted: (u64, u64),
    chosen: ChosenCall,
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
            follow_up: FollowUp::default(),
            inserted: (thread as u64, threads as u64),
            chosen: ChosenCall {
                method: CallMethod::Operation(OperationKind::Get),
                number: 0,
                ticket: 0,
            },
            key: Vec::new(),
        }
    }

    #[inline]
    fn choose_operation(&mut self) -> MixOperation {
        if let [(only, _)] = self.load.mix.shares[..] {
            return only;
        }
        let mut point = self.random.below(100);
        for &(operation, percent) in &self.load.mix.shares {
            if point < percent {
                return operation;
            }
            point -= percent;
        }
        unreachable!("the shares add up to 100")
    }

    /// Chooses a call of one operation.
    #[inline]
    fn choose_call(&mut self) -> ChosenCall {
        let plain = |kind, number| ChosenCall {
            method: CallMethod::Operation(kind),
            number,
            ticket: 0,
        };
        if let Some(number) = self.follow_up.next_write() {
            return plain(OperationKind::Put, number);
        }
        match self.choose_operation() {
            MixOperation::Plain(kind) => plain(kind, self.choose_number(kind)),
            MixOperation::Insert => {
                let (count, ticket) = self.follow_up.insert();
                let number = self.inserted_number(count);
                ChosenCall {
                    ticket,
                    ..plain(OperationKind::Put, number)
                }
            }
            MixOperation::Scan => ChosenCall {
                method: CallMethod::Scan,
                ..plain(OperationKind::Get, self.choose_number(OperationKind::Get))
            },
            MixOperation::ReadModifyWrite => {
                let number = self.choose_number(OperationKind::Get);
                ChosenCall {
                    ticket: self.follow_up.read(number),
                    ..plain(OperationKind::Get, number)
                }
            }
        }
    }

    /// Chooses an operation of a request of many, which is a plain one, and the number of its key.
    #[inline]
    fn choose_plain(&mut self) -> (OperationKind, u64) {
        match self.choose_operation() {
            MixOperation::Plain(kind) => (kind, self.choose_number(kind)),
            _ => unreachable!("others go in calls of their own: PeltonLoad::problem"),
        }
    }

    /// Chooses the number of the key of an operation of a kind.
    #[inline]
    fn choose_number(&mut self, kind: OperationKind) -> u64 {
        let settled = self.follow_up.settled();
        let number = self.keys.next(&mut self.random, settled);
        match number.checked_sub(self.load.keys) {
            Some(newer) => self.inserted_number(newer),
            // Counters stand beside the other keys: a value that is no number cannot be added to.
            None if kind == OperationKind::Increment => number + self.load.keys,
            None => number,
        }
    }

    /// The number of the key of an insertion of this thread. Those stand behind counters; when no
    /// further one fits into the size of keys, they begin anew.
    fn inserted_number(&self, count: u64) -> u64 {
        let (first, step) = self.inserted;
        let before = u128::from(self.load.keys) * 2;
        let room = self.format.distinct().saturating_sub(before).max(1);
        let number = u128::from(first) + u128::from(count) * u128::from(step);
        (before + number % room) as u64
    }

    /// Appends a write of the only operation of a request as far as its value, which stands last,
    /// and returns that.
    fn shared_operation(
        &mut self,
        kind: OperationKind,
        number: u64,
        out: &mut Vec<u8>,
    ) -> SharedBytes {
        // A Put and an Append, alone and in a batch, have the same fields so far.
        let fields = PutRequest::NUMBERS;
        self.format.write(number, &mut self.key);
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
    fn append_single(&mut self, out: &mut Vec<u8>) {
        self.format.write(self.chosen.number, &mut self.key);
        match self.chosen.method {
            CallMethod::Operation(kind) => self.append_request(kind, out),
            CallMethod::Scan => self.append_scan(out),
        }
    }

    fn append_scan(&mut self, out: &mut Vec<u8>) {
        let range = KeyRange {
            start: &self.key,
            ..KeyRange::default()
        };
        ScanRequest {
            database: &self.load.database,
            limit: 1 + self.random.below(limits::SCAN_ENTRIES),
            keys: Some(Keys::Range(range)),
            ..ScanRequest::default()
        }
        .encode(out);
    }

    #[inline]
    fn append_request(&mut self, kind: OperationKind, out: &mut Vec<u8>) {
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
    fn append_operation(&mut self, kind: OperationKind, number: u64, out: &mut Vec<u8>) {
        self.format.write(number, &mut self.key);
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
            let (kind, number) = self.choose_plain();
            self.append_operation(kind, number, out);
        }
    }
}

/// The kind of a call is the place of its method here.
const METHODS: [api::Method; 7] = [
    keyvalue::GET,
    keyvalue::PUT,
    keyvalue::DELETE,
    keyvalue::APPEND,
    keyvalue::INCREMENT,
    keyvalue::BATCH,
    keyvalue::SCAN,
];

fn place(method: CallMethod) -> usize {
    match method {
        CallMethod::Operation(OperationKind::Get) => 0,
        CallMethod::Operation(OperationKind::Put) => 1,
        CallMethod::Operation(OperationKind::Delete) => 2,
        CallMethod::Operation(OperationKind::Append) => 3,
        CallMethod::Operation(OperationKind::Increment) => 4,
        CallMethod::Scan => SCAN,
    }
}

const BATCH: usize = 5;
const SCAN: usize = 6;

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
                self.chosen = self.choose_call();
                place(self.chosen.method)
            }
            Shape::Batch(_) => BATCH,
            Shape::Pipe(_) => 0,
        }
    }

    #[inline]
    fn encode(&mut self, out: &mut Vec<u8>) {
        match self.load.shape {
            Shape::Single => self.append_single(out),
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
        let (kind, number) = match (self.load.shape, self.chosen.method) {
            (Shape::Single, CallMethod::Operation(kind)) => (kind, self.chosen.number),
            (Shape::Single, CallMethod::Scan) => {
                self.append_single(out);
                return None;
            }
            (Shape::Batch(_) | Shape::Pipe(_), _) => self.choose_plain(),
        };
        match (kind, self.load.shape) {
            (OperationKind::Put | OperationKind::Append, _) => {
                return Some(self.shared_operation(kind, number, out));
            }
            (_, Shape::Single) => self.append_single(out),
            _ => self.append_operation(kind, number, out),
        }
        None
    }

    fn ticket(&self) -> u32 {
        match self.load.shape {
            Shape::Single => self.chosen.ticket,
            Shape::Batch(_) | Shape::Pipe(_) => 0,
        }
    }

    #[inline]
    fn ended(
        &mut self,
        _kind: usize,
        ticket: u32,
        outcome: Result<bool, FailureKind>,
    ) -> Result<bool, FailureKind> {
        self.follow_up.ended(ticket, outcome.is_ok());
        outcome
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
            SCAN => ScanPage::decode(answer).map(|_| Verdict::Good),
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
    use crate::workload::mix::Ycsb;

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

    fn database_of(kind: usize, request: &[u8]) -> Result<&str, protobuf::DecodeError> {
        Ok(match kind {
            0 => GetRequest::decode(request)?.database,
            1 => PutRequest::decode(request)?.database,
            2 => DeleteRequest::decode(request)?.database,
            3 => AppendRequest::decode(request)?.database,
            4 => IncrementRequest::decode(request)?.database,
            SCAN => ScanRequest::decode(request)?.database,
            _ => BatchRequest::decode(request)?.database,
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
            assert_eq!(database_of(kind, &out), Ok("db"));
        }
        for (times, percent) in times.iter().zip([50, 20, 10, 15, 5]) {
            assert!(times.abs_diff(percent * 1_000) < 800, "{times:?}");
        }
    }

    /// Half of the operations are read and then written: of three calls two read and one writes.
    #[test]
    fn a_read_that_is_answered_is_followed_by_a_write_of_the_same_key() {
        let mut workload = PeltonWorkload::new(&load("rmw=100", Shape::Single), 1, 0, 1);
        let mut read_keys = Vec::new();
        for answered in [true, false, true] {
            let (kind, key) = next_key(&mut workload);
            assert_eq!(kind, 0);
            let outcome = answered
                .then_some(true)
                .ok_or(FailureKind::DeadlineExceeded);
            let ticket = workload.ticket();
            let _ = workload.ended(kind, ticket, outcome);
            if answered {
                read_keys.push(key);
                let (kind, key) = next_key(&mut workload);
                assert_eq!((kind, workload.ticket()), (1, 0));
                assert_eq!(Some(key), read_keys.pop());
            }
        }
    }

    /// Chooses and encodes a Get or a Put.
    fn next_key(workload: &mut PeltonWorkload) -> (usize, Vec<u8>) {
        let kind = workload.choose();
        let mut out = Vec::new();
        workload.encode(&mut out);
        let key = match kind {
            0 => GetRequest::decode(&out).expect("well formed").key.to_vec(),
            _ => PutRequest::decode(&out).expect("well formed").key.to_vec(),
        };
        (kind, key)
    }

    #[test]
    fn threads_insert_keys_of_their_own_that_the_latest_reads_know() {
        let (mix, distribution) = Ycsb::D.load(0.99);
        let load = PeltonLoad {
            mix,
            distribution,
            ..load("get=100", Shape::Single)
        };
        let mut inserted = std::collections::HashSet::new();
        for thread in 0..2 {
            let mut workload = PeltonWorkload::new(&load, 1, thread, 2);
            let (mut own, mut reads_of_own, mut reads) = (Vec::new(), 0, 0);
            for _ in 0..20_000 {
                let (kind, key) = next_key(&mut workload);
                let ticket = workload.ticket();
                let _ = workload.ended(kind, ticket, Ok(true));
                match kind {
                    1 => {
                        assert!(inserted.insert(key.clone()), "each key is inserted once");
                        own.push(key);
                    }
                    _ => {
                        reads += 1;
                        reads_of_own += u32::from(own.contains(&key));
                    }
                }
            }
            // With an exponent of 0.99 the newest tenth of 1000 has some seven of ten.
            assert!(own.len() > 800, "{}", own.len());
            assert!(reads_of_own * 2 > reads, "{reads_of_own} of {reads}");
        }
        let first: Vec<u8> = (0..load.keys * 2)
            .flat_map(|number| {
                let mut key = Vec::new();
                KeyFormat::new(load.key_bytes).write(number, &mut key);
                inserted.contains(&key).then_some(1)
            })
            .collect();
        assert!(first.is_empty(), "inserted keys are new");
    }

    #[test]
    fn scans_begin_at_a_key_and_are_short() {
        let mut workload = PeltonWorkload::new(&load("scan=100", Shape::Single), 1, 0, 1);
        let mut limits_seen = std::collections::BTreeSet::new();
        for _ in 0..2_000 {
            assert_eq!(workload.choose(), SCAN);
            let mut out = Vec::new();
            workload.encode(&mut out);
            let request = ScanRequest::decode(&out).expect("well formed");
            let Some(Keys::Range(range)) = request.keys else {
                panic!("a range");
            };
            assert_eq!((range.start.len(), range.end.len()), (16, 0));
            limits_seen.insert(request.limit);
        }
        assert_eq!(limits_seen.first(), Some(&1));
        assert_eq!(limits_seen.last(), Some(&limits::SCAN_ENTRIES));
        assert_eq!(workload.judge(SCAN, 0, b""), Verdict::Good);
        assert_eq!(workload.judge(SCAN, 0, b"\xff\xff"), Verdict::Unreadable);
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
            (
                PeltonLoad {
                    keys: 25_000,
                    key_bytes: 4,
                    ..load("insert=100", Shape::Single)
                },
                "what is inserted",
            ),
            (
                load("rmw=100", Shape::Batch(2)),
                "`rmw` goes in a call of its own",
            ),
            (load("get=100", Shape::Batch(0)), "at least one"),
            (load("get=100", Shape::Pipe(10_001)), "at most 10000"),
            (
                PeltonLoad {
                    values: ValueSizes::Fixed(1 << 20),
                    ..load("put=100", Shape::Batch(5_000))
                },
                "does not fit into a message of gRPC",
            ),
        ] {
            let problem = bad.problem().expect(part);
            assert!(problem.contains(part), "{problem}");
        }
    }
}
