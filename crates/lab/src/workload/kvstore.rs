//! Calls of `io.grpc.KeyValueService`, chosen as the client of the article "So You Want to Optimize
//! gRPC" does.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use api::kvstore::{
    CreateRequest, DeleteRequest, RetrieveRequest, RetrieveResponse, UpdateRequest,
};
use service::Method;

use super::Workload;
use super::tickets::CallTickets;
use crate::failure::FailureKind;
use crate::limits;
use crate::random::Random;
use crate::values::{ValueSizes, Values};
use crate::verdict::Verdict;

/// The methods, in the order of the kinds of calls.
pub const KINDS: [Method; 4] = [
    Method::KvstoreCreate,
    Method::KvstoreRetrieve,
    Method::KvstoreUpdate,
    Method::KvstoreDelete,
];

const CREATE: usize = 0;
const RETRIEVE: usize = 1;
const UPDATE: usize = 2;
const DELETE: usize = 3;

/// Numbers of the statuses that a race may bring.
const NOT_FOUND: FailureKind = FailureKind::Status(service::Code::NotFound as u8);
const ALREADY_EXISTS: FailureKind = FailureKind::Status(service::Code::AlreadyExists as u8);

/// Statuses that say that a call was refused before it did anything.
const REFUSALS: [u8; 6] = [
    service::Code::InvalidArgument as u8,
    service::Code::PermissionDenied as u8,
    service::Code::ResourceExhausted as u8,
    service::Code::FailedPrecondition as u8,
    service::Code::Unimplemented as u8,
    service::Code::Unauthenticated as u8,
];

/// Keys of at most so many bytes may come twice by chance.
const SHORT_KEY_BYTES: usize = 8;

/// Whose keys are whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// Several calls may be about the same key at a time, as in the article: a key may be deleted
    /// by one of them before another one comes to it. NOT_FOUND and ALREADY_EXISTS are expected.
    Shared,
    /// A key belongs to one call at a time, so every answer is known in advance.
    Owned,
}

/// What to send.
#[derive(Clone, Copy, Debug)]
pub struct KvstoreLoad {
    /// Whose keys are whose.
    pub keys: KeyUse,
    /// Mean of the exponentially distributed sizes of keys.
    pub key_mean_bytes: usize,
    /// The same of values.
    pub value_mean_bytes: usize,
}

/// A key and the number of times it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyVersion {
    number: u64,
    version: u64,
}

/// The keys that a run leaves behind, known when its workload has been dropped.
#[derive(Clone, Debug, Default)]
pub struct KvstoreLeft(Arc<Mutex<Vec<u64>>>);

impl KvstoreLeft {
    /// Returns the calls that delete them, and how many these are; `load` and `seed` are those of
    /// the run.
    pub fn take(&self, load: KvstoreLoad, seed: u64) -> (KvstoreDeletes, u64) {
        let mut numbers = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        numbers.sort_unstable();
        numbers.dedup();
        let count = numbers.len() as u64;
        let keys = KvstoreWorkload::new(load, seed);
        let deletes = KvstoreDeletes {
            keys,
            numbers,
            at: 0,
        };
        (deletes, count)
    }
}

/// Deletes the keys of a run, one a call.
#[derive(Debug)]
pub struct KvstoreDeletes {
    keys: KvstoreWorkload,
    numbers: Vec<u64>,
    at: usize,
}

impl KvstoreDeletes {
    /// Returns the same calls, from the first on.
    pub fn again(&self) -> KvstoreDeletes {
        KvstoreDeletes {
            keys: KvstoreWorkload::new(self.keys.load, self.keys.seed),
            numbers: self.numbers.clone(),
            at: 0,
        }
    }
}

impl Workload for KvstoreDeletes {
    fn paths(&self) -> Vec<String> {
        vec![format!("/{}", Method::KvstoreDelete.path())]
    }

    fn choose(&mut self) -> usize {
        0
    }

    fn encode(&mut self, out: &mut Vec<u8>) {
        if let Some(number) = self.numbers.get(self.at) {
            self.keys.write_key(*number);
        }
        self.at += 1;
        let key = &self.keys.key;
        DeleteRequest { key }.encode(out);
    }

    fn judge(&self, _kind: usize, _ticket: u32, _answer: &[u8]) -> Verdict {
        Verdict::Good
    }
}

/// The calls of one client. Keys and values follow from their numbers, so none is kept.
#[derive(Debug)]
pub struct KvstoreWorkload {
    load: KvstoreLoad,
    seed: u64,
    random: Random,
    values: Values,
    /// Keys that are there, as far as is known; with [`KeyUse::Owned`] those that no call is about.
    known: Vec<KeyVersion>,
    /// Shared: where each known key stands in `known`.
    places: HashMap<u64, usize>,
    /// Owned: short keys that were ever used, so that none comes twice.
    short_keys: HashSet<Vec<u8>>,
    next_number: u64,
    /// What calls in flight are about, by ticket.
    tickets: CallTickets<KeyVersion>,
    chosen: (usize, u32),
    key: Vec<u8>,
    /// Numbers of keys of failed calls, which may be there, up to [`limits::MAX_KNOWN_KEYS`].
    uncertain: Vec<u64>,
    left: KvstoreLeft,
}

impl KvstoreWorkload {
    /// `seed` begins all random numbers: a server that kept the keys of a run with the same seed
    /// has them already.
    pub fn new(load: KvstoreLoad, seed: u64) -> KvstoreWorkload {
        let mut random = Random::new(seed);
        KvstoreWorkload {
            values: Values::new(
                ValueSizes::Exponential(load.value_mean_bytes),
                &mut Random::new(random.next()),
            ),
            load,
            seed,
            random,
            known: Vec::new(),
            places: HashMap::new(),
            short_keys: HashSet::new(),
            next_number: 0,
            tickets: CallTickets::default(),
            chosen: (CREATE, 0),
            key: Vec::new(),
            uncertain: Vec::new(),
            left: KvstoreLeft::default(),
        }
    }

    /// The same calls; when they are over, `left` knows which keys they leave behind.
    pub fn leaving(mut self, left: &KvstoreLeft) -> KvstoreWorkload {
        self.left = left.clone();
        self
    }

    /// Remembers the key of a failed call, if it may be there and is this run's own.
    fn note_uncertain(&mut self, kind: usize, entry: KeyVersion, failure: FailureKind) {
        let is_certain = match failure {
            FailureKind::NotBegun | NOT_FOUND => true,
            // Somebody else's.
            ALREADY_EXISTS => kind == CREATE,
            FailureKind::Status(code) => kind == CREATE && REFUSALS.contains(&code),
            _ => false,
        };
        if !is_certain && self.uncertain.len() < limits::MAX_KNOWN_KEYS {
            self.uncertain.push(entry.number);
        }
    }

    /// The article skips what needs a key while none is known, and draws again: that ends in a
    /// Create.
    fn choose_kind(&mut self) -> usize {
        match self.random.below(KINDS.len() as u64) as usize {
            _ if self.known.is_empty() => CREATE,
            CREATE if self.known.len() >= limits::MAX_KNOWN_KEYS => DELETE,
            kind => kind,
        }
    }

    fn choose_entry(&mut self, kind: usize) -> KeyVersion {
        if kind == CREATE {
            return self.new_entry();
        }
        let place = self.random.below(self.known.len() as u64) as usize;
        match self.load.keys {
            KeyUse::Shared => self.known[place],
            KeyUse::Owned => self.known.swap_remove(place),
        }
    }

    /// A key that was not there before; a short one by chance was, if keys are shared.
    fn new_entry(&mut self) -> KeyVersion {
        loop {
            let entry = KeyVersion {
                number: self.next_number,
                version: 0,
            };
            self.next_number += 1;
            self.write_key(entry.number);
            let is_long = self.key.len() > SHORT_KEY_BYTES;
            if is_long
                || self.load.keys == KeyUse::Shared
                || self.short_keys.insert(self.key.clone())
            {
                return entry;
            }
        }
    }

    /// 1 byte and an exponentially distributed number more, all random: `key` follows from the
    /// number.
    fn write_key(&mut self, number: u64) {
        let mut random = self.random_of(number, 0);
        let sizes = ValueSizes::Exponential(self.load.key_mean_bytes);
        let bytes = 1 + sizes.next(&mut random);
        self.key.clear();
        while self.key.len() < bytes {
            self.key.extend_from_slice(&random.next().to_le_bytes());
        }
        self.key.truncate(bytes);
    }

    fn value(&self, entry: KeyVersion) -> &[u8] {
        let mut random = self.random_of(entry.number, entry.version + 1);
        self.values.next_with_one_more(&mut random)
    }

    fn random_of(&self, number: u64, part: u64) -> Random {
        let mut row = Random::new(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Random::new(row.next() ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// What is known after a call, if keys are shared.
    fn learn_shared(&mut self, kind: usize, entry: KeyVersion, outcome: Result<bool, FailureKind>) {
        match (kind, outcome) {
            (CREATE, Ok(_)) => {
                self.places.insert(entry.number, self.known.len());
                self.known.push(entry);
            }
            (DELETE, Ok(_)) | (RETRIEVE | UPDATE, Err(NOT_FOUND)) => self.forget(entry.number),
            _ => {}
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(place) = self.places.remove(&number) else {
            return;
        };
        self.known.swap_remove(place);
        if let Some(moved) = self.known.get(place) {
            self.places.insert(moved.number, place);
        }
    }

    /// The same if a key belongs to one call at a time. What became of the key of a failed call is
    /// not known: it is not used again.
    fn learn_owned(&mut self, kind: usize, entry: KeyVersion, outcome: Result<bool, FailureKind>) {
        let was_there = kind != CREATE;
        match outcome {
            Ok(_) if kind == DELETE => {}
            Ok(_) if kind == UPDATE => self.known.push(KeyVersion {
                version: entry.version + 1,
                ..entry
            }),
            Ok(_) => self.known.push(entry),
            Err(FailureKind::NotBegun) if was_there => self.known.push(entry),
            Err(_) => {}
        }
    }
}

impl Workload for KvstoreWorkload {
    fn paths(&self) -> Vec<String> {
        KINDS.map(|method| format!("/{}", method.path())).to_vec()
    }

    fn choose(&mut self) -> usize {
        let kind = self.choose_kind();
        let entry = self.choose_entry(kind);
        self.chosen = (kind, self.tickets.take(entry));
        kind
    }

    fn ticket(&self) -> u32 {
        self.chosen.1
    }

    fn encode(&mut self, out: &mut Vec<u8>) {
        let (kind, ticket) = self.chosen;
        let Some(entry) = self.tickets.get(ticket) else {
            return debug_assert!(false, "a call is chosen before it is encoded");
        };
        self.write_key(entry.number);
        let key = &self.key[..];
        match kind {
            CREATE => {
                let value = self.value(entry);
                CreateRequest { key, value }.encode(out);
            }
            UPDATE => {
                let version = entry.version + 1;
                let value = self.value(KeyVersion { version, ..entry });
                UpdateRequest { key, value }.encode(out);
            }
            RETRIEVE => RetrieveRequest { key }.encode(out),
            _ => DeleteRequest { key }.encode(out),
        }
    }

    /// As the article's client: an answer to a Retrieve has a value, any other is empty. Owned: it
    /// is the value that was written last.
    fn judge(&self, kind: usize, ticket: u32, answer: &[u8]) -> Verdict {
        let Ok(RetrieveResponse { value }) = RetrieveResponse::decode(answer) else {
            return Verdict::Unreadable;
        };
        match (kind, self.load.keys) {
            (RETRIEVE, _) if value.is_empty() => Verdict::Wrong,
            (RETRIEVE, KeyUse::Shared) => Verdict::Good,
            (RETRIEVE, KeyUse::Owned) => match self.tickets.get(ticket) {
                Some(entry) if value == self.value(entry) => Verdict::Good,
                _ => Verdict::Wrong,
            },
            _ if answer.is_empty() => Verdict::Good,
            _ => Verdict::Unreadable,
        }
    }

    fn ended(
        &mut self,
        kind: usize,
        ticket: u32,
        outcome: Result<bool, FailureKind>,
    ) -> Result<bool, FailureKind> {
        let Some(entry) = self.tickets.free(ticket) else {
            debug_assert!(false, "a call that ends was chosen");
            return outcome;
        };
        if let Err(failure) = outcome {
            self.note_uncertain(kind, entry, failure);
        }
        match self.load.keys {
            KeyUse::Owned => {
                self.learn_owned(kind, entry, outcome);
                outcome
            }
            KeyUse::Shared => {
                self.learn_shared(kind, entry, outcome);
                match (kind, outcome) {
                    (CREATE, Err(ALREADY_EXISTS)) | (RETRIEVE | UPDATE, Err(NOT_FOUND)) => Ok(true),
                    _ => outcome,
                }
            }
        }
    }
}

impl Drop for KvstoreWorkload {
    fn drop(&mut self) {
        let known = self.known.iter().map(|entry| entry.number);
        // The outcome of calls in flight is not known.
        let in_flight = self.tickets.in_flight().map(|entry| entry.number);
        let mut left = (self.left.0.lock()).unwrap_or_else(PoisonError::into_inner);
        left.extend(known.chain(in_flight).chain(mem::take(&mut self.uncertain)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn workload(keys: KeyUse, seed: u64) -> KvstoreWorkload {
        let load = KvstoreLoad {
            keys,
            key_mean_bytes: 4,
            value_mean_bytes: 20,
        };
        KvstoreWorkload::new(load, seed)
    }

    fn request(workload: &mut KvstoreWorkload) -> (Vec<u8>, Vec<u8>) {
        let mut out = Vec::new();
        workload.encode(&mut out);
        // The requests of all methods agree as far as they go.
        let CreateRequest { key, value } = CreateRequest::decode(&out).expect("it is well formed");
        (key.to_vec(), value.to_vec())
    }

    fn found(value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        RetrieveResponse { value }.encode(&mut out);
        out
    }

    /// A server in a few lines, with some calls in flight that end in any order.
    fn run(keys: KeyUse, seed: u64, in_flight: usize, calls: usize) -> [u64; 6] {
        let mut workload = workload(keys, seed);
        let mut random = Random::new(seed);
        let mut store: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut open = Vec::new();
        let (mut counts, mut races, mut failures) = ([0_u64; 4], 0, 0);
        for _ in 0..calls {
            let kind = workload.choose();
            counts[kind] += 1;
            let (key, value) = request(&mut workload);
            assert!(!key.is_empty() && (value.is_empty() == (kind == RETRIEVE || kind == DELETE)));
            open.push((kind, workload.ticket(), key, value));
            if open.len() < in_flight {
                continue;
            }
            let at = random.below(open.len() as u64) as usize;
            let (kind, ticket, key, value) = open.swap_remove(at);
            let there = store.contains_key(&key);
            let answer = match kind {
                CREATE if there => Err(ALREADY_EXISTS),
                RETRIEVE | UPDATE if !there => Err(NOT_FOUND),
                RETRIEVE => Ok(found(&store[&key])),
                DELETE => {
                    store.remove(&key);
                    Ok(Vec::new())
                }
                _ => {
                    store.insert(key, value);
                    Ok(Vec::new())
                }
            };
            let outcome = answer.and_then(|answer| match workload.judge(kind, ticket, &answer) {
                Verdict::Good => Ok(false),
                _ => Err(FailureKind::WrongValue),
            });
            match workload.ended(kind, ticket, outcome) {
                Ok(is_race) => races += u64::from(is_race),
                Err(_) => failures += 1,
            }
        }
        [counts[0], counts[1], counts[2], counts[3], races, failures]
    }

    #[test]
    fn owned_keys_never_race_and_shared_ones_do() {
        for seed in 1..20 {
            let [.., races, failures] = run(KeyUse::Owned, seed, 50, 5_000);
            assert_eq!((races, failures), (0, 0), "seed {seed}");
            let [.., races, failures] = run(KeyUse::Shared, seed, 50, 5_000);
            assert_eq!(failures, 0, "seed {seed}");
            assert!(races > 10, "seed {seed}: {races}");
        }
    }

    #[test]
    fn operations_come_in_equal_shares() {
        let [counts @ .., _, _] = run(KeyUse::Shared, 7, 10, 40_000);
        for count in counts {
            assert!(count.abs_diff(10_000) < 600, "{counts:?}");
        }
    }

    #[test]
    fn a_wrong_value_is_seen_if_keys_are_owned() {
        let mut workload = workload(KeyUse::Owned, 3);
        assert_eq!(workload.choose(), CREATE, "no key is known");
        let (_, value) = request(&mut workload);
        let ticket = workload.ticket();
        assert_eq!(workload.judge(CREATE, ticket, b""), Verdict::Good);
        assert_eq!(
            workload.judge(CREATE, ticket, b"\x08\x01"),
            Verdict::Unreadable
        );
        // A field that the answer does not have, which can be read.
        assert_eq!(
            workload.judge(CREATE, ticket, b"\x10\x01"),
            Verdict::Unreadable
        );
        assert_eq!(workload.ended(CREATE, ticket, Ok(false)), Ok(false));
        let mut kind = workload.choose();
        while kind != RETRIEVE {
            // As if it had not begun, so that the key stays as it is.
            let _ = workload.ended(kind, workload.ticket(), Err(FailureKind::NotBegun));
            kind = workload.choose();
        }
        let ticket = workload.ticket();
        assert_eq!(workload.judge(kind, ticket, &found(&value)), Verdict::Good);
        let mut other = value.clone();
        other[0] ^= 1;
        assert_eq!(workload.judge(kind, ticket, &found(&other)), Verdict::Wrong);
        assert_eq!(workload.judge(kind, ticket, b""), Verdict::Wrong);
        assert_eq!(workload.judge(kind, ticket, b"\xff"), Verdict::Unreadable);
        let not_found = workload.ended(kind, ticket, Err(NOT_FOUND));
        assert_eq!(not_found, Err(NOT_FOUND));
    }

    #[test]
    fn sizes_have_their_means() {
        let load = KvstoreLoad {
            keys: KeyUse::Owned,
            key_mean_bytes: 64,
            value_mean_bytes: 65_536,
        };
        let mut workload = KvstoreWorkload::new(load, 5);
        let (mut keys, mut values) = (0, 0);
        const CALLS: u64 = 20_000;
        for number in 0..CALLS {
            workload.write_key(number);
            keys += workload.key.len();
            let entry = KeyVersion { number, version: 0 };
            values += workload.value(entry).len();
        }
        let (key, value) = (keys as f64 / CALLS as f64, values as f64 / CALLS as f64);
        assert!((key / 65.0 - 1.0).abs() < 0.03, "{key}");
        assert!((value / 65_537.0 - 1.0).abs() < 0.03, "{value}");
    }

    /// A large key has no larger value than a small one: each follows from random numbers of its
    /// own.
    #[test]
    fn sizes_of_keys_and_values_do_not_depend_on_each_other() {
        let load = KvstoreLoad {
            keys: KeyUse::Owned,
            key_mean_bytes: 1_000,
            value_mean_bytes: 1_000,
        };
        let mut workload = KvstoreWorkload::new(load, 5);
        const CALLS: u64 = 5_000;
        for version in 0..3 {
            let mut together = 0.0;
            for number in 0..CALLS {
                workload.write_key(number);
                let value = workload.value(KeyVersion { number, version });
                let beyond = |bytes: usize| bytes as f64 / 1_000.0 - 1.0;
                together += beyond(workload.key.len()) * beyond(value.len());
            }
            let correlation = together / CALLS as f64;
            assert!(correlation.abs() < 0.1, "version {version}: {correlation}");
        }
    }

    #[test]
    fn methods_stand_in_the_order_of_the_kinds() {
        let paths = workload(KeyUse::Owned, 1).paths();
        let method = |name: &str| format!("/io.grpc.KeyValueService/{name}");
        assert_eq!(
            paths,
            ["Create", "Retrieve", "Update", "Delete"].map(method)
        );
    }

    /// Short keys may come twice by chance, so those that were used are remembered: all of them,
    /// and no others.
    #[test]
    fn short_keys_do_not_come_twice() {
        let mut workload = workload(KeyUse::Owned, 11);
        let mut keys = HashSet::new();
        let mut used = 0;
        for _ in 0..2_000 {
            workload.new_entry();
            used += u64::from(keys.insert(workload.key.clone()));
        }
        assert_eq!(used, 2_000);
        assert!(
            workload.next_number > 2_000,
            "some numbers were left out: {}",
            workload.next_number
        );
        let lengths: HashSet<usize> = keys.iter().map(Vec::len).collect();
        assert!(
            (1..=12).all(|length| lengths.contains(&length)),
            "{lengths:?}"
        );
        keys.retain(|key| key.len() <= SHORT_KEY_BYTES);
        assert_eq!(workload.short_keys, keys);
    }

    /// The numbers of keys that a workload leaves behind, in order.
    fn left(act: impl FnOnce(&mut KvstoreWorkload)) -> Vec<u64> {
        let left = KvstoreLeft::default();
        let mut workload = workload(KeyUse::Shared, 5).leaving(&left);
        act(&mut workload);
        let load = workload.load;
        drop(workload);
        let (deletes, count) = left.take(load, 5);
        assert_eq!(deletes.numbers.len() as u64, count);
        let (_, none) = left.take(load, 5);
        assert_eq!(none, 0, "they are taken once");
        deletes.numbers.clone()
    }

    /// Begins a call of a new key.
    fn begin(workload: &mut KvstoreWorkload, kind: usize) -> (u32, u64) {
        let entry = workload.new_entry();
        workload.chosen = (kind, workload.tickets.take(entry));
        (workload.chosen.1, entry.number)
    }

    /// Only keys of which it is certain that they are not there, or are somebody else's, are not
    /// deleted.
    #[test]
    fn what_may_be_there_is_left() {
        let lost = FailureKind::ConnectionLost;
        let refused = FailureKind::Status(service::Code::FailedPrecondition as u8);
        let unknown = FailureKind::Status(service::Code::Unknown as u8);
        for (kind, outcome, is_left) in [
            (CREATE, Ok(false), true),
            (CREATE, Err(lost), true),
            (CREATE, Err(FailureKind::NotBegun), false),
            (CREATE, Err(ALREADY_EXISTS), false),
            (CREATE, Err(NOT_FOUND), false),
            (CREATE, Err(refused), false),
            (UPDATE, Err(refused), true),
            (CREATE, Err(unknown), true),
            (UPDATE, Err(ALREADY_EXISTS), true),
            (UPDATE, Err(lost), true),
            (UPDATE, Err(NOT_FOUND), false),
            (DELETE, Err(lost), true),
            (DELETE, Ok(false), false),
        ] {
            let mut expected = Vec::new();
            let found = left(|workload| {
                let (ticket, number) = begin(workload, kind);
                if is_left {
                    expected.push(number);
                }
                let _ = workload.ended(kind, ticket, outcome);
            });
            assert_eq!(found, expected, "{kind} {outcome:?}");
        }
        // Those of calls that have not ended too, each once.
        let mut begun = Vec::new();
        let found = left(|workload| {
            let (ticket, number) = begin(workload, CREATE);
            let created = workload.tickets.get(ticket).expect("it has begun");
            let _ = workload.ended(CREATE, ticket, Ok(false));
            begun.push(number);
            begun.push(begin(workload, CREATE).1);
            workload.chosen = (DELETE, workload.tickets.take(created));
        });
        assert_eq!(found, begun);
    }

    #[test]
    fn deletes_are_those_of_the_keys_that_are_left() {
        let left = KvstoreLeft::default();
        let mut workload = workload(KeyUse::Shared, 5).leaving(&left);
        let mut keys = Vec::new();
        for _ in 0..3 {
            let (ticket, _) = begin(&mut workload, CREATE);
            keys.push(request(&mut workload).0);
            let _ = workload.ended(CREATE, ticket, Ok(false));
        }
        let load = workload.load;
        drop(workload);
        let (mut deletes, count) = left.take(load, 5);
        assert_eq!(count, 3);
        assert_eq!(deletes.paths(), ["/io.grpc.KeyValueService/Delete"]);
        let mut take = |deletes: &mut KvstoreDeletes| {
            assert_eq!(deletes.choose(), 0);
            let mut out = Vec::new();
            deletes.encode(&mut out);
            let mut key = Vec::new();
            DeleteRequest { key: &keys[0] }.encode(&mut key);
            keys.rotate_left(1);
            assert_eq!(out, key);
        };
        (0..3).for_each(|_| take(&mut deletes));
        let mut again = deletes.again();
        (0..3).for_each(|_| take(&mut again));
        assert_eq!(deletes.judge(0, 0, b""), Verdict::Good);
    }

    /// What is known with shared keys follows the answers.
    #[test]
    fn keys_that_are_gone_are_forgotten() {
        for (kind, outcome, is_race, is_known) in [
            (CREATE, Ok(false), Ok(false), true),
            (CREATE, Err(ALREADY_EXISTS), Ok(true), false),
            (CREATE, Err(NOT_FOUND), Err(NOT_FOUND), false),
        ] {
            let mut workload = workload(KeyUse::Shared, 5);
            let (ticket, _) = begin(&mut workload, kind);
            assert_eq!(workload.ended(kind, ticket, outcome), is_race);
            assert_eq!(workload.known.len(), usize::from(is_known));
        }
        let lost = Err(FailureKind::ConnectionLost);
        for (kind, outcome, counts, is_known) in [
            (RETRIEVE, Ok(false), Ok(false), true),
            (RETRIEVE, Err(NOT_FOUND), Ok(true), false),
            (RETRIEVE, Err(ALREADY_EXISTS), Err(ALREADY_EXISTS), true),
            (UPDATE, Err(NOT_FOUND), Ok(true), false),
            (UPDATE, Ok(false), Ok(false), true),
            (UPDATE, lost, lost, true),
            (DELETE, Ok(false), Ok(false), false),
            (DELETE, Err(NOT_FOUND), Err(NOT_FOUND), true),
            (DELETE, lost, lost, true),
        ] {
            let mut workload = workload(KeyUse::Shared, 5);
            // Between others, so that places move.
            for _ in 0..3 {
                let (ticket, _) = begin(&mut workload, CREATE);
                let _ = workload.ended(CREATE, ticket, Ok(false));
            }
            let entry = workload.known[0];
            let ticket = workload.tickets.take(entry);
            assert_eq!(
                workload.ended(kind, ticket, outcome),
                counts,
                "{kind} {outcome:?}"
            );
            assert_eq!(
                workload.known.contains(&entry),
                is_known,
                "{kind} {outcome:?}"
            );
            assert_eq!(workload.known.len(), 2 + usize::from(is_known));
            for (place, entry) in workload.known.iter().enumerate() {
                assert_eq!(workload.places[&entry.number], place);
            }
        }
    }

    /// With so many keys one is deleted where one would be created.
    #[test]
    fn the_number_of_known_keys_is_bounded() {
        let mut workload = workload(KeyUse::Shared, 5);
        let entry = KeyVersion {
            number: 0,
            version: 0,
        };
        let kinds = |workload: &mut KvstoreWorkload| -> HashSet<usize> {
            (0..100).map(|_| workload.choose_kind()).collect()
        };
        assert_eq!(kinds(&mut workload), HashSet::from([CREATE]));
        workload.known = vec![entry; limits::MAX_KNOWN_KEYS - 1];
        assert_eq!(kinds(&mut workload).len(), 4);
        workload.known.push(entry);
        assert_eq!(
            kinds(&mut workload),
            HashSet::from([RETRIEVE, UPDATE, DELETE])
        );
    }

    /// A key that was updated has the value of its version; one whose call did not begin is as it
    /// was.
    #[test]
    fn owned_keys_follow_what_was_done() {
        let mut workload = workload(KeyUse::Owned, 3);
        let entry = |version| KeyVersion { number: 9, version };
        for (kind, outcome, known) in [
            (CREATE, Ok(false), Some(entry(4))),
            (CREATE, Err(FailureKind::NotBegun), None),
            (RETRIEVE, Ok(false), Some(entry(4))),
            (RETRIEVE, Err(FailureKind::NotBegun), Some(entry(4))),
            (UPDATE, Ok(false), Some(entry(5))),
            (UPDATE, Err(FailureKind::NotBegun), Some(entry(4))),
            (UPDATE, Err(FailureKind::ConnectionLost), None),
            (DELETE, Ok(false), None),
            (DELETE, Err(FailureKind::NotBegun), Some(entry(4))),
        ] {
            workload.known.clear();
            let ticket = workload.tickets.take(entry(4));
            let _ = workload.ended(kind, ticket, outcome);
            assert_eq!(workload.known, Vec::from_iter(known), "{kind} {outcome:?}");
        }
        assert_ne!(workload.value(entry(4)), workload.value(entry(5)));
    }
}
