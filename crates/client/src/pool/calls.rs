//! The calls of a pool, waiting and in flight.

use wire::StreamKey;
use wire::grpc::Metadata;

use super::event::{PoolCall, PoolCallKey};
use super::kept::KeptMessages;
use crate::deadlines::Deadlines;

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStage {
    /// The slot is free.
    Free,
    /// It waits for its turn, in the queue.
    Waiting,
    /// It waits for the time of its next attempt.
    Delayed,
    /// It has a stream.
    Running {
        /// The slot of its connection.
        connection: u32,
        stream: StreamKey,
    },
}

/// What is fixed for a call when it begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallTraits {
    pub(super) is_repeatable: bool,
    pub(super) waits_for_ready: bool,
    pub(super) wants_head: bool,
    pub(super) holds_messages: bool,
    /// The request names gzip.
    pub(super) compress: bool,
    /// Its caller sends messages after it began.
    pub(super) is_streaming: bool,
}

/// A call, or a free slot for one.
#[derive(Debug)]
pub(super) struct PoolCallState {
    pub(super) generation: u32,
    pub(super) tag: u64,
    pub(super) stage: CallStage,
    /// When it ends; `u64::MAX`: never.
    pub(super) deadline_ns: u64,
    /// When its last attempt began.
    pub(super) opened_ns: u64,
    /// Messages of the answer so far.
    pub(super) messages: u64,
    /// Attempts that have begun.
    pub(super) attempts: u32,
    /// Attempts that were refused because of other calls, and count as none.
    pub(super) refusals: u32,
    /// Pauses of growing length between them.
    pub(super) pauses: u32,
    pub(super) traits: CallTraits,
    /// Something of an answer has come: it is not made again.
    pub(super) is_committed: bool,
    /// More was sent than is kept: it is not made again.
    pub(super) has_outgrown: bool,
    /// Its caller has ended its side.
    pub(super) is_send_ended: bool,
    /// Messages from here on are sent in gzip.
    pub(super) compresses: bool,
    /// Its caller wants to know when it takes messages again.
    pub(super) wants_writable: bool,
    /// An attempt has failed that the server may have begun with.
    pub(super) is_uncertain: bool,
    pub(super) path: String,
    pub(super) metadata: Option<Metadata>,
    pub(super) kept: KeptMessages,
}

impl PoolCallState {
    fn free() -> PoolCallState {
        PoolCallState {
            generation: 0,
            tag: 0,
            stage: CallStage::Free,
            deadline_ns: u64::MAX,
            opened_ns: 0,
            messages: 0,
            attempts: 0,
            refusals: 0,
            pauses: 0,
            traits: CallTraits::default(),
            is_committed: false,
            has_outgrown: false,
            is_send_ended: false,
            compresses: false,
            wants_writable: false,
            is_uncertain: false,
            path: String::new(),
            metadata: None,
            kept: KeptMessages::default(),
        }
    }

    fn occupy(&mut self, tag: u64, call: &PoolCall<'_>, deadline_ns: u64) {
        debug_assert_eq!(self.stage, CallStage::Free);
        self.tag = tag;
        self.stage = CallStage::Waiting;
        self.deadline_ns = deadline_ns;
        (self.messages, self.attempts, self.refusals, self.pauses) = (0, 0, 0, 0);
        self.traits = CallTraits {
            is_repeatable: call.is_repeatable,
            waits_for_ready: call.waits_for_ready,
            wants_head: call.wants_head,
            holds_messages: call.holds_messages,
            compress: call.compress,
            is_streaming: false,
        };
        (self.is_committed, self.has_outgrown, self.is_send_ended) = (false, false, false);
        (self.wants_writable, self.is_uncertain) = (false, false);
        self.compresses = call.compress;
        self.path.clear();
        self.path.push_str(call.path);
    }

    fn vacate(&mut self) {
        self.stage = CallStage::Free;
        self.generation = self.generation.wrapping_add(1);
        self.metadata = None;
        self.kept.clear();
    }
}

/// Calls by slot. A slot is used again, the last freed first.
#[derive(Debug, Default)]
pub(super) struct PoolCalls {
    slots: Vec<PoolCallState>,
    free: Vec<u32>,
    deadlines: Deadlines<PoolCallKey>,
}

impl PoolCalls {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a call, in the stage `Waiting`.
    pub(super) fn insert(
        &mut self,
        tag: u64,
        call: &PoolCall<'_>,
        deadline_ns: u64,
    ) -> PoolCallKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(PoolCallState::free());
            // Bounded by the calls in flight and those that wait.
            self.slots.len() as u32 - 1
        });
        let state = &mut self.slots[slot as usize];
        state.occupy(tag, call, deadline_ns);
        let key = PoolCallKey {
            slot,
            generation: state.generation,
        };
        if deadline_ns != u64::MAX {
            let (slots, calls) = (&self.slots, self.slots.len() - self.free.len());
            self.deadlines
                .push(deadline_ns, key, calls, |key| get(slots, key).is_some());
        }
        key
    }

    pub(super) fn get(&self, key: PoolCallKey) -> Option<&PoolCallState> {
        get(&self.slots, key)
    }

    pub(super) fn get_mut(&mut self, key: PoolCallKey) -> Option<&mut PoolCallState> {
        let found = self.slots.get_mut(key.slot as usize)?;
        let is_it = found.generation == key.generation && found.stage != CallStage::Free;
        is_it.then_some(found)
    }

    /// Returns the call that runs on a stream, by the token of the stream: one more than its slot.
    pub(super) fn running(
        &mut self,
        token: u32,
        connection: u32,
        stream: StreamKey,
    ) -> Option<(PoolCallKey, &mut PoolCallState)> {
        let slot = token.checked_sub(1)?;
        let found = self.slots.get_mut(slot as usize)?;
        let key = PoolCallKey {
            slot,
            generation: found.generation,
        };
        let stage = CallStage::Running { connection, stream };
        (found.stage == stage).then_some((key, found))
    }

    pub(super) fn remove(&mut self, key: PoolCallKey) {
        if let Some(found) = self.get_mut(key) {
            found.vacate();
            self.free.push(key.slot);
        }
    }

    /// All calls.
    pub(super) fn keys(&self) -> impl Iterator<Item = PoolCallKey> {
        (0..).zip(&self.slots).filter_map(|(slot, state)| {
            (state.stage != CallStage::Free).then_some(PoolCallKey {
                slot,
                generation: state.generation,
            })
        })
    }

    /// When [`PoolCalls::next_expired`] may return a call; `u64::MAX`: never.
    pub(super) fn next_deadline_ns(&self) -> u64 {
        self.deadlines.next_ns().unwrap_or(u64::MAX)
    }

    /// Returns the next call whose deadline has passed by now, each once.
    pub(super) fn next_expired(&mut self, now_ns: u64) -> Option<PoolCallKey> {
        let slots = &self.slots;
        self.deadlines.pop(now_ns, |key| get(slots, key).is_some())
    }
}

fn get(slots: &[PoolCallState], key: PoolCallKey) -> Option<&PoolCallState> {
    let found = slots.get(key.slot as usize)?;
    let is_it = found.generation == key.generation && found.stage != CallStage::Free;
    is_it.then_some(found)
}
