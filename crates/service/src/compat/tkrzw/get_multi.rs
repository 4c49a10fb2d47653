//! GetMulti: several records of one view.

use std::collections::HashSet;

use api::tkrzw::{BytesPair, GetMultiRequest, GetMultiResponse};
use protobuf::writer;
use store::tree::{NotFetched, ReadPlan};
use store::{DatabaseId, Entry, IndexView, ReadView, Value};

use super::decode::{decode, not_a_request};
use super::result::RequestResult;
use super::target::target;
use super::{TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, DatabaseAccess, ResponseMemory, Responses, SendRoom};
use crate::call::Shared;
use crate::keyvalue;
use crate::limits::{ANSWER_BYTES_MAX, LARGE_ANSWER_BYTES};
use crate::message_parts::MessageParts;
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

/// A GetMulti that waits for a view.
pub(super) struct GetMulti {
    method: Method,
    /// Decoded again when it is served: cheaper than a list of keys.
    request: Box<[u8]>,
    database: DatabaseId,
    /// What the values may take that are fetched for it, of a database on disk.
    expected_bytes: usize,
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
        let keys = sorted_keys(method, request.keys.iter())?;
        keys.iter().try_for_each(|key| keyvalue::check_key(key))?;
        let is_on_disk = matches!(shared.store.index_view(database), IndexView::Disk(_));
        let limits = shared.store.limits(database).unwrap_or_default();
        let expected_bytes = match is_on_disk {
            true => (keys.len().saturating_mul(limits.value_bytes)).min(answer_bytes(shared)),
            false => 0,
        };
        if !actions.room_for_answer(bytes.len() + expected_bytes) {
            return Ok(None);
        }
        let call = GetMulti {
            method,
            request: bytes.into(),
            database,
            expected_bytes,
        };
        call.ask(actions);
        Ok(Some(TkrzwStep::GetMulti(Box::new(call))))
    }

    /// Asks for its view.
    pub(super) fn ask(&self, actions: &mut (impl DatabaseAccess + ResponseMemory)) {
        actions.reserve(self.request.len() + self.expected_bytes);
        actions.read_long(self.database);
    }

    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        let keys = self.keys().unwrap_or_default();
        plan.keys(usize::MAX, keys.into_iter());
    }

    fn keys(&self) -> Result<Vec<&[u8]>, Status> {
        let request: GetMultiRequest<'_> = decode(self.method, &self.request)?;
        sorted_keys(self.method, request.keys.iter())
    }

    /// Responds from one view.
    pub(super) fn read(
        &mut self,
        shown: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl Responses + SendRoom + ResponseMemory + CallClock),
    ) -> Result<(), NotFetched> {
        let mut is_claimed = self.expected_bytes > 0;
        if !is_claimed && !actions.can_send() {
            // `writable` follows.
            return Ok(());
        }
        let keys = match self.keys() {
            Ok(keys) => keys,
            Err(status) => {
                actions.finish(status);
                return Ok(());
            }
        };
        let (now_ms, hasher) = (actions.now_ms(), shared.store.hasher());
        let (mut answer, mut result) = (MessageParts::default(), RequestResult::SUCCESS);
        // What it shares with the database, each value once.
        let (mut shared_values, mut shared_bytes) = (HashSet::new(), 0);
        for &key in &keys {
            let hash = hasher.hash(key);
            let Some(entry) = shown.get(key, hash, now_ms)? else {
                result = RequestResult::NOT_FOUND;
                continue;
            };
            shown.touch(hash);
            if let Value::Shared(value) = entry.value
                && shared_values.insert(value.as_ptr())
            {
                shared_bytes += value.len();
            }
            let most = answer_bytes(shared);
            // Looked at before the value is copied.
            if answer.len() + entry.value.len() > ANSWER_BYTES_MAX as usize
                || answer.own.len() + shared_bytes > most
            {
                actions.finish(answer_too_large(most));
                return Ok(());
            }
            append_record(&mut answer, key, &entry);
            if !is_claimed && answer.own.len() > LARGE_ANSWER_BYTES {
                is_claimed = actions.can_send_large(self.most_copied_bytes(keys.len(), most));
                if !is_claimed {
                    // Made anew when there is memory for it.
                    return Ok(());
                }
            }
        }
        result.encode(&mut answer.own);
        actions.respond_parts(answer);
        Ok(())
    }

    /// What its response may copy: larger values are shared.
    fn most_copied_bytes(&self, keys: usize, most: usize) -> usize {
        let values = keys.saturating_mul(store::limits::SHARED_VALUE_BYTES + PAIR_BYTES);
        values.saturating_add(self.request.len()).min(most)
    }
}

/// At most this many bytes are what a record takes in a response beside its key and its value.
const PAIR_BYTES: usize = 18;

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

/// Returns keys in order, each once.
fn sorted_keys<'a>(
    method: Method,
    given: impl Iterator<Item = Result<&'a [u8], protobuf::DecodeError>>,
) -> Result<Vec<&'a [u8]>, Status> {
    let keys: Result<Vec<_>, _> = given.collect();
    let mut keys = keys.map_err(|error| not_a_request(method, error))?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
