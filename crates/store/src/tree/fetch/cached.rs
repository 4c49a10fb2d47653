//! Plans that need nobody who waits for the device: all their keys were read lately.

use std::sync::Arc;

use super::fetched::{Fetched, FetchedEntry, Prefetched};
use super::plan::{PlannedRead, ReadPlan};
use crate::tree::index::TreeIndex;

impl Fetched {
    /// Takes out of some plan those of calls that look at single keys, all of which were read
    /// lately and have not changed since. `None`: there are none. Never waits for the device. The
    /// history is that of the tree's sequences.
    pub(crate) fn from_cache_in(
        tree: &TreeIndex,
        plan: &mut ReadPlan,
        history_id: u64,
    ) -> Option<Fetched> {
        let sequence = tree.sequence();
        let mut entries = Vec::new();
        let mut calls = Vec::new();
        let mut is_found = Vec::with_capacity(plan.len());
        for call in &plan.calls {
            let found = find(tree, plan, &call.read, &mut entries);
            is_found.push(found.is_some());
            calls.extend(found);
        }
        // Something has become visible between two of them: then they are of no one view.
        if calls.is_empty() || tree.sequence() != sequence {
            return None;
        }
        let bytes = entries.iter().flatten().map(FetchedEntry::bytes).sum();
        Some(Fetched {
            plan: Arc::new(plan.take_out(&is_found)),
            sequence,
            history_id,
            first: 0,
            calls,
            entries,
            bytes,
        })
    }
}

/// The entries of a call's keys, in their order. `None`: not all of them are there.
fn find(
    tree: &TreeIndex,
    plan: &ReadPlan,
    read: &PlannedRead,
    entries: &mut Vec<Option<FetchedEntry>>,
) -> Option<Prefetched> {
    let PlannedRead::Keys { keys, value_bytes } = read else {
        return None;
    };
    let first = entries.len();
    let mut left = Some(*value_bytes);
    for place in keys.clone() {
        // Beyond its bytes the call does not look.
        let Some(bytes_left) = left else { break };
        let stored = tree.shared.rows.find(plan.key_at(place));
        let Some(entry) = stored.and_then(FetchedEntry::of_key) else {
            entries.truncate(first);
            return None;
        };
        left = bytes_left.checked_sub(entry.bytes());
        entries.push(Some(entry));
    }
    Some(Prefetched::Keys {
        first_key: keys.start,
        entries: first..entries.len(),
    })
}
