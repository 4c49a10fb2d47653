//! GetMulti: several records of one view, or, where many are wanted, of one view after the other.
//!
//! A large request is served in slices, as the records of a SetMulti are: the original does not
//! serve it as one step either, and others would wait for all of it.

use std::collections::HashSet;

use api::tkrzw::{BytesPair, GetMultiRequest, GetMultiResponse};
use bytes::Bytes;
use protobuf::writer;
use store::tree::{NotFetched, ReadPlan};
use store::{DatabaseId, Entry, IndexView, ReadView, Value};

use super::decode::{decode, not_a_request};
use super::result::RequestResult;
use super::sorted::{RECORD_OVERHEAD_BYTES, SortedRecords};
use super::target::target;
use super::{TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, DatabaseAccess, ResponseMemory, Responses, SendRoom, Wakeups};
use crate::call::Shared;
use crate::keyvalue;
use crate::limits::{
    ANSWER_BYTES_MAX, LARGE_ANSWER_BYTES, TKRZW_READ_SLICE_BYTES, TKRZW_READ_SLICE_KEYS,
};
use crate::message_parts::MessageParts;
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

/// A GetMulti that waits for a view.
pub(super) struct GetMulti {
    method: Method,
    database: DatabaseId,
    keys: RequestedKeys,
    /// What is kept of the request, in bytes; if the keys are many, with the copies of them that
    /// the response has.
    request_bytes: usize,
    /// What the records of a key may take that was claimed before any was read; 0: nothing was.
    claimed_bytes_per_key: usize,
}

/// The keys whose records are wanted.
enum RequestedKeys {
    /// Few, of one view: the request, which is decoded again when it is served. That is cheaper
    /// than a list of keys.
    Few(Box<[u8]>),
    /// Many, in slices.
    Many(Box<KeySlices>),
}

/// The keys of a large request that are still to be read, and what was found of the others.
struct KeySlices {
    keys: SortedRecords,
    is_sorted: bool,
    /// Keys that are not in a slice yet. Those that come twice count twice.
    left: usize,
    /// The next slice, in the order of keys.
    slice: Vec<Bytes>,
    /// Keys of it that were read.
    passed: usize,
    found: FoundRecords,
}

/// The records of a response as far as they were found.
#[derive(Default)]
struct FoundRecords {
    message: MessageParts,
    is_any_missing: bool,
    /// What it shares with the database, each value once.
    shared_values: HashSet<*const u8>,
    shared_bytes: usize,
}

/// Why no more records are gathered.
enum GatherEnd {
    /// All have been looked up.
    All,
    /// So many have, and it has taken long enough.
    Some(usize),
    /// The response would be too large.
    TooLarge,
    /// There is no memory now for what the response may copy.
    NoMemory,
}

impl GetMulti {
    /// Takes up a request.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        let request: GetMultiRequest<'_> = decode(method, bytes)?;
        let database = target(request.dbm_index, Right::Read, shared, actions)?.id;
        let keys = keys_of(method, &request)?;
        keys.iter().try_for_each(|key| keyvalue::check_key(key))?;
        let is_on_disk = matches!(
            shared.store.index_view(database),
            IndexView::Disk(_) | IndexView::Remote(_)
        );
        let limits = shared.store.limits(database).unwrap_or_default();
        let are_many = keys.len() > TKRZW_READ_SLICE_KEYS;
        let claimed_bytes_per_key = match (is_on_disk, are_many) {
            (true, _) => limits.value_bytes,
            (false, true) => COPIED_BYTES_PER_KEY,
            // It is seen as they are gathered.
            (false, false) => 0,
        };
        let request_bytes = match are_many {
            true => 2 * bytes.len() + keys.len() * RECORD_OVERHEAD_BYTES,
            false => bytes.len(),
        };
        let expected_bytes = expected_bytes(keys.len(), claimed_bytes_per_key, shared);
        if !actions.room_for_answer(request_bytes + expected_bytes) {
            return Ok(None);
        }
        actions.reserve(request_bytes + expected_bytes);
        let keys = match are_many {
            true => RequestedKeys::Many(Box::new(KeySlices::new(bytes, &keys))),
            false => RequestedKeys::Few(bytes.into()),
        };
        let call = GetMulti {
            method,
            database,
            keys,
            request_bytes,
            claimed_bytes_per_key,
        };
        match &call.keys {
            RequestedKeys::Few(_) => actions.read_long(database),
            RequestedKeys::Many(_) => actions.step_later(),
        }
        Ok(Some(TkrzwStep::GetMulti(Box::new(call))))
    }

    /// Sorts some more keys, or asks for the first view.
    pub(super) fn woken(&mut self, actions: &mut (impl DatabaseAccess + Wakeups)) {
        let RequestedKeys::Many(slices) = &mut self.keys else {
            return;
        };
        if slices.is_sorted {
            return;
        }
        slices.is_sorted = slices.keys.sort_run();
        if !slices.is_sorted {
            return actions.step_later();
        }
        slices.take_slice();
        actions.read_long(self.database);
    }

    /// Asks for its view, as there is room to send.
    pub(super) fn writable(&self, actions: &mut (impl DatabaseAccess + ResponseMemory)) {
        if matches!(self.keys, RequestedKeys::Few(_)) {
            actions.reserve(self.request_bytes);
            actions.read_long(self.database);
        }
    }

    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        match &self.keys {
            RequestedKeys::Few(request) => {
                let keys = sorted_keys(self.method, request).unwrap_or_default();
                plan.keys(usize::MAX, keys.into_iter());
            }
            RequestedKeys::Many(slices) => {
                let keys = slices.slice.iter().skip(slices.passed);
                plan.keys(usize::MAX, keys.map(|key| &key[..]));
            }
        }
    }

    /// Responds from one view, or gathers a slice of the response.
    pub(super) fn read(
        &mut self,
        view: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses + SendRoom + ResponseMemory + CallClock),
    ) -> Result<(), NotFetched> {
        if self.claimed_bytes_per_key == 0 && !actions.can_send() {
            // `writable` follows.
            return Ok(());
        }
        match &self.keys {
            RequestedKeys::Few(_) => self.read_all(view, shared, actions),
            RequestedKeys::Many(_) => self.read_slice(view, shared, actions),
        }
    }

    fn read_all(
        &mut self,
        view: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl Responses + ResponseMemory + CallClock),
    ) -> Result<(), NotFetched> {
        let RequestedKeys::Few(request) = &self.keys else {
            return Ok(());
        };
        let keys = match sorted_keys(self.method, request) {
            Ok(keys) => keys,
            Err(status) => {
                actions.finish(status);
                return Ok(());
            }
        };
        let mut found = FoundRecords::default();
        let copied_bytes = match self.claimed_bytes_per_key {
            0 => {
                let values_bytes = expected_bytes(keys.len(), COPIED_BYTES_PER_KEY, shared);
                Some((values_bytes + request.len()).min(answer_bytes(shared)))
            }
            _ => None,
        };
        match found.gather(
            keys.into_iter(),
            (usize::MAX, copied_bytes),
            view,
            shared,
            actions,
        )? {
            GatherEnd::All | GatherEnd::Some(_) => found.respond(actions),
            GatherEnd::TooLarge => actions.finish(answer_too_large(answer_bytes(shared))),
            // Made anew when there is: `writable` follows.
            GatherEnd::NoMemory => {}
        }
        Ok(())
    }

    fn read_slice(
        &mut self,
        view: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses + ResponseMemory + CallClock),
    ) -> Result<(), NotFetched> {
        let RequestedKeys::Many(slices) = &mut self.keys else {
            return Ok(());
        };
        let keys = slices.slice.iter().skip(slices.passed).map(|key| &key[..]);
        let bounds = (TKRZW_READ_SLICE_BYTES, None);
        match slices.found.gather(keys, bounds, view, shared, actions)? {
            GatherEnd::Some(passed) => slices.passed += passed,
            GatherEnd::All => slices.take_slice(),
            GatherEnd::TooLarge => {
                actions.finish(answer_too_large(answer_bytes(shared)));
                return Ok(());
            }
            GatherEnd::NoMemory => {
                debug_assert!(false, "all that it may copy was claimed before");
            }
        }
        if slices.slice.is_empty() {
            std::mem::take(&mut slices.found).respond(actions);
            return Ok(());
        }
        // What was claimed for keys that have no record, or a short one, is free for others.
        let keys_left = slices.left + slices.slice.len() - slices.passed;
        let expected_bytes = expected_bytes(keys_left, self.claimed_bytes_per_key, shared);
        let found_bytes = slices.found.message.own.len() + slices.found.shared_bytes;
        let message_bytes = (found_bytes + expected_bytes).min(answer_bytes(shared));
        actions.reserve(self.request_bytes + message_bytes);
        actions.read_long(self.database);
        Ok(())
    }
}

impl KeySlices {
    fn new(request: &[u8], keys: &[&[u8]]) -> KeySlices {
        let records: Vec<_> = keys.iter().map(|&key| (key, &[][..])).collect();
        KeySlices {
            keys: SortedRecords::new(request, &records),
            is_sorted: false,
            left: keys.len(),
            slice: Vec::new(),
            passed: 0,
            found: FoundRecords::default(),
        }
    }

    /// Goes on with the next slice, which is empty if there is none.
    fn take_slice(&mut self) {
        self.slice.clear();
        self.passed = 0;
        while self.slice.len() < TKRZW_READ_SLICE_KEYS
            && let Some(key) = self.keys.take_key()
        {
            self.slice.push(key);
        }
        self.left = self.left.saturating_sub(self.slice.len());
    }
}

impl FoundRecords {
    /// Looks up keys until it has copied `slice_bytes`. `copied_bytes` is what the response may
    /// copy at most, if no memory for that was claimed yet.
    fn gather<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        (slice_bytes, copied_bytes): (usize, Option<usize>),
        view: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl ResponseMemory + CallClock),
    ) -> Result<GatherEnd, NotFetched> {
        let (now_ms, hasher) = (actions.now_ms(), shared.store.hasher());
        let most_bytes = answer_bytes(shared);
        let slice_end = self.message.own.len().saturating_add(slice_bytes);
        let mut is_claimed = copied_bytes.is_none();
        for (passed, key) in keys.enumerate() {
            if self.message.own.len() >= slice_end {
                return Ok(GatherEnd::Some(passed));
            }
            let hash = hasher.hash(key);
            let Some(entry) = view.get(key, hash, now_ms)? else {
                self.is_any_missing = true;
                continue;
            };
            view.touch(hash);
            if !self.add(key, &entry, most_bytes) {
                return Ok(GatherEnd::TooLarge);
            }
            if !is_claimed && self.message.own.len() > LARGE_ANSWER_BYTES {
                is_claimed = actions.can_send_large(copied_bytes.unwrap_or(0));
                if !is_claimed {
                    return Ok(GatherEnd::NoMemory);
                }
            }
        }
        Ok(GatherEnd::All)
    }

    /// Adds a record; false: the response would have more than `most_bytes`, beside values that it
    /// has several times.
    fn add(&mut self, key: &[u8], entry: &Entry<'_>, most_bytes: usize) -> bool {
        if let Value::Shared(value) = entry.value
            && self.shared_values.insert(value.as_ptr())
        {
            self.shared_bytes += value.len();
        }
        // Looked at before the value is copied.
        if self.message.len() + entry.value.len() > ANSWER_BYTES_MAX as usize
            || self.message.own.len() + self.shared_bytes > most_bytes
        {
            return false;
        }
        append_record(&mut self.message, key, entry);
        true
    }

    fn respond(mut self, actions: &mut impl Responses) {
        let result = match self.is_any_missing {
            true => RequestResult::NOT_FOUND,
            false => RequestResult::SUCCESS,
        };
        result.encode(&mut self.message.own);
        actions.respond_parts(self.message);
    }
}

/// At most this many bytes are what a record takes in a response beside its key and its value.
const PAIR_BYTES: usize = 18;

/// What a record takes of a response at most beside its key, if its value is copied: larger values
/// are shared.
const COPIED_BYTES_PER_KEY: usize = store::limits::SHARED_VALUE_BYTES + PAIR_BYTES;

/// Returns what the records of so many keys take at most.
fn expected_bytes(keys: usize, bytes_per_key: usize, shared: &Shared) -> usize {
    keys.saturating_mul(bytes_per_key).min(answer_bytes(shared))
}

/// What a response may have at most, in bytes.
pub(super) fn answer_bytes(shared: &Shared) -> usize {
    usize::try_from(shared.answer_bytes_max).unwrap_or(usize::MAX)
}

/// The status of a request whose response would be too large.
#[cold]
pub(super) fn answer_too_large(most: usize) -> Status {
    Status::resource_exhausted(format!(
        "the response would have more than {most} bytes; nothing was done. Ask for less at once, \
         or give the server more memory (--memory-limit)"
    ))
}

/// Appends a record. A large value is shared: to copy it would be a long step.
fn append_record(answer: &mut MessageParts, key: &[u8], entry: &Entry<'_>) {
    let (records, value) = (GetMultiResponse::NUMBERS.records, entry.value);
    let pair = |value| BytesPair {
        first: key,
        second: value,
    };
    match value {
        Value::Shared(value) if !value.is_empty() => {
            let head = pair(&[]);
            let number = BytesPair::NUMBERS.second;
            let bytes = head.encoded_len() + writer::bytes_len(number, value.len());
            writer::bytes_head(&mut answer.own, records, bytes);
            head.encode(&mut answer.own);
            writer::bytes_head(&mut answer.own, number, value.len());
            answer.share(value);
        }
        value @ (Value::Shared(_) | Value::Inline(_)) => {
            let bytes = value.bytes();
            writer::message(&mut answer.own, records, |out| pair(bytes).encode(out));
        }
    }
}

/// Returns the keys of a request as they come.
fn keys_of<'a>(method: Method, request: &GetMultiRequest<'a>) -> Result<Vec<&'a [u8]>, Status> {
    let keys: Result<Vec<_>, _> = request.keys.iter().collect();
    keys.map_err(|error| not_a_request(method, error))
}

/// Returns the keys of a request in order, each once.
fn sorted_keys(method: Method, request: &[u8]) -> Result<Vec<&[u8]>, Status> {
    let mut keys = keys_of(method, &decode(method, request)?)?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
