//! Whose turn it is to have existing values copied in a group of the log.

use std::collections::{BTreeSet, HashSet};

use crate::blob::UploadPeer;
use crate::limits;
use crate::record::Source;

/// Shares out what the Appends of a group may copy
/// ([`GROUP_REWRITTEN_BYTES`](limits::GROUP_REWRITTEN_BYTES)).
///
/// A commit that has no turn is passed over, and all of its connection that come behind it, so that
/// they stay in order. Other connections go on: whoever copies nothing waits for one group, however
/// much others want copied. Where addresses want more than one group takes, they take turns, so
/// that none waits for all that another one has asked for. A group with much copied is followed by
/// one with none, if there is anything else for that.
#[derive(Debug)]
pub(super) struct Shares {
    /// Bytes copied in the group.
    copied_bytes: usize,
    /// Connections of which commits were passed over in the group, each with its loop.
    held: HashSet<(usize, u64)>,
    /// Their addresses, in the order in which they were first passed over.
    held_addresses: Vec<UploadPeer>,
    /// Addresses that were passed over in the group before; the first ones have their turn.
    waiting: Vec<UploadPeer>,
    /// How many of them have their turn.
    turns: usize,
    /// Addresses that had something copied in the group.
    served: BTreeSet<UploadPeer>,
    /// Nothing is copied in the group, since much was in the one before.
    rests: bool,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares {
            copied_bytes: 0,
            held: HashSet::new(),
            held_addresses: Vec::new(),
            waiting: Vec::new(),
            turns: limits::REWRITING_TURNS,
            served: BTreeSet::new(),
            rests: false,
        }
    }
}

impl Shares {
    /// Returns whether a commit has to wait for a later group.
    #[inline]
    pub(super) fn holds(&mut self, from: usize, source: Source, rewrites: bool) -> bool {
        let connection = (from, source.connection);
        if !self.held.is_empty() && self.held.contains(&connection) {
            return true;
        }
        rewrites && self.holds_rewriting(connection, source.address)
    }

    fn holds_rewriting(&mut self, connection: (usize, u64), address: UploadPeer) -> bool {
        let with_turn = &self.waiting[..self.turns.min(self.waiting.len())];
        let has_turn = self.waiting.is_empty() || with_turn.contains(&address);
        if has_turn && !self.rests && self.copied_bytes < limits::GROUP_REWRITTEN_BYTES {
            return false;
        }
        self.held.insert(connection);
        if !self.held_addresses.contains(&address) {
            self.held_addresses.push(address);
        }
        true
    }

    /// Counts what a commit has copied, also where nothing comes of it.
    #[inline]
    pub(super) fn charge(&mut self, source: Source, copied_bytes: usize) {
        if copied_bytes > 0 {
            self.copied_bytes += copied_bytes;
            self.served.insert(source.address);
        }
    }

    /// Returns the bytes copied in the group.
    #[inline]
    pub(super) fn copied_bytes(&self) -> usize {
        self.copied_bytes
    }

    /// Lets the group copy after all, as there is nothing else for it; returns whether that changes
    /// anything.
    pub(super) fn end_rest(&mut self) -> bool {
        let was_resting = std::mem::take(&mut self.rests);
        if was_resting {
            self.held.clear();
            self.held_addresses.clear();
        }
        was_resting
    }

    /// The group is over: those that were passed over have their turn before those that were
    /// served.
    pub(super) fn end_group(&mut self) {
        let has_rested = std::mem::take(&mut self.rests);
        self.rests = self.copied_bytes >= limits::RESTING_REWRITTEN_BYTES;
        if has_rested {
            // It says nothing of how many have room in a group.
        } else if self.copied_bytes >= limits::GROUP_REWRITTEN_BYTES {
            self.turns = self.served.len().max(1);
        } else {
            self.turns = (self.turns * 2).min(limits::REWRITING_TURNS);
        }
        self.copied_bytes = 0;
        self.held.clear();
        let is_held = |address: &UploadPeer| self.held_addresses.contains(address);
        let has_waited = |address: &UploadPeer| !self.served.contains(address);
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|address| is_held(address) && has_waited(address));
        let old = waiting.len();
        for was_served in [false, true] {
            for address in &self.held_addresses {
                let is_next = self.served.contains(address) == was_served;
                if is_next && !waiting[..old].contains(address) {
                    waiting.push(*address);
                }
            }
        }
        self.waiting = waiting;
        self.held_addresses.clear();
        self.served.clear();
    }
}
